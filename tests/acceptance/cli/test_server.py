"""`chasqui server`: an embedded server that outlives the command that started it."""

import json
import os
import signal

import pytest

from chasquimq import SyncQueue
from tests.acceptance.cli.conftest import environment
from tests.support.eventually import eventually_sync
from tests.support.program import Program


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def server_command(tmp_path, data_dir):
    """Run `chasqui server ...`; whatever was started is stopped in the end."""

    def call(verb, *arguments, **env):
        env = {"CHASQUI_REDIS_URL": f"embedded://{data_dir}", **env}
        program = Program("server", verb, *arguments, cwd=tmp_path, env=environment(**env))
        return program.ended(), program.text

    yield call
    call("stop", "--force")


def status(server_command):
    code, text = server_command("status", "--json")
    return code, eval(text, {"true": True, "false": False, "null": None})  # noqa: S307 -- ours


def test_a_server_is_started_kept_and_stopped_and_its_jobs_stay(server_command, data_dir):
    url = f"embedded://{data_dir}"
    assert server_command("start") == (0, f"started\n  export CHASQUI_REDIS_URL={url}")
    assert server_command("start") == (0, f"it runs already\n  export CHASQUI_REDIS_URL={url}")
    with SyncQueue("emails", redis_url=url) as queue:
        queue.add("welcome", None)

    code, known = status(server_command)
    assert code == 0
    assert known["url"] == url
    assert known["held"] is True
    assert known["persistence"] == "append-only file"
    assert known["keys"] > 0
    assert known["used_memory_bytes"] > 0
    os.kill(known["pid"], 0)

    assert server_command("stop") == (0, "stopped")
    code, text = server_command("status")
    assert (code, text) == (1, f"no server of {data_dir} is running")
    code, text = server_command("stop")
    assert (code, text) == (1, f"chasqui: no server of {data_dir} is running")

    server_command("start")
    with SyncQueue("emails", redis_url=url) as queue:
        assert queue.counts().waiting == 1


def test_the_status_is_shown_to_people(server_command, data_dir):
    server_command("start")
    code, text = server_command("status")
    assert code == 0
    for word in ("url", "version", "up for", "memory", "persistence", "it is stopped"):
        assert word in text


def test_a_server_that_crashed_is_started_again_with_its_data(server_command, data_dir):
    server_command("start")
    _, before = status(server_command)
    os.kill(before["pid"], signal.SIGKILL)
    after = eventually_sync(lambda: running_again(server_command, before["pid"]))
    assert after["held"] is True


def running_again(server_command, old_pid):
    code, known = status(server_command)
    return known if code == 0 and known["pid"] != old_pid else None


def test_a_server_that_is_used_goes_on_after_a_stop_until_its_last_user_ends(
    server_command, data_dir
):
    url = f"embedded://{data_dir}"
    server_command("start")
    with SyncQueue("emails", redis_url=url) as queue:
        queue.add("welcome", None)
        code, text = server_command("stop")
        assert (code, text.partition(":")[0]) == (1, "programs still use it")
        code, text = server_command("stop", "--json")
        assert (code, json.loads(text)) == (1, {"stopped": False, "in_use": True})
        assert queue.counts().waiting == 1
        assert status(server_command)[1]["held"] is False
    eventually_sync(lambda: status(server_command)[0] == 1)


def test_a_used_server_is_stopped_by_force(server_command, data_dir):
    server_command("start")
    with SyncQueue("emails", redis_url=f"embedded://{data_dir}") as queue:
        queue.add("welcome", None)
        code, text = server_command("stop", "--force")
        assert (code, text.splitlines()[0]) == (0, "stopped")
        assert "programs still use it, and start it again when they need it: end them" in text
        assert queue.counts().waiting == 1
        code, text = server_command("stop", "--force", "--json")
        assert (code, json.loads(text)) == (0, {"stopped": True, "in_use": True})


def test_a_server_that_nobody_uses_is_stopped_by_force_without_a_remark(server_command):
    server_command("start")
    assert server_command("stop", "--force") == (0, "stopped")


def test_a_directory_that_cannot_be_is_told(server_command, tmp_path):
    (tmp_path / "file").touch()
    code, text = server_command("start", "--data-dir", str(tmp_path / "file" / "deeper"))
    assert code == 2
    assert "cannot be the directory of an embedded server" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("action", ["start", "status", "stop"])
def test_a_directory_with_a_name_that_no_system_takes_is_told_in_a_line(server_command, action):
    code, text = server_command(action, "--data-dir", "x" * 5_000)
    assert code in {1, 2}
    assert "File name too long" in text
    assert len(text.splitlines()) == 1

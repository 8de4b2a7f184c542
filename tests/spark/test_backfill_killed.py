"""`chasqui pipeline backfill` killed midway, and the same command again."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually_sync
from tests.support.spark import DRIVER_MARKS, SMALL

pytestmark = [*DRIVER_MARKS, pytest.mark.usefixtures("java")]

ROWS = 3_000
# Other than in the session that goes on: files are cut into many small parts, by three cores.
CONF = SMALL | {"spark.master": "local[3]", "spark.sql.files.maxPartitionBytes": "10000"}
# The same command twice, in a session that is there and goes on.
AGAIN = """
import sys
from chasquimq.cli.main import entry
from chasquimq.spark import session
from tests.support.spark import SMALL
spark = session("again", SMALL)
codes = entry([*sys.argv[1:], "--json"]), entry(sys.argv[1:])
print(codes, spark.conf.get("spark.sql.files.minPartitionNum", None))
"""


def test_killed_midway_the_same_command_adds_the_rest_and_each_row_once(
    server, queue, queue_name, tmp_path, monkeypatch
):
    """In a session with other cores and settings, where Spark would cut the files otherwise.

    Tasks are not in the group that is killed, so some live on for a moment and add more.
    """
    for part in range(2):
        numbers = range(part * ROWS // 2, (part + 1) * ROWS // 2)
        text = "n,who\n" + "".join(f"{number},ada\n" for number in numbers)
        (tmp_path / f"part-{part}.csv").write_text(text)
    line = ["pipeline", "backfill", "part-*.csv", "--queue", queue_name, "--name", "import"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHASQUI_REDIS_URL", server.url)
    conf = [f"--conf={name}={value}" for name, value in CONF.items()]
    with subprocess.Popen(
        [sys.executable, "-m", "chasquimq", *line, "--rate", "600", *conf],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as killed:  # fmt: skip
        eventually_sync(lambda: queue.counts().waiting > 500 or killed.poll() is not None, 180)
        assert killed.poll() is None, killed.communicate()
        os.killpg(killed.pid, signal.SIGKILL)
        told = killed.communicate()[1]
    before = queue.counts().waiting
    assert 500 < before < ROWS
    assert "of 3,000 rows (" in told

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    again = subprocess.run(
        [sys.executable, "-c", AGAIN, *line],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    first, *told, kept = again.stdout.splitlines()
    done = json.loads(first)
    assert done["before"] >= before
    assert done["before"] + done["added"] == done["rows"] == ROWS
    found = server.client().xrange(QueueKeys(queue_name).stream)
    numbers = Counter(unpack(decode(fields[b"d"]).payload)["n"] for _, fields in found)
    assert numbers == {str(number): 1 for number in range(ROWS)}

    assert f"0 jobs added to queue {queue_name} of 3000 rows" in "".join(told)
    assert "3000 were added before; --anew adds them again" in "".join(told)
    assert kept == "(0, 0) None"

"""`chasqui doctor`: each finding provoked on a real server, with its remedy and exit code."""

import re

import pytest

from chasquimq import RepeatPattern, SyncQueue
from chasquimq.wire.keys import QueueKeys

FINE, WARNINGS, PROBLEMS = 0, 1, 4


@pytest.fixture
def queue(server, queue_name):
    with SyncQueue(queue_name, redis_url=server.url) as queue:
        yield queue


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


@pytest.fixture
def examine(chasqui, queue_name):
    """The findings about this test's queue, or the server, by their check."""

    def examine(*arguments, about_server=False, **variables):
        answer = chasqui("doctor", queue_name, "--json", *arguments, **variables)
        assert answer.err == ""
        assert (
            answer.code
            == {"ok": FINE, "warning": WARNINGS, "problem": PROBLEMS}[answer.json["severity"]]
        )
        wanted = None if about_server else queue_name
        found = [each for each in answer.json["findings"] if each["queue"] == wanted]
        for each in found:
            assert bool(each["remedy"]) == (each["severity"] != "ok"), each
        return {each["check"]: each for each in found}

    return examine


def told(finding):
    return finding["severity"], finding["message"]


# --- the server


@pytest.fixture
def examine_own(start_server, examine):
    """The findings about a server of the test's own, with settings."""

    def examine_own(*settings):
        own = start_server("valkey", *settings)
        return examine(about_server=True, CHASQUI_REDIS_URL=own.url)

    return examine_own


@pytest.mark.servers("valkey")
def test_a_server_is_described(examine, server):
    found = examine(about_server=True)
    assert found["server"]["message"].startswith("valkey ")
    assert server.url in found["connection"]["message"]
    assert found["clock"]["severity"] == "ok"
    assert found["eviction"]["severity"] == "ok"
    assert " of " in found["memory"]["message"]


@pytest.mark.servers("redis-8.6")
def test_a_new_server_is_described_with_what_it_can_do(examine):
    found = examine(about_server=True)
    assert found["server"]["message"].endswith("with XACKDEL, XREADGROUP CLAIM, XADD IDMP")


@pytest.mark.servers("valkey")
@pytest.mark.parametrize(
    ("policy", "severity", "means"),
    [("allkeys-lru", "problem", "jobs are deleted"), ("volatile-ttl", "warning", "results and")],
)
def test_a_server_that_evicts_keys(server, examine_own, policy, severity, means):
    found = examine_own("--maxmemory-policy", policy)["eviction"]
    assert found["severity"] == severity
    assert f"maxmemory-policy is {policy}: {means}" in found["message"]
    assert "CONFIG SET maxmemory-policy noeviction" in found["remedy"]


@pytest.mark.servers("valkey")
def test_a_server_that_keeps_nothing_on_disk(server, examine_own):
    assert told(examine_own("--appendonly", "no", "--save", "")["persistence"]) == (
        "warning",
        "no append-only file and no dump since it started: a restart loses every job",
    )
    assert told(examine_own("--appendonly", "yes")["persistence"]) == ("ok", "append-only file")


@pytest.mark.servers("valkey")
@pytest.mark.parametrize(("limit", "severity"), [("1200000", "problem"), ("64mb", "ok")])
def test_a_server_that_is_nearly_full(server, examine_own, limit, severity):
    found = examine_own("--maxmemory", limit)["memory"]
    assert found["severity"] == severity
    assert "of maxmemory" in found["message"]


def test_a_server_that_is_not_there_is_exit_code_3(chasqui, server):
    answer = chasqui("doctor", CHASQUI_REDIS_URL="redis://127.0.0.1:1")
    assert answer.code == 3
    assert answer.err.count("\n") == 1


# --- a queue


def test_a_queue_that_does_not_exist(examine):
    assert examine()["queue"]["severity"] == "warning"


def test_a_queue_that_is_well(examine, queue, client, keys):
    client.xgroup_create(keys.stream, "default", id="0", mkstream=True)
    client.xgroup_createconsumer(keys.stream, "default", "c-1")
    found = examine()
    assert {each["severity"] for each in found.values()} == {"ok"}
    assert told(found["workers"]) == ("ok", "1 ask for jobs")


def test_jobs_that_nobody_works_on(examine, queue):
    queue.add("welcome", None)
    found = examine()["workers"]
    assert told(found) == ("problem", "waiting: 1, and no worker has asked for them")
    assert found["remedy"] == f"start one: chasqui worker MODULE:NAME {queue.name}"


def test_another_group_and_a_second_one(examine, queue, client, keys):
    client.xgroup_create(keys.stream, "other", id="0", mkstream=True)
    assert told(examine()["group"]) == ("problem", "there is no group 'default', but 'other'")
    assert told(examine("--group", "other")["group"]) == ("ok", "other")
    client.xgroup_create(keys.stream, "default", id="0")
    assert told(examine()["group"]) == ("problem", "besides 'default' there is 'other'")


def test_deliveries_that_are_silent_for_longer_than_their_lease(examine, queue, client, keys):
    queue.add("welcome", None)
    client.xgroup_create(keys.stream, "default", id="0")
    client.xreadgroup("default", "c-dead", {keys.stream: ">"})
    assert told(examine()["deliveries"]) == ("ok", "1 in flight, none silent")
    [entry] = client.xpending_range(keys.stream, "default", "-", "+", 1)
    client.xclaim(keys.stream, "default", "c-dead", 0, [entry["message_id"]], idle=90_000)
    found = examine()["deliveries"]
    assert found["severity"] == "warning"  # somebody asked for jobs a moment ago
    assert found["message"].startswith("1 deliveries silent for more than the lease of 30 s")
    assert found["message"].endswith("held by 'c-dead'")
    found = examine("--gone-ms", "1")
    assert found["deliveries"]["severity"] == "problem"
    severity, message = told(found["consumers"])
    assert severity == "ok"
    assert message.startswith("1 consumers belong to workers that are gone: 'c-dead';")


def test_a_paused_queue(examine, queue):
    queue.pause()
    assert told(examine()["paused"]) == (
        "warning",
        "the queue is paused: workers take no new jobs",
    )


def test_workers_of_a_paused_queue_are_not_taken_for_dead(examine, queue, client, keys):
    """They ask for nothing until it is resumed, and look like those that were killed."""
    queue.add_bulk([{"name": "welcome", "data": None}] * 2)
    client.xgroup_create(keys.stream, "default", id="0")
    client.xreadgroup("default", "c-1", {keys.stream: ">"}, count=1)
    assert examine("--gone-ms", "1")["workers"]["severity"] == "problem"
    queue.pause()
    found = examine("--gone-ms", "1", "--lease-ms", "1")
    assert told(found["workers"]) == (
        "ok",
        "cannot be told: none asks for jobs while the queue is paused",
    )
    assert "consumers" not in found
    assert found["deliveries"]["severity"] == "warning"
    assert found["deliveries"]["remedy"].startswith(f"chasqui resume {queue.name}")


@pytest.mark.parametrize(
    "attribute",
    ["stream", "dlq", "delayed", "repeat", "events", "promoter_lock", "scheduler_lock"],
)
def test_a_key_of_another_type_is_a_problem(examine, queue, client, keys, attribute):
    queue.add("welcome", None)
    key = getattr(keys, attribute)
    client.delete(key)
    client.sadd(key, "x")
    client.expire(key, 60)
    found = examine()["refused"]
    assert found["severity"] == "problem"
    assert found["message"].startswith(f"the server does not tell of {key.decode()!r}: WRONGTYPE ")
    assert "delete or rename it" in found["remedy"]


@pytest.mark.servers("valkey", "redis-6.2")
def test_keys_that_may_not_be_read_are_a_problem(examine, start_server, queue_name, keys):
    own = start_server()
    with SyncQueue(queue_name, redis_url=own.url) as queue:
        queue.add("welcome", None)
    acl = ("ACL", "SETUSER", "default")
    own.client().execute_command(*acl, "resetkeys", f"~{keys.tag.decode()}:probe")
    found = examine(CHASQUI_REDIS_URL=own.url)
    assert "queue" not in found  # it may well exist
    assert "NOPERM" in found["refused"]["message"]
    assert "ACL SETUSER" in found["refused"]["remedy"]
    own.client().execute_command(*acl, "allkeys", "-scan")
    refused = examine(CHASQUI_REDIS_URL=own.url)["refused"]
    assert refused["message"].startswith(
        f"the server does not tell of {keys.tag.decode()!r}: NOPERM"
    )
    own.client().execute_command(*acl, "+scan")  # the guard looks for keys that never expire


def test_delayed_jobs_without_a_promoter_and_overdue_ones(examine, queue, client, keys):
    queue.add("welcome", None, delay_ms=60_000)
    assert told(examine()["delayed"]) == ("warning", "1 delayed, and no promoter leads")
    [member] = client.zrange(keys.delayed, 0, 0)
    client.zincrby(keys.delayed, -360_000, member)
    found = examine()["delayed"]
    assert found["severity"] == "problem"
    assert re.search(r"the first should have run 3\d\d s ago", found["message"])
    assert "no promoter leads" in found["remedy"]
    client.set(keys.promoter_lock, "c-1", ex=60)
    assert "a promoter leads" in examine()["delayed"]["remedy"]


def test_recurring_jobs_without_a_scheduler_overdue_and_unreadable(examine, queue, client, keys):
    job = queue.add("report", None, repeat=RepeatPattern.every(60_000))
    assert told(examine()["recurring"]) == ("warning", "1 recurring jobs, and no scheduler leads")
    client.zincrby(keys.repeat, -360_000, job.id)
    assert re.search(r"one should have fired 3\d\d s ago", examine()["recurring"]["message"])
    client.hset(keys.repeat_spec(job.id), "spec", b"\xff")
    found = examine()["specs"]
    assert found["severity"] == "problem"
    assert repr(job.id) in found["message"]


def test_many_dead_letters_of_late(examine, queue, client, keys):
    for _ in range(9):
        client.xadd(keys.dlq, {"d": b"x", "reason": "malformed"})
    assert examine()["dead letters"]["severity"] == "ok"
    client.xadd(keys.dlq, {"d": b"x", "reason": "malformed"})
    found = examine()["dead letters"]
    assert told(found) == ("warning", "10 dead letters, 10 of them from the last hour")
    assert f"chasqui dlq peek {queue.name}" in found["remedy"]


def test_members_that_are_no_jobs(examine, client, keys):
    client.zadd(keys.delayed, {b"\x00": 9e15})
    assert told(examine()["delayed members"]) == ("problem", "1 delayed members are no jobs")


def test_keys_that_no_queue_has(examine, queue, client, keys):
    queue.add("welcome", None, job_id="mine")
    client.set(keys.tag + b":strange", "x", ex=60)
    found = examine()["keys"]
    assert found["severity"] == "warning"
    assert found["message"] == f"keys that no queue has: '{(keys.tag + b':strange').decode()}'"
    assert "obliterate leaves them" in found["remedy"]


@pytest.mark.servers("valkey")
def test_all_queues_are_examined_and_shown_to_people(chasqui, server, queue):
    queue.add("welcome", None)
    answer = chasqui("doctor")
    assert answer.code == PROBLEMS
    assert answer.out.startswith("server\n")
    assert f"queue {queue.name}\n" in answer.out
    assert "PROBLEM workers" in answer.out
    assert "-> start one: chasqui worker" in answer.out

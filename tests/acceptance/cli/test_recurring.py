"""`repeatable`: recurring jobs from the command line."""

import re
from datetime import UTC, datetime

import pytest

from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import RepeatableSpec, RepeatPattern, encode_spec


def test_a_recurring_job_is_stored_listed_paused_run_and_removed(chasqui, done, queue_name):
    added = done("repeatable", "add", queue_name, "digest", '{"a": 1}', "--cron", "0 8 * * MON",
                 "--tz", "Europe/Berlin", "--limit", "5", "--json").json  # fmt: skip
    key = "digest::cron:0 8 * * MON:Europe/Berlin"
    assert added["key"] == key
    assert added["description"] == "At 08:00 on Monday (Europe/Berlin)"
    assert len(added["next_fires_ms"]) == 3

    done("repeatable", "pause", queue_name, key)
    (listed,) = done("repeatable", "ls", queue_name, "--json").lines
    assert (listed["key"], listed["paused"], listed["limit"]) == (key, True, 5)
    assert listed["next_fire_ms"] == added["next_fires_ms"][0]
    assert listed == done("repeatable", "list", queue_name, "--json").json
    done("repeatable", "resume", queue_name, key)

    fired = done("repeatable", "run", queue_name, key, "--json").json
    assert fired["id"].startswith(f"{key}@")
    assert done("counts", queue_name, "--json").json["waiting"] == 1

    assert done("repeatable", "rm", queue_name, key).out == "removed\n"
    assert done("repeatable", "remove", queue_name, key).out == "not found\n"
    assert chasqui("repeatable", "pause", queue_name, key).code == 1


def test_what_is_told_of_a_stored_job_are_the_times_that_are_stored(done, queue_name):
    added = done("repeatable", "add", queue_name, "x", "--every", "1h", "--limit", "2", "--json")
    (listed,) = done("repeatable", "ls", queue_name, "--json").lines
    first = listed["next_fire_ms"]
    assert added.json["next_fires_ms"] == [first, first + 3_600_000]
    after = done("repeatable", "next", queue_name, listed["key"], "--count", "2", "--json").json
    assert after["next_fires_ms"] == added.json["next_fires_ms"]


def test_the_list_tells_what_fired_jobs_take_along(done, queue_name):
    done("repeatable", "add", queue_name, "ping", "--every", "30s", "--attempts", "5",
         "--backoff", "exponential:1s", "--job-id", "p")  # fmt: skip
    done("repeatable", "add", queue_name, "ping", "--every", "60s")
    told, silent = done("repeatable", "ls", queue_name, "--json").lines
    assert (told["attempts"], told["job_id"]) == (5, "p")
    assert told["backoff"] == {"kind": "exponential", "delay_ms": 1_000}
    assert (silent["attempts"], silent["backoff"], silent["job_id"]) == (None, None, None)


def test_a_stored_job_that_can_never_fire_hides_none_of_the_others(done, server, queue_name):
    keys, client = QueueKeys(queue_name), server.client()
    patterns = {
        "good": RepeatPattern.cron("@daily"),
        "old": RepeatPattern.cron("0 0 LW * *"),
        "bad": RepeatPattern.cron("@daily", tz="Europe/Berlin" * 1_000),
    }
    for key, pattern in patterns.items():
        blob = encode_spec(RepeatableSpec(key, "x", pattern, b"\x01"))
        client.hset(keys.repeat_spec(key), "spec", blob)
        client.zadd(keys.repeat, {key: 4_000_000_000_000})
    told = {line["key"]: line for line in done("repeatable", "ls", queue_name, "--json").lines}
    words = {key: line["description"] for key, line in told.items()}
    assert words == {
        "good": "At 00:00 every day (UTC)",
        "old": "At 00:00 on the last weekday of every month (UTC)",
        "bad": None,
    }
    assert "(13,000 characters) is too long" in told["bad"]["problem"]
    assert {key for key, line in told.items() if line["problem"]} == {"bad"}


def test_the_list_has_the_documented_columns(done, queue_name):
    done("repeatable", "add", queue_name, "ping", "--every", "30s")
    shown = done("repeatable", "ls", queue_name, COLUMNS="200").out
    header = [cell.strip() for cell in shown.splitlines()[1].strip("│").split("│")]
    assert header == [f"repeatable: {queue_name}", "job_name", "pattern", "tz", "next fire (ms)",
                      "limit"]  # fmt: skip
    row = [cell.strip() for cell in shown.splitlines()[3].strip("│").split("│")]
    assert row[:4] == ["ping::every:30000", "ping", "every 30000ms", "-"]
    assert re.fullmatch(r"\d{13}", row[4])


def test_a_dry_run_says_when_it_would_fire_and_stores_nothing(done, queue_name):
    shown = done("repeatable", "add", queue_name, "x", "--cron", "@daily", "--dry-run").out
    assert "nothing is stored" in shown
    assert "T00:00:00.000Z (in " in shown
    assert done("repeatable", "ls", queue_name, "--json").out == ""


def test_a_dry_run_heeds_the_limits_and_a_year(done, queue_name):
    add = ("repeatable", "add", queue_name, "x", "--dry-run", "--json")
    at_the_end = done(*add, "--every", "1h", "--start", "2090-01-01", "--end", "2090-01-01T02:00")
    assert len(at_the_end.json["next_fires_ms"]) == 2
    assert len(done(*add, "--cron", "@daily", "--limit", "1").json["next_fires_ms"]) == 1
    [_, second, third] = done(*add, "--cron", "0 0 0 1 1 * 2090-2099").json["next_fires_ms"]
    assert (third - second) // 86_400_000 == 365


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("2090-07-01T07:30", "2090-07-01T06:00:00+00:00"),  # 05:30 in UTC
        ("2090-07-01T08:30", "2090-07-02T06:00:00+00:00"),
        ("2090-07-01T07:30Z", "2090-07-02T06:00:00+00:00"),
        ("2090-07-01T08:30+02:00", "2090-07-02T06:00:00+00:00"),
        ("3802570200000", "2090-07-01T06:00:00+00:00"),
    ],
)
def test_a_start_without_an_offset_is_in_the_zone_of_the_pattern(done, queue_name, start, first):
    add = ("repeatable", "add", queue_name, "x", "--cron", "0 8 * * *", "--tz", "Europe/Berlin")
    told = done(*add, "--start", start, "--dry-run", "--json").json["next_fires_ms"][0]
    assert datetime.fromtimestamp(told / 1_000, UTC).isoformat() == first
    assert done(*add, "--start", start, "--json").json["next_fires_ms"][0] == told
    (listed,) = done("repeatable", "ls", queue_name, "--json").lines
    assert listed["next_fire_ms"] == told


def test_an_end_without_an_offset_is_in_the_zone_of_the_pattern(done, queue_name):
    add = ("repeatable", "add", queue_name, "x", "--cron", "0 8 * * *", "--tz", "+05:30")
    days = ("--start", "2090-07-01T08:00", "--end", "2090-07-03T07:59")
    assert len(done(*add, *days, "--dry-run", "--json").json["next_fires_ms"]) == 1


def test_fires_are_shown_in_the_zone_of_the_pattern_and_in_utc(done, queue_name):
    add = ("repeatable", "add", queue_name, "x", "--cron", "0 8 1 7 *", "--tz", "Europe/Berlin")
    stored = done(*add)
    key = "x::cron:0 8 1 7 *:Europe/Berlin"
    for shown in (stored, done("repeatable", "next", queue_name, key)):
        lines = re.findall(
            r"\d{4}-07-01T08:00:00\+02:00 = \d{4}-07-01T06:00:00.000Z \(in \d+ d\)", shown.out
        )
        assert len(lines) >= 3
        assert all(len(line) <= 80 for line in shown.out.splitlines())


def test_the_next_fires_of_a_stored_job_are_counted_from_its_window(done, queue_name):
    added = done("repeatable", "add", queue_name, "ping", "--every", "1h", "--json").json
    told = done("repeatable", "next", queue_name, added["key"], "--count", "3", "--json").json
    first, second, third = told["next_fires_ms"]
    assert (second - first, third - second) == (3_600_000, 3_600_000)


def test_the_next_fires_of_a_paused_job_say_that_it_is_paused(done, queue_name):
    key = done("repeatable", "add", queue_name, "ping", "--every", "1h", "--json").json["key"]
    asked = ("repeatable", "next", queue_name, key)
    assert done(*asked, "--json").json["paused"] is False
    assert "paused" not in done(*asked).out
    done("repeatable", "pause", queue_name, key)
    assert done(*asked, "--json").json["paused"] is True
    assert "paused: its windows pass without firing" in done(*asked).out


@pytest.mark.servers("valkey")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--cron EXPR or --every DURATION"),
        (["--cron", "@daily", "--every", "1h"], "in one way"),
        (["--cron", "61 * * * *"], "'61' is not a valid minute"),
        (["--cron", "* * *"], "* * *"),
        (["--cron", "@daily", "--tz", "Mars/Base"], "Mars/Base"),
        (["--cron", "@daily", "--tz", "europe/berlin"], "did you mean Europe/Berlin?"),
        (["--cron", "@daily", "--tz", "Europe/Berlin" * 1_000], "(13,000 characters) is too long"),
        (["--cron", "1," * 9_999 + "1 * * * *"], "at most 1,024 characters are read"),
        (["--cron", "0 8 * * MON-FRI 2030"], "with 6 fields the first is the second"),
        (["--every", "1h", "--backoff", "wat:1"], "write 5s, exponential:1s, exponential:1s:5m"),
        (["--every", "1h", "--backoff", "exponential:x"], "'exponential:x' is no backoff"),
        (["--every", "10ms"], "--every is 10 ms: the shortest interval is 100 ms"),
        (["--every", "0"], "--every is 0 ms"),
        (["--every", "1s", "--tz", "UTC"], "--tz goes with --cron"),
        (["--cron", "@daily", "--missed-fires", "maybe"], "'maybe'"),
        (["--cron", "@daily", "--missed-fires", "fire-all:x"], "fire-all:10"),
        (["--cron", "@daily", "--missed-fires", "fire-all"], "--missed-fires 'fire-all' is not"),
        (["--cron", "@daily", "--missed-fires", "fire-all:0"], "fire-all:10 for 10 at most"),
        (["--cron", "@daily", "--missed-fires", "skip:3"], "--missed-fires 'skip:3' is not"),
        (["--cron", "@daily", "--end", "2000-01-01"], "--end is before the first fire, 20"),
        (
            ["--every", "1h", "--start", "2090-01-01", "--end", "2090-01-01T00:30"],
            "first fire, 2090-01-01T01:00:00.000Z",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_stored(
    chasqui, done, queue_name, arguments, told
):
    answer = chasqui("repeatable", "add", queue_name, "x", *arguments)
    assert answer.code == 2, answer.err
    assert told in answer.err
    assert len(answer.err.splitlines()) == 1
    assert not re.search(r"[a-z]_[a-z]", answer.err), "the name of an argument of Python"
    assert done("repeatable", "ls", queue_name, "--json").out == ""

"""The scheduler over a whole year, through both changes of the clock, in three zones."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from chasquimq.broker import repeats
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.config import SchedulerConfig
from chasquimq.engine import cadence
from chasquimq.engine.scheduler import SchedulerRole
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import MissedFiresPolicy, RepeatableSpec, RepeatPattern, fire_id

# What is due by a clock does not depend on the server.
pytestmark = pytest.mark.servers("valkey")

FIXED = "15,45 1,2 * * *"
HOURLY = "0 * * * *"
BEGIN, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

# The windows of the days on which clocks change, until 04:00, on the clocks there.
CHANGES = {
    "Europe/Berlin": {
        "2026-03-29": {
            FIXED: ["01:15+0100", "01:45+0100", "03:00+0200"],
            HOURLY: ["00:00+0100", "01:00+0100", "03:00+0200", "04:00+0200"],
        },
        "2026-10-25": {
            FIXED: ["01:15+0200", "01:45+0200", "02:15+0200", "02:45+0200"],
            HOURLY: ["00:00+0200", "01:00+0200", "02:00+0200", "02:00+0100", "03:00+0100",
                     "04:00+0100"],
        },
    },
    "America/New_York": {
        "2026-03-08": {
            FIXED: ["01:15-0500", "01:45-0500", "03:00-0400"],
            HOURLY: ["00:00-0500", "01:00-0500", "03:00-0400", "04:00-0400"],
        },
        "2026-11-01": {
            FIXED: ["01:15-0400", "01:45-0400", "02:15-0500", "02:45-0500"],
            HOURLY: ["00:00-0400", "01:00-0400", "01:00-0500", "02:00-0500", "03:00-0500",
                     "04:00-0500"],
        },
    },
    "Australia/Lord_Howe": {
        "2026-04-05": {
            FIXED: ["01:15+1100", "01:45+1100", "02:15+1030", "02:45+1030"],
            HOURLY: ["00:00+1100", "01:00+1100", "02:00+1030", "03:00+1030", "04:00+1030"],
        },
        "2026-10-04": {
            FIXED: ["01:15+1030", "01:45+1030", "02:30+1100", "02:45+1100"],
            HOURLY: ["00:00+1030", "01:00+1030", "03:00+1100", "04:00+1100"],
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("tz", CHANGES)
async def test_every_window_of_a_year_fires_once(server, queue_name, tz):
    keys, clock = QueueKeys(queue_name), ManualClock(ms(BEGIN))
    connection = Connection(parse_url(server.url), ConnectionOptions(), slot_key=keys.tag)
    scheduler = SchedulerRole(connection, SchedulerConfig(queue_name=queue_name), clock=clock)
    for expression in (FIXED, HOURLY):
        spec = RepeatableSpec(expression, "n", RepeatPattern.cron(expression, tz=tz), b"\xc0",
                              missed_fires=MissedFiresPolicy.fire_all(1_000))  # fmt: skip
        first_ms = cadence.first_fire(spec, clock.now_ms())
        await connection.run(repeats.upsert(keys, spec, next_ms=first_ms, job_id=None))
    # On time where clocks change; by the week, made up for, where nothing happens.
    for moment in moments(tz):
        clock.advance(ms(moment) - clock.now_ms())
        await scheduler.step()
    await connection.close()

    jobs = [decode(fields[b"d"]) for _, fields in server.client().xrange(keys.stream)]
    for expression, expected in (FIXED, fixed_windows(tz)), (HOURLY, hourly_windows(tz)):
        fired = [job for job in jobs if job.id.startswith(f"{expression}@")]
        windows = [job.created_at_ms for job in fired]
        assert [job.id for job in fired] == [fire_id(expression, window) for window in windows]
        assert windows == expected
        for day, changes in CHANGES[tz].items():
            assert on_the_clock(windows, tz, day) == changes[expression]


def moments(tz):
    """Half-hours of the days around a change, weeks otherwise; the end of the year at last."""
    there = [datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz)) for day in CHANGES[tz]]
    days = [midnight.astimezone(UTC) for midnight in there]
    moment = BEGIN
    while moment < END:
        is_near = any(day - DAY <= moment < day + 2 * DAY for day in days)
        weeks = [day - DAY for day in days if moment < day - DAY < moment + 7 * DAY]
        moment = moment + 30 * MINUTE if is_near else min([moment + 7 * DAY, *weeks])
        yield min(moment, END)


def hourly_windows(tz):
    """Every instant of the year at which the clocks there show a full hour."""
    zone, half = ZoneInfo(tz), 30 * MINUTE
    halves = (BEGIN + n * half for n in range(1, (END - BEGIN) // half + 1))
    return [ms(each) for each in halves if each.astimezone(zone).minute == 0]


def fixed_windows(tz):
    """Each of the times of each day, the first time that clocks show it, or where it is skipped."""
    zone, found = ZoneInfo(tz), set()
    for day in range(-1, 367):
        for hour, minute in (1, 15), (1, 45), (2, 15), (2, 45):
            wall = datetime(2026, 1, 1, hour, minute) + day * DAY  # noqa: DTZ001 -- a wall clock
            while (
                wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None)
                != wall
            ):
                wall += MINUTE
            found.add(wall.replace(tzinfo=zone).astimezone(UTC))
    return [ms(each) for each in sorted(found) if BEGIN < each <= END]


def on_the_clock(windows, tz, day):
    """The windows of a day until four, as the clocks there show them."""
    shown = [datetime.fromtimestamp(window / 1_000, ZoneInfo(tz)) for window in windows]
    return [
        each.strftime("%H:%M%z")
        for each in shown
        if str(each.date()) == day and (each.hour, each.minute) <= (4, 0)
    ]


def ms(moment):
    return int(moment.timestamp() * 1_000)

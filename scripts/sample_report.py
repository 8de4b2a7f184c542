#!/usr/bin/env python3
"""Make a report that looks like one of yours, and the pictures of it in the docs.

    sample_report.py FOLDER [--picture FILE]    FOLDER gets report.html, and pictures of it

Some days of believable events are written to an embedded server in the shapes of the engine, with
ids of those days; the pipeline takes them in as it takes any. The same seed gives the same report.
Pictures need a Chromium on the path.
"""

import argparse
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from chasquimq.broker.call import call, together
from chasquimq.broker.url import parse_url
from chasquimq.pipeline import Pipeline, Slo
from chasquimq.spark import session
from chasquimq.spark.links import Links
from chasquimq.wire.event import EventName, event_fields
from chasquimq.wire.keys import QueueKeys
from commands import run

FIRST_DAY_MS = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1_000)
HOUR_MS = 3_600_000
HOURS = 3 * 24
# The second day, from 13:00: the mail provider does not answer for an hour and a half.
OUTAGE_MS = range(FIRST_DAY_MS + 37 * HOUR_MS, FIRST_DAY_MS + 38 * HOUR_MS + HOUR_MS // 2)
ATTEMPTS = 3
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one name: how many come in a busy hour, how long they run, how they fail."""

    queue: str
    name: str
    an_hour: int
    median_ms: float
    fails: float
    errors: tuple[str, ...]


KINDS = (
    Kind("emails", "welcome", 26, 120, 0.02, ("SMTPServerDisconnected: connection lost",)),
    Kind("emails", "invoice", 14, 340, 0.03, ("SMTPServerDisconnected: connection lost",
         "KeyError: 'tax_number'")),
    Kind("reports", "export", 6, 4_200, 0.05, ("TimeoutError: query took more than 30 s",)),
    Kind("media", "thumbnail", 30, 210, 0.015, ("UnidentifiedImageError: cannot identify file",)),
    Kind("media", "transcode", 3, 21_000, 0.08, ("CalledProcessError: ffmpeg ended with 1",)),
)  # fmt: skip

QUIET = {
    "spark.master": "local[2]",
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
BROWSER_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# As high as the page of this story is, so that all of it is in the picture.
WINDOW = "1180,2730"
CHUNK = 2_000

Told = tuple[int, str, list[bytes]]


def main() -> int:
    """Write the page, and the pictures if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--picture", type=Path, help="also as one picture, for the docs")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    page = given.folder.resolve() / "report.html"
    with tempfile.TemporaryDirectory() as place:
        url = f"embedded://{place}/server"
        with Links(parse_url(url)) as links:
            tell(links, story())
            pipeline = Pipeline(f"{place}/lake", spark=session("sample", QUIET), slo=Slo(30_000))
            pipeline.run(sorted({kind.queue for kind in KINDS}), redis_url=url)
            page.write_text(pipeline.report(), encoding="utf-8")
    print(f"the page is {page}")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if given.picture is not None and browser is not None:
        picture(browser, page, given.picture)
        print(f"the picture is {given.picture}")
    return 0


def tell(links: Links, told: list[Told]) -> None:
    """Write events as the engine does, but with ids of their own times."""
    for at in range(0, len(told), CHUNK):
        for queue in sorted({queue for _, queue, _ in told}):
            keys = QueueKeys(queue)
            calls = [
                call("XADD", keys.events, f"{ms}-*", *fields, read=bytes, repeatable=False)
                for ms, of, fields in told[at : at + CHUNK]
                if of == queue
            ]
            links.run(keys, together(calls))


def picture(browser: str, page: Path, file: Path) -> None:
    """What a browser shows of the page."""
    with tempfile.TemporaryDirectory() as profile:
        run(
            [browser, *BROWSER_FLAGS, f"--user-data-dir={profile}", f"--window-size={WINDOW}",
             f"--screenshot={file.resolve()}", page.as_uri()],
            timeout_secs=60,
        )  # fmt: skip


def story(seed: int = 7) -> list[Told]:
    """All events, in the order of their times: instant, queue, fields."""
    chance = Random(seed)  # noqa: S311 -- a story, not a secret
    return sorted(
        event
        for kind in KINDS
        for created_ms in arrivals(kind, chance)
        for event in a_life(kind, created_ms, chance)
    )


def arrivals(kind: Kind, chance: Random) -> Iterator[int]:
    """When jobs come: most in the afternoon, few at night."""
    for hour in range(HOURS):
        of_day = hour % 24
        share = 0.12 + 0.88 * math.exp(-(((of_day - 14) / 4.5) ** 2))
        for _ in range(round(kind.an_hour * share * chance.uniform(0.8, 1.25))):
            yield FIRST_DAY_MS + hour * HOUR_MS + chance.randrange(HOUR_MS)


def a_life(kind: Kind, created_ms: int, chance: Random) -> Iterator[Told]:
    """What is told of one job, from its coming to its end."""
    job_id, at_ms = ulid(created_ms, chance), created_ms

    def told(event: EventName, **extras: str | int) -> Told:
        fields = event_fields(event, job_id, at_ms, kind.name, extras)
        return at_ms, kind.queue, fields

    for attempt in range(1, ATTEMPTS + 1):
        yield told(EventName.WAITING)
        at_ms += round(chance.lognormvariate(math.log(35), 1.1))
        yield told(EventName.ACTIVE, attempt=attempt, wait_ms=at_ms - created_ms,
                   created_at_ms=created_ms)  # fmt: skip
        took_us = round(chance.lognormvariate(math.log(kind.median_ms), 0.5) * 1_000)
        is_out = kind.queue == "emails" and at_ms in OUTAGE_MS
        at_ms += took_us // 1_000
        if chance.random() >= (0.85 if is_out else kind.fails):
            yield told(EventName.COMPLETED, attempt=attempt, duration_us=took_us)
            return
        error = kind.errors[0] if is_out else chance.choice(kind.errors)
        yield told(EventName.FAILED, attempt=attempt, reason=error, duration_us=took_us)
        if attempt == ATTEMPTS or error.startswith("KeyError"):
            reason = "retries_exhausted" if attempt == ATTEMPTS else "unrecoverable"
            yield told(EventName.DLQ, attempt=attempt, reason=reason)
            return
        backoff_ms = 4_000 * 2**attempt
        yield told(EventName.RETRY_SCHEDULED, attempt=attempt + 1, backoff_ms=backoff_ms)
        at_ms += backoff_ms


def ulid(ms: int, chance: Random) -> str:
    """An id of that time, the same for the same chance."""
    number = ms << 80 | chance.getrandbits(80)
    return "".join(_CROCKFORD[number >> 5 * place & 31] for place in reversed(range(26)))


if __name__ == "__main__":
    sys.exit(main())

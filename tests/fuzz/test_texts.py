"""Texts that people type: URLs, cron expressions, values on the command line, Spark options."""

import contextlib
import functools
import itertools
import time
import tracemalloc
from dataclasses import fields

import click
import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from chasquimq.broker.url import parse_url
from chasquimq.cli import values
from chasquimq.engine.cron import parse_cron, parse_zone
from chasquimq.errors import ConfigError
from chasquimq.spark.options import (
    EventsOptions,
    JobsOptions,
    Options,
    PagedOptions,
    RangeOptions,
    SinkOptions,
    read_options,
)

anything = st.text(max_size=40)
_LAST_MS = 4_102_444_800_000

url_parts = st.sampled_from(
    ("redis://", "rediss://", "unix://", "redis+sentinel://", "redis-cluster://", "embedded://",
     "u:p@", ":pass@", "h", "[::1]", ":6379", ":99999", "/0", "/x", "?", "db=1", "&",
     "ssl_ca_certs=x", "ssl_cert_reqs=none", "%", "%ff", "%00", ",", "/", "//", "..", "#f",
     "\u0660", " ", "\n")
)  # fmt: skip
urls = st.one_of(anything, st.lists(url_parts, max_size=9).map("".join))


@given(url=urls, tls=st.booleans())
def test_a_url_is_a_place_or_a_value_error(url, tls):
    with contextlib.suppress(ValueError):
        repr(parse_url(url, tls=tls))


cron_parts = st.sampled_from(
    ("*", "*/5", "1-5", "5-1", "L", "LW", "5#2", "0", "59", "60", "MON", "JAN", "?", "1,2", "*/0",
     "@daily", "2038", "99999999999", "-1", "W", "#", "\u0661", "")
)  # fmt: skip
crons = st.one_of(anything, st.lists(cron_parts, max_size=8).map(" ".join))


zones = st.sampled_from((None, "Europe/Berlin", "America/New_York", "+05:30", "-14:00"))


@given(zone=anything)
def test_a_zone_is_one_or_a_value_error(zone):
    with contextlib.suppress(ValueError):
        parse_zone(zone)


@given(expression=crons, zone=zones | anything, since_ms=st.integers(0, _LAST_MS))
def test_a_cron_expression_has_fire_times_or_is_a_value_error(expression, zone, since_ms):
    try:
        cron = parse_cron(expression, zone)
    except ValueError:
        return
    cron.describe()
    fires = list(itertools.islice(cron.fires_after(since_ms), 3))
    assert fires == sorted(set(fires))
    assert all(each > since_ms for each in fires)
    assert cron.next_after(since_ms) == (fires[0] if fires else None)


@pytest.mark.parametrize(
    "read", [values.duration, values.wait_s, values.instant, values.backoff, values.positive]
)
@given(text=st.one_of(anything, st.from_regex(r"[0-9.]{1,30}(ms|s|m|h|d)?", fullmatch=True)))
@example(text="9" * 400)
@example(text="1e999")
def test_a_value_on_the_command_line_is_read_or_refused(read, text):
    with contextlib.suppress(click.ClickException, ValueError):
        read(text)


option_values = st.one_of(
    anything,
    st.sampled_from(
        ("1", "-1", "0", "true", "no", "latest", "earliest", "9" * 400, "1-1", '{"q": 1}', "q",
         "q,r", '{"q": "5-5"}', '{"q": {}}', "[]", "2030-01-31T00:00:00Z", "redis://h:1", "1e400",
         '{"q":' * 1_000)
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    "kind", [Options, PagedOptions, RangeOptions, EventsOptions, JobsOptions, SinkOptions]
)
@given(data=st.data())
def test_spark_options_are_read_or_refused(kind, data):
    names = [each.metadata["name"] for each in fields(kind)]
    given_options = data.draw(
        st.dictionaries(st.sampled_from([*names, "queues", "unknown", ""]), option_values)
    )
    with contextlib.suppress(ConfigError):
        repr(read_options(kind, {"queue": "q"} | given_options))


OPTIONS = {each.metadata["name"]: kind for kind in (EventsOptions, JobsOptions, SinkOptions)
           for each in fields(kind)}  # fmt: skip


def spark_option(name, text):
    return read_options(OPTIONS[name], {"queue": "q", "redis_url": "redis://h:1"} | {name: text})


LARGE = 200_000
LONG = {
    "letters": "x" * LARGE,
    "digits": "9" * LARGE,
    "a fraction": "0." + "1" * LARGE + "s",
    "blanks": " " * LARGE,
    "lines": "\n" * LARGE,
    "stars": "* " * (LARGE // 2),
    "minutes": "0-59," * (LARGE // 5) + "1 * * * *",
    "years": "* * * * * * " + "1-5000," * (LARGE // 7) + "1",
    "a nickname": "@" + "x" * LARGE,
    "a zone": "Europe/Berlin" * (LARGE // 13),
    "folders": "../" * (LARGE // 3),
    "braces": "{" * LARGE,
    "objects": '{"q":' * (LARGE // 5),
    "a list": "[" * LARGE,
    "names": ",".join(map(str, range(LARGE // 7))),
    "offsets": "{" + ",".join(f'"{n}":1' for n in range(LARGE // 9)) + "}",
    "a backoff": "exponential:" + "1" * LARGE + ":" + "1" * LARGE,
    "hosts": "redis-cluster://" + "h:1," * (LARGE // 4),
    "a host": "redis://" + "\u00e9" * LARGE,
    "users": "redis://" + "u:p@" * (LARGE // 4) + "h",
    "escapes": "redis://" + "%41" * (LARGE // 3) + "/0",
    "settings": "redis://h/0?" + "db=1&" * (LARGE // 5),
    "brackets": "redis://" + "[" * LARGE + "::1]",
}
READ = {
    "url": (parse_url, ValueError),
    "url with tls": (functools.partial(parse_url, tls=True), ValueError),
    "cron": (lambda text: parse_cron(text, None).describe(), ValueError),
    "stored cron": (lambda text: parse_cron(text, None, is_stored=True).describe(), ValueError),
    "zone": (parse_zone, ValueError),
    **{
        f"a {each.__name__}": (each, click.ClickException)
        for each in (values.duration, values.wait_s, values.spark_interval, values.instant,
                     values.backoff, values.positive, values.processes, values.missed_fires,
                     values.job_data)
    },
    **{name: (functools.partial(spark_option, name), ConfigError) for name in OPTIONS},
}  # fmt: skip


# A machine may be busy, and noting memory makes everything slower.
# Of this thread's own time, under `tracemalloc`: other work on the machine costs wall time only.
MOST_S = 20
MOST_BYTES = 64 << 20


@pytest.mark.parametrize("reader", READ)
def test_a_text_of_any_length_is_read_or_refused_soon_in_few_words_and_little_memory(reader):
    read, refusal = READ[reader]
    for what, text in LONG.items():
        begun = time.thread_time()
        tracemalloc.start()
        try:
            told = refused(read, refusal, text)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert time.thread_time() - begun < MOST_S, what
        assert peak < MOST_BYTES, what
        assert len(told) < 1_000, f"{what}: {told[:200]}"


def refused(read, refusal, text):
    """What is said of a text that cannot be read; nothing of one that can."""
    try:
        read(text)
    except click.ClickException as error:
        assert refusal is click.ClickException
        return error.format_message()
    except refusal as error:
        return str(error)
    return ""

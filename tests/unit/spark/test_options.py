"""Options become typed values, or an error that names the option, its value and the rule."""

import pickle

import pytest

from chasquimq.errors import ConfigError
from chasquimq.spark.options import (
    EventsOptions,
    JobsOptions,
    Moment,
    Offsets,
    Options,
    SinkOptions,
    read_options,
)
from chasquimq.wire.ids import StreamId

LEAST = {"queue": "emails", "redis_url": "redis://h:1"}


def test_what_is_left_out_has_its_default():
    events = read_options(EventsOptions, LEAST)
    assert (events.queues, events.fetch_count, events.fail_on_data_loss) == (
        ("emails",),
        5_000,
        True,
    )
    assert (events.starting, events.ending, events.min_partitions) == (None, None, None)
    assert read_options(JobsOptions, LEAST).group == "default"
    assert read_options(SinkOptions, LEAST).dedup_ttl_s == 7 * 24 * 3_600


def test_names_are_read_in_any_case_and_sparks_own_are_passed_over():
    told = {"QUEUES": "a, b", "STARTINGOFFSETS": "earliest", "checkpointLocation": "/x"}
    events = read_options(EventsOptions, told)
    assert events.queues == ("a", "b")
    assert events.starting == Offsets("earliest", {})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("5-3", StreamId(5, 3)),
        ("1700000000000", Moment(1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Moment(1_700_000_000_000)),
        ("2023-11-14T22:13:20", Moment(1_700_000_000_000)),
        ("2023-11-15T00:13:20+02:00", Moment(1_700_000_000_000)),
    ],
)
def test_a_place_can_be_said_in_several_ways(text, place):
    options = read_options(EventsOptions, LEAST | {"startingOffsets": text})
    assert options.starting.of("emails", "latest") == place


def test_places_can_differ_by_queue():
    text = '{"a": "5-0", "b": "earliest"}'
    told = LEAST | {"queue": "a,b,c", "startingOffsets": text}
    asked = read_options(EventsOptions, told).starting
    assert [asked.of(queue, "latest") for queue in "abc"] == [StreamId(5, 0), "earliest", "latest"]


@pytest.mark.parametrize(
    ("kind", "told", "words"),
    [
        (Options, {"redis_url": "redis://h:1"}, "option 'queue' is missing"),
        (Options, LEAST | {"queues": "b"}, "'queue' and 'queues' are both given"),
        (Options, LEAST | {"queue": "a,a"}, "names a queue twice"),
        (Options, LEAST | {"queue": "a{b}"}, "option 'queue' is 'a{b}'.*brace"),
        (
            Options,
            LEAST | {"fetchCount": "5"},
            "option 'fetchCount' is not known: use redis_url, q",
        ),
        (
            EventsOptions,
            LEAST | {"fetchCount": "-1"},
            "'fetchCount' is '-1': use a whole number, 1",
        ),
        (EventsOptions, LEAST | {"fetchCount": "1.5"}, "'fetchCount' is '1.5'"),
        (EventsOptions, LEAST | {"endingOffsets": "{"}, "'endingOffsets' is '{': use earliest, l"),
        (EventsOptions, LEAST | {"endingOffsets": "[1]"}, r"'endingOffsets' is '\[1\]'"),
        (
            EventsOptions,
            LEAST | {"includeHeaders": ""},
            "'includeHeaders' is '': use true or false",
        ),
        (
            EventsOptions,
            LEAST | {"startingOffsets": '{"emails": 5, "emials": "earliest"}'},
            "'startingOffsets' names 'emials', which option 'queue' does not: use 'emails'",
        ),
        (JobsOptions, LEAST | {"group": " "}, "'group' is ' '"),
        (Options, {"queue": "a", "redis_url": "embedded://"}, "private to one process"),
        (
            EventsOptions,
            LEAST | {"redis_url": "embedded:///no/such/place"},
            "redis_url is embedded:///no/such/place, a directory that does not exist",
        ),
        (EventsOptions, LEAST | {"startingOffsets": "x" * 500}, "x{80}\\.\\.\\.'"),
        (
            EventsOptions,
            LEAST | {"startingOffsets": '{"q":' * 1_000},
            "'startingOffsets' is '({\"q\":){16}\\.\\.\\.': use earliest, l",
        ),
        (Options, LEAST | {"x" * 500: "1"}, "option 'x{80}\\.\\.\\.' is not known"),
    ],
)
def test_what_will_not_do_is_named_with_the_rule(kind, told, words):
    with pytest.raises(ConfigError, match=words):
        read_options(kind, told)


def test_who_adds_jobs_may_name_a_directory_that_is_not_there_yet():
    told = LEAST | {"redis_url": "embedded:///no/such/place"}
    assert read_options(SinkOptions, told).target.directory == "/no/such/place"


def test_no_error_shows_a_password():
    with pytest.raises(ConfigError, match="redis_url: ") as refused:
        read_options(Options, {"queue": "a", "redis_url": "redis://:hush@h:port"})
    assert "hush" not in str(refused.value)
    assert refused.value.__context__ is None


def test_options_travel_and_show_no_password():
    options = read_options(Options, {"queue": "a", "redis_url": "redis://:hush@h:1"})
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 -- our own
    assert "hush" not in repr(options)


def test_the_server_of_the_session_is_used_where_the_query_names_none():
    assert read_options(Options, {"queue": "a"}, url="redis://set:2").target.endpoint == "set:2"
    assert read_options(Options, LEAST, url="redis://set:2").target.endpoint == "h:1"

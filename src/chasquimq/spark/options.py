"""Options of every format: string in, typed value out, or an error that says what is allowed.

Spark hands options over as text and passes misspelt ones through in silence. Here each option of a
format is a field of its dataclass, with its name, rule and meaning beside it; anything else is
refused when the query is planned, before a server is asked.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

from chasquimq import given
from chasquimq.broker.url import Target, TargetKind, parse_url
from chasquimq.config import ProducerConfig
from chasquimq.errors import ConfigError, DecodeError
from chasquimq.wire.ids import StreamId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in a stream by the server's time."""

    ms: int


Position: TypeAlias = Literal["earliest", "latest"] | StreamId | Moment
"""A place in a stream: an end of it, or just before the first entry with this id or time."""

# Spark's own, which come along with ours.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
_MOST_SHOWN = 80
_MOST_NAMED = 5
# What a parser makes of a text that is none of its own.
_MISREAD = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where to begin or end: in each queue that is named, and in all others."""

    others: Position | None
    named: Mapping[str, Position]

    def of(self, queue: str, otherwise: Position) -> Position:
        """The place in one queue."""
        return self.named.get(queue) or self.others or otherwise


def _option(name: str, parse: Callable[[str], T], *, rule: str, means: str, default: Any) -> Any:  # noqa: ANN401 -- a field
    told = {"name": name, "parse": parse, "rule": rule, "means": means}
    return field(default=default, metadata=told)


def _positive(text: str) -> int:
    return _whole(text, 1)


def _not_negative(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text


def _queues(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        given.queue_name(name)
    if len(set(names)) != len(names):
        msg = "names a queue twice"
        raise ValueError(msg)
    return names


def _offsets(text: str) -> Offsets:
    shown = text.strip()
    if not shown.startswith("{"):
        return Offsets(_position(shown), {})
    named = json.loads(shown)
    return Offsets(None, {queue: _position(str(place)) for queue, place in named.items()})


def _position(text: str) -> Position:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal():
        return Moment(int(text))
    try:
        return StreamId.parse(text)
    except DecodeError:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return Moment(max(0, int(aware.timestamp() * 1_000)))


_NUMBER_FROM_1 = "a whole number, 1 or more"
_TRUE_OR_FALSE = "true or false"
_PLACES = (
    "earliest, latest, an entry id such as 1767225600000-0, a time (ISO 8601 or epoch ms), or JSON"
    " that gives one of these for each queue"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What every format needs: where the server is, and which queues."""

    target: Target = _option(  # noqa: RUF009 -- it is a `field`
        "redis_url",
        parse_url,
        rule="a URL such as redis://127.0.0.1:6379",
        means="the server; else `spark.chasquimq.url`, else `CHASQUI_REDIS_URL`",
        default=None,
    )
    queues: tuple[str, ...] = _option(
        "queue",
        _queues,
        rule="names of queues, with commas between them",
        means="required; `queues` is the same",
        default=(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedOptions(Options):
    """For formats that are read a page at a time."""

    fetch_count: int = _option(
        "fetchCount",
        _positive,
        rule=_NUMBER_FROM_1,
        means="entries asked of the server at a time",
        default=5_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions(PagedOptions):
    """For formats that are streams on the server, and can be cut into ranges of ids."""

    min_partitions: int | None = _option(
        "minPartitions",
        _positive,
        rule=_NUMBER_FROM_1,
        means="tasks to read with, at least; else 1 for each queue, 2 where more than a page waits",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsOptions(RangeOptions):
    """Of `chasquimq_events`."""

    starting: Offsets | None = _option(  # noqa: RUF009 -- it is a `field`
        "startingOffsets",
        _offsets,
        rule=_PLACES,
        means="the first event to read; else earliest in a batch, latest in a new stream",
        default=None,
    )
    ending: Offsets | None = _option(  # noqa: RUF009 -- it is a `field`
        "endingOffsets",
        _offsets,
        rule=_PLACES,
        means="batch only: the first event not to read; else latest",
        default=None,
    )
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger",
        _positive,
        rule=_NUMBER_FROM_1,
        means="stream only: events in one micro-batch over all queues, at most",
        default=None,
    )
    fail_on_data_loss: bool = _option(
        "failOnDataLoss",
        _flag,
        rule=_TRUE_OR_FALSE,
        means="whether missing events end the query; if not, a `data-loss` row stands for them",
        default=True,
    )
    include_headers: bool = _option(
        "includeHeaders",
        _flag,
        rule=_TRUE_OR_FALSE,
        means="add the column `headers`: fields of the event that have no column",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsOptions(RangeOptions):
    """Of `chasquimq_jobs`."""

    group: str = _option(
        "group",
        _text,
        rule="the name of the consumer group",
        means="whose deliveries count as in flight",
        default="default",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(Options):
    """Of `chasquimq`, the sink."""

    run_id: str | None = _option(
        "runId",
        _text,
        rule="text that is not blank",
        means="batch only: writes with the same id add a row once; else each write is its own run",
        default=None,
    )
    dedup_ttl_s: int = _option(
        "dedupTtlSecs",
        _positive,
        rule=_NUMBER_FROM_1,
        means="how long a run, or a batch of a stream that broke off, is remembered",
        default=7 * 24 * 3_600,
    )
    max_jobs_per_s: int | None = _option(
        "maxJobsPerSec",
        _positive,
        rule=_NUMBER_FROM_1,
        means="jobs added in a second by all tasks of a run together; else as fast as it goes",
        default=None,
    )
    origin_column: str | None = _option(
        "originColumn",
        _text,
        rule="the name of a column of text",
        means="where a row is from: ids are made of it and of the row's place there, see below",
        default=None,
    )
    payload_column: str | None = _option(
        "payloadColumn",
        _text,
        rule="the name of a column",
        means="the column that is the payload; else all that are left over, as a map",
        default=None,
    )
    job_name: str = _option(
        "jobName",
        _text,
        rule="text that is not blank",
        means="name of jobs that have none of their own",
        default="",
    )
    max_stream_len: int = _option(
        "maxStreamLen",
        _positive,
        rule=_NUMBER_FROM_1,
        means="jobs the queue may hold; the sink waits while it is full",
        default=ProducerConfig().max_stream_len,
    )
    overflow_timeout_s: int = _option(
        "overflowTimeoutSecs",
        _not_negative,
        rule="a whole number, 0 or more",
        means="how long it waits for room before the task fails",
        default=600,
    )
    max_payload_bytes: int = _option(
        "maxPayloadBytes",
        _positive,
        rule=_NUMBER_FROM_1,
        means="larger jobs are refused",
        default=ProducerConfig().max_payload_bytes,
    )
    events_cap: int = _option(
        "eventsMaxStreamLen",
        _not_negative,
        rule="a whole number, 0 or more",
        means="cap of the events stream; 0 tells it nothing",
        default=ProducerConfig().events_max_stream_len,
    )
    chunk_rows: int = _option(
        "chunkRows",
        _positive,
        rule=_NUMBER_FROM_1,
        means="jobs in one call to the server; it stands still for that long",
        default=1_000,
    )


O = TypeVar("O", bound=Options)  # noqa: E741 -- options of one format


def read_options(kind: type[O], given: Mapping[str, str], *, url: str | None = None) -> O:
    """The typed options of one format; `ConfigError` names the option, its value and the rule.

    `url` is the server where `redis_url` is not given; None asks the environment.
    """
    known = {each.metadata["name"].lower(): each for each in fields(kind)}
    known["queues"] = known["queue"]
    values: dict[str, Any] = {}
    for key, text in given.items():
        lowered = key.lower()
        if lowered in _SPARKS_OWN:
            continue
        if lowered not in known:
            names = ", ".join(each.metadata["name"] for each in fields(kind))
            _refuse(f"option {shown(key)} is not known: use {names}")
        option = known[lowered]
        if option.name in values:
            _refuse("options 'queue' and 'queues' are both given: use one of them")
        values[option.name] = _parsed(option.metadata, text)
    if "queues" not in values:
        _refuse("option 'queue' is missing: name the queue, or several with commas between them")
    for option in known.values():
        if isinstance(offsets := values.get(option.name), Offsets):
            _check_named(option.metadata["name"], offsets, values["queues"])
    target = values.get("target") or _parsed(known["redis_url"].metadata, url)
    values["target"] = reachable(target, may_be_new=issubclass(kind, SinkOptions))
    return kind(**values)


def _check_named(name: str, offsets: Offsets, queues: tuple[str, ...]) -> None:
    """A queue that is named and not read is one that was meant otherwise."""
    strangers = [queue for queue in offsets.named if queue not in queues]
    if strangers:
        _refuse(
            f"option {name!r} names {', '.join(map(shown, strangers[:_MOST_NAMED]))}, which option "
            f"'queue' does not: use {', '.join(map(shown, queues[:_MOST_NAMED]))}"
        )


def shown_default(kind: type[Options], name: str) -> object:
    """The default of an option, by its name, for the page that tells of it."""
    [option] = [each for each in fields(kind) if each.metadata["name"] == name]
    return None if option.default is MISSING else option.default


def _parsed(told: Mapping[str, Any], text: str | None) -> Any:  # noqa: ANN401 -- by option
    name = told["name"]
    try:
        return told["parse"](text)
    except _MISREAD as error:
        if name == "redis_url":
            # Its errors are made to hold no password; the value itself may hold one.
            problem = str(error)
        else:
            why = f" ({error})" if name == "queue" else ""
            problem = f"option {name!r} is {shown(text)}{why}: use {told['rule']}"
    # Outside the handler, so that what it caught is not shown beside it.
    raise ConfigError(problem)


def shown(value: object) -> str:
    """A value for a message: as Python writes it, and the beginning of one that is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}...")
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def reachable(target: Target, *, may_be_new: bool = True) -> Target:
    """The same target, if Spark's processes can all reach it; else `ConfigError`.

    Who reads from the directory of an embedded server that is not there has mistyped it, and would
    be shown an empty one that was made for the purpose: refused unless it `may_be_new`.
    """
    if target.kind is TargetKind.EMBEDDED and target.directory is None:
        _refuse(
            "redis_url is embedded://, a server private to one process, and Spark has several: "
            "name a directory, as in embedded:///var/lib/jobs, or a server"
        )
    if target.directory is not None and not may_be_new and not Path(target.directory).exists():
        _refuse(
            f"redis_url is {target.safe_text}, a directory that does not exist: check the path; "
            "who adds jobs, and  chasqui server start,  make it"
        )
    return target


def _refuse(problem: str) -> NoReturn:
    raise ConfigError(problem)

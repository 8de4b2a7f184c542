"""What an examination finds: pure functions from facts to findings, each with its remedy."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote

from chasquimq.broker.checkup import MOST_LOOKED_AT, Consumer, QueueFacts, ServerFacts
from chasquimq.broker.server import ServerInfo
from chasquimq.broker.target import Target, TargetKind
from chasquimq.config import ConsumerConfig, ProducerConfig

LEASE_MS = ConsumerConfig().claim_min_idle_ms
GONE_MS = 60_000
"""Who has not asked for jobs for so long is gone: a worker asks every `block_ms`, or 5 s."""

# What a promoter or scheduler may be late: a change of leaders takes the time of a lock, 5 s.
_LATE_MS = 10_000
_SKEW_WARNING_MS, _SKEW_PROBLEM_MS = 1_000, 30_000
_SLOW_MS = 50
_MEMORY_WARNING, _MEMORY_PROBLEM = 0.75, 0.9
_FULL = 0.9
_MANY_DEAD_LATELY = 10
_MOST_NAMED = 5
_REMEDIES = {
    "WRONGTYPE": "find out who wrote another kind of value there, and delete or rename it",
    "NOPERM": "let this user read the queue's keys (ACL SETUSER), or examine as another",
}
_LOOPBACK = ("127.", "::1", "localhost")


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """Works, and may not for long; or somebody should know."""
    PROBLEM = "problem"
    """Jobs are late, stand still or can be lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do about it."""

    check: str
    severity: Severity
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """How we got to the server."""

    target: Target
    round_trip_ms: float
    skew_ms: int
    """Its clock minus ours, the way there taken into account."""


def _ok(check: str, message: str) -> Finding:
    return Finding(check, Severity.OK, message)


def _warning(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Severity.WARNING, message, remedy)


def _problem(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Severity.PROBLEM, message, remedy)


# --- the server


def examine_server(reach: Reach, info: ServerInfo, facts: ServerFacts) -> Iterator[Finding]:
    """Everything about the server, in the order people ask."""
    yield _version(info)
    yield _connection(reach)
    yield from _exposure(reach.target)
    yield _clock(reach.skew_ms)
    yield _eviction(info.eviction_policy)
    yield _persistence(facts)
    yield _memory(facts)


def _version(info: ServerInfo) -> Finding:
    has = {"XACKDEL": info.has_xackdel, "XREADGROUP CLAIM": info.has_claim,
           "XADD IDMP": info.has_idmp}  # fmt: skip
    there = [name for name, is_there in has.items() if is_there]
    means = "with " + ", ".join(there) if there else "scripts stand in for newer commands"
    return _ok("server", f"{info}, {means}")


def _connection(reach: Reach) -> Finding:
    text = f"{reach.target.safe_text} answers in {reach.round_trip_ms:.1f} ms"
    if reach.round_trip_ms > _SLOW_MS:
        remedy = "run workers near the server: every batch of jobs waits this long several times"
        return _warning("connection", text, remedy)
    return _ok("connection", text)


def _exposure(target: Target) -> Iterator[Finding]:
    remote = [str(each) for each in target.addresses if not each.host.startswith(_LOOPBACK)]
    if target.kind in {TargetKind.UNIX, TargetKind.EMBEDDED} or not remote:
        return
    if target.tls is None:
        remedy = "use rediss://, or make sure that nobody else can listen on this network"
        yield _warning("tls", f"jobs and passwords travel unencrypted to {remote[0]}", remedy)
    elif not target.tls.verify:
        remedy = "remove ssl_cert_reqs=none, and name the authority with ssl_ca_certs"
        yield _warning("tls", "the server's certificate is not checked", remedy)
    else:
        yield _ok("tls", "encrypted, and the certificate is checked")


def _clock(skew_ms: int) -> Finding:
    size = abs(skew_ms)
    text = f"the server's clock is {size} ms {'ahead of' if skew_ms > 0 else 'behind'} ours"
    remedy = "synchronise both with NTP: a delay given as a moment in time is off by that much"
    if size > _SKEW_PROBLEM_MS:
        return _problem("clock", text, remedy)
    if size > _SKEW_WARNING_MS:
        return _warning("clock", text, remedy)
    return _ok("clock", text)


def _eviction(policy: str) -> Finding:
    text = f"maxmemory-policy is {policy}"
    if policy == "noeviction":
        return _ok("eviction", text)
    remedy = "CONFIG SET maxmemory-policy noeviction, and in the server's configuration file"
    if policy.startswith("allkeys"):
        return _problem("eviction", f"{text}: jobs are deleted when memory is full", remedy)
    means = "results and marks of unique jobs are deleted when memory is full"
    return _warning("eviction", f"{text}: {means}", remedy)


def _persistence(facts: ServerFacts) -> Finding:
    info = facts.info
    if "aof_enabled" not in info:
        return _ok("persistence", "the server does not tell")
    has_aof, dumps = info["aof_enabled"] == "1", facts.number("rdb_last_save_time")
    remedy = "look at its log and its disk; until then a restart loses jobs"
    if has_aof and info.get("aof_last_write_status", "ok") != "ok":
        return _problem("persistence", "the append-only file cannot be written", remedy)
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return _problem("persistence", "the last dump failed", remedy)
    if has_aof:
        return _ok("persistence", "append-only file")
    unsaved = facts.number("rdb_changes_since_last_save")
    if (
        facts.number("rdb_saves")
        or dumps > facts.now_ms // 1_000 - facts.number("uptime_in_seconds") + 1
    ):
        text = f"dumps only: a crash loses what was added since the last, now {unsaved} changes"
    else:
        text = "no append-only file and no dump since it started: a restart loses every job"
    return _warning("persistence", text, "CONFIG SET appendonly yes, and in its configuration file")


def _memory(facts: ServerFacts) -> Finding:
    used, most = facts.number("used_memory"), facts.number("maxmemory")
    limit = "maxmemory"
    if not most:
        most, limit = facts.number("total_system_memory"), "the memory of its machine"
    if not most:
        return _ok("memory", f"{_mb(used)} used")
    text = f"{_mb(used)} used, {used / most:.0%} of {limit} ({_mb(most)})"
    remedy = "give it more, or work jobs off: when it is full, adds are refused"
    if used > _MEMORY_PROBLEM * most:
        return _problem("memory", text, remedy)
    if used > _MEMORY_WARNING * most:
        return _warning("memory", text, remedy)
    return _ok("memory", text)


# --- a queue


def examine_queue(
    facts: QueueFacts, group: str, *, lease_ms: int = LEASE_MS, gone_ms: int = GONE_MS
) -> Iterator[Finding]:
    """Everything about one queue."""
    live = [each for each in facts.consumers if each.idle_ms < gone_ms]
    yield from _refusals(facts)
    if not facts.exists and facts.refusals:
        return  # what may not be looked at may well exist
    if not facts.exists:
        remedy = "check the name; a queue comes into being with its first job or worker"
        yield _warning("queue", f"there is nothing of a queue {facts.name!r}", remedy)
        return
    yield _group(facts, group)
    yield _workers(facts, live)
    yield _stuck(facts, live, lease_ms)
    if not facts.is_paused:
        yield from _orphans([each.name for each in facts.consumers if each not in live])
    else:
        remedy = f"chasqui resume {quote(facts.name)}, unless that is meant"
        yield _warning("paused", "the queue is paused: workers take no new jobs", remedy)
    yield _depth(facts)
    yield _delayed(facts)
    if facts.specs:
        yield _recurring(facts)
    yield _dead_letters(facts)
    yield from _unreadable(facts)
    yield _keys(facts)


def _refusals(facts: QueueFacts) -> Iterator[Finding]:
    for key, text in facts.refusals:
        yield _problem("refused", f"the server does not tell of {key!r}: {text}", _REMEDIES.get(
            text.partition(" ")[0], "mend what its words say; what is not told counts as empty"
        ))  # fmt: skip


def _group(facts: QueueFacts, group: str) -> Finding:
    others = [name for name in facts.groups if name != group]
    remedy = "use one group everywhere: entries are deleted once settled, so others miss jobs"
    if others and group not in facts.groups:
        return _problem("group", f"there is no group {group!r}, but {_some(others)}", remedy)
    if others:
        return _problem("group", f"besides {group!r} there is {_some(others)}", remedy)
    if not facts.groups:
        return _ok("group", "no worker has started yet")
    return _ok("group", group)


def _workers(facts: QueueFacts, live: list[Consumer]) -> Finding:
    if facts.is_paused:
        # Whoever waits for the end of a pause looks exactly like one that was killed.
        return _ok("workers", "cannot be told: none asks for jobs while the queue is paused")
    waiting = facts.depth - facts.pending
    if live or not waiting:
        return _ok("workers", f"{len(live)} ask for jobs")
    remedy = f"start one: chasqui worker MODULE:NAME {quote(facts.name)}"
    return _problem("workers", f"waiting: {waiting}, and no worker has asked for them", remedy)


def _stuck(facts: QueueFacts, live: list[Consumer], lease_ms: int) -> Finding:
    if not facts.stuck:
        return _ok("deliveries", f"{facts.pending} in flight, none silent")
    number = f"{len(facts.stuck)}{' or more' if len(facts.stuck) >= MOST_LOOKED_AT else ''}"
    longest_s = max(idle_ms for _, idle_ms in facts.stuck) // 1_000
    holders = _some(sorted({name for name, _ in facts.stuck}))
    text = (
        f"{number} deliveries silent for more than the lease of {lease_ms / 1_000:g} s, the "
        f"longest for {longest_s} s, held by {holders}"
    )
    if facts.is_paused:
        remedy = f"chasqui resume {quote(facts.name)}: nobody takes them over while it is paused"
        return _warning("deliveries", text, remedy)
    if live:
        remedy = "wait: a worker with a free slot takes them over; if none does, add workers"
        return _warning("deliveries", text, remedy)
    return _problem("deliveries", text, "start a worker: it takes them over")


def _orphans(orphans: list[str]) -> Iterator[Finding]:
    if orphans:
        text = f"{len(orphans)} consumers belong to workers that are gone: {_some(orphans)}"
        later = "what they hold is taken over; after an hour the next worker forgets them"
        yield _ok("consumers", f"{text}; {later}")


def _depth(facts: QueueFacts) -> Finding:
    most = ProducerConfig().max_stream_len
    text = f"{facts.depth - facts.pending} waiting, {facts.pending} in flight"
    if facts.depth > _FULL * most:
        remedy = "more workers: at max_stream_len, a million by default, adds are refused"
        return _warning("depth", text, remedy)
    return _ok("depth", text)


def _delayed(facts: QueueFacts) -> Finding:
    if not facts.delayed or facts.oldest_due_ms is None:
        return _ok("delayed", f"{facts.delayed}")
    late_ms = facts.now_ms - facts.oldest_due_ms
    if late_ms > _LATE_MS:
        text = f"{facts.delayed} delayed, the first should have run {late_ms // 1_000} s ago"
        if facts.has_promoter:
            remedy = "a promoter leads: either the stream is full, or its worker is overloaded"
        else:
            remedy = "no promoter leads: start a worker, or one without --no-promoter"
        return _problem("delayed", text, remedy)
    if not facts.has_promoter:
        remedy = "start a worker before they are due; its promoter moves them"
        return _warning("delayed", f"{facts.delayed} delayed, and no promoter leads", remedy)
    return _ok("delayed", f"{facts.delayed} delayed, a promoter leads")


def _recurring(facts: QueueFacts) -> Finding:
    text = f"{facts.specs} recurring jobs"
    late_ms = 0 if facts.next_fire_ms is None else facts.now_ms - facts.next_fire_ms
    remedy = "start a worker, or one without --no-scheduler"
    if late_ms > _LATE_MS:
        return _problem("recurring", f"{text}, one should have fired {late_ms // 1_000} s ago",
                        remedy)  # fmt: skip
    if not facts.has_scheduler:
        return _warning("recurring", f"{text}, and no scheduler leads", remedy)
    return _ok("recurring", f"{text}, a scheduler leads")


def _dead_letters(facts: QueueFacts) -> Finding:
    more = " or more" if facts.dead_lately >= MOST_LOOKED_AT else ""
    text = f"{facts.dead} dead letters, {facts.dead_lately}{more} of them from the last hour"
    remedy = f"chasqui dlq peek {quote(facts.name)}; mend the cause, then chasqui dlq replay"
    if facts.dead > _FULL * ConsumerConfig().dlq_max_stream_len:
        return _problem("dead letters", f"{text}: the oldest are about to be dropped", remedy)
    if facts.dead_lately >= _MANY_DEAD_LATELY:
        return _warning("dead letters", text, remedy)
    return _ok("dead letters", text)


def _unreadable(facts: QueueFacts) -> Iterator[Finding]:
    if facts.bad_members:
        text = f"{facts.bad_members} delayed members are no jobs"
        remedy = "find out who writes them; when due, they become dead letters"
        yield _problem("delayed members", text, remedy)
    if facts.bad_specs:
        text = f"recurring jobs that cannot be read, and never fire: {_some(facts.bad_specs)}"
        remedy = f"store them anew, or: chasqui repeatable rm {quote(facts.name)} KEY"
        yield _problem("specs", text, remedy)


def _keys(facts: QueueFacts) -> Finding:
    if facts.unknown_keys:
        text = f"keys that no queue has: {_some(facts.unknown_keys)}"
        remedy = "find out who writes them; obliterate leaves them"
        return _warning("keys", text, remedy)
    part = "" if facts.has_seen_all_keys else " (of a part: there are too many to look at all)"
    return _ok("keys", f"none that is not ours{part}")


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(repr, names[:_MOST_NAMED])) + more


def _mb(size: int) -> str:
    return f"{size / 1_048_576:,.0f} MB"

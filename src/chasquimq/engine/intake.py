"""Takes entries from the stream: new ones, and those whose lease ran out.

In one of two ways. Without a shared limit by `XREADGROUP`, which blocks, with a look at the queue's
pause in the same pipeline. With one by `take.lua`, which cannot block: it spends a token for each
entry it finds and none while it finds nothing, and then we wait for an entry without taking it.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias

from chasquimq.broker import limits, pause, stream
from chasquimq.broker.call import Call, Reply
from chasquimq.broker.connection import Connection
from chasquimq.broker.limits import Claiming, Limit, Taken
from chasquimq.broker.stream import Delivery
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.bucket import Bucket
from chasquimq.errors import ServerReplyError
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")

# Where a read cannot claim we look for expired leases this often, at most.
_CLAIM_EVERY_MS = 1_000


class Intake(Protocol):
    """One way to take entries; `take` may block on the connection it was given."""

    async def take(self, room: int, *, block_ms: int, may_go_on: Callable[[], bool]) -> Taken:
        """At most `room` entries, after at most `block_ms`; ask `may_go_on` before blocking."""
        ...

    def look_again(self) -> None:
        """Look for expired leases with the next read, however soon after the last look."""
        ...


InHand: TypeAlias = Callable[[], int]
"""How many deliveries the worker has that are not settled."""
MakeIntake: TypeAlias = Callable[[Connection, QueueKeys, ConsumerConfig, Clock, InHand], Intake]
"""Makes the way in which one reader takes entries."""


def intake(
    connection: Connection,
    keys: QueueKeys,
    config: ConsumerConfig,
    clock: Clock,
    in_hand: InHand = lambda: 0,  # noqa: ARG001 -- for intakes that wait for an empty hand
) -> Intake:
    """The way that the config asks for."""
    if config.rate_limit_max is None:
        return OpenIntake(connection, keys, config, clock)
    limit = Limit(config.rate_limit_max, config.rate_limit_duration_ms)
    if config.rate_limit_scope == "queue":
        return SharedIntake(connection, keys, config, clock, limit)
    bucket = Bucket(limit.most, limit.duration_ms, now_us=clock.monotonic_us())
    return OpenIntake(connection, keys, config, clock, bucket)


class _Claims:
    """When to look for expired leases, where that is a question of its own."""

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        self._clock = clock
        self._looked_at_us: int | None = None
        self.every_ms = max(1, min(_CLAIM_EVERY_MS, config.claim_min_idle_ms // 3))

    @property
    def are_due(self) -> bool:
        looked = self._looked_at_us
        return looked is None or self._clock.monotonic_us() - looked >= self.every_ms * 1_000

    def found_all(self) -> None:
        self._looked_at_us = self._clock.monotonic_us()

    def look_again(self) -> None:
        self._looked_at_us = None


class OpenIntake:
    """Blocks in the read itself; a limit of this worker's own is a bucket in this process."""

    def __init__(
        self,
        connection: Connection,
        keys: QueueKeys,
        config: ConsumerConfig,
        clock: Clock,
        bucket: Bucket | None = None,
    ) -> None:
        """`connection` is the reader's own."""
        self._connection = connection
        self._keys = keys
        self._config = config
        self._clock = clock
        self._bucket = bucket
        self._claims = _Claims(config, clock)

    async def take(self, room: int, *, block_ms: int, may_go_on: Callable[[], bool]) -> Taken:
        """At most `room` entries, after at most `block_ms`."""
        allowed = room
        if self._bucket is not None:
            now_us = self._clock.monotonic_us()
            allowed = min(room, self._bucket.whole(now_us))
            if allowed < 1:
                return Taken(wait_ms=self._bucket.wait_ms(now_us))
        deliveries, is_paused = await self._read(allowed, block_ms, may_go_on)
        if self._bucket is not None and not is_paused:
            self._bucket.spend(len(deliveries))
        return Taken(deliveries, is_paused, ran_dry=len(deliveries) < allowed)

    def look_again(self) -> None:
        """Look for expired leases with the next read."""
        self._claims.look_again()

    async def _read(
        self, count: int, block_ms: int, may_go_on: Callable[[], bool]
    ) -> tuple[list[Delivery], bool]:
        config = self._config
        server = self._connection.server or await self._connection.ready()
        claim_ms: int | None = config.claim_min_idle_ms
        if not server.has_claim:
            claim_ms = None
            block_ms = min(block_ms, self._claims.every_ms)
            if self._claims.are_due:
                claiming = gated(self._keys, self._claim(count))
                claimed, is_paused = await self._connection.run(claiming)
                if len(claimed) < count:
                    self._claims.found_all()
                if claimed or is_paused:
                    return claimed, is_paused
        if not may_go_on():
            return [], False
        read = stream.read(
            self._keys,
            config.group,
            config.consumer_id,
            count=count,
            block_ms=block_ms,
            claim_min_idle_ms=claim_ms,
        )
        return await self._connection.run(gated(self._keys, read))

    def _claim(self, count: int) -> Call[list[Delivery]]:
        return stream.claim(
            self._keys,
            self._config.group,
            self._config.consumer_id,
            min_idle_ms=self._config.claim_min_idle_ms,
            count=count,
        )


class SharedIntake:
    """Takes within the limit that all workers of the queue share. Fails closed.

    With one exception: a server out of memory cannot count, and would stay so if nobody took what
    fills it. Then each worker keeps the limit by itself.
    """

    def __init__(
        self,
        connection: Connection,
        keys: QueueKeys,
        config: ConsumerConfig,
        clock: Clock,
        limit: Limit,
    ) -> None:
        """`connection` is the reader's own."""
        self._connection = connection
        self._keys = keys
        self._config = config
        self._limit = limit
        self._claims = _Claims(config, clock)
        bucket = Bucket(limit.most, limit.duration_ms, now_us=clock.monotonic_us())
        self._alone = OpenIntake(connection, keys, config, clock, bucket)
        self._is_alone = False

    async def take(self, room: int, *, block_ms: int, may_go_on: Callable[[], bool]) -> Taken:
        """At most `room` entries; if there are none, wait for one and take none."""
        try:
            taken = await self._take(room, block_ms=block_ms, may_go_on=may_go_on)
        except ServerReplyError as error:
            if error.kind != "OOM":
                raise
            if not self._is_alone:
                log.warning("the server is out of memory and cannot count jobs: this worker keeps "
                            "the rate limit of queue %s by itself", self._keys.name,
                            extra={"queue": self._keys.name})  # fmt: skip
            self._is_alone = True
            soon_ms = min(block_ms, self._claims.every_ms)
            return await self._alone.take(room, block_ms=soon_ms, may_go_on=may_go_on)
        self._is_alone = False
        return taken

    async def _take(self, room: int, *, block_ms: int, may_go_on: Callable[[], bool]) -> Taken:
        taken = await self._connection.run(
            limits.take(
                self._keys,
                self._config.group,
                self._config.consumer_id,
                limit=self._limit,
                count=room,
                min_idle_ms=self._config.claim_min_idle_ms,
                claiming=await self._claiming(),
            )
        )
        if taken.ran_dry:
            self._claims.found_all()
        if taken.newest and may_go_on():
            # Not for long: this wait does not see leases run out, as a read would.
            block_ms = min(block_ms, self._claims.every_ms)
            await self._connection.run(
                stream.wait_for_entry(self._keys, after=taken.newest, block_ms=block_ms)
            )
        return taken

    def look_again(self) -> None:
        """Look for expired leases with the next read."""
        self._claims.look_again()
        self._alone.look_again()

    async def _claiming(self) -> Claiming:
        server = self._connection.server or await self._connection.ready()
        if server.has_claim:
            return "read"
        return "look" if self._claims.are_due else ""


def gated(keys: QueueKeys, read: Call[list[Delivery]]) -> Call[tuple[list[Delivery], bool]]:
    """A read, and behind it the question whether the queue is paused: one round trip for both."""
    asked = pause.is_paused(keys)

    def parse(replies: list[Reply]) -> tuple[list[Delivery], bool]:
        return read.parse(replies[:-1]), asked.parse(replies[-1:])

    return Call(
        [*read.requests, *asked.requests],
        parse,
        repeatable=read.repeatable,
        block_ms=read.block_ms,
        scripts=read.scripts,
    )

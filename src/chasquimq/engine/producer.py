"""`Producer`: adds packed jobs to one queue, method for method as the documented engine does.

`chasquimq.Queue` packs and unpacks data and takes friendlier arguments; a producer deals in bytes.
Both drive the same steps, so what one adds the other can cancel, replay and read the result of.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from chasquimq import given
from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.config import Overflow, ProducerConfig
from chasquimq.engine.options import AddOptions, JobId, OptionsLike
from chasquimq.engine.orders import Wish
from chasquimq.engine.repeatable import RepeatableSpec, SpecLike
from chasquimq.engine.sender import Sender
from chasquimq.errors import ConfigError
from chasquimq.given import BytesLike, InstantLike, MsLike
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.repeat import RepeatableMeta

_PLAIN = AddOptions()
# Cancellations on their way at the same time: they share one connection, one reply each.
_CANCELLED_TOGETHER = 500


class Producer:
    """Adds jobs whose payload is bytes.

    Any number of tasks may share one; each event loop gets a connection of its own. All of a call
    is checked before anything is sent. An id that comes back is stored; with an id of the
    caller's, it or the earlier job of that id is.
    """

    def __init__(  # noqa: PLR0913 -- the documented arguments, then ours
        self,
        redis_url: str | None,
        queue_name: str,
        *,
        pool_size: int | None = None,
        max_stream_len: int | None = None,
        max_delay_secs: int | None = None,
        credential_provider: CredentialProvider | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
        overflow: Overflow | None = None,
        events_enabled: bool | None = None,
    ) -> None:
        """Nothing is connected before the first call; None takes the config's default."""
        chosen = given.chosen(
            pool_size=pool_size,
            max_stream_len=max_stream_len,
            max_delay_secs=max_delay_secs,
            overflow=overflow,
            events_enabled=events_enabled,
        )
        options = ConnectionOptions(
            credential_provider=credential_provider, reconnect_max_attempts=reconnect_max_attempts
        )
        self._set_up(redis_url, ProducerConfig(queue_name=queue_name, **chosen), options, tls=tls)

    @classmethod
    def from_config(
        cls,
        redis_url: str | None,
        config: ProducerConfig | None = None,
        *,
        credential_provider: CredentialProvider | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
    ) -> Self:
        """A producer of a config, which names the queue too; not connected yet."""
        config = config or ProducerConfig()
        given.check_kind("config", config, ProducerConfig)
        made = cls.__new__(cls)
        options = ConnectionOptions(
            credential_provider=credential_provider, reconnect_max_attempts=reconnect_max_attempts
        )
        made._set_up(redis_url, config, options, tls=tls)  # noqa: SLF001 -- ours
        return made

    @classmethod
    async def connect(
        cls,
        redis_url: str | None,
        config: ProducerConfig | None = None,
        *,
        credential_provider: CredentialProvider | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
    ) -> Self:
        """A producer whose server has answered; `ConnectionFailedError` if none does."""
        producer = cls.from_config(
            redis_url,
            config,
            credential_provider=credential_provider,
            tls=tls,
            reconnect_max_attempts=reconnect_max_attempts,
        )
        try:
            await producer._sender.connection().ready()  # noqa: SLF001 -- ours
        except BaseException:
            await producer.close()
            raise
        return producer

    def _set_up(
        self, url: str | None, config: ProducerConfig, options: ConnectionOptions, *, tls: bool
    ) -> None:
        self._sender = Sender(parse_url(url, tls=tls), config, options=options)
        self._producing = self._sender.producing

    def __repr__(self) -> str:
        """Show the queue and where it is."""
        return f"<Producer {self._producing.keys.name} {self._sender!r}>"

    # Now

    async def add(self, payload: BytesLike) -> JobId:
        """Add a job; its id."""
        return await self.add_with_options(payload, _PLAIN)

    async def add_with_id(self, id: JobId, payload: BytesLike) -> JobId:  # noqa: A002 -- documented
        """Add a job unless its id is taken; the id either way."""
        return await self.add_with_options(payload, AddOptions(id=id))

    async def add_with_options(self, payload: BytesLike, opts: OptionsLike) -> JobId:
        """Add a job with a name, an id or retry rules of its own."""
        return (await self._add([_wish(payload, opts)]))[0]

    async def add_bulk(self, payloads: Iterable[BytesLike]) -> list[JobId]:
        """Add many jobs in one pipeline; their ids, in order."""
        return await self._add([_wish(payload, _PLAIN) for payload in _many(payloads)])

    async def add_bulk_with_options(
        self, payloads: Iterable[BytesLike], opts: OptionsLike
    ) -> list[JobId]:
        """Add many jobs with the same options; an id cannot be one of them, unless for one job."""
        shared, wanted = AddOptions.of(opts), _many(payloads)
        if shared.id is not None and len(wanted) > 1:
            msg = (
                f"opts.id {shared.id!r} cannot be the id of {len(wanted)} jobs: leave it out, or "
                "call add_with_id for each"
            )
            raise ConfigError(msg)
        return await self._add([_wish(payload, shared) for payload in wanted])

    async def add_bulk_named(self, items: Iterable[tuple[str, BytesLike]]) -> list[JobId]:
        """Add many `(name, payload)` in one pipeline; all are checked before any is sent."""
        pairs = _pairs(items, "name")
        return await self._add([_wish(each, AddOptions(name=name)) for name, each in pairs])

    # Later

    async def add_in(self, delay: MsLike, payload: BytesLike) -> JobId:
        """Add a job that is due after `delay`, milliseconds or a `timedelta`."""
        return await self.add_in_with_options(delay, payload, _PLAIN)

    async def add_at(self, run_at: InstantLike, payload: BytesLike) -> JobId:
        """Add a job that is due at `run_at`, epoch milliseconds or a `datetime`; past means now."""
        return await self.add_at_with_options(run_at, payload, _PLAIN)

    async def add_in_bulk(self, delay: MsLike, payloads: Iterable[BytesLike]) -> list[JobId]:
        """Add many jobs that are due after the same `delay`, in one pipeline."""
        delay_ms = given.duration_ms("delay", delay)
        return await self._add([_wish(each, _PLAIN, delay_ms) for each in _many(payloads)])

    async def add_in_with_options(
        self, delay: MsLike, payload: BytesLike, opts: OptionsLike
    ) -> JobId:
        """`add_in` with options; with an id a second call adds nothing while the id is taken."""
        wish = _wish(payload, opts, delay_ms=given.duration_ms("delay", delay))
        return (await self._add([wish]))[0]

    async def add_at_with_options(
        self, run_at: InstantLike, payload: BytesLike, opts: OptionsLike
    ) -> JobId:
        """`add_at` with options; with an id a second call adds nothing while the id is taken."""
        wish = _wish(payload, opts, run_at_ms=given.instant_ms("run_at", run_at))
        return (await self._add([wish]))[0]

    async def add_in_with_id(self, id: JobId, delay: MsLike, payload: BytesLike) -> JobId:  # noqa: A002 -- documented
        """`add_in` unless the id is taken; the id either way."""
        return await self.add_in_with_options(delay, payload, AddOptions(id=id))

    async def add_at_with_id(self, id: JobId, run_at: InstantLike, payload: BytesLike) -> JobId:  # noqa: A002 -- documented
        """`add_at` unless the id is taken; the id either way."""
        return await self.add_at_with_options(run_at, payload, AddOptions(id=id))

    async def add_in_bulk_with_ids(
        self, delay: MsLike, items: Iterable[tuple[JobId, BytesLike]]
    ) -> list[JobId]:
        """Add many `(id, payload)` that are due after `delay`; those whose id is taken are not."""
        delay_ms = given.duration_ms("delay", delay)
        pairs = _pairs(items, "id")
        return await self._add([_wish(each, AddOptions(id=id_), delay_ms) for id_, each in pairs])

    async def cancel_delayed(self, id: JobId) -> bool:  # noqa: A002 -- documented
        """Take a delayed job out; True if it was still delayed, and then it will not run."""
        return (await self.cancel_delayed_bulk([id]))[0]

    async def cancel_delayed_bulk(self, ids: Sequence[JobId]) -> list[bool]:
        """Take many delayed jobs out, each atomically; one answer an id, in order."""
        wanted = _ids(ids)
        removed: list[bool] = []
        for at in range(0, len(wanted), _CANCELLED_TOGETHER):
            cancels = map(self._producing.cancel, wanted[at : at + _CANCELLED_TOGETHER])
            removed += await asyncio.gather(*map(self._sender.drive, cancels))
        return removed

    # Dead letters

    async def peek_dlq(self, limit: int = 20) -> list[DeadLetter]:
        """The oldest dead letters, untouched; `payload` is the whole envelope of the job."""
        if not given.count("limit", limit):
            return []
        return await self._sender.drive(self._producing.letters.peek(limit))

    async def replay_dlq(self, limit: int = 100) -> int:
        """Send up to `limit` dead letters round again with attempt 0; how many were moved.

        Each moves atomically: two replays at once never move the same one. Letters that hold no job
        stay, and never block those behind them.
        """
        steps = self._producing.replay_dlq(given.count("limit", limit), lambda _: True)
        return await self._sender.drive(steps)

    # Recurring jobs

    async def upsert_repeatable(self, spec: SpecLike) -> str:
        """Store a recurring job and return its key; one of the same key is replaced.

        Replacing counts the next window anew. `ValueError` if it would never fire.
        """
        wanted = RepeatableSpec.of(spec)
        stored = wanted.stored()
        await self._sender.drive(self._producing.repeating.upsert(stored, wanted.job_id))
        return stored.key

    async def list_repeatable(self, limit: int = 100) -> list[RepeatableMeta]:
        """Recurring jobs without their payloads, the one that fires next first."""
        steps = self._producing.repeating.listed(given.count("limit", limit))
        return await self._sender.drive(steps)

    async def remove_repeatable(self, spec_key: str) -> bool:
        """Forget a recurring job; True if there was one. Jobs it has fired stay."""
        key = given.text_id("spec_key", spec_key, "pass what upsert_repeatable returned")
        return await self._sender.drive(self._producing.repeating.remove(key))

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """`remove_repeatable`, by its name in the reference package."""
        return await self.remove_repeatable(key)

    # Results

    async def get_result(self, id: JobId) -> bytes | None:  # noqa: A002 -- documented
        """The stored bytes, or None: not completed yet, expired, or never written."""
        return (await self.get_result_bulk([id]))[0]

    async def get_result_bulk(self, ids: Sequence[JobId]) -> list[bytes | None]:
        """The stored bytes of many jobs in one round trip, None where there are none."""
        kept = await self._sender.drive(self._producing.read_results(_ids(ids)))
        return [each.value for each in kept]

    # What it is

    @property
    def config(self) -> ProducerConfig:
        """How it works."""
        return self._producing.config

    def producer_id(self) -> str:
        """The token under which the server remembers this producer's adds."""
        return self._producing.producer_id

    def stream_key(self) -> str:
        """The key of the stream."""
        return self._producing.keys.stream.decode()

    def delayed_key(self) -> str:
        """The key of the delayed set."""
        return self._producing.keys.delayed.decode()

    def dlq_key(self) -> str:
        """The key of the dead-letter stream."""
        return self._producing.keys.dlq.decode()

    async def close(self) -> None:
        """Drop this event loop's connection. Idempotent; a later call opens another."""
        await self._sender.close()

    async def shutdown(self) -> None:
        """`close`, by its name in the reference package."""
        await self.close()

    async def __aenter__(self) -> Self:
        """The producer itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def _add(self, wishes: list[Wish]) -> list[JobId]:
        return [order.id for order, _ in await self._sender.add(wishes)]


def _wish(
    payload: BytesLike, opts: OptionsLike, delay_ms: int = 0, run_at_ms: int | None = None
) -> Wish:
    options = AddOptions.of(opts)
    return Wish(
        options.name, given.payload(payload), options.id, options.retry, delay_ms, run_at_ms
    )


def _many(payloads: Iterable[BytesLike]) -> list[BytesLike]:
    if isinstance(payloads, bytes | bytearray | memoryview | str | Mapping):
        kind = type(payloads).__name__
        msg = f"payloads must be a list of bytes, got {kind}: put it in a list"
        raise TypeError(msg)
    return list(payloads)


def _pairs(items: Iterable[tuple[str, BytesLike]], first: str) -> list[tuple[str, BytesLike]]:
    pairs = list(items)
    for at, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004 -- a pair
            msg = f"items[{at}] must be ({first}, payload), got {type(pair).__name__}"
            raise ValueError(msg)
    return pairs


def _ids(ids: Sequence[JobId]) -> list[JobId]:
    if isinstance(ids, str | bytes):
        msg = f"ids must be a list of ids, got {ids!r}: put it in a list"
        raise TypeError(msg)
    return [given.text_id("id", each, "pass the id of a job") for each in ids]

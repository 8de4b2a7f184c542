"""`process_batch`: drains what waits in a queue as one DataFrame after another, and ends."""

import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import DEFAULT_URL, parse_url
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.config import ConsumerConfig, RetryConfig, ttl_secs
from chasquimq.engine.admission import Run
from chasquimq.engine.disposition import Failed, Ok, Outcome
from chasquimq.engine.failure import failed
from chasquimq.engine.leases import Leases
from chasquimq.errors import ConfigError, UnrecoverableError
from chasquimq.given import chosen
from chasquimq.handling import packed
from chasquimq.spark.batch_hand import Hand, Processed
from chasquimq.spark.jobs_source import ChosenJobs
from chasquimq.spark.options import reachable
from chasquimq.spark.permit import Permit
from chasquimq.spark.schemas import JOBS, struct
from chasquimq.spark.session import session
from chasquimq.spark.source import server_of
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.spark")

_HIDDEN = ("state", "consumer", "idle_ms", "deliveries")

_names_taken: set[str] = set()
_names_guard = threading.Lock()


def process_batch(  # noqa: PLR0913 -- the documented arguments
    queue_name: str,
    function: Callable[[DataFrame], DataFrame | None],
    *,
    spark: SparkSession | None = None,
    redis_url: str | None = None,
    name: str = "spark-batch",
    max_jobs: int = 100_000,
    schema: StructType | str | None = None,
    max_attempts: int = 25,
    group: str = "default",
    store_results: bool = False,
    result_ttl_ms: int | None = None,
    claim_min_idle_ms: int | None = None,
    retry: RetryConfig | None = None,
    events_enabled: bool = True,
) -> Processed:
    """Give `function` what waits in the queue as a table, settle it, and return once all is done.

    The table has at most `max_jobs` rows and the columns of `chasquimq_jobs`, the payload as JSON
    or as `schema` says; it stays the same however often it is computed. There may be several, one
    after the other. The function writes
    what it makes of it and returns None: all jobs are done. Or it returns a table with `job_id`,
    and perhaps `result` or `error`: jobs with an error, and jobs it leaves out, have failed, and
    are retried or dead-lettered as any job. What it raises leaves the jobs to the next run.

    Jobs are acknowledged after the function has returned: if the driver dies in between they come
    again, so let it write under the `job_id`, or append and tell doubles by it. To overwrite would
    leave the last table only. Leases are renewed while it works; each job is told its share of the
    time that its table took. A queue that nobody has used is left unmade.
    """
    if isinstance(max_jobs, bool) or not isinstance(max_jobs, int) or max_jobs < 1:
        msg = f"max_jobs is {max_jobs}: use a whole number, 1 or more"
        raise ConfigError(msg)
    config = ConsumerConfig(
        queue_name=queue_name,
        consumer_id=name,
        max_attempts=max_attempts,
        group=group,
        store_results=store_results,
        events_enabled=events_enabled,
        **chosen(
            result_ttl_secs=ttl_secs(result_ttl_ms),
            claim_min_idle_ms=claim_min_idle_ms,
            retry=retry,
        ),
    )
    spark = spark or session()
    with ExitStack() as afterwards:
        hand, url = _hand(afterwards, config, server_of(spark, redis_url) or DEFAULT_URL)
        table = _Tables(spark, afterwards.enter_context(_name()), url, config, schema)
        afterwards.callback(table.forget)
        done = Processed()
        while runs := hand.take(max_jobs):
            hand.tell_active(runs)
            began_us = SYSTEM_CLOCK.monotonic_us()
            try:
                given = table.of([run.delivery.entry_id for run in runs])
                outcomes = _outcomes(function(given), runs, keeps_results=store_results)
            except BaseException:
                hand.let_go()
                raise
            # Each has its share: as much as all of them took is what the table cost, not each.
            spent_us = (SYSTEM_CLOCK.monotonic_us() - began_us) // len(runs)
            done = done.plus(hand.settle(runs, outcomes, spent_us))
            log.info("%d jobs of queue %s are settled", len(runs), queue_name)
        return done.plus(hand.unfit)


def _hand(afterwards: ExitStack, config: ConsumerConfig, url: str) -> tuple[Hand, str]:
    """What takes and settles, with the permit and the leases around it."""
    keys = QueueKeys(config.queue_name)
    target = reachable(parse_url(url))
    options = ConnectionOptions(client_name=f"chasquimq-{config.consumer_id}")
    connection = BlockingConnection(target, options, slot_key=keys.tag)
    afterwards.callback(connection.close)
    connection.ready()
    holder = uuid.uuid4().hex
    afterwards.enter_context(Permit(connection, keys.name, config.consumer_id, holder))
    leases = Leases(
        BlockingConnection(target, options, slot_key=keys.tag),
        keys,
        group=config.group,
        consumer=config.consumer_id,
        lease_ms=config.claim_min_idle_ms,
        clock=SYSTEM_CLOCK,
    )
    leases.start()
    afterwards.callback(leases.end)
    return Hand(connection, keys, config, leases), url


@contextmanager
def _name() -> Iterator[str]:
    """What tables of one call are called in Spark, as those of no other call at work.

    Spark keeps a name, and what was registered under it last, for as long as it runs. So names are
    used again, and there are as many as there were calls at work at a time.
    """
    with _names_guard:
        names = (f"chasquimq_batch_{number}" for number in itertools.count(1))
        name = next(each for each in names if each not in _names_taken)
        _names_taken.add(name)
    try:
        yield name
    finally:
        with _names_guard:
            _names_taken.discard(name)


class _Tables:
    """Makes a table of what is in hand, and of nothing else."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        url: str,
        config: ConsumerConfig,
        schema: StructType | str | None,
    ) -> None:
        self._spark = spark
        self._name = name
        self._url = url
        self._config = config
        self._schema: StructType | None = None
        self._has_registered = False
        if schema is not None:
            payload = spark.createDataFrame([], schema).schema
            ours = struct(JOBS).fields
            kinds = [payload if each.name == "payload" else each.dataType for each in ours]
            self._schema = StructType(
                [StructField(each.name, kind) for each, kind in zip(ours, kinds, strict=True)]
            )

    def of(self, entry_ids: Sequence[bytes]) -> DataFrame:
        """The table of these entries; the one before is done, and its name free."""
        self._register(entry_ids)
        reader = self._spark.read.format(self._name)
        reader = reader.options(queue=self._config.queue_name, group=self._config.group)
        frame = reader.load() if self._schema is None else reader.schema(self._schema).load()
        return frame.drop(*_HIDDEN)

    def forget(self) -> None:
        """Let Spark keep no ids. Never raises: everything is settled, or an error under way."""
        if not self._has_registered:
            return
        try:
            self._register(())
        except Exception as error:  # noqa: BLE001 -- Spark may be gone, by whatever error of its own
            log.debug("Spark keeps the ids of the last table: %s", error)

    def _register(self, entry_ids: Sequence[bytes]) -> None:
        class InHand(ChosenJobs):
            pass

        InHand.url, InHand.format_name, InHand.entry_ids = self._url, self._name, tuple(entry_ids)
        self._spark.dataSource.register(InHand)
        self._has_registered = True


def _outcomes(answer: DataFrame | None, runs: list[Run], *, keeps_results: bool) -> list[Outcome]:
    """What became of each run, by what the function returned."""
    if answer is None:
        return [Ok(None)] * len(runs)
    if "job_id" not in answer.columns:
        msg = f"the function returned a table without 'job_id': it has {', '.join(answer.columns)}"
        raise ConfigError(msg)
    wanted = [each for each in ("job_id", "result", "error") if each in answer.columns]
    told = {row["job_id"]: row.asDict(recursive=True) for row in answer.select(*wanted).collect()}
    return [_outcome(told.get(run.envelope.id), keeps_results=keeps_results) for run in runs]


def _outcome(told: "dict[str, object] | None", *, keeps_results: bool) -> Outcome:
    if told is None:
        told = {"error": "the function's answer left this job out"}
    error = told.get("error")
    if error is not None:
        return Failed(message=str(error), error=str(error), traceback="")
    result = told.get("result")
    if result is None or not keeps_results:
        return Ok(None)
    try:
        return Ok(packed(result))
    except UnrecoverableError as unstorable:
        return failed(unstorable)  # of this job alone, not of its table

"""`PrometheusSink`: names, types, labels and units, through the library's own text and parser."""

import gc
import logging
import subprocess
import sys
import weakref

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from chasquimq import DlqReason
from chasquimq.metrics import (
    DlqRouted,
    JobOutcome,
    JobOutcomeKind,
    LeasesRenewed,
    LockOutcome,
    PromoterTick,
    QueueDepths,
    RateLimited,
    ReaderBatch,
    Reconnected,
    RetryScheduled,
    WorkerPulse,
)
from chasquimq.prometheus import OTHER_NAMES, PrometheusSink, exposition, own_registry

# Those of the documented engine: type and labels besides `queue`.
DOCUMENTED = {
    "chasquimq_promoter_promoted_total": ("counter", set()),
    "chasquimq_delayed_zset_depth": ("gauge", set()),
    "chasquimq_promoter_oldest_pending_lag_ms": ("gauge", set()),
    "chasquimq_promoter_lock_acquired_total": ("counter", set()),
    "chasquimq_promoter_lock_lost_total": ("counter", set()),
    "chasquimq_consumer_batch_size": ("histogram", set()),
    "chasquimq_consumer_reclaimed_total": ("counter", set()),
    "chasquimq_handler_duration_seconds": ("histogram", {"name"}),
    "chasquimq_jobs_completed_total": ("counter", {"name"}),
    "chasquimq_jobs_failed_total": ("counter", {"kind", "name"}),
    "chasquimq_retries_scheduled_total": ("counter", {"name"}),
    "chasquimq_retry_backoff_seconds": ("histogram", {"name"}),
    "chasquimq_dlq_routed_total": ("counter", {"reason", "name"}),
    "chasquimq_rate_limited_total": ("counter", set()),
    "chasquimq_rate_limit_wait_seconds": ("histogram", set()),
}


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def sink(registry):
    return PrometheusSink("emails", registry=registry)


def ran(name="mail", kind=JobOutcomeKind.OK, us=250_000):
    return JobOutcome(kind, 1, us, name)


def tell_everything(sink):
    sink.promoter_tick(PromoterTick(promoted=3, depth=7, oldest_pending_lag_ms=1_500))
    sink.promoter_lock_outcome(LockOutcome.ACQUIRED)
    sink.promoter_lock_outcome(LockOutcome.HELD)
    sink.reader_batch(ReaderBatch(size=5, reclaimed=2))
    sink.job_outcome(ran())
    sink.job_outcome(ran(kind=JobOutcomeKind.ERR))
    sink.job_outcome(ran(kind=JobOutcomeKind.PANIC))
    sink.retry_scheduled(RetryScheduled(2, 1_500, "mail"))
    sink.dlq_routed(DlqRouted(DlqReason.RETRIES_EXHAUSTED, 3, "mail"))
    sink.rate_limited(RateLimited(250))
    sink.worker_pulse(WorkerPulse("c-1", 4, 3, 1_700_000_000_500))
    sink.leases_renewed(LeasesRenewed(6, 1))
    sink.reconnected(Reconnected(2))
    sink.queue_depths(QueueDepths(waiting=1, active=2, delayed=3, dead=4, lag_ms=2_500))


def families(registry):
    """What a scraper reads: name as it is stored, type, samples."""
    text = generate_latest(registry).decode()
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
        if not family.name.endswith("_created")
    }


def value(registry, metric, /, **labels):
    return registry.get_sample_value(f"chasquimq_{metric}", {"queue": "emails", **labels})


def test_the_documented_metrics_have_their_names_types_and_labels(sink, registry):
    tell_everything(sink)
    seen = families(registry)
    found = {
        name: (
            seen[name].type,
            set().union(*(sample.labels for sample in seen[name].samples)) - {"queue", "le"},
        )
        for name in DOCUMENTED
    }
    assert found == DOCUMENTED


def test_every_sample_names_its_queue(sink, registry):
    tell_everything(sink)
    for family in families(registry).values():
        assert family.samples, family.name
        assert {sample.labels["queue"] for sample in family.samples} == {"emails"}


def test_every_report_arrives_in_the_documented_unit(sink, registry):
    tell_everything(sink)
    assert {
        "promoted": value(registry, "promoter_promoted_total"),
        "delayed": value(registry, "delayed_zset_depth"),
        "late ms": value(registry, "promoter_oldest_pending_lag_ms"),
        "acquired": value(registry, "promoter_lock_acquired_total"),
        "lost lock": value(registry, "promoter_lock_lost_total"),
        "batch": value(registry, "consumer_batch_size_sum"),
        "reclaimed": value(registry, "consumer_reclaimed_total"),
        "runs": value(registry, "handler_duration_seconds_count", name="mail"),
        "seconds": value(registry, "handler_duration_seconds_sum", name="mail"),
        "completed": value(registry, "jobs_completed_total", name="mail"),
        "errors": value(registry, "jobs_failed_total", kind="error", name="mail"),
        "panics": value(registry, "jobs_failed_total", kind="panic", name="mail"),
        "retries": value(registry, "retries_scheduled_total", name="mail"),
        "backoff s": value(registry, "retry_backoff_seconds_sum", name="mail"),
        "dead": value(registry, "dlq_routed_total", reason="retries_exhausted", name="mail"),
        "limited": value(registry, "rate_limited_total"),
        "limited s": value(registry, "rate_limit_wait_seconds_sum"),
        "in flight": value(registry, "jobs_in_flight"),
        "running": value(registry, "handlers_running"),
        "read at": value(registry, "consumer_last_read_timestamp_seconds"),
        "renewed": value(registry, "leases_renewed_total"),
        "lost": value(registry, "leases_lost_total"),
        "reconnects": value(registry, "reconnects_total"),
        "waiting": value(registry, "queue_depth", state="waiting"),
        "dlq": value(registry, "queue_depth", state="dead"),
        "lag s": value(registry, "queue_lag_seconds"),
    } == {
        "promoted": 3,
        "delayed": 7,
        "late ms": 1_500,
        "acquired": 1,
        "lost lock": 1,
        "batch": 5,
        "reclaimed": 2,
        "runs": 3,
        "seconds": 0.75,
        "completed": 1,
        "errors": 1,
        "panics": 1,
        "retries": 1,
        "backoff s": 1.5,
        "dead": 1,
        "limited": 1,
        "limited s": 0.25,
        "in flight": 4,
        "running": 3,
        "read at": 1_700_000_000.5,
        "renewed": 6,
        "lost": 1,
        "reconnects": 2,
        "waiting": 1,
        "dlq": 4,
        "lag s": 2.5,
    }


def test_several_queues_share_a_registry_and_so_do_several_sinks_of_one(sink, registry):
    sink.job_outcome(ran())
    PrometheusSink("emails", registry=registry).job_outcome(ran())
    PrometheusSink("images", registry=registry).job_outcome(ran())
    completed = "chasquimq_jobs_completed_total"
    labels = {"name": "mail"}
    assert registry.get_sample_value(completed, {"queue": "emails", **labels}) == 2
    assert registry.get_sample_value(completed, {"queue": "images", **labels}) == 1


def test_workers_of_one_queue_are_added_up_and_one_that_stopped_does_not_count(sink, registry):
    PrometheusSink("emails", registry=registry).worker_pulse(WorkerPulse("c-1", 4, 3, 5_000))
    sink.worker_pulse(WorkerPulse("c-2", 2, 1, 3_000))
    assert value(registry, "jobs_in_flight") == 6
    assert value(registry, "handlers_running") == 4
    assert value(registry, "consumer_last_read_timestamp_seconds") == 3
    sink.worker_pulse(WorkerPulse("c-2", 0, 0, None))
    assert value(registry, "jobs_in_flight") == 4
    assert value(registry, "consumer_last_read_timestamp_seconds") == 5


def test_a_registry_that_nobody_has_any_more_goes_with_its_metrics():
    registry = CollectorRegistry()
    PrometheusSink("emails", registry=registry).job_outcome(ran())
    seen = weakref.ref(registry)
    del registry
    gc.collect()
    assert seen() is None


def test_names_beyond_the_limit_are_counted_together_and_that_is_said_once(registry, caplog):
    sink = PrometheusSink("emails", registry=registry, max_names=2)
    for name in ("a", "b", "c", "d", "a"):
        sink.job_outcome(ran(name))
        sink.retry_scheduled(RetryScheduled(2, 1, name))
        sink.dlq_routed(DlqRouted(DlqReason.MALFORMED, 1, name))
    assert value(registry, "jobs_completed_total", name="a") == 2
    assert value(registry, "jobs_completed_total", name=OTHER_NAMES) == 2
    assert value(registry, "jobs_completed_total", name="c") is None
    assert value(registry, "retries_scheduled_total", name=OTHER_NAMES) == 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_depths_that_are_not_known_are_not_shown(sink, registry):
    sink.forget_depths()
    tell_everything(sink)
    sink.forget_depths()
    assert value(registry, "queue_depth", state="waiting") is None
    assert value(registry, "queue_lag_seconds") is None


def test_a_scraper_gets_the_form_it_asks_for():
    registry = own_registry()
    PrometheusSink("emails", registry=registry)
    plain, text = exposition(registry, "")
    assert plain.startswith("text/plain; version=0.0.4")
    assert b"process_cpu_seconds_total" in text
    modern, text = exposition(registry, "application/openmetrics-text; version=1.0.0")
    assert modern.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"queue": ""}, TypeError),
        ({"queue": None}, TypeError),
        ({"queue": "emails", "max_names": -1}, ValueError),
        ({"queue": "emails", "max_names": True}, ValueError),
        ({"queue": "emails", "max_names": 1.5}, ValueError),
    ],
)
def test_what_cannot_work_is_refused(arguments, error):
    with pytest.raises(error):
        PrometheusSink(**arguments, registry=CollectorRegistry())


WITHOUT = """
import sys
sys.modules["{library}"] = None
try:
    {use}
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("library", "use", "package"),
    [
        ("prometheus_client", "import chasquimq.prometheus", "prometheus-client"),
        (
            "prometheus_client",
            "import chasquimq; chasquimq.Worker('q', lambda job: None, metrics_port=0)",
            "prometheus-client",
        ),
        ("opentelemetry", "import chasquimq.opentelemetry", "opentelemetry-api"),
    ],
    ids=["the sink", "a worker with a port", "tracing"],
)
def test_a_missing_library_is_named_with_what_to_install(library, use, package):
    """Not as an extra of ours: the package of our name on PyPI is the reference engine."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(library=library, use=use)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith(f"python -m pip install {package}\n")


def test_a_worker_without_a_port_needs_no_library():
    script = WITHOUT.format(
        library="prometheus_client",
        use="import chasquimq; chasquimq.Worker('q', lambda job: None); print('fine')",
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "fine\n"

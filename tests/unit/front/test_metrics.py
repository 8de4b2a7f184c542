"""Sinks: what fails goes no further, and several stand behind one."""

import asyncio
import inspect
import logging

import pytest

from chasquimq.metrics import (
    CompositeSink,
    JobOutcome,
    JobOutcomeKind,
    MetricsSink,
    NoopSink,
    ReaderBatch,
    WorkerPulse,
    report,
    report_if_taken,
)
from chasquimq.prometheus import PrometheusSink

OUTCOME = JobOutcome(JobOutcomeKind.OK, 1, 250, "mail")
METHODS = sorted(
    name
    for name, member in vars(MetricsSink).items()
    if inspect.isfunction(member) and not name.startswith("_")
)


class Broken(NoopSink):
    def job_outcome(self, outcome):
        raise RuntimeError

    def reader_batch(self, batch):
        raise RuntimeError


class Plain:
    """Has the shape of the protocol as it first was, and does not derive from it."""

    def __init__(self):
        self.taken = []

    def job_outcome(self, outcome):
        self.taken.append(outcome)


class Slotted:
    __slots__ = ()

    def job_outcome(self, outcome):
        raise RuntimeError


def levels(caplog):
    return [record.levelno for record in caplog.records]


@pytest.mark.parametrize("kind", [Broken, Slotted])
def test_a_sink_that_fails_for_every_job_costs_the_log_a_few_lines(kind, caplog):
    sink = kind()
    for _ in range(1_000):
        report(sink.job_outcome, OUTCOME)
    assert levels(caplog) == [logging.ERROR] + [logging.WARNING] * 3
    first, *later = caplog.records
    assert "RuntimeError" in first.exc_text
    assert [record.args[0] for record in later] == [10, 100, 1_000]


def test_a_cancellation_that_a_sink_lets_escape_is_a_failure_of_the_sink(caplog):
    class Cancelled(NoopSink):
        def job_outcome(self, outcome):
            raise asyncio.CancelledError

    report(Cancelled().job_outcome, OUTCOME)
    assert levels(caplog) == [logging.ERROR]


def test_each_method_and_each_sink_has_its_own_first_failure(caplog):
    one, other = Broken(), Broken()
    report(one.job_outcome, OUTCOME)
    report(one.reader_batch, ReaderBatch(1, 0))
    report(other.job_outcome, OUTCOME)
    assert levels(caplog) == [logging.ERROR] * 3


def test_a_composite_hands_on_to_every_sink_even_after_one_that_fails(caplog):
    plain = Plain()
    CompositeSink(Broken(), plain).job_outcome(OUTCOME)
    assert plain.taken == [OUTCOME]
    assert levels(caplog) == [logging.ERROR]


def test_a_sink_older_than_a_report_is_not_asked_for_it(caplog):
    plain = Plain()
    CompositeSink(plain).worker_pulse(WorkerPulse("c-1", 0, 0, None))
    report_if_taken(plain, "worker_pulse", WorkerPulse("c-1", 0, 0, None))
    assert plain.taken == []
    assert caplog.records == []


@pytest.mark.parametrize("kind", [CompositeSink, PrometheusSink])
def test_our_own_sinks_take_every_report_there_is(kind):
    assert sorted(name for name in vars(kind) if name in METHODS) == METHODS


@pytest.mark.parametrize("method", METHODS)
def test_a_composite_hands_on_every_kind_of_report_as_itself(method):
    taken = []

    class Sink:
        def __getattr__(self, name):
            return lambda event: taken.append((name, event))

    getattr(CompositeSink(Sink(), Sink()), method)("event")
    assert taken == [(method, "event")] * 2


def test_a_composite_of_nothing_is_refused():
    with pytest.raises(TypeError, match="at least one sink"):
        CompositeSink()

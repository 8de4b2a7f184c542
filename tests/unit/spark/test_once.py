"""What becomes of each job of a table, by the answer of the function; no Spark is needed."""

import pytest

from chasquimq.engine.disposition import Failed
from chasquimq.errors import ConfigError, DlqReason
from chasquimq.spark.once import _outcome, process_batch
from chasquimq.wire.codec import pack


def test_a_result_that_cannot_be_stored_fails_its_own_job_for_good():
    outcome = _outcome({"result": 1 << 80}, keeps_results=True)
    assert isinstance(outcome, Failed)
    assert outcome.dlq_reason is DlqReason.UNRECOVERABLE
    assert _outcome({"result": 1 << 80}, keeps_results=False).value is None
    assert _outcome({"result": 1}, keeps_results=True).value == pack(1)


def test_a_lease_that_is_too_short_is_refused_before_anything_is_asked_of_spark():
    with pytest.raises(ConfigError, match=r"claim_min_idle_ms must be .* or more; got 1: "):
        process_batch("q", print, claim_min_idle_ms=1)

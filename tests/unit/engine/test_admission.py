import pytest

from chasquimq.engine.admission import NO_FIELDS, NO_NAMES, NO_PAYLOAD, Run, Unfit, admit, budget
from chasquimq.errors import DlqReason
from chasquimq.wire.codec import pack, unpack
from chasquimq.wire.envelope import encode
from chasquimq.wire.retry import BackoffSpec
from tests.support.builders import a_delivery, a_raw_delivery, an_envelope, an_override


def admitted(delivery, *, max_payload_bytes=1_000, max_attempts=3, retry_by_name=NO_NAMES):
    return admit(
        delivery,
        max_payload_bytes=max_payload_bytes,
        max_attempts=max_attempts,
        retry_by_name=retry_by_name,
    )


def test_a_fresh_job_is_run_number_one():
    envelope = an_envelope({"k": 1})
    run = admitted(a_delivery(envelope, name="mail"))
    assert isinstance(run, Run)
    assert (run.attempt, run.name, run.envelope) == (1, "mail", envelope)
    assert repr(run) == f"<Run {envelope.id} 'mail' attempt 1>"


@pytest.mark.parametrize(
    ("finished", "deliveries", "number"), [(0, 0, 1), (1, 0, 2), (0, 1, 2), (1, 1, 3), (0, 2, 3)]
)
def test_a_run_is_counted_after_finished_runs_and_earlier_deliveries(finished, deliveries, number):
    run = admitted(a_delivery(an_envelope(attempt=finished), deliveries=deliveries))
    assert isinstance(run, Run)
    assert run.attempt == number


@pytest.mark.parametrize(("finished", "deliveries"), [(3, 0), (0, 3), (1, 2), (2, 1), (9, 9)])
def test_a_job_that_has_had_its_budget_of_runs_is_not_run_again(finished, deliveries):
    envelope = an_envelope(attempt=finished)
    unfit = admitted(a_delivery(envelope, name="mail", deliveries=deliveries))
    assert isinstance(unfit, Unfit)
    assert unfit.reason is DlqReason.RETRIES_EXHAUSTED
    assert (unfit.job_id, unfit.name) == (envelope.id, "mail")
    assert unfit.attempts == finished + deliveries


def test_the_budget_is_exact_for_a_job_that_kills_its_worker_every_time():
    runs = [admitted(a_delivery(deliveries=n), max_attempts=4) for n in range(6)]
    assert [isinstance(each, Run) for each in runs] == [True, True, True, True, False, False]


def test_an_exhausted_job_says_whether_its_last_worker_died():
    died = admitted(a_delivery(deliveries=3))
    assert died.error == "the worker died or went silent during the last run"
    ran = admitted(a_delivery(an_envelope(attempt=3)))
    assert ran.error == "3 runs were made, 3 allowed"


def test_with_a_budget_of_nothing_no_job_is_run():
    unfit = admitted(a_delivery(), max_attempts=0)
    assert isinstance(unfit, Unfit)
    assert (unfit.reason, unfit.attempts) == (DlqReason.RETRIES_EXHAUSTED, 0)
    assert unfit.error == "0 runs were made, 0 allowed"


@pytest.mark.parametrize(
    ("override", "expected"),
    [(None, 3), (an_override(), 3), (an_override(1), 1), (an_override(9), 9), (an_override(0), 0)],
)
def test_a_jobs_own_budget_goes_before_the_workers(override, expected):
    assert budget(override, 3) == expected


def test_a_jobs_own_budget_decides_whether_it_is_run():
    patient, hasty = an_override(5), an_override(1)
    assert isinstance(admitted(a_delivery(an_envelope(attempt=4, retry=patient))), Run)
    assert isinstance(admitted(a_delivery(an_envelope(attempt=5, retry=patient))), Unfit)
    assert isinstance(admitted(a_delivery(an_envelope(attempt=1, retry=hasty))), Unfit)


def test_what_a_job_leaves_open_its_name_says():
    name, own = BackoffSpec.fixed(7), BackoffSpec.fixed(9)
    by_name = {"mail": an_override(2, name)}

    def retry_of(override, job_name="mail"):
        delivery = a_delivery(an_envelope(retry=override), name=job_name)
        return admitted(delivery, retry_by_name=by_name).retry

    assert retry_of(None) == an_override(2, name)
    assert retry_of(an_override(5)) == an_override(5, name)
    assert retry_of(an_override(None, own)) == an_override(2, own)
    assert retry_of(an_override(5, own)) == an_override(5, own)
    assert retry_of(None, "other") is None
    assert retry_of(an_override(5), "other") == an_override(5)


def test_the_budget_of_a_name_decides_whether_its_job_is_run():
    by_name = {"mail": an_override(1)}
    tried = a_delivery(an_envelope(attempt=1), name="mail")
    assert isinstance(admitted(tried), Run)
    assert isinstance(admitted(tried, retry_by_name=by_name), Unfit)


def test_an_entry_as_large_as_allowed_is_run_and_one_byte_more_is_not():
    data = encode(an_envelope("x" * 100))
    assert isinstance(admitted(a_delivery(data), max_payload_bytes=len(data)), Run)
    unfit = admitted(a_delivery(data, name="big"), max_payload_bytes=len(data) - 1)
    assert isinstance(unfit, Unfit)
    assert (unfit.reason, unfit.name, unfit.job_id) == (DlqReason.OVERSIZE_PAYLOAD, "big", "")
    assert unfit.error == f"entry has {len(data)} bytes, max_payload_bytes is {len(data) - 1}"


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        (None, NO_FIELDS),
        ([], NO_PAYLOAD),
        ([b"x", b"y"], NO_PAYLOAD),
        ([b"n", b"name"], NO_PAYLOAD),
    ],
)
def test_an_entry_without_an_envelope_is_malformed_and_says_how(fields, detail):
    unfit = admitted(a_raw_delivery(fields))
    assert isinstance(unfit, Unfit)
    assert (unfit.reason, unfit.detail) == (DlqReason.MALFORMED, detail)
    assert (unfit.job_id, unfit.name, unfit.attempts) == ("", "", 0)


@pytest.mark.parametrize(
    "data", [b"", b"garbage", b"\x93\x01", pack("text"), pack([1, 2]), pack([1, b"", 3, 4])]
)
def test_bytes_that_are_no_envelope_are_set_aside_as_they_are(data):
    delivery = a_delivery(data, name="lost")
    unfit = admitted(delivery)
    assert isinstance(unfit, Unfit)
    assert (unfit.reason, unfit.job_id, unfit.name) == (DlqReason.DECODE_FAILED, "", "")
    assert unfit.error
    assert unfit.delivery.data == data


@pytest.mark.parametrize("value", [{"k": [1]}, "text", 7, None, [1, "two"]])
def test_a_payload_that_is_a_value_of_its_own_is_run_like_any_other(value):
    run = admitted(a_delivery(pack(["typed", value, 1_700_000_000_000, 0])))
    assert isinstance(run, Run)
    assert unpack(run.envelope.packed_data) == value

"""`forget.lua`: what is kept of completed jobs goes; of failed ones it stays."""

import pytest

from chasquimq.broker import upkeep
from chasquimq.wire.keys import of_finished_job


@pytest.fixture
def forget(run, keys):
    def forget_jobs(*job_ids, done_before_ms=None, dry_run=False):
        return run(upkeep.forget(keys, job_ids, done_before_ms=done_before_ms, dry_run=dry_run))

    return forget_jobs


@pytest.fixture
def kept(raw, keys):
    def keep(job_id, outcome=None, result=None):
        for key in of_finished_job(keys, job_id)[2:]:
            raw.client.set(key, "x", ex=60)
        for key, value in ((keys.outcome(job_id), outcome), (keys.result(job_id), result)):
            if value is not None:
                raw.client.set(key, value, ex=60)

    return keep


def test_completed_jobs_are_forgotten_and_failed_ones_are_not(raw, kept, forget):
    kept("value", b"v5", b"\x01")
    kept("nothing", b"n5")
    kept("expired", b"v5")
    kept("reference", None, b"\x01")
    kept("failed", b"f\x92")
    kept("unknown")

    answers = forget("value", "nothing", "expired", "reference", "failed", "unknown")
    assert answers == [True, True, True, True, False, False]
    left = {name.partition(":")[2] for name in raw.everything() if name != "held"}
    assert left == {"failed", "unknown"}
    assert "outcome:failed" in raw.everything()


def test_by_age_only_those_of_a_known_age_are_forgotten(kept, forget):
    kept("old", b"v999")
    kept("just", b"n1000")
    kept("young", b"v1001")
    kept("before times were noted", b"v", b"\x01")
    kept("reference", None, b"\x01")
    asked = ("old", "just", "young", "before times were noted", "reference")
    assert forget(*asked, done_before_ms=1_000) == [True, True, False, False, False]


def test_a_dry_run_says_the_same_and_changes_nothing(raw, kept, forget):
    kept("done", b"v5", b"\x01")
    kept("failed", b"f\x92")
    before = raw.everything()
    assert forget("done", "failed", dry_run=True) == [True, False]
    assert raw.everything() == before
    assert forget("done", "failed") == [True, False]

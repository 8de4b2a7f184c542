"""A small batch is made with sparing settings, in its own session and for as long as it takes."""

import pytest

from chasquimq.pipeline import Slo, settings
from chasquimq.pipeline.steps import Done, Steps
from tests.support.batches import Batches
from tests.support.spark import SPARK_MARKS
from tests.support.spark import SPARKS_OWN as OWN
from tests.support.told import a_run, frame

pytestmark = SPARK_MARKS

SPARING = dict(zip(OWN, ["false", "NO_CODEGEN", "false", "2"], strict=True))


@pytest.fixture
def session(spark):
    """One as a batch has it, of a user who has changed nothing."""
    made = spark.newSession()
    for name, value in OWN.items():
        made.conf.set(name, value)
    return made


def of(session):
    return {name: session.conf.get(name) for name in OWN}


def test_a_small_batch_is_spared_and_a_large_one_is_not(session):
    with settings.suited(session, settings.FEW):
        assert of(session) == SPARING
    assert of(session) == OWN
    with settings.suited(session, settings.FEW + 1):
        assert of(session) == OWN


def test_what_a_user_has_set_stays_and_all_is_as_before_when_a_batch_fails(session):
    session.conf.set("spark.sql.shuffle.partitions", "7")

    def fail():
        with settings.suited(session, 1):
            assert of(session) == SPARING | {"spark.sql.shuffle.partitions": "7"}
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011 -- it says nothing
        fail()
    assert of(session) == OWN | {"spark.sql.shuffle.partitions": "7"}


def test_it_is_decided_for_every_batch(session, tmp_path, monkeypatch):
    Batches(session, tmp_path / "lake")  # so that the lake has a query
    steps, found = Steps(str(tmp_path / "lake"), "parquet", Slo()), []

    def rebuild(_, lake, *__):
        found.append(of(lake.spark))
        return Done()

    monkeypatch.setattr(Steps, "rebuild", rebuild)
    for number, few in enumerate((2, 1, 2)):
        monkeypatch.setattr(settings, "FEW", few)
        steps.take(frame(session, a_run(number, "a")), number)
    assert found == [SPARING, OWN, SPARING]
    assert of(session) == OWN

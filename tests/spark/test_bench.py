"""The benchmark's programs run and check what they did; how fast they are is no matter here."""

import pytest

from bench.raw import RawClient
from bench.rounds import play
from bench.spark import reading, working, writing
from bench.spark.ground import Ground
from bench.spark.result import results, shown
from bench.usage import Watch
from tests.support.spark import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.fixture
def ground(spark, server, tmp_path, queue_name):
    with RawClient(str(server.socket_path)) as client:
        yield Ground(spark, server.socket_url, client, tmp_path, rows=300, queue=queue_name)


@pytest.mark.parametrize("program", [reading, writing, working])
def test_every_rival_reads_writes_or_works_off_all_there_is(ground, program):
    match = program.match(ground)
    samples = play(match.rivals, rows=ground.rows, rounds=1, watch=Watch)
    found = results("smoke", match, samples)
    assert [each.rival for each in found] == [each.name for each in match.rivals]
    assert {each.rival for each in match.targets} < set(samples)
    assert len(shown(found).splitlines()) == 2 + len(match.rivals)
    ground.forget()

"""Random operations on a real queue and on the model of its promises; both agree after each.

Runs on a server with the modern commands and on one without. By default the same examples are
played every time; `make fuzz` plays new ones for longer (see CONTRIBUTING.md).
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import QueueMachine
from tests.model.stage import Stage
from tests.support.effort import effort


@pytest.fixture
def stage(server, queue_name):
    stage = Stage(server, queue_name)
    yield stage
    stage.close()


@pytest.mark.servers(*effort(("valkey", "redis-8.6"), ("valkey", "redis-6.2", "redis-8.6")))
@pytest.mark.timeout(effort(180, 3_600))
def test_a_queue_does_what_its_model_says(stage):
    run_state_machine_as_test(
        lambda: QueueMachine(stage),
        settings=settings(
            max_examples=effort(80, 4_000),
            stateful_step_count=effort(100, 160),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=effort((Phase.generate,), (Phase.generate, Phase.shrink)),
        ),
    )

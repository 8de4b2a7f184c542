"""What a fleet refuses, which failures of its query it survives, and which it raises."""

import pytest
from pyspark.errors import StreamingQueryException

from chasquimq.errors import ConfigError, ConnectionFailedError
from chasquimq.spark.fleet import SparkWorker, is_a_mistake

RAISED = "Traceback (most recent call last):\n  File ..., in read\n"


@pytest.mark.parametrize(
    ("text", "would_come_again"),
    [
        (RAISED + "ModuleNotFoundError: No module named 'tasks'", True),
        (RAISED + "chasquimq.errors.ConfigError: batch='pandas' needs pandas", True),
        (RAISED + f"chasquimq.errors.{ConnectionFailedError.__name__}: refused", False),
        (RAISED + "PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket", False),
        ("Job aborted due to stage failure: ExecutorLostFailure (executor 0 exited)", False),
        ("Python worker exited unexpectedly (crashed): java.io.EOFException", False),
    ],
)
def test_what_would_come_again_is_raised_and_what_passes_is_not(text, would_come_again):
    assert is_a_mistake(StreamingQueryException(text)) is would_come_again


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"slots": 1.5}, TypeError, "slots must be a whole number, got 1.5"),
        ({"batch_size": 1.5}, TypeError, "batch_size must be a whole number, got 1.5"),
        ({"linger_ms": True}, TypeError, "linger_ms must be a whole number, got True"),
        ({"slots": 0}, ConfigError, "slots is 0: use a whole number above 0"),
        ({"max_secs_per_slot": -0.5}, ConfigError, "is -0.5: use a number above 0"),
        ({"max_secs_per_slot": "1"}, TypeError, "must be a number, got '1'"),
        ({"claim_min_idle_ms": 1}, ConfigError, "claim_min_idle_ms must be .* or more; got 1: "),
    ],
)
def test_a_number_that_will_not_do_is_named_with_the_rule(given, error, words):
    with pytest.raises(error, match=words):
        SparkWorker("q", print, **given)


async def coroutine(table):
    return None


def generator(table):
    yield None


async def generator_of_coroutines(table):
    yield None


@pytest.mark.parametrize("function", [coroutine, generator, generator_of_coroutines])
def test_a_function_of_batches_that_cannot_answer_is_refused_before_it_is_shown_a_job(function):
    with pytest.raises(ConfigError, match="is async or a generator"):
        SparkWorker("q", function, batch="arrow")

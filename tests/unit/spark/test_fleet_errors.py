"""Which failures of its query a fleet survives, and which it raises."""

import pytest
from pyspark.errors import StreamingQueryException

from chasquimq.errors import ConnectionFailedError
from chasquimq.spark.fleet import is_a_mistake

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

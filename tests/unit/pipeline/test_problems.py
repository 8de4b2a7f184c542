"""What made Spark fail is told on one line, as whoever raised it said it."""

import pytest
from pyspark.errors import PySparkException

from chasquimq.errors import BackfillError, ChasquiError, ConnectionFailedError, QueueFullError
from chasquimq.pipeline.problems import in_a_line, noted, ours, told_plainly

ROW = "column 'x' of a row is 0, row 3 of f; row 3 of partition 0"
OF_A_ROW = f"PythonException:\n  Traceback\nchasquimq.errors.RowError: row: {ROW} [CMQ-303]\n"
OF_JAVA = """An error occurred.
: org.apache.SparkException: Job aborted
\tat a.b(C.scala:1)
Caused by: org.apache.spark.SparkIllegalArgumentException: CSV header is wrong.
 Header: a
\tat d.e(F.scala:2)
"""


def raised(text):
    with pytest.raises(ChasquiError) as told, told_plainly("it broke off"):
        raise PySparkException(text)
    return told.value


def test_an_error_of_ours_comes_out_as_it_went_in():
    text = "Traceback...\nchasquimq.errors.QueueFullError: queue full: no room for 3 [CMQ-006]\n"
    error = raised(text)
    assert type(error) is QueueFullError
    assert str(error) == "queue full: no room for 3 [CMQ-006]"
    text = "chasquimq.ConnectionFailedError: redis: nobody there [CMQ-001]"
    assert type(ours(PySparkException(text))) is ConnectionFailedError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OF_A_ROW, f"it broke off: {ROW}"),
        (OF_JAVA, "it broke off: CSV header is wrong. Header: a"),
        (
            "[SOME_CONDITION] what went wrong\nmore",
            "it broke off: [SOME_CONDITION] what went wrong",
        ),
        ("", "it broke off: no reason was given"),
    ],
)
def test_anything_else_is_a_backfill_error_with_the_innermost_cause(text, words):
    error = raised(text)
    assert type(error) is BackfillError
    assert error.message == words


QUERY = "[STREAM_FAILED] Query [id = 1-a, runId = 2-b] terminated with exception: "
IN_A_BATCH = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Return Message: Traceback:
  File "lake.py", line 161, in _write
py4j.protocol.Py4JJavaError: An error occurred while calling o1132.save.
: java.io.IOException: No space left on device
\tat java.base/java.lang.ProcessBuilder.start(Unknown Source)
Caused by: java.io.IOException: error 28
"""
WAITED = """Traceback:
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat a.b(C.scala:1)
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error
\tat d.e(F.scala:2)
Caused by: java.io.FileNotFoundException: File f does not exist
\tat g.h(I.scala:3)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (QUERY + "No worker came. SQLSTATE: XXKST\n=== Streaming Query ===", "No worker came."),
        (QUERY + IN_A_BATCH, "No space left on device"),
        (
            "An error occurred.\n: a.b.CException: [AN_X] No such master SQLSTATE: 1",
            "No such master",
        ),
        (QUERY + WAITED, "File f does not exist"),
        ('Exception in thread "main" a.b.CException: Master must be x\n\tat d', "Master must be x"),
    ],
)
def test_what_spark_fell_over_is_told_without_what_it_says_around_it(text, line):
    assert in_a_line(PySparkException(text)) == line


def test_of_a_file_that_is_gone_it_is_told_once_who_may_have_taken_it():
    error = PySparkException(QUERY + WAITED)
    line = in_a_line(noted(noted(error)))
    assert line.startswith("File f does not exist. Another run, stream or compaction may be wri")
    assert line.count("Another run") == 1
    assert in_a_line(noted(PySparkException(QUERY + IN_A_BATCH))) == "No space left on device"

"""Ends the demo with the pipeline over its own events, where Spark and Java are there."""

import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[2] / "build" / "demo-report.html"
_TIME_LIMIT_S = 180
# For some thousand rows: what is made for millions would take longer to get ready than to run.
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


def write_report(url: str, queue: str, page: Path = PAGE) -> str:
    """A line that says where the report is, or why there is none. Never raises.

    In a process of its own: Java writes to the terminal whatever it likes.
    """
    try:
        import pyspark  # noqa: F401, PLC0415 -- an extra
    except ImportError:
        return "No report: Spark is not installed (pip install 'chasquimq[spark,spark-java]')."
    try:
        made = subprocess.run(  # noqa: S603 -- this very file
            [sys.executable, __file__, url, queue, str(page)],
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT_S,
            check=False,
            cwd=tempfile.gettempdir(),
        )
    except subprocess.TimeoutExpired:
        return f"No report: Spark was not done after {_TIME_LIMIT_S} s."
    if made.returncode != 0:
        return f"No report: {(made.stderr.strip().splitlines() or ['Spark failed'])[-1]}"
    return f"The pipeline took in {made.stdout.strip()} events of this; its report is in {page}"


def _main(url: str, queue: str, page: str) -> None:
    from chasquimq.pipeline import Pipeline  # noqa: PLC0415 -- after the check above
    from chasquimq.spark import session  # noqa: PLC0415 -- the same

    with tempfile.TemporaryDirectory() as lake:
        pipeline = Pipeline(lake, spark=session("demo", _SETTINGS))
        done = pipeline.run([queue], redis_url=url)
        told = pipeline.report(title="What happened in the demo")
    file = Path(page)
    file.parent.mkdir(exist_ok=True)
    file.write_text(told, encoding="utf-8")
    print(done.events)


if __name__ == "__main__":
    _main(*sys.argv[1:])

"""Events as they are kept: every one, with where it belongs; and what is missing. Pure."""

from pyspark.sql import DataFrame, SparkSession

from chasquimq.pipeline import instants, sql
from chasquimq.pipeline.tables import BATCHES, BRONZE, GAPS, SCHEMA_VERSION
from chasquimq.spark.event_rows import DATA_LOSS


def events(source: DataFrame, batch: str) -> DataFrame:
    """Rows of `chasquimq_events` as rows of bronze."""
    return BRONZE.select(
        source.selectExpr(
            "*",
            f"{instants.bucket('job_id')} AS bucket",
            f"{SCHEMA_VERSION} AS schema_version",
            f"{instants.day('entry_at')} AS day",
            f"{sql.text(batch)} AS batch",
        )
    )


def whole_batch(spark: SparkSession, key: str, events: int, lost: int) -> DataFrame:
    """The row that says of a batch that it is whole; made without a task of Python."""
    return BATCHES.select(
        spark.range(1).selectExpr(
            f"{sql.text(key)} AS batch",
            f"{events} AS events",
            f"{lost} AS lost",
            f"{SCHEMA_VERSION} AS schema_version",
        )
    )


def gaps(bronze: DataFrame) -> DataFrame:
    """What is missing, and up to when: the next event that came in the same batch."""
    # From the last to the first: what follows a row is then what came before it, of which Spark
    # keeps the least as it goes. The other way round it looks at all that follow, for each row.
    # What is missing stands under the id of the last event before it, which does not follow it.
    is_gap = f"event = '{DATA_LOSS}'"
    later = f"""
        PARTITION BY queue, batch ORDER BY entry_at DESC, entry_seq DESC, {is_gap} DESC
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    """
    next_at = f"min({sql.when(f'NOT {is_gap}', 'entry_at')}) OVER ({later})"
    found = bronze.selectExpr(
        "*", f"{next_at} AS to_at", "entry_id AS after_id", "entry_at AS from_at"
    )
    return GAPS.select(found.where(is_gap))

"""Events as they are kept: every one, with where it belongs; and what is missing. Pure."""

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import instants
from chasquimq.pipeline.tables import BATCHES, BRONZE, GAPS, SCHEMA_VERSION
from chasquimq.spark.event_rows import DATA_LOSS


def events(source: DataFrame, batch: str) -> DataFrame:
    """Rows of `chasquimq_events` as rows of bronze."""
    return BRONZE.select(
        source.withColumns(
            {
                "bucket": instants.bucket(F.col("job_id")),
                "schema_version": F.lit(SCHEMA_VERSION),
                "day": instants.day(F.col("entry_at")),
                "batch": F.lit(batch),
            }
        )
    )


def whole_batch(spark: SparkSession, key: str, events: int, lost: int) -> DataFrame:
    """The row that says of a batch that it is whole; made without a task of Python."""
    noted = {"batch": key, "events": events, "lost": lost, "schema_version": SCHEMA_VERSION}
    return BATCHES.select(
        spark.range(1).select(*(F.lit(value).alias(name) for name, value in noted.items()))
    )


def gaps(bronze: DataFrame) -> DataFrame:
    """What is missing, and up to when: the next event that came in the same batch."""
    # From the last to the first: what follows a row is then what came before it, of which Spark
    # keeps the least as it goes. The other way round it looks at all that follow, for each row.
    # What is missing stands under the id of the last event before it, which does not follow it.
    later = (
        Window.partitionBy("queue", "batch")
        .orderBy(F.desc("entry_at"), F.desc("entry_seq"), F.desc(F.col("event") == DATA_LOSS))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    is_event = F.col("event") != DATA_LOSS
    next_at = F.min(F.when(is_event, F.col("entry_at"))).over(later)
    found = bronze.withColumn("to_at", next_at).where(F.col("event") == DATA_LOSS)
    return GAPS.select(
        found.withColumns({"after_id": F.col("entry_id"), "from_at": F.col("entry_at")})
    )

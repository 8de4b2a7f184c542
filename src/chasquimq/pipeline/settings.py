"""Settings of Spark for a batch: a small one is interpreted, a large one compiled."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

FEW = 10_000
"""Events up to which a batch is small: of so many, compiled code was not seen to pay. From how many
on it does was not found; `docs/pipeline.md` has the figures."""

# Spark's own value, and that for a small batch, of which most of the time went into compiling each
# plan, and into planning anew after each stage.
_SPARING = {
    "spark.sql.codegen.wholeStage": ("true", "false"),
    "spark.sql.codegen.factoryMode": ("FALLBACK", "NO_CODEGEN"),
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.shuffle.partitions": ("200", "2"),
}


@contextmanager
def suited(spark: SparkSession, events: int) -> Iterator[None]:
    """While a batch of so many events is made, the settings that suit it; then those from before.

    A setting that somebody has changed from Spark's own value stays as it is.
    """
    before = {name: spark.conf.get(name) for name in _SPARING} if events <= FEW else {}
    changed = [name for name, value in before.items() if value == _SPARING[name][0]]
    try:
        for name in changed:
            spark.conf.set(name, _SPARING[name][1])
        yield
    finally:
        for name in changed:
            spark.conf.set(name, _SPARING[name][0])

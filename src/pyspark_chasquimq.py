"""Lets Spark find the format `chasquimq` by itself: it looks for modules that begin `pyspark_`."""

from chasquimq.spark.queue_sink import QueueSink as DefaultSource

__all__ = ["DefaultSource"]

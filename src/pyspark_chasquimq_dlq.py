"""Lets Spark find the format `chasquimq_dlq` by itself."""

from chasquimq.spark.dlq_source import DlqSource as DefaultSource

__all__ = ["DefaultSource"]

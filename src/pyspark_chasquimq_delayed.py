"""Lets Spark find the format `chasquimq_delayed` by itself."""

from chasquimq.spark.delayed_source import DelayedSource as DefaultSource

__all__ = ["DefaultSource"]

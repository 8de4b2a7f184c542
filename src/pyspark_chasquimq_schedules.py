"""Lets Spark find the format `chasquimq_schedules` by itself."""

from chasquimq.spark.schedules_source import SchedulesSource as DefaultSource

__all__ = ["DefaultSource"]

"""Lets Spark find the format `chasquimq_jobs` by itself."""

from chasquimq.spark.jobs_source import JobsSource as DefaultSource

__all__ = ["DefaultSource"]

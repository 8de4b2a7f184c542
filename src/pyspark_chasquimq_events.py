"""Lets Spark find the format `chasquimq_events` by itself."""

from chasquimq.spark.events_source import EventsSource as DefaultSource

__all__ = ["DefaultSource"]

"""Lets Spark find the format `chasquimq_results` by itself."""

from chasquimq.spark.results_source import ResultsSource as DefaultSource

__all__ = ["DefaultSource"]

"""Queues as tables of Spark: events and jobs to read, a sink that turns rows into jobs.

Needs the extra `spark`. Formats are found by name wherever the package is installed; `session`
starts Spark on a laptop, `register` is for settings of a session.
"""

from chasquimq.errors import DataLossError
from chasquimq.spark.registry import FORMATS, register
from chasquimq.spark.session import session

__all__ = ["FORMATS", "DataLossError", "register", "session"]

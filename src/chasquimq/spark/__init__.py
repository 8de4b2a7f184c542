"""Queues as tables of Spark: events and jobs to read, a sink that turns rows into jobs.

And Spark as a fleet of workers. Needs the extra `spark`. Formats are found by name wherever the
package is installed; `session` starts Spark on a laptop, `register` is for settings of a session.
"""

import importlib
from typing import TYPE_CHECKING, Any

from chasquimq.errors import DataLossError
from chasquimq.spark.registry import FORMATS, register
from chasquimq.spark.session import session

if TYPE_CHECKING:
    from chasquimq.spark.fleet import SparkWorker
    from chasquimq.spark.once import process_batch
else:
    # The engine comes with them: tasks that only read or write tables do without it.
    _LATER = {"SparkWorker": "fleet", "process_batch": "once"}

    def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
        if name not in _LATER:
            msg = f"module 'chasquimq.spark' has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(importlib.import_module(f"chasquimq.spark.{_LATER[name]}"), name)


__all__ = ["FORMATS", "DataLossError", "SparkWorker", "process_batch", "register", "session"]

"""Spark's server of Python processes, with what they need loaded before it forks them.

Spark's own forks first: each process then loads Spark's Python, Arrow and our formats by itself,
which is more than half a second of processor time for each query that reads or writes a queue.
"""

import importlib
import sys

import pyarrow.compute  # noqa: F401 -- this and the formats are for the processes to come
from pyspark import daemon

import chasquimq.spark.registry  # noqa: F401


def main() -> None:
    """Load what the processes are to run, and serve."""
    for module in sys.argv[1:2]:
        importlib.import_module(module)
    daemon.manager()


if __name__ == "__main__":
    main()

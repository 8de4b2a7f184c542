"""Loads what the processes of Spark's planner need before its servers of Python fork them.

Python imports this by itself where its folder is on the path. A server forks a process for each
query that is planned, and each would load PySpark, Arrow and our formats anew: half a second of
processor time, of which the tests take some hundred. For tasks there is `chasquimq.spark.daemon`,
but which server forks a planner's processes is no setting of Spark's.
"""

import importlib
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    for name in ("pyarrow.compute", "chasquimq.spark.registry", *sys.orig_argv[3:4]):
        importlib.import_module(name)

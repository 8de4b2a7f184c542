"""Tables of what happened in queues, made on Spark from their events, and what to do about it.

Needs the extra `spark`. `Pipeline` makes and reads the tables; `Backfill` makes jobs of the rows of
any table; `Triage` groups dead letters.
"""

from chasquimq.errors import BackfillError, QualityError
from chasquimq.pipeline.backfill import Backfill, Filled, Preview
from chasquimq.pipeline.compaction import Compacted
from chasquimq.pipeline.pipeline import Pipeline, Streaming
from chasquimq.pipeline.shaping import Columns
from chasquimq.pipeline.slo import Slo
from chasquimq.pipeline.steps import Done
from chasquimq.pipeline.tables import SCHEMA_VERSION, TABLES
from chasquimq.pipeline.triage import Triage
from chasquimq.pipeline.watch import Progress

__all__ = [
    "SCHEMA_VERSION",
    "TABLES",
    "Backfill",
    "BackfillError",
    "Columns",
    "Compacted",
    "Done",
    "Filled",
    "Pipeline",
    "Preview",
    "Progress",
    "QualityError",
    "Slo",
    "Streaming",
    "Triage",
]

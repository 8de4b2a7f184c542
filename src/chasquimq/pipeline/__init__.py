"""Tables of what happened in queues, made on Spark from their events, and what to do about it.

Needs the extra `spark`. `Pipeline` makes and reads the tables; `Triage` groups dead letters.
"""

from chasquimq.errors import QualityError
from chasquimq.pipeline.compaction import Compacted
from chasquimq.pipeline.pipeline import Pipeline, Streaming
from chasquimq.pipeline.slo import Slo
from chasquimq.pipeline.steps import Done
from chasquimq.pipeline.tables import SCHEMA_VERSION, TABLES
from chasquimq.pipeline.triage import Triage

__all__ = [
    "SCHEMA_VERSION",
    "TABLES",
    "Compacted",
    "Done",
    "Pipeline",
    "QualityError",
    "Slo",
    "Streaming",
    "Triage",
]

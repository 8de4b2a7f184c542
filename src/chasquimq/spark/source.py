"""What all sources share: options read once, a schema checked, pages read in tasks."""

import os
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from chasquimq.broker import pages
from chasquimq.broker.pages import Entry
from chasquimq.broker.url import URL_VARIABLE
from chasquimq.spark.links import Links
from chasquimq.spark.offsets import Loss
from chasquimq.spark.options import Options, read_options
from chasquimq.spark.schemas import Column, checked, struct
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys

O = TypeVar("O", bound=Options)  # noqa: E741 -- options of one format
P = TypeVar("P")

URL_SETTING = "spark.chasquimq.url"
"""Spark's setting for the server where `redis_url` is not given; read by `register`."""


def server_of(
    spark: SparkSession | None, redis_url: str | None, own: str | None = None
) -> str | None:
    """The server as a query must name it: given, the session's, the app's `own`, or this process's.

    None if nobody says. The environment is asked here, since Java's processes have that of when
    Java was started.
    """
    of_session = None if spark is None else spark.conf.get(URL_SETTING, None)
    return redis_url or of_session or own or os.environ.get(URL_VARIABLE)


class ChasquiSource(DataSource, Generic[O]):
    """A format of ours. Options are checked here, when the query is planned, on the driver."""

    format_name: ClassVar[str]
    options_type: ClassVar[type[Options]]
    columns: ClassVar[tuple[Column, ...]]
    url: ClassVar[str | None] = None
    """The server, where the session has one for all queries."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Read the options; `ConfigError` for the first that will not do."""
        super().__init__(options)
        self.typed: O = read_options(self.options_type, options, url=self.url)  # type: ignore[assignment]

    @classmethod
    def name(cls) -> str:
        """What `format(...)` takes."""
        return cls.format_name

    def all_columns(self) -> tuple[Column, ...]:
        """The columns that these options give."""
        return self.columns

    def schema(self) -> StructType:
        """The columns, where the user does not name some of them."""
        return struct(self.all_columns())

    def checked_schema(self, schema: StructType) -> StructType:
        """The columns to make; `ConfigError` if one of them is none of ours."""
        return checked(schema, self.all_columns())


@dataclass
class Part(InputPartition, Generic[P]):
    """What one task reads."""

    value: P


def guarded_pages(
    links: Links, keys: QueueKeys, stream: bytes, first: str, last: str, count: int
) -> Iterator[tuple[list[Entry], Loss | None]]:
    """Pages of a range whose first entry was seen, each with what was lost before it.

    Each read asks for one entry more than it gives, and the next must begin with that one. So an
    entry that was trimmed between two reads is missed for certain, and no other.
    """
    expected: bytes | None = first.encode()
    while expected is not None:
        page = links.run(keys, pages.entries(stream, expected.decode(), last, count + 1))
        is_whole = bool(page) and page[0][0] == expected
        loss = None if is_whole else Loss(StreamId.parse(expected).previous(), "trimmed while read")
        expected = page[count][0] if len(page) > count else None
        yield page[:count], loss

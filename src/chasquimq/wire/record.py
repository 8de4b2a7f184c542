"""`Record`: a value whose fields can also be read like the keys of a dict.

The native classes of the reference package answer in dicts, ours in values. Who wrote
`entry["reason"]` or `dict(entry)` for the one need not change it for the other.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any


class Record:
    """For dataclasses: `record["field"]`, `record.get("field")`, `dict(record)`."""

    __slots__ = ()

    def keys(self) -> Iterator[str]:
        """The names of the fields."""
        return (each.name for each in fields(self))  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 -- whatever the field holds
        """The field of that name; `KeyError` if there is none."""
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 -- as a dict's
        """The field of that name, or `default` if there is none."""
        return getattr(self, name) if name in self.keys() else default

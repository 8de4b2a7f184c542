"""A table in memory to one file, by its ending; the file is there whole or not at all."""

import base64
import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from chasquimq.errors import ConfigError


def writer_for(path: str) -> Callable[[pa.Table], None]:
    """What writes a table there; `ConfigError` if it is there, or ending or folder will not do."""
    target = Path(path)
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        msg = f"the file to export to is {path!r}: let it end in {', '.join(_WRITERS)}"
        raise ConfigError(msg)
    if target.exists():
        # It may be all that is left of letters that were discarded, by a run that was killed.
        msg = f"the file to export to, {path!r}, is already there: name another, or remove it"
        raise ConfigError(msg)
    if not target.resolve().parent.is_dir():
        msg = f"the file to export to is {path!r}, and there is no such folder: make it first"
        raise ConfigError(msg)

    def whole(table: pa.Table) -> None:
        # Beside it, so that it can take its place in one step; a kill leaves this one behind.
        part = target.with_name(f".{target.name}.part")
        write(table, part)
        _flush(part)
        os.replace(part, target)  # noqa: PTH105 -- says what it does
        # What it holds may be deleted next: then it has to outlive a machine that goes down.
        _flush(target.resolve().parent)

    return whole


def _flush(path: Path) -> None:
    """Return once the disk has what was written there."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _json(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in table.to_batches():
            for row in batch.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _csv(table: pa.Table, path: Path) -> None:
    # A text file: bytes go as base 64, as they do in JSON.
    for at, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):
            told = [None if each is None else _plain(each) for each in table[at].to_pylist()]
            table = table.set_column(at, field.name, pa.array(told, pa.string()))
    pyarrow.csv.write_csv(table, path)


def _parquet(table: pa.Table, path: Path) -> None:
    pyarrow.parquet.write_table(table, path)


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json,
}

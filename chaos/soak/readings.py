"""Reads what a process and the server hold at a moment."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from chaos.fleet import Actor
from chaos.soak.verdict import Series
from chasquimq.wire.keys import QueueKeys
from tests.support.guards import NO_TIME_TO_LIVE

_MB = 1 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_AT_ONCE = 1_000
SERVER = "server"


def of_process(pid: int) -> dict[str, float]:
    """What `/proc` says of a process: on Linux only. `OSError` if it is gone."""
    folder = Path("/proc") / str(pid)
    links = list(_links(folder / "fd"))
    return {
        "memory": int((folder / "statm").read_text().split()[1]) * _PAGE_BYTES / _MB,
        "sockets": sum(link.startswith("socket:") for link in links),
        "files": len(links),
        "threads": sum(1 for _ in (folder / "task").iterdir()),
    }


def of_server(client: redis.Redis, keys: QueueKeys) -> dict[str, float]:
    """What the server holds, of the queue and in all."""
    facts: Any = client.info("all")
    [group] = client.xinfo_groups(keys.stream)
    lives = list(_lives(client))
    return {
        "memory used": facts["used_memory"] / _MB,
        "clients": facts["connected_clients"],
        "consumers": group["consumers"],
        "pending": group["pending"],
        "waiting": int(client.xlen(keys.stream)) - group["pending"],
        "delayed": int(client.zcard(keys.delayed)),
        "keys": len(lives),
        "keys without ttl": lives.count(NO_TIME_TO_LIVE),
    }


class Readings:
    """All readings of a run, as series."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._points: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)

    def take(self, at_s: float, actors: Iterable[Actor], server: dict[str, float]) -> None:
        """Read every process that is there, and note it beside what was read of the server."""
        self._note(at_s, SERVER, server)
        for actor in actors:
            if actor.pid is not None:
                with suppress(OSError):
                    self._note(at_s, actor.part.name, of_process(actor.pid))

    def _note(self, at_s: float, who: str, values: dict[str, float]) -> None:
        for what, value in values.items():
            self._points[who, what].append((round(at_s, 1), value))

    @property
    def series(self) -> list[Series]:
        """Each thing that was read."""
        return [Series(who, what, tuple(points)) for (who, what), points in self._points.items()]


def _links(folder: Path) -> Iterator[str]:
    for link in folder.iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            yield str(link.readlink())


def _lives(client: redis.Redis) -> Iterator[int]:
    """How long each key will live; those that go while we look are left out."""
    cursor = 0
    while True:
        answer: Any = client.scan(cursor, count=_AT_ONCE)
        cursor, some = answer
        pipeline = client.pipeline(transaction=False)
        for key in some:
            pipeline.ttl(key)
        yield from (life for life in pipeline.execute() if life >= NO_TIME_TO_LIVE)
        if cursor == 0:
            return

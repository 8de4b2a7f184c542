"""Which server a command talks to: one that others can reach too, or none."""

from pathlib import Path

from chasquimq.broker.target import Target, TargetKind
from chasquimq.broker.url import parse_url
from chasquimq.errors import ConfigError


def shared_server(redis_url: str | None, *, may_be_new: bool = False) -> Target:
    """The server that the URL names, or that of the environment.

    A plain `embedded://` is refused: its jobs are in the memory of one process, so what a command
    adds is gone when it ends, and no worker that it starts can be sent any. So is a directory that
    does not exist, unless it `may_be_new`: who looks at what is there has mistyped it, and would be
    shown an empty server that was made for the purpose.
    """
    target = parse_url(redis_url)
    if target.kind is TargetKind.EMBEDDED and target.directory is None:
        msg = (
            f"{target.safe_text} keeps jobs in the memory of one process, and they are gone with "
            "it: name a directory, as in embedded:///var/lib/chasqui, or run  chasqui server start"
        )
        raise ConfigError(msg)
    if target.directory is not None and not may_be_new and not Path(target.directory).exists():
        msg = (
            f"{target.safe_text} names a directory that does not exist: check the path;"
            " chasqui add, chasqui worker and chasqui server start make it"
        )
        raise ConfigError(msg)
    return target

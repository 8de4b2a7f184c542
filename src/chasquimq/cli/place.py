"""Which server a command talks to: one that others can reach too, or none."""

from chasquimq.broker.target import Target, TargetKind
from chasquimq.broker.url import parse_url
from chasquimq.errors import ConfigError


def shared_server(redis_url: str | None) -> Target:
    """The server that the URL names, or that of the environment.

    A plain `embedded://` is refused: its jobs are in the memory of one process, so what a command
    adds is gone when it ends, and no worker that it starts can be sent any.
    """
    target = parse_url(redis_url)
    if target.kind is TargetKind.EMBEDDED and target.directory is None:
        msg = (
            f"{target.safe_text} keeps jobs in the memory of one process, and they are gone with "
            "it: name a directory, as in embedded:///var/lib/chasqui, or run  chasqui server start"
        )
        raise ConfigError(msg)
    return target

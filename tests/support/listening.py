"""Where processes listen, as Linux tells it."""

import contextlib
import os
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_LISTENS = "0A"
_WORD = 4


def listening(*pids: int) -> set[tuple[str, int]]:
    """The address and port of each TCP socket on which one of these processes listens."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    rows = (
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
    )
    return {_place(row[1]) for row in rows if row[3] == _LISTENS and row[9] in inodes}


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it; Java says 127.0.0.1 in IPv6."""
    ip = IPv6Address(address) if ":" in address else IPv4Address(address)
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return (mapped or ip).is_loopback


def processes_of_session(leader: int) -> list[int]:
    """The process that was started with `start_new_session`, and all that it started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(path.name)) == leader:
                found.append(int(path.name))
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(each.readlink())
                if target.startswith("socket:["):
                    found.add(target.removeprefix("socket:[").removesuffix("]"))
    return found


def _place(text: str) -> tuple[str, int]:
    """`0100007F:1F90` is 127.0.0.1 and 8080: words of four bytes, each the other way round."""
    address, port = text.split(":")
    raw = bytes.fromhex(address)
    turned = b"".join(raw[at : at + _WORD][::-1] for at in range(0, len(raw), _WORD))
    ip = IPv4Address(turned) if len(turned) == _WORD else IPv6Address(turned)
    return str(ip), int(port, 16)

"""What a reader of a figure has to know of the machine it was seen on."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine, and how busy it was when it was asked."""

    system: str
    cores: int
    load: tuple[float, float, float]
    """Average number of processes that wanted to run: over 1, 5 and 15 minutes."""
    versions: Mapping[str, str]

    def __str__(self) -> str:
        """All of it in one line."""
        names = ", ".join(f"{name} {value}" for name, value in self.versions.items())
        load = " ".join(f"{each:.1f}" for each in self.load)
        return f"{self.system}, {self.cores} cores, load {load}; {names}"


def machine(*packages: str, **versions: str) -> Machine:
    """This machine now, with the versions of some packages and those that are given."""
    found = {"Python": platform.python_version()} | versions
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return Machine(
        f"{platform.system()} {platform.machine()}",
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        os.getloadavg(),
        found,
    )

"""Says how far a run is, on stderr: what it found goes to stdout."""

import sys


def say(text: str) -> None:
    """One line, now."""
    sys.stderr.write(text + "\n")

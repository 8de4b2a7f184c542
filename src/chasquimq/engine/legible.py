"""Cuts what other programs wrote to what a line of a log has room for.

Ours refuse names and ids beyond a limit when they are added. Whoever else writes to a queue may
give them any length, and a log that repeats them whole fills a disk.
"""

_MOST_CHARS = 256
"""As long as a name of ours may be."""


def legible(text: str) -> str:
    """The text, or its beginning and how long it is."""
    if len(text) <= _MOST_CHARS:
        return text
    return f"{text[:_MOST_CHARS]}... ({len(text):,} characters)"

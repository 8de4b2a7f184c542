"""The command line, `chasqui`: one module a noun, over the front door and the read side.

Only `main.py` and what it needs is imported to show help; a command's module is imported when it
is called.
"""

import sys

_EXTRA = ("click", "rich")


def main() -> int:
    """Carry out one command line; the exit code. Says so if the extra is not installed."""
    try:
        from chasquimq.cli.main import entry  # noqa: PLC0415 -- it may not be installed

        return entry()
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        sys.stderr.write(
            f"chasqui: the command line needs {error.name}, which is not installed: "
            "run  pip install click rich\n"
        )
        return 1

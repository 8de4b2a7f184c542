"""Asks before something is destroyed."""

import sys

import click

from chasquimq.cli.problems import Refusal


def consent(question: str, *, yes: bool) -> None:
    """Return if the user agrees; `--yes` agrees beforehand.

    Where there is no terminal nobody can be asked, and the answer is no.
    """
    if yes:
        return
    require_terminal(question)
    click.confirm(f"{question}?", abort=True, err=True)


def require_terminal(question: str) -> None:
    """Refuse where nobody can be asked; for commands that take long until they ask."""
    if not sys.stdin.isatty():
        msg = f"refused to {question}: there is no terminal to ask on, so add --yes"
        raise Refusal(msg)

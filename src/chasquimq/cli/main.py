"""Assembly: the table of commands, each loaded from its module when it is asked for."""

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from chasquimq.cli.options import SuggestingGroup, examples_text, redis_url_option
from chasquimq.cli.problems import exit_code_of


class Entry(NamedTuple):
    """One command of the table: what `chasqui --help` says of it, and the module that has it."""

    module: str
    help: str


# By subject, in the order of `chasqui --help`.
SECTIONS: dict[str, dict[str, Entry]] = {
    "Look": {
        "queues": Entry("queues", "List the queues of a server, and how full they are."),
        "inspect": Entry("inspect", "Show how deep a queue is, and how late."),
        "watch": Entry("watch", "Show a queue live, with rates, until Ctrl+C."),
        "counts": Entry("counts", "Count the jobs that wait, run, are delayed, are dead."),
        "jobs": Entry("jobs", "List the jobs of one state."),
        "events": Entry("events", "Print what happens in a queue, until Ctrl+C."),
    },
    "Jobs": {
        "add": Entry("add", "Add a job, now or later."),
        "job": Entry("job", "See one job, its log lines, remove or retry it."),
        "result": Entry("result", "Print what the handler of a job returned."),
        "delayed": Entry("delayed", "Jobs that wait for their time: ls, cancel, promote, ..."),
        "dlq": Entry("dlq", "Dead letters: peek, show, replay, discard, export."),
        "repeatable": Entry("repeatable", "Recurring jobs: ls, add, next, pause, run, rm, ..."),
    },
    "Queues": {
        "pause": Entry("pause", "Let workers take no new jobs."),
        "resume": Entry("resume", "Let workers take jobs again."),
        "drain": Entry("drain", "Remove every waiting and delayed job."),
        "clean": Entry("clean", "Remove old jobs of one state."),
        "obliterate": Entry("obliterate", "Remove a queue and all that belongs to it."),
    },
    "Run": {
        "worker": Entry("worker", "Run the jobs of a queue with a function or an app of yours."),
        "pipeline": Entry("pipeline", "Tables and a report of what happened, on Spark; triage."),
        "server": Entry("server", "A server without installing one: start, stop, status."),
        "doctor": Entry("doctor", "Examine a server and its queues; say what to do."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

EXAMPLES = (
    'chasqui add emails welcome \'{"to": "ada@example.com"}\'',
    "chasqui inspect emails",
    "chasqui watch emails",
    "chasqui dlq peek emails",
)


class LazyGroup(SuggestingGroup):
    """The commands of the table, shown without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, its module imported now."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"chasquimq.cli.{entry.module}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, a section a subject."""
        del ctx
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, and what exit codes mean."""
        del ctx
        formatter.write(examples_text(EXAMPLES))
        formatter.write(
            "\nExit codes: 0 done, 1 not done, 2 wrong usage, 3 the server cannot be reached,\n"
            "4 doctor found problems, 130 ended by Ctrl+C.\n"
            "chasqui COMMAND --help shows the options and an example of each.\n"
        )


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@redis_url_option
@click.version_option(package_name="chasquimq", prog_name="chasqui")
def command(redis_url: str | None) -> None:
    """ChasquiMQ: look at queues on Redis or Valkey, fill them, repair them and work them off."""
    del redis_url  # read from the context by the command that runs, see `options.session`


def entry(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line; the exit code. No traceback for what a user can get wrong."""
    try:
        answer: object = command.main(args=arguments, prog_name="chasqui", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 -- all that is no mistake of a user is raised again
        return exit_code_of(error)
    return answer if isinstance(answer, int) else 0

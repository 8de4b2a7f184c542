"""What all commands share: their shape with examples, and the options they have in common."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

import click

from chasquimq.cli.problems import NoCommand

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Session:
    """Where a command works, and how it answers."""

    redis_url: str | None
    as_json: bool


class Command(click.Command):
    """A command whose help ends with examples."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401
        examples: Sequence[str] = (),
        preface: str = "",
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """As `click.Command`; `examples` are command lines, `preface` lines that go before them."""
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.preface = preface

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, as they are typed."""
        del ctx
        formatter.write(self.preface + examples_text(self.examples))


class SuggestingGroup(click.Group):
    """A group that knows what a mistyped command was meant to be, and explains itself."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it; without a command its releases differ, so that is ours to tell."""
        if not args and not ctx.resilient_parsing:
            raise NoCommand(ctx.get_help(), ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, which before 8.4 suggests nothing, and never a command of a table."""
        close = get_close_matches(args[0], self.list_commands(ctx))
        if close and args[0] not in close:
            msg = f"No such command {args[0]!r}: did you mean {' or '.join(close)}?"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)


class Group(SuggestingGroup):
    """A noun with verbs, whose help ends with examples."""

    command_class = Command

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:  # noqa: ANN401
        """As `click.Group`; `examples` are command lines."""
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, as they are typed."""
        del ctx
        formatter.write(examples_text(self.examples))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order they are written, not by alphabet."""
        del ctx
        return list(self.commands)


def examples_text(examples: Sequence[str]) -> str:
    """The last part of a help page."""
    if not examples:
        return ""
    word = "Example" if len(examples) == 1 else "Examples"
    return f"\n{word}:\n" + "".join(f"  {line}\n" for line in examples)


redis_url_option: Callable[[Function], Function] = click.option(
    "--redis-url",
    metavar="URL",
    help="The server. [default: $CHASQUI_REDIS_URL, else redis://127.0.0.1:6379]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
queue_argument = click.argument("queue")
group_option = click.option(
    "--group", default="default", show_default=True, help="The consumer group of the workers."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only say what would be removed; remove nothing."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
# So that a script can say it everywhere.
needless_yes_option = click.option(
    "--yes", "-y", is_flag=True, expose_value=False, help="Nothing: what is named is not asked for."
)


def limit_option(default: int, what: str) -> Callable[[Function], Function]:
    """`--limit`, with the default of the command."""
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        metavar="N",
        help=what,
    )


def session(function: Function) -> Function:
    """Add `--redis-url` and `--json`; the command gets both as one `session`.

    `--redis-url` may also stand before the command; the one behind it wins.
    """

    @redis_url_option
    @json_option
    @functools.wraps(function)
    def with_session(*args: Any, redis_url: str | None, as_json: bool, **kwargs: Any) -> Any:  # noqa: ANN401
        url = redis_url or click.get_current_context().find_root().params.get("redis_url")
        return function(*args, session=Session(url, as_json), **kwargs)

    return with_session

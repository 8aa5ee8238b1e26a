"""The group of sub-commands, loaded by name when one is called; it refuses to know what any of them does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import click

from wharfinger.cli.failures import report
from wharfinger.cli.options import Verbosity

__all__ = ["Commands", "run", "wharfinger"]


class Entry(NamedTuple):
    """Where a sub-command is, and the line that `--help` shows without loading it."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "serve": Entry("wharfinger.cli.serve", "serve", "Publish folders, databases, logs and more as resources."),
    "run": Entry("wharfinger.cli.run", "run", "Run your own server from a file or module."),
    "ls": Entry("wharfinger.cli.ls", "ls", "List resources, templates, tools or prompts."),
    "read": Entry("wharfinger.cli.read", "read", "Read a resource."),
    "watch": Entry("wharfinger.cli.watch", "watch", "Print a line for each change of a resource or list."),
    "call": Entry("wharfinger.cli.call", "call", "Call a tool."),
    "prompt": Entry("wharfinger.cli.prompt", "prompt", "Fill in a prompt and print its messages."),
    "complete": Entry("wharfinger.cli.complete", "complete", "Complete an argument of a prompt or template."),
    "inspect": Entry("wharfinger.cli.inspect", "inspect", "Tell who a server is, what it can do, and how fast."),
    "doctor": Entry("wharfinger.cli.doctor.command", "doctor", "Check a server and print what to change."),
    "add": Entry("wharfinger.cli.add", "add", "Add a server to a host."),
    "auth": Entry("wharfinger.cli.auth", "auth", "Sign in to a server, or tell why it does not work."),
    "completion": Entry("wharfinger.cli.completion", "completion", "Print the shell's completion script."),
}

EXAMPLES = """\b
Examples:
  wharfinger serve ./charts                      publish a folder
  wharfinger ls http://127.0.0.1:8000/mcp        what a server offers
  wharfinger add claude-desktop ./charts         let a host start it

A TARGET is a URL, a folder, a Python file, unix:/path, the name of a server in a host's
configuration, or a command after `--`. Every option can also be set in the environment, for
example WHARFINGER_TIMEOUT=5 or WHARFINGER_SERVE_HIDDEN=1.
Exit codes: 0 done, 1 tool error or not found, 2 usage, 3 cannot connect, 4 not authorised, 130 Ctrl-C."""


class Commands(click.Group):
    """A group that imports a sub-command's module only when that sub-command is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the sub-commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command, or None where there is no such name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say of an option before the sub-command that it belongs behind it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            command = next((word for word in args if word in COMMANDS), "COMMAND")
            raise click.UsageError(
                f"No such option {error.option_name!r} here: options follow the command, as in"
                f" `wharfinger {command} {error.option_name}`.",
                ctx,
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the sub-command that is called; for an unknown one say which was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command {args[0]!r}.{meant(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the sub-commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


MEANT = {
    "list": "ls",
    "tools": "ls --tools",
    "prompts": "ls --prompts",
    "resources": "ls",
    "templates": "ls --templates",
    "get": "read",
    "cat": "read",
    "show": "read",
    "dev": "run --dev --reload",
    "start": "run",
    "install": "add",
    "remove": "add --remove",
    "login": "auth login",
    "check": "doctor",
    "info": "inspect",
    "publish": "serve",
    "help": "--help",
    "version": "--version",
}
"""What other programs call what we have under another name."""


def meant(word: str) -> str:
    """Say what was probably meant by a word that is no sub-command."""
    if word.endswith(".py"):
        return f" To run a server write `wharfinger run {word}`; to look at it, `wharfinger ls {word}`."
    if word.startswith(("http://", "https://")):
        return f" To look at a server write `wharfinger ls {word}`."
    if word in MEANT:
        return f" Did you mean `wharfinger {MEANT[word]}`?"
    from wharfinger.cli.near import nearest

    found = nearest(word, COMMANDS)
    return f" Did you mean {found!r}?" if found else ""


def print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the version and end."""
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("wharfinger")
    except PackageNotFoundError:  # a source tree that was not installed
        number = "unknown (not installed)"
    click.echo(f"wharfinger {number}, Python {sys.version.split()[0]}")
    ctx.exit()


@click.group(
    cls=Commands,
    epilog=EXAMPLES,
    context_settings={"auto_envvar_prefix": "WHARFINGER", "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Print the version."
)
def wharfinger() -> None:
    """Publish data to language models over the Model Context Protocol (MCP), and look at what others publish."""


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code; every failure is one line on stderr (a traceback with -v)."""
    verbosity = Verbosity()
    try:
        outcome = wharfinger.main(args, prog_name="wharfinger", standalone_mode=False, obj=verbosity)
    except BaseException as error:
        return report(error, level=verbosity.level)
    return outcome if isinstance(outcome, int) else 0

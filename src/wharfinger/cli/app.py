"""The `wharfinger` command: a group that imports a sub-command on use, and reports its errors."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from wharfinger.cli.error_report import report_error
from wharfinger.cli.options import Verbosity

__all__ = ["CommandGroup", "run", "wharfinger"]


COMMANDS = {
    "serve": "Publish folders, databases, logs and more as resources.",
    "check": "Check the file of a server without serving.",
    "run": "Run your own server from a file or module.",
    "dev": "Run your own server with reload, full errors and a live page.",
    "browse": "Show what servers offer on a live page.",
    "ls": "List resources, templates, tools or prompts.",
    "read": "Read a resource.",
    "watch": "Print a line for each change of a resource or list.",
    "call": "Call a tool.",
    "prompt": "Fill in a prompt and print its messages.",
    "complete": "Complete an argument of a prompt or template.",
    "chat": "Ask a model that uses the resources and tools of servers.",
    "inspect": "Show a server's name, features and speed.",
    "doctor": "Check a server and print what to change.",
    "add": "Add a server to a host.",
    "hosts": "List the servers that are configured for hosts.",
    "auth": "Sign in to a server, or find out why that fails.",
    "policy": "Write, check and explain rules that say who may do what.",
    "token": "Create, list and revoke tokens for your server.",
    "audit": "Summarise the record of who read what.",
    "completion": "Print the completion script for your shell.",
}
"""The sub-commands with the line that `--help` shows. Each has a module in `commands/`, which is imported when the
sub-command is called."""
MODULES = {
    "check": "check_file",
    "policy": "policy_commands",
    "complete": "complete_argument",
    "completion": "print_completion",
}
"""The module of each sub-command whose module has another name."""

EXAMPLES = """\b
Examples:
  wharfinger serve ./charts                      publish a folder
  wharfinger ls http://127.0.0.1:8000/mcp        what a server offers
  wharfinger add claude-desktop ./charts         let a host start it

A TARGET is a URL, a folder, a Python file, unix:/path, the name of a server in a host's
configuration, or a command after `--`. Most options can also be set in the environment, for
example WHARFINGER_TIMEOUT=5 or WHARFINGER_SERVE_HIDDEN=1.

Exit codes: 0 done, 1 failed (tool error, not found, …), 2 usage, 3 cannot connect, 4 not authorised, 130 Ctrl-C."""


class CommandGroup(click.Group):
    """A group that imports the module of a sub-command when the sub-command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the sub-commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command, or None if there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"wharfinger.cli.commands.{MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        name_variables(command, f"WHARFINGER_{cmd_name}")
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Report an option before the sub-command as misplaced."""
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
        """Find the sub-command that is called, or report an unknown one with a suggestion."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command {args[0]!r}.{suggestion(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the sub-commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def name_variables(command: click.Command, prefix: str) -> None:
    """Let each option be set by an environment variable, such as WHARFINGER_CALL_INPUT for `call --input`.

    `auto_envvar_prefix` of click would name the variable after the parameter of the function, which can differ from the
    option, and add variables such as WHARFINGER_VERSION for `--version`.
    """
    for param in command.params:
        if isinstance(param, click.Option) and param.envvar is None and param.allow_from_autoenv:
            name = next((option[2:] for option in param.opts if option.startswith("--")), param.name or "")
            param.envvar = f"{prefix}_{name}".replace("-", "_").upper()
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            name_variables(subcommand, f"{prefix}_{name}")


SUGGESTIONS = {
    "list": "ls",
    "tools": "ls --tools",
    "prompts": "ls --prompts",
    "resources": "ls",
    "templates": "ls --templates",
    "get": "read",
    "cat": "read",
    "show": "read",
    "start": "run",
    "install": "add",
    "remove": "add --remove",
    "login": "auth login",
    "info": "inspect",
    "publish": "serve",
    "help": "--help",
    "version": "--version",
}
"""Names of commands in other programs, and the command of this program to suggest for each."""


def suggestion(word: str) -> str:
    """Return a sentence that suggests a sub-command for an unknown word, or an empty string."""
    if word.endswith(".py"):
        return f" Run it with `wharfinger run {word}`, or list its resources with `wharfinger ls {word}`."
    from wharfinger.net import is_http_url

    if is_http_url(word):
        return f" List what a server offers with `wharfinger ls {word}`."
    if word in SUGGESTIONS:
        return f" Did you mean `wharfinger {SUGGESTIONS[word]}`?"
    from wharfinger.cli.suggestions import nearest

    command = nearest(word, COMMANDS)
    return f" Did you mean {command!r}?" if command else ""


def print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the version and exit."""
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
    cls=CommandGroup,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Print the version."
)
def wharfinger() -> None:
    """Publish data to language models over the Model Context Protocol (MCP), and explore what others publish."""


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Errors are reported on stderr (see `error_report`)."""
    verbosity = Verbosity()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed: the next file or socket would get its number, 0 to 2
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            setattr(sys, name, os.fdopen(null, mode))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # The code page of a file or pipe on Windows lacks most characters.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        outcome = wharfinger.main(args, prog_name="wharfinger", standalone_mode=False, obj=verbosity)
    except BaseException as error:
        return report_error(error, level=verbosity.level)
    return outcome if isinstance(outcome, int) else 0

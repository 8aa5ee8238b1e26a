"""Reports a failure: a line on stderr that says what is wrong and what to do, its details, and an exit code."""

from __future__ import annotations

import os
import sys

import click

__all__ = ["CTRL_C_EXIT_CODE", "CommandError", "report_error"]

CTRL_C_EXIT_CODE = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as in a shell."""


class CommandError(click.ClickException):
    """A command failed. Unlike an unexpected exception, it is shown without the name of its class."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares a class variable and reads the instance


def report_error(error: BaseException, *, level: int = 0) -> int:
    """Print an error on stderr, with its details on lines that begin with `|`, and return the exit code.

    Nothing is printed for Ctrl-C, for `sys.exit` without a message, or after the reader of a pipe has closed it.
    `level` is the number of -v: with one, an unexpected error is followed by its traceback; with two, so is an error
    that the program raises on purpose.
    """
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    if isinstance(error, click.exceptions.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # click raises Abort for every EOFError, also for one in the code of a server
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt)):
        return CTRL_C_EXIT_CODE
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return 2
    if isinstance(error, BrokenPipeError):
        silence_stdout()
        return 1
    from wharfinger.content.redaction import redacted, redacted_text

    message, code = describe(error)
    first, *rest = message.split("\n")
    # A usage error repeats what was just typed, in forms such as KEY=TEXT, some of which `redacted_text` would hide.
    redact = redacted if isinstance(error, click.UsageError) else redacted_text
    say(redact(f"wharfinger: {first}"))
    notes: list[str] = getattr(error, "__notes__", [])
    for detail in filter(str.strip, [*rest, *"\n".join(notes).split("\n")]):
        say(redact(f"  | {detail}"))
    origin = error.__cause__ if isinstance(error, click.ClickException) else error
    from wharfinger.errors import WharfingerError

    traceback_level = 2 if isinstance(origin, (WharfingerError, click.ClickException)) else 1
    if origin is not None and level >= traceback_level:
        import traceback

        traceback.print_exception(origin)
    return code


def describe(error: BaseException) -> tuple[str, int]:
    """Return the message for an exception and the exit code."""
    if isinstance(error, SystemExit):  # `sys.exit("…")` in the code of a server, such as its lifespan
        return str(error.code), 1
    if isinstance(error, click.UsageError):
        return usage_line(error), 2
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    from wharfinger.errors import ConnectionFailed, ConnectionLost, NotAuthorized, RequestTimeout, WharfingerError

    if isinstance(error, NotAuthorized):
        has_advice = any(advice in str(error) for advice in ("wharfinger auth", "--allow-host", "--allow-origin"))
        hint = "" if has_advice else " Give the token with --token-env NAME."
        return f"{error}{hint}", error.exit_code
    if isinstance(error, (ConnectionFailed, ConnectionLost)) and error.stderr:
        from wharfinger.cli.tracebacks import ending_lines

        message = str(error).removesuffix(f"\n{error.stderr}")
        return "\n".join([message, *ending_lines(error.stderr.split("\n"))]), error.exit_code
    if isinstance(error, ConnectionFailed) and str(error).startswith("Cannot connect to http"):
        return f"{str(error).rstrip('.')}. Is the server running, and is this its address?", error.exit_code
    if isinstance(error, RequestTimeout):
        return f"{error} Give it more time with --timeout SECONDS.", error.exit_code
    if isinstance(error, WharfingerError):
        return str(error), error.exit_code
    if isinstance(error, FileNotFoundError) and error.errno and not os.path.isabs(error.filename or ""):
        try:
            os.getcwd()
        except FileNotFoundError:
            return "The current folder was deleted: go to another one with `cd`, or make it again and `cd` into it.", 1
    if isinstance(error, OSError) and str(error):
        name = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{name}", 1
    from wharfinger.cli.tracebacks import place_of

    text = f"{type(error).__name__}: {error}".rstrip(": ")
    location = place_of(error)
    return f"{f'{location}: ' if location else 'unexpected '}{text} (-v shows the traceback)", 1


def usage_line(error: click.UsageError) -> str:
    """Return the message of a usage error, with the command that lists the arguments."""
    message = error.format_message().rstrip().replace("\n\t", " ")  # click lists choices on lines of their own
    if error.ctx is None:
        return message
    if not message.endswith((".", "!", "?", ")")):
        message += "."
    return f"{message} See `{error.ctx.command_path} --help`."


def say(line: str) -> None:
    """Print one line on stderr, with the control characters escaped."""
    from wharfinger.content.text import escape_controls

    try:
        sys.stderr.write(escape_controls(line.replace("\n", " ")) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # stderr is closed
        pass


def silence_stdout() -> None:
    """Prevent an error message at exit when the reader of a pipe has closed it, as in `wharfinger ls … | head`."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)

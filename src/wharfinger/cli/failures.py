"""How a failure is told: one line on stderr that says what to do, and an exit code; it refuses to know the commands."""

from __future__ import annotations

import sys

import click

__all__ = ["Failed", "report"]

CTRL_C = 130


class Failed(click.ClickException):
    """A command could not do what was asked."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it of the instance, and calls it a class's


def report(error: BaseException, *, level: int = 0) -> int:
    """Tell `error` on stderr, what is wrong first and its cause below, and return the exit code.

    `level` counts -v: from 1 on the traceback of what nobody raised on purpose follows, from 2 on every one.
    """
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt, EOFError)):
        return CTRL_C
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return 2
    if isinstance(error, BrokenPipeError):
        silence_stdout()
        return 1
    from wharfinger.content.redaction import redacted, redacted_text

    line, code = describe(error)
    first, *rest = line.split("\n")
    # A usage error repeats what was typed here and now, and forms such as KEY=TEXT, which look like secrets.
    redact = redacted if isinstance(error, click.UsageError) else redacted_text
    say(redact(f"wharfinger: {first}"))
    for more in filter(str.strip, [*rest, *notes(error)]):
        say(redact(f"  | {more}"))
    origin = error.__cause__ if isinstance(error, click.ClickException) else error
    if origin is not None and level > (1 if deliberate(origin) else 0):
        import traceback as tracebacks

        tracebacks.print_exception(origin)
    return code


def notes(error: BaseException) -> list[str]:
    """The lines that say where an error came from, which a command found out."""
    found: list[str] = getattr(error, "__notes__", [])
    return [line for note in found for line in note.split("\n")]


def deliberate(error: BaseException) -> bool:
    """Tell whether an error was raised on purpose, so that its message says everything."""
    from wharfinger.errors import WharfingerError

    return isinstance(error, (WharfingerError, click.ClickException))


def describe(error: BaseException) -> tuple[str, int]:
    """Turn an exception into the line that is told and the exit code."""
    if isinstance(error, click.UsageError):
        return usage_line(error), 2
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    from wharfinger.errors import ConnectionFailed, ConnectionLost, NotAuthorized, RequestTimeout, WharfingerError

    if isinstance(error, NotAuthorized):
        hint = "" if "wharfinger auth" in str(error) else " Give the token with --token-env NAME."
        return f"{error}{hint}", error.exit_code
    if isinstance(error, (ConnectionFailed, ConnectionLost)) and error.stderr:
        from wharfinger.cli.causes import last_words

        message = str(error).removesuffix(f"\n{error.stderr}")
        return "\n".join([message, *last_words(error.stderr.split("\n"))]), error.exit_code
    if isinstance(error, ConnectionFailed) and str(error).startswith("Cannot connect to http"):
        return f"{str(error).rstrip('.')}. Is the server running, and is this its address?", error.exit_code
    if isinstance(error, RequestTimeout):
        return f"{error} Give it more time with --timeout SECONDS.", error.exit_code
    if isinstance(error, WharfingerError):
        return str(error), error.exit_code
    if isinstance(error, OSError):
        name = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{name}", 1
    from wharfinger.cli.causes import place_of

    text = f"{type(error).__name__}: {error}".rstrip(": ")
    place = place_of(error)
    return f"{f'{place}: ' if place else 'unexpected '}{text} (-v shows the traceback)", 1


def usage_line(error: click.UsageError) -> str:
    """Say what is wrong with the arguments, and where the right ones are listed."""
    message = error.format_message().rstrip()
    if error.ctx is None:
        return message
    if not message.endswith((".", "!", "?", ")")):
        message += "."
    return f"{message} See `{error.ctx.command_path} --help`."


def say(line: str) -> None:
    """Print on stderr, on one line, with nothing in it that a terminal would obey."""
    from wharfinger.cli.words import printable

    try:
        sys.stderr.write(printable(line.replace("\n", " ")) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # stderr is closed: nobody listens
        pass


def silence_stdout() -> None:
    """Keep the interpreter from complaining at exit about a reader that went away (`wharfinger ls … | head`)."""
    import os

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)

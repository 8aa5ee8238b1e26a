"""`wharfinger chat`: chats with a model that uses the resources, tools and prompts of servers."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from wharfinger.cli.options import (
    COMMAND,
    CONFIG,
    NearChoice,
    Seconds,
    TargetCommand,
    connection_options,
    json_option,
    verbosity_of,
    verbosity_options,
)
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import check_quotes, parse_target
from wharfinger.net import is_http_url

if TYPE_CHECKING:
    from wharfinger.cli.targets.open_client import ConnectionOptions
    from wharfinger.upstreams import ServerConfig

__all__ = ["chat"]

MAX_INPUT_BYTES = 1024 * 1024
"""Maximum number of bytes of the text that is piped into stdin."""
MAX_SERVERS = 64


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger chat -m ollama/qwen3 ./charts
  wharfinger chat -m anthropic/NAME harbour https://example.test/mcp
  wharfinger chat -c
  git diff | wharfinger chat -m openai/NAME -p "Review this change" . --json""",
)
@click.argument("words", nargs=-1, metavar="[TARGET]…", shell_complete=complete_words())
@click.option(
    "-m",
    "--model",
    metavar="API/NAME",
    envvar=["WHARFINGER_CHAT_MODEL", "WHARFINGER_MODEL"],
    help="The model: openai/NAME, anthropic/NAME or ollama/NAME.",
)
@click.option("-c", "--continue", "continue_last", is_flag=True, help="Continue the last conversation.")
@click.option("-p", "--prompt", "question", metavar="PROMPT", help="Answer PROMPT and any text piped in, then exit.")
@click.option(
    "--approve",
    type=NearChoice(["ask", "read-only", "never"]),
    default="ask",
    show_default=True,
    help="When to ask: before every tool runs, before every tool that is not read-only, or never (all tools run).",
)
@click.option(
    "--trust",
    metavar="SERVER",
    multiple=True,
    help="Believe this server if it says that a tool is read-only. Repeatable.",
)
@click.option(
    "--budget",
    type=click.IntRange(0, 1_000_000),
    default=8_000,
    show_default=True,
    metavar="TOKENS",
    help="Maximum size of the resources sent with a question, in tokens.",
)
@click.option("--no-rules", is_flag=True, help="Send only the resources that a question mentions.")
@click.option("--no-tools", is_flag=True, help="Let the model use no tools.")
@click.option(
    "--max-rounds",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum number of requests to the model for one question.",
)
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Maximum size of one answer, in tokens.")
@click.option(
    "--model-timeout",
    type=Seconds(),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the model's endpoint may be silent.",
)
@click.option("--no-save", is_flag=True, help="Do not store the conversation.")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def chat(ctx: click.Context, /, words: tuple[str, ...], **options: Any) -> None:
    """Ask a model that uses the resources, tools and prompts of servers.

    Tab completes `@` to resources, and `/` to commands and prompts of servers. Each question is sent with the resources
    that it mentions, and others that fit it. You are asked before a tool runs (see --approve); without a terminal, such
    a tool does not run. Ctrl-C stops an answer. With --config FILE and no TARGET, all servers of that file are used.
    """
    from wharfinger.chat.model_clients import choose_model
    from wharfinger.cli.stderr_log import log_to_stderr
    from wharfinger.cli.targets.open_client import take_connection_options

    choice = choose_model(options.pop("model"), os.environ)
    connection = take_connection_options(options)
    configs = read_servers(ctx, words, connection, options.pop("trust"))
    question = read_question(ctx, options.pop("question"))
    if question is None and options["as_json"]:
        raise click.UsageError("--json answers one question: give it with -p, or pipe it in.", ctx)
    if question is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("There is no terminal to chat at: give the question with -p, or pipe it in.", ctx)
    from wharfinger.cli.targets.chat_runner import ChatCommandOptions, ChatRunner

    log_to_stderr(verbosity_of(ctx))
    exit_code = ChatRunner(ctx, connection, ChatCommandOptions(**options)).run(choice, configs, question)
    ctx.exit(exit_code)


def read_servers(
    ctx: click.Context, words: tuple[str, ...], connection: ConnectionOptions, trust: tuple[str, ...]
) -> list[ServerConfig]:
    """Return the servers of the words, of the command after `--`, or of the file of `--config`.

    Raises:
        click.UsageError: a word is not a target, or an option does not fit these servers.
    """
    from wharfinger.cli.render.formatting import slug
    from wharfinger.cli.suggestions import nearest
    from wharfinger.cli.targets.configured_servers import with_distinct_names
    from wharfinger.cli.targets.open_client import with_options
    from wharfinger.upstreams import ServerConfig
    from wharfinger.upstreams.public_names import name_of_target

    command: list[str] | None = ctx.meta.get(COMMAND)
    file: Path | None = ctx.meta.get(CONFIG)
    if words:
        check_quotes(ctx, words)
    configs = [read_server(ctx, word) for word in words]
    if not words and command is None and file is not None:
        configs = read_file(ctx, file)
    if command is not None:
        if not command:
            raise click.UsageError("Give a command after `--`, for example `-- python server.py`.", ctx)
        configs.append(ServerConfig(name=slug(name_of_target(command), fallback="server"), target=command))
    if len(configs) > MAX_SERVERS:
        raise click.UsageError(f"A chat has at most {MAX_SERVERS} servers.", ctx)
    configs = with_distinct_names(configs)
    names = [config.name for config in configs]
    for name in trust:
        if name not in names:
            similar = nearest(name, names)
            suggestion = f" Did you mean {similar!r}?" if similar else ""
            raise click.UsageError(f"--trust {name}: the servers are {', '.join(names) or 'none'}.{suggestion}", ctx)
    trusted = [replace(config, trusted=True) if config.name in trust else config for config in configs]
    return with_options(ctx, trusted, connection)


def read_server(ctx: click.Context, word: str) -> ServerConfig:
    """Return the server of a word: a configured server with all keys of its entry, or else any other target."""
    from wharfinger.cli.targets.configured_servers import ask_at_terminal, look_up
    from wharfinger.upstreams import ServerConfig
    from wharfinger.upstreams.config import config_of
    from wharfinger.upstreams.placeholders import InvalidConfiguration

    target = parse_target(ctx, word)
    entry = look_up(ctx, word, ctx.meta.get(CONFIG)) if target.origin else None
    if entry is not None:
        try:
            return config_of(entry, os.environ, ask_at_terminal, {})
        except InvalidConfiguration as error:
            raise click.UsageError(str(error), ctx) from None
    # Servers that this program starts from a folder or a Python file are trusted: they are the user's own.
    return ServerConfig(name=name_of_word(word), target=target.url or list(target.command), trusted=target.own_command)


def read_file(ctx: click.Context, file: Path) -> list[ServerConfig]:
    """Return all servers of a configuration file."""
    from wharfinger.cli.targets.configured_servers import ask_at_terminal
    from wharfinger.upstreams import read_config
    from wharfinger.upstreams.placeholders import InvalidConfiguration

    try:
        return read_config(file, inputs=ask_at_terminal)
    except InvalidConfiguration as error:
        raise click.UsageError(str(error), ctx) from None


def name_of_word(word: str) -> str:
    """Return a name for the server that a word on the command line stands for."""
    from urllib.parse import urlsplit

    from wharfinger.cli.render.formatting import slug

    if is_http_url(word):
        return slug((urlsplit(word).hostname or "").removeprefix("www."), fallback="server")
    path = Path(word.partition(".py:")[0])
    return slug(path.resolve().name.removesuffix(".py"), fallback="server", limit=24)


def read_question(ctx: click.Context, question: str | None) -> str | None:
    """Return the question of `-p` and the text piped into stdin; None to ask at the terminal."""
    piped = read_piped(ctx)
    parts = [part for part in (question, piped) if part and part.strip()]
    if question is not None and not parts:
        raise click.UsageError("-p is empty: write the question after it.", ctx)
    return "\n\n".join(parts) or None


def read_piped(ctx: click.Context) -> str:
    """Return the text that is piped into stdin, or an empty string."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # stdin is closed
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(data) > MAX_INPUT_BYTES:
        raise click.UsageError(f"stdin has more than {MAX_INPUT_BYTES:,} bytes: publish the file as a resource.", ctx)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise click.UsageError("stdin is not text in UTF-8: publish the file as a resource.", ctx) from None

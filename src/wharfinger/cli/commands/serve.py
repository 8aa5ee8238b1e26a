"""`wharfinger serve`: publishes data as live MCP resources, over stdio or HTTP."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import Seconds, Verbosity, verbosity_of, verbosity_options
from wharfinger.cli.serving.policy_option import INLINE, set_policy
from wharfinger.cli.serving.record_options import record_options, set_record
from wharfinger.cli.serving.server_file import server_file_option
from wharfinger.cli.serving.serving_options import HttpSettings, ServingCommand, choose_transport, serving_options

if TYPE_CHECKING:
    from wharfinger.cli.render.banner import Banner, ServerAddress
    from wharfinger.server import Server
    from wharfinger.sources.registry import PreparedSource

__all__ = ["build", "file_context", "serve"]


@click.command(
    cls=ServingCommand,
    epilog="""\b
Forms of WORD; `name=WORD` sets its name in URIs:
  ./docs                          a folder
  git:.                           a git repository, also git:https://host/docs.git
  sqlite:///shop.db               a database, also duckdb:///FILE, postgresql:// or mysql://user@host/shop
  'log:logs/*.log'                logs, followed as they rotate
  journal:nginx                   the journal of systemd, of all units by journal:
  s3://bucket/prefix              objects, also zip:FILE, tar:FILE and objects:URL
  'table:data/*.parquet'          tables in CSV, JSON Lines, Parquet or Excel
  skills:DIR                      skills, also skills:git:https://host/skills.git
  system:  screen:                this machine
  'command:df -h'                 the output of a command, with --allow-command
  web:https://docs.example.org/   the pages of a web site, as Markdown
  openapi:https://host/openapi.json   an HTTP API, by its OpenAPI document
  https://host/mcp                the resources of another server
  'mcp:npx -y some-server'        those of a server started by a command, with --allow-command

\b
Examples:
  wharfinger serve ./charts
  wharfinger serve ./charts maps=~/old/maps --exclude '*.bak'
  wharfinger serve ./docs git:. sqlite:///shop.db 'log:logs/*.log' s3://bucket/prefix
  PGPASSWORD=… wharfinger serve --allow-query postgresql://reader@db.test/shop
  wharfinger serve --http 127.0.0.1:9000 ./charts
  CHARTS_TOKEN=… wharfinger serve --http 0.0.0.0:8000 --token-env CHARTS_TOKEN --allow-host charts.test ./charts
  wharfinger serve --http --tokens tokens.json --policy policy.toml ./docs
  wharfinger serve -f wharfinger.toml

\b
In the file of -f, an option is written without the leading dashes and with _ for -. WORDs are `sources`,
--limit is `limits`, and --allow-operation is `allow_operations`:
  sources = ["./docs", "git:."]
  http = "127.0.0.1:9000"
  tokens = "tokens.json"
  policy = "policy.toml"
Paths are relative to the file. ${NAME} is a variable, ${file:PATH} the content of a file.""",
)
@click.argument("words", nargs=-1, metavar="WORD…")
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="In folders, publish only what matches PATTERN (syntax of .gitignore). Repeatable.",
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="In folders, leave out what matches. Repeatable.")
@click.option("--hidden", is_flag=True, help="Publish hidden files too (but no keys and credentials).")
@click.option("--max-size", metavar="SIZE", help="Read files over SIZE, such as 64MiB, only in parts.")
@click.option(
    "--absolute-uris", is_flag=True, help="Use the absolute paths of files as URIs, for a host on this machine."
)
@click.option("--encoding", metavar="NAME", help="Encoding of CSV tables. Default: detected for each file.")
@click.option("--allow-command", is_flag=True, help="Allow running the commands of command: and mcp: words.")
@click.option(
    "--every",
    type=Seconds(),
    metavar="SECONDS",
    help="Time between requests to an API (default: 5) or a web site (60), fetches of a remote repository (60), or "
    "runs of a command (without --every, it cannot be watched).",
)
@click.option(
    "--max-clone-size", metavar="SIZE", help="Maximum size of the clone of a remote repository. Default: 2GiB."
)
@click.option(
    "--allow-operation",
    "allow_operations",
    multiple=True,
    metavar="ID",
    help="Offer, as a tool, an operation of an HTTP API that may change data. Repeatable.",
)
@click.option("--base-url", metavar="URL", help="URL of an HTTP API, if its document states another one or none.")
@click.option(
    "--allow-private-networks",
    is_flag=True,
    help="Allow connections to servers on this machine and in private networks.",
)
@click.option(
    "--patience",
    type=Seconds(),
    metavar="SECONDS",
    help="How long a list or search waits for each source. Default: 5 s; stores and servers 3 s, web sites 10 s.",
)
@click.option("--allow-query", is_flag=True, help="Offer a tool that queries databases and tables (read-only).")
@click.option("--no-search", is_flag=True, help="Keep no search index; searches read all content.")
@click.option("--no-tools", is_flag=True, help="Leave out the tools that list, read and search the resources.")
@server_file_option
@click.option(
    "--name", metavar="NAME", help="Name of the server. Default: from what it publishes; with a policy, wharfinger."
)
@click.option("--demo", is_flag=True, help="Publish a temporary copy of a folder, with a log that grows every 5 s.")
@serving_options
@record_options
@verbosity_options
@click.pass_context
def serve(ctx: click.Context, /, **_: Any) -> int | None:
    """Publish data as live MCP resources that clients list, read, search and watch.

    WORD is a folder or data of another kind; several make one server. The transport is HTTP on 127.0.0.1:8000 if stdin
    is a terminal, and stdio otherwise. Files in .gitignore, hidden files and credentials are left out.
    """
    with ExitStack() as stack:
        settings, server, sources = build(ctx, stack)
        set_record(ctx, server, stdio=settings is None and ctx.params["unix"] is None)
        verbosity = verbosity_of(ctx)
        if settings is None:
            from wharfinger.cli.serving.serve_runner import serve_stream

            return serve_stream(server, ctx.params["unix"], ctx.params["limits"], verbosity)
        return serve_with_banner(ctx, settings, server, sources, verbosity)


def build(
    ctx: click.Context, stack: ExitStack, *, policy: bool = True
) -> tuple[HttpSettings | None, Server, list[PreparedSource]]:
    """Make the server that the options describe. Closing the stack removes the temporary folder of `--demo`.

    Returns the settings for HTTP (None for stdio and sockets), the server, and its sources.
    With `policy=False` the server has no policy, so that the rules can be compared with all that it publishes.

    Raises:
        click.UsageError: options are missing, or do not fit together.
        WharfingerError: something cannot be published, or the policy cannot be used.
    """
    from wharfinger.cli.serving.publish import SOURCE_OPTIONS, check_options, is_given, make_server

    rest = dict(ctx.params)
    words, no_tools, no_search = rest.pop("words"), rest.pop("no_tools"), rest.pop("no_search")
    allow_query, name, demo = rest.pop("allow_query"), rest.pop("name"), rest.pop("demo")
    policy_file, report_only = rest.pop("policy"), rest.pop("policy_report_only")
    options = {option: rest.pop(option) for option in SOURCE_OPTIONS}
    settings = choose_transport(ctx, **rest)
    if not words and not demo:
        raise click.UsageError("Give a folder to publish, for example `wharfinger serve .`", ctx)
    for word in words:
        if word.endswith(".py") and os.path.isfile(word):
            raise click.UsageError(
                f"{word} is a Python file: run the server in it with `wharfinger run {word}`,"
                f" or publish it as a file with `wharfinger serve {os.path.dirname(word) or '.'}"
                f" --include {os.path.basename(word)}`.",
                ctx,
            )
    if no_tools and allow_query:
        raise click.UsageError("--allow-query and --no-tools exclude each other.", ctx)
    check_options(ctx, words, {**options, "allow_query": allow_query})
    for size_option in ("max_size", "max_clone_size"):
        if options[size_option]:
            from wharfinger.cli.serving.limits_option import parse_amount

            options[size_option] = int(parse_amount(options[size_option]))
    if demo:
        words = (copy_demo(ctx, stack, words),)
    source_options = {option: value for option, value in options.items() if is_given(value)}
    if policy_file or INLINE in ctx.meta:  # every caller gets the name, which would otherwise contain all labels
        name = name or "wharfinger"
    server, sources = make_server(
        words, source_options, name=name, tools=not no_tools, search=not no_search, query=allow_query
    )
    if policy:
        set_policy(ctx, server, policy_file, report_only)
    return settings, server, sources


def file_context(file: str) -> click.Context:
    """Return the context of `wharfinger serve -f FILE`, in which variables such as WHARFINGER_SERVE_HTTP apply.

    Raises:
        WharfingerError: the file cannot be used.
    """
    from wharfinger.cli.app import name_variables

    name_variables(serve, "WHARFINGER_SERVE")
    return serve.make_context("serve", ["-f", file], obj=Verbosity())


def copy_demo(ctx: click.Context, stack: ExitStack, words: tuple[str, ...]) -> str:
    """Copy the folder, and return the path of the copy, which is removed when the stack is closed."""
    from wharfinger.cli.serving.demo_folder import demo_folder
    from wharfinger.sources.registry import FILES, parse_word

    if len(words) > 1 or any(parse_word(word).kind is not FILES for word in words):
        raise click.UsageError("--demo takes one folder.", ctx)
    return stack.enter_context(demo_folder(words[0] if words else None))


def serve_with_banner(
    ctx: click.Context, settings: HttpSettings, server: Server, sources: list[PreparedSource], verbosity: Verbosity
) -> int:
    """Serve over HTTP with the banner."""
    from wharfinger.cli.executable import own_command
    from wharfinger.cli.render.banner import make_banner
    from wharfinger.cli.serving.serve_runner import serve_http
    from wharfinger.cli.serving.startup_info import StartupInfo, collect_startup_info, host_arguments, omitted_secrets

    server_file = ctx.meta[INLINE][0] if INLINE in ctx.meta else None
    target = host_arguments(ctx.params, sources, server_file)
    program, remark = own_command(), omitted_secrets(sources)

    def banner(address: ServerAddress) -> Banner:
        info = StartupInfo((), "") if verbosity.quiet else collect_startup_info(sources)
        return make_banner(server.info.name, info.published, address, program, target, info.live, remark)

    return serve_http(server, settings, banner, verbosity)

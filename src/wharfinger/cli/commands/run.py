"""`wharfinger run`: runs a server from a file or module, over stdio or HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import Verbosity, verbosity_of, verbosity_options
from wharfinger.cli.serving.policy_option import set_policy
from wharfinger.cli.serving.record_options import record_options, set_record
from wharfinger.cli.serving.serving_options import HttpSettings, ServingCommand, choose_transport, serving_options

if TYPE_CHECKING:
    from wharfinger.cli.render.banner import Banner, ServerAddress
    from wharfinger.server import Server

__all__ = ["run"]


@click.command(
    cls=ServingCommand,
    epilog="""\b
Examples:
  wharfinger run server.py
  wharfinger run server.py:harbour --reload --dev
  wharfinger run package.module:app --http 127.0.0.1:9000""",
)
@click.argument("place", metavar="FILE|MODULE[:NAME]")
@click.option("--reload", is_flag=True, help="Restart when a Python file changes (HTTP only).")
@click.option(
    "--dev", is_flag=True, help="Show errors in full, on stderr and to clients, and what blocks the event loop."
)
@serving_options
@record_options
@verbosity_options
@click.pass_context
def run(ctx: click.Context, /, place: str, reload: bool, dev: bool, **serving: Any) -> int | None:
    """Run the Server in a Python file or module.

    NAME is the variable of the Server. The default is the only Server, or the one named server, app or mcp. The
    transport is HTTP on 127.0.0.1:8000 if stdin is a terminal, and stdio otherwise.
    """
    policy, report_only = serving.pop("policy"), serving.pop("policy_report_only")
    settings = choose_transport(ctx, **serving)
    verbosity = verbosity_of(ctx)
    if dev:
        verbosity.level = max(verbosity.level, 1)
    if settings is None:
        if reload:
            raise click.UsageError("--reload needs HTTP: over stdio a restart would end the session.", ctx)
        from wharfinger.cli.serving.serve_runner import serve_stream

        with stdout_to_stderr():
            server = load(place, dev)
        set_record(ctx, server, stdio=serving["unix"] is None)
        set_policy(ctx, server, policy, report_only)
        return serve_stream(server, serving["unix"], serving["limits"], verbosity, tracebacks=dev)
    if reload and not os.environ.get(CHILD_VARIABLE):
        return run_reloading(place)
    server = load(place, dev)
    set_record(ctx, server, stdio=False)
    set_policy(ctx, server, policy, report_only)
    policy_options: tuple[str, ...] = ()
    if policy:
        policy_options = ("--policy", os.path.abspath(policy), *(["--policy-report-only"] if report_only else ()))
    return serve_with_banner(settings, place, server, verbosity, policy_options, dev=dev)


def run_reloading(place: str) -> int:
    """Run this command line in a child process, which is restarted when a file changes.

    A private folder keeps the visitors of the page signed in when the child is restarted.
    """
    from tempfile import TemporaryDirectory

    from wharfinger.cli.serving.reloader import keep_running
    from wharfinger.cli.serving.serve_runner import PAGE_DIRECTORY_VARIABLE

    with TemporaryDirectory(prefix="wharfinger-") as directory:  # only this user may enter it
        return keep_running(place, {CHILD_VARIABLE: "1", PAGE_DIRECTORY_VARIABLE: directory})


def load(place: str, dev: bool) -> Server:
    """Load the server; with `dev` it sends errors to clients in full."""
    from wharfinger.cli.serving.server_loader import load_server

    server = load_server(place)
    if dev:
        from wharfinger.server.middleware.development import develop

        develop(server)
    return server


CHILD_VARIABLE = "_WHARFINGER_RELOADED"
"""Set in the environment of the process that `--reload` starts."""


@contextmanager
def stdout_to_stderr() -> Generator[None]:
    """Redirect stdout, which belongs to the protocol, to stderr while the user's module is imported."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def serve_with_banner(
    settings: HttpSettings,
    place: str,
    server: Server,
    verbosity: Verbosity,
    policy_options: tuple[str, ...],
    *,
    dev: bool,
) -> int:
    """Serve over HTTP with the banner."""
    from wharfinger.cli.executable import own_command
    from wharfinger.cli.render.banner import PublishedSource, make_banner
    from wharfinger.cli.render.formatting import slug
    from wharfinger.cli.serving.serve_runner import serve_http
    from wharfinger.cli.serving.server_loader import source_file, split_place

    file, (path, name) = source_file(place), split_place(place)
    program = own_command()
    label = slug(server.info.name, fallback="server")
    absolute = (f"{file}:{name}" if name else file) if file else place
    target: tuple[str, ...] = (absolute,) if file else ("--", *program, "run", "--stdio", place)
    if policy_options:
        target = ("--name", label, "--", *program, "run", "--stdio", *policy_options, absolute)
    uri = next((uri for uri, _ in server.resources.static.items()), "")

    def banner(address: ServerAddress) -> Banner:
        published = [PublishedSource(server.info.name, f"{feature_counts(server)}, from {file or path}", "Serving")]
        return make_banner(label, published, address, program, target, uri)

    return serve_http(server, settings, banner, verbosity, tracebacks=dev)


def feature_counts(server: Server) -> str:
    """Return the numbers of what a server offers as text, such as `2 tools, 1 prompt`."""
    from wharfinger.content.text import many

    numbers = (
        (len(server.resources.static), "resource"),
        (len(server.resources.templates), "template"),
        (len(server.resources.sources), "source"),
        (len(server.resources.catalogues), "catalogue"),
        (len(server.tools.features), "tool"),
        (len(server.prompts.features), "prompt"),
        (len(server.extensions.declared), "extension"),
    )
    return ", ".join(many(number, noun) for number, noun in numbers if number) or "nothing yet"

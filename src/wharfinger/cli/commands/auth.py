"""`wharfinger auth`: explains how to sign in to a server, signs in, and forgets tokens."""

from __future__ import annotations

import shlex
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wharfinger.cli.error_report import CTRL_C_EXIT_CODE, CommandError
from wharfinger.cli.options import json_option, verbosity_of, verbosity_options
from wharfinger.content.redaction import redacted
from wharfinger.net import is_http_url, split_url

if TYPE_CHECKING:
    from wharfinger.auth.client.grants import Grant
    from wharfinger.auth.client.sign_in import SignIn
    from wharfinger.auth.client.steps import TraceStep

__all__ = ["auth"]

T = TypeVar("T")

NOT_AUTHORIZED_EXIT_CODE = 4
MARKS = {True: "ok", None: "--", False: "NO"}
"""The mark of a step: it succeeded, it did not succeed but signing in can go on, or it failed."""


@click.group(
    epilog="""\b
Examples:
  wharfinger auth explain https://example.com/mcp      the steps of a sign-in
  wharfinger auth login https://example.com/mcp        sign in, in the browser
  wharfinger ls https://example.com/mcp                with the saved token"""
)
def auth() -> None:
    """Sign in to servers with OAuth, and find out why that fails."""


@auth.command(
    epilog="""\b
Examples:
  wharfinger auth explain https://example.com/mcp
  wharfinger auth explain --json https://example.com/mcp | jq .steps"""
)
@click.argument("url")
@click.option("--client-id", metavar="ID", help="Client ID that the authorization server has issued.")
@click.option("--client-metadata-url", metavar="URL", help="URL of the client's own metadata document.")
@click.option("--allow-private-networks", is_flag=True, help="Allow addresses in private networks.")
@json_option
@verbosity_options
def explain(
    url: str, client_id: str | None, client_metadata_url: str | None, allow_private_networks: bool, as_json: bool
) -> None:
    """Show the steps of a sign-in, and what to fix.

    Runs the discovery, and shows what each step checked and found. Registers no client and does not sign in. The exit
    code is 4 if signing in is not possible.
    """
    from wharfinger.auth.client.explain import explain as explain_sign_in
    from wharfinger.auth.client.registration import ClientIdentity
    from wharfinger.auth.client.sign_in_fetch import fetch_for

    login_command = ["wharfinger", "auth", "login"]
    for option, value in (("--client-id", client_id), ("--client-metadata-url", client_metadata_url)):
        login_command += [option, value] if value else []
    login_command += ["--allow-private-networks"] * allow_private_networks + [url]
    identity = ClientIdentity(client_id=client_id, metadata_url=client_metadata_url)
    steps, possible = run(
        explain_sign_in(check_url(url), identity, fetch_for(url, allow_private_networks=allow_private_networks))
    )
    if as_json:
        from wharfinger.cli.render.output import print_json

        print_json({"url": url, "possible": possible, "steps": steps})
    else:
        for step in steps:
            print_step(step)
        say("")
        say(
            f"Sign in with: {shlex.join(login_command)}"
            if possible
            else "Signing in is not possible until the steps marked NO are fixed."
        )
    if not possible:
        raise click.exceptions.Exit(NOT_AUTHORIZED_EXIT_CODE)


@auth.command(
    epilog="""\b
Examples:
  wharfinger auth login https://example.com/mcp
  wharfinger auth login --client-id harbour --redirect-port 8765 https://example.com/mcp"""
)
@click.argument("url")
@click.option("--client-id", metavar="ID", help="Client ID that the authorization server has issued.")
@click.option("--client-secret-env", metavar="NAME", help="Environment variable with the secret of that client ID.")
@click.option("--issuer", metavar="URL", help="Issuer of that client ID.")
@click.option("--client-metadata-url", metavar="URL", help="URL of the client's own metadata document.")
@click.option("--scope", "scopes", metavar="SCOPE", multiple=True, help="Scope to request. Repeatable.")
@click.option(
    "--redirect-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Port of the redirect URI. Default: any.",
)
@click.option("--allow-private-networks", is_flag=True, help="Allow an authorization server in a private network.")
@click.option("--no-browser", is_flag=True, help="Print the address of the page instead of opening it.")
@verbosity_options
@click.pass_context
def login(ctx: click.Context, /, url: str, client_secret_env: str | None, no_browser: bool, **options: Any) -> None:
    """Sign in with the browser, and save the token.

    The token is saved in a file that only you can read. `wharfinger ls` and the other commands that connect to the
    server use it.
    """
    import os

    from wharfinger.auth import SignIn
    from wharfinger.auth.client.token_store import ReplacingTokens

    secret = os.environ.get(client_secret_env) if client_secret_env else None
    if client_secret_env and not secret:
        raise click.UsageError(f"The variable {client_secret_env} is not set: put the secret into it.", ctx)
    for option, value in (("--client-secret-env", client_secret_env), ("--issuer", options["issuer"])):
        if value and not options["client_id"]:
            raise click.UsageError(f"{option} needs --client-id: the ID that the authorization server has issued.", ctx)
    tokens = ReplacingTokens()
    signing = SignIn(
        client_secret=secret,
        tokens=tokens,
        on_url=print_url,
        open_browser=open_nothing if no_browser else None,
        **options,
    )
    grant = run(sign_in(check_url(url), signing, options["allow_private_networks"]))
    if not verbosity_of(ctx).quiet:
        scopes = f" for {' '.join(grant.scope)}" if grant.scope else ""
        say(f"Signed in to {grant.server} by {grant.issuer}{scopes}. The token is saved in {tokens.folder}.")


@auth.command(
    epilog="""\b
Examples:
  wharfinger auth logout https://example.com/mcp"""
)
@click.argument("url")
@verbosity_options
def logout(url: str) -> None:
    """Delete the saved token for a server. It is not revoked, and stays valid until it expires."""
    from wharfinger.auth import FileTokens, SignIn

    if not run(SignIn(tokens=FileTokens()).forget(check_url(url))):
        raise CommandError(f"No token is saved for {url}: `wharfinger auth list` lists the saved ones.")


@auth.command(
    "list",
    epilog="""\b
Examples:
  wharfinger auth list""",
)
@json_option
@verbosity_options
def list_tokens(as_json: bool) -> None:
    """List the servers with a saved token, without the tokens."""
    from wharfinger.auth import FileTokens

    grants = run(FileTokens().grants())
    if as_json:
        from wharfinger.cli.render.output import print_json

        for grant in grants:
            print_json({"url": grant.server, "issuer": grant.issuer, "scopes": grant.scope, "ends": grant.expires_at})
        return
    from wharfinger.cli.render.output import print_rows

    print_rows([(grant.server, grant.issuer, expiry(grant), " ".join(grant.scope)) for grant in grants])


async def sign_in(url: str, signing: SignIn, allow_private_networks: bool) -> Grant:
    """Ask the server how to sign in, and sign in, even if the server requires no token."""
    from wharfinger.auth.client.explain import request_without_token
    from wharfinger.auth.client.sign_in_fetch import fetch_for
    from wharfinger.auth.client.steps import run as drive

    fetch = fetch_for(url, allow_private_networks=allow_private_networks)
    status, header = await drive(request_without_token(url), fetch)
    refusal = 401 if status not in (401, 403) else status
    if not await signing.refused(url, refusal, {"www-authenticate": header}, {}):
        raise CommandError(f"{url} does not accept OAuth tokens{': ' + header[:200] if header else '.'}")
    grant = await signing.grant(url)
    assert grant is not None
    return grant


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; Ctrl-C exits with 130."""
    import asyncio

    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(CTRL_C_EXIT_CODE) from None


def check_url(url: str) -> str:
    """Return the URL of a server, or raise click.UsageError."""
    if not is_http_url(url):
        raise click.UsageError(f"{url}: only servers at http:// and https:// URLs have a sign-in.")
    if split_url(url) is None:
        raise click.UsageError(f"{redacted(url)!r} is not the URL of a server: write it like https://example.com/mcp.")
    return url


async def open_nothing(url: str) -> None:
    """Do nothing: the user opens the page (`--no-browser`)."""


def print_url(url: str) -> None:
    """Print where to sign in."""
    from wharfinger.content.text import escape_controls

    click.echo(f"Sign in at: {escape_controls(url)}", err=True)


def print_step(step: TraceStep) -> None:
    """Print a step and what to fix."""
    say(f"{MARKS[step.good]}  {step.what}")
    say(f"      {step.found}")
    if step.fix:
        say(f"      {step.fix}")


def expiry(grant: Grant) -> str:
    """Return when a token expires, or that it is renewed, as text."""
    if grant.refresh_token is not None:
        return "renewed automatically"
    if grant.expires_at is None:
        return "no known expiry"
    minutes = (grant.expires_at - time.time()) / 60
    return "expired" if minutes <= 0 else f"{minutes:.0f} min left"


def say(line: str) -> None:
    """Print a line with the control characters escaped."""
    from wharfinger.content.text import escape_controls

    click.echo(escape_controls(line))

"""`wharfinger auth`: explain how a server's sign-in goes, sign in, and forget it; knows no protocol of it."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wharfinger.cli.failures import CTRL_C, Failed
from wharfinger.cli.options import Verbosity, json_option, verbosity_options

if TYPE_CHECKING:
    from wharfinger.auth.client.grants import Grant
    from wharfinger.auth.client.sign_in import SignIn
    from wharfinger.auth.client.steps import TraceStep

__all__ = ["auth", "kept_sign_in"]

T = TypeVar("T")

NOT_AUTHORIZED = 4
MARKS = {True: "ok", None: "--", False: "NO"}
"""How a step is marked: it is as it should be, it leads on elsewhere, it is wrong."""


@click.group(
    epilog="""\b
Examples:
  wharfinger auth explain https://example.com/mcp      what a sign-in would ask and find
  wharfinger auth login https://example.com/mcp        sign in, in the browser
  wharfinger ls https://example.com/mcp                with the token that was kept"""
)
def auth() -> None:
    """Sign in to servers that want it (OAuth), and find out why it does not work."""


@auth.command(
    epilog="""\b
Examples:
  wharfinger auth explain https://example.com/mcp
  wharfinger auth explain --json https://example.com/mcp | jq .steps"""
)
@click.argument("url")
@click.option("--client-id", metavar="ID", help="A client id that the authorization server has given out.")
@click.option("--client-metadata-url", metavar="URL", help="The client's own metadata document.")
@click.option("--private", is_flag=True, help="Ask addresses in private networks, too.")
@json_option
@verbosity_options
def explain(url: str, client_id: str | None, client_metadata_url: str | None, private: bool, as_json: bool) -> None:
    """Walk through the discovery, and say at each step what was asked, what was found and what to mend.

    Nothing is registered and nobody signs in. Exit code 4 where nobody could.
    """
    from wharfinger.auth.client.explain import explain as walk
    from wharfinger.auth.client.fetching import fetch_for
    from wharfinger.auth.client.registration import ClientIdentity

    identity = ClientIdentity(client_id=client_id, metadata_url=client_metadata_url)
    trail, good = run(walk(checked(url), identity, fetch_for(url, allow_private_networks=private)))
    if as_json:
        from wharfinger.cli.output import print_json

        print_json({"url": url, "possible": good, "steps": trail})
    else:
        for note in trail:
            tell(note)
        say("")
        say(f"Sign in with: wharfinger auth login {url}" if good else "Nobody can sign in before that is mended.")
    if not good:
        raise click.exceptions.Exit(NOT_AUTHORIZED)


@auth.command(
    epilog="""\b
Examples:
  wharfinger auth login https://example.com/mcp
  wharfinger auth login --client-id harbour --redirect-port 8765 https://example.com/mcp"""
)
@click.argument("url")
@click.option("--client-id", metavar="ID", help="A client id that the authorization server has given out.")
@click.option(
    "--client-secret-env", metavar="NAME", help="Environment variable that holds the secret of that client id."
)
@click.option("--issuer", metavar="URL", help="Who has given out that client id.")
@click.option("--client-metadata-url", metavar="URL", help="The client's own metadata document.")
@click.option("--scope", "scopes", metavar="SCOPE", multiple=True, help="Ask for this scope, too. Repeatable.")
@click.option("--redirect-port", type=click.IntRange(0, 65535), default=0, help="Port of the redirect; else any.")
@click.option(
    "--private", "allow_private_networks", is_flag=True, help="Allow an authorization server in a private network."
)
@click.option("--no-browser", is_flag=True, help="Print the address of the page, and open nothing.")
@verbosity_options
@click.pass_context
def login(ctx: click.Context, /, url: str, client_secret_env: str | None, no_browser: bool, **options: Any) -> None:
    """Sign in in the browser, and keep the token for the other commands (in files that only you can read)."""
    import os

    from wharfinger.auth import FileTokens, SignIn

    secret = os.environ.get(client_secret_env) if client_secret_env else None
    if client_secret_env and not secret:
        raise click.UsageError(f"The variable {client_secret_env} is not set: put the secret into it.", ctx)
    tokens = FileTokens()
    try:
        signing = SignIn(
            client_secret=secret, tokens=tokens, on_url=show, open_browser=nowhere if no_browser else None, **options
        )
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    grant = run(sign_in(checked(url), signing, options["allow_private_networks"]))
    if not (isinstance(ctx.obj, Verbosity) and ctx.obj.quiet):
        scopes = f" for {' '.join(grant.scope)}" if grant.scope else ""
        say(f"Signed in to {grant.server} by {grant.issuer}{scopes}. The token is kept in {tokens.folder}.")


@auth.command(
    epilog="""\b
Examples:
  wharfinger auth logout https://example.com/mcp"""
)
@click.argument("url")
@verbosity_options
def logout(url: str) -> None:
    """Delete the token for a server. It is not revoked: it ends by itself."""
    from wharfinger.auth import FileTokens, SignIn

    if not run(SignIn(tokens=FileTokens()).forget(checked(url))):
        raise Failed(f"No token is kept for {url}: `wharfinger auth list` tells for what there is one.")


@auth.command(
    "list",
    epilog="""\b
Examples:
  wharfinger auth list""",
)
@json_option
@verbosity_options
def list_kept(as_json: bool) -> None:
    """List what there are tokens for, never the tokens."""
    from wharfinger.auth import FileTokens

    grants = run(FileTokens().grants())
    if as_json:
        from wharfinger.cli.output import print_json

        for grant in grants:
            print_json({"url": grant.server, "issuer": grant.issuer, "scopes": grant.scope, "ends": grant.expires_at})
        return
    from wharfinger.cli.output import print_rows

    print_rows([(grant.server, grant.issuer, lasts(grant), " ".join(grant.scope)) for grant in grants])


def kept_sign_in() -> SignIn:
    """What gets other commands in: tokens that are kept, renewed where they can be; it opens no page."""
    from wharfinger.auth import FileTokens, SignIn

    return SignIn(tokens=FileTokens(), interactive=False)


async def sign_in(url: str, signing: SignIn, private: bool) -> Grant:
    """Ask the server, and sign in as its answer says."""
    from wharfinger.auth.client.explain import first_request
    from wharfinger.auth.client.fetching import fetch_for
    from wharfinger.auth.client.steps import run as drive

    status, header = await drive(first_request(url), fetch_for(url, allow_private_networks=private))
    await signing.forget(url)  # who signs in again may want to be somebody else
    asked = 401 if status not in (401, 403) else status
    if not await signing.refused(url, asked, {"www-authenticate": header}, {}):
        raise Failed(f"{url} wants other credentials than a token: {header[:200]}")
    grant = await signing.grant(url)
    assert grant is not None
    return grant


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C is an end too."""
    import asyncio

    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(CTRL_C) from None


def checked(url: str) -> str:
    """Refuse what is no URL of a server, as a usage error."""
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"{url}: only servers behind http:// and https:// have a sign-in.")
    return url


async def nowhere(url: str) -> None:
    """Open no page: the person does."""


def show(url: str) -> None:
    """Tell where to sign in."""
    from wharfinger.cli.words import printable

    click.echo(f"Sign in at: {printable(url)}", err=True)


def tell(note: TraceStep) -> None:
    """Print a step, and what to mend."""
    say(f"{MARKS[note.good]}  {note.what}")
    say(f"      {note.found}")
    if note.fix:
        say(f"      {note.fix}")


def lasts(grant: Grant) -> str:
    """How long a token lasts."""
    if grant.refresh_token is not None:
        return "renewed by itself"
    if grant.expires_at is None:
        return "no known end"
    minutes = (grant.expires_at - time.time()) / 60
    return "ended" if minutes <= 0 else f"{minutes:.0f} min left"


def say(line: str) -> None:
    """Print a line, with nothing in it that a terminal would obey."""
    from wharfinger.cli.words import printable

    click.echo(printable(line))

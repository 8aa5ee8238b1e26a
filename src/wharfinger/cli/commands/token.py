"""`wharfinger token`: creates, lists and revokes the tokens that a server with `--tokens` accepts."""

from __future__ import annotations

import re
import shlex
import time

import click

from wharfinger.cli.options import json_option, verbosity_of, verbosity_options

__all__ = ["token"]

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
MAX_SECONDS = 100 * 365 * 86_400
"""The maximum lifetime of a token: 100 years."""


@click.group(
    epilog="""\b
Examples:
  wharfinger token create tokens.json --sub ann --group finance --expires 30d
  wharfinger token list tokens.json
  wharfinger serve ./docs --http --tokens tokens.json"""
)
def token() -> None:
    """Create, list and revoke tokens for your server."""


def seconds_of(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return a lifetime such as 30d in seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,10})([smhdw])", value)
    if match is None or not 0 < int(match[1]) * UNIT_SECONDS[match[2]] <= MAX_SECONDS:
        raise click.BadParameter(f"{value!r} is not a time: write a number and s, m, h, d or w, such as 30d.")
    return float(int(match[1]) * UNIT_SECONDS[match[2]])


@token.command(
    epilog="""\b
Examples:
  wharfinger token create tokens.json --sub ann --group finance --expires 30d
  export WHARFINGER_TOKEN=$(wharfinger token create -q tokens.json --sub ci)"""
)
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--sub", required=True, metavar="NAME", help="Who uses the token: a person or a program.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Group of the caller. Repeatable.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="Scope of the token. Repeatable.")
@click.option("--expires", callback=seconds_of, metavar="TIME", help="How long it is valid, such as 30d or 12h.")
@verbosity_options
@click.pass_context
def create(
    ctx: click.Context, file: str, sub: str, groups: tuple[str, ...], scopes: tuple[str, ...], expires: float | None
) -> None:
    """Add a token to FILE, and print it.

    FILE keeps only a digest, so the token cannot be shown again. FILE is created if it does not exist.
    """
    from wharfinger.auth.server.static_tokens import create_token
    from wharfinger.content.text import escape_controls

    expires_at = None if expires is None else time.time() + expires
    try:
        secret, record = create_token(file, sub, groups=groups, scopes=scopes, expires=expires_at)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    click.echo(secret)
    if not verbosity_of(ctx).quiet:
        revoke_command = shlex.join(["wharfinger", "token", "revoke", file, record.id])
        click.echo(escape_controls(f"This is shown once. To revoke it: {revoke_command}"), err=True)


@token.command(
    "list",
    epilog="""\b
Examples:
  wharfinger token list tokens.json""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option
@verbosity_options
def list_tokens(file: str, as_json: bool) -> None:
    """List the tokens of FILE: id, caller, groups, scopes and expiry."""
    from wharfinger.auth.server.static_tokens import read_tokens
    from wharfinger.content.text import escape_controls, iso

    records = read_tokens(file)
    if as_json:
        from wharfinger.cli.render.output import print_json

        objects = [
            {
                "id": record.id,
                "sub": record.sub,
                "groups": record.groups,
                "scopes": record.scopes,
                "created": iso(record.created),
                "expires": None if record.expires is None else iso(record.expires),
            }
            for record in records
        ]
        print_json({"tokens": objects})
        return
    now = time.time()
    for record in records:
        end = "does not expire"
        if record.expires is not None:
            end = f"{'expired' if record.expires <= now else 'until'} {iso(record.expires)}"
        parts = [record.id, record.sub, *(f"group {name}" for name in record.groups), *record.scopes, end]
        click.echo(escape_controls("  ".join(parts)))
    if not records:
        create_command = shlex.join(["wharfinger", "token", "create", file, "--sub", "NAME"])
        click.echo(escape_controls(f"{file} has no tokens: {create_command}"), err=True)


@token.command(
    epilog="""\b
Examples:
  wharfinger token revoke tokens.json 0a1b2c3d4e5f"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("id")
@verbosity_options
@click.pass_context
def revoke(ctx: click.Context, file: str, id: str) -> None:
    """Remove the token ID from FILE. Running servers refuse it within a second or two."""
    from wharfinger.auth.server.static_tokens import revoke_token
    from wharfinger.content.text import escape_controls

    record = revoke_token(file, id)
    if not verbosity_of(ctx).quiet:
        click.echo(escape_controls(f"Revoked the token {record.id} of {record.sub}."))

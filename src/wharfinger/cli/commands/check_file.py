"""`wharfinger check`: checks the file of `serve -f` without serving."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import json_option, verbosity_options

if TYPE_CHECKING:
    from wharfinger.cli.serving.serving_options import HttpSettings
    from wharfinger.policy import Policy
    from wharfinger.sources.registry import PreparedSource

__all__ = ["check"]

FETCH_SECONDS = 10.0
CLOSE_SECONDS = 1.0
"""The maximum time for a source to close, after its time to answer (`patience`) is over."""


@click.command(
    epilog="""\b
Examples:
  wharfinger check -f wharfinger.toml
  wharfinger check -f wharfinger.toml --online"""
)
@click.option("-f", "--file", required=True, type=click.Path(dir_okay=False), metavar="FILE", help="The file to check.")
@click.option("--online", is_flag=True, help="Also fetch the keys of the authorization servers.")
@json_option
@verbosity_options
def check(file: str, online: bool, as_json: bool) -> int:
    """Check the file of `wharfinger serve -f` without serving.

    Reports sources that do not exist or do not answer, certificates and token files that cannot be used, tests of the
    policy that fail, and rules that can never match. Exit codes: 0 nothing found, 1 something should be changed, 2 the
    file cannot be used.
    """
    from wharfinger.cli.commands.policy_commands import check_policy, print_findings, rules_in
    from wharfinger.cli.commands.serve import build, file_context
    from wharfinger.cli.serving.policy_option import INLINE
    from wharfinger.cli.serving.published_lists import read_server_lists
    from wharfinger.policy.findings import unmatched_beginnings

    problems: list[str] = []
    with ExitStack() as stack:
        ctx = file_context(file)
        settings, server, sources = build(ctx, stack, policy=False)
        rules = rules_in(ctx.params["policy"] or file)
        problems += source_problems(sources)
        if settings is not None:
            problems += http_problems(settings, online)
        has_policy = bool(ctx.params["policy"]) or INLINE in ctx.meta
        lists = read_server_lists(server, lambda uris: unmatched_beginnings(rules, uris)) if has_policy else None
        findings, public = check_policy(rules, lists)
        if has_policy and settings is not None:
            problems += issuer_problems(rules, settings)
    failed = bool(problems) or (has_policy and any(finding.problem for finding in findings))
    if as_json:
        from wharfinger.cli.render.output import print_json

        report: dict[str, Any] = {"problems": problems}
        if has_policy:
            report |= {"findings": [finding._asdict() for finding in findings], "anyone": public._asdict()}
        print_json(report)
        return 1 if failed else 0
    from wharfinger.content.text import escape_controls, many

    for problem in problems:
        click.echo(escape_controls(problem))
    click.echo(f"{many(len(sources), 'source')}, {'with' if has_policy else 'no'} policy.")
    if has_policy:
        print_findings(findings, public, lists)
    elif not problems:
        click.echo("No problems.")
    return 1 if failed else 0


def source_problems(sources: Sequence[PreparedSource]) -> list[str]:
    """Return a sentence for each source that is not available, or does not answer."""
    from wharfinger.content.redaction import redacted_text

    def ask(number: int, prepared: PreparedSource) -> None:
        source = prepared.source

        async def probe() -> None:
            try:
                async with asyncio.timeout(source.patience):
                    await source.start()
                    answer = source.probe()
                    if isinstance(answer, Awaitable):
                        await answer
            finally:
                await source.close()

        try:
            asyncio.run(probe())
        except TimeoutError:
            return
        except Exception as error:
            problems[number] = f"{prepared.name} is not available: {redacted_text(str(error))}"
        else:
            problems[number] = ""

    problems: dict[int, str] = {}
    # Each source has its own daemon thread: the command must not wait for a probe that blocks, even when it exits.
    threads = [threading.Thread(target=ask, args=each, daemon=True) for each in enumerate(sources)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for prepared, thread in zip(sources, threads, strict=True):
        thread.join(max(0.0, began + prepared.source.patience + CLOSE_SECONDS - time.monotonic()))
    # A source without an entry in `problems` has not answered.
    sentences = (
        problems.get(number, f"{prepared.name} does not answer within {prepared.source.patience:g} s.")
        for number, prepared in enumerate(sources)
    )
    return [sentence for sentence in sentences if sentence]


def http_problems(settings: HttpSettings, online: bool) -> Iterator[str]:
    """Yield the faults of certificates and tokens that keep a server over HTTP from starting.

    With `online`, also yield the issuers whose keys cannot be fetched.
    """
    from wharfinger.cli.serving.serve_runner import bearer_check, check_credentials, token_auth
    from wharfinger.errors import WharfingerError
    from wharfinger.transports.http_server.certificate import Certificate
    from wharfinger.transports.http_server.runner import check_local

    def credentials() -> None:
        check_credentials(settings)
        if settings.token_env:
            bearer_check(settings.token_env)
        elif token_auth(settings, settings.listen.port) is None and not settings.insecure:
            check_local(settings.listen.host)

    def certificate() -> None:
        if settings.tls_cert:
            Certificate(settings.tls_cert, settings.tls_key)
        elif settings.tls_key:
            raise ValueError("tls_key needs tls_cert, the certificate of this key.")

    for check_one in (credentials, certificate):
        try:
            check_one()
        except click.UsageError as error:
            yield error.message
        except (WharfingerError, ValueError) as error:
            yield str(error)
    if online:
        yield from asyncio.run(find_unreachable(settings.auth))


async def find_unreachable(issuers: Sequence[str]) -> list[str]:
    """Return a sentence for each issuer whose keys cannot be fetched or used."""
    from wharfinger.auth.client.sign_in_fetch import fetch_for
    from wharfinger.auth.server.key_set import RemoteKeys
    from wharfinger.auth.server.token_verifier import VerifierUnavailable

    problems: list[str] = []
    for issuer in issuers:
        fetch = fetch_for(issuer, allow_private_networks=False, timeout=FETCH_SECONDS)
        try:
            if not await RemoteKeys(issuer, fetch).find(None):
                problems.append(f"{issuer} publishes no keys that can be used.")
        except VerifierUnavailable as error:
            problems.append(f"{issuer} cannot be reached: {error}")
    return problems


def issuer_problems(rules: Policy, settings: HttpSettings) -> list[str]:
    """Return why the rules do not fit the issuers that the server trusts."""
    from wharfinger.policy import UnusablePolicy

    issuers = (*settings.auth, *([""] if settings.tokens else []))  # tokens in a file have no issuer
    try:
        rules.check_issuers(issuers)
    except UnusablePolicy as error:
        return [str(error)]
    return []

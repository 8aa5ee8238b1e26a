"""`wharfinger policy`: writes, checks and explains the file of `--policy`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from wharfinger.cli.options import json_option, verbosity_of, verbosity_options

if TYPE_CHECKING:
    from wharfinger.cli.serving.published_lists import ServerLists
    from wharfinger.policy import Policy
    from wharfinger.policy.findings import Finding, PublicView
    from wharfinger.protocol.principal import Principal
    from wharfinger.server import Server

__all__ = ["check_policy", "policy", "print_findings"]

MAX_CLAIMS_BYTES = 1024 * 1024


@click.group(
    epilog="""\b
Examples:
  wharfinger policy init ./docs
  wharfinger policy check policy.toml ./docs
  wharfinger policy explain policy.toml --as sub:bob --as group:staff read file:///docs/a.md
  wharfinger serve --http --tokens tokens.json --policy policy.toml ./docs"""
)
def policy() -> None:
    """Write, check and explain the rules that say who may do what."""


@policy.command(
    epilog="""\b
Examples:
  wharfinger policy init ./docs git:.
  wharfinger policy init -o rules.toml sqlite:///shop.db
  wharfinger policy init server.py"""
)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET…")
@click.option("-o", "--output", default="policy.toml", show_default=True, metavar="FILE", help="File to write.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@verbosity_options
@click.pass_context
def init(ctx: click.Context, targets: tuple[str, ...], output: str, force: bool) -> None:
    """Write a first policy for what TARGET publishes.

    TARGET is what `wharfinger serve` publishes (a folder, git:PATH, a database's URL, several of them), or a server.
    The policy lets local callers, and callers with a token, read everything that does not look private. Change it as
    you need.
    """
    from wharfinger.cli.serving.published_lists import MAX_LISTED, read_target_lists
    from wharfinger.cli.serving.server_loader import split_place
    from wharfinger.content.text import escape_controls
    from wharfinger.policy.first_policy import first_policy

    path = Path(output)
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists already: choose another file with -o, or replace it with --force.", ctx)
    lists = read_target_lists(ctx, targets)
    place = split_place(targets[0])[0]
    command = "run" if place.endswith(".py") and Path(place).is_file() else "serve"
    shown, remarks = shown_words(targets)
    words, shown_path = escape_controls(shlex.join(shown)), escape_controls(shlex.quote(str(path)))
    text = first_policy(lists.published, lists.read_only_tools, targets=words, file=shown_path, command=command)
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)
    if not verbosity_of(ctx).quiet:
        click.echo(f"Wrote {escape_controls(str(path))}. Check it with: wharfinger policy check {shown_path} {words}")
        for remark in remarks:
            click.echo(remark)
        if not lists.published.complete:
            click.echo(
                f"Only the first {MAX_LISTED:,} items of a list were read: the policy may not deny what looks private "
                "among the others."
            )


def shown_words(targets: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of TARGET without passwords, and a remark for each omitted password that says how to pass it."""
    from wharfinger.content.redaction import redacted
    from wharfinger.source import UnusableSource
    from wharfinger.sources.registry import parse_word, secret_remark, shown_word

    words: list[str] = []
    remarks: list[str] = []
    for target in targets:
        try:
            parsed = parse_word(target)
        except UnusableSource:  # a server: `server.py:harbour`
            words.append(redacted(target))
            continue
        shown = shown_word(parsed)
        words.append(shown if parsed.label is None else f"{parsed.label}={shown}")
        if remark := secret_remark(parsed):
            remarks.append(f"{remark[0].upper()}{remark[1:]}.")
    return words, remarks


@policy.command(
    epilog="""\b
Examples:
  wharfinger policy check policy.toml
  wharfinger policy check policy.toml ./docs
  wharfinger policy check --json wharfinger.toml"""
)
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("targets", nargs=-1, metavar="[TARGET…]")
@json_option
@verbosity_options
@click.pass_context
def check(ctx: click.Context, file: str, targets: tuple[str, ...], as_json: bool) -> int:
    """Run the tests of FILE, and find rules that can never match.

    With TARGET, rules are compared with what it publishes. FILE may be a wharfinger.toml, whose sources are used.
    Exit codes: 0 nothing found, 1 a test fails or a rule should be changed, 2 the file cannot be used.
    """
    from wharfinger.cli.serving.published_lists import read_server_lists, read_target_lists
    from wharfinger.policy.findings import unmatched_beginnings

    with ExitStack() as stack:
        rules, server = load_rules(file, stack)

        # Rules may name resources that are not listed: the server is asked whether these exist.
        def choose_probes(uris: Sequence[str]) -> list[str]:
            return unmatched_beginnings(rules, uris)

        lists: ServerLists | None = None
        if targets:
            lists = read_target_lists(ctx, targets, choose_probes)
        elif server is not None:
            lists = read_server_lists(server, choose_probes)
    findings, public = check_policy(rules, lists)
    if as_json:
        from wharfinger.cli.render.output import print_json

        print_json({"findings": [finding._asdict() for finding in findings], "anyone": public._asdict()})
    else:
        print_findings(findings, public, lists)
    return 1 if any(finding.problem for finding in findings) else 0


def load_rules(file: str, stack: ExitStack) -> tuple[Policy, Server | None]:
    """Return the policy of a file without running its tests, and the server if the file configures one.

    Raises:
        WharfingerError: the file cannot be used.
    """
    from wharfinger.cli.serving.server_file import RULES, read_table

    rules = rules_in(file)
    if not set(read_table(Path(file))) - set(RULES):
        return rules, None
    from wharfinger.cli.commands.serve import build, file_context

    return rules, build(file_context(file), stack, policy=False)[1]


def rules_in(file: str) -> Policy:
    """Return the policy in a policy file, or that of a server's file, which contains rules or names a policy file.

    A server's file with neither gives an empty policy. The tests of the policy are not run.

    Raises:
        WharfingerError: the file cannot be used.
    """
    from wharfinger.cli.serving.server_file import RULES, FileValues, read_table
    from wharfinger.policy import Policy

    path = Path(file)
    table = read_table(path)
    rule_tables = {key: table[key] for key in RULES if key in table}
    if not rule_tables and "policy" in table:
        from wharfinger.cli.commands.serve import serve

        path = Path(FileValues(path, serve).convert({"policy": table["policy"]})["policy"])
        rule_tables = read_table(path)
    rules = Policy.from_tables(rule_tables, name=str(path))
    return rules.relative_to(path.parent) if rules.has_roots else rules


def check_policy(rules: Policy, lists: ServerLists | None) -> tuple[list[Finding], PublicView]:
    """Return the findings about a policy, and what anyone may do."""
    from wharfinger.policy.findings import find_problems, public_view

    published = None if lists is None else lists.published
    if published is not None and published.roots is not None:
        rules = rules.bind_roots(published.roots)
    return find_problems(rules, published), public_view(rules, published)


def print_findings(findings: Sequence[Finding], public: PublicView, lists: ServerLists | None) -> None:
    """Print findings, and what anyone may do."""
    from wharfinger.content.text import escape_controls, many

    for finding in findings:
        head = f"{finding.rule}: " if finding.rule else ""
        click.echo(escape_controls(f"{head}{finding.message}{'' if finding.problem else ' (note)'}"))
    if not public.rules:
        click.echo("Without a token, nobody may do anything.")
    elif lists is None:
        click.echo(escape_controls(f"Without a token, anyone may do what {', '.join(public.rules)} allows."))
    else:
        published = lists.published
        more = "" if published.complete else "more than "
        examples = ", ".join(public.examples)
        share = f"{public.number:,} of {more}{many(len(published.uris), 'resource')}"
        example_list = f": {examples}{', …' if public.number > len(public.examples) else ''}" if examples else ""
        click.echo(escape_controls(f"Without a token, anyone may read {share}{example_list}."))
        if public.tools or public.prompts:
            click.echo(escape_controls(f"And use {', '.join((*public.tools, *public.prompts))}."))
    problem_count = sum(finding.problem for finding in findings)
    click.echo(f"{many(problem_count, 'problem')}." if problem_count else "No problems.")


@policy.command(
    epilog="""\b
Examples:
  wharfinger policy explain policy.toml --as sub:bob --as group:staff read file:///docs/a.md
  wharfinger policy explain policy.toml --as anyone read file:///docs/a.md
  wharfinger policy explain policy.toml --claims claims.json call tool:orders
  wharfinger policy explain policy.toml --tokens tokens.json --token 0a1b2c3d4e5f read file:///docs/a.md"""
)
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("action")
@click.argument("uri")
@click.option(
    "--as",
    "who",
    multiple=True,
    metavar="WHO",
    help="The caller: anyone, local, or sub:NAME, group:NAME, client:ID, email:ADDRESS, claim.NAME:VALUE. Repeatable.",
)
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="Scope of the token. Repeatable.")
@click.option("--issuer", default="", metavar="URL", help="The authorization server that issued the token.")
@click.option("--claims", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE",
              help="The claims of a token, in JSON; - for stdin.")  # fmt: skip
@click.option("--tokens", type=click.Path(dir_okay=False), metavar="FILE", help="The file with the token of --token.")
@click.option("--token", metavar="ID", help="A token of --tokens, by its id, as `wharfinger token list` shows it.")
@json_option
@verbosity_options
@click.pass_context
def explain(ctx: click.Context, /, file: str, action: str, uri: str, as_json: bool, **options: Any) -> int:
    """Say whether a caller may do ACTION on URI, and why.

    Names the rule that decides. ACTION is read, call, prompt, query or inspect; for a tool write call tool:NAME. If no
    rule allows it, the nearest rules are listed: those for which the caller lacks only one thing. FILE may be a
    wharfinger.toml. Exit codes: 0 allowed, 1 refused, 2 an error.
    """
    from wharfinger.policy.explanation import explain as explain_decision
    from wharfinger.policy.rule import action_and_target

    caller = caller_of(ctx, **options)
    verb, target = action_and_target(f"{action} {uri}")
    with ExitStack() as stack:
        rules, server = load_rules(file, stack)
        if server is not None and rules.has_roots:
            from wharfinger.server.published_roots import patterns_in

            rules = rules.bind_roots(lambda directory: patterns_in(directory, server.resources.every_source()))
        explanation = explain_decision(rules, caller, verb, target)
    if as_json:
        from wharfinger.cli.render.output import print_json

        near_misses = [miss._asdict() for miss in explanation.near_misses]
        print_json({**explanation._asdict(), "near_misses": near_misses, "action": verb, "target": target})
        return 0 if explanation.allowed else 1
    from wharfinger.content.text import escape_controls

    if explanation.allowed:
        reason = f"allowed by {explanation.rule}"
    elif explanation.rule:
        reason = f"refused by {explanation.rule}"
    else:
        reason = "refused: no rule allows it"
    click.echo(escape_controls(f"{verb} {target}: {reason}."))
    if explanation.missing_scopes:
        click.echo(escape_controls(f"The refusal names the scopes to request: {' '.join(explanation.missing_scopes)}."))
    for miss in explanation.near_misses:
        click.echo(escape_controls(f"{miss.rule} would allow it, but {miss.needs}."))
    if explanation.remark:
        click.echo(explanation.remark)
    if server is None and rules.has_roots:
        click.echo("Rules with roots are left out: give the wharfinger.toml with the sources instead.")
    return 0 if explanation.allowed else 1


def caller_of(
    ctx: click.Context,
    *,
    who: tuple[str, ...],
    scopes: tuple[str, ...],
    issuer: str,
    claims: str | None,
    tokens: str | None,
    token: str | None,
) -> Principal:
    """Return the principal that the options of `explain` describe."""
    from wharfinger.policy.policy import principal_of
    from wharfinger.protocol.principal import Principal

    if bool(tokens) != bool(token):
        raise click.UsageError("--tokens FILE and --token ID belong together.", ctx)
    if sum(map(bool, (who, claims, token))) != 1:
        raise click.UsageError("Say who the caller is with one of --as, --claims and --token.", ctx)
    if (scopes or issuer) and not who:
        raise click.UsageError("--scope and --issuer belong to --as: a token and its claims have their own.", ctx)
    if token:
        import time

        from wharfinger.auth.server.static_tokens import read_tokens

        # A whole token, `wf_ID_SECRET`, is accepted too.
        id = token.split("_")[1] if token.startswith("wf_") and token.count("_") > 1 else token
        record = next((stored for stored in read_tokens(str(tokens)) if stored.id == id), None)
        if record is None:
            raise click.UsageError(f"{tokens} has no such token: see `wharfinger token list {tokens}`.", ctx)
        if record.expires is not None and record.expires <= time.time():
            click.echo("The token has expired: the server refuses every request with it.", err=True)
        return Principal(subject=record.sub, scopes=frozenset(record.scopes), claims={"groups": list(record.groups)})
    if claims:
        return principal_of(read_claims(ctx, claims))
    if len(who) == 1 and who[0] in ("anyone", "local") and not scopes and not issuer:
        return principal_of(who[0])
    return principal_of(claims_of(ctx, who) | {"scopes": list(scopes), "iss": issuer})


def claims_of(ctx: click.Context, who: Sequence[str]) -> dict[str, Any]:
    """Return the claims that words such as sub:ann and group:staff stand for."""
    from wharfinger.policy.who import parse_selector

    values: dict[str, Any] = {}
    for word in who:
        selector = parse_selector(word)
        value = selector.text.removeprefix("claim.").removeprefix(f"{selector.field}:")
        if selector.is_claim or selector.field == "group":
            claim = selector.field if selector.is_claim else "groups"
            known = values.get(claim)
            values[claim] = value if known is None else [*(known if isinstance(known, list) else [known]), value]
        elif selector.field == "email":
            values |= {"email": value, "email_verified": True}
        elif selector.field in ("sub", "client"):
            values["client_id" if selector.field == "client" else "sub"] = value
        elif selector.field != "signed-in":  # which needs no claim: `someone` is signed in
            raise click.UsageError(f"--as {word}: write --scope for scopes, and anyone or local alone.", ctx)
    return {"sub": "someone", **values}


def read_claims(ctx: click.Context, file: str) -> Mapping[str, Any]:
    """Return the claims of a token from a JSON file."""
    try:
        with click.open_file(file, "rb") as stream:
            decoded = json.loads(stream.read(MAX_CLAIMS_BYTES))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}.", ctx) from None
    except (ValueError, RecursionError):
        raise click.UsageError(f"{file} is not JSON: write the claims of a token as one object.", ctx) from None
    if not isinstance(decoded, dict):
        raise click.UsageError(f"{file} must be one JSON object with the claims of a token.", ctx)
    return cast("dict[str, Any]", decoded)

"""`wharfinger doctor`: connects to a server, checks it, and prints what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import only_target

if TYPE_CHECKING:
    from wharfinger.cli.doctor.checks import DoctorFinding
    from wharfinger.cli.doctor.survey import Survey
    from wharfinger.client import Client

__all__ = ["doctor"]

SHOWN_NAMES = 5
"""Maximum number of names, URIs or facts of one finding that are shown."""
NAME_CHARACTERS = 240
SHOWN_COSTS = 10
KINDS = ("tools", "prompts", "resources", "templates")


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger doctor http://127.0.0.1:8000/mcp
  wharfinger doctor server.py --json
  wharfinger doctor --sample 0 -- python server.py

Exit codes: 0 no problems (there may be advice), 1 problems, 2 usage, 3 cannot connect, 4 not authorised.""",
)
@click.argument("words", nargs=-1, metavar="TARGET", shell_complete=complete_words())
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of resources to read.",
)
@click.option("--no-probe", is_flag=True, help="Do not try the other protocol revisions.")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    sample: int,
    no_probe: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Check a server and print what to change.

    Connects as a host would, reads all lists and some resources, and tries every protocol revision (which starts a
    command again for each). Calls no tool and gets no prompt. A problem keeps a host or model from using something;
    advice makes the server better. The end shows what the definitions of the tools cost a model.
    """
    target = only_target(ctx, words)
    from wharfinger.cli.doctor.checks import check
    from wharfinger.cli.doctor.examine import AllTools, examine
    from wharfinger.cli.targets.open_client import take_connection_options, with_client
    from wharfinger.cli.targets.revision_probe import probe_revisions
    from wharfinger.cli.tracebacks import ServerStderr, add_location

    connection, all_tools = take_connection_options(options), AllTools()

    async def work(client: Client) -> Survey:
        survey = await examine(client, all_tools, sample)
        if not no_probe and connection.revision is None:
            survey.supported, survey.unsupported = await probe_revisions(ctx, target, connection, client.revision)
        return survey

    stderr = ServerStderr()
    survey = with_client(ctx, target, connection, work, stderr, middleware=[all_tools])
    for kind in KINDS:
        getattr(survey, kind).error = add_location(getattr(survey, kind).error, stderr.lines)
    survey.reads = {
        uri: msgspec.structs.replace(read, error=add_location(read.error, stderr.lines))
        for uri, read in survey.reads.items()
    }
    findings = check(survey)
    if as_json:
        from wharfinger.cli.render.output import print_json

        print_json(as_object(survey, findings))
    else:
        print_report(survey, findings, str(target))
    if any(finding.severity == "problem" for finding in findings):
        ctx.exit(1)


def as_object(survey: Survey, findings: list[DoctorFinding]) -> dict[str, Any]:
    """Return the survey and the findings as one JSON object."""
    from wharfinger.cli.doctor.survey import tokens, tool_costs

    costs = tool_costs(survey)
    return {
        "server": {"name": survey.name, "version": survey.version},
        "revisions": survey.supported,
        "offers": {kind: len(getattr(survey, kind).items) for kind in KINDS},
        "read": len(survey.reads),
        "findings": [msgspec.to_builtins(finding) for finding in findings],
        "tokens": {
            "estimate": True,
            "tools": sum(cost.tokens for cost in costs),
            "instructions": tokens(survey.instructions),
            "by_tool": {cost.name: cost.tokens for cost in costs},
        },
    }


def print_report(survey: Survey, findings: list[DoctorFinding], target: str) -> None:
    """Print a report for people."""
    from wharfinger.cli.doctor.survey import CHARACTERS_PER_TOKEN, tokens, tool_costs
    from wharfinger.cli.render.formatting import columns
    from wharfinger.content.text import escape_controls, many

    amounts = [many(len(getattr(survey, kind).items), kind.removesuffix("s")) for kind in KINDS]
    lines = [
        f"{survey.name or 'A server without a name'} {survey.version}".rstrip() + f" at {target}",
        f"Supports {', '.join(survey.supported)}",
        f"Offers {', '.join(amounts)}; {many(len(survey.reads), 'resource')} read",
    ]
    for severity, title in (("problem", "Problems"), ("advice", "Advice")):
        listed = [finding for finding in findings if finding.severity == severity]
        lines += ["", f"{title}: {len(listed) or 'none'}"]
        for finding in listed:
            lines += [f"  {finding.what}{line_end(finding)}", f"    {finding.change}"]
    costs = tool_costs(survey)
    if costs or survey.instructions:
        total = sum(cost.tokens for cost in costs)
        sums = f"{total:,} for {many(len(costs), 'tool')}, {tokens(survey.instructions):,} for the instructions"
        lines += [
            "",
            f"Tokens of every conversation ({CHARACTERS_PER_TOKEN} characters each): {sums}",
            *columns([(f"{cost.tokens:,}".rjust(8), cost.name) for cost in costs[:SHOWN_COSTS]]),
        ]
    for line in lines:
        click.echo(escape_controls(line))


def line_end(finding: DoctorFinding) -> str:
    """Return the end of a finding's line: its first names, URIs or facts, each shortened, or a full stop."""
    if not finding.where:
        return "."
    texts = [f"{text[:NAME_CHARACTERS]}{'…' * (len(text) > NAME_CHARACTERS)}" for text in finding.where[:SHOWN_NAMES]]
    more = len(finding.where) - SHOWN_NAMES
    return f": {', '.join(texts)}" + (f" and {more:,} more" if more > 0 else "")

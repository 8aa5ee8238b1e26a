"""`wharfinger audit`: summarises the record that a server with `--audit` writes."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.commands.token import UNIT_SECONDS
from wharfinger.cli.options import json_option, verbosity_options

if TYPE_CHECKING:
    from wharfinger.record.report import AuditReport

__all__ = ["audit"]

MAX_ROWS = 10_000


@click.group(
    epilog="""\b
Examples:
  wharfinger audit report audit.jsonl --since 7d
  wharfinger audit report audit.jsonl --who ann --json"""
)
def audit() -> None:
    """Read the record of a server: who read, called and searched what, and who was refused."""


def parse_time(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Convert a time such as 7d (ago), 2026-11-01 or 2026-11-01T12:00:00Z to RFC 3339, and None to an empty string."""
    if value is None:
        return ""
    if (ago := re.fullmatch(r"([0-9]{1,9})([smhdw])", value)) is not None:
        seconds = time.time() - int(ago[1]) * UNIT_SECONDS[ago[2]]
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(max(0, seconds)))
    if re.fullmatch(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,3})?Z?)?", value, re.ASCII) is not None:
        with suppress(ValueError):  # such as 2026-02-31
            return f"{datetime.fromisoformat(value.removesuffix('Z')).isoformat(timespec='milliseconds')}Z"
    raise click.BadParameter(f"{value!r} is not a time: write 7d (ago), 2026-11-01 or 2026-11-01T12:00:00Z (UTC).")


@audit.command(
    epilog="""\b
Examples:
  wharfinger audit report audit.jsonl
  wharfinger audit report audit.jsonl --since 24h --what 'file:///docs/private/*'
  wharfinger audit report /var/log/docs/*.jsonl --json"""
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE…", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--since", callback=parse_time, metavar="TIME", help="Only lines since TIME: 7d, 12h, or a date (UTC).")
@click.option("--until", callback=parse_time, metavar="TIME", help="Only lines before TIME.")
@click.option("--who", default="", metavar="NAME", help="Only lines of this subject or address.")
@click.option("--what", default="", metavar="PATTERN", help="Only URIs and names that match; * matches any text.")
@click.option(
    "--limit", default=10, show_default=True, type=click.IntRange(1, MAX_ROWS), metavar="N", help="Rows in each table."
)
@json_option
@verbosity_options
@click.pass_context
def report(
    ctx: click.Context, files: tuple[Path, ...], since: str, until: str, who: str, what: str, limit: int, as_json: bool
) -> None:
    """Summarise FILE and its rotated files, which may be compressed.

    Lines that cannot be read are counted and skipped.
    """
    from wharfinger.content.text import escape_controls, many
    from wharfinger.record.report import AuditReport, with_rotated_files

    summary = AuditReport(since=since, until=until, who=who, what=what)
    for path in with_rotated_files(files):
        try:
            summary.add_file(path)
        except OSError as error:
            raise click.UsageError(f"{path} cannot be read: {error.strerror}", ctx) from None
    if summary.damaged_count:
        more = "" if summary.damaged_count <= len(summary.damaged) else ", …"
        damaged = f"{many(summary.damaged_count, 'damaged line')}: {', '.join(summary.damaged)}{more}"
        click.echo(escape_controls(damaged), err=True)
    if as_json:
        from wharfinger.cli.render.output import print_json

        print_json(summary.as_dict(limit))
    else:
        print_report(summary, limit)


def print_report(summary: AuditReport, limit: int) -> None:
    """Print the tables that have rows."""
    from wharfinger.cli.render.output import print_rows
    from wharfinger.content.text import escape_controls, many, size_text

    if not summary.line_count:
        click.echo("No lines match.")
        return
    outcomes = ", ".join(f"{number:,} {outcome}" for outcome, number in summary.outcomes.items() if number)
    lines = many(summary.line_count, "line")
    click.echo(escape_controls(f"{summary.first} to {summary.last}: {lines}, {outcomes or 'no requests'}"))
    if summary.unrecorded:
        click.echo(f"Not in the log, which could not be written: {summary.unrecorded:,} requests or lines.")
    data = summary.as_dict(limit)
    tables: list[tuple[str, list[tuple[str, ...]]]] = [
        ("Most read", [(f"{row['count']:,}", row["target"]) for row in data["read"]]),
        ("Who read what", [(f"{row['count']:,}", row["who"], row["target"]) for row in data["readBy"]]),
        (
            "Refused",
            [
                (f"{row['count']:,}", row["who"], row["outcome"], row["action"], row["target"], row["rule"])
                for row in data["refused"]
            ],
        ),
        (
            f"Searches that found nothing (of {summary.searches:,})",
            [(f"{row['count']:,}", row["query"] or "(words are not recorded)") for row in data["foundNothing"]],
        ),
        (
            "Callers",
            [(row["who"], many(row["requests"], "request"), size_text(row["bytes"])) for row in data["callers"]],
        ),
    ]
    for title, rows in tables:
        if rows:
            click.echo(f"\n{title}")
            print_rows([("  " + row[0], *row[1:]) for row in rows])
    if data["tooLowBy"]:
        click.echo(f"\nThere are too many names to count all: a number may be too low by up to {data['tooLowBy']:,}.")

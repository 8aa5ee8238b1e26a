"""The options of `serve` and `run` for the record of requests and for metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wharfinger.cli.options import Verbosity

if TYPE_CHECKING:
    from wharfinger.record import AuditLog
    from wharfinger.server import Server

__all__ = ["record_options", "set_record"]

F = TypeVar("F", bound=Callable[..., Any])


def record_options(command: F) -> F:
    """Add the options. The command has no parameters for them, and calls `set_record`, which finds their values."""
    for add in reversed(OPTIONS):
        command = add(command)
    return command


def store_value(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store the value of an option for `set_record`."""
    ctx.meta.setdefault(VALUES, {})[param.name] = value


def option(name: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option whose value is stored by `store_value` instead of being passed to the command."""
    return click.option(name, expose_value=False, callback=store_value, **settings)


VALUES = "wharfinger.record"
"""Key of `ctx.meta` for the values of these options."""

OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--audit",
        type=click.Path(allow_dash=True),
        default="",
        metavar="FILE|-",
        help="Record who read, watched and called what, a line of JSON each. - is stdout, or stderr with stdio.",
    ),
    option("--audit-queries", is_flag=True, help="Record the words of searches too."),
    option(
        "--audit-max-bytes",
        default="100MiB",
        show_default=True,
        metavar="SIZE",
        help="Rename the record when it reaches this size; 0: never.",
    ),
    option(
        "--audit-keep", type=click.IntRange(0), metavar="N", help="Number of renamed records to keep. Default: all."
    ),
    option(
        "--audit-on-error",
        type=click.Choice(["refuse", "continue"]),
        default="refuse",
        show_default=True,
        help="What to do with requests while the record cannot be written.",
    ),
    option("--metrics", default="", metavar="HOST:PORT", help="Serve metrics for Prometheus at this address."),
)
NEED_AUDIT = ("audit_queries", "audit_max_bytes", "audit_keep", "audit_on_error")


def set_record(ctx: click.Context, server: Server, *, stdio: bool) -> None:
    """Let the server record its requests, and serve metrics, as the options say.

    Raises:
        click.UsageError: an option is not valid, or an option of the record is given without `--audit`.
        MissingExtra: prometheus-client is not installed.
    """
    values: dict[str, Any] = ctx.meta[VALUES]
    default = click.core.ParameterSource.DEFAULT
    given_options = [name for name in NEED_AUDIT if ctx.get_parameter_source(name) is not default]
    if given_options and not values["audit"]:
        raise click.UsageError(f"--{given_options[0].replace('_', '-')} is for the record: add --audit FILE.", ctx)
    try:
        if values["audit"]:
            server.audit = make_log(values, stdio=stdio)
            if values["audit"] == "-" and not stdio and isinstance(ctx.obj, Verbosity):
                ctx.obj.quiet = True  # a banner and an access log between the lines would damage the record
        if values["metrics"]:
            from wharfinger.record.metrics import Metrics

            watching = server.watching
            server.observers.add(Metrics(server.gauges, values["metrics"], notices=lambda: watching.sent_count))
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None


def make_log(values: dict[str, Any], *, stdio: bool) -> AuditLog:
    """Return the audit log of the options.

    Raises:
        ValueError: the size is too small.
    """
    from wharfinger.cli.serving.limits_option import parse_amount
    from wharfinger.record import AuditLog

    log = AuditLog(
        values["audit"],
        max_bytes=int(parse_amount(values["audit_max_bytes"])) or None,
        keep=values["audit_keep"],
        queries=values["audit_queries"],
        on_error=values["audit_on_error"],
    )
    if stdio and values["audit"] == "-":
        log.file.path = 2  # stdout belongs to the protocol
    return log

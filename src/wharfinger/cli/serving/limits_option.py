"""`--limit NAME=VALUE`: the limits of the protocol and of HTTP, under one set of names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from wharfinger.protocol.limits import Limits

if TYPE_CHECKING:
    from wharfinger.protocol.http.rules import HttpLimits

__all__ = ["apply_limits", "check_limits", "http_limits", "limits_help", "parse_amount"]

FACTORS = {
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "k": 1024,
    "m": 1024**2,
    "g": 1024**3,
}
"""The factor of each suffix. `8k` means 8 KiB, as in most programs."""


def parse_amount(text: str) -> float:
    """Convert `20`, `0.5` or `8MiB` to a number, with a suffix to whole bytes; raises click.BadParameter."""
    word = text.strip().lower()
    suffix = next((name for name in FACTORS if word.endswith(name)), "")
    try:
        amount = float(word[: len(word) - len(suffix)]) * FACTORS.get(suffix, 1)
        amount = round(amount) if suffix else amount
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r}: write a number, with KiB, MiB or GiB for bytes.") from None
    if not 0 <= amount < float("inf"):
        raise click.BadParameter(f"{text!r} is not a possible limit.")
    return amount


def parse_limits(words: Iterable[str]) -> dict[str, float]:
    """Return the limits in NAME=VALUE words by their names in `--limit`; raises click.BadParameter."""
    values: dict[str, float] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise click.BadParameter(f"{word!r}: write NAME=VALUE; `--limit help` lists the names.")
        values[name.strip().replace("-", "_")] = parse_amount(value)
    return values


def defaults(kind: type[msgspec.Struct]) -> dict[str, int | float]:
    """Return the defaults of a struct by their names in `--limit`.

    If a limit of HTTP and one of the protocol have the same name, that of HTTP begins with `http_`.
    """
    protocol_names = () if kind is Limits else Limits.__struct_fields__
    return {
        f"http_{field.name}" if field.name in protocol_names else field.name: field.default
        for field in msgspec.structs.fields(kind)
    }


def changes(kind: type[msgspec.Struct], values: dict[str, float]) -> dict[str, Any]:
    """Return the values that are for this struct, by the names of its fields and converted to their types."""
    default_values = defaults(kind)
    field_names = dict(zip(default_values, kind.__struct_fields__, strict=True))
    return {
        field_names[name]: type(default_values[name])(value) for name, value in values.items() if name in default_values
    }


def check_limits(words: Iterable[str]) -> None:
    """Raise click.BadParameter for an unknown name or an invalid value."""
    known = {name: default for kind in kinds() for name, default in defaults(kind).items()}
    for name, value in parse_limits(words).items():
        if name not in known:
            raise click.BadParameter(f"No limit is named {name!r}; `--limit help` lists them.")
        if isinstance(known[name], int) and value != int(value):
            raise click.BadParameter(f"The limit {name} is a whole number, not {value:g}.")


def apply_limits(limits: Limits, words: Iterable[str]) -> Limits:
    """Return the limits of the protocol with the given changes."""
    return msgspec.structs.replace(limits, **changes(Limits, parse_limits(words)))


def http_limits(words: Iterable[str]) -> HttpLimits:
    """Return the limits of HTTP with the given changes."""
    from wharfinger.protocol.http.rules import HttpLimits

    return HttpLimits(**changes(HttpLimits, parse_limits(words)))


def kinds() -> tuple[type[msgspec.Struct], ...]:
    """Return the structs that hold limits."""
    from wharfinger.protocol.http.rules import HttpLimits

    return (Limits, HttpLimits)


def limits_help() -> str:
    """Return a line for every limit with its default."""
    from wharfinger.cli.render.formatting import columns

    rows: list[tuple[str, ...]] = [(name, f"{value:,}") for kind in kinds() for name, value in defaults(kind).items()]
    return "".join(line + "\n" for line in columns(rows))

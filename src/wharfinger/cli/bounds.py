"""`--limit NAME=VALUE`: the bounds of the protocol layer and of HTTP by one set of names; no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from wharfinger.protocol.limits import Limits

if TYPE_CHECKING:
    from wharfinger.protocol.http.rules import HttpLimits

__all__ = ["apply", "apply_http", "check", "listing", "parse_amount"]

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


def parse_amount(text: str) -> float:
    """Read `20`, `0.5`, `8MiB`; raises click.BadParameter."""
    word = text.strip().lower()
    suffix = next((name for name in FACTORS if word.endswith(name)), "")
    try:
        amount = float(word[: len(word) - len(suffix)]) * FACTORS.get(suffix, 1)
    except ValueError:
        raise click.BadParameter(f"{text!r}: write a number, with KiB, MiB or GiB for bytes.") from None
    if not 0 <= amount < float("inf"):
        raise click.BadParameter(f"{text!r} is not a possible bound.")
    return amount


def parse(words: Iterable[str]) -> dict[str, float]:
    """Read the options."""
    found: dict[str, float] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise click.BadParameter(f"{word!r}: write NAME=VALUE; `--limit help` lists the names.")
        found[name.strip().replace("-", "_")] = parse_amount(value)
    return found


def settings(kind: type[msgspec.Struct]) -> dict[str, int | float]:
    """List what a record has with its defaults, by the names of the options."""
    taken = () if kind is Limits else Limits.__struct_fields__
    return {
        f"http_{field.name}" if field.name in taken else field.name: field.default
        for field in msgspec.structs.fields(kind)
    }


def changes(kind: type[msgspec.Struct], wanted: dict[str, float]) -> dict[str, Any]:
    """Pick what this record has, in its own types, by its own names."""
    known = settings(kind)
    own = dict(zip(known, kind.__struct_fields__, strict=True))
    return {own[name]: type(known[name])(value) for name, value in wanted.items() if name in known}


def check(words: Iterable[str]) -> None:
    """Refuse a name that no record has."""
    known = {name for kind in kinds() for name in settings(kind)}
    for name in parse(words):
        if name not in known:
            raise click.BadParameter(f"No limit is named {name!r}; `--limit help` lists them.")


def apply(limits: Limits, words: Iterable[str]) -> Limits:
    """Return the protocol layer's bounds, changed."""
    return msgspec.structs.replace(limits, **changes(Limits, parse(words)))


def apply_http(words: Iterable[str]) -> HttpLimits:
    """Return HTTP's bounds, changed."""
    from wharfinger.protocol.http.rules import HttpLimits

    return HttpLimits(**changes(HttpLimits, parse(words)))


def kinds() -> tuple[type[msgspec.Struct], ...]:
    """The records that hold bounds."""
    from wharfinger.protocol.http.rules import HttpLimits

    return (Limits, HttpLimits)


def listing() -> str:
    """List every bound with its default."""
    from wharfinger.cli.words import columns

    rows: list[tuple[str, ...]] = [(name, f"{value:,}") for kind in kinds() for name, value in settings(kind).items()]
    return "".join(line + "\n" for line in columns(rows))

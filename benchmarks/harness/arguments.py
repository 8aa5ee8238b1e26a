"""The command lines of the benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def add_only(parser: argparse.ArgumentParser, known: Collection[str]) -> None:
    """Add `--only`, which chooses some of these cases. The default is all of them."""
    parser.add_argument(
        "--only", type=names_of(known), default=list(known), metavar="A,B", help=f"of {', '.join(known)}"
    )


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return the type of an option whose value is a list of known names, separated by commas."""

    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
        return names

    return parse

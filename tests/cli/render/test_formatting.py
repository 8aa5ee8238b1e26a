"""The formatting of durations, names and columns."""

import pytest

from wharfinger.cli.render.formatting import columns, duration, slug


@pytest.mark.parametrize(("seconds", "expected"), [(0.0004, "0.4 ms"), (0.0123, "12 ms"), (1.25, "1.2 s")])
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("charts",), "charts"),
        (("My Charts (2026)",), "My-Charts-2026"),
        (("a", "b"), "a-b"),
        (("港",), "files"),
        (("",), "files"),
        (("x" * 100,), "x" * 40),
    ],
)
def test_server_names_suit_every_host(labels: tuple[str, ...], expected: str) -> None:
    assert slug(*labels) == expected


def test_columns_are_aligned_and_the_last_is_not_padded() -> None:
    assert columns([("a", "bb", "c"), ("aaa", "b", "")]) == ["a    bb  c", "aaa  b"]
    assert columns([]) == []


def test_one_long_cell_does_not_pad_all_rows() -> None:
    """A bug: a server that listed one URI of a megabyte made `ls` print a megabyte for each of its resources."""
    rows = columns([("x" * 100_000, "a"), *[("x", "a")] * 1000])
    assert sum(map(len, rows)) < 400_000

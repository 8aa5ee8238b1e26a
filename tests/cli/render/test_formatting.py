"""The formatting of sizes, durations, names and untrusted text."""

import pytest

from wharfinger.cli.render.formatting import columns, count, duration, printable, size, slug


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (2150, "2.1 KiB"),
        (38 * 1024**2, "38 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (1024**5 * 2, "2048 TiB"),
    ],
)
def test_sizes_are_short(octets: int, expected: str) -> None:
    assert size(octets) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.0004, "0.4 ms"), (0.0123, "12 ms"), (1.25, "1.2 s")])
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_a_number_agrees_with_its_noun() -> None:
    assert [count(1, "watcher"), count(0, "watcher"), count(1204, "file")] == ["1 watcher", "0 watchers", "1,204 files"]


@pytest.mark.parametrize(
    ("untrusted", "expected"),
    [
        ("file:///a/b.txt", "file:///a/b.txt"),
        ("zoë – 港", "zoë – 港"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("two\nlines", "two\\x0alines"),
        ("\x9b31m", "\\x9b31m"),
        ("txt.\u202eexe", "txt.\\u202eexe"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped(untrusted: str, expected: str) -> None:
    """File names, URIs, titles and client names are untrusted."""
    assert printable(untrusted) == expected


def test_line_breaks_may_be_kept() -> None:
    assert printable("a\n\tb\x07", keep="\n\t") == "a\n\tb\\x07"


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

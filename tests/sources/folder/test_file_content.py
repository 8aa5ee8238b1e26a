"""The type of an open file."""

from __future__ import annotations

from pathlib import Path

from wharfinger.sources.folder.file_content import type_of


def test_the_type_of_a_file_does_not_depend_on_what_was_read_before(tmp_path: Path) -> None:
    """Bug: it was found from the current position of the descriptor, which it moved."""
    file = tmp_path / "chart"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with file.open("rb") as opened:
        assert [type_of("chart", opened.fileno()) for _ in range(2)] == ["image/png", "image/png"]

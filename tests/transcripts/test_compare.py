"""The comparison of transcripts leaves out texts that may be reworded, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, absent
from tests.transcripts.compare import FOLDER, KINDS, compare, dump, from_folder, main, normalise, report


def line(result: Any, **members: Any) -> str:
    """Return a line of the server."""
    return "< " + dump({"jsonrpc": "2.0", "id": 1, "result": result} | members)


def failed(message: str, code: int = -32602) -> str:
    return "< " + dump({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}})


TOOL = {"name": "count", "description": "Counts.", "inputSchema": {"properties": {"n": {"description": "How far."}}}}
PROMPT = {"name": "plan", "description": "Plans.", "arguments": [{"name": "route", "description": "Where to."}]}
FAILED_TOOL = {"content": [{"type": "text", "text": "n: missing"}], "isError": True}


@pytest.mark.parametrize(
    ("text", "removed"),
    [
        (failed("No."), [("error.message", "No.")]),
        (line({"tools": [TOOL]}), [("description", "Counts."), ("description", "How far.")]),
        (line({"prompts": [PROMPT]}), [("description", "Plans."), ("description", "Where to.")]),
        (line(FAILED_TOOL), [("tool error text", "n: missing")]),
        ("# A remark", [("remark", "# A remark")]),
        ("< [" + failed("No.")[2:] + "]", [("error.message", "No.")]),
    ],
)
def test_texts_that_may_be_reworded_are_left_out_and_counted(text: str, removed: list[tuple[str, str]]) -> None:
    found = normalise(text)
    assert list(found.removed) == removed
    assert all(words not in found.text for _, words in removed)


@pytest.mark.parametrize(
    "text",
    [
        line({"content": [{"type": "text", "text": "a description"}]}),
        line({"content": [], "structuredContent": {"description": "data"}, "isError": False}),
        "> " + dump({"jsonrpc": "2.0", "method": "tools/call", "params": {"arguments": {"description": "data"}}}),
        line({"inputSchema": {"properties": {"description": {"type": "string"}}}}),
        "< " + dump({"jsonrpc": "2.0", "method": "notifications/message", "params": {"message": "data"}}),
        "> {",
        '< {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "not compact"}}',
    ],
)
def test_everything_else_is_unchanged(text: str) -> None:
    assert normalise(text) == (text, ())


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_kind_is_compared(kind: str) -> None:
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "No."}}
    lines = [failed("No."), line({"tools": [TOOL]}), line(FAILED_TOOL), "# A remark", "< " + dump(cancelled)]
    removed = {of for text in lines for of, _ in normalise(text, [kind]).removed}
    assert removed == set(KINDS) - {kind}


def test_reworded_texts_are_reported_and_are_no_difference() -> None:
    result = compare({"tools.txt": failed("No.")}, {"tools.txt": failed("Not here.")})
    assert result.differences == []
    assert result.removed == {"error.message": 1}
    assert result.changed == {("error.message", "No.", "Not here."): 1}
    assert "error.message (1×):\n  - No.\n  + Not here." in list(report(result))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (failed("No."), failed("No.", -32603)),
        (line({"a": 1, "b": 2}), line({"b": 2, "a": 1})),
        (line({"tools": [TOOL]}), line({"tools": [{key: TOOL[key] for key in ("name", "inputSchema")}]})),
        (line({}), "< " + json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}})),
        (line({}), "> " + line({})[2:]),
        (line({}), ""),
        ("", line({})),
    ],
    ids=["code", "order", "member gone", "form", "side", "line gone", "line new"],
)
def test_any_other_change_is_a_difference(old: str, new: str) -> None:
    (difference,) = compare({"tools.txt": old}, {"tools.txt": new}).differences
    assert difference.file == "tools.txt"
    assert (difference.old_number, difference.new_number) == (1 if old else 0, 1 if new else 0)


def test_an_inserted_line_is_the_only_difference() -> None:
    lines = [line({"a": number}) for number in range(5)]
    (difference,) = compare({"a.txt": "\n".join(lines[:2] + lines[3:])}, {"a.txt": "\n".join(lines)}).differences
    assert (difference.new_number, difference.new) == (3, lines[2])


def test_file_that_only_one_side_has_is_a_difference() -> None:
    assert len(compare({"a.txt": line({})}, {}).differences) == 1
    assert len(compare({}, {"a.txt": line({})}).differences) == 1


def test_long_lines_are_shown_around_their_first_difference() -> None:
    old, new = (line({"text": "x" * 1000, "end": end}) for end in (1, 2))
    shown = list(report(compare({"a.txt": old}, {"a.txt": new})))
    parted = [text for text in shown if text.startswith(("  -", "  +"))]
    assert [text[-9:] for text in parted] == ['"end":1}}', '"end":2}}']
    assert "a.txt:1:1" in shown
    assert max(map(len, shown)) < 300


def test_command_compares_folders_and_exits_with_1_if_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "2025-11-25").mkdir()
    copy = tmp_path / "2025-11-25" / "tools.txt"
    copy.write_text(failed("No."), "utf-8")
    assert main([str(tmp_path), str(tmp_path)]) == 0
    assert "error.message: 1, of which 0 changed" in capsys.readouterr().out
    assert main([str(tmp_path)]) == 1
    assert "2025-11-25/tools.txt:1:" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["a", "b", "c"], ["--revision", "HEAD", "a", "b"], ["/nowhere"]])
def test_command_refuses_what_it_cannot_compare(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_transcripts_of_a_commit_are_compared_with_those_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    if not (ROOT / ".git").exists():
        absent("the git repository of the project")
    main(["--revision", "HEAD", str(FOLDER)])
    assert "Left out:" in capsys.readouterr().out


def test_every_line_of_the_server_is_written_as_compact_json() -> None:
    """Otherwise the comparison could not leave out its texts."""
    wrong = [
        text
        for file in from_folder(FOLDER).values()
        for text in file.splitlines()
        if text.startswith("< ") and dump(json.loads(text[2:])) != text[2:]
    ]
    assert wrong == []

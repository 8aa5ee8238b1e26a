"""The `roots` of a policy, compared by path components with the folders on disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from wharfinger import Server, sources
from wharfinger.policy import Policy, Rule
from wharfinger.protocol.principal import ANONYMOUS
from wharfinger.server.published_roots import patterns_in
from wharfinger.source import Source


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`data` and `data-evil` side by side, and a link to the folder `data/sub`."""
    for folder in ("data/sub", "data/sub-evil", "data-evil", "other"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.md").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "data" / "sub")
    return tmp_path


@pytest.mark.parametrize(
    ("directory", "expected"),
    [("data", ["file:///data/**"]), ("", ["file:///data/**"]), ("data/sub", ["file:///data/sub/**"]),
     ("link", ["file:///data/sub/**"]), ("data/../data/sub/.", ["file:///data/sub/**"]), ("data-evil", []),
     ("other", []), ("dat", []), ("data/new", ["file:///data/new/**"])],
)  # fmt: skip
def test_a_directory_in_roots_becomes_patterns_of_its_published_uris(
    tree: Path, directory: str, expected: Sequence[str]
) -> None:
    assert patterns_in(str(tree / directory), [sources.files(tree / "data")]) == expected


def test_each_source_that_publishes_the_directory_adds_its_patterns(tree: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tree / "data")], check=True)
    published: list[Source] = [
        sources.files(tree / "data", label="d"), sources.files(tree / "data" / "sub", label="s"),
        sources.git(tree / "data", label="g"), sources.logs(str(tree / "data" / "*.log"), label="l"),
        sources.files(tree / "other"),
    ]  # fmt: skip
    assert patterns_in(str(tree / "data" / "sub"), published) == [
        "file:///d/sub/**", "file:///s/**", "git://g/tree/*/sub/**", "git://g/blame/*/sub/**", "git://g/diff/*/sub/**",
        "git://g/changes/sub/**", "log://l/sub/**",
    ]  # fmt: skip


def test_names_with_special_characters_match_only_themselves(tree: Path) -> None:
    for name in ("a*b", "aXb", "ø %41", os.fsdecode(b"\xff")):
        (tree / "data" / name).mkdir()
        (tree / "data" / name / "f").write_text("x")
    folder = sources.files(tree / "data")
    uris = [resource.uri for resource in folder.page(None, 100)[0]]
    for name in ("a*b", "aXb", "ø %41", os.fsdecode(b"\xff")):
        policy = Policy(allow=[Rule(who="anyone", roots=str(tree / "data" / name))])
        bound = policy.bind_roots(lambda directory: patterns_in(directory, [folder]))
        allowed = [uri for uri in uris if bound.access(ANONYMOUS).allows("read", uri)]
        directory, file = allowed
        assert file == f"{directory.removesuffix('/')}/f"
        assert folder.read(file).contents[0].text == "x"


def test_roots_apply_to_a_source_added_later_to_a_mounted_server(tree: Path) -> None:
    server, part = Server("office", policy=Policy(allow=[Rule(who="anyone", roots=[str(tree / "data")])])), Server("p")
    server.include(part)
    assert server.policy is not None
    assert not server.policy.access(ANONYMOUS).allows("read", "file:///data/sub/a.md")
    before = server.policy.version
    part.include(sources.files(tree / "data"))
    assert server.policy.access(ANONYMOUS).allows("read", "file:///data/sub/a.md")
    assert server.policy.version != before, "cursors of the previous lists are refused"

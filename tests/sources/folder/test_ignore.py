"""The files that a folder publishes: .gitignore applies as in git, and credentials are hidden."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from wharfinger.source import UnusableSource
from wharfinger.sources.folder.ignore import (
    IGNORE_FILE_BYTES,
    MAX_PATTERNS,
    MAX_WILD_PATTERNS,
    Patterns,
    PublishChoice,
    Rules,
    Verdict,
    read_ignore_file,
)
from wharfinger.sources.folder.tree import FileTree


def judge(path: str, choice: PublishChoice | None = None, **ignore_files: str) -> Verdict:
    """Return the verdict on a path, which ends with `/` for a directory.

    The keyword arguments are the .gitignore files of its directories, `_` for that of the root.
    """
    rules = Rules(choice or PublishChoice())
    *parents, name = path.rstrip("/").split("/")
    rules = rules.with_patterns(read_ignore_file(ignore_files.get("_", "").encode()))
    for parent in parents:
        verdict = rules.judge(parent, True)
        if verdict:
            return verdict
        rules = rules.enter(parent)
        rules = rules.with_patterns(read_ignore_file(ignore_files.get(parent, "").encode()))
    return rules.judge(name, path.endswith("/"))


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("a.log", "ignored"),
        ("deep/a.log", "ignored"),
        ("keep.log", ""),
        ("build/", "ignored"),
        ("build/x.txt", "ignored"),
        ("build", ""),
        ("src/build/", "ignored"),
        ("top/", "ignored"),
        ("src/top/", ""),
        ("a/x/y/z.txt", "ignored"),
        ("#odd", "ignored"),
        ("plain.txt", ""),
    ],
)
def test_patterns_match_as_in_git(path: str, verdict: Verdict) -> None:
    root = "\ufeff# comment\n*.log\r\n!keep.log\nbuild/\n/top\na/**/z.txt\n\\#odd\n\n   \n"
    assert judge(path, _=root) == verdict


def test_a_deeper_gitignore_overrides_a_higher_one() -> None:
    assert judge("sub/a.log", _="*.log", sub="!a.log") == ""
    assert judge("sub/b.txt", sub="b.txt") == "ignored"
    assert judge("b.txt", sub="b.txt") == ""


def test_a_file_in_an_ignored_directory_cannot_be_included_again() -> None:
    assert judge("out/keep.txt", _="out/\n!out/keep.txt") == "ignored"


def test_an_invalid_pattern_does_not_affect_the_others() -> None:
    assert judge("a.log", _="!\n*.log\n") == "ignored"


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("path", [".git/", ".git", ".GIT/", "sub/.git/", "git~1/"])
def test_git_directories_are_never_published(path: str, hidden: bool) -> None:
    assert judge(path, PublishChoice(include=[".git", "*"], hidden=hidden)) == "never"


def test_hidden_names_are_published_on_request() -> None:
    assert judge(".editorconfig") == "hidden"
    assert judge(".github/ci.yml") == "hidden"
    assert judge(".github/ci.yml", PublishChoice(hidden=True)) == ""


@pytest.mark.parametrize("name", ["id_rsa", "server.pem", ".env", "credentials", "secrets.yaml.d.key", ".aws"])
def test_files_that_look_like_credentials_are_not_published(name: str) -> None:
    assert judge(name, PublishChoice(hidden=True)) == "secret"
    assert judge(f"{name}/readme.txt", PublishChoice(hidden=True)) == "secret"


@pytest.mark.parametrize("name", ["id_mapping.csv", "id_pool.py", "secrets.md", "secrets/", "passwords/policy.txt"])
def test_files_that_only_resemble_credentials_are_published(name: str) -> None:
    assert judge(name) == ""


def test_a_name_without_wildcards_in_include_overrides_every_rule() -> None:
    choice = PublishChoice(include=["*", "certs/server.pem", ".env.example", "dist/app.js"])
    assert judge("certs/server.pem", choice) == ""
    assert judge("certs/other.pem", choice) == "secret"
    assert judge(".env.example", choice) == ""
    assert judge(".env", choice) == "hidden"
    assert judge("dist/app.js", choice, _="app.js") == ""
    assert judge("anything.txt", choice) == ""


def test_a_wildcard_in_include_does_not_publish_credentials() -> None:
    assert judge("server.pem", PublishChoice(include=["*.pem"])) == "secret"


def test_only_names_that_match_include_are_published() -> None:
    choice = PublishChoice(include=["*.md", "docs/"])
    assert judge("a.md", choice) == ""
    assert judge("a.txt", choice) == "excluded"
    assert judge("sub/", choice) == ""
    assert judge("docs/a.txt", choice) == ""


def test_exclude_overrides_include() -> None:
    choice = PublishChoice(include=["*.md"], exclude=["draft*", "private/"])
    assert judge("draft.md", choice) == "excluded"
    assert judge("private/a.md", choice) == "excluded"
    assert judge("a.md", choice) == ""


NAMES = [
    "a",
    "b",
    "ab",
    "aab",
    "a.b",
    "a b",
    "a ",
    "a[b",
    "a]b",
    "a-b",
    "a!b",
    "a^",
    "a\\b",
    "*",
    "aé",
    "é",
    "ba",
    "c",
    "A",
]
PIECES = ["a", "b", "c", ".", " ", "é", "*", "*", "**", "?", "/", "/", "**/", "/**", "\\", "!", "^", "-", "]", "[",
          "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[c-a]", "[[:alpha:]]", "[[:space:]]", "[[:nope:]]", "[[:a]",
          "[\\]a]", "\r", "[a-\\c]", "[--a]", "A", "#"]  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories and files with every name, three levels deep for short names."""
    root = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name in NAMES:
        (root / name).mkdir()
        for inner in NAMES:
            if name in ("a", "b", "ab") and inner in ("a", "b", "ab", "c"):
                (root / name / inner).mkdir()
                for deep in ("a", "b", "c", "a.b", "é"):
                    (root / name / inner / deep).touch()
            else:
                (root / name / inner).touch()
        (root / f"f{name}").touch()
    return root


def published(directory: Path, rules: Rules, prefix: str = "") -> Iterator[str]:
    """Yield the paths below a directory whose names are published."""
    file = directory / ".gitignore"
    rules = rules.with_patterns(read_ignore_file(file.read_bytes())) if file.exists() else rules
    for child in directory.iterdir():
        if child.name in (".git", ".gitignore"):
            continue
        if not rules.judge(child.name, child.is_dir()):
            yield prefix + child.name
            if child.is_dir():
                yield from published(child, rules.enter(child.name), f"{prefix}{child.name}/")


def paths_not_ignored_by_git(root: Path) -> set[str]:
    """Return the paths below a directory that git does not ignore."""
    all_paths = {str(path.relative_to(root)) for path in root.rglob("*") if ".git" not in path.parts[len(root.parts)]}
    all_paths = {path for path in all_paths if not path.endswith(".gitignore")}
    completed = subprocess.run(
        ["git", "-c", "core.excludesFile=", "-c", "core.ignoreCase=false", "check-ignore", "--no-index", "--stdin",
         "-z"], cwd=root, input="\0".join(sorted(all_paths)).encode(), capture_output=True,
    )  # fmt: skip
    assert completed.returncode in (0, 1), completed.stderr
    return all_paths - set(completed.stdout.decode().split("\0"))


LINE = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)
FILE = st.lists(LINE, min_size=1, max_size=6).map("\n".join)


@pytest.mark.skipif(
    shutil.which("git") is None or sys.platform != "linux", reason="needs git, and names that only Linux allows"
)
@given(top=FILE, inner=st.just("") | FILE)
@example(top="a**/b\n", inner="")
@example(top="**/a/**/b\n!**/a/b", inner="!b\n/a/**")
@example(top="a/**/\n!a/a/", inner="*a\n*a*a*")
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_the_same_files_are_ignored_as_by_git(repository: Path, top: str, inner: str) -> None:
    """Compare the rules with `git check-ignore` for about 500 paths."""
    (repository / ".gitignore").write_bytes(top.encode())
    (repository / "a" / ".gitignore").write_bytes(inner.encode())
    assert set(published(repository, Rules(PublishChoice()))) == paths_not_ignored_by_git(repository)


@pytest.mark.parametrize("times", [1, 10, 70])
@pytest.mark.parametrize("piece", ["*a", "**/a/", "a*", "[a-z]*", "*?"])
def test_hostile_patterns_are_matched_in_time(piece: str, times: int) -> None:
    """Regression: `*a*a*a*a*a*a*a*a*a*a*a*a*b` blocked the interpreter."""
    began = time.process_time()
    for name in ("a" * 20, "a" * 250):
        assert judge(name, _=piece * 2 * times + "c\nc\n") == ""
        assert judge(f"{'a/' * 90}{name}", _=piece * 2 * times + "c\nc\n") == ""
    assert time.process_time() - began < 5


def test_the_maximum_number_of_patterns_is_matched_in_time() -> None:
    rules = Rules(PublishChoice()).with_patterns(
        read_ignore_file("\n".join(f"*a*{n}*a*?" for n in range(MAX_WILD_PATTERNS)).encode())
    )
    began = time.process_time()
    assert rules.judge("a" * 250, False) == ""
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"a?b\n" * MAX_WILD_PATTERNS, ""),
        (b"a?b\n" * (MAX_WILD_PATTERNS + 1), "ignored"),
        (b"ab\n" * MAX_PATTERNS, ""),
        (b"ab\n" * (MAX_PATTERNS + 1), "ignored"),
        (b"?" * 1_000, ""),
        (b"?" * 1_001, "ignored"),
        (b"#" * IGNORE_FILE_BYTES, ""),
        (b"#" * IGNORE_FILE_BYTES + b"\n", "ignored"),
        (b"#" * IGNORE_FILE_BYTES + b"\na", "ignored"),
    ],
)
def test_a_directory_whose_gitignore_exceeds_the_limits_is_not_published(data: bytes, verdict: Verdict) -> None:
    """A pattern that hides a file may be in the part that was not read."""
    rules = Rules(PublishChoice()).with_patterns(read_ignore_file(data))
    assert rules.judge("plain.txt", False) == verdict


def test_a_directory_whose_large_gitignore_begins_with_comments_is_not_published(tmp_path: Path) -> None:
    """Regression: the patterns after the first 256 KiB were left out if all lines before them were comments."""
    (tmp_path / ".gitignore").write_bytes(b"#\n" * (IGNORE_FILE_BYTES // 2) + b"\nprivate.txt\n")
    (tmp_path / "private.txt").touch()
    (tmp_path / "plain.txt").touch()
    assert [entry.name for entry in FileTree(str(tmp_path), PublishChoice()).walk() if not entry.is_directory] == []


def test_the_log_names_a_gitignore_that_exceeds_the_limits(caplog: pytest.LogCaptureFixture) -> None:
    """Regression: it named `docs//.gitignore`."""
    read_ignore_file(b"?" * 1_001)
    read_ignore_file(b"?" * 1_001, "docs/")
    assert [message.partition(" is larger")[0] for message in caplog.messages] == ["./.gitignore", "docs/.gitignore"]


def test_the_limits_apply_to_all_gitignore_files_of_a_path_together(caplog: pytest.LogCaptureFixture) -> None:
    """Regression: the log did not say that nothing is published."""
    rules = Rules(PublishChoice()).with_patterns(read_ignore_file(b"a?b\n" * MAX_WILD_PATTERNS))
    assert rules.judge("plain.txt", False) == ""
    deeper = rules.enter("sub").with_patterns(read_ignore_file(b"a?b\n"))
    assert deeper.judge("plain.txt", False) == "ignored"
    (message,) = caplog.messages
    assert message.startswith("sub/.gitignore and the files above it have more than 20000 patterns or 1000 with ")


def test_the_log_reports_once_that_a_directory_exceeds_the_limits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".gitignore").write_bytes(b"a?b\n" * MAX_WILD_PATTERNS)
    (tmp_path / "sub" / ".gitignore").write_bytes(b"a?b\n")
    (tmp_path / "sub" / "plain.txt").touch()
    tree = FileTree(str(tmp_path), PublishChoice())
    for _ in range(2):
        assert [entry.name for entry in tree.walk() if not entry.is_directory] == []
    assert len(caplog.messages) == 1


def test_a_hostile_gitignore_does_not_block_listings(tmp_path: Path) -> None:
    """Listings and reads walk the same tree."""
    (tmp_path / ".gitignore").write_text("*a" * 12 + "*b\n")
    (tmp_path / ("a" * 200)).touch()
    (tmp_path / "plain.txt").touch()
    began = time.process_time()
    assert {entry.name for entry in FileTree(str(tmp_path), PublishChoice()).walk() if not entry.is_directory} == {
        "a" * 200,
        "plain.txt",
    }
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "patterns", [["*" + "a" * 999 + "?"], [f"{number}*?" for number in range(MAX_WILD_PATTERNS + 1)]]
)
def test_too_many_or_too_long_include_and_exclude_patterns_are_refused(patterns: list[str]) -> None:
    for included, excluded in ((patterns, []), ([], patterns)):
        with pytest.raises(UnusableSource, match="at most 1,000"):
            PublishChoice(included, excluded)


def test_the_number_of_compiled_patterns_is_bounded() -> None:
    assert len(Patterns(f"{number}*?" for number in range(2 * MAX_WILD_PATTERNS)).wild) == MAX_WILD_PATTERNS + 1
    patterns = read_ignore_file(b"".join(b"%d*?\n" % number for number in range(2 * MAX_WILD_PATTERNS)))
    assert patterns is not None and patterns.everything

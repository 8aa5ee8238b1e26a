"""What is published of a folder: .gitignore as git means it, and no credentials by accident."""

from __future__ import annotations

import pytest

from wharfinger.sources.ignore import Choice, Rules, Verdict, looks_secret, read_ignore_file


def judge(path: str, choice: Choice | None = None, **ignore_files: str) -> Verdict:
    """Judge a path part by part, with .gitignore files by directory (`_` is the root); a directory ends with `/`."""
    rules = Rules(choice or Choice())
    *parents, name = path.rstrip("/").split("/")
    rules = rules.adding(read_ignore_file(ignore_files.get("_", "").encode()))
    for parent in parents:
        verdict = rules.judge(parent, True)
        if verdict:
            return verdict
        rules = rules.enter(parent)
        rules = rules.adding(read_ignore_file(ignore_files.get(parent, "").encode()))
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
def test_patterns_mean_what_git_means(path: str, verdict: Verdict) -> None:
    root = "\ufeff# comment\n*.log\r\n!keep.log\nbuild/\n/top\na/**/z.txt\n\\#odd\n\n   \n"
    assert judge(path, _=root) == verdict


def test_a_deeper_file_overrules_a_higher_one() -> None:
    assert judge("sub/a.log", _="*.log", sub="!a.log") == ""
    assert judge("sub/b.txt", sub="b.txt") == "ignored"
    assert judge("b.txt", sub="b.txt") == ""


def test_what_is_in_an_ignored_directory_cannot_be_taken_back() -> None:
    assert judge("out/keep.txt", _="out/\n!out/keep.txt") == "ignored"


def test_a_line_that_is_no_pattern_does_not_spoil_the_others() -> None:
    assert judge("a.log", _="!\n*.log\n") == "ignored"


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("path", [".git/", ".git", ".GIT/", "sub/.git/", "git~1/"])
def test_git_itself_is_never_published(path: str, hidden: bool) -> None:
    assert judge(path, Choice(include=[".git", "*"], hidden=hidden)) == "never"


def test_hidden_names_are_published_on_request() -> None:
    assert judge(".editorconfig") == "hidden"
    assert judge(".github/ci.yml") == "hidden"
    assert judge(".github/ci.yml", Choice(hidden=True)) == ""


@pytest.mark.parametrize(
    "name",
    [
        "id_rsa", "id_ed25519.pub", "ID_DSA", "server.pem", "SERVER.KEY", "a.p12", "a.pfx", "vault.kdbx", ".env",
        ".env.production", ".envrc", "prod.env", ".netrc", "_netrc", "credentials", "credentials.json", ".aws", ".ssh",
        "terraform.tfstate", ".npmrc", "client_secret_1.json", "secrets.yaml",
    ],
)  # fmt: skip
def test_what_looks_like_credentials_is_not_published(name: str) -> None:
    assert looks_secret(name)
    assert judge(name, Choice(hidden=True)) == "secret"
    assert judge(f"{name}/readme.txt", Choice(hidden=True)) == "secret"


@pytest.mark.parametrize("name", ["id_pool.py", "identity.md", "keyboard.txt", "monkey", "environment.md", "pem.txt"])
def test_what_only_resembles_credentials_is_published(name: str) -> None:
    assert judge(name) == ""


def test_a_name_spelled_out_is_published_against_every_rule() -> None:
    choice = Choice(include=["*", "certs/server.pem", ".env.example", "dist/app.js"])
    assert judge("certs/server.pem", choice) == ""
    assert judge("certs/other.pem", choice) == "secret"
    assert judge(".env.example", choice) == ""
    assert judge(".env", choice) == "hidden"
    assert judge("dist/app.js", choice, _="app.js") == ""
    assert judge("anything.txt", choice) == ""


def test_a_wildcard_names_no_credentials() -> None:
    assert judge("server.pem", Choice(include=["*.pem"])) == "secret"


def test_with_include_only_what_matches_is_published() -> None:
    choice = Choice(include=["*.md", "docs/"])
    assert judge("a.md", choice) == ""
    assert judge("a.txt", choice) == "excluded"
    assert judge("sub/", choice) == ""
    assert judge("docs/a.txt", choice) == ""


def test_exclude_always_wins() -> None:
    choice = Choice(include=["*.md"], exclude=["draft*", "private/"])
    assert judge("draft.md", choice) == "excluded"
    assert judge("private/a.md", choice) == "excluded"
    assert judge("a.md", choice) == ""

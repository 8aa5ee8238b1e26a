"""`wharfinger policy` and `wharfinger check` on real folders, repositories and databases."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT, TIDE_SERVER


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "private").mkdir(parents=True)
    (folder / "a.md").write_text("everyone")
    (folder / "private" / "pay.md").write_text("secret")
    return tmp_path


def run(folder: Path, *words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, cwd=folder, input=stdin, timeout=60,
        env={**ENVIRONMENT, "HOME": str(folder), **env},
    )  # fmt: skip


def test_a_first_policy_passes_its_check_and_is_never_overwritten(docs: Path) -> None:
    repository = docs / "code"
    repository.mkdir()
    (repository / "x.py").write_text("pass")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    with sqlite3.connect(docs / "shop.db") as shop:
        shop.execute("create table ships (name text)")
        shop.execute("create table salaries (name text)")
    shop.close()
    (docs / "harbour.py").write_text(TIDE_SERVER)
    for number, targets in enumerate(
        (["docs"], ["git:code"], ["sqlite:///shop.db"], ["harbour.py"], ["docs", "git:code"])
    ):
        file = f"policy{number}.toml"
        done = run(docs, "policy", "init", "-o", file, *targets)
        assert (done.returncode, done.stderr) == (0, "")
        checked = run(docs, "policy", "check", file, *targets)
        assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
        assert checked.stdout.endswith("No problems.\n")
        assert "nobody may do anything" in checked.stdout
    text = (docs / "policy0.toml").read_text()
    again = run(docs, "policy", "init", "-o", "policy0.toml", "git:code")
    assert again.returncode == 2
    assert "replace it with --force" in again.stderr
    assert (docs / "policy0.toml").read_text() == text
    assert run(docs, "policy", "init", "--force", "-o", "policy0.toml", "git:code").returncode == 0
    assert "git://code/**" in (docs / "policy0.toml").read_text()


def test_check_reports_rules_that_never_match_and_resources_that_anyone_may_read(docs: Path) -> None:
    (docs / "policy.toml").write_text(
        '[[allow]]\nwho = "anyone"\nwhat = ["file:///docs/*", "file:///dosc/**", "tool:serch"]\n'
        '[[test]]\nas = "anyone"\nallow = "read file:///docs/private/pay.md"\n'
    )
    done = run(docs, "policy", "check", "policy.toml", "docs")
    assert done.returncode == 1
    assert (
        "allow 1: file:///dosc/** matches nothing: file:///dosc is not published. Did you mean file:///docs?"
        in done.stdout
    )
    assert "allow 1: There is no tool:serch. Did you mean search?" in done.stdout
    assert "test 1 fails" in done.stdout
    assert "anyone may read 2 of 4 resources: file:///docs/a.md, file:///docs/private." in done.stdout
    assert done.stdout.endswith("3 problems.\n")
    found = json.loads(run(docs, "policy", "check", "--json", "policy.toml", "docs").stdout)
    assert [one["rule"] for one in found["findings"]] == ["allow 1", "allow 1", ""]
    assert found["anyone"]["number"] == 2
    (docs / "policy.toml").write_text("[[allow]]\nwhoo = 1")
    done = run(docs, "policy", "check", "policy.toml")
    assert done.returncode == 2
    assert "allow 1: " in done.stderr


RULES = """
[[allow]]
who  = "group:staff"
what = "file:///docs/**"

[[deny]]
name = "private"
who  = "anyone"
what = "file:///docs/private/**"
"""


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [(["--as", "sub:bob", "--as", "group:staff", "read", "file:///docs/a.md"], 0, "allowed by allow 1."),
     (["--as", "sub:bob", "read", "file:///docs/a.md"], 1, "allow 1 would, but it needs group:staff."),
     (["--as", "group:staff", "watch", "file:///docs/private/x"], 1, "refused by private."),
     (["--as", "anyone", "call", "tool:x"], 1, "call tool:x: refused: no rule allows it."),
     (["--claims", "-", "read", "file:///docs/a.md"], 0, "allowed by allow 1."),
     (["--as", "sub:bob", "fly", "file:///docs/a.md"], 2, "write an action"),
     (["read", "file:///docs/a.md"], 2, "one of --as, --claims and --token"),
     (["--as", "who:bob", "read", "file:///docs/a.md"], 2, "who = 'who:bob' is not known")],
)  # fmt: skip
def test_explain_names_the_rule_or_what_is_missing(tmp_path: Path, words: list[str], code: int, shown: str) -> None:
    (tmp_path / "policy.toml").write_text(RULES)
    done = run(tmp_path, "policy", "explain", "policy.toml", *words, stdin='{"sub": "x", "groups": ["staff"]}')
    assert done.returncode == code
    assert shown in done.stdout + done.stderr


def test_explain_takes_a_token_of_a_file_by_its_id(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(RULES)
    token = run(tmp_path, "token", "create", "-q", "tokens.json", "--sub", "ann", "--group", "staff").stdout.strip()
    words = ("policy", "explain", "--json", "policy.toml", "--tokens", "tokens.json", "--token")
    for id in (token.split("_")[1], token):
        done = run(tmp_path, *words, id, "read", "file:///docs/a.md")
        assert done.returncode == 0
        assert json.loads(done.stdout)["rule"] == "allow 1"
    assert "has no such token" in run(tmp_path, *words, "none", "read", "file:///docs/a.md").stderr


def test_a_server_file_is_checked_without_serving(docs: Path) -> None:
    run(docs, "token", "create", "tokens.json", "--sub", "ann")
    rules = (
        '[[allow]]\nwho = "sub:ann"\nroots = "docs"\n[[deny]]\nwho = "anyone"\nroots = "docs/private"\n'
        '[[test]]\nas = { sub = "ann" }\nallow = "read file:///docs/a.md"\ndeny = "read file:///docs/private/pay.md"\n'
    )
    file = docs / "wharfinger.toml"
    file.write_text(f'sources = "docs"\nhttp = "0.0.0.0:8000"\ntokens = "tokens.json"\n{rules}')
    done = run(Path("/"), "check", "-f", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 source, with policy.\n" in done.stdout
    explained = run(Path("/"), "policy", "explain", str(file), "--as", "sub:ann", "read", "file:///docs/private/pay.md")
    assert "refused by deny 1" in explained.stdout
    for text, code, message in (
        (f'sources = "none"\n{rules}', 2, "none"),
        (f'sources = "docs"\nhttp = "0.0.0.0:8000"\n{rules}', 1, "0.0.0.0 is reached from other machines"),
        (f'sources = "docs"\nhttp = true\ntls_cert = "no.pem"\n{rules}', 1, "no.pem cannot be read"),
        (f'sources = "docs"\nhttp = true\ntokens = "no.json"\n{rules}', 1, "no.json"),
        (f'sources = "docs"\n{rules}allow = 3', 2, "wharfinger.toml"),
        (
            'sources = "docs"\n' + rules.replace('roots = "docs"', 'roots = "doc"', 1),
            1,
            "Nothing in the directory",
        ),
        ('sources = "docs"\n[[allow]]\nwho = "anyone"\n[[test]]\nas = "anyone"\ndeny = "call x"', 1, "test 1 fails"),
    ):
        file.write_text(text)
        done = run(Path("/"), "check", "-f", str(file))
        assert (done.returncode, message in done.stdout + done.stderr) == (code, True), (text, done)
        assert "Traceback" not in done.stderr
    file.write_text('sources = "docs"\nhttp = true\nauth = "https://id.invalid"')
    assert run(docs, "check", "-f", "wharfinger.toml").returncode == 0
    done = run(docs, "check", "-f", "wharfinger.toml", "--online", "--json")
    assert done.returncode == 1
    assert "https://id.invalid cannot be reached" in json.loads(done.stdout)["problems"][0]

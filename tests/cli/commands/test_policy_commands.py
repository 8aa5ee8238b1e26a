"""`wharfinger policy` and `wharfinger check` on real folders, repositories and databases."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT, TIDE_SERVER
from wharfinger.cli import main
from wharfinger.cli.commands.policy_commands import shown_words
from wharfinger.cli.serving import published_lists

REMARK = "Only the first {} items of a list were read: the policy may not deny what looks private among the others."


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "private").mkdir(parents=True)
    (folder / "a.md").write_text("everyone")
    (folder / "private" / "pay.md").write_text("secret")
    return tmp_path


def run(folder: Path, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, cwd=folder, input=stdin, timeout=60,
        env={**ENVIRONMENT, "HOME": str(folder), **env},
    )  # fmt: skip


def test_a_first_policy_passes_its_check_and_is_never_overwritten(docs: Path) -> None:
    repository = docs / "code"
    repository.mkdir()
    (repository / "x.py").write_text("pass")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "x"]):
        subprocess.run(["git", *arguments], cwd=repository, check=True)
    with sqlite3.connect(docs / "shop.db") as shop:
        shop.execute("create table ships (name text)")
        shop.execute("create table salaries (name text)")
    shop.close()
    (docs / "harbour.py").write_text(TIDE_SERVER)
    for number, targets in enumerate(
        (["docs"], ["git:code"], ["sqlite:///shop.db"], ["harbour.py"], ["docs", "git:code"])
    ):
        file = f"policy{number}.toml"
        completed = run(docs, "policy", "init", "-o", file, *targets)
        assert (completed.returncode, completed.stderr) == (0, "")
        checked = run(docs, "policy", "check", file, *targets)
        assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
        assert checked.stdout.endswith("No problems.\n")
        assert "nobody may do anything" in checked.stdout
    text = (docs / "policy0.toml").read_text()
    second = run(docs, "policy", "init", "-o", "policy0.toml", "git:code")
    assert second.returncode == 2
    assert "replace it with --force" in second.stderr
    assert (docs / "policy0.toml").read_text() == text
    assert run(docs, "policy", "init", "--force", "-o", "policy0.toml", "git:code").returncode == 0
    assert "git://code/**" in (docs / "policy0.toml").read_text()


@pytest.mark.parametrize(("count", "remarks"), [(6, []), (5, [REMARK.format(5)])])
def test_a_first_policy_for_a_part_of_the_lists_says_so(
    docs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int, remarks: list[str]
) -> None:
    """A bug: names that look private were not denied after the first 20,000, and nothing said so."""
    monkeypatch.setattr(published_lists, "MAX_LISTED", count)
    monkeypatch.chdir(docs)
    for name in ("b.md", "c.md"):  # 6 resources, with the two folders
        (docs / "docs" / name).write_text("everyone")
    assert main(["policy", "init", "docs"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == remarks
    assert main(["policy", "init", "-q", "--force", "docs"]) == 0
    assert capsys.readouterr().out == ""


def test_a_password_is_neither_written_into_a_first_policy_nor_shown(tmp_path: Path) -> None:
    completed = run(tmp_path, "policy", "init", "shop=postgresql://me:hunter2@127.0.0.1:1/shop")
    assert completed.returncode == 0, completed.stderr
    text = (tmp_path / "policy.toml").read_text()
    assert "hunter2" not in text + completed.stdout + completed.stderr
    assert "# Check it:    wharfinger policy check policy.toml shop=postgresql://me@127.0.0.1:1/shop\n" in text
    assert completed.stdout.splitlines() == [
        "Wrote policy.toml. Check it with: wharfinger policy check policy.toml shop=postgresql://me@127.0.0.1:1/shop",
        "The password of postgresql://me@127.0.0.1:1/shop is omitted: pass it by the variable PGPASSWORD.",
    ]


@pytest.mark.parametrize(
    ("target", "secret"),
    [("mysql://me:hunter2@db/shop", "hunter2"), ("https://me:hunter2@host/mcp", "hunter2"),
     ("command:df --token hunter2", "hunter2"), ("nothing.here://me:hunter2@host/x", "hunter2")],
)  # fmt: skip
def test_words_of_any_kind_are_shown_without_their_passwords(target: str, secret: str) -> None:
    words, _ = shown_words([target, f"x={target}"])
    assert len(words) == 2
    assert words[1] == f"x={words[0]}"
    assert secret not in str(words)


def test_commands_of_a_first_policy_can_be_copied_into_a_shell(docs: Path) -> None:
    (docs / "docs").rename(docs / "my docs; $HOME")
    completed = run(docs, "policy", "init", "-o", "my rules.toml", "my docs; $HOME", "x=my docs; $HOME/private")
    assert (completed.returncode, completed.stderr) == (0, "")
    check = ["wharfinger", "policy", "check", "my rules.toml", "my docs; $HOME", "x=my docs; $HOME/private"]
    written = (docs / "my rules.toml").read_text()
    assert shlex.split(completed.stdout.partition("Check it with: ")[2]) == check
    assert shlex.split(written.partition("Check it:")[2].partition("\n")[0]) == check
    use = shlex.split(written.partition("Use it:")[2].partition("\n")[0])
    assert use[:2] == ["wharfinger", "serve"]
    assert use[-3:] == check[-3:]
    assert run(docs, *check[1:]).returncode == 0


def test_a_line_break_in_a_name_does_not_end_a_comment_of_a_first_policy(docs: Path) -> None:
    (docs / "docs").rename(docs / "a\n[[allow]]\nwho = 'anyone'")
    completed = run(docs, "policy", "init", "x=a\n[[allow]]\nwho = 'anyone'")
    assert (completed.returncode, completed.stderr) == (0, "")
    assert len(completed.stdout.splitlines()) == 1
    assert "who = 'anyone'" not in (docs / "policy.toml").read_text().splitlines()


@pytest.mark.parametrize("target", ["harbour.py", "harbour.py:server"])
def test_a_first_policy_for_a_python_server_is_used_by_run(docs: Path, target: str) -> None:
    (docs / "harbour.py").write_text(TIDE_SERVER)
    completed = run(docs, "policy", "init", "-o", "other.toml", target)
    assert (completed.returncode, completed.stderr) == (0, "")
    text = (docs / "other.toml").read_text()
    assert f"# Use it:      wharfinger run --http --tokens tokens.json --policy other.toml {target}\n" in text
    assert "policy.toml" not in text


def test_check_reports_rules_that_never_match_and_resources_that_anyone_may_read(docs: Path) -> None:
    (docs / "policy.toml").write_text(
        '[[allow]]\nwho = "anyone"\nwhat = ["file:///docs/*", "file:///dosc/**", "tool:serch"]\n'
        '[[test]]\nas = "anyone"\nallow = "read file:///docs/private/pay.md"\n'
    )
    completed = run(docs, "policy", "check", "policy.toml", "docs")
    assert completed.returncode == 1
    assert (
        "allow 1: file:///dosc/** matches nothing: file:///dosc is not published. Did you mean file:///docs?"
        in completed.stdout
    )
    assert "allow 1: There is no tool:serch. Did you mean search?" in completed.stdout
    assert "test 1 fails" in completed.stdout
    assert "anyone may read 2 of 4 resources: file:///docs/a.md, file:///docs/private." in completed.stdout
    assert completed.stdout.endswith("3 problems.\n")
    found = json.loads(run(docs, "policy", "check", "--json", "policy.toml", "docs").stdout)
    assert [finding["rule"] for finding in found["findings"]] == ["allow 1", "allow 1", ""]
    assert found["anyone"]["number"] == 2
    (docs / "policy.toml").write_text("[[allow]]\nwhoo = 1")
    completed = run(docs, "policy", "check", "policy.toml")
    assert completed.returncode == 2
    assert "allow 1: " in completed.stderr


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
    ("arguments", "code", "expected"),
    [(["--as", "sub:bob", "--as", "group:staff", "read", "file:///docs/a.md"], 0, "allowed by allow 1."),
     (["--as", "sub:bob", "read", "file:///docs/a.md"], 1, "allow 1 would allow it, but it needs group:staff."),
     (["--as", "group:staff", "watch", "file:///docs/private/x"], 1, "refused by private."),
     (["--as", "anyone", "call", "tool:x"], 1, "call tool:x: refused: no rule allows it."),
     (["--claims", "-", "read", "file:///docs/a.md"], 0, "allowed by allow 1."),
     (["--as", "sub:bob", "fly", "file:///docs/a.md"], 2, "write an action"),
     (["read", "file:///docs/a.md"], 2, "one of --as, --claims and --token"),
     (["--claims", "-", "--scope", "x", "read", "file:///docs/a.md"], 2, "belong to --as"),
     (["--as", "who:bob", "read", "file:///docs/a.md"], 2, "who = 'who:bob' is not known")],
)  # fmt: skip
def test_explain_names_the_rule_or_what_is_missing(
    tmp_path: Path, arguments: list[str], code: int, expected: str
) -> None:
    (tmp_path / "policy.toml").write_text(RULES)
    completed = run(tmp_path, "policy", "explain", "policy.toml", *arguments, stdin='{"sub": "x", "groups": ["staff"]}')
    assert completed.returncode == code
    assert expected in completed.stdout + completed.stderr


@pytest.mark.parametrize(
    ("rule", "words"),
    [("sub:bob", ["claim.sub:bob"]), ("claim.client_id:app", ["client:app"]), ("claim.a:2", ["claim.a:1", "claim.a:2"]),
     ("claim.email:c@d", ["email:a@b", "claim.email:c@d"]), ("group:b", ["claim.groups:a", "group:b"])],
)  # fmt: skip
def test_explain_combines_words_and_claims(tmp_path: Path, rule: str, words: list[str]) -> None:
    """A bug: a claim that a word such as `sub:` also stands for ended in an AttributeError."""
    (tmp_path / "policy.toml").write_text(f'[[allow]]\nwho = "{rule}"\nwhat = "file:///docs/**"\n')
    options = [option for word in words for option in ("--as", word)]
    completed = run(tmp_path, "policy", "explain", "policy.toml", *options, "read", "file:///docs/a.md")
    assert (completed.returncode, completed.stderr) == (0, "")


def test_explain_takes_a_token_of_a_file_by_its_id(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(RULES)
    token = run(tmp_path, "token", "create", "-q", "tokens.json", "--sub", "ann", "--group", "staff").stdout.strip()
    arguments = ("policy", "explain", "--json", "policy.toml", "--tokens", "tokens.json", "--token")
    for id in (token.split("_")[1], token):
        completed = run(tmp_path, *arguments, id, "read", "file:///docs/a.md")
        assert completed.returncode == 0
        assert json.loads(completed.stdout)["rule"] == "allow 1"
        assert completed.stderr == ""
    file = json.loads((tmp_path / "tokens.json").read_text())
    file["tokens"][0]["expires"] = 1.0
    (tmp_path / "tokens.json").write_text(json.dumps(file))
    completed = run(tmp_path, *arguments, token, "read", "file:///docs/a.md")
    assert completed.stderr == "The token has expired: the server refuses every request with it.\n"
    assert json.loads(completed.stdout)["rule"] == "allow 1"
    assert "has no such token" in run(tmp_path, *arguments, "none", "read", "file:///docs/a.md").stderr


def test_a_server_file_is_checked_with_the_variables_that_apply_to_serve(docs: Path) -> None:
    """A bug: `check -f` and `policy check` ignored them."""
    (docs / "wharfinger.toml").write_text('sources = "docs"\nhttp = true\n')
    (docs / "closed.toml").write_text('[[test]]\nas = "anyone"\nallow = "read file:///docs/a.md"\n')
    check = ("check", "-f", "wharfinger.toml")
    assert run(docs, *check).returncode == 0
    completed = run(docs, *check, WHARFINGER_SERVE_TOKENS="no.json")
    assert (completed.returncode, "no.json" in completed.stdout) == (1, True)
    completed = run(docs, *check, WHARFINGER_SERVE_POLICY="closed.toml")
    assert (completed.returncode, "test 1 fails" in completed.stdout) == (1, True)
    for command in (check, ("policy", "check", "wharfinger.toml")):
        completed = run(docs, *command, WHARFINGER_SERVE_LIMIT="tide=3")
        assert (completed.returncode, "No limit is named 'tide'" in completed.stderr) == (2, True)


def test_a_server_file_is_checked_without_serving(docs: Path) -> None:
    run(docs, "token", "create", "tokens.json", "--sub", "ann")
    rules = (
        '[[allow]]\nwho = "sub:ann"\nroots = "docs"\n[[deny]]\nwho = "anyone"\nroots = "docs/private"\n'
        '[[test]]\nas = { sub = "ann" }\nallow = "read file:///docs/a.md"\ndeny = "read file:///docs/private/pay.md"\n'
    )
    file = docs / "wharfinger.toml"
    file.write_text(f'sources = "docs"\nhttp = "0.0.0.0:8000"\ntokens = "tokens.json"\n{rules}')
    completed = run(Path("/"), "check", "-f", str(file))
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "1 source, with policy.\n" in completed.stdout
    explanation = run(
        Path("/"), "policy", "explain", str(file), "--as", "sub:ann", "read", "file:///docs/private/pay.md"
    )
    assert "refused by deny 1" in explanation.stdout
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
        completed = run(Path("/"), "check", "-f", str(file))
        assert (completed.returncode, message in completed.stdout + completed.stderr) == (code, True), (text, completed)
        assert "Traceback" not in completed.stderr
    file.write_text('sources = "docs"\nhttp = true\nauth = "https://id.invalid"')
    assert run(docs, "check", "-f", "wharfinger.toml").returncode == 0
    completed = run(docs, "check", "-f", "wharfinger.toml", "--online", "--json")
    assert completed.returncode == 1
    assert "https://id.invalid cannot be reached" in json.loads(completed.stdout)["problems"][0]

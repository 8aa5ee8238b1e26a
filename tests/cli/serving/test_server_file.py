"""A server in one file: its keys are the options of `serve`, and an error names the key but never its value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from wharfinger.cli.commands.serve import serve
from wharfinger.cli.options import Verbosity
from wharfinger.cli.serving.policy_option import INLINE
from wharfinger.cli.serving.record_options import VALUES
from wharfinger.cli.serving.server_file import MAX_SECRET_BYTES, NOT_IN_FILES, UnusableServerFile
from wharfinger.errors import WharfingerError


def parse(folder: Path, text: str, *words: str) -> click.Context:
    """Parse `serve -f FILE` with a file of this text."""
    (folder / "wharfinger.toml").write_text(text)
    return serve.make_context("serve", ["-f", str(folder / "wharfinger.toml"), *words], obj=Verbosity())


def test_paths_and_sources_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    params = parse(
        tmp_path,
        'sources = ["docs", "shop=sqlite:///shop.db", "log:logs/*.log"]\ntokens = "t.json"\ntls_cert = "/etc/c.pem"',
        "--tls-key", "key.pem",
    ).params  # fmt: skip
    assert params["words"] == (
        f"{tmp_path}/docs", f"shop=sqlite:////{str(tmp_path / 'shop.db')[1:]}", f"log:{tmp_path}/logs/*.log",
    )  # fmt: skip
    assert (params["tokens"], params["tls_cert"], params["tls_key"]) == (f"{tmp_path}/t.json", "/etc/c.pem", "key.pem")


def test_every_option_of_serve_is_a_key(tmp_path: Path) -> None:
    samples: dict[str, Any] = {}
    for param in serve.params:
        name = str(param.name)
        if name in NOT_IN_FILES or name == "words":
            continue
        if getattr(param, "is_flag", False):
            samples[name] = "true"
        elif isinstance(param.type, (click.types.FloatParamType, click.types.IntParamType)):
            samples[name] = "2"
        else:
            samples[name] = '["x=1"]' if getattr(param, "multiple", False) else '"/x"'
    samples["limits"], samples["http"] = '{ message = "8MiB" }', "9000"
    samples["audit_on_error"] = '"continue"'
    ctx = parse(tmp_path, "".join(f"{name} = {value}\n" for name, value in samples.items()))
    params = ctx.params | ctx.meta[VALUES]
    assert len(samples) > 25
    applied = {name for name in samples if params[name] not in (None, "", (), False)}
    assert applied == set(samples)
    assert params["limits"] == ("message=8MiB",)
    assert params["http"] == "9000"


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    ctx = parse(
        tmp_path, 'sources = "docs"\nname = "a"\nexclude = ["x", "y"]', "--name", "b", "--exclude", "z", "other"
    )
    assert (ctx.params["name"], ctx.params["exclude"], ctx.params["words"]) == ("b", ("z",), ("other",))


def test_placeholders_come_from_the_environment_and_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOUR", "pier")
    (tmp_path / "secret").write_text("s3cret\n")
    text = 'name = "${HARBOUR}-${NONE_SUCH:-x}"\nsources = ["postgresql://reader:${file:secret}@db.test/shop"]'
    params = parse(tmp_path, text).params
    assert params["name"] == "pier-x"
    assert params["words"] == ("postgresql://reader:s3cret@db.test/shop",)


def test_a_missing_file_is_replaced_by_the_default(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    (tmp_path / "folder").mkdir()
    assert parse(tmp_path, 'name = "${file:none:-x}"').params["name"] == "x"
    assert parse(tmp_path, 'name = "a${file:none:-}"').params["name"] == "a"
    assert parse(tmp_path, 'name = "${file:secret:-x}"').params["name"] == "s3cret"
    with pytest.raises(UnusableServerFile, match="name needs the file folder: "):
        parse(tmp_path, 'name = "${file:folder:-x}"')


@pytest.mark.parametrize(
    ("text", "message"),
    [('tokns = "hunter2"', "unknown key 'tokns'. Did you mean 'tokens'?"), ("sources = [3]", "sources must be a list"),
     ('hidden = "hunter2"', "hidden must be true or false"), ("name = [1]", "name must be a text"),
     ('every = "hunter2"', "every must be a number"), ("every = true", "every must be a number"),
     ("audit_keep = inf", "audit_keep must be a whole number"), ("audit_keep = 1.5", "must be a whole number"),
     ('name = "${NONE_SUCH}"', "name needs the variable NONE_SUCH"), ("a = = hunter2", "is not TOML: "),
     ('name = "${file:none}"', "name needs the file none: No such file"), ('name = "${input:x}"', "write ${NAME}"),
     ('policy = "p"\n[[allow]]\nwho = "anyone"', "policy names a file, and [[allow]] is here too"),
     ("quiet = true", "unknown key 'quiet'")],
)  # fmt: skip
def test_mistakes_name_the_key_and_never_its_value(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnusableServerFile) as raised:
        parse(tmp_path, text)
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_secret_that_is_cut_within_a_character_is_reported_as_too_large(tmp_path: Path) -> None:
    """A bug: it was reported as not UTF-8."""
    (tmp_path / "secret").write_text("é" * MAX_SECRET_BYTES, encoding="utf-8")
    with pytest.raises(UnusableServerFile, match="it is larger than 64 KiB"):
        parse(tmp_path, 'name = "${file:secret}"')


@pytest.mark.parametrize("excess_bytes", [0, 1])
def test_a_secret_larger_than_its_limit_is_refused(tmp_path: Path, excess_bytes: int) -> None:
    (tmp_path / "secret").write_text("s" * (MAX_SECRET_BYTES + excess_bytes))
    if excess_bytes:
        with pytest.raises(UnusableServerFile, match="name needs the file secret: it is larger than 64 KiB"):
            parse(tmp_path, 'name = "${file:secret}"')
    else:
        assert parse(tmp_path, 'name = "${file:secret}"').params["name"] == "s" * MAX_SECRET_BYTES


def test_a_mistake_in_a_rule_is_reported_when_the_policy_is_loaded(tmp_path: Path) -> None:
    path, load = parse(tmp_path, '[[allow]]\nwho = "anyone"\nhttp = "x"').meta[INLINE]
    with pytest.raises(WharfingerError, match=r"wharfinger.toml: allow 1: .*'http'"):
        load(path)


def test_a_file_of_more_than_4_mib_is_refused(tmp_path: Path) -> None:
    line = "#" * (4 * 1024 * 1024)
    parse(tmp_path, line)
    with pytest.raises(UnusableServerFile, match="is larger than 4 MiB"):
        parse(tmp_path, line + "#")

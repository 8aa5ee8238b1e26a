"""Words of the command line, such as `notes=git:docs`: their kinds and labels, and how their secrets are hidden."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wharfinger import sources
from wharfinger.content.redaction import has_password, redacted
from wharfinger.source import Source, UnusableSource
from wharfinger.sources.registry import (
    FILES,
    KINDS,
    absolute_word,
    make_sources,
    parse_word,
    short_name,
    shown_word,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which contains a few folders."""
    for name in ("docs", "one/docs", "two/docs", "a=b", "git:odd"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("word", "form", "label"),
    [
        ("docs", "PATH", None),
        ("maps=docs", "PATH", "maps"),
        ("nowhere", "PATH", None),
        ("git:.", "git:PATH", None),
        ("code=git:.", "git:PATH", "code"),
        ("GIT:.", "git:PATH", None),
        ("sqlite:///shop.db", "sqlite:///FILE", None),
        ("sqlite+aiosqlite:///shop.db", "sqlite:///FILE", None),
        ("postgresql://me@db/shop?sslmode=require", "postgresql://USER@HOST/DATABASE", None),
        ("postgres://me@db/shop", "postgresql://USER@HOST/DATABASE", None),
        ("mysql://me@db/shop", "mysql://USER@HOST/DATABASE", None),
        ("mariadb+pymysql://me@db/shop", "mysql://USER@HOST/DATABASE", None),
        ("oracle://me@db/shop", "oracle://…", None),
        ("log:logs/*.log", "log:GLOB", None),
        ("s3://bucket/prefix", "s3://BUCKET/PREFIX", None),
        ("zip:old.zip", "zip:FILE", None),
        ("objects:gcs://bucket", "objects:URL", None),
        ("table:data/*.csv", "table:GLOB", None),
        ("system:", "system:", None),
        ("screen:", "screen:", None),
        ("space=command:df --output=target", "command:LINE", "space"),
        ("command:df --output=target", "command:LINE", None),
        ("everything=mcp:npx -y server-everything", "mcp:LINE", "everything"),
        ("https://host.test/mcp?a=b", "https://HOST/mcp", None),
    ],
)
def test_a_word_is_parsed_into_kind_and_label(word: str, form: str, label: str | None, here: Path) -> None:
    parsed = parse_word(word)
    assert (parsed.kind.form, parsed.label) == (form, label)


def test_an_existing_path_is_never_parsed_as_a_scheme_or_label(here: Path) -> None:
    for name in ("a=b", "git:odd", "x=git:odd"):
        assert parse_word(name).kind is FILES
    assert (parse_word("a=b").rest, parse_word("a=b").label) == ("a=b", None)
    assert parse_word("x=git:odd").label == "x"


@pytest.mark.parametrize("word", ["ftp://host/x", "gopher:x", "x=ftp://me:hunter2@host/x"])
def test_an_unknown_scheme_is_reported_with_the_known_ones(word: str, here: Path) -> None:
    with pytest.raises(UnusableSource, match=r"not a kind of data .* PATH, git:PATH, .*sqlite:.*s3://") as caught:
        parse_word(word)
    assert "hunter2" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_every_source_gets_a_unique_name(here: Path) -> None:
    prepared = make_sources(["one/docs", "two/docs", "docs-2=docs", "a=b"])
    assert [each.name for each in prepared] == ["docs", "two-docs", "docs-2", "a=b"]
    assert [each.source.uri for each in prepared[:2]] == ["file:///docs", "file:///two-docs"]


def test_a_duplicate_name_gets_the_parent_folders_as_a_prefix(here: Path) -> None:
    for path in ("flask/docs", "django/docs", "old/flask/docs", "old/flask/src/flask"):
        (here / path).mkdir(parents=True)
    words = ["docs", "flask/docs", "django/docs", "old/flask/docs", "flask", "old/flask", "old/flask/src/flask"]
    assert [each.name for each in make_sources(words)] == [
        "docs", "flask-docs", "django-docs", "old-flask-docs", "flask", "old-flask", "src-flask",
    ]  # fmt: skip


def test_a_name_used_by_another_kind_of_data_gets_its_kind_as_a_suffix(here: Path) -> None:
    subprocess.run(["git", "init", "-q", "docs"], cwd=here, check=True)
    assert [each.name for each in make_sources(["docs", "git:docs"])] == ["docs", "docs-git"]
    assert [each.name for each in make_sources(["git:docs", "docs"])] == ["docs", "docs-files"]
    assert [each.name for each in make_sources(["docs", "one/docs", "git:docs"])] == ["docs", "one-docs", "docs-git"]


def test_a_chosen_name_is_never_given_to_another_source(here: Path) -> None:
    assert [each.name for each in make_sources(["docs", "one/docs", "one-docs=two/docs"])] == [
        "docs",
        f"{here.name}-one-docs",
        "one-docs",
    ]


def test_a_name_chosen_twice_is_refused(here: Path) -> None:
    with pytest.raises(UnusableSource, match="'a' is given twice"):
        make_sources(["a=docs", "a=one/docs"])


def test_the_system_takes_no_label_and_is_given_at_most_once(here: Path) -> None:
    with pytest.raises(UnusableSource, match="system: takes no name"):
        make_sources(["mine=system:"])
    with pytest.raises(UnusableSource, match="system: is given twice"):
        make_sources(["system:", "system:"])


@pytest.mark.parametrize(
    ("word", "form"), [("git:", "git:PATH"), ("system:load", "system:"), ("command:", "command:LINE"), ("", "PATH")]
)
def test_a_malformed_word_is_reported_with_its_form(word: str, form: str) -> None:
    with pytest.raises(UnusableSource, match=f"write {form}"):
        make_sources([word], {"allow_command": True})


def test_a_missing_folder_is_reported(here: Path) -> None:
    with pytest.raises(UnusableSource, match=str(here / "nowhere")):
        make_sources(["nowhere"])


@pytest.mark.parametrize(
    ("name", "word"),
    [("shop.db", "sqlite:///shop.db"), ("old.ZIP", "zip:old.ZIP"), ("t.csv", "table:t.csv"), ("a.log", "log:a.log")],
)
def test_a_file_is_reported_with_the_scheme_to_use(name: str, word: str, here: Path) -> None:
    (here / name).write_text("")
    with pytest.raises(UnusableSource) as caught:
        make_sources([name])
    assert f"publish it as {word}" in str(caught.value)


@pytest.mark.parametrize(
    ("word", "library", "extra"),
    [
        ("table:docs", "duckdb", "tables"),
        ("duckdb:///shop.duckdb", "duckdb", "tables"),
        ("postgresql://reader@db.test/shop", "asyncpg", "sql"),
        ("mysql://reader@db.test/shop", "pymysql", "sql"),
        ("s3://charts/tiles", "s3fs", "objects"),
        ("openapi:harbour.json", "openapi_pydantic", "openapi"),
        ("web:https://docs.example.org/", "protego", "web"),
        ("skills:docs", "yaml", "skills"),
        ("system:", "psutil", "system"),
        ("screen:", "mss", "screen"),
    ],
)
def test_a_word_whose_library_is_missing_is_reported_with_its_extra(
    word: str, library: str, extra: str, here: Path
) -> None:
    (here / "harbour.json").write_text(
        '{"openapi": "3.1.0", "info": {"title": "Harbour", "version": "1"}, "paths": {}}'
    )
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from wharfinger.errors import MissingExtra\nfrom wharfinger.sources.registry import make_sources\n"
        f"try: make_sources([{word!r}])\nexcept MissingExtra as error: print(error)"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'wharfinger[{extra}]'" in completed.stdout


def test_a_command_must_be_allowed(here: Path) -> None:
    with pytest.raises(UnusableSource, match="allow it with --allow-command"):
        make_sources(["command:df -h"])
    with pytest.raises(UnusableSource, match="mcp:LINE runs a program: allow it with --allow-command"):
        make_sources(["mcp:df -h"])
    with pytest.raises(UnusableSource, match="needs a command line"):
        make_sources(["command: "], {"allow_command": True})
    with pytest.raises(UnusableSource, match="must be followed by a command line"):
        make_sources(["command:echo 'x"], {"allow_command": True})


def test_an_upstream_at_a_private_address_must_be_allowed() -> None:
    with pytest.raises(UnusableSource):
        make_sources(["http://127.0.0.1:9/mcp"])
    (prepared,) = make_sources(["http://127.0.0.1:9/mcp"], {"allow_private_networks": True})
    assert prepared.parsed.kind.form == "https://HOST/mcp"


@pytest.mark.parametrize(
    ("word", "absolute"),
    [
        ("docs", "{here}/docs"),
        ("x=docs", "x={here}/docs"),
        ("git:.", "git:{here}"),
        ("code=git:one", "code=git:{here}/one"),
        ("sqlite:///shop.db", "sqlite:///{here}/shop.db"),
        ("sqlite:////srv/shop.db?mode=ro", "sqlite:////srv/shop.db?mode=ro"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("log:logs/*.log", "log:{here}/logs/*.log"),
        ("table:data/*.csv", "table:{here}/data/*.csv"),
        ("zip:old.zip", "zip:{here}/old.zip"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("system:", "system:"),
        ("command:df -h", "command:df -h"),
        ("postgresql://me:hunter2@db/shop", "postgresql://me@db/shop"),
    ],
)
def test_a_word_can_be_made_absolute(word: str, absolute: str, here: Path) -> None:
    assert absolute_word(parse_word(word)) == absolute.format(here=here)
    assert absolute_word(parse_word(absolute.format(here=here))) == absolute.format(here=here)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:hunter2@db/shop", "postgresql://me@db/shop"),
        ("postgresql+asyncpg://me:hunter2@db:5432/shop?sslmode=require", None),
        ("postgresql://me:hun@ter2@db/shop", "postgresql://me@db/shop"),
        ("postgresql://me:hunter/2@db/shop", "postgresql://me@db/shop"),
        ("postgresql://:hunter2@db/shop", "postgresql://@db/shop"),
        ("postgresql://db/shop?user=me&password=hunter2", "postgresql://db/shop?user=me"),
        ("postgresql://db/shop?password=hunter2&user=me", "postgresql://db/shop?user=me"),
        ("https://me:hunter2@host/mcp", "https://me@host/mcp"),
        ("https://host/mcp?token=hunter2", "https://host/mcp"),
        ("https://host:8080/@me/mcp", "https://host:8080/@me/mcp"),
        ("x=mysql://me:hunter2@db/shop", "x=mysql://me@db/shop"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
        ("docs/password=x", "docs/password=x"),
    ],
)
def test_a_password_is_never_shown(url: str, expected: str | None) -> None:
    without_password = redacted(url)
    assert "hunter" not in without_password
    assert "ter2" not in without_password
    assert expected is None or without_password == expected
    assert has_password(url) == (without_password != url)
    assert redacted(without_password) == without_password


@pytest.mark.parametrize(
    "word", ["command:df --token hunter2 -h", "command:df 'x --token=hunter2", "mcp:df --token hunter2"]
)
def test_a_command_is_shown_without_the_passwords_of_its_arguments(word: str) -> None:
    assert "hunter2" not in shown_word(parse_word(word))
    assert "hunter2" not in absolute_word(parse_word(word))
    with pytest.raises(UnusableSource) as caught:
        make_sources([word])
    assert "hunter2" not in str(caught.value)


def test_words_are_shown_and_named_without_passwords(here: Path) -> None:
    parsed = parse_word("postgresql://me:hunter2@db/shop")
    assert shown_word(parsed) == "postgresql://me@db/shop"
    assert short_name(parsed) == "shop"
    assert short_name(parse_word("git:one/docs")) == "docs"
    assert short_name(parse_word("log:logs/*.log")) == "logs"
    assert short_name(parse_word("system:")) == "system"
    assert short_name(parse_word("git:.")) == here.name
    assert short_name(parse_word("x=git:.")) == "x"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.form)
def test_every_factory_exists_and_accepts_its_options(kind: object) -> None:
    factory: Callable[..., Source] = getattr(sources, kind.factory)  # type: ignore[attr-defined]
    names = inspect.signature(factory).parameters
    assert set(kind.takes) <= set(names)  # type: ignore[attr-defined]
    assert (kind.label_option in names) is kind.has_rest  # type: ignore[attr-defined]


def test_each_scheme_belongs_to_one_kind() -> None:
    schemes = [scheme for kind in KINDS for scheme in kind.schemes]
    assert len(set(schemes)) == len(schemes)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("web:https://docs.example.org/", "web:https://docs.example.org/guide/"),
        ("web:https://docs.example.org/guide/", "web:https://docs.example.org"),
        ("web:https://docs.example.org/guide/", "web:https://docs.example.org/guide"),
    ],
)
def test_a_site_below_another_published_site_is_refused(first: str, second: str) -> None:
    """Its pages would be listed twice."""
    with pytest.raises(UnusableSource, match="would have the same URIs"):
        make_sources([first, second])


def test_a_folder_inside_another_published_folder_is_published(here: Path) -> None:
    prepared = make_sources([str(here), str(here / "docs")], {"absolute_uris": True})
    assert prepared[0].source.matches(prepared[1].source.uri)


def test_sites_at_sibling_paths_or_on_other_hosts_are_published() -> None:
    words = ["web:https://docs.example.org/guide/", "web:https://docs.example.org/guidebook/", "web:https://b.example/"]
    assert [each.source.uri for each in make_sources(words)] == [f"{word[4:]}?list=pages" for word in words]

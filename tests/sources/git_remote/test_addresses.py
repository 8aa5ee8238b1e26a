"""The addresses of repositories that can be cloned, and the credentials that are sent to them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from wharfinger.source import UnusableSource
from wharfinger.sources.git_remote.remote_address import is_remote, parse_remote
from wharfinger.sources.git_repository import git
from wharfinger.sources.registry import make_sources


@pytest.mark.parametrize(
    ("text", "url", "name"),
    [
        ("https://git.example.org/org/docs.git", "https://git.example.org/org/docs.git", "docs"),
        ("https://git.example.org/org/docs", "https://git.example.org/org/docs", "docs"),
        ("HTTPS://GIT.Example.org:8443/org/docs.git/", "https://git.example.org:8443/org/docs.git", "docs"),
        ("https://git.example.org/a%20b.git", "https://git.example.org/a%20b.git", "a_b"),
        ("https://git.example.org/.git", "https://git.example.org/.git", "repository"),
        ("https://[2001:db8::1]/x.git", "https://[2001:db8::1]/x.git", "x"),
        ("http://127.0.0.1:8000/x.git", "http://127.0.0.1:8000/x.git", "x"),
        ("http://localhost/x.git", "http://localhost/x.git", "x"),
    ],
)
def test_an_address_is_normalised_and_names_the_source(text: str, url: str, name: str) -> None:
    address = parse_remote(text)
    assert (address.url, address.name) == (url, name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ssh://git@example.org/x.git", "over HTTPS only"),
        ("git@example.org:org/x.git", "over HTTPS only"),
        ("git://example.org/x.git", "over HTTPS only"),
        ("file:///srv/x.git", "over HTTPS only"),
        ("ext::sh -c touch", "no folder"),
        ("http://example.org/x.git", "anyone on the way"),
        ("https://ada:hunter2@example.org/x.git", "WHARFINGER_GIT_TOKEN"),
        ("https://hunter2@example.org/x.git", "WHARFINGER_GIT_TOKEN"),
        ("https://example.org/x.git?token=hunter2", "query"),
        ("https://example.org/x.git#hunter2", "query"),
        ("https://example.org/x y.git", "cannot be read"),
        ("https://example.org/x\n.git", "cannot be read"),
        ("https://example.org\\@evil.example/x.git", "WHARFINGER_GIT_TOKEN"),
        ("https://example.org", "cannot be read"),
        ("https:///x.git", "cannot be read"),
        ("https://example.org:99999/x.git", "cannot be read"),
        ("https://exämple.org/x.git", "cannot be read"),
        ("https://example.org/" + "x" * 2_000, "cannot be read"),
    ],
)
def test_other_addresses_are_refused_without_repeating_secrets(text: str, reason: str, cache: Path) -> None:
    with pytest.raises(UnusableSource, match=reason) as caught:
        git(text)
    assert "hunter2" not in str(caught.value)
    assert not cache.exists()


def test_the_length_of_an_address_is_bounded() -> None:
    start = "https://example.org/"
    assert parse_remote(start + "x" * (2_000 - len(start)))
    with pytest.raises(UnusableSource):
        parse_remote(start + "x" * (2_001 - len(start)))


def test_repositories_with_the_same_name_are_named_after_their_organisations_too(cache: Path) -> None:
    urls = ["https://a.example/port/docs.git", "https://a.example/yard/docs.git", "https://b.example/x/yard/docs"]
    made = make_sources([f"git:{url}" for url in urls])
    assert [each.name for each in made] == ["docs", "yard-docs", "x-yard-docs"]


def test_an_existing_folder_is_preferred_to_an_address_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_remote("me@host:docs")
    (tmp_path / "me@host:docs").mkdir()
    assert not is_remote("me@host:docs")


def test_each_address_has_its_own_key() -> None:
    urls = [
        "https://a.example/x.git",
        "https://a.example/X.git",
        "https://b.example/x.git",
        "https://a.example/y/x.git",
    ]
    assert len({parse_remote(url).key for url in urls}) == len(urls)
    assert parse_remote(urls[0] + "/").key == parse_remote(urls[0]).key


def test_a_general_token_is_sent_to_one_host_only(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def credentials(host: str) -> str:
        header = parse_remote(f"https://{host}/x.git").authorization()
        return base64.b64decode(header.removeprefix("Basic ")).decode()

    assert credentials("a.example") == ""
    monkeypatch.setenv("WHARFINGER_GIT_TOKEN", "general")
    assert credentials("a.example") == "x-access-token:general"
    with pytest.raises(UnusableSource, match="WHARFINGER_GIT_TOKEN_B_EXAMPLE") as caught:
        credentials("b.example")
    assert "general" not in str(caught.value).replace("the general", "")
    monkeypatch.setenv("WHARFINGER_GIT_TOKEN_B_EXAMPLE", "own")
    monkeypatch.setenv("WHARFINGER_GIT_USERNAME_B_EXAMPLE", "ada")
    monkeypatch.setenv("WHARFINGER_GIT_TOKEN_C_EXAMPLE", "")
    assert (credentials("a.example"), credentials("b.example"), credentials("c.example")) == (
        "x-access-token:general",
        "ada:own",
        "",
    )


def test_a_token_variable_that_matches_two_hosts_is_sent_to_one_of_them(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHARFINGER_GIT_TOKEN_GIT_TWICE_EXAMPLE", "secret")
    assert parse_remote("https://git.twice.example/x.git").authorization()
    assert parse_remote("https://git.twice.example/y.git").authorization()
    with pytest.raises(
        UnusableSource, match=r"is used for git\.twice\.example, and is not sent to git-twice"
    ) as caught:
        parse_remote("https://git-twice.example/x.git").authorization()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["a\nX-Evil: 1", "a\x00", "a\rb"])
def test_a_token_with_control_characters_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    try:
        monkeypatch.setenv("WHARFINGER_GIT_TOKEN", token)
    except ValueError:
        return  # the operating system refuses such a value
    with pytest.raises(UnusableSource, match="cannot be sent"):
        parse_remote("https://a.example/x.git").authorization()

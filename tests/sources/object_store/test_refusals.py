"""Invalid URLs, and URLs that are not of one remote store, are refused with advice."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from wharfinger.source import UnusableSource
from wharfinger.sources import objects


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///etc", "give the path of their folder"),
        ("local:///etc", "give the path of their folder"),
        ("FILE:///etc", "give the path of their folder"),
        ("http://169.254.169.254/latest", "web pages"),
        ("https://127.0.0.1/x", "web pages"),
        ("simplecache::s3://bucket/x", "wraps one store"),
        ("filecache::file:///etc", "wraps one store"),
        ("zip://x::file:///etc/a.zip", "wraps one store"),
        ("s3::file:///etc", "wraps one store"),
        ("simplecache://s3", "wraps another store"),
        ("dir:///etc", "wraps another store"),
        ("reference://x", "wraps another store"),
        ("tar:///x.tar", "give an archive as tar:FILE"),
        ("git:///charts", "give a repository as git:PATH"),
        ("data://,x", "contains its content itself"),
        ("hdfs://name/x", "give webhdfs://HOST:PORT/PATH"),
        ("zip://x", "zip:FILE"),
        ("nobody://x/y", "fsspec does not support"),
        ("s3:bucket", "needs two slashes"),
        ("s3://", "Give a bucket as s3://bucket/prefix"),
        ("s3://bucket/a/../b", "in its path"),
        ("s3://bucket/a//b", "in its path"),
        ("memory://a/../b", "in its path"),
        ("s3://bucket/x?versionId=1", "leave out everything from"),
        ("s3://key:word@bucket/x", "without credentials or endpoint"),
        ("charts", "not the URL of a store"),
        ("", "not the URL of a store"),
    ],
)
def test_an_unsupported_url_is_refused_with_advice(url: str, message: str) -> None:
    with pytest.raises(UnusableSource) as caught:
        objects(url)
    assert message in str(caught.value)
    assert "word" not in str(caught.value)


def test_a_wrapper_of_another_store_is_refused_whatever_its_scheme() -> None:
    """A bug: the reason was that it has files of this machine."""
    fsspec.register_implementation("charts", DirFileSystem, clobber=True)
    with pytest.raises(UnusableSource, match="wraps another store"):
        objects("charts://x", path="/x", target_protocol="memory")


@pytest.mark.parametrize("scheme", ["zip", "tar"])
def test_options_of_a_store_are_refused_for_an_archive(scheme: str) -> None:
    """A bug: they had no effect."""
    with pytest.raises(UnusableSource, match=f"{scheme}:FILE takes no options of a store: leave out anon, key"):
        objects(f"{scheme}:charts", anon=True, key="word")


@pytest.mark.parametrize("label", ["", ".", "..", "a/b", "a\0"])
def test_an_invalid_label_is_refused(tmp_path: Path, label: str) -> None:
    with pytest.raises(UnusableSource, match="choose another label"):
        objects(f"zip:{tmp_path}/a.zip", label=label)


def test_the_password_of_a_url_appears_in_no_uri_or_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class QuietFileSystem(fsspec.AbstractFileSystem):
        protocol = "quiet"

    fsspec.register_implementation("quiet", QuietFileSystem, clobber=True)
    source = objects("quiet://pilot:hush@host:22/charts")
    texts = [source.uri, source.location, source.name, source.title, repr(source), str(source.templates)]
    assert source.uri == "quiet://host:22/charts/"
    assert not any("hush" in text for text in texts)
    with pytest.raises(Exception, match="quiet://host:22/charts/ does not answer") as caught:
        source.page(None, 10)
    assert "hush" not in str(caught.value)

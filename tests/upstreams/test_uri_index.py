"""The index of the URIs and templates of a server."""

from __future__ import annotations

import time

import pytest

from wharfinger import types as t
from wharfinger.upstreams import uri_index
from wharfinger.upstreams.uri_index import MAX_ALL_VARIABLES, MAX_TEMPLATES, MAX_VARIABLES, UriIndex


def templates(count: int, variables: int) -> list[t.ResourceTemplate]:
    path = "/".join(f"{{v{number}}}" for number in range(variables))
    return [t.ResourceTemplate(name="x", uri_template=f"x{number}://{path}") for number in range(count)]


def test_the_variables_of_all_templates_together_are_limited() -> None:
    """A bug: the templates of one server took seven seconds to compile, whenever they were listed."""
    index = UriIndex()
    began = time.monotonic()
    assert index.set_templates(templates(MAX_TEMPLATES, MAX_VARIABLES))
    assert time.monotonic() - began < 10
    assert len(index.templates) == MAX_ALL_VARIABLES // MAX_VARIABLES
    assert index.covers("x0://" + "/".join("a" * MAX_VARIABLES))


def test_templates_that_have_not_changed_are_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index, other = UriIndex(), UriIndex()
    index.set_templates(templates(2, 1))
    monkeypatch.setattr(uri_index, "UriTemplate", None)
    assert not index.set_templates(templates(2, 1))
    other.share_templates(index)
    assert not other.set_templates(templates(2, 1))
    assert other.templates == index.templates and other.covers("x1://a")

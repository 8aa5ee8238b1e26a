"""Pagination: the Link header, and the members and parameters that APIs use for pages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.sources.http_api.api_operations import ApiOperation, read_document
from wharfinger.sources.http_api.api_paging import page_links, read_links

URL = "https://api.test/v1/ships"


def operation(*names: str, **defaults: int) -> ApiOperation:
    parameters = [{"name": name, "in": "query", "schema": {}} for name in names]
    parameters += [{"name": name, "in": "query", "schema": {"default": value}} for name, value in defaults.items()]
    root: Any = {"openapi": "3.1.0", "info": {}, "paths": {"/ships": {"get": {"parameters": parameters}}}}
    return read_document(root, "it").operations[0]


def next_page(operation: ApiOperation, value: Any, *pairs: tuple[str, str], link: str = "") -> Any:
    """Return the URL or the parameters of the page after an answer."""
    links = page_links(operation, pairs, link, json.dumps(value).encode(), "application/json", URL)
    return links.next_url or dict(links.next_pairs)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('<https://a.test/x?page=2>; rel="next"', {"next": "https://a.test/x?page=2"}),
        ('</x?page=2>; rel=next, </x?page=9>; rel="last"', {"next": "/x?page=2", "last": "/x?page=9"}),
        ('<a,b;c>; title="x, <y>; rel=prev"; REL="Next start"', {"next": "a,b;c", "start": "a,b;c"}),
        ('<a>; rel="next", <b>; rel="next"', {"next": "a"}),
        ("<a>", {}),
        ("a; rel=next", {}),
        ("<a; rel=next", {}),
    ],
)
def test_a_link_header_is_parsed(header: str, expected: dict[str, str]) -> None:
    assert read_links(header) == expected


@given(st.text(st.sampled_from('<>;,"= relnxt'), max_size=200))
def test_any_link_header_is_parsed_without_an_error(header: str) -> None:
    assert all(isinstance(target, str) for target in read_links(header).values())


def test_a_link_that_is_not_a_url_is_not_followed() -> None:
    found = page_links(operation(), (), "<http://[x>; rel=next, <http://[y>; rel=prev", b"{}", "application/json", URL)
    assert found.next_url == found.previous_url == ""
    assert next_page(operation(), {"items": [], "next": "http://[x"}) == {}


ITEMS = [{"id": number} for number in range(10)]


@pytest.mark.parametrize(
    ("names", "value", "pairs", "expected"),
    [
        (("cursor",), {"items": ITEMS, "next_cursor": "abc"}, (), {"cursor": "abc"}),
        (("cursor",), {"items": ITEMS, "next_cursor": None}, (), {}),
        (("cursor",), {"items": ITEMS, "next_cursor": "abc"}, (("cursor", "abc"),), {}),
        (("other",), {"items": ITEMS, "next_cursor": "abc"}, (), {}),
        (("continue",), {"metadata": {"continue": "xyz"}, "items": []}, (), {"continue": "xyz"}),
        (("pageToken",), {"nextPageToken": "t"}, (), {"pageToken": "t"}),
        (("cursor",), {"response_metadata": {"next_cursor": "s"}}, (), {"cursor": "s"}),
        (("starting_after",), {"data": ITEMS, "has_more": True}, (), {"starting_after": "9"}),
        (("starting_after",), {"data": ITEMS, "has_more": False}, (), {}),
        (("page", "per_page"), ITEMS, (("per_page", "10"),), {"page": "2"}),
        (("page", "per_page"), ITEMS, (("per_page", "10"), ("page", "4")), {"page": "5"}),
        (("page", "per_page"), ITEMS, (("per_page", "11"),), {}),
        (("page", "per_page"), ITEMS, (), {}),
        (("offset", "limit"), {"results": ITEMS}, (("limit", "10"), ("offset", "20")), {"offset": "30"}),
        (("offset", "limit"), {"results": []}, (("limit", "10"),), {}),
        (("page",), {"next": "https://api.test/v1/ships?page=2"}, (), "https://api.test/v1/ships?page=2"),
        (("page",), {"links": {"next": {"href": "?page=3"}}}, (), "https://api.test/v1/ships?page=3"),
        (("page",), {"next": "a word"}, (), {}),
        (("page",), 5, (), {}),
    ],
)
def test_the_next_page_is_found(names: tuple[str, ...], value: Any, pairs: Any, expected: Any) -> None:
    assert next_page(operation(*names), value, *pairs) == expected


def test_the_default_page_size_is_used() -> None:
    assert next_page(operation("page", per_page=10), ITEMS) == {"page": "2"}
    assert next_page(operation("page", per_page=30), ITEMS) == {}


def test_pages_that_are_counted_from_0_are_all_read() -> None:
    """A bug: the page after the first, which is page 0 by default, was page 2."""
    assert next_page(operation(page=0, size=10), {"content": ITEMS}) == {"page": "1"}
    assert next_page(operation(page=0, size=10), {"content": ITEMS}, ("page", "1")) == {"page": "2"}


def test_a_link_header_takes_precedence_over_members() -> None:
    link = '</v1/ships?page=7>; rel="next"'
    assert next_page(operation("cursor"), {"next_cursor": "abc"}, link=link) == "https://api.test/v1/ships?page=7"
    assert next_page(operation("cursor"), {"next_cursor": "abc"}, link='</v1/ships>; rel="first"') == {}


@pytest.mark.parametrize(
    "link",
    [
        '</openapi.json>; rel="service-desc"',
        "</style.css>; rel=preload; as=style",
        '</openapi.json>; REL="Service-Desc", </v1/ships>; rel="SELF"',
    ],
)
def test_members_are_followed_although_links_about_other_things_are_in_the_header(link: str) -> None:
    """A bug: any link in the header ended the pages."""
    assert next_page(operation("cursor"), {"next_cursor": "abc"}, link=link) == {"cursor": "abc"}


@pytest.mark.parametrize("relation", ["first", "last", "prev", "previous", "LAST", "alternate Prev"])
def test_a_header_that_links_pages_without_a_next_one_ends_them(relation: str) -> None:
    """We: the members of such an answer are not pages; GitHub's last page links only the first and previous ones."""
    assert next_page(operation("cursor"), {"next_cursor": "abc"}, link=f'</v1/ships>; rel="{relation}"') == {}

"""An API as a source: answers, versions, conditional requests, pages, completion, policy, credentials and faults."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.sources.http_api.conftest import ShopServer
from tests.sources.http_api.shop import TOKEN, Shop, make_shop
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.errors import HandlerFailed, InvalidArgument, ResourceNotFound, ToolError
from wharfinger.source import VERSION, SourceUnavailable, UnusableSource, version_of
from wharfinger.sources import openapi, resource_tools
from wharfinger.sources.http_api import HttpApi
from wharfinger.sources.http_api.api_client import ApiClient
from wharfinger.sources.http_api.api_credentials import ApiCredentials, SentCredentials
from wharfinger.sources.http_api.api_operations import read_document
from wharfinger.sources.http_api.asgi_transport import AsgiTransport
from wharfinger.sources.resource_tool_set.answer_budget import DEFAULT_TOKENS
from wharfinger.testing.source_suite.driver import ChangeRecorder, SourceDriver

Permit = Callable[..., AbstractContextManager[None]]

QUAY: dict[str, Any] = {
    "openapi": "3.1.0", "info": {"title": "Quay", "version": "1"},
    "paths": {"/a": {"get": {"responses": {"200": {"description": ""}}}}},
}  # fmt: skip


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def api(shop: Shop) -> HttpApi:
    """Return a source of the shop in this process."""
    app = make_shop(shop)
    return openapi(app.openapi(), app=app, label="shop", every=0.1, timeout=40)


def text(result: t.ReadResourceResult) -> Any:
    return result.contents[0].text


def meta(result: t.ReadResourceResult) -> dict[str, Any]:
    found: Any = result.contents[0].meta
    return dict(found)


def read(source: HttpApi, uri: str) -> t.ReadResourceResult:
    return asyncio.run(source.read(uri))


# Answers


def test_an_answer_is_exactly_what_the_api_sends(api: HttpApi, shop: Shop) -> None:
    result = read(api, "api://shop/orders/7")
    assert text(result) == json.dumps(shop.orders[7], separators=(",", ":"))
    assert result.contents[0].mime_type == "application/json"


def test_an_etag_is_the_version_and_an_unchanged_answer_is_not_sent_again(api: HttpApi, shop: Shop) -> None:
    async def check() -> None:
        first = meta(await api.read("api://shop/orders/7"))[VERSION]
        assert first == shop.headers(shop.orders[7])["etag"]
        assert await api.version("api://shop/orders/7") == first
        assert shop.not_modified == 1
        shop.orders[7]["amount"] = 99
        assert version_of(await api.stat("api://shop/orders/7")) == shop.headers(shop.orders[7])["etag"] != first

    asyncio.run(check())


def test_last_modified_is_part_of_the_version_and_is_sent_as_a_condition(api: HttpApi, shop: Shop) -> None:
    async def check() -> None:
        found = await api.stat("api://shop/notices")
        assert found.annotations is not None
        assert str(getattr(found.annotations, "last_modified", "")) == "2023-11-14T22:13:20Z"
        assert version_of(found).startswith("Tue, 14 Nov 2023 22:13:20 GMT ")
        assert await api.version("api://shop/notices") == version_of(found)
        assert shop.not_modified == 1

    asyncio.run(check())


def test_no_request_is_sent_within_max_age(api: HttpApi, shop: Shop) -> None:
    async def check() -> None:
        result = await api.read("api://shop/tides")
        assert isinstance(result.ttl_ms, int)
        assert 115_000 < result.ttl_ms <= 120_000
        before = len(shop.requests)
        await api.read("api://shop/tides")
        assert len(shop.requests) == before

    asyncio.run(check())


@pytest.mark.parametrize("later", ["no-store", "404"])
def test_an_answer_that_may_no_longer_be_kept_replaces_the_kept_one(later: str) -> None:
    """A bug: reads returned the earlier answer until its `max-age` had passed, after watchers got the later one."""
    answers = [(200, b"max-age=600", b'"calm"'), (404 if later == "404" else 200, b"no-store", b'"fog"')]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            status, caching, body = answers.pop(0) if len(answers) > 1 else answers[0]
            headers = [(b"content-type", b"application/json"), (b"cache-control", caching)]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def check() -> None:
        source = openapi(QUAY, app=app, label="quay")
        assert text(await source.read("api://quay/a")) == '"calm"'
        with suppress(ResourceNotFound):
            await source._look("api://quay/a")
        if later == "404":
            with pytest.raises(ResourceNotFound):
                await source.read("api://quay/a")
        else:
            assert text(await source.read("api://quay/a")) == '"fog"'

    asyncio.run(check())


def test_an_answer_is_requested_each_time_once_the_api_says_no_cache() -> None:
    """A bug: an answer of 304 with `no-cache` kept the earlier `max-age`."""
    requests: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            condition = dict(scope["headers"]).get(b"if-none-match", b"")
            requests.append(condition)
            headers = [(b"etag", b'"1"'), (b"cache-control", b"no-cache" if condition else b"max-age=600")]
            await send({"type": "http.response.start", "status": 304 if condition else 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if condition else b"calm"})

    async def check() -> None:
        source = openapi(QUAY, app=app, label="quay")
        await source.read("api://quay/a")
        await source.read("api://quay/a")
        assert requests == [b""]
        await source._look("api://quay/a")
        result = await source.read("api://quay/a")
        assert requests == [b"", b'"1"', b'"1"']
        assert text(result) == "calm"
        assert result.ttl_ms == 0

    asyncio.run(check())


def test_a_second_change_in_the_second_of_last_modified_is_noticed() -> None:
    """A bug: the API confirmed the first content by its date, forever (RFC 9110 §8.8.2.2)."""
    texts = [b"calm", b"fog"]
    date = b"Tue, 14 Nov 2023 22:13:20 GMT"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            unchanged = dict(scope["headers"]).get(b"if-modified-since") == date
            headers = [(b"content-type", b"text/plain"), (b"last-modified", date), (b"date", date)]
            await send({"type": "http.response.start", "status": 304 if unchanged else 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if unchanged else texts.pop(0)})

    async def check() -> None:
        source = openapi(QUAY, app=app, label="quay")
        assert text(await source.read("api://quay/a")) == "calm"
        assert text(await source.read("api://quay/a")) == "fog"

    asyncio.run(check())


def test_an_api_that_sends_too_much_is_not_down() -> None:
    """A bug: it stayed down until another answer was small enough."""
    is_up = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and is_up:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"calm"})

    async def check() -> None:
        nonlocal is_up
        client = ApiClient(AsgiTransport(app, timeout=40, max_body_bytes=3), "quay")
        with pytest.raises(SourceUnavailable):
            await client.get("api://quay/a", "http://quay/a", {})
        assert client.down_reason
        is_up = True
        with pytest.raises(HandlerFailed, match="sent more than"):
            await client.get("api://quay/a", "http://quay/a", {})
        assert not client.down_reason
        await client.close()

    asyncio.run(check())


def test_a_tool_call_invalidates_the_cached_answer() -> None:
    berths = ["mary"]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if scope["method"] == "POST":
                berths.append("ann")
            headers = [(b"content-type", b"application/json"), (b"cache-control", b"max-age=600")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(berths).encode()})

    document = {**QUAY, "paths": {"/a": {**QUAY["paths"]["/a"], "post": {"operationId": "moor", "responses": {}}}}}

    async def check() -> None:
        server = Server("quay")
        server.include(openapi(document, app=app, label="quay", allow_operations=["moor"]))
        async with Client(server, cache=False) as client:
            assert (await client.read_resource("api://quay/a")).text == '["mary"]'
            await client.call_tool("moor", {})
            assert (await client.read_resource("api://quay/a")).text == '["mary", "ann"]'

    asyncio.run(check())


@pytest.mark.parametrize("status", ["200", "201"])
def test_a_description_has_the_members_of_the_type_that_it_names(status: str) -> None:
    """A bug: the members were those of the first type, or of an answer of 200, and JSON was named with them."""
    schemas = [{"type": "object", "properties": {name: {"type": "string"}}} for name in ("page", "berth")]
    content = {"text/html": {"schema": schemas[0]}, "application/json": {"schema": schemas[1]}}
    operation = {"responses": {status: {"description": "", "content": content}}}
    source = openapi({**QUAY, "paths": {"/a": {"get": operation}}}, base_url="https://quay.example", label="quay")
    assert "It answers an object with berth (application/json)." in text(read(source, "api://quay/a?about=get"))


def test_an_answer_that_must_be_revalidated_has_a_ttl_of_zero(api: HttpApi) -> None:
    assert read(api, "api://shop/orders/7").ttl_ms == 0


def test_linked_pages_have_all_items(api: HttpApi, shop: Shop) -> None:
    async def read_pages(uri: str) -> list[Any]:
        found: list[Any] = []
        next_uri: Any = uri
        while next_uri:
            result = await api.read(next_uri)
            value = json.loads(text(result))
            found += value["items"] if isinstance(value, dict) else value
            next_uri = meta(result).get("wharfinger/next")
        return found

    assert asyncio.run(read_pages("api://shop/orders")) == list(shop.orders.values())
    failed = [order for order in shop.orders.values() if order["status"] == "failed"]
    assert asyncio.run(read_pages("api://shop/orders?status=failed&per_page=3")) == failed
    assert asyncio.run(read_pages("api://shop/cursors")) == list(range(25))
    assert asyncio.run(read_pages("api://shop/offsets?limit=7")) == list(range(25))
    assert meta(read(api, "api://shop/orders?page=2"))["wharfinger/previous"] == "api://shop/orders?page=1"


def test_lines_of_a_long_answer_can_be_read(api: HttpApi) -> None:
    result = read(api, "api://shop/notices?lines=3-4")
    assert text(result) == "notice 2: all is well\nnotice 3: all is well\n"


def test_lists_in_a_query_are_sent_as_the_document_defines(api: HttpApi) -> None:
    found = json.loads(text(read(api, "api://shop/orders?product=rope%201&product=rope%203")))
    assert [order["id"] for order in found] == [1, 3]


def test_a_latin_1_answer_is_decoded_and_a_wrong_content_type_is_reported(api: HttpApi) -> None:
    assert text(read(api, "api://shop/latin")) == "Grüße"
    picture = read(api, "api://shop/picture")
    assert picture.contents[0].mime_type != "image/png"
    assert "calls this image/png, but it is text" in str(picture.contents[1].text)


@pytest.mark.parametrize(
    ("declared_type", "body"),
    [
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", b"PK\x03\x04\0\0"),
        ("application/vnd.recordare.musicxml", b"PK\x03\x04\0\0"),
        ("application/json-seq", b"\x1e{}\n"),
        ("application/xml-dtd", b"<!ELEMENT buoy EMPTY>"),
    ],
)
def test_a_type_with_json_or_xml_in_its_name_is_kept_if_the_content_fits(declared_type: str, body: bytes) -> None:
    """A bug: a spreadsheet was reported as not being text, because its type contains "openxmlformats"."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(b"content-type", declared_type.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    result = read(openapi(QUAY, app=app, label="quay"), "api://quay/a")
    assert [content.mime_type for content in result.contents] == [declared_type]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "api://shop/orders?status=lost",
            "status: must be one of open, shipped, failed. See api://shop/orders?about=get",
        ),
        ("api://shop/orders?state=open", "has no parameter 'state'. It has status, product, page"),
        ("api://shop/orders?page=0", "page: must be at least 1"),
        ("api://shop/orders?page=x", "page: expected an integer"),
        ("api://shop/orders?page=1&page=2", "may be given once"),
        ("api://shop/orders?page", "A query is written ?name=value"),
        ("api://shop/orders?page=%zz", "A query is written ?name=value"),
        ("api://shop/orders?product=%FF", "UTF-8"),
        ("api://shop/orders/seven", "order_id: expected an integer"),
        ("api://shop?page=1", "has no parameters"),
        ("api://shop/orders?lines=1-2&tail=3", "one window"),
    ],
)
def test_an_invalid_query_is_refused_with_advice(api: HttpApi, shop: Shop, uri: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        read(api, uri)
    assert message in str(error.value)
    assert shop.requests == []


@pytest.mark.parametrize(
    "path",
    [
        "/orders/99", "/nothing", "/orders/7/", "/orders//7", "/orders/..", "/orders/%2e%2e", "/orders/..%2ftides",
        "/harbours/%2E%2E%2Ftides", "/orders/7%00", "/orders/7#x", "/orders/7%", "//elsewhere.test/x", "/openapi.json",
        "/harbours/%252e%252e", "/harbours/%252e%252e%252ftides", "/harbours/%25252e%25252e",
    ],
)  # fmt: skip
def test_only_operations_of_the_document_are_requested(api: HttpApi, shop: Shop, path: str) -> None:
    with pytest.raises((ResourceNotFound, InvalidArgument)):
        read(api, f"api://shop{path}")
    assert {request.url.path for request in shop.requests} <= {"/orders/99"}


@pytest.mark.parametrize(
    ("path", "expected"), [("/a%20b", "/a%20b"), ("/a b", "/a%20b"), ("/caf%C3%A9/50%", "/caf%25C3%25A9/50%25")]
)
def test_a_path_that_is_escaped_in_the_document_is_not_escaped_again(path: str, expected: str) -> None:
    paths: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            paths.append(scope["raw_path"].decode())
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

    api = openapi({**QUAY, "paths": {path: QUAY["paths"]["/a"]}}, app=app, label="quay")
    read(api, f"api://quay{expected}")
    assert paths == [expected]


def test_a_value_is_escaped_and_stays_one_segment(shop: Shop) -> None:
    app = make_shop(shop)

    @app.get("/files/{name}")
    async def file(name: str) -> dict[str, str]:
        return {"name": name}

    app.openapi_schema = None
    api = openapi(app.openapi(), app=app, label="shop")
    for name, escaped in (("a b+c&d", "a%20b+c&d"), ("grün?#", "gr%C3%BCn%3F%23"), ("50%", "50%25")):
        assert json.loads(text(read(api, f"api://shop/files/{escaped}"))) == {"name": name}


# Lists


def test_completion_offers_the_enum_values_of_the_document(api: HttpApi) -> None:
    async def check() -> None:
        orders, harbour = "api://shop/orders{?status,product*,page,per_page}", "api://shop/harbours/{harbour}"
        assert await api.complete(orders, "status", "", {}) == ["open", "shipped", "failed"]
        assert await api.complete(orders, "status", "sh", {}) == ["shipped"]
        assert await api.complete(harbour, "harbour", "w", {}) == ["whitby"]
        assert await api.complete(orders, "page", "", {}) == []

    asyncio.run(check())


def test_an_operation_that_cannot_be_read_is_left_out_with_a_remark(api: HttpApi) -> None:
    assert "Left out: GET /strict: it requires the header tenant." in text(read(api, "api://shop"))
    app = make_shop(Shop())
    with_header = openapi(app.openapi(), app=app, label="shop", headers={"tenant": "hull"})
    assert json.loads(text(read(with_header, "api://shop/strict"))) == {"tenant": "hull"}


def large_document(groups: int = 60, size: int = 20) -> dict[str, Any]:
    paths = {
        f"/g{group}/things{number}/{{id}}": {
            "get": {
                "tags": [f"group {group}"],
                "summary": f"Thing {number} of group {group}",
                "description": "x" * 1_000,
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": {"description": ""}},
            }
        }
        for group in range(groups)
        for number in range(size)
    }
    return {"openapi": "3.1.0", "info": {"title": "Large", "version": "1"}, "paths": paths}


def test_answers_about_a_large_api_stay_within_the_token_budget() -> None:
    async def check() -> None:
        server = Server("large")
        server.include(openapi(large_document(), app=make_shop(Shop()), label="large"))
        server.include(resource_tools())
        async with Client(server) as client:
            top = await client.call_tool("read_resource", {"uri": "api://large"})
            assert "group 7/  (20 operations)  api://large?tag=group%207" in top.text
            everything = await client.call_tool("read_directory", {})
            group = await client.call_tool("read_directory", {"uri": "api://large?tag=group%207"})
            assert "api://large/g7/things3/%7Bid%7D?about=get" in group.text
            found = await client.call_tool("search", {"query": "thing 13 group 42"})
            assert found.data["results"][0]["id"] == "api://large/g42/things13/%7Bid%7D?about=get"
            for answer in (top, everything, group, found):
                assert len(answer.text) <= DEFAULT_TOKENS * 4
            definitions = sum(len(str(tool)) for tool in await client.list_tools())
            assert definitions < 12_000

    asyncio.run(check())


# Policy


def test_rules_by_uri_apply_to_lists_and_reads(api: HttpApi, permit: Permit) -> None:
    with permit("api://shop/**", deny=["api://shop/orders/**", "api://shop/account"]):
        listed = [each.uri for each in asyncio.run(api.children("api://shop"))[0]]
        assert "api://shop/tides" in listed
        assert not [uri for uri in listed if "/orders" in uri or "/account" in uri]
        top = text(read(api, "api://shop"))
        assert "/tides" in top
        assert "/account" not in top
        assert "api://shop/orders" not in top


def test_a_group_of_hidden_operations_is_not_shown(permit: Permit) -> None:
    api = openapi(large_document(groups=60, size=2), app=make_shop(Shop()), label="large")
    with permit("api://large/**", deny=["api://large/g7/**", "api://large/g8/things0/**"]):
        uris = [each.uri for each in asyncio.run(api.children("api://large"))[0]]
        assert "api://large?tag=group%206" in uris
        assert "api://large?tag=group%207" not in uris
        assert "api://large?tag=group%207" not in [each.uri for each in asyncio.run(api.page(None, 100))[0]]
        top = text(read(api, "api://large"))
        assert "group 7" not in top
        assert "Large 1: 117 operations." in top
        assert "group 8/  (1 operation)" in top


def test_a_client_cannot_use_operations_that_the_policy_denies(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        '[[allow]]\nwho = "anyone"\nwhat = ["api://shop/**", "tool:read_resource", "tool:search"]\n'
        '[[deny]]\nwho = "anyone"\nwhat = "api://shop/orders/**"\n'
    )
    app = make_shop(shop)

    async def check() -> None:
        server = Server("shop", policy=tmp_path / "policy.toml")
        server.include(openapi(app.openapi(), app=app, label="shop", allow_operations=["place_order"]))
        server.include(resource_tools())
        async with Client(server) as client:
            uris = [each.uri for each in await client.list_resources()]
            assert "api://shop/tides" in uris
            assert "api://shop/orders" not in uris
            for uri in (
                "api://shop/orders",
                "api://shop/orders?page=2",
                "api://shop/orders/7",
                "api://shop/orders?about=get",
            ):
                with pytest.raises(ResourceNotFound):
                    await client.read_resource(uri)
            assert "/orders" not in (await client.call_tool("search", {"query": "list orders"})).text
            assert "place_order" not in [tool.name for tool in await client.list_tools()]
            assert "place_order" not in (await client.read_resource("api://shop")).text

    try:
        asyncio.run(check())
    finally:
        assert shop.requests == []


# Credentials


def test_a_token_is_sent_as_the_document_requires_and_never_shown(
    shop_server: ShopServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WHARFINGER_OPENAPI_ROPE_SHOP_TOKEN", TOKEN)
    caplog.set_level(logging.DEBUG)

    async def check() -> None:
        api = openapi(f"{shop_server.url}/openapi.json", label="rope-shop")
        try:
            account = text(await api.read("api://rope-shop/account"))
            assert json.loads(account)["name"] == "Ann"
            assert json.loads(account)["echo"]["authorization"] == "Bearer ***"
            assert json.loads(text(await api.read("api://rope-shop/keys"))) == {"keys": 1}
            for guarded in ("/account", "/keys", "/tides"):
                await api.read(f"api://rope-shop{guarded}")
        finally:
            await api.close()
        assert TOKEN not in f"{api!r} {api.describe()} {api.location} {caplog.text}"

    asyncio.run(check())
    sent = {request.url.path: request.headers for request in shop_server.shop.requests}
    assert sent["/account"]["authorization"] == f"Bearer {TOKEN}"
    assert "x-shop-key" not in sent["/account"]
    assert sent["/keys"]["x-shop-key"] == TOKEN
    assert "authorization" not in sent["/keys"]
    assert "authorization" not in sent["/openapi.json"]


def test_an_api_does_not_receive_the_token_of_another_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHARFINGER_OPENAPI_OTHER_TOKEN", TOKEN)
    shop = Shop()
    app = make_shop(shop)
    with pytest.raises(HandlerFailed, match="set WHARFINGER_OPENAPI_SHOP_TOKEN where the server starts"):
        read(openapi(app.openapi(), app=app, label="shop"), "api://shop/account")
    assert not any("authorization" in request.headers for request in shop.requests)


def test_a_tool_without_credentials_names_the_variable_too() -> None:
    async def check() -> None:
        server = Server.from_fastapi(make_shop(Shop()), label="shop", allow_operations=["account_account_get"])
        async with Client(server) as client:
            with pytest.raises(ToolError, match=r"401 Unauthorized.* set WHARFINGER_OPENAPI_SHOP_TOKEN where"):
                await client.call_tool("account_account_get", {})

    asyncio.run(check())


@pytest.mark.parametrize(
    ("scheme", "variables", "expected"),
    [
        ({"type": "http", "scheme": "bearer"}, {"TOKEN": "abcdef"}, ("authorization", "Bearer abcdef")),
        ({"type": "oauth2", "flows": {}}, {"TOKEN": "abcdef"}, ("authorization", "Bearer abcdef")),
        (
            {"type": "http", "scheme": "basic"},
            {"USER": "ann", "PASSWORD": "secret"},
            ("authorization", "Basic YW5uOnNlY3JldA=="),
        ),
        ({"type": "apiKey", "in": "header", "name": "X-Key"}, {"TOKEN": "abcdef"}, ("x-key", "abcdef")),
        ({"type": "apiKey", "in": "cookie", "name": "sid"}, {"TOKEN": "abcdef"}, ("cookie", "sid=abcdef")),
        ({"type": "apiKey", "in": "query", "name": "key"}, {"TOKEN": "abc def"}, ("?", "key=abc%20def")),
        ({"type": "apiKey", "in": "header", "name": "X-K"}, {"MAIN": "named1", "TOKEN": "another"}, ("x-k", "named1")),
    ],
)  # fmt: skip
def test_each_scheme_sends_its_credentials(
    scheme: dict[str, Any], variables: dict[str, str], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"WHARFINGER_OPENAPI_QUAY_{name}", value)
    seen: dict[str, str] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.update({name.decode(): value.decode() for name, value in scope["headers"]})
            seen["?"] = scope["query_string"].decode()
            body = f"you sent {seen}".encode()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": body})

    document = {
        "openapi": "3.1.0", "info": {"title": "Quay", "version": "1"}, "security": [{"main": []}],
        "paths": {"/a": {"get": {"responses": {"200": {"description": ""}}}}},
        "components": {"securitySchemes": {"main": scheme}},
    }  # fmt: skip
    answer = text(read(openapi(document, app=app, label="quay"), "api://quay/a"))
    assert seen[expected[0]] == expected[1]
    for secret in variables.values():
        if secret != "ann":
            assert secret not in answer


@pytest.mark.parametrize("security", [[{}, {"main": []}], [{"main": []}, {}]])
def test_optional_credentials_are_sent_if_there_are_values(security: list[Any]) -> None:
    """A bug: they were not if the alternative without credentials (`{}`) came first."""
    scheme: dict[str, Any] = {"main": {"type": "http", "scheme": "bearer"}}
    (operation,) = read_document({**QUAY, "security": security}, "it").operations
    sent = ApiCredentials(scheme, "quay", {"WHARFINGER_OPENAPI_QUAY_TOKEN": "abcdef"}, {}).of(operation)
    assert sent == SentCredentials({"authorization": "Bearer abcdef"})
    assert ApiCredentials(scheme, "quay", {}, {}).of(operation) == SentCredentials()


def test_all_cookies_of_an_operation_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: of two keys in cookies one was sent, and none beside a Cookie header of the operator or an argument."""
    monkeypatch.setenv("WHARFINGER_OPENAPI_QUAY_ONE", "first1")
    monkeypatch.setenv("WHARFINGER_OPENAPI_QUAY_TWO", "second2")
    cookies: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            cookies.append(dict(scope["headers"])[b"cookie"].decode())
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

    berth = {"name": "berth", "in": "cookie", "required": True, "schema": {"type": "string"}}
    responses = {"200": {"description": ""}}
    document = {
        "openapi": "3.1.0", "info": {"title": "Quay", "version": "1"}, "security": [{"one": [], "two": []}],
        "paths": {"/a": {"get": {"responses": responses},
                         "post": {"operationId": "moor", "parameters": [berth], "responses": responses}}},
        "components": {"securitySchemes": {
            name: {"type": "apiKey", "in": "cookie", "name": f"key-{name}"} for name in ("one", "two")
        }},
    }  # fmt: skip
    headers = {"Cookie": "lang=en; key-two=own"}
    read(openapi(document, app=app, label="quay"), "api://quay/a")
    read(openapi(document, app=app, label="quay", headers=headers), "api://quay/a")

    async def call() -> None:
        server = Server("quay")
        server.include(openapi(document, app=app, label="quay", allow_operations=["moor"]))
        async with Client(server) as client:
            await client.call_tool("moor", {"berth": "7"})

    asyncio.run(call())
    assert cookies == [
        "key-one=first1; key-two=second2",
        "key-one=first1; key-two=own; lang=en",
        "berth=7; key-one=first1; key-two=second2",
    ]


@pytest.mark.parametrize("password", ["", "sk-live-77"])
def test_a_user_name_that_is_a_key_is_hidden(password: str) -> None:
    basic: dict[str, Any] = {"main": {"type": "http", "scheme": "basic"}}
    variables = {"WHARFINGER_OPENAPI_QUAY_USER": "sk-live-77", "WHARFINGER_OPENAPI_QUAY_PASSWORD": password}
    assert ApiCredentials(basic, "quay", variables, {}).hidden("the key sk-live-77") == "the key ***"


@pytest.mark.parametrize("location", ["header", "cookie"])
def test_no_credentials_are_sent_under_a_name_with_a_line_break(location: str) -> None:
    scheme: dict[str, Any] = {"main": {"type": "apiKey", "in": location, "name": "key: x\r\nX-Evil"}}
    credentials = ApiCredentials(scheme, "quay", {"WHARFINGER_OPENAPI_QUAY_TOKEN": "abcdef"}, {})
    (operation,) = read_document({**QUAY, "security": [{"main": []}]}, "it").operations
    assert credentials.of(operation) == SentCredentials()


def test_an_api_key_in_a_query_is_not_a_parameter_of_a_uri() -> None:
    document = {
        "openapi": "3.1.0", "info": {"title": "Quay", "version": "1"},
        "paths": {"/a": {"get": {"parameters": [{"name": "key", "in": "query", "schema": {}}],
                                 "responses": {"200": {"description": ""}}}}},
        "components": {"securitySchemes": {"main": {"type": "apiKey", "in": "query", "name": "key"}}},
    }  # fmt: skip
    api = openapi(document, app=make_shop(Shop()), label="quay")
    assert [template.uri_template for template in api.templates] == []
    with pytest.raises(InvalidArgument, match="key is a credential, which no URI may contain"):
        read(api, "api://quay/a?key=abcdef")


@pytest.mark.parametrize(
    ("parameter", "query", "templates"),
    [
        ({"explode": False}, "where=a,1,b,x", ["api://quay/a{?where}"]),
        ({}, "a=1&b=x", []),
        ({"style": "deepObject"}, "where[a]=1", []),
    ],
)
def test_a_parameter_that_is_an_object_is_sent_in_its_style(
    parameter: dict[str, Any], query: str, templates: list[str]
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    document = {
        "openapi": "3.1.0", "info": {"title": "Quay", "version": "1"},
        "paths": {"/a": {"get": {"parameters": [{"name": "where", "in": "query", "schema": schema, **parameter}],
                                 "responses": {"200": {"description": ""}}}}},
    }  # fmt: skip
    app = Starlette(routes=[Route("/a", lambda request: PlainTextResponse(unquote(request.url.query)))])
    api = openapi(document, app=app, label="quay")
    assert [template.uri_template for template in api.templates] == templates
    assert text(read(api, f"api://quay/a?{query}")) == query
    with pytest.raises(InvalidArgument, match="has no parameter 'c'"):
        read(api, "api://quay/a?c=1")


def test_only_headers_that_are_credentials_are_hidden_in_answers(shop: Shop) -> None:
    app = make_shop(shop)
    headers = {"authorization": f"Bearer {TOKEN}", "x-harbour": "whitby"}
    echo = json.loads(text(read(openapi(app.openapi(), app=app, label="shop", headers=headers), "api://shop/account")))[
        "echo"
    ]
    assert echo["x-harbour"] == "whitby"
    assert TOKEN not in str(echo)


def test_a_token_variable_with_a_line_break_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHARFINGER_OPENAPI_SHOP_TOKEN", "abc\r\nX-Evil: 1")
    app = make_shop(Shop())
    with pytest.raises(UnusableSource, match="WHARFINGER_OPENAPI_SHOP_TOKEN has characters") as error:
        openapi(app.openapi(), app=app, label="shop")
    assert "Evil" not in str(error.value)


# Hosts


def test_a_redirect_to_another_host_is_not_followed(shop_server: ShopServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHARFINGER_OPENAPI_SHOP_TOKEN", TOKEN)

    async def check() -> None:
        api = openapi(f"{shop_server.url}/openapi.json", label="shop")
        try:
            with pytest.raises(HandlerFailed, match="redirects elsewhere, which is not followed"):
                await api.read("api://shop/elsewhere")
            assert json.loads(text(await api.read("api://shop/moved"))) == {"high": "14:20"}
        finally:
            await api.close()

    asyncio.run(check())


def test_a_redirect_of_an_application_to_another_host_is_not_followed(api: HttpApi) -> None:
    with pytest.raises(HandlerFailed, match="redirects elsewhere"):
        read(api, "api://shop/elsewhere")


def test_a_document_may_not_name_another_host_unless_the_operator_does(shop_server: ShopServer, tmp_path: Path) -> None:
    document = {**shop_server.app.openapi(), "servers": [{"url": "https://elsewhere.test/v1"}]}
    shop_server.app.openapi_schema = document

    async def check() -> None:
        api = openapi(f"{shop_server.url}/openapi.json", label="shop")
        await api.start()
        with pytest.raises(SourceUnavailable, match=r"names another host for its API: https://elsewhere\.test/v1"):
            await api.page(None, 10)
        with_base_url = openapi(f"{shop_server.url}/openapi.json", base_url=shop_server.url, label="shop")
        assert json.loads(text(await with_base_url.read("api://shop/tides"))) == {"high": "14:20"}
        await with_base_url.close()
        await api.close()

    asyncio.run(check())


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "localhost", "[::1]", "10.0.0.1"])
def test_a_document_file_cannot_name_a_private_address(host: str, shop_server: ShopServer, tmp_path: Path) -> None:
    document = {**shop_server.app.openapi(), "servers": [{"url": f"http://{host}:{shop_server.port}"}]}
    (tmp_path / "shop.json").write_text(json.dumps(document))

    async def check() -> None:
        api = openapi(tmp_path / "shop.json")
        with pytest.raises(SourceUnavailable, match="private network or on this machine"):
            await api.read("api://shop/tides")
        await api.close()

    asyncio.run(check())
    assert shop_server.shop.requests == []


def test_a_document_with_an_invalid_server_url_is_unusable(shop_server: ShopServer) -> None:
    shop_server.app.openapi_schema = {**shop_server.app.openapi(), "servers": [{"url": "http://[x"}]}

    async def check() -> None:
        api = openapi(f"{shop_server.url}/openapi.json", label="shop")
        await api.start()
        with pytest.raises(SourceUnavailable, match="names another host"):
            await api.page(None, 10)
        await api.close()

    asyncio.run(check())


def test_server_urls_that_are_relative_or_of_the_same_host_are_used(shop_server: ShopServer) -> None:
    for url in ("/", shop_server.url, f"{shop_server.url}/"):
        shop_server.app.openapi_schema = None
        shop_server.app.openapi_schema = {**shop_server.app.openapi(), "servers": [{"url": url}]}

        async def check() -> None:
            api = openapi(f"{shop_server.url}/openapi.json", label="shop")
            assert json.loads(text(await api.read("api://shop/tides"))) == {"high": "14:20"}
            await api.close()

        asyncio.run(check())


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("https://ann:secret@shop.test/openapi.json", {}, "Credentials belong in the environment"),
        ("https://", {}, "must be an http or https URL"),
        ("missing.json", {}, "neither a URL nor a file"),
        ({"openapi": "3.1.0", "paths": {}}, {}, "no operations"),
        ("https://shop.test/a", {"headers": {"x": "a\r\nb"}}, "cannot be sent in a header"),
        ("https://shop.test/a", {"every": 0.01}, "every must be at least 0.1 s"),
        ("https://shop.test/a", {"base_url": "ftp://x"}, "The base URL must be an http or https URL"),
    ],
)
def test_invalid_arguments_are_refused_with_a_reason(spec: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnusableSource, match=message) as error:
        openapi(spec, **options)
    assert "secret" not in str(error.value)


# Faults


def test_errors_have_the_message_of_the_api(api: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        for uri, message in {
            "api://shop/broken": "shop answered 500 Internal Server Error: the crane is broken.",
            "api://shop/keys": "shop answered 403 Forbidden: this key is not accepted.",
            "api://shop/busy": "shop answered 429 Too Many Requests: too many.",
            "api://shop/tides": "shop allows no further requests at present: try again in",
        }.items():
            with pytest.raises(HandlerFailed) as error:
                await api.read(uri)
            assert str(error.value).startswith(message)

    asyncio.run(check())


@pytest.mark.parametrize("in_process", [True, False])
def test_endless_and_slow_answers_are_cut_off(
    in_process: bool, shop_server: ShopServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        document = shop_server.app.openapi()
        options: Any = {"app": make_shop(Shop())} if in_process else {"base_url": shop_server.url}
        api = openapi(document, label="shop", timeout=50, **options)
        with pytest.raises(HandlerFailed, match="sent more than 32 MiB"):
            await api.read("api://shop/endless")
        assert json.loads(text(await api.read("api://shop/tides"))) == {"high": "14:20"}
        await api.close()
        api = openapi(document, label="shop", timeout=2, **options)
        with pytest.raises(HandlerFailed, match=r"did not answer within 2 s"):
            await api.read("api://shop/slow")
        assert json.loads(text(await api.read("api://shop/tides"))) == {"high": "14:20"}
        await api.close()

    asyncio.run(check())


def test_an_exception_of_an_application_is_reported_as_500_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("the password is hunter2")

    document = {"openapi": "3.1.0", "info": {"title": "Q", "version": "1"}, "paths": {"/a": {"get": {}}}}
    with pytest.raises(HandlerFailed, match="q answered 500 Internal Server Error") as error:
        read(openapi(document, app=app), "api://q/a")
    assert "hunter2" not in str(error.value)


def test_a_watcher_is_notified_through_conditional_requests(shop_server: ShopServer) -> None:
    changes = ChangeRecorder()
    with SourceDriver(openapi(f"{shop_server.url}/openapi.json", label="shop", every=0.1)) as driver:
        driver.ask("stat", "api://shop/orders/1")
        driver.on_loop("watch", "api://shop/orders/1", changes)
        while shop_server.shop.not_modified < 3:
            assert not changes.receives("api://shop/orders/1", 0.05)
        shop_server.shop.orders[1]["amount"] += 1
        assert changes.receives("api://shop/orders/1", 40)
        driver.run(driver.source.close())


def test_a_watcher_of_a_group_is_notified_when_the_document_loses_it(shop_server: ShopServer) -> None:
    """A bug: the look failed with a KeyError in every round, and the watcher heard nothing."""
    changes, group = ChangeRecorder(), "api://shop?tag=pages"
    with SourceDriver(openapi(f"{shop_server.url}/openapi-live.json", label="shop", every=0.1)) as driver:
        driver.ask("stat", group)
        driver.on_loop("watch", group, changes)
        driver.on_loop("watch", None, changes)  # checks the document
        shop_server.shop.hidden_paths = ("cursors", "offsets")
        assert changes.receives(group, 40)
        with pytest.raises(ResourceNotFound):
            driver.ask("stat", group)
        driver.run(driver.source.close())


def test_a_temporary_failure_is_not_reported_as_a_change(shop: Shop) -> None:
    app = make_shop(shop)
    changes = ChangeRecorder()
    with SourceDriver(openapi(app.openapi(), app=app, label="shop", every=0.1)) as driver:
        driver.ask("stat", "api://shop/orders/1")
        driver.on_loop("watch", "api://shop/orders/1", changes)
        with pytest.raises(HandlerFailed):
            driver.ask("read", "api://shop/busy")  # the answer has Retry-After: 30
        requests = len(shop.requests)
        assert changes.wait_for_any(1) == []
        assert len(shop.requests) == requests
        driver.run(driver.source.close())


def test_an_unknown_allowed_operation_is_refused_with_a_suggestion() -> None:
    app = make_shop(Shop())
    with pytest.raises(UnusableSource, match=r"There is no operation 'place_oder'\. Did you mean place_order"):
        openapi(app.openapi(), app=app, allow_operations=["place_oder"])


def test_a_search_sends_no_request(api: HttpApi, shop: Shop) -> None:
    with SourceDriver(api) as driver:
        hits = driver.search("mariners", 5)
    assert [hit.uri for hit in hits] == ["api://shop/notices?about=get"]
    assert shop.requests == []

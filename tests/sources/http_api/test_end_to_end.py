"""Clients of `wharfinger serve openapi:…`, of `Server.from_openapi` and of `Server.from_fastapi`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.sources.http_api.conftest import ShopServer
from tests.sources.http_api.shop import TOKEN, Shop, make_shop
from wharfinger import Client, Server
from wharfinger.errors import RemoteError, ToolError
from wharfinger.source import UnusableSource
from wharfinger.sources.registry import absolute_word, make_sources, parse_word


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "wharfinger", "serve", "--stdio", *words]


def test_serve_publishes_an_api_with_tools_for_allowed_operations(shop_server: ShopServer) -> None:
    async def check() -> None:
        words = command("--allow-operation", "place_order", f"shop=openapi:{shop_server.url}/openapi.json")
        env = {**os.environ, "WHARFINGER_OPENAPI_SHOP_TOKEN": TOKEN}
        async with Client(words, env=env) as client:
            assert "api://shop/orders" in [each.uri for each in await client.list_resources()]
            orders = json.loads((await client.read_resource("api://shop/orders?status=failed&per_page=3")).text)
            assert orders == [order for order in shop_server.shop.orders.values() if order["status"] == "failed"][:3]
            account = await client.read_resource("api://shop/account")
            assert '"name":"Ann"' in account.text
            assert TOKEN not in account.text
            tools = [tool.name for tool in await client.list_tools()]
            assert "place_order" in tools
            assert "cancel_order" not in tools
            placed = await client.call_tool("place_order", {"body": {"product": "hawser", "amount": 2}})
            assert placed.structured == {"id": 26, "status": "open", "product": "hawser", "amount": 2}
            assert shop_server.shop.orders[26]["product"] == "hawser"
            with pytest.raises(ToolError, match=r"body\.amount: expected an integer"):
                await client.call_tool("place_order", {"body": {"product": "hawser", "amount": "two"}})

    asyncio.run(check())


def test_serve_publishes_a_document_file_with_a_base_url(shop_server: ShopServer, tmp_path: Path) -> None:
    async def check() -> None:
        (tmp_path / "ropes.json").write_text(json.dumps(shop_server.app.openapi()))
        async with Client(command("--base-url", shop_server.url, f"openapi:{tmp_path}/ropes.json")) as client:
            assert json.loads((await client.read_resource("api://ropes/tides")).text) == {"high": "14:20"}

    asyncio.run(check())


def test_tools_find_a_failed_order_within_the_token_budget(shop_server: ShopServer) -> None:
    """A search finds the operation, and one read returns the order."""

    async def check() -> None:
        async with Client(command(f"shop=openapi:{shop_server.url}/openapi.json")) as client:
            found = (await client.call_tool("search", {"query": "list orders"})).data["results"]
            assert found[0]["id"] == "api://shop/orders?about=get"
            about = (await client.call_tool("read_resource", {"uri": found[0]["id"]})).text
            assert "One of open, shipped, failed." in about
            assert "api://shop/orders{?status,product*,page,per_page}" in about
            answer = await client.call_tool(
                "read_resource", {"uri": "api://shop/orders?status=failed&product=rope%208"}
            )
            assert json.loads(answer.text) == [shop_server.shop.orders[8]]
            notices = (await client.call_tool("read_resource", {"uri": "api://shop/notices", "max_tokens": 500})).text
            assert len(notices) <= 2_000
            assert "To continue, call read_resource with uri=api://shop/notices?lines=" in notices

    asyncio.run(check())


def test_a_server_of_a_fastapi_application_needs_no_socket() -> None:
    async def check() -> None:
        shop = Shop()
        server = Server.from_fastapi(make_shop(shop), allow_operations=["cancel_order"])
        async with Client(server) as client:
            assert json.loads((await client.read_resource("api://rope-shop/orders/7")).text) == shop.orders[7]
            assert json.loads((await client.read_resource("api://rope-shop/state")).text) == {"greeting": "ahoy"}
            assert shop.running == 1
            await client.call_tool("cancel_order", {"order_id": 7})
            assert 7 not in shop.orders
            assert {"read_resource", "search", "cancel_order"} <= {tool.name for tool in await client.list_tools()}
        assert shop.running == 0

    asyncio.run(check())


def test_any_asgi_application_with_a_document_can_be_published() -> None:
    async def check() -> None:
        app = make_shop(Shop())

        async def asgi_app(scope, receive, send):  # type: ignore[no-untyped-def]
            await app(scope, receive, send)

        server = Server.from_fastapi(asgi_app, label="shop", tools=False)
        async with Client(server) as client:
            assert json.loads((await client.read_resource("api://shop/tides")).text) == {"high": "14:20"}
            assert server.tools.names() == []

    asyncio.run(check())


def test_a_server_of_a_document_reads_from_the_host_of_the_document(shop_server: ShopServer) -> None:
    async def check() -> None:
        server = Server.from_openapi(f"{shop_server.url}/openapi.json", name="ropes")
        assert server.info.name == "ropes"
        async with Client(server) as client:
            assert (
                json.loads((await client.read_resource("api://127.0.0.1/orders/3")).text) == shop_server.shop.orders[3]
            )

    asyncio.run(check())


def test_an_unreachable_api_is_reported_and_published_when_it_returns(shop_server: ShopServer) -> None:
    async def check() -> None:
        shop_server.stop()
        async with Client(Server.from_openapi(f"{shop_server.url}/openapi.json", label="shop"), cache=False) as client:
            listed = await client.list_resources()
            assert [each.uri for each in listed] == ["api://shop"]
            assert "cannot be reached" in str(listed[0].title)
            with pytest.raises(RemoteError, match="cannot be reached"):
                await client.read_resource("api://shop/tides")
            async with asyncio.timeout(60), client.watch_lists() as changes:
                shop_server.start()
                while len(await client.list_resources()) < 2:
                    await anext(changes)
            assert "14:20" in (await client.read_resource("api://shop/tides")).text

    asyncio.run(check())


def test_the_list_reports_an_unknown_allowed_operation(shop_server: ShopServer) -> None:
    async def check() -> None:
        words = command("--allow-operation", "place_oder", f"shop=openapi:{shop_server.url}/openapi.json")
        async with Client(words) as client:
            (listed,) = await client.list_resources()
            assert "There is no operation 'place_oder'. Did you mean place_order" in str(listed.title)

    asyncio.run(check())


def test_a_word_of_the_command_line_is_a_url_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        absolute_word(parse_word("openapi:https://shop.test/openapi.json")) == "openapi:https://shop.test/openapi.json"
    )
    assert absolute_word(parse_word("openapi:shop.yaml")) == f"openapi:{tmp_path}/shop.yaml"
    with pytest.raises(UnusableSource, match="neither a URL nor a file"):
        make_sources(["openapi:missing.json"])

"""MCP Apps: pages as `ui://` resources with metadata for hosts, and the tools that refer to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import ERAS, ask, list_all, make_request, read
from wharfinger import Context, Server
from wharfinger.server.apps import shows_apps
from wharfinger.types.apps import MIME_TYPE, UiCsp

HTML = "<!DOCTYPE html><title>Berths</title>"
URI = "ui://harbour/berths"


def server_with_page(page: Any = HTML, **options: Any) -> Server:
    server = Server("harbour")
    server.add_app(URI, page, **options)
    return server


@pytest.mark.parametrize("revision", ERAS)
async def test_a_page_is_read_with_its_type_and_metadata(revision: str) -> None:
    server = server_with_page(
        csp=UiCsp(connect_domains=["https://api.example.com", "wss://*.example.com:8443"], frame_domains=[]),
        permissions=["geolocation", "clipboard_write"],
        prefers_border=False,
        title="Berths",
    )
    ui = {
        "csp": {"connectDomains": ["https://api.example.com", "wss://*.example.com:8443"], "frameDomains": []},
        "permissions": {"geolocation": {}, "clipboardWrite": {}},
        "prefersBorder": False,
    }
    (contents,) = await read(server, URI, revision)
    assert contents == {"uri": URI, "mimeType": MIME_TYPE, "text": HTML, "_meta": {"ui": ui}}
    (resource,) = await list_all(server, revision=revision)
    assert (resource["mimeType"], resource["name"], resource["title"]) == (MIME_TYPE, "berths", "Berths")
    assert resource["_meta"] == {"ui": ui}


async def test_a_page_without_options_has_no_metadata() -> None:
    (contents,) = await read(server_with_page(), URI)
    assert contents == {"uri": URI, "mimeType": MIME_TYPE, "text": HTML}


async def test_a_page_in_a_file_is_read_from_disk_each_time(tmp_path: Path) -> None:
    file = tmp_path / "berths.html"
    server = server_with_page(file)
    for text in (HTML, HTML + "<p>More"):
        file.write_text(text)
        assert (await read(server, URI))[0]["text"] == text
    file.unlink()
    assert (await read(server, URI))["code"] == -32602


async def test_a_page_can_be_returned_by_a_sync_or_async_function() -> None:
    server = Server("harbour")

    @server.app("ui://harbour/plain", name="plain page")
    def plain() -> str:
        return HTML

    @server.app("ui://harbour/waits")
    async def waits(ctx: Context) -> bytes:
        return f"{HTML}{ctx.request_id}".encode()

    assert (await read(server, "ui://harbour/plain"))[0]["text"] == HTML
    assert (await read(server, "ui://harbour/waits", id=7))[0]["text"] == HTML + "7"
    assert [resource["name"] for resource in await list_all(server)] == ["plain page", "waits"]


async def test_a_page_function_that_returns_a_dict_fails_with_an_internal_error() -> None:
    server = server_with_page(lambda: {"html": HTML})
    assert (await read(server, URI))["code"] == -32603


async def test_tools_have_their_page_and_visibility_in_meta() -> None:
    server = server_with_page()

    @server.tool(app=URI, visibility=["app"], meta={"com.example/x": 1})
    def refresh() -> str:
        """Fetch the berths again."""
        return "three free"

    @server.tool(visibility=["model"])
    def berths() -> str:
        """List the berths."""
        return "three free"

    tools = (await ask(server, "tools/list"))["result"]["tools"]
    assert tools[0]["_meta"] == {"com.example/x": 1, "ui": {"resourceUri": URI, "visibility": ["app"]}}
    assert tools[1]["_meta"] == {"ui": {"visibility": ["model"]}}


async def test_the_extension_is_declared_and_detected_in_the_capabilities_of_clients() -> None:
    server = server_with_page()
    capabilities = (await ask(server, "server/discover"))["result"]["capabilities"]
    assert capabilities["extensions"] == {"io.modelcontextprotocol/ui": {}}
    for settings, supported in (
        ({"mimeTypes": [MIME_TYPE]}, True),
        ({"mimeTypes": ["text/plain"]}, False),
        ({}, False),
    ):
        declared = {"extensions": {"io.modelcontextprotocol/ui": settings}}
        meta = {"io.modelcontextprotocol/clientCapabilities": declared}
        assert shows_apps(make_request(server, "tools/list", {"_meta": meta})) is supported
    assert not shows_apps(make_request(server, "tools/list"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"csp": UiCsp(connect_domains=["https://a.example; script-src *"])}, "not an origin"),
        ({"csp": UiCsp(resource_domains=["*"])}, "not an origin"),
        ({"csp": UiCsp(frame_domains=["'unsafe-eval'"])}, "not an origin"),
        ({"permissions": ["everything"]}, "write a list of camera"),
        ({"permissions": "camera"}, "write a list of camera"),
    ],
)
def test_options_that_could_weaken_a_content_security_policy_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        server_with_page(**options)


def test_an_invalid_page_or_page_uri_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pathlib\.Path"):
        server_with_page("berths.html")
    with pytest.raises(ValueError, match="not the URI of a page"):
        Server("harbour").add_app("https://harbour/berths", HTML)
    with pytest.raises(ValueError, match="not the URI of a page"):
        Server("harbour").tool(app="berths")(lambda: "x")
    with pytest.raises(ValueError, match="write"):
        Server("harbour").tool(visibility=["user"])(lambda: "x")  # type: ignore[list-item]


async def test_a_page_has_its_registered_fields_and_ttl() -> None:
    server = Server("harbour", ttl=2.0, cache_scope="public")
    server.add_app(URI, HTML, description="All berths.", ttl=7.0, cache_scope="private")
    server.add_app("ui://harbour/plain", HTML)
    resources = {resource["uri"]: resource for resource in await list_all(server)}
    assert resources[URI]["description"] == "All berths."
    assert "description" not in resources["ui://harbour/plain"]
    for uri, hints in ((URI, (7000, "private")), ("ui://harbour/plain", (2000, "public"))):
        result = (await ask(server, "resources/read", {"uri": uri}))["result"]
        assert (result["ttlMs"], result["cacheScope"]) == hints


@pytest.mark.parametrize("visibility", [["model"], ["app"], ["model", "app"], ("app",)])
async def test_the_visibility_of_a_tool_is_in_its_meta(visibility: Any) -> None:
    server = server_with_page()
    server.tools.add(lambda: "x", name="x", app=URI, visibility=visibility)
    (tool,) = (await ask(server, "tools/list"))["result"]["tools"]
    assert tool["_meta"]["ui"] == {"resourceUri": URI, "visibility": list(visibility)}


@pytest.mark.parametrize("visibility", [[], ["model", "others"], ["others"]])
def test_an_unknown_visibility_is_refused(visibility: Any) -> None:
    with pytest.raises(ValueError, match="visibility="):
        server_with_page().tools.add(lambda: "x", name="x", app=URI, visibility=visibility)


def test_the_error_for_text_that_is_not_html_quotes_its_beginning() -> None:
    with pytest.raises(TypeError, match=f"^{'x' * 80!r} is not HTML"):
        server_with_page("x" * 100)

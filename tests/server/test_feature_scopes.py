"""Scopes that features require: in process and over HTTP in both eras, with and without a policy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import msgspec
import pytest

from tests.server.driving import ask, initialize_params, make_request
from tests.transports.http_support import META, STATELESS, RawClient, Reply, ServerThread
from wharfinger import Server
from wharfinger import types as t
from wharfinger.auth import Principal, TokenAuth
from wharfinger.errors import InsufficientScope, ProtocolError, ResourceNotFound
from wharfinger.policy import Policy, Rule
from wharfinger.policy.current import may_read
from wharfinger.protocol.principal import ANONYMOUS, LOCAL
from wharfinger.protocol.request import seal_error, seal_result
from wharfinger.server.feature_scopes import NestedAccess, ScopedAccess

HANDSHAKE = "2025-11-25"
METADATA = "/.well-known/oauth-protected-resource/mcp"


class StubVerifier:
    """A verifier of tokens of the form `NAME/SCOPE+SCOPE`."""

    issuers = ("https://id.example",)
    trusted_seconds = 60.0

    async def verify(self, token: str) -> Principal | None:
        name, _, scopes = token.partition("/")
        return Principal(subject=name, issuer=self.issuers[0], scopes=frozenset(scopes.split("+")) - {""})

    def on_change(self, forget: Callable[[], None]) -> None:
        pass


def shop() -> Server:
    """Return a server with features of every kind, with and without scopes."""
    server = Server("shop")
    called: list[str] = []
    server.state = called

    @server.tool
    def prices() -> str:
        return "prices"

    @server.tool(scopes=["orders.read", "orders.write"])
    def order() -> str:
        called.append("order")
        return "ordered"

    @server.prompt(scopes="orders.read")
    def ask_order(item: str) -> str:
        return item

    @server.resource("shop://hours")
    def hours() -> str:
        return "9 to 5"

    @server.resource("shop://stock", scopes=["stock.read"], cache_scope="public")
    def stock() -> str:
        called.append("stock")
        return "12"

    @server.resource("orders://{id}", scopes=["orders.read"])
    def one_order(id: str) -> str:
        called.append(id)
        if id != "7":
            raise ResourceNotFound(f"orders://{id}")
        return "seven"

    @server.read_resource("log://{day}", scopes=["log.read"])
    def log(day: str) -> str:
        called.append(day)
        return day

    @server.list_resources
    async def catalogue() -> AsyncIterator[t.Resource]:
        yield t.Resource(uri="log://monday", name="monday")
        yield t.Resource(uri="shop://free", name="free")

    server.add_app("ui://shop/panel", "<html>panel</html>", scopes=["panel"])
    return server


def caller(*scopes: str) -> Principal:
    return Principal(subject="ann", scopes=frozenset(scopes))


async def ask_as(server: Server, principal: Principal, method: str, params: dict[str, Any] | None = None) -> Any:
    """Return the answer to a request of this principal, or its error."""
    request = make_request(server, method, params)
    request.caller = msgspec.structs.replace(request.caller, principal=principal)
    try:
        data = seal_result(request, await server.handlers[method](request), server.result_meta)
    except ProtocolError as error:
        data = seal_error(request, error, server.result_meta)
    return json.loads(data if isinstance(data, bytes) else b"".join(data))


async def list_names(server: Server, principal: Principal) -> set[str]:
    """Return the names and URIs in every list."""
    found: set[str] = set()
    for method, member, name in (
        ("tools/list", "tools", "name"),
        ("prompts/list", "prompts", "name"),
        ("resources/list", "resources", "uri"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ):
        result = (await ask_as(server, principal, method))["result"]
        found |= {entry[name] for entry in result[member]}
    return found


UNSCOPED = {"prices", "shop://hours", "shop://free"}
EVERYTHING = UNSCOPED | {"order", "ask_order", "shop://stock", "orders://{id}", "log://monday", "ui://shop/panel"}


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        (ANONYMOUS, UNSCOPED),
        (caller(), UNSCOPED),
        (caller("orders.read"), UNSCOPED | {"ask_order", "orders://{id}"}),
        (caller("orders.read", "orders.write"), UNSCOPED | {"ask_order", "orders://{id}", "order"}),
        (caller("stock.read", "log.read", "panel"), UNSCOPED | {"shop://stock", "log://monday", "ui://shop/panel"}),
        (LOCAL, EVERYTHING),
    ],
)
async def test_a_list_contains_only_features_whose_scopes_the_caller_has(
    principal: Principal, expected: set[str]
) -> None:
    assert await list_names(shop(), principal) == expected


@pytest.mark.parametrize(
    ("add", "method", "params"),
    [
        (lambda server: server.tools.add(lambda: "x", name="x", scopes="s"), "tools/call", {"name": "x"}),
        (lambda server: server.prompts.add(lambda: "x", name="x", scopes="s"), "prompts/get", {"name": "x"}),
        (lambda server: server.resources.add("a:b", lambda: "x", scopes="s"), "resources/read", {"uri": "a:b"}),
        (lambda server: server.resources.add("a:{x}", lambda x: x, scopes="s"), "resources/read", {"uri": "a:b"}),
        (lambda server: server.add_app("ui://a", "<p>", scopes="s"), "resources/read", {"uri": "ui://a"}),
    ],
)
async def test_scopes_are_enforced_on_a_server_whose_only_feature_requires_them(
    add: Callable[[Server], object], method: str, params: dict[str, Any]
) -> None:
    server = Server("one")
    add(server)
    assert "error" in await ask_as(server, caller(), method, params)
    assert "result" in await ask_as(server, caller("s"), method, params)


@pytest.mark.parametrize(
    ("method", "params", "scopes"),
    [
        ("tools/call", {"name": "order"}, ["orders.read", "orders.write"]),
        ("prompts/get", {"name": "ask_order", "arguments": {"item": "x"}}, ["orders.read"]),
        ("resources/read", {"uri": "shop://stock"}, ["stock.read"]),
        ("resources/read", {"uri": "orders://7"}, ["orders.read"]),
        ("resources/read", {"uri": "orders://8"}, ["orders.read"]),
        ("resources/read", {"uri": "log://monday"}, ["log.read"]),
        ("resources/read", {"uri": "ui://shop/panel"}, ["panel"]),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "ask_order"}, "argument": {"name": "item", "value": ""}},
            ["orders.read"],
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "orders://{id}"}, "argument": {"name": "id", "value": ""}},
            ["orders.read"],
        ),
    ],
)
async def test_a_request_without_the_required_scopes_is_refused_before_the_handler_runs(
    method: str, params: dict[str, Any], scopes: list[str]
) -> None:
    server = shop()
    refused = await ask_as(server, caller("orders.write"), method, params)
    assert refused["error"] == {
        "code": -32600,
        "message": f"The token needs the scope {' '.join(scopes)}.",
        "data": {"requiredScopes": scopes},
    }
    assert server.state == []
    for allowed in (caller(*scopes), LOCAL):
        answer = await ask_as(server, allowed, method, params)
        assert "result" in answer or answer["error"]["message"] == "Resource not found: orders://8", answer


async def test_a_resource_that_needs_a_scope_is_never_public() -> None:
    answer = await ask_as(shop(), caller("stock.read"), "resources/read", {"uri": "shop://stock"})
    assert answer["result"]["cacheScope"] == "private"


async def test_a_resource_that_may_not_be_read_is_not_watched() -> None:
    server = shop()
    request = make_request(server, "resources/subscribe", {"uri": "shop://stock"}, HANDSHAKE)
    request.caller = msgspec.structs.replace(request.caller, principal=caller())
    with pytest.raises(InsufficientScope):
        await server.handlers["resources/subscribe"](request)
    assert server.watching.watched() == []


async def test_scopes_of_a_mounted_server_apply_in_its_parent_even_if_added_later() -> None:
    whole, middle, part = Server("whole"), Server("middle"), shop()
    whole.include(middle, prefix="m")
    middle.include(part, prefix="s")

    @part.tool(scopes=["late"])
    def late() -> str:
        return "late"

    prefixed = {"prices": "m_s_prices", "order": "m_s_order", "ask_order": "m_s_ask_order"}
    unscoped = {prefixed.get(name, name) for name in UNSCOPED}
    assert await list_names(whole, caller()) == unscoped
    assert await list_names(whole, caller("late")) == unscoped | {"m_s_late"}
    assert await list_names(whole, LOCAL) == {prefixed.get(name, name) for name in EVERYTHING} | {"m_s_late"}
    assert (await ask_as(whole, caller(), "tools/call", {"name": "m_s_late"}))["error"]["data"] == {
        "requiredScopes": ["late"]
    }
    assert (await ask_as(whole, caller("late"), "tools/call", {"name": "m_s_late"}))["result"]["content"]
    assert (await ask_as(whole, caller(), "resources/read", {"uri": "orders://7"}))["error"]["code"] == -32600
    assert part.state == []


async def test_a_feature_must_be_allowed_by_its_scopes_and_by_the_policy() -> None:
    server = shop()
    server.policy = Policy(allow=[Rule(who="sub:ann", do=("call", "read"))], deny=[Rule(who="anyone", what="log://**")])
    assert await list_names(server, caller("orders.read", "orders.write", "log.read")) == {
        "prices", "order", "shop://hours", "shop://free", "orders://{id}"
    }  # fmt: skip
    hidden = await ask_as(server, caller(), "resources/read", {"uri": "log://monday"})
    assert hidden["error"]["code"] == -32602, "a rule hides the resource, so its scopes are not named"
    unknown = await ask_as(server, caller(), "prompts/get", {"name": "ask_order"})
    assert unknown["error"]["message"] == "Unknown prompt: ask_order"


async def test_the_policy_of_the_parent_also_applies_inside_a_mounted_server_with_scopes() -> None:
    whole, part = Server("whole"), shop()

    @part.tool(scopes=["look"])
    async def look(ctx: Any = None) -> list[str]:
        return [uri for uri in ("shop://hours", "shop://stock", "shop://free") if may_read(uri)]

    whole.include(part, prefix="p")
    whole.policy = Policy(
        allow=[Rule(who="anyone", do="call"), Rule(who="anyone", do="read", what=("shop://hours", "shop://stock"))]
    )
    answer = await ask_as(whole, caller("look"), "tools/call", {"name": "p_look", "arguments": {}})
    assert answer["result"]["content"][0]["text"] == json.dumps(["shop://hours"], separators=(",", ":"))


async def test_handlers_are_not_wrapped_without_scopes_and_policy() -> None:
    server = Server("plain")

    @server.tool(scopes=[])
    def free() -> str:
        return ""

    assert server.handlers["tools/call"] == server.tools.call
    assert (await ask(server, "tools/list"))["result"]["tools"][0]["name"] == "free"


@pytest.mark.parametrize("scopes", [["a b"], [""], ['"'], ["ä"], ["a\n"], ["a\\b"]])
def test_a_scope_that_no_token_can_have_is_refused_at_registration(scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="a scope is text without spaces"):
        Server("s").tool(name="a", scopes=scopes)(lambda: "")


def test_a_caller_without_the_scope_of_a_template_cannot_read_all_uris_below_it() -> None:
    server = shop()
    scopes = server.services.feature_scopes
    assert scopes is not None
    access = cast("ScopedAccess", scopes.access(None, caller("stock.read")))
    assert not access.reads_all_below("orders:")
    assert not access.reads_all_below("orders://7")
    assert access.reads_all_below("shop://stock")
    assert not access.is_public("shop://stock")
    assert access.is_public("shop://hours")
    assert access is scopes.access(None, cast("Any", next(iter(scopes._remembered.values()))[0]))
    nested = NestedAccess(access, access)
    assert nested.allows("read", "shop://stock") and not nested.allows("read", "orders://7")
    assert not nested.reads_all_below("orders:") and nested.may_read_below("orders:")
    assert not nested.is_public("shop://stock")


# -- over HTTP


def revealing_server() -> Server:
    """Return a server whose policy reveals the missing scope for files below `docs`, and hides the rest."""
    server = shop()

    @server.resource("file:///{+path}")
    def file(path: str) -> str:
        if path != "docs/a":
            raise ResourceNotFound(f"file:///{path}")
        return path

    server.policy = Policy(
        allow=[
            Rule(who="signed-in", do="call"),
            Rule(who="signed-in", do="read", what="shop://stock"),
            Rule(who="signed-in", do="read", what="file:///docs/**", scopes=("docs", "read"), reveal=True),
            Rule(who="signed-in", do="read", what="file:///secret/**", scopes=("secret",)),
        ]
    )
    return server


@pytest.fixture
def http() -> Iterator[ServerThread]:
    with ServerThread(
        cast("Any", revealing_server()), auth=TokenAuth(StubVerifier(), require_scopes=["mcp"])
    ) as thread:
        yield thread


def send(client: RawClient, era: str, token: str, method: str, params: dict[str, Any]) -> Reply:
    """Send one request with this token, without a session or in a new one."""
    headers: dict[str, str | None] = {"authorization": f"Bearer {token}"}
    if era == STATELESS:
        headers["mcp_name"] = params.get("uri") or params.get("name")
        headers |= {"mcp_protocol_version": STATELESS, "mcp_method": method}
        client.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}}, **headers)
        return client.reply()
    return client.call_in_session(client.initialize(**headers), method, params, 1, **headers)


@pytest.mark.parametrize("era", [STATELESS, HANDSHAKE])
@pytest.mark.parametrize(
    ("method", "params", "scopes"),
    [
        ("tools/call", {"name": "order"}, "mcp orders.read orders.write"),
        ("resources/read", {"uri": "shop://stock"}, "mcp stock.read"),
        ("resources/read", {"uri": "file:///docs/a"}, "mcp docs read"),
        ("resources/read", {"uri": "file:///docs/missing"}, "mcp docs read"),
    ],
)
def test_a_token_without_the_scopes_gets_403_with_all_required_scopes(
    http: ServerThread, era: str, method: str, params: dict[str, Any], scopes: str
) -> None:
    """Security A05, A06."""
    with http.connect() as client:
        reply = send(client, era, "ann/mcp+read", method, params)
        assert reply.status == 403
        url = f"http://127.0.0.1:{http.port}{METADATA}"
        assert reply.headers["www-authenticate"] == (
            f'Bearer error="insufficient_scope", scope="{scopes}", resource_metadata="{url}"'
        )
        assert reply.json["error"]["data"]["requiredScopes"] == scopes.split()[1:]
        assert "connection" not in reply.headers
        allowed = send(client, era, "ann/" + scopes.replace(" ", "+"), method, params)
        assert allowed.status == 200


@pytest.mark.parametrize("era", [STATELESS, HANDSHAKE])
def test_the_answer_is_the_same_for_existing_and_missing_uris(http: ServerThread, era: str) -> None:
    with http.connect() as client:
        answers = [send(client, era, "ann/mcp", "resources/read", {"uri": f"file:///docs/{name}"}) for name in "ab"]
        assert answers[0].body == answers[1].body
        assert answers[0].headers == answers[1].headers
        assert answers[0].status == answers[1].status
        hidden = send(client, era, "ann/mcp", "resources/read", {"uri": "file:///secret/a"})
        assert hidden.status == 200 and "www-authenticate" not in hidden.headers


def test_an_error_in_a_batch_names_the_required_scopes(http: ServerThread) -> None:
    with http.connect() as client:
        token: dict[str, str | None] = {"authorization": "Bearer ann/mcp"}
        session = client.call_in_session("", "initialize", initialize_params("2025-03-26"), 0, **token).headers[
            "mcp-session-id"
        ]
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "order"}}
        client.post([call], mcp_session_id=session, **token)
        reply = client.reply()
        assert reply.status == 200
        assert reply.json[0]["error"]["data"] == {"requiredScopes": ["orders.read", "orders.write"]}


def test_an_anonymous_http_caller_has_no_scopes() -> None:
    with ServerThread(cast("Any", shop())) as thread, thread.connect() as client:
        client.send_stateless("tools/call", {"name": "order"}, mcp_name="order")
        reply = client.reply()
        assert reply.status == 403
        challenge = 'Bearer error="insufficient_scope", scope="orders.read orders.write"'
        assert reply.headers["www-authenticate"] == challenge

"""The stateless era over a real socket: one answer for each POST, and refusals before the body is read."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator

import pytest

from tests.transports.http_support import BIG, META, STATELESS, RawClient, SampleService, ServerThread
from wharfinger.auth import static_token
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(SampleService(Limits(message=100_000))) as server:
        yield server


@pytest.fixture
def client(server: ServerThread) -> Iterator[RawClient]:
    with server.connect() as client:
        yield client


def test_a_read_is_answered_with_json(client: RawClient) -> None:
    reply = client.read("a", id="x")
    assert reply.status == 200
    assert reply.json == {
        "jsonrpc": "2.0",
        "id": "x",
        "result": {
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "harbour", "version": "1"}},
            "contents": [{"uri": "test://a", "mimeType": "text/plain", "text": "test://a"}],
        },
    }


def test_equivalent_paths_are_served_on_one_connection(client: RawClient) -> None:
    for path in ("/mcp", "/mcp/", "/mcp?x=1", "/%6dcp"):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}).encode()
        reply = client.fetch("POST", path, body, mcp_protocol_version=STATELESS, mcp_method="server/discover")
        assert reply.status == 200
        assert STATELESS in reply.json["result"]["supportedVersions"]


def test_large_content_is_one_json_answer_with_its_length(client: RawClient) -> None:
    reply = client.read("big")
    assert reply.headers["content-length"] == str(len(reply.body))
    assert base64.b64decode(reply.json["result"]["contents"][0]["blob"]) == BIG


def test_the_first_notification_turns_the_answer_into_a_stream(client: RawClient) -> None:
    reply = client.read("progress")
    assert reply.status == 200
    assert reply.headers["x-accel-buffering"] == "no"
    *notifications, answer = reply.events
    assert [n["params"]["progress"] for n in notifications] == [0, 1, 2]
    assert notifications[0]["params"]["message"] == "a\n\nb"
    assert answer["result"]["contents"][0]["text"] == "test://progress"
    assert client.read("after").text == "test://after"


def test_a_client_that_accepts_only_json_gets_only_json(client: RawClient) -> None:
    assert client.read("progress", accept="application/json").text == "test://progress"


def test_an_error_after_a_notification_is_the_last_event(client: RawClient) -> None:
    reply = client.read("progress-exit")
    assert reply.status == 200
    assert reply.events[-1]["error"]["code"] == -32603


def test_a_raw_result_may_contain_line_breaks(server: ServerThread) -> None:
    """Security H31."""
    with server.connect() as client:
        reply = client.read("lines")
        assert reply.json["result"]["contents"] == []


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("missing", 200, -32602),
        ("exit", 200, -32603),
        ("boom", 200, -32603),
        ("cancel", 200, -32603),
        ("surrogate", 200, -32603),
        ("surrogate-in-error", 200, -32603),
    ],
)
def test_an_exception_in_a_handler_is_an_error_of_its_call(
    client: RawClient, name: str, status: int, code: int
) -> None:
    """Security F05, F06, H32, H45, H48."""
    reply = client.read(name)
    assert (reply.status, reply.error, reply.json["id"]) == (status, code, 1)
    assert b"secret" not in reply.body
    assert client.read("after").text == "test://after"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"<script>alert(1)</script>", -32700),
        (b"\xff\xfe{}", -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}', -32600),
    ],
)
def test_an_invalid_request_body_is_refused(client: RawClient, body: bytes, code: int) -> None:
    """Security J01-J16, H46, H47."""
    reply = client.fetch("POST", body=body, mcp_protocol_version=STATELESS, mcp_method="ping")
    assert (reply.status, reply.error) == (400, code)
    assert "id" not in reply.json or reply.json["id"] == 1
    assert b"script" not in reply.body


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"mcp_protocol_version": None}, 400, -32020),
        ({"mcp_protocol_version": "2025-11-25"}, 400, -32020),
        ({"mcp_protocol_version": "1999-01-01"}, 400, -32020),
        ({"mcp_method": None}, 400, -32020),
        ({"mcp_method": "tools/call"}, 400, -32020),
        ({"mcp_name": None}, 400, -32020),
        ({"mcp_name": "test://b"}, 400, -32020),
        ({"mcp_name": "=?base64?dGVzdDovL2E=?="}, 200, None),
        ({"mcp_name": "=?base64?dGVzdDovL2E?="}, 400, -32020),
        ({"mcp_session_id": "stray"}, 200, None),
        ({"accept": None}, 200, None),
        ({"accept": "text/html"}, 406, -32600),
        ({"content_type": "text/plain"}, 415, -32600),
        ({"content_encoding": "gzip"}, 415, -32600),
        ({"host": "evil.test"}, 403, -32600),
        ({"host": None}, 400, -32600),
        ({"origin": "http://evil.test"}, 403, -32600),
        ({"origin": "null"}, 403, -32600),
        ({"content_length": "100001"}, 413, -32600),
    ],
)
def test_invalid_headers_are_refused_before_the_handler_runs(
    server: ServerThread, headers: dict[str, str | None], status: int, code: int | None
) -> None:
    """Security H01-H12, H36-H41."""
    with server.connect() as client:
        reply = client.read("a", **headers)
        assert (reply.status, reply.json.get("error", {}).get("code")) == (status, code)
        assert b"evil" not in reply.body
        assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "extra", [b"Host: localhost\r\n", b"Mcp-Method: server/discover\r\n", b"MCP-Protocol-Version: 2026-07-28\r\n"]
)
def test_a_repeated_header_is_refused(server: ServerThread, extra: bytes) -> None:
    """Security H05, H38."""
    with server.connect() as client:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}).encode()
        client.write(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Mcp-Method: server/discover\r\nMCP-Protocol-Version: 2026-07-28\r\n%bContent-Length: %d\r\n\r\n%b"
            % (extra, len(body), body)
        )
        assert client.reply().status == 400


def test_missing_meta_is_reported(client: RawClient) -> None:
    """Security L13."""
    for meta in ({}, {"io.modelcontextprotocol/protocolVersion": STATELESS}):
        client.post(
            {"jsonrpc": "2.0", "id": 7, "method": "resources/list", "params": {"_meta": meta}},
            mcp_protocol_version=STATELESS,
            mcp_method="resources/list",
        )
        reply = client.reply()
        assert (reply.status, reply.error, reply.json["id"]) == (400, -32602, 7)


def test_an_unknown_version_is_refused_with_the_supported_versions(client: RawClient) -> None:
    """Security L04."""
    meta = META | {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    client.post(
        {"jsonrpc": "2.0", "id": 7, "method": "resources/list", "params": {"_meta": meta}},
        mcp_protocol_version="2099-01-01",
        mcp_method="resources/list",
    )
    reply = client.reply()
    assert (reply.status, reply.error, reply.json["id"]) == (400, -32022, 7)
    assert reply.json["error"]["data"]["requested"] == "2099-01-01"
    assert STATELESS in reply.json["error"]["data"]["supported"]


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such", "tools/list"]
)
def test_an_unknown_method_or_one_of_another_era_is_not_found(client: RawClient, method: str) -> None:
    """2026-07-28: methods that were removed are unknown. Security H40."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    reply = client.call(method, params | {"uri": "test://a", "level": "info"})
    assert (reply.status, reply.error, reply.json["id"]) == (404, -32601, 1)


def test_a_header_mismatch_is_reported_before_an_unknown_method(client: RawClient) -> None:
    reply = client.call("no/such", mcp_method="ping")
    assert (reply.status, reply.error) == (400, -32020)


def test_a_notification_is_accepted_without_an_answer(client: RawClient) -> None:
    client.post(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "_meta": META}},
        mcp_protocol_version=STATELESS,
    )
    reply = client.reply()
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("verb", ["HEAD", "PUT", "PATCH", "OPTIONS", "TRACE"])
def test_other_http_methods_are_not_allowed(server: ServerThread, verb: str) -> None:
    """Security H07, H19."""
    with server.connect() as client:
        client.request(verb, origin=f"http://127.0.0.1:{server.port}")
        status, headers = client.head()
        assert status == 405
        assert "POST" in headers["allow"]
        assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/healthz"])
def test_a_page_answers_head_with_the_head_of_get_and_no_body(client: RawClient, path: str) -> None:
    """RFC 9110 §9.3.2. The next answer on the connection would be unreadable after a body."""
    client.request("HEAD", path)
    status, headers = client.head()
    page = client.fetch("GET", path)
    assert status == page.status == 200
    assert headers["content-length"] == str(len(page.body))
    refused = client.fetch("PUT", path)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
def test_the_stateless_era_allows_only_post(client: RawClient, verb: str) -> None:
    reply = client.fetch(verb, mcp_protocol_version=STATELESS)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["//mcp", "/x/../mcp", "/mcp/x", "/MCP", "/mcp%00", "/mcp/../mcp"])
def test_other_spellings_of_the_path_are_not_found(client: RawClient, path: str) -> None:
    """Security H20, A13."""
    assert client.fetch("POST", path, b"{}").status in (404, 405)


def test_clients_with_equal_ids_get_their_own_answers(server: ServerThread) -> None:
    """Security H43."""
    clients = [server.connect() for _ in range(50)]
    for number, client in enumerate(clients):
        client.send_stateless("resources/read", {"uri": f"test://{number}"}, id=1)
    assert [client.reply().text for client in clients] == [f"test://{number}" for number in range(50)]
    for client in clients:
        client.close()


@pytest.mark.parametrize("name", ["wait", "wait-progress"])
def test_a_disconnect_cancels_the_request(name: str) -> None:
    """2026-07-28: a disconnect cancels the request. Security H42."""
    with ServerThread() as server:
        with server.connect() as client:
            client.send_stateless("resources/read", {"uri": f"test://{name}"})
            assert server.service.arrived.acquire(timeout=40)
        assert server.service.ended.acquire(timeout=40)
        with server.connect() as client:
            assert client.read("after").text == "test://after"


def test_a_slow_request_is_answered_if_its_client_stays_connected() -> None:
    with ServerThread(limits=HttpLimits(watch_after=0.001)) as server, server.connect() as client:
        client.send_stateless("resources/read", {"uri": "test://wait"})
        assert server.service.arrived.acquire(timeout=40)
        threading.Timer(0.02, server.open_gates).start()  # by then the server watches the connection
        assert client.reply().text == "test://wait"


def test_a_request_over_its_deadline_is_cancelled_and_answered() -> None:
    limits = HttpLimits(sweep_time=0.02)
    with ServerThread(SampleService(Limits(handler_time=0.1)), limits=limits) as server, server.connect() as client:
        reply = client.read("wait")
        assert (reply.status, reply.error) == (200, -32603)
        assert "longer than 0.1 s" in reply.json["error"]["message"]


def test_requests_in_flight_are_bounded() -> None:
    """Security L22."""
    with ServerThread(SampleService(Limits(in_flight=2))) as server:
        clients = [server.connect() for _ in range(2)]
        for client in clients:
            client.send_stateless("resources/read", {"uri": "test://wait"})
            assert server.service.arrived.acquire(timeout=40)
        with server.connect() as client:
            reply = client.read("a")
            assert (reply.status, reply.error) == (503, -32603)
            server.open_gates()
            assert [client.reply().status for client in clients] == [200, 200]
            assert client.read("a").status == 200


def test_pages_of_an_allowed_origin_may_read_answers() -> None:
    """Security H07: no other origin gets the headers."""
    page = "https://page.test"
    with (
        ServerThread(allow_origins=(page,), verify=static_token("0123456789abcdef")) as server,
        server.connect() as client,
    ):
        preflight = client.fetch("OPTIONS", origin=page, access_control_request_method="POST")
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == page
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        reply = client.read("a", origin=page, authorization="Bearer 0123456789abcdef")
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, page)
        reply = client.read("progress", origin=page, authorization="Bearer 0123456789abcdef")
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, page)
        assert client.read("a", origin=page).headers["access-control-allow-origin"] == page
    with ServerThread() as server, server.connect() as client:
        reply = client.read("a", origin=f"http://127.0.0.1:{server.port}")
        assert reply.status == 200
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_a_page_may_read_answers_of_its_server_under_another_loopback_name() -> None:
    with ServerThread() as server, server.connect() as client:
        page = f"http://localhost:{server.port}"
        preflight = client.fetch("OPTIONS", origin=page, access_control_request_method="POST")
        assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, page)
        reply = client.read("a", origin=page)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, page)


def test_an_exception_outside_a_handler_is_answered_without_its_text() -> None:
    def broken(headers: object) -> str:
        raise RuntimeError("secret")

    with ServerThread(verify=broken) as server, server.connect() as client:
        reply = client.read("a")
        assert (reply.status, reply.error) == (500, -32603)
        assert b"secret" not in reply.body

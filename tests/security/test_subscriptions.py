"""Watches of a folder and of a server with many changes, in both eras and over both transports (U rows)."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from tests.security.server_processes import (
    FIXTURE,
    MIB,
    HttpProcess,
    StdioProcess,
    handshake_request,
    heavy,
    notification,
    read_file,
    stateless_request,
)
from tests.transports.http_support import RawClient
from tests.waiting import wait_until

FILE_URI = "file:///charts/a.txt"


def listen(*uris: str, id: object = "l", lists: bool = False) -> dict[str, object]:
    return stateless_request(
        id, "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris, "resourcesListChanged": lists}}
    )


def test_a_missing_or_outside_uri_is_not_acknowledged(charts: Path) -> None:
    """U01, U02, U04: a URI in another spelling is reported in that spelling."""
    with StdioProcess("serve", str(charts)) as server:
        outside = "file:///charts-evil/b.txt"
        server.send(
            listen(
                FILE_URI,
                "file:///charts/none",
                "file:///charts/fifo",
                outside,
                "file:///charts/../a.txt",
                "file:///charts/a%2Etxt",
            )
        )
        acknowledged_uris = server.receive()["params"]["notifications"]["resourceSubscriptions"]
        assert acknowledged_uris == [FILE_URI, "file:///charts/a%2Etxt"]
        (charts / "a.txt").write_text("new")
        assert {server.receive()["params"]["uri"] for _ in range(2)} == set(acknowledged_uris)


def test_a_change_is_reported_once_to_each_era_on_one_stream(charts: Path) -> None:
    """U03, L10: cancelling a listen ends it without an answer, and either era can use its id again."""
    with StdioProcess("serve", str(charts)) as server:
        server.initialize()
        server.send(listen(FILE_URI), handshake_request("s", "resources/subscribe", {"uri": FILE_URI}))
        assert {str(server.receive().get("id")) for _ in range(2)} == {"None", "s"}
        (charts / "a.txt").write_text("one")
        reported = [server.receive()["params"] for _ in range(2)]
        assert sorted("_meta" in params for params in reported) == [False, True]
        for _ in range(3):
            server.send(notification("notifications/cancelled", {"requestId": "l"}), listen(FILE_URI))
            assert server.receive()["method"] == "notifications/subscriptions/acknowledged"
        server.send(
            notification("notifications/cancelled", {"requestId": "l"}),
            handshake_request("l", "resources/read", {"uri": FILE_URI}),
        )
        assert server.receive()["result"]["contents"][0]["text"] == "one"
        (charts / "a.txt").write_text("two")
        assert server.receive() == notification("notifications/resources/updated", {"uri": FILE_URI})


@heavy
def test_a_watched_file_that_is_deleted_created_or_replaced_by_a_link_is_reported(charts: Path) -> None:
    """R28, U02: also when the directory or the whole folder is moved away and back."""
    sub = "file:///charts/sub/b.txt"
    with StdioProcess("serve", str(charts)) as server:
        server.send(listen(FILE_URI, sub))
        assert server.receive()["method"] == "notifications/subscriptions/acknowledged"

        def wait_for_update(uri: str) -> None:
            while server.receive()["params"]["uri"] != uri:
                pass

        (charts / "a.txt").write_text("changed")
        wait_for_update(FILE_URI)
        (charts / "a.txt").unlink()
        wait_for_update(FILE_URI)
        (charts / "a.txt").symlink_to(charts.parent / "charts-evil" / "b.txt")
        assert read_file(server, FILE_URI)["code"] == -32602
        (charts / "a.txt").unlink()
        (charts / "a.txt").write_text("back")
        wait_for_update(FILE_URI)
        shutil.rmtree(charts / "sub")
        wait_for_update(sub)
        os.rename(charts, charts.parent / "moved")
        wait_for_update(FILE_URI)
        refused = read_file(server, FILE_URI)
        assert (refused["code"], refused["message"]) == (
            -32603,
            "The folder 'charts' was moved or removed, or its disk is not mounted.",
        )
        os.rename(charts.parent / "moved", charts)
        wait_for_update(FILE_URI)
        assert read_file(server, FILE_URI)[0]["text"] == "back"
        assert b"Traceback" not in server.errors


def test_many_changes_reach_fifty_readers_coalesced(http: HttpProcess) -> None:
    """U07."""
    clients = [http.connect() for _ in range(50)]
    for number, client in enumerate(clients):
        client.listen("fix://counter", id=number)
    began = time.monotonic()
    http.call_tool("storm", changes=20_000)
    tags = [client.event()["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for client in clients]
    assert tags == list(range(50))
    assert time.monotonic() - began < 20
    for client in clients:
        client.close()


def test_refused_uris_of_a_listen_are_not_kept(http: HttpProcess) -> None:
    """U09: megabytes of refused URIs are released while the stream is open."""
    refused = [f"gone://{number}/" + "u" * MIB for number in range(3)]
    clients = [http.connect() for _ in range(5)]
    clients[0].listen("fix://counter", *refused)
    base = http.rss
    for client in clients[1:]:
        assert client.listen("fix://counter", *refused)["params"]["notifications"] == {
            "resourceSubscriptions": ["fix://counter"]
        }
    assert http.rss - base < 8 * MIB
    for client in clients:
        client.close()


def test_a_listen_with_too_many_uris_is_refused(stdio: StdioProcess) -> None:
    """U09, U10."""
    stdio.send(listen(*[f"fix://any/{number}" for number in range(100_000)]))
    assert stdio.receive()["error"]["code"] == -32602
    for invalid_notifications in (
        {"resourceSubscriptions": "fix://counter"},
        {"resourceSubscriptions": [1]},
        [],
        None,
        {"toolsListChanged": 1},
    ):
        assert (
            stdio.request("subscriptions/listen", {"notifications": invalid_notifications})["error"]["code"] == -32602
        )
    stdio.send(listen(*[f"fix://any/{number}" for number in range(10_000)], id="many"))
    assert len(stdio.receive()["params"]["notifications"]["resourceSubscriptions"]) == 10_000
    stdio.send(notification("notifications/cancelled", {"requestId": "many"}))


def test_sigint_ends_a_hundred_listens_and_ten_session_streams_in_time(charts: Path) -> None:
    """L20, U06: every listen gets its result, and every GET stream ends."""
    with HttpProcess("serve", str(charts)) as server:
        clients = [server.connect() for _ in range(100)]
        for number, client in enumerate(clients):
            client.listen(FILE_URI, id=number)
        streams = []
        for _ in range(10):
            with server.connect() as client:
                session = client.initialize()
            streams.append(server.connect())
            streams[-1].open_stream(session)
        began = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        assert [read_last_event(client)["id"] for client in clients] == list(range(100))
        for stream in streams:
            read_last_event(stream)
        assert server.wait_for_exit(20) == 130
        assert time.monotonic() - began < 15
        assert server.errors == b""


def read_last_event(client: RawClient) -> dict[str, object]:
    """Return the last event of a stream that ends."""
    found: dict[str, object] = {}
    while (event := client.event()) is not None:
        found = event
    return found


def test_disconnected_listeners_release_their_descriptors(http: HttpProcess) -> None:
    """U06, X03, H27, H35: after a reset during a request or a stream."""
    base = http.descriptors()
    for number in range(60):
        client = http.connect()
        if number % 2:
            client.listen("fix://counter", id=number)
        else:
            client.send_stateless("resources/read", {"uri": "fix://slow"}, number, mcp_name="fix://slow")
        client.close()
    wait_until(lambda: http.descriptors() <= base + 1, "the connections are closed")
    assert http.call_tool("quick")["content"][0]["text"] == "quick"


@heavy
def test_one_client_watches_10_000_files_and_a_change_is_reported_in_time(charts: Path) -> None:
    """U09, X09."""
    many = charts / "many"
    many.mkdir()
    for number in range(10_000):
        (many / f"{number}.txt").write_text("x")
    with StdioProcess("serve", str(charts)) as server:
        server.request("server/discover")
        base = server.rss
        server.send(listen(*[f"file:///charts/many/{number}.txt" for number in range(10_000)]))
        assert len(server.receive(20)["params"]["notifications"]["resourceSubscriptions"]) == 10_000
        assert server.rss - base < 64 * MIB
        began = time.monotonic()
        (many / "77.txt").write_text("new")
        while server.receive()["params"].get("uri") != "file:///charts/many/77.txt":
            pass
        assert time.monotonic() - began < 15


@heavy
def test_an_unread_stream_does_not_block_other_requests_of_its_session() -> None:
    """H33, H34."""
    with HttpProcess("run", FIXTURE) as server:
        with server.connect() as client:
            session = client.initialize()
        slow, other = server.connect(), server.connect()
        slow.post(
            handshake_request(
                1, "tools/call", {"name": "chatter", "arguments": {"events": 20_000}, "_meta": {"progressToken": 1}}
            ),
            mcp_session_id=session,
        )
        began = time.monotonic()
        reply = other.call_in_session(session, "tools/call", {"name": "quick", "arguments": {}}, 2)
        assert reply.json["result"]["content"][0]["text"] == "quick"
        assert time.monotonic() - began < 20
        assert server.rss < 128 * MIB

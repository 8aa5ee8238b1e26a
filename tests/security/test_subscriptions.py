"""Watches of a folder and of a server with many changes, in both eras and over both transports (U rows)."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from tests.security.places import FIXTURE, MIB, Http, Stdio, heavy, message, notice, read_file, stateless, within
from tests.transports.http_support import RawClient

A = "file:///charts/a.txt"


def listen(*uris: str, id: object = "l", lists: bool = False) -> dict[str, object]:
    return stateless(
        id, "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris, "resourcesListChanged": lists}}
    )


def test_a_missing_or_outside_uri_is_not_acknowledged(charts: Path) -> None:
    """U01, U02, U04: a URI in another spelling is reported in that spelling."""
    with Stdio("serve", str(charts)) as server:
        outside = "file:///charts-evil/b.txt"
        server.send(
            listen(
                A,
                "file:///charts/none",
                "file:///charts/fifo",
                outside,
                "file:///charts/../a.txt",
                "file:///charts/a%2Etxt",
            )
        )
        granted = server.receive()["params"]["notifications"]["resourceSubscriptions"]
        assert granted == [A, "file:///charts/a%2Etxt"]
        (charts / "a.txt").write_text("new")
        assert {server.receive()["params"]["uri"] for _ in range(2)} == set(granted)


def test_a_change_is_reported_once_to_each_era_on_one_stream(charts: Path) -> None:
    """U03, L10: cancelling a listen ends it without an answer, and either era can use its id again."""
    with Stdio("serve", str(charts)) as server:
        server.open()
        server.send(listen(A), message("s", "resources/subscribe", {"uri": A}))
        assert {str(server.receive().get("id")) for _ in range(2)} == {"None", "s"}
        (charts / "a.txt").write_text("one")
        reported = [server.receive()["params"] for _ in range(2)]
        assert sorted("_meta" in params for params in reported) == [False, True]
        for _ in range(3):
            server.send(notice("notifications/cancelled", {"requestId": "l"}), listen(A))
            assert server.receive()["method"] == "notifications/subscriptions/acknowledged"
        server.send(notice("notifications/cancelled", {"requestId": "l"}), message("l", "resources/read", {"uri": A}))
        assert server.receive()["result"]["contents"][0]["text"] == "one"
        (charts / "a.txt").write_text("two")
        assert server.receive() == notice("notifications/resources/updated", {"uri": A})


@heavy
def test_a_watched_file_that_is_deleted_created_or_replaced_by_a_link_is_reported(charts: Path) -> None:
    """R28, U02: also when the directory or the whole folder is moved away and back."""
    sub = "file:///charts/sub/b.txt"
    with Stdio("serve", str(charts)) as server:
        server.send(listen(A, sub))
        assert server.receive()["method"] == "notifications/subscriptions/acknowledged"

        def reported(uri: str) -> None:
            while server.receive()["params"]["uri"] != uri:
                pass

        (charts / "a.txt").write_text("changed")
        reported(A)
        (charts / "a.txt").unlink()
        reported(A)
        (charts / "a.txt").symlink_to(charts.parent / "charts-evil" / "b.txt")
        assert read_file(server, A)["code"] == -32602
        (charts / "a.txt").unlink()
        (charts / "a.txt").write_text("back")
        reported(A)
        shutil.rmtree(charts / "sub")
        reported(sub)
        os.rename(charts, charts.parent / "moved")
        reported(A)
        refused = read_file(server, A)
        assert (refused["code"], refused["message"]) == (
            -32603,
            "The folder 'charts' was moved or removed, or its disk is not mounted.",
        )
        os.rename(charts.parent / "moved", charts)
        reported(A)
        assert read_file(server, A)[0]["text"] == "back"
        assert b"Traceback" not in server.errors


def test_many_changes_reach_fifty_readers_coalesced(http: Http) -> None:
    """U07."""
    wires = [http.wire() for _ in range(50)]
    for number, wire in enumerate(wires):
        wire.listen("fix://counter", id=number)
    began = time.monotonic()
    http.tool("storm", changes=20_000)
    tags = [wire.event()["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for wire in wires]
    assert tags == list(range(50))
    assert time.monotonic() - began < 5
    for wire in wires:
        wire.close()


def test_refused_uris_of_a_listen_are_not_kept(http: Http) -> None:
    """U09: megabytes of refused URIs are released while the stream is open."""
    refused = [f"gone://{number}/" + "u" * MIB for number in range(3)]
    wires = [http.wire() for _ in range(5)]
    wires[0].listen("fix://counter", *refused)
    base = http.rss
    for wire in wires[1:]:
        assert wire.listen("fix://counter", *refused)["params"]["notifications"] == {
            "resourceSubscriptions": ["fix://counter"]
        }
    assert http.rss - base < 8 * MIB
    for wire in wires:
        wire.close()


def test_a_listen_with_too_many_uris_is_refused(stdio: Stdio) -> None:
    """U09, U10."""
    stdio.send(listen(*[f"fix://any/{number}" for number in range(100_000)]))
    assert stdio.receive()["error"]["code"] == -32602
    for wrong in (
        {"resourceSubscriptions": "fix://counter"},
        {"resourceSubscriptions": [1]},
        [],
        None,
        {"toolsListChanged": 1},
    ):
        assert stdio.ask("subscriptions/listen", {"notifications": wrong})["error"]["code"] == -32602
    stdio.send(listen(*[f"fix://any/{number}" for number in range(10_000)], id="many"))
    assert len(stdio.receive()["params"]["notifications"]["resourceSubscriptions"]) == 10_000
    stdio.send(notice("notifications/cancelled", {"requestId": "many"}))


def test_sigint_ends_a_hundred_listens_and_ten_session_streams_in_time(charts: Path) -> None:
    """L20, U06: every listen gets its result, and every GET stream ends."""
    with Http("serve", str(charts)) as server:
        wires = [server.wire() for _ in range(100)]
        for number, wire in enumerate(wires):
            wire.listen(A, id=number)
        streams = []
        for _ in range(10):
            with server.wire() as wire:
                session = wire.initialize()
            streams.append(server.wire())
            streams[-1].open_stream(session)
        began = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        assert [last(wire)["id"] for wire in wires] == list(range(100))
        for stream in streams:
            last(stream)
        assert server.exit_code(3) == 130
        assert time.monotonic() - began < 3
        assert server.errors == b""


def last(wire: RawClient) -> dict[str, object]:
    """Return the last event of a stream that ends."""
    found: dict[str, object] = {}
    while (event := wire.event()) is not None:
        found = event
    return found


def test_disconnected_listeners_release_their_descriptors(http: Http) -> None:
    """U06, X03, H27, H35: after a reset during a request or a stream."""
    base = http.descriptors()
    for number in range(60):
        wire = http.wire()
        if number % 2:
            wire.listen("fix://counter", id=number)
        else:
            wire.stateless("resources/read", {"uri": "fix://slow"}, number, mcp_name="fix://slow")
        wire.close()
    assert within(5, lambda: http.descriptors() <= base + 1)
    assert http.tool("quick")["content"][0]["text"] == "quick"


@heavy
def test_one_client_watches_10_000_files_and_a_change_is_reported_in_time(charts: Path) -> None:
    """U09, X09."""
    many = charts / "many"
    many.mkdir()
    for number in range(10_000):
        (many / f"{number}.txt").write_text("x")
    with Stdio("serve", str(charts)) as server:
        base = server.ask("server/discover") and server.rss
        server.send(listen(*[f"file:///charts/many/{number}.txt" for number in range(10_000)]))
        assert len(server.receive(20)["params"]["notifications"]["resourceSubscriptions"]) == 10_000
        assert server.rss - base < 64 * MIB
        began = time.monotonic()
        (many / "77.txt").write_text("new")
        while server.receive()["params"].get("uri") != "file:///charts/many/77.txt":
            pass
        assert time.monotonic() - began < 2


@heavy
def test_an_unread_stream_does_not_block_other_requests_of_its_session() -> None:
    """H33, H34."""
    with Http("run", FIXTURE) as server:
        with server.wire() as wire:
            session = wire.initialize()
        slow, other = server.wire(), server.wire()
        slow.post(
            message(
                1, "tools/call", {"name": "chatter", "arguments": {"events": 20_000}, "_meta": {"progressToken": 1}}
            ),
            mcp_session_id=session,
        )
        began = time.monotonic()
        reply = other.in_session(session, "tools/call", {"name": "quick", "arguments": {}}, 2)
        assert reply.json["result"]["content"][0]["text"] == "quick"
        assert time.monotonic() - began < 5
        assert server.rss < 128 * MIB

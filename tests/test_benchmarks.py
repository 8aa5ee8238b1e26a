"""The benchmark harness without a server: bytes on the wire, options, tables and verdicts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import run
from benchmarks.harness import clients, environments, measure, report, wire
from benchmarks.harness.peers import BY_NAME, PEERS
from benchmarks.harness.workloads import WORKLOADS

READ = {"uri": "bench://static"}


def row(peer: str, mode: str = "stdio", workload: str = "static-32", turn: int = 0, **figures: float) -> dict[str, Any]:
    defaults = {"rate": 100.0, "mib_s": 0.0, "cpu_us": 10.0, "driver_busy": 0.1, "errors": 0}
    return {"mode": mode, "workload": workload, "peer": peer, "turn": turn, **defaults, **figures}


# Wire


@pytest.mark.parametrize("era", [wire.HANDSHAKE, wire.STATELESS])
def test_a_request_with_its_id_inserted_is_a_json_rpc_message(era: str) -> None:
    before, after = wire.request("resources/read", READ, era)
    message = json.loads(before + b"%d" % wire.FIRST_ID + after)
    assert (message["jsonrpc"], message["id"], message["method"]) == ("2.0", wire.FIRST_ID, "resources/read")
    assert message["params"]["uri"] == READ["uri"]
    assert ("_meta" in message["params"]) == (era == wire.STATELESS)


def test_the_content_length_of_a_post_is_the_length_of_its_body() -> None:
    before, after = wire.post("localhost:1", "resources/read", READ, wire.STATELESS, b"")
    head, body = (before + b"%d" % wire.FIRST_ID + after).split(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")


def test_a_stateless_post_has_version_method_and_name_headers() -> None:
    head = wire.head("localhost:1", "resources/read", READ, wire.STATELESS, b"", 2).decode().split("\r\n")
    assert {"MCP-Protocol-Version: 2026-07-28", "Mcp-Method: resources/read", "Mcp-Name: bench://static"} <= set(head)


def test_a_session_post_has_a_session_header_and_initialize_has_no_version_header() -> None:
    assert b"Mcp-Session-Id: abc\r\n" in wire.head("localhost:1", "ping", {}, wire.HANDSHAKE, b"abc", 2)
    assert b"MCP-Protocol-Version" not in wire.head("localhost:1", "initialize", {}, wire.HANDSHAKE, b"", 2)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
        b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\ndata: {"id":7,"result":{}}\r\n\r\n',
    ],
    ids=["json", "events"],
)
def test_a_response_is_found_by_its_id(body: bytes) -> None:
    message = wire.answer(body, 7)
    assert message is not None
    assert message.ok
    assert wire.answer(body, 8) is None


def test_an_error_is_not_a_result() -> None:
    message = wire.answer(b'{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}', 7)
    assert message is not None
    assert not message.ok


# Peers and choices


def test_every_peer_is_pinned_to_names_and_versions() -> None:
    for peer in PEERS:
        if peer.environment != environments.OURS:
            text, package = (environments.PINS / f"{peer.environment}{suffix}" for suffix in (".txt", ".json"))
            pins = (
                text.read_text().splitlines()
                if text.exists()
                else [f"{name}=={version}" for name, version in json.loads(package.read_text())["dependencies"].items()]
            )
            assert pins
            assert all(pin.count("==") == 1 and "/" not in pin.split("==")[1] for pin in pins), peer.name


def test_every_server_file_exists() -> None:
    for peer in PEERS:
        for face in ("stdio", "asgi"):
            folder = environments.BENCHMARKS / "servers" if peer.node else environments.BENCHMARKS
            assert (folder / peer.server.format(face=face)).exists()


def test_everything_is_measured_by_default() -> None:
    assert run.choose([]) == (list(run.ALL_MODES), list(WORKLOADS), True)


def test_naming_workloads_selects_all_modes_and_naming_modes_selects_all_workloads() -> None:
    modes, workloads, starts = run.choose(["static-32"])
    assert (modes, [w.name for w in workloads], starts) == (list(run.ALL_MODES), ["static-32"], False)
    modes, workloads, starts = run.choose(["stdio"])
    assert (modes, workloads, starts) == (["stdio"], list(WORKLOADS), False)


def test_naming_only_the_start_selects_no_modes_or_workloads() -> None:
    assert run.choose(["start"]) == ([], [], True)


def test_quick_changes_only_options_that_are_not_given() -> None:
    options = run.options(["--quick", "--rounds", "5"])
    assert (options.rounds, options.seconds) == (5, 0.5)


@pytest.mark.parametrize("flags", [["--only", "nothing"], ["--peers", "nobody"]])
def test_an_unknown_name_is_a_usage_error(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run.options(flags)
    assert caught.value.code == 2
    assert "unknown" in capsys.readouterr().err


def test_workloads_check_their_answers() -> None:
    item = next(workload for workload in WORKLOADS if workload.name == "item")
    params = item.params[7]
    assert item.check({"contents": [{"text": '{"id": "007"}'}]}, params)
    assert not item.check({"contents": [{"text": '{"id": "008"}'}]}, params)


def test_every_measured_client_has_a_program() -> None:
    for mode in clients.CLIENT_MODES:
        for peer in clients.measured(PEERS, mode):
            name = f"{peer.name}_client.mjs" if peer.node else f"{peer.name}.py"
            assert (environments.BENCHMARKS / "clients" / name).exists()


def test_all_answers_of_a_client_workload_have_the_same_length() -> None:
    for workload in (WORKLOADS[4], WORKLOADS[5]):
        assert workload.method == "tools/call"
        sums = {len(str(sum(params["arguments"].values()))) for params in clients.params_in_turn(workload)}
        assert sums == {clients.length(workload)}


# Report


def test_the_median_of_the_turns_is_reported_and_failures_are_left_out() -> None:
    rows = [row("ours", turn=turn, rate=rate) for turn, rate in enumerate((10, 30, 20))]
    failure = {"mode": "stdio", "workload": "static-32", "peer": "ours", "turn": 3, "failed": "gone"}
    assert report.medians([*rows, failure])["stdio", "static-32", "ours"]["rate"] == 20


def test_an_advantage_is_above_one_if_our_server_is_better() -> None:
    known = report.medians([row("ours", rate=300, cpu_us=5), row("mcp2", rate=10, cpu_us=200)])
    assert report.advantage(known, "stdio", "static-32", "mcp2", "rate") == 30
    assert report.advantage(known, "stdio", "static-32", "mcp2", "cpu_us") == 40
    assert report.advantage(known, "stdio", "static-32", "ts1", "rate") is None


def test_our_server_is_compared_with_the_peer_of_the_same_turn() -> None:
    # The machine was busy in the second turn.
    ours = [row("ours", turn=turn, rate=rate) for turn, rate in enumerate((100, 50))]
    theirs = [row("mcp2", turn=turn, rate=rate) for turn, rate in enumerate((10, 5, 10))]
    assert report.advantage(report.medians([*ours, *theirs]), "stdio", "static-32", "mcp2", "rate") == 10


def test_the_shortest_start_is_reported() -> None:
    rows = [row("ours", "start", "spawn", turn, ms=ms) for turn, ms in enumerate((95, 90, 160))]
    assert report.medians(rows)["start", "spawn", "ours"]["ms"] == 90


@pytest.mark.parametrize(("rate", "verdict"), [(300.0, "holds"), (299.0, "missed")])
def test_a_rule_holds_at_its_bound(rate: float, verdict: str) -> None:
    rule = report.RULES[0]
    known = report.medians([row("ours", rate=rate), row("mcp2", rate=10)])
    assert (rule.required, rule.bound, rule.verdict(known)) == (True, 30, verdict)


def test_a_missing_measurement_is_marked_and_does_not_fail_the_run() -> None:
    assert {rule.verdict({}) for rule in report.RULES} == {"not measured"}
    assert report.meets_rules({})


def test_only_a_missed_requirement_fails_the_run() -> None:
    slow_list = [row("ours", workload="list", rate=1), row("floor", workload="list", rate=100)]
    assert report.meets_rules(report.medians(slow_list))
    slow_start = {"mode": "start", "workload": "serve", "peer": "ours", "turn": 0, "ms": 151.0}
    assert not report.meets_rules(report.medians([slow_start]))


def test_rules_name_peers_modes_and_workloads_that_exist() -> None:
    rows = [
        row(peer, mode, w.name, rate=1e9, mib_s=1, p50_us=1)
        for peer in BY_NAME
        for mode in run.ALL_MODES
        for w in WORKLOADS
    ]
    rows += [
        row("ours", "start", workload, ms=1, mib=1) for workload in ("import", "client", "serve", *measure.REGISTERED)
    ]
    known = report.medians(rows)
    assert "not measured" not in {rule.verdict(known) for rule in report.RULES}


def test_the_report_shows_rates_ratios_verdicts_and_failures() -> None:
    failure = {"mode": "stdio", "workload": "start", "peer": "ts1", "turn": 0, "failed": "no node\nmore"}
    text = report.render([row("ours", rate=3200), row("mcp2", rate=100), row("floor", driver_busy=0.99), failure])
    assert "3,200" in text
    assert "32.0x" in text
    assert "100*" in text
    assert "holds    stdio, reads/s over mcp 2.3.0" in text
    assert f"{len(report.RULES) - 4} of {len(report.RULES)} ratios were not measured" in text
    assert "ts1, stdio start: no node" in text


def test_blobs_are_reported_in_megabytes() -> None:
    text = report.render([row("ours", workload="blob-50", rate=2, mib_s=100)])
    assert "MB/s" in text
    assert "105" in text


def test_columns_are_aligned() -> None:
    lines = report.table("x", ["ours", "mcp2"], [("heading of some length", ()), ("rate", ("1", "22"))]).splitlines()
    assert [len(line) for line in lines] == [34, 22, 34]
    assert lines[2].endswith("     1    22")

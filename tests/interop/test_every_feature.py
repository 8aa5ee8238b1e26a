"""Real clients use every feature of feature_server.py, over each transport and in each era that they speak."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.conftest import free_port
from tests.interop.programs import (
    CLIENTS,
    FEATURE_SERVER,
    HANDSHAKE,
    OLDER_REVISIONS,
    STATELESS,
    run_client,
    run_server,
    stop,
)

CASES = [(peer, revision) for peer, revisions in CLIENTS.items() for revision in revisions]
# One SDK can request an older revision, so that a real client covers each of the five.
CASES += [("mcp1", revision) for revision in OLDER_REVISIONS]
BERTH = {"ship": "mary", "quay": {"name": "north", "depth": 3.0, "lit": True}, "tags": ["a"], "note": None}
BERTHS = [
    {"ship": "amber", "quay": {"name": "north", "depth": 6.5, "lit": True}, "tags": [], "note": None},
    {"ship": "anchor", "quay": {"name": "south", "depth": 4.0, "lit": False}, "tags": ["late"], "note": "no crane"},
]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("berth", {"ship": "mary", "draught": 2, "tags": ["a"]}),
    ("berths", {}),
    ("count", {"ship": "mary"}),
    ("picture", {}),
    ("pilot", {"harbour": "Århus", "number": 1}),
    ("refuse", {"ship": "mary"}),
    ("berth", {"ship": 1}),
]
REPLY = "Berth at the south quay."
CALLS_WITH_INPUT: list[tuple[str, dict[str, Any], str]] = [
    ("reserve", {"message": "Which quay?"}, "south for 3 h"),
    ("reserve", {"message": "Decline this."}, "declined"),
    ("reserve", {"message": "Cancel this."}, "cancelled"),
    ("extend", {"tag": "TAG"}, "6 h, charged 1 time(s) of 1"),
    ("pay", {}, "paid"),
    ("advise", {}, f"parrot-1: {REPLY}"),
    ("charts", {}, '["file:///home/mary/charts","file:///home/mary/logs"]'),
    ("plan", {}, f"south, {REPLY} 2 places"),
]
"""Tools that need input, and their results."""
WITHOUT_ELICITATION = ("2025-03-26", "2024-11-05")


def calls_with_input(revision: str) -> list[tuple[str, dict[str, Any], str]]:
    """Return the calls with input requests that a client of this revision can answer."""
    absent = {"pay"} if revision in OLDER_REVISIONS else set()
    if revision in WITHOUT_ELICITATION:
        absent |= {"reserve", "extend", "plan"}
    return [call for call in CALLS_WITH_INPUT if call[0] not in absent]


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server over HTTP for all tests. At the end one Ctrl-C stops it, and it has logged no error."""
    port, log = free_port(), tmp_path_factory.mktemp("features") / "log"
    with run_server([sys.executable, str(FEATURE_SERVER), "http", str(port)], port, log) as process:
        yield f"http://127.0.0.1:{port}"
        assert stop(process, 20.0) in (0, 130), log.read_text(errors="replace")
    assert "Traceback" not in log.read_text(errors="replace")


def visit(peer: str, revision: str, **server: Any) -> dict[str, Any]:
    """Return the results of one client at the feature server."""
    tag = f"{peer} {revision} {next(iter(server))}"
    input_calls = [
        (name, {key: tag if value == "TAG" else value for key, value in arguments.items()})
        for name, arguments, _ in calls_with_input(revision)
    ]
    request = {"revision": revision, "calls": CALLS, "tag": tag, "calls_with_input": input_calls}
    return run_client(peer, request | server, "tour")


def without_metadata(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without irrelevant details: defaults of the SDKs and metadata of the server."""
    own = {name: value for name, value in result.items() if name not in ("_meta", "resultType")}
    return {name: value for name, value in own.items() if (name, value) != ("isError", False)}


def check_results(peer: str, revision: str, seen: dict[str, Any]) -> None:
    """Check the results that every client must have over every transport."""
    assert seen["revision"] == revision
    assert seen["ended"] is True
    any_structured = revision == STATELESS
    berth, berths, count, picture, pilot, refusal, invalid_call = map(without_metadata, seen["results"])
    assert berth["structuredContent"] == json.loads(berth["content"][0]["text"]) == BERTH
    jsonschema.validate(BERTH, seen["schemas"]["berth"])
    for result, value in ((berths, BERTHS), (count, 4)):
        assert json.loads(result["content"][0]["text"]) == value
        assert result.get("structuredContent") == (value if any_structured else {"result": value})
    link = "text" if revision in WITHOUT_ELICITATION else "resource_link"
    assert [block["type"] for block in picture["content"]] == ["text", "image", link]
    assert picture["content"][1] == {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    assert pilot == {"content": [{"type": "text", "text": "tom of Århus"}]}
    assert refusal == {"content": [{"type": "text", "text": "mary is not expected"}], "isError": True}
    assert invalid_call["isError"] is True
    assert invalid_call["content"][0]["text"].splitlines() == [
        "Invalid arguments:",
        "ship: expected a string, got an integer",
        "draught: missing",
    ]

    assert without_metadata(seen["loaded"]) == {"content": [{"type": "text", "text": "loaded 3"}]}
    texts = [None if revision == "2024-11-05" else f"{step} of 3" for step in (1, 2, 3)]
    assert seen["progress"] == [[step, 3, text] for step, text in enumerate(texts, 1)]
    # FastMCP requests all log levels in the stateless era, and the others request `info`.
    everything = [["debug", None, {"loaded": 3}]] if (peer, revision) == ("fastmcp", STATELESS) else []
    assert seen["logs"] == [["info", "crane", f"step {step}"] for step in (1, 2, 3)] + everything

    (prompt,) = seen["prompts"]
    assert [(argument["name"], argument.get("required", False)) for argument in prompt["arguments"]] == [
        ("ship", True),
        ("tone", False),
        ("line", False),
    ]
    texts = [message["content"].get("text") for message in seen["prompt"]["messages"]]
    assert texts == ["Brief me on amber, short, from line 7.", "Aye.", None]
    assert [message["role"] for message in seen["prompt"]["messages"]] == ["user", "assistant", "user"]
    assert seen["prompt"]["messages"][2]["content"]["resource"]["text"] == "notes on amber"
    assert seen["completion"] == ["amber", "anchor"]

    assert seen.get("cancelled", "cancelled") == "cancelled"
    assert without_metadata(seen["stopped"]) == {"content": [{"type": "text", "text": "yes"}]}
    check_input_requests(revision, seen)


def check_input_requests(revision: str, seen: dict[str, Any]) -> None:
    """Check that each input request was sent once and its answer reached the tool."""
    expected = calls_with_input(revision)
    assert [without_metadata(answer)["content"][0]["text"] for answer in seen["answers"]] == [
        text for _, _, text in expected
    ]
    names = [name for name, _, _ in expected]
    requests = [request for request in seen["input_requests"] if request != "roots"]
    forms = [request for request in requests if "requestedSchema" in request]
    messages = ["Which quay?", "Decline this.", "Cancel this.", "Which quay?", "And after that?", "Which quay?"]
    assert [form["message"] for form in forms] == (messages if "reserve" in names else [])
    for form in forms:
        properties = form["requestedSchema"]["properties"]
        assert [properties[name]["type"] for name in ("quay", "hours", "power")] == ["string", "integer", "boolean"]
        assert properties["quay"]["enum"] == ["north", "south"]
        assert form["requestedSchema"]["required"] == ["quay", "hours"]
    assert ["https://dues.example.test/12"] * ("pay" in names) == [
        request["url"] for request in requests if "url" in request
    ]
    assert seen["input_requests"].count("roots") == (2 if "plan" in names else 1)
    samples = [request for request in requests if "messages" in request]
    assert [request["maxTokens"] for request in samples] == ([50, 1024] if "plan" in names else [50])
    assert samples[0]["systemPrompt"] == "You know every quay."


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("peer", "revision"), CASES)
def test_every_feature_works_over_stdio(peer: str, revision: str) -> None:
    check_results(peer, revision, visit(peer, revision, command=[sys.executable, str(FEATURE_SERVER), "stdio"]))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("peer", "revision"), CASES)
def test_every_feature_works_over_http(peer: str, revision: str, http: str) -> None:
    check_results(peer, revision, visit(peer, revision, url=f"{http}/mcp"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("peer", "revision"), [*((peer, HANDSHAKE) for peer in CLIENTS), ("mcp1", "2024-11-05")])
def test_every_feature_works_over_http_and_sse(peer: str, revision: str, http: str) -> None:
    """The server has the transport of 2024-11-05 too. The SDKs speak newer revisions over it."""
    check_results(peer, revision, visit(peer, revision, sse=f"{http}/sse"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_client_with_the_skills_extension_reads_skills(transport: str, http: str) -> None:
    """FastMCP is the only one of these SDKs with the extension."""
    server = (
        {"url": f"{http}/mcp"} if transport == "http" else {"command": [sys.executable, str(FEATURE_SERVER), "stdio"]}
    )
    seen = run_client("fastmcp", server, "skills")
    (skill,) = seen["skills"]
    assert skill["frontmatter"]["name"] == "tide-tables"
    assert [file["uri"] for file in skill["resources"]] == [
        "skill://tide-tables/SKILL.md",
        "skill://tide-tables/reference/heights.csv",
    ]
    assert skill["resources"][0]["digest"] == f"sha256:{seen['digest']}"
    assert seen["skill"]["skill"] == skill
    assert seen["text"] == (FEATURE_SERVER.parent / "skills" / "tide-tables" / "SKILL.md").read_text()

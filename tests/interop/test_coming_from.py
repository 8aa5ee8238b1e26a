"""The three programs of docs/coming_from.md give the same results, except for the documented differences."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, absent
from tests.docs.pages import blocks_of
from tests.interop.programs import HANDSHAKE, HOME, PROBE_SECONDS, STATELESS, run_client
from wharfinger import Client, ToolError

PAGE = ROOT / "docs" / "coming_from.md"
PYTHONS = {
    "wharfinger": Path(sys.executable),
    "mcp": HOME / "mcp2" / "bin" / "python",
    "fastmcp": HOME / "fastmcp" / "bin" / "python",
}
DEPTHS = {"north": 6.5, "south": 4.0}
BERTH = {"ship": "mary", "quay": "north", "depth": 6.5}

# Results that differ as the page says, which are tested separately.
DIFFERING_RESULTS = (
    "wrong",
    "lenient",
    "unknown",
    "survey",
    "reserve",
    "declined",
    "refused",
    "input_requests",
    "no_quay",
    "berth",
    "resources",
    "logs",
)


def command(framework: str, folder: Path) -> list[str]:
    """Return the command of one of the page's programs."""
    name = f"harbour_{framework}.py"
    (program,) = [block for block in blocks_of(PAGE) if block.options.get("file") == name]
    path = folder / name
    path.write_text(program.text, encoding="utf-8")
    if not PYTHONS[framework].exists():
        absent(f"{PYTHONS[framework].relative_to(ROOT)} (make interop builds it)")
    return [str(PYTHONS[framework]), str(path)]


@cache
def results_of(framework: str, revision: str, folder: Path) -> dict[str, Any]:
    """Return the results of the official SDK's client at one program."""
    return run_client("mcp2", {"revision": revision, "command": command(framework, folder)}, "harbour")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("harbours")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
def test_the_three_programs_of_the_page_give_the_same_results(revision: str, folder: Path) -> None:
    seen = {framework: results_of(framework, revision, folder) for framework in PYTHONS}
    wharfinger, sdk, fastmcp = seen.values()
    shared = {name: value for name, value in wharfinger.items() if name not in DIFFERING_RESULTS}
    assert shared == {name: sdk[name] for name in shared}
    assert shared == {name: fastmcp[name] for name in shared}
    assert shared["progress"] == [[1, 2], [2, 2]]

    for results in seen.values():
        assert results["berth"]["structured"] == BERTH
        assert results["logs"][0] == "mary goes to north"
        assert results["wrong"]["failed"]
        assert results["refused"]["texts"][0].endswith("No quay is deeper than 9.5 m.")
        assert results["resources"] == [
            ["harbour://quays", "quays", "Every quay and its depth in metres.", "application/json"]
        ]
        if results is not fastmcp or revision == HANDSHAKE:
            assert results["reserve"]["texts"] == ["north: 3 h"]
            assert results["declined"]["texts"][0].endswith("Nothing was reserved.")
            assert results["input_requests"][0] == [
                "How long at the north quay?",
                [{"hours": "integer", "power": "boolean"}, ["hours"]],
            ]
        else:
            assert results["reserve"]["failed"] and results["input_requests"] == []


@pytest.mark.timeout(180)
def test_the_documented_differences_exist(folder: Path) -> None:
    wharfinger, sdk, fastmcp = (results_of(framework, STATELESS, folder) for framework in PYTHONS)
    assert wharfinger["refused"]["texts"] == fastmcp["refused"]["texts"] == ["No quay is deeper than 9.5 m."]
    assert sdk["refused"]["texts"] == ["Error executing tool berth: No quay is deeper than 9.5 m."]
    assert wharfinger["wrong"]["texts"] == ["Invalid arguments:\ndraught: expected a number, got a string"]
    assert "'deep'" in sdk["wrong"]["texts"][0] and "'deep'" in fastmcp["wrong"]["texts"][0]
    assert wharfinger["lenient"]["failed"] and not sdk["lenient"]["failed"] and not fastmcp["lenient"]["failed"]
    assert wharfinger["unknown"] == {"code": -32602} and sdk["unknown"]["failed"] and fastmcp["unknown"]["failed"]
    assert (wharfinger["survey"]["structured"], wharfinger["survey"]["texts"]) == (
        [6.5, 4.0],
        ["[6.5,4.0]"],
    )
    assert (sdk["survey"]["structured"], sdk["survey"]["texts"]) == ({"result": [6.5, 4.0]}, ["6.5", "4.0"])
    assert (fastmcp["survey"]["structured"], fastmcp["survey"]["texts"]) == ({"result": [6.5, 4.0]}, ["[6.5,4.0]"])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
@pytest.mark.parametrize("framework", PYTHONS)
async def test_our_client_gets_the_same_results_from_all_three_programs(
    framework: str, revision: str, tmp_path: Path
) -> None:
    async with Client(command(framework, tmp_path), revision=revision, probe_timeout=PROBE_SECONDS) as client:
        assert {tool.name for tool in await client.list_tools()} == {"berth", "survey", "reserve"}
        assert (await client.call_tool("berth", {"ship": "mary", "draught": 5.0})).data == BERTH
        # The client unwraps values that the other frameworks wrap in an object.
        assert (await client.call_tool("survey", returns=list[float])).data == [6.5, 4.0]
        with pytest.raises(ToolError, match=r"No quay is deeper than 9\.5 m\."):
            await client.call_tool("berth", {"ship": "mary", "draught": 9.5})
        assert (await client.read_resource("harbour://quays")).json() == DEPTHS
        prompt = await client.get_prompt("briefing", {"ship": "mary", "tone": "long"})
        assert getattr(prompt.messages[0].content, "text", "") == "Brief me on mary, long."

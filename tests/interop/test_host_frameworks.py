"""Agents use all servers of a host as one: OpenAI Agents, Pydantic AI and LangChain, with a scripted model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import ROOT, free_port
from tests.interop import model
from tests.interop.frameworks import FRAMEWORKS, Framework
from tests.interop.programs import run_program, run_server
from tests.interop.test_agents import POEM, TIMEOUT_SECONDS, Calls

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS + 30)

AMBER = {"ship": "amber"}
RUNS: dict[str, Calls] = {
    "works": [
        ("features_berth", {"ship": "amber", "draught": 3.5}),
        ("features_count", AMBER),
        ("papers_read_resource", {"uri": "file:///papers/poem.txt"}),
    ],
    "refused": [("features_refuse", AMBER), ("features_count", AMBER)],
}


@pytest.fixture(scope="module")
def program_input(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Start the model and the host, and return the input of an agent's program."""
    papers = tmp_path_factory.mktemp("host") / "papers"
    papers.mkdir()
    (papers / "poem.txt").write_text(POEM)
    port = free_port()
    program = [sys.executable, "-m", "tests.interop.host_program", str(port), str(papers)]
    visit = {"read": "harbour://quay", "read_name": "quay", "runs": RUNS, "url": f"http://127.0.0.1:{port}/mcp"}
    command = ["env", "-C", str(ROOT), *program]
    with run_server(command, port, tmp_path_factory.mktemp("logs") / "host"), model.run_model() as url:
        yield {"model_url": url, "servers": {"host": visit}}


@pytest.fixture(
    scope="module",
    params=[
        framework for framework in FRAMEWORKS if framework.program in ("openai_agents", "pydantic_ai", "langchain")
    ],
    ids=lambda framework: framework.program,
)
def results(request: pytest.FixtureRequest, program_input: dict[str, Any]) -> dict[str, Any]:
    """Return the results of a framework at the host."""
    framework: Framework = request.param
    found: dict[str, Any] = run_program(framework.command(), program_input, TIMEOUT_SECONDS)["host"]
    assert "failed" not in found, found["failed"]
    for answer in found["runs"].values():
        assert isinstance(answer, str), answer["failed"]
    return found


def test_tools_of_both_servers_are_listed_and_called(results: dict[str, Any]) -> None:
    names = {name.removeprefix("ours_") for name in results["tools"]}
    assert {"features_berth", "features_count", "papers_read_resource", "papers_search"} <= names
    berth, count, poem = json.loads(results["runs"]["works"])
    assert "north" in berth and "4.5" in berth
    assert "5" in count
    assert POEM.strip() in poem


def test_resources_of_both_servers_are_listed_and_read(results: dict[str, Any]) -> None:
    assert any("quay" in name for name in results["resources"])
    assert any(name.endswith("poem.txt") for name in results["resources"])
    assert results["read"] == "the north quay"


def test_an_agent_continues_after_an_error(results: dict[str, Any]) -> None:
    error, count = json.loads(results["runs"]["refused"])
    assert "amber is not expected" in error
    assert "5" in count

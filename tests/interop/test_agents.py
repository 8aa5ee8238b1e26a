"""Agents of nine frameworks use our servers over stdio and HTTP: the whole loop of model, tool, answer and model.

The model follows a script (peers/scripted.py): it calls the tools that its prompt names, one after the other, and then
answers with their results. An agent that stops at an error of a tool has no such answer.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import CACHE, free_port
from tests.interop import model
from tests.interop.frameworks import FRAMEWORKS, Framework
from tests.interop.programs import FEATURE_SERVER, run_program, run_server, wharfinger_command

TIMEOUT_SECONDS = 240.0
pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS + 30)

POEM, TABLE = "Beautiful is better than ugly.\n", "hour,height\n1,4.2\n"
AMBER = {"ship": "amber"}
Calls = list[tuple[str, dict[str, Any]]]

# Each row is one run of an agent. The last call shows that the agent continued after the call before.
FEATURE_RUNS: dict[str, Calls] = {
    "works": [("berth", {"ship": "amber", "draught": 3.5}), ("count", AMBER), ("spoken", {})],
    "refused": [("refuse", AMBER), ("count", AMBER)],
    "raised": [("capsize", AMBER), ("count", AMBER)],
    "wrong": [("count", {"ship": 3}), ("count", AMBER)],
    "missing": [("count", {}), ("count", AMBER)],
    "needs_input": [("reserve", {"message": "Which quay?"}), ("count", AMBER)],
    "link": [("chart", AMBER), ("count", AMBER)],
}
SERVE_RUNS: dict[str, Calls] = {
    "search": [("search", {"query": "beautiful"}), ("fetch", {"id": "file:///papers/poem.txt"})],
    "resource_tools": [
        ("list_resources", {}),
        ("read_directory", {"uri": "file:///papers"}),
        ("read_resource", {"uri": "file:///papers/tides.csv"}),
    ],
    "missing_resource": [
        ("read_resource", {"uri": "file:///papers/no.txt"}),
        ("fetch", {"id": "file:///papers/poem.txt"}),
    ],
}


@pytest.fixture(scope="module")
def program_input(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The input of an agent's program: the URL of the model and the servers to visit."""
    papers = tmp_path_factory.mktemp("agents") / "papers"
    papers.mkdir()
    (papers / "poem.txt").write_text(POEM)
    (papers / "tides.csv").write_text(TABLE)
    logs = tmp_path_factory.mktemp("logs")
    features, serve = [sys.executable, str(FEATURE_SERVER)], [*wharfinger_command(), "serve"]
    env_command = ["env", f"XDG_CACHE_HOME={CACHE}"]  # frameworks pass on few environment variables
    feature_visit = {"read": "harbour://quay", "read_name": "quay", "runs": FEATURE_RUNS}
    serve_visit = {"read": "file:///papers/poem.txt", "read_name": "poem.txt", "runs": SERVE_RUNS}
    with ExitStack() as stack:
        ports = free_port(), free_port()
        stack.enter_context(run_server([*features, "http", str(ports[0])], ports[0], logs / "features"))
        http = [*serve, "--http", f"127.0.0.1:{ports[1]}", str(papers)]
        stack.enter_context(run_server(http, ports[1], logs / "serve"))
        servers = {
            "features http": feature_visit | {"url": f"http://127.0.0.1:{ports[0]}/mcp"},
            "features stdio": feature_visit | {"command": [*env_command, *features, "stdio"]},
            "serve http": serve_visit | {"url": f"http://127.0.0.1:{ports[1]}/mcp"},
            "serve stdio": serve_visit | {"command": [*env_command, *serve, "--stdio", str(papers)]},
        }
        yield {"model_url": stack.enter_context(model.run_model()), "servers": servers}


HEAVY = [pytest.mark.heavy]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(framework, id=framework.program, marks=HEAVY if framework.target == "interop-all" else [])
        for framework in FRAMEWORKS
    ],
)
def framework_run(request: pytest.FixtureRequest, program_input: dict[str, Any]) -> tuple[Framework, dict[str, Any]]:
    """Return a framework and its results at every server."""
    framework: Framework = request.param
    return framework, run_program(framework.command(), program_input, TIMEOUT_SECONDS)


@pytest.fixture(params=["http", "stdio"])
def transport(request: pytest.FixtureRequest) -> str:
    """Return the transport between the framework and the server."""
    transport: str = request.param
    return transport


FrameworkRun = tuple[Framework, dict[str, Any]]


def results_at(framework_run: FrameworkRun, server: str, transport: str) -> dict[str, Any]:
    """Return the results at one server."""
    seen: dict[str, Any] = framework_run[1][f"{server} {transport}"]
    assert "failed" not in seen, seen["failed"]
    return seen


def model_inputs(seen: dict[str, Any], run: str) -> list[str]:
    """Return the model's inputs after each call of a run, which must have finished."""
    answer = seen["runs"][run]
    assert isinstance(answer, str), answer["failed"]
    texts: list[str] = json.loads(answer)
    return texts


def test_tools_are_listed_and_called(framework_run: FrameworkRun, transport: str) -> None:
    framework, seen = framework_run[0], results_at(framework_run, "features", transport)
    assert {"berth", "count", "capsize"} <= {name.removeprefix("ours_") for name in seen["tools"]}
    berth, count, spoken = model_inputs(seen, "works")
    assert "north" in berth and "4.5" in berth
    assert "5" in count
    assert framework.revision in spoken


def test_resources_are_listed_and_read(framework_run: FrameworkRun, transport: str) -> None:
    framework, features, serve = (
        framework_run[0],
        results_at(framework_run, "features", transport),
        results_at(framework_run, "serve", transport),
    )
    if not framework.reads:
        assert features["resources"] is None and features["read"] is None
        return
    assert any(name in ("quay", "harbour://quay") for name in features["resources"]), features["resources"]
    assert features["read"] == "the north quay"
    assert any(name.endswith("poem.txt") for name in serve["resources"]), serve["resources"]
    assert serve["read"] == POEM


def test_an_agent_continues_after_a_tool_raises_and_its_model_sees_the_reference(
    framework_run: FrameworkRun, transport: str
) -> None:
    error, count = model_inputs(results_at(framework_run, "features", transport), "raised")
    assert re.search(r"reference [0-9a-f]{8}", error), error
    assert "keel" not in error  # the text of the exception is for the log
    assert "5" in count


def test_an_agent_continues_after_a_tool_error_and_its_model_sees_the_message(
    framework_run: FrameworkRun, transport: str
) -> None:
    error, count = model_inputs(results_at(framework_run, "features", transport), "refused")
    assert "amber is not expected" in error
    assert "5" in count


def test_an_agent_continues_after_wrong_arguments(framework_run: FrameworkRun, transport: str) -> None:
    framework, seen = framework_run[0], results_at(framework_run, "features", transport)
    for run in ("wrong", "missing"):
        error, count = model_inputs(seen, run)
        assert "5" in count
        if not framework.validates_arguments:
            assert "Invalid arguments" in error and "ship" in error


def test_an_agent_continues_after_a_tool_that_needs_an_absent_user(framework_run: FrameworkRun, transport: str) -> None:
    error, count = model_inputs(results_at(framework_run, "features", transport), "needs_input")
    assert "5" in count
    if not framework_run[0].hides_protocol_errors:
        assert "elicitation" in error


def test_a_model_sees_text_and_links_as_documented(framework_run: FrameworkRun, transport: str) -> None:
    """This is why tools return links only on request."""
    framework, seen = framework_run[0], results_at(framework_run, "features", transport)
    if framework.link == "fails":
        assert "does not support file URLs" in seen["runs"]["link"]["failed"]
        return
    answer, count = model_inputs(seen, "link")
    assert "5" in count
    assert ("amber lies at the quay" in answer) is ("harbour://quay" in answer) is (framework.link == "both"), answer


def test_the_model_sees_search_results_as_text(framework_run: FrameworkRun, transport: str) -> None:
    found, fetched = model_inputs(results_at(framework_run, "serve", transport), "search")
    assert "file:///papers/poem.txt" in found and "Beautiful is better" in found
    assert "Beautiful is better" in fetched


def test_the_model_sees_results_of_resource_tools_as_text(framework_run: FrameworkRun, transport: str) -> None:
    seen = results_at(framework_run, "serve", transport)
    listed, entries, read = model_inputs(seen, "resource_tools")
    assert "file:///papers/poem.txt" in listed
    assert "file:///papers/poem.txt" in entries
    assert "height" in read and "4.2" in read
    refused, fetched = model_inputs(seen, "missing_resource")
    assert "file:///papers/no.txt" in refused
    assert "Beautiful is better" in fetched

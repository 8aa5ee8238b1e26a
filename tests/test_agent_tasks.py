"""The benchmark of agents' tasks: its data, its verdicts, and the loop of a model that calls tools."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agent_tasks.dataset import ORDERS, Dataset, make, top_customers
from benchmarks.agent_tasks.model import Endpoint, answer
from benchmarks.agent_tasks.questions import Question, questions
from benchmarks.agent_tasks.run import Outcome, faults, table
from benchmarks.agent_tasks.tasks import POSTGRES_TASK, TASKS
from benchmarks.agent_tasks.transcript import OURS, SERVERS, Transcript
from wharfinger import Client, Server
from wharfinger.sources import sql
from wharfinger.sources.resource_tool_set import resource_tools


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make(tmp_path_factory.mktemp("agents"))


def test_the_data_is_reproducible_and_contains_the_facts(data: Dataset, tmp_path: Path) -> None:
    other = make(tmp_path)
    head = ["git", "rev-parse", "HEAD"]
    assert len({subprocess.check_output(head, cwd=each.repository) for each in (data, other)}) == 1
    assert (data.logs / "app.log").read_bytes() == (other.logs / "app.log").read_bytes()
    with sqlite3.connect(data.database) as shop:
        assert shop.execute("SELECT COUNT(*) FROM orders").fetchone() == (ORDERS,)
        top_five = shop.execute(
            "SELECT c.name, SUM(cents) FROM orders o JOIN customers c ON c.id = customer_id "
            "WHERE strftime('%Y', ordered) = '2025' AND status = 'paid' GROUP BY 1 ORDER BY 2 DESC LIMIT 5"
        ).fetchall()
    shop.close()
    assert top_five == top_customers()
    assert (data.logs / "app.log").read_text().count("certificate of bank.example expired") == 1


def test_every_task_has_careful_and_careless_calls_for_our_server_and_a_peer() -> None:
    for task in (*TASKS, POSTGRES_TASK):
        servers = {server for server, _ in task.scripts}
        assert OURS in servers
        assert len(servers) > 1
        assert servers <= set(SERVERS)
        assert set(task.scripts) == {(server, caller) for server in servers for caller in ("careful", "careless")}
        assert task.facts()


def outcome(server: str, calls: int = 1, tokens: int = 10, largest: int = 10, *missing: str) -> Outcome:
    return Outcome("Why?", server, "careful", calls, tokens, largest, missing)


@pytest.mark.parametrize(
    ("our_outcome", "expected"),
    [
        (outcome(OURS), []),
        (outcome(OURS, 2), ["2 calls, and peer 1"]),
        (outcome(OURS, 1, 100), ["100 tokens, and peer 100"]),
        (outcome(OURS, 1, 99), []),
        (outcome(OURS, 1, 10, 11), ["an answer of ours has 11 tokens"]),
        (outcome(OURS, 1, 10, 10, "because"), ["the answer lacks 'because'"]),
    ],
)
def test_a_result_that_is_wrong_or_worse_than_that_of_a_peer_is_a_fault(
    our_outcome: Outcome, expected: list[str]
) -> None:
    found = list(faults([our_outcome, outcome("peer", 1, 100, 100)], budget=10))
    assert len(found) == len(expected)
    assert all(part in fault for part, fault in zip(expected, found, strict=True))
    assert "| Why? | careful | peer | 1 | 100 | 100 |" in table([our_outcome, outcome("peer", 1, 100, 100)])


def test_each_of_the_thirty_questions_has_two_servers(data: Dataset) -> None:
    all_questions = questions(data)
    assert len(all_questions) == len({question.text for question in all_questions}) == 30
    for question in all_questions:
        assert OURS in question.servers
        assert len(question.servers) == 2
        assert not question.is_right("I do not know.")
        assert question.is_right(" and ".join(forms[0] for forms in question.facts))


def test_an_answer_is_right_in_any_format() -> None:
    question = Question("How many?", [["1234"], ["six", "6"]], ())
    assert question.is_right("There are **1,234**, in Six towns.")
    assert not question.is_right("There are 1,234.")


# A model


Reply = Callable[[dict[str, Any]], dict[str, Any] | None]


@pytest.fixture
def start_endpoint() -> Iterator[Callable[[Reply], Endpoint]]:
    """Start an endpoint that responds with the message from `reply`, or with status 429 if it returns None."""
    servers: list[HTTPServer] = []

    def start(reply: Reply) -> Endpoint:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/v1/chat/completions"
                assert self.headers["Authorization"] == "Bearer secret"
                message = reply(request)
                body = json.dumps({"choices": [{"message": message}], "usage": {"total_tokens": 100}}).encode()
                self.send_response(429 if message is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None: ...

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "secret", "scripted")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def tool_call_message(name: str, arguments: str) -> dict[str, Any]:
    """Return the message of a model that calls a tool."""
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


def ask(endpoint: Endpoint, data: Dataset, question: str) -> tuple[Any, Transcript]:
    server = Server("shop")
    server.include(sql(f"sqlite:///{data.database}", label="shop"))
    server.include(resource_tools(allow_query=True))

    async def main() -> tuple[Any, Transcript]:
        async with Client(server) as client:
            transcript = Transcript(client)
            return await answer(endpoint, transcript, [{"type": "function"}], question), transcript

    return asyncio.run(main())


def test_a_model_answers_with_the_results_of_tool_calls(
    start_endpoint: Callable[[Reply], Endpoint], data: Dataset
) -> None:
    requests: list[dict[str, Any]] = []

    def reply(request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request)
        last = request["messages"][-1]
        if last["role"] == "user":
            return tool_call_message("query", '{"statement": "SELECT cents FROM orders WHERE id = 77777"}')
        return {"role": "assistant", "content": f"It has {json.loads(last['content'])['rows'][0][0]} cents."}

    question = next(each for each in questions(data) if "77777" in each.text)
    result, transcript = ask(start_endpoint(reply), data, question.text)
    assert question.is_right(result.text)
    assert (result.calls, result.tokens) == (1, 200)
    assert [message["role"] for message in requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert transcript.calls[0].arguments == {"statement": "SELECT cents FROM orders WHERE id = 77777"}


def test_a_model_gets_errors_for_invalid_calls_and_is_stopped_after_15_turns(
    start_endpoint: Callable[[Reply], Endpoint], data: Dataset
) -> None:
    calls = iter(
        [
            tool_call_message("query", "no JSON"),
            tool_call_message("nothing", "{}"),
            tool_call_message("query", '{"statement": "DROP TABLE orders"}'),
        ]
    )
    last_contents: list[str] = []

    def reply(request: dict[str, Any]) -> dict[str, Any]:
        last_contents.append(str(request["messages"][-1]["content"]))
        return next(calls, None) or tool_call_message("query", "{}")

    result, _ = ask(start_endpoint(reply), data, "How many?")
    assert result.text == ""
    assert len(last_contents) == 15
    assert "not a JSON object" in last_contents[1]
    assert "nothing" in last_contents[2]
    assert "Only one SELECT is allowed" in last_contents[3]


def test_an_endpoint_that_refuses_or_is_unreachable_ends_the_run_with_its_message(
    start_endpoint: Callable[[Reply], Endpoint], data: Dataset
) -> None:
    with pytest.raises(SystemExit, match="answers 429"):
        ask(start_endpoint(lambda request: None), data, "How many?")
    with pytest.raises(SystemExit, match="cannot be reached"):
        ask(Endpoint("http://127.0.0.1:9/v1", "secret", "scripted"), data, "How many?")

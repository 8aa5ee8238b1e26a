"""The messages that a client sends in each family of transcripts, by revision.

A family is a generator. It yields the next message of the client, and receives the messages of the server since then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

from wharfinger.protocol.revisions import REVISIONS

__all__ = ["FAMILIES", "Client", "Family"]

META = "io.modelcontextprotocol/"
CAPABILITIES: dict[str, dict[str, Any]] = {
    "2024-11-05": {"roots": {}, "sampling": {}},
    "2025-03-26": {"roots": {}, "sampling": {}},
    "2025-06-18": {"roots": {}, "sampling": {}, "elicitation": {}},
    "2025-11-25": {"roots": {}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}},
    "2026-07-28": {"roots": {}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}},
}

Conversation = Generator[str, list[Any], None]


class Client:
    """Writes the messages of a client of one revision."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.rules = REVISIONS[revision]
        self.stateless = self.rules.era == "stateless"
        self.capabilities: dict[str, Any] = dict(CAPABILITIES[revision])
        self.last = 0
        """The id of the last request."""

    def request(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> str:
        """Return a request with the next id."""
        self.last += 1
        members: dict[str, Any] = {} if params is None else dict(params)
        if self.stateless:
            own = {f"{META}protocolVersion": self.revision, f"{META}clientCapabilities": self.capabilities}
            members["_meta"] = own | meta
        elif meta:
            members["_meta"] = meta
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.last, "method": method}
        return json.dumps(message | ({"params": members} if members else {}), separators=(",", ":"))

    def call(self, name: str, arguments: dict[str, Any] | None = None, **meta: Any) -> str:
        """Return a `tools/call`."""
        return self.request("tools/call", {"name": name, "arguments": arguments or {}}, **meta)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> str:
        """Return a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        return json.dumps(message | ({"params": params} if params else {}), separators=(",", ":"))

    def answer(self, input_request: dict[str, Any], result: dict[str, Any]) -> str:
        """Return the response to a request of the server."""
        return json.dumps({"jsonrpc": "2.0", "id": input_request["id"], "result": result}, separators=(",", ":"))

    def open(self) -> Conversation:
        """Open a session, if the revision has sessions."""
        if not self.stateless:
            yield self.initialize(self.revision)
            yield self.notify("notifications/initialized")

    def initialize(self, version: str) -> str:
        """Return the request that opens a session."""
        info = {"name": "transcript", "version": "1"}
        return self.request(
            "initialize", {"protocolVersion": version, "capabilities": self.capabilities, "clientInfo": info}
        )


def opening(client: Client) -> Conversation:
    """Negotiation of a revision, and requests without a negotiation."""
    if client.stateless:
        yield client.request("server/discover")
        yield client.request("resources/list", **{f"{META}clientInfo": {"name": "transcript", "version": "1"}})
        yield client.request("tools/call", {"name": "test_simple_text"}, **{f"{META}protocolVersion": "2031-01-01"})
        yield client.request("resources/list", **{f"{META}protocolVersion": "2025-11-25"})
        yield '{"jsonrpc":"2.0","id":"bare","method":"resources/list"}'
        half = {"_meta": {f"{META}protocolVersion": client.revision}}
        yield json.dumps({"jsonrpc": "2.0", "id": "half", "method": "resources/list", "params": half})
        yield client.initialize("2025-11-25")
    else:
        yield client.request("tools/list")
        yield client.request("ping")
        yield client.initialize(client.revision)
        yield client.notify("notifications/initialized")
        yield client.initialize(client.revision)
        yield client.request("server/discover")


def version(client: Client) -> Conversation:
    """An unknown revision is answered with another one."""
    yield client.initialize("1999-01-01")
    yield client.notify("notifications/initialized")
    yield client.request("ping")


def ping(client: Client) -> Conversation:
    """Ping with ids of both kinds; the stateless era has no ping."""
    yield client.request("ping")
    if not client.stateless:
        yield '{"jsonrpc":"2.0","id":"text","method":"ping"}'
        yield '{"jsonrpc":"2.0","id":0,"method":"ping","params":{}}'


def tools(client: Client) -> Conversation:
    """The list, every kind of content, structure, and each way to fail."""
    yield client.request("tools/list")
    yield client.request("tools/call", {"name": "test_simple_text"})
    for name in ("image_content", "audio_content", "embedded_resource", "multiple_content_types", "resource_link"):
        yield client.call(f"test_{name}")
    yield client.call("test_structured_object", {"city": "Delft"})
    yield client.call("test_structured_list")
    yield client.call("test_error_handling")
    yield client.call("test_structured_object", {"city": 5})
    yield client.call("test_structured_object")
    yield client.call("test_no_such_tool")
    yield client.request("tools/call", {"name": 5})
    yield client.request("tools/call", {"name": "test_simple_text", "arguments": []})
    yield client.request("tools/list", {"cursor": "made up"})


def progress(client: Client) -> Conversation:
    """Progress without a token, and with tokens of both types."""
    yield client.call("test_tool_with_progress")
    yield client.call("test_tool_with_progress", progressToken="work")
    yield client.call("test_tool_with_progress", progressToken=0)


def logging(client: Client) -> Conversation:
    """Log levels of a session or of a request."""
    if client.stateless:
        yield client.call("test_tool_with_logging")
        yield client.call("test_tool_with_logging", **{f"{META}logLevel": "info"})
        yield client.call("test_tool_with_logging", **{f"{META}logLevel": "error"})
        yield client.call("test_tool_with_logging", **{f"{META}logLevel": "loud"})
        yield client.request("logging/setLevel", {"level": "info"})
    else:
        yield client.request("logging/setLevel", {"level": "info"})
        yield client.call("test_tool_with_logging")
        yield client.request("logging/setLevel", {"level": "error"})
        yield client.call("test_tool_with_logging")
        yield client.request("logging/setLevel", {"level": "loud"})


def resources(client: Client) -> Conversation:
    """Lists, templates, texts and bytes, and missing resources."""
    yield client.request("resources/list")
    yield client.request("resources/templates/list")
    for uri in ("test://static-text", "test://static-binary", "test://template/a%20b/data", "test://empty-text"):
        yield client.request("resources/read", {"uri": uri})
    yield client.request("resources/read", {"uri": "test://missing"})
    yield client.request("resources/read", {"uri": "test://template/a/b/data"})
    yield client.request("resources/read", {"uri": "no uri"})
    yield client.request("resources/read", {})
    yield client.request("resources/list", {"cursor": "made up"})


def watching(client: Client) -> Conversation:
    """One change, reported in the form of the era, and nothing that was not requested."""
    change = client.call("test_trigger_resource_change")
    yield change
    if client.stateless:
        yield client.request(
            "subscriptions/listen",
            {
                "notifications": {
                    "resourceSubscriptions": ["test://watched-resource", "test://missing"],
                    "toolsListChanged": True,
                }
            },
        )
        listen = client.last
        yield client.call("test_trigger_resource_change")
        yield client.call("test_trigger_tool_change")
        yield client.call("test_trigger_prompt_change")
        yield client.notify("notifications/cancelled", {"requestId": listen})
        yield client.call("test_trigger_resource_change")
        yield client.request("resources/subscribe", {"uri": "test://watched-resource"})
    else:
        yield client.request("resources/subscribe", {"uri": "test://watched-resource"})
        yield client.call("test_trigger_resource_change")
        yield client.request("resources/unsubscribe", {"uri": "test://watched-resource"})
        yield client.call("test_trigger_resource_change")
        yield client.call("test_trigger_tool_change")
        yield client.request("resources/subscribe", {"uri": "test://missing"})
        yield client.request("subscriptions/listen", {"notifications": {}})


def prompts(client: Client) -> Conversation:
    """The list, every kind of content, and invalid arguments."""
    yield client.request("prompts/list")
    yield client.request("prompts/get", {"name": "test_simple_prompt"})
    both = {"arg1": "hello", "arg2": "world"}
    yield client.request("prompts/get", {"name": "test_prompt_with_arguments", "arguments": both})
    uri = {"resourceUri": "test://example"}
    yield client.request("prompts/get", {"name": "test_prompt_with_embedded_resource", "arguments": uri})
    yield client.request("prompts/get", {"name": "test_prompt_with_image"})
    yield client.request("prompts/get", {"name": "test_prompt_with_arguments", "arguments": {"arg1": "hello"}})
    yield client.request("prompts/get", {"name": "test_prompt_with_arguments", "arguments": both | {"arg2": 5}})
    yield client.request("prompts/get", {"name": "test_no_such_prompt"})
    yield client.request("prompts/list", {"cursor": "made up"})


def completion(client: Client) -> Conversation:
    """Completion of a prompt's argument and a template's variable, and invalid requests."""
    prompt = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    template = {"type": "ref/resource", "uri": "test://template/{id}/data"}

    def complete(ref: dict[str, Any], name: str, value: str, **more: Any) -> str:
        return client.request("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}} | more)

    yield complete(prompt, "arg1", "te")
    yield complete(prompt, "arg1", "te", context={"arguments": {"arg2": "x"}})
    yield complete(prompt, "arg2", "")
    yield complete(template, "id", "1")
    yield complete(prompt | {"name": "test_no_such_prompt"}, "arg1", "")
    yield complete(template | {"uri": "test://missing/{id}"}, "id", "")
    yield complete(prompt, "arg9", "")
    yield complete({"type": "ref/tool", "name": "test_simple_text"}, "arg1", "")


def cancellation(client: Client) -> Conversation:
    """A cancelled request is not answered; an unknown id is ignored."""
    slow = client.call("test_tool_with_progress")
    yield "\n".join((slow, client.notify("notifications/cancelled", {"requestId": client.last, "reason": "enough"})))
    yield client.call("test_simple_text")
    yield client.notify("notifications/cancelled", {"requestId": client.last})
    yield client.notify("notifications/cancelled", {"requestId": 999})
    yield client.notify("notifications/cancelled", {})
    slow = client.call("test_tool_with_progress")
    yield "\n".join((slow, client.notify("notifications/cancelled", {"requestId": str(client.last)})))


def batches(client: Client) -> Conversation:
    """Arrays of messages, which only 2025-03-26 accepts."""
    lines = [
        client.request("ping"),
        client.notify("notifications/cancelled", {"requestId": 999}),
        client.call("test_simple_text"),
    ]
    yield f"[{','.join(lines)}]"
    yield f"[{client.notify('notifications/cancelled', {'requestId': 999})}]"
    yield f"[{client.request('ping')},5]"
    yield f"[{client.initialize(client.revision)}]"
    yield "[]"
    yield client.request("tools/call", {"name": "test_simple_text"})


def errors(client: Client) -> Conversation:
    """Every kind of invalid message."""
    yield "{"
    yield '{"jsonrpc":"2.0","id":1e400,"method":"ping"}'
    yield '{"jsonrpc":"2.0","id":null,"method":"ping"}'
    yield '{"jsonrpc":"1.0","id":1,"method":"ping"}'
    yield '{"jsonrpc":"2.0","id":"a","method":5}'
    yield '{"jsonrpc":"2.0","id":"b"}'
    yield '{"jsonrpc":"2.0","id":"c","method":"ping","params":[]}'
    yield client.request("no/such/method")
    yield client.notify("notifications/no_such")
    yield '{"jsonrpc":"2.0","id":77,"result":{}}'
    yield client.request("resources/templates/list")[:-1] + ',"unknown":{}}'


ACCEPTED: dict[str, dict[str, Any]] = {
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "Hello there!"},
        "model": "transcript",
        "stopReason": "endTurn",
    },
    "roots/list": {"roots": [{"uri": "file:///home/user/charts", "name": "Charts"}]},
}


def accepted(**content: Any) -> dict[str, Any]:
    """Return the response of a user who accepts a form."""
    return {"action": "accept", "content": content}


def answer_input_requests(client: Client, request: Callable[..., str], *rounds: dict[str, Any]) -> Conversation:
    """Send a request, and answer its input requests round by round.

    A round has answers by the method or key of the input request, or `form` for all forms. Others are in ACCEPTED.
    """
    received = yield request()
    for forms in rounds:

        def reply(input_request: dict[str, Any], key: str, forms: dict[str, Any] = forms) -> dict[str, Any]:
            method = input_request["method"]
            found: dict[str, Any] = forms.get(method) or ACCEPTED.get(method) or forms.get(key) or forms["form"]
            return found

        if client.stateless:
            result = received[-1].get("result", {})
            if result.get("resultType") != "input_required":
                return
            answers = {key: reply(input_request, key) for key, input_request in result["inputRequests"].items()}
            state = {"requestState": result["requestState"]} if "requestState" in result else {}
            received = yield request(inputResponses=answers, **state)
        else:
            input_requests_received = [message for message in received if "method" in message and "id" in message]
            if not input_requests_received:
                return
            received = yield "\n".join(
                client.answer(input_request, reply(input_request, "form")) for input_request in input_requests_received
            )


def input_requests(client: Client) -> Conversation:
    """Input requests: sent while the client's request is pending, or returned as its result for a retry."""

    def call(name: str, **arguments: Any) -> Callable[..., str]:
        return lambda **more: client.request("tools/call", {"name": name, "arguments": arguments} | more)

    yield from answer_input_requests(client, call("test_sampling", prompt="Say hello."), {})
    use = {"type": "tool_use", "id": "use-1", "name": "add", "input": {"a": 2, "b": 3}}
    sample = ACCEPTED["sampling/createMessage"]
    uses_a_tool = {"sampling/createMessage": sample | {"content": [use], "stopReason": "toolUse"}}
    yield from answer_input_requests(client, call("test_sampling_with_tools"), uses_a_tool, {})
    yield from answer_input_requests(client, call("test_input_required_result_list_roots"), {})
    user = accepted(username="mary", email="mary@example.com")
    yield from answer_input_requests(client, call("test_elicitation", message="Who are you?"), {"form": user})
    yield from answer_input_requests(
        client, call("test_elicitation", message="Who are you?"), {"form": {"action": "decline"}}
    )
    yield from answer_input_requests(
        client, call("test_elicitation", message="Who are you?"), {"form": {"action": "cancel"}}
    )
    refused = call("test_input_required_result_elicitation")
    yield from answer_input_requests(client, refused, {"form": {"action": "decline"}})
    yield from answer_input_requests(client, refused, {"form": accepted(name=5)}, {"form": accepted(name="Mary")})
    filled = accepted(name="John Doe", age=30, score=95.5, status="active", verified=True)
    yield from answer_input_requests(client, call("test_elicitation_sep1034_defaults"), {"form": filled})
    chosen = accepted(
        untitledSingle="option1",
        titledSingle="value2",
        legacyEnum="opt3",
        untitledMulti=["option1"],
        titledMulti=["value3"],
    )
    yield from answer_input_requests(client, call("test_elicitation_sep1330_enums"), {"form": chosen})
    step1, step2 = accepted(name="Mary"), accepted(color="blue")
    yield from answer_input_requests(
        client, call("test_input_required_result_multi_round"), {"form": step1}, {"form": step2}
    )
    many = call("test_input_required_result_multiple_inputs")
    yield from answer_input_requests(client, many, {"form": accepted(name="Mary")})
    yield from answer_input_requests(client, call("test_url_elicitation"), {"form": {"action": "accept"}})
    prompt = {"name": "test_input_required_result_prompt"}
    yield from answer_input_requests(
        client, lambda **more: client.request("prompts/get", prompt | more), {"form": accepted(context="night")}
    )
    if client.stateless:
        confirm = call("test_input_required_result_tampered_state")
        received = yield confirm()
        state = received[-1]["result"]["requestState"]
        answers = {"confirm": accepted(ok=True)}
        yield confirm(inputResponses=answers, requestState=f"{state}-TAMPERED")
        yield call("test_input_required_result_multi_round")(inputResponses=answers, requestState=state)
        yield confirm(requestState=state)
        yield confirm(inputResponses={}, requestState=state)
        yield confirm(inputResponses=answers | {"other": accepted(ok=False)}, requestState=state)
        yield confirm(inputResponses=[], requestState=state)
    else:
        (input_request,) = yield call("test_sampling", prompt="Say hello.")()
        error = {"code": -1, "message": "User rejected sampling request"}
        yield json.dumps({"jsonrpc": "2.0", "id": input_request["id"], "error": error}, separators=(",", ":"))
        (input_request,) = yield call("test_sampling", prompt="Say hello.")()
        yield client.notify("notifications/cancelled", {"requestId": client.last})
        yield client.answer(input_request, ACCEPTED["sampling/createMessage"])


def undeclared_capabilities(client: Client) -> Conversation:
    """A client without capabilities gets no input requests."""
    client.capabilities = {}
    yield from client.open()
    yield client.call("test_sampling", {"prompt": "Say hello."})
    yield client.call("test_elicitation", {"message": "Who are you?"})
    yield client.call("test_url_elicitation")
    yield client.call("test_input_required_result_list_roots")
    yield client.call("test_input_required_result_multiple_inputs")
    yield client.call("test_input_required_result_capabilities")
    yield client.request("prompts/get", {"name": "test_input_required_result_prompt"})


TASKS = "io.modelcontextprotocol/tasks"


def tasks(client: Client) -> Conversation:
    """Calls that become tasks: cancelled, answered, polled, and hidden from clients without the extension."""

    def task_request(method: str, task: str, **more: Any) -> str:
        return client.request(f"tasks/{method}", {"taskId": task} | more)

    def task_id_of(received: list[Any]) -> str:
        return str(next(message["result"]["taskId"] for message in received if "result" in message))

    def slow_request() -> str:
        """Return a request that takes some time, during which the task continues."""
        return client.call("test_tool_with_progress")

    yield client.call("slow_compute", {"label": "Sum"})
    yield client.call("failing_job")
    yield task_request("get", "made-up")
    client.capabilities = client.capabilities | {"extensions": {TASKS: {}}}
    yield client.call("greet", {"name": "Mary"})
    yield client.call("slow_compute", {"seconds": "many"})
    task = task_id_of((yield client.call("slow_compute", {"seconds": 60})))
    yield task_request("get", task)
    yield task_request("cancel", task)
    yield slow_request()
    yield task_request("get", task)
    yield task_request("cancel", task)
    task = task_id_of((yield client.call("confirm_delete", {"filename": "chart.txt"})))
    yield slow_request()
    (asked,) = yield task_request("get", task)
    (key,) = asked["result"]["inputRequests"]
    yield task_request("update", task, inputResponses={"other": accepted(confirm=False)})
    yield task_request("update", task, inputResponses={key: accepted(confirm=True)})
    yield slow_request()
    yield task_request("get", task)
    yield client.request("subscriptions/listen", {"notifications": {"taskIds": [task, "made-up"]}})
    later = {"name": "test_tool_with_task"}
    (first,) = yield client.request("tools/call", later)
    again = {
        "inputResponses": {"user_name": accepted(name="Mary")},
        "requestState": first["result"]["requestState"],
    }
    yield client.request("tools/call", later | again)
    for method in ("get", "update", "cancel"):
        yield task_request(method, "made-up", **({"inputResponses": {}} if method == "update" else {}))
    yield client.request("tasks/list")
    yield task_request("result", task)


def skills(client: Client) -> Conversation:
    """Skills and their files, and directories."""
    uri = "skill://pdf-processing"
    yield client.request("skills/list")
    yield client.request("skills/get", {"uri": f"{uri}/SKILL.md"})
    yield client.request("skills/get", {"uri": "skill://missing/SKILL.md"})
    yield client.request("resources/read", {"uri": f"{uri}/templates/regional/eu-invoice.md"})
    yield client.request("resources/directory/read", {"uri": uri})
    yield client.request("resources/directory/read", {"uri": f"{uri}/templates"})
    yield client.request("resources/directory/read", {"uri": f"{uri}/SKILL.md"})
    yield client.request("resources/directory/read", {"uri": f"{uri}/missing"})
    yield client.request("skills/list", {"cursor": "made up"})


Family = Callable[[Client], Conversation]

FAMILIES_OF_ALL_REVISIONS: tuple[Family, ...] = (
    opening, ping, tools, progress, logging, resources, watching, prompts, completion, input_requests,
    undeclared_capabilities, cancellation, batches, errors,
)  # fmt: skip
FAMILIES_OF_SOME_REVISIONS: tuple[tuple[str, Family], ...] = (
    ("2024-11-05", version),
    ("2025-03-26", version),
    ("2025-06-18", version),
    ("2025-11-25", version),
    ("2025-11-25", skills),
    ("2026-07-28", skills),
    ("2026-07-28", tasks),
)

FAMILIES: dict[tuple[str, str], Family] = {
    (revision, family.__name__): family
    for revision, family in (
        *((revision, family) for revision in REVISIONS for family in FAMILIES_OF_ALL_REVISIONS),
        *FAMILIES_OF_SOME_REVISIONS,
    )
}
"""The families by revision and name."""

OPEN_SESSIONS_THEMSELVES = (opening, version, undeclared_capabilities)
"""Families that begin before the session is open."""

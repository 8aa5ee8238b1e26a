"""Requests are opened and their results sealed: the caller, errors, and the bytes in each revision."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from wharfinger import types as t
from wharfinger.errors import (
    HandlerFailed,
    InvalidParams,
    InvalidRequest,
    InvalidResponse,
    MethodNotFound,
    PermissionDenied,
    ProtocolError,
    ResourceNotFound,
    UnsupportedVersion,
    URLElicitationRequired,
    remote_error,
)
from wharfinger.protocol.handshake import Phase, Session
from wharfinger.protocol.jsonrpc import decode
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.request import (
    Base64,
    ChunkedMessage,
    InputNeeded,
    Request,
    ResultMeta,
    failure_text,
    input_needed,
    name_of_call,
    no_such_method,
    notify,
    open_request,
    open_result,
    seal_error,
    seal_result,
    to_protocol_error,
)
from wharfinger.protocol.revisions import HANDSHAKE
from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.types.resources import StoredBlob

STATELESS = "2026-07-28"
ALL = [*HANDSHAKE, STATELESS]
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
CLIENT = {"io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"}}
INFO = t.Implementation(name="s", version="2")
KIB_64 = 65_536


def session_of(revision: str, phase: Phase = Phase.OPEN) -> Session:
    session = Session()
    session.agree(
        t.InitializeRequestParams(
            protocol_version=revision,
            capabilities=t.ClientCapabilities(),
            client_info=t.Implementation(name="c", version="1"),
        )
    )
    session.phase = phase
    return session


def make_request(method: str, params: Any = None, session: Session | None = None, principal: str = "") -> Request:
    """Return the request with these params: a value, or its JSON text."""
    text = params if isinstance(params, str) else json.dumps({} if params is None else params)
    line = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{text}}}'
    return open_request(
        decode(line.encode(), Limits()), session, Principal(subject=principal) if principal else ANONYMOUS
    )


def make_request_in(revision: str, method: str, params: dict[str, Any]) -> Request:
    if revision == STATELESS:
        return make_request(method, params | {"_meta": META})
    return make_request(method, params, session_of(revision))


# --- the caller


def test_client_without_a_name_has_no_info() -> None:
    caller = make_request("tools/list", {"_meta": META}, principal="ann").caller
    assert (caller.info, caller.principal.subject, caller.rules.name) == (None, "ann", STATELESS)
    caller = make_request("tools/list", {"_meta": META | CLIENT}).caller
    assert caller.info == t.Implementation(name="c", version="1")


def test_the_error_for_a_request_without_a_version_names_the_meta_field() -> None:
    with pytest.raises(InvalidParams, match="/protocolVersion") as caught:
        make_request("tools/list")
    assert caught.value.http_status == 400


def test_the_error_for_a_request_without_capabilities_names_the_meta_field() -> None:
    with pytest.raises(InvalidParams, match="/clientCapabilities") as caught:
        make_request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": STATELESS}})
    assert caught.value.http_status == 400


@pytest.mark.parametrize(("length", "shown_length"), [(64, 64), (65, 64)])
def test_the_error_for_an_unknown_version_shows_64_characters_of_it(length: int, shown_length: int) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        make_request("tools/list", {"_meta": META | {"io.modelcontextprotocol/protocolVersion": "x" * length}})
    assert caught.value.data["requested"] == "x" * shown_length


def test_the_revision_of_a_session_is_set_by_initialize() -> None:
    session = Session(Principal(subject="ann"))
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    request = make_request("initialize", params, session)
    assert request.caller is session.caller
    assert (request.caller.rules.name, request.caller.principal.subject) == ("2025-06-18", "ann")
    assert request.session is session
    assert session.phase is Phase.OPENING


def test_only_initialize_changes_the_phase_of_a_session() -> None:
    session = session_of("2025-11-25")
    assert make_request("tools/list", None, session).caller is session.caller
    assert session.phase is Phase.OPEN
    with pytest.raises(InvalidRequest):
        make_request("tools/list", None, Session())
    with pytest.raises(InvalidRequest):
        make_request("no/such", None, Session())
    assert make_request("no/such", None, session).row is None


def test_a_stateless_request_on_a_connection_with_a_session_has_no_session() -> None:
    session = Session()
    request = make_request("tools/list", {"_meta": META}, session)
    assert request.session is None
    assert session.phase is Phase.NEW


# --- repeated members


@pytest.mark.parametrize("meta", [None, META, META | CLIENT], ids=["session", "stateless", "named client"])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", '"name":"a","name":"b"'),
        ("resources/read", '"uri":"a:b","uri":"a:c"'),
        ("prompts/get", '"name":"a","arguments":{},"name":"b"'),
        ("tasks/get", '"taskId":"a","taskId":"b"'),
    ],
)
def test_members_that_proxies_may_route_by_must_be_unique(meta: Any, method: str, params: str) -> None:
    if method == "tasks/get" and meta is None:
        pytest.skip("a method of the stateless era")
    text = "{" + params + ("" if meta is None else f',"_meta":{json.dumps(meta)}') + "}"
    with pytest.raises(InvalidRequest, match="twice") as caught:
        make_request(method, text, session_of("2025-11-25"))
    assert caught.value.id == 1


@pytest.mark.parametrize("extra", [{}, CLIENT, {"io.modelcontextprotocol/logLevel": "info"}])
def test_fields_of_meta_must_be_unique(extra: dict[str, Any]) -> None:
    meta = META | extra
    assert make_request("tools/list", {"_meta": meta}).caller.rules.name == STATELESS
    for name, value in meta.items():
        twice = f"{json.dumps(meta)[:-1]},{json.dumps(name)}:{json.dumps(value)}}}"
        with pytest.raises(InvalidRequest, match="twice") as caught:
            make_request("tools/list", f'{{"_meta":{twice}}}')
        assert caught.value.id == 1


@pytest.mark.parametrize("meta", [None, META, META | CLIENT, META | {"io.modelcontextprotocol/logLevel": "info"}])
def test_members_of_tool_arguments_may_be_repeated(meta: dict[str, Any] | None) -> None:
    """Proxies do not route by them."""
    text = '{"name":"a","arguments":{"x":1,"x":2}' + ("" if meta is None else f',"_meta":{json.dumps(meta)}') + "}"
    request = make_request("tools/call", text, session_of("2025-11-25"))
    assert request.params.name == "a"


# --- methods of other revisions

ELICIT = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("revision", ALL)
def test_method_exists_from_its_first_revision_to_its_last(revision: str) -> None:
    exists = revision in ("2025-06-18", "2025-11-25")
    assert (make_request_in(revision, "elicitation/create", ELICIT).row is not None) is exists
    bad = {"message": 5}
    if exists:
        with pytest.raises(InvalidParams):
            make_request_in(revision, "elicitation/create", bad)
    else:
        assert make_request_in(revision, "elicitation/create", bad).row is None


def test_bad_params_of_a_caller_without_a_revision_are_refused() -> None:
    for session in (None, Session(), session_of("2024-11-05", Phase.OPENING)):
        with pytest.raises(InvalidParams):
            make_request("elicitation/create", {"message": 5}, session)
    unknown = META | {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}
    with pytest.raises(InvalidParams):
        make_request("elicitation/create", {"message": 5, "_meta": unknown}, session_of("2024-11-05"))
    with pytest.raises(InvalidParams):
        make_request("elicitation/create", {"message": 5, "_meta": 7}, session_of("2024-11-05"))


def test_meta_without_a_version_does_not_change_the_revision_of_the_session() -> None:
    request = make_request(
        "elicitation/create", {"message": 5, "_meta": {"progressToken": 1}}, session_of("2024-11-05")
    )
    assert request.row is None


def test_name_of_a_notification_is_not_a_request_method() -> None:
    assert make_request("notifications/initialized", None, session_of("2025-11-25")).row is None
    assert make_request("tools/list", None, session_of("2025-11-25")).row is METHODS["tools/list"]


@pytest.mark.parametrize(
    ("params", "status", "path"),
    [({"uri": 5, "_meta": META}, 200, "params.uri"), ({"uri": "a:b", "_meta": 5}, 400, "params._meta")],
)
def test_bad_params_are_reported_with_their_path(params: dict[str, Any], status: int, path: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        make_request("resources/read", params)
    assert caught.value.http_status == status
    assert path in caught.value.message


def test_params_may_be_left_out() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', Limits())
    assert open_request(message, session_of("2025-11-25")).row is METHODS["tools/list"]


# --- error messages and the log


def test_only_errors_of_this_package_are_sent_unchanged() -> None:
    ours = ResourceNotFound("a:b")
    assert to_protocol_error(ours, "7") is ours
    for other in (RuntimeError("secret"), remote_error(-32601, "secret", None)):
        error = to_protocol_error(other, "7")
        assert type(error) is HandlerFailed
        assert "reference 7" in error.message
        assert "secret" not in error.message


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("tools/call", {"name": "x"}, "tools/call 'x'"),
        ("resources/read", {"uri": "a:b"}, "resources/read 'a:b'"),
        ("tools/list", {}, "tools/list"),
        ("no/such", {"name": "x"}, "no/such"),
    ],
)
def test_a_request_is_logged_with_the_name_of_its_tool_or_resource(
    method: str, params: dict[str, Any], expected: str
) -> None:
    assert name_of_call(make_request(method, params, session_of("2025-11-25"))) == expected


def exception_in(file: str, callee: Callable[[], Any]) -> Exception:
    """Return the exception raised by a function in `file` that calls `callee`."""
    namespace: dict[str, Any] = {}
    exec(compile("def act(callee):\n    return callee()\n", file, "exec"), namespace)
    with pytest.raises(Exception) as caught:  # whatever `callee` raises
        namespace["act"](callee)
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without this file
    return error


def test_the_log_names_the_last_line_outside_of_libraries() -> None:
    at = " at /srv/harbour.py:2, in act"
    for callee in (lambda: json.loads("{"), lambda: UriTemplate("{")):  # fails in a library
        error = exception_in("/srv/harbour.py", callee)
        tail = error.__traceback__.tb_next  # type: ignore[union-attr]
        error.__traceback__.tb_next = tail.tb_next  # type: ignore[union-attr]  # without the lambda
        message = failure_text("tools/call 'x'", error)
        assert message.startswith(f"tools/call 'x' failed{at}: ")
        assert message.endswith(str(error).splitlines()[-1])


@pytest.mark.parametrize("file", ["/usr/lib/site-packages/other/x.py", "<frozen importlib>"])
def test_the_log_names_no_line_of_a_library(file: str) -> None:
    error = exception_in(file, lambda: 1 / 0)
    error.__traceback__.tb_next = None  # type: ignore[union-attr]
    assert failure_text("x", error, "7") == "x failed: ZeroDivisionError: division by zero (reference 7)"


def test_the_log_names_the_line_of_the_cause_if_the_error_has_no_traceback() -> None:
    error = RuntimeError("outer")
    error.__cause__ = exception_in("/srv/harbour.py", [].pop)
    assert failure_text("x", error) == "x failed at /srv/harbour.py:2, in act: RuntimeError: outer"
    error.__traceback__ = exception_in("/srv/quay.py", [].pop).__traceback__
    assert failure_text("x", error) == "x failed at /srv/quay.py:2, in act: RuntimeError: outer"


def test_input_needed_is_found_inside_an_exception_group() -> None:
    needed = InputNeeded("ask")
    assert input_needed(needed) is needed
    assert input_needed(BaseExceptionGroup("g", [ValueError(), BaseExceptionGroup("h", [needed])])) is needed
    assert input_needed(BaseExceptionGroup("g", [ValueError(), KeyboardInterrupt()])) is None
    assert input_needed(ValueError()) is None
    assert (needed.result, str(needed)) == ("ask", "The request has to be sent again with answers.")
    assert not isinstance(needed, Exception)


def test_the_error_for_an_unknown_method_shows_64_characters_of_it() -> None:
    request = make_request("x" * 65, {"_meta": META})
    error = no_such_method(request)
    assert type(error) is MethodNotFound
    assert error.message == f"This server has no method {'x' * 64!r} in {STATELESS}."


def test_a_notification_is_sent_on_the_channel_of_its_request() -> None:
    class RecordingChannel:
        multiplexed = False
        has_room = True

        def send(self, request: Request, message: bytes) -> bool:
            sent.append((request, json.loads(message)))
            return self.has_room

    sent: list[Any] = []
    request = make_request("tools/list", {"_meta": META})
    channel: Any = RecordingChannel()
    request.channel = channel
    assert notify(request, "a/b", {"c": 1})
    channel.has_room = False
    assert not notify(request, "a/b", {"c": 1})
    assert sent == [(request, {"jsonrpc": "2.0", "method": "a/b", "params": {"c": 1}})] * 2


# --- sealing


def to_bytes(data: bytes | ChunkedMessage) -> bytes:
    return b"".join(data) if isinstance(data, ChunkedMessage) else data


def sealed_result(request: Request, result: Any) -> Any:
    data = to_bytes(seal_result(request, result, ResultMeta(INFO)))
    answer = json.loads(data)
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    return answer["result"]


def test_a_result_of_none_raises_a_type_error() -> None:
    with pytest.raises(TypeError, match="return await next"):
        seal_result(make_request("tools/list", {"_meta": META}), None, ResultMeta(INFO))


def test_encoded_caching_hints_are_cached_for_at_most_1024_lifetimes() -> None:
    result_meta = ResultMeta(INFO)
    request = make_request("resources/read", {"uri": "a:b", "_meta": META})
    for ttl in range(1025):
        request.ttl_ms = ttl
        answer = json.loads(to_bytes(seal_result(request, t.ReadResourceResult(contents=[]), result_meta)))
        assert answer["result"]["ttlMs"] == ttl
    assert [ttl for _, ttl, _ in result_meta.openings] == list(range(1024))


def test_encoded_caching_hints_are_not_cached_for_a_result_with_its_own_meta_or_type() -> None:
    result_meta = ResultMeta(INFO)
    request = make_request("tools/call", {"name": "x", "_meta": META})
    for result in (
        t.CallToolResult(content=[], meta={"mine": 1}),
        t.CallToolResult(content=[], result_type="complete"),
    ):
        seal_result(request, result, result_meta)
        assert result_meta.openings == {}
    seal_result(request, t.CallToolResult(content=[]), result_meta)
    assert len(result_meta.openings) == 1


def test_input_required_result_is_not_complete_and_not_cached() -> None:
    """2026-07-28, caching."""
    request = make_request("resources/read", {"uri": "a:b", "_meta": META})
    result = sealed_result(request, t.ReadResourceResult(contents=[], result_type="input_required"))
    assert result["resultType"] == "input_required"
    assert "ttlMs" not in result
    assert "cacheScope" not in result


def test_results_of_unknown_methods_have_no_caching_hints() -> None:
    request = make_request("x/y", {"_meta": META})
    assert request.row is None
    assert set(sealed_result(request, {"a": 1})) == {"resultType", "_meta", "a"}


def test_empty_result_is_an_object_in_every_revision() -> None:
    assert sealed_result(make_request("tools/list", None, session_of("2025-11-25")), t.EmptyResult()) == {}
    assert set(sealed_result(make_request("tools/list", {"_meta": META}), t.EmptyResult())) >= {"resultType", "_meta"}
    assert sealed_result(make_request("tools/list", {"_meta": META}), Raw(b'{"a":1}'))["a"] == 1


class Point(t.EmptyResult):
    x: int = 0


@pytest.mark.parametrize(
    ("structured", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ([1], {"result": [1]}),
        (None, {"result": None}),
        ("x", {"result": "x"}),
        (Raw(b'{"a":1}'), {"a": 1}),
        (Raw(b"[1]"), {"result": [1]}),
        (Point(x=3), {"x": 3}),
    ],
)
@pytest.mark.parametrize("revision", ALL)
def test_structured_content_is_an_object_if_the_revision_requires_it(
    structured: Any, expected: dict[str, Any], revision: str
) -> None:
    request = make_request_in(revision, "tools/call", {"name": "x"})
    content = sealed_result(request, t.CallToolResult(content=[], structured_content=structured))["structuredContent"]
    assert content == (expected["result"] if revision == STATELESS and "result" in expected else expected)
    request.wraps = True
    content = sealed_result(request, t.CallToolResult(content=[], structured_content=structured))["structuredContent"]
    if revision == STATELESS:
        assert content == expected.get("result", expected)
    else:
        assert content == (expected if "result" in expected else {"result": expected})


def test_a_result_without_structured_content_is_not_wrapped() -> None:
    request = make_request_in("2025-11-25", "tools/call", {"name": "x"})
    request.wraps = True
    assert sealed_result(request, t.CallToolResult(content=[])) == {"content": []}


@pytest.mark.parametrize("revision", ALL)
def test_blocks_that_a_revision_does_not_know_are_sealed_as_text(revision: str) -> None:
    result = t.CallToolResult(content=[t.ResourceLink(uri="a:b", name="b")])
    (block,) = sealed_result(make_request_in(revision, "tools/call", {"name": "x"}), result)["content"]
    assert block["type"] == ("text" if revision in ("2024-11-05", "2025-03-26") else "resource_link")


@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
def test_a_body_of_64_kib_is_sent_in_pieces(revision: str) -> None:
    request = make_request_in(revision, "resources/read", {"uri": "a:b"})
    for size in (KIB_64 - 1, KIB_64, KIB_64 + 1):
        body = Raw(b'{"a":"%b"}' % (b"x" * (size - 8)))
        assert len(bytes(body)) == size
        data = seal_result(request, body, ResultMeta(INFO))
        assert isinstance(data, ChunkedMessage) is (size >= KIB_64)
        assert len(json.loads(to_bytes(data))["result"]["a"]) == size - 8
        assert len(to_bytes(data)) == len(data)


@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
@pytest.mark.parametrize("size", [KIB_64 - 1, KIB_64])
def test_a_blob_of_64_kib_is_encoded_while_it_is_sent(revision: str, size: int) -> None:
    request = make_request_in(revision, "resources/read", {"uri": "a:b"})
    contents = [
        t.ResourceContents(uri="a:0", text="first"),
        t.ResourceContents(uri="a:1", blob=b"small"),
        t.ResourceContents(uri="a:2", blob=b"x" * size),
        t.ResourceContents(uri="a:3", text="last"),
    ]
    data = seal_result(request, t.ReadResourceResult(contents=contents, meta={"m": 1}), ResultMeta(INFO))
    assert isinstance(data, ChunkedMessage)
    assert any(isinstance(part, Base64) for part in data.parts) is (size >= KIB_64)
    result = json.loads(to_bytes(data))["result"]
    assert [content["uri"] for content in result["contents"]] == ["a:0", "a:1", "a:2", "a:3"]
    assert base64.b64decode(result["contents"][1]["blob"]) == b"small"
    assert result["_meta"]["m"] == 1
    plain = seal_result(request, t.ReadResourceResult(contents=contents[2:]), ResultMeta(INFO))
    assert ("_meta" in json.loads(to_bytes(plain))["result"]) is (revision == STATELESS)


# --- base64


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 196_607, 196_608, 196_609, 393_216])
def test_base64_in_pieces_equals_base64_of_the_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    parts = list(Base64(data))
    assert b"".join(parts) == base64.b64encode(data)
    assert len(Base64(data)) == len(base64.b64encode(data))
    assert len(parts) == -(-size // 196_608)


class RecordingContent:
    """Stored bytes that record each read."""

    def __init__(self, size: int, readable: int | None = None) -> None:
        self.size = size
        self.readable = size if readable is None else readable
        self.reads: list[tuple[int, int]] = []
        self.files: list[weakref.ref[Any]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        file = type("File", (), {})()
        self.files.append(weakref.ref(file))
        if offset + length > self.readable:
            raise OSError("gone")
        return b"y" * length


def test_stored_bytes_are_read_768_kib_at_a_time() -> None:
    content = RecordingContent(786_433)
    blob = Base64(StoredBlob(content))
    assert b"".join(blob) == base64.b64encode(b"y" * 786_433)
    assert content.reads == [(0, 786_432), (786_432, 1)]
    assert len(blob) == len(base64.b64encode(b"y" * 786_433))


@pytest.mark.parametrize("in_thread", [True, False])
def test_stored_bytes_are_read_in_a_thread_if_possible(in_thread: bool) -> None:
    content, calls = RecordingContent(786_433), []
    stored = StoredBlob(content)

    async def run_in_thread(function: Any, *arguments: Any) -> Any:
        calls.append(function)
        return function(*arguments)

    async def collect() -> bytes:
        message = ChunkedMessage((b"<", Base64(stored), Base64(b"z"), memoryview(b">")))
        return b"".join([bytes(piece) async for piece in message])

    stored.run = run_in_thread if in_thread else None
    expected = b"<" + base64.b64encode(b"y" * 786_433) + base64.b64encode(b"z") + b">"
    assert asyncio.run(collect()) == expected
    assert len(calls) == (3 if in_thread else 0)


def test_a_failed_read_keeps_no_reference_to_the_file() -> None:
    content = RecordingContent(786_433, readable=786_432)

    async def collect() -> OSError | None:
        try:
            async for _ in Base64(StoredBlob(content)).read():
                pass
        except OSError as error:
            return error
        return None

    error = asyncio.run(collect())
    assert error is not None
    gc.collect()
    assert [file() for file in content.files] == [None, None]


def test_the_memory_of_a_chunked_message_excludes_stored_bytes() -> None:
    pieces = ChunkedMessage((b"abc", Base64(b"defghi"), Base64(StoredBlob(RecordingContent(3000)))))
    assert (len(pieces), pieces.memory) == (3 + 8 + 4000, 3 + 8)


# --- errors


def error_response(request: Request, error: ProtocolError) -> dict[str, Any]:
    data = to_bytes(seal_error(request, error, ResultMeta(INFO)))
    response: dict[str, Any] = json.loads(data)
    assert response["id"] == 1
    return response


@pytest.mark.parametrize("revision", ALL)
def test_the_error_for_a_required_url_elicitation_has_the_form_of_the_revision(revision: str) -> None:
    error = URLElicitationRequired("Sign in", "https://a.test/x", elicitation_id="7")
    response = error_response(make_request_in(revision, "tools/call", {"name": "x"}), error)["error"]
    if revision == "2025-11-25":
        assert response["code"] == -32042
    else:
        assert response["code"] == -32603
        assert "Sign in" in response["message"]
        assert "https://a.test/x" in response["message"]


def test_only_the_failure_of_a_tool_is_a_result() -> None:
    """A host shows a result to the model, but stops its agent at an error."""
    failed = HandlerFailed("It failed.")
    result = error_response(make_request_in("2025-11-25", "tools/call", {"name": "x"}), failed)["result"]
    assert (result["isError"], result["content"]) == (True, [{"type": "text", "text": "It failed."}])
    assert (
        error_response(make_request_in("2025-11-25", "prompts/get", {"name": "x"}), failed)["error"]["code"] == -32603
    )
    assert (
        error_response(make_request_in("2025-11-25", "tools/call", {"name": "x"}), InvalidParams("no"))["error"]["code"]
        == -32602
    )


def test_only_a_forbidden_resource_gets_the_error_of_a_missing_one() -> None:
    """Security: U02."""
    denied = PermissionDenied("not you")
    read = make_request_in("2025-11-25", "resources/read", {"uri": "a:b"})
    assert error_response(read, denied) == error_response(read, ResourceNotFound("a:b"))
    for request in (
        make_request_in("2025-11-25", "tools/call", {"name": "x"}),
        make_request_in("2025-11-25", "x/y", {}),
    ):
        assert error_response(request, denied)["error"]["message"] == "not you"


# --- results on the client's side


def test_a_result_of_an_unknown_type_or_shape_is_invalid() -> None:
    row = METHODS["tools/call"]
    assert open_result(row, b'{"content":[]}').content == []
    assert open_result(row, Raw(b'{"content":[],"resultType":"complete"}')).content == []
    for raw in (b'{"content":[],"resultType":"later"}', b'{"content":5}', b"[]", b'{"content":[],"resultType":""}'):
        with pytest.raises(InvalidResponse, match="tools/call"):
            open_result(row, raw)

"""One request is opened and its answer sealed: the caller, refusals, and the bytes of each revision."""

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


def opened(method: str, params: Any = None, session: Session | None = None, principal: str = "") -> Request:
    """Return the request of these params, given as a value or as their text."""
    text = params if isinstance(params, str) else json.dumps({} if params is None else params)
    line = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{text}}}'
    return open_request(
        decode(line.encode(), Limits()), session, Principal(subject=principal) if principal else ANONYMOUS
    )


def opened_in(revision: str, method: str, params: dict[str, Any]) -> Request:
    if revision == STATELESS:
        return opened(method, params | {"_meta": META})
    return opened(method, params, session_of(revision))


# --- who calls


def test_client_without_a_name_has_no_info() -> None:
    caller = opened("tools/list", {"_meta": META}, principal="ann").caller
    assert (caller.info, caller.principal.subject, caller.rules.name) == (None, "ann", STATELESS)
    caller = opened("tools/list", {"_meta": META | CLIENT}).caller
    assert caller.info == t.Implementation(name="c", version="1")


def test_refusal_of_a_request_without_session_and_version_says_what_to_send() -> None:
    with pytest.raises(InvalidParams, match="/protocolVersion") as caught:
        opened("tools/list")
    assert caught.value.http_status == 400


def test_refusal_of_a_request_without_capabilities_says_what_to_send() -> None:
    with pytest.raises(InvalidParams, match="/clientCapabilities") as caught:
        opened("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": STATELESS}})
    assert caught.value.http_status == 400


@pytest.mark.parametrize(("length", "shown"), [(64, 64), (65, 64)])
def test_unknown_version_is_repeated_up_to_64_characters(length: int, shown: int) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        opened("tools/list", {"_meta": META | {"io.modelcontextprotocol/protocolVersion": "x" * length}})
    assert caught.value.data["requested"] == "x" * shown


def test_the_revision_of_a_session_is_set_by_initialize() -> None:
    session = Session(Principal(subject="ann"))
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    request = opened("initialize", params, session)
    assert request.caller is session.caller
    assert (request.caller.rules.name, request.caller.principal.subject) == ("2025-06-18", "ann")
    assert request.session is session
    assert session.phase is Phase.OPENING


def test_only_initialize_changes_the_phase_of_a_session() -> None:
    session = session_of("2025-11-25")
    assert opened("tools/list", None, session).caller is session.caller
    assert session.phase is Phase.OPEN
    with pytest.raises(InvalidRequest):
        opened("tools/list", None, Session())
    with pytest.raises(InvalidRequest):
        opened("no/such", None, Session())
    assert opened("no/such", None, session).row is None


def test_stateless_request_on_a_connection_with_a_session_belongs_to_none() -> None:
    session = Session()
    request = opened("tools/list", {"_meta": META}, session)
    assert request.session is None
    assert session.phase is Phase.NEW


# --- members that stand twice


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
    whole = "{" + params + ("" if meta is None else f',"_meta":{json.dumps(meta)}') + "}"
    with pytest.raises(InvalidRequest, match="twice") as caught:
        opened(method, whole, session_of("2025-11-25"))
    assert caught.value.id == 1


@pytest.mark.parametrize("extra", [{}, CLIENT, {"io.modelcontextprotocol/logLevel": "info"}])
def test_fields_of_meta_must_be_unique(extra: dict[str, Any]) -> None:
    meta = META | extra
    assert opened("tools/list", {"_meta": meta}).caller.rules.name == STATELESS
    for name, value in meta.items():
        twice = f"{json.dumps(meta)[:-1]},{json.dumps(name)}:{json.dumps(value)}}}"
        with pytest.raises(InvalidRequest, match="twice") as caught:
            opened("tools/list", f'{{"_meta":{twice}}}')
        assert caught.value.id == 1


@pytest.mark.parametrize("meta", [None, META, META | CLIENT, META | {"io.modelcontextprotocol/logLevel": "info"}])
def test_members_of_tool_arguments_may_be_repeated(meta: dict[str, Any] | None) -> None:
    """Proxies do not route by them."""
    whole = '{"name":"a","arguments":{"x":1,"x":2}' + ("" if meta is None else f',"_meta":{json.dumps(meta)}') + "}"
    request = opened("tools/call", whole, session_of("2025-11-25"))
    assert request.params.name == "a"


# --- methods of other revisions

ELICIT = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("revision", ALL)
def test_method_exists_from_its_first_revision_to_its_last(revision: str) -> None:
    exists = revision in ("2025-06-18", "2025-11-25")
    assert (opened_in(revision, "elicitation/create", ELICIT).row is not None) is exists
    bad = {"message": 5}
    if exists:
        with pytest.raises(InvalidParams):
            opened_in(revision, "elicitation/create", bad)
    else:
        assert opened_in(revision, "elicitation/create", bad).row is None


def test_bad_params_of_a_caller_without_a_revision_are_refused() -> None:
    for session in (None, Session(), session_of("2024-11-05", Phase.OPENING)):
        with pytest.raises(InvalidParams):
            opened("elicitation/create", {"message": 5}, session)
    unknown = META | {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}
    with pytest.raises(InvalidParams):
        opened("elicitation/create", {"message": 5, "_meta": unknown}, session_of("2024-11-05"))
    with pytest.raises(InvalidParams):
        opened("elicitation/create", {"message": 5, "_meta": 7}, session_of("2024-11-05"))


def test_meta_without_a_version_leaves_the_revision_of_the_session() -> None:
    request = opened("elicitation/create", {"message": 5, "_meta": {"progressToken": 1}}, session_of("2024-11-05"))
    assert request.row is None


def test_name_of_a_notification_is_not_a_request_method() -> None:
    assert opened("notifications/initialized", None, session_of("2025-11-25")).row is None
    assert opened("tools/list", None, session_of("2025-11-25")).row is METHODS["tools/list"]


@pytest.mark.parametrize(
    ("params", "status", "place"),
    [({"uri": 5, "_meta": META}, 200, "params.uri"), ({"uri": "a:b", "_meta": 5}, 400, "params._meta")],
)
def test_bad_params_are_reported_with_their_path(params: dict[str, Any], status: int, place: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        opened("resources/read", params)
    assert caught.value.http_status == status
    assert place in caught.value.message


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
def test_a_request_is_logged_with_the_name_that_it_calls(method: str, params: dict[str, Any], expected: str) -> None:
    assert name_of_call(opened(method, params, session_of("2025-11-25"))) == expected


def failing(file: str, inside: Callable[[], Any]) -> Exception:
    """What is raised where a function in `file` calls another one, or fails itself."""
    place: dict[str, Any] = {}
    exec(compile("def act(inside):\n    return inside()\n", file, "exec"), place)
    with pytest.raises(Exception) as caught:  # whatever `inside` raises
        place["act"](inside)
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without this file
    return error


def test_log_names_the_last_line_of_the_authors_code() -> None:
    at = " at /srv/harbour.py:2, in act"
    for inside in (lambda: json.loads("{"), lambda: UriTemplate("{")):  # fails inside a library
        error = failing("/srv/harbour.py", inside)
        tail = error.__traceback__.tb_next  # type: ignore[union-attr]
        error.__traceback__.tb_next = tail.tb_next  # type: ignore[union-attr]  # without the lambda
        words = failure_text("tools/call 'x'", error)
        assert words.startswith(f"tools/call 'x' failed{at}: ")
        assert words.endswith(str(error).splitlines()[-1])


@pytest.mark.parametrize("file", ["/usr/lib/site-packages/other/x.py", "<frozen importlib>"])
def test_log_names_no_line_of_a_library(file: str) -> None:
    error = failing(file, lambda: 1 / 0)
    error.__traceback__.tb_next = None  # type: ignore[union-attr]
    assert failure_text("x", error, "7") == "x failed: ZeroDivisionError: division by zero (reference 7)"


def test_log_names_the_line_of_the_cause_if_the_error_has_none() -> None:
    error = RuntimeError("outer")
    error.__cause__ = failing("/srv/harbour.py", [].pop)
    assert failure_text("x", error) == "x failed at /srv/harbour.py:2, in act: RuntimeError: outer"
    error.__traceback__ = failing("/srv/quay.py", [].pop).__traceback__
    assert failure_text("x", error) == "x failed at /srv/quay.py:2, in act: RuntimeError: outer"


def test_a_stop_inside_an_exception_group_is_found() -> None:
    stop = InputNeeded("ask")
    assert input_needed(stop) is stop
    assert input_needed(BaseExceptionGroup("g", [ValueError(), BaseExceptionGroup("h", [stop])])) is stop
    assert input_needed(BaseExceptionGroup("g", [ValueError(), KeyboardInterrupt()])) is None
    assert input_needed(ValueError()) is None
    assert (stop.result, str(stop)) == ("ask", "The request has to be sent again with answers.")
    assert not isinstance(stop, Exception)


def test_refusal_of_a_method_shows_64_characters_of_it() -> None:
    request = opened("x" * 65, {"_meta": META})
    error = no_such_method(request)
    assert type(error) is MethodNotFound
    assert error.message == f"This server has no method {'x' * 64!r} in {STATELESS}."


def test_a_notification_is_sent_on_the_channel_of_its_request() -> None:
    class Kept:
        multiplexed = False
        room = True

        def send(self, request: Request, message: bytes) -> bool:
            sent.append((request, json.loads(message)))
            return self.room

    sent: list[Any] = []
    request = opened("tools/list", {"_meta": META})
    channel: Any = Kept()
    request.channel = channel
    assert notify(request, "a/b", {"c": 1})
    channel.room = False
    assert not notify(request, "a/b", {"c": 1})
    assert sent == [(request, {"jsonrpc": "2.0", "method": "a/b", "params": {"c": 1}})] * 2


# --- sealing


def joined(data: bytes | ChunkedMessage) -> bytes:
    return b"".join(data) if isinstance(data, ChunkedMessage) else data


def sealed(request: Request, result: Any) -> Any:
    data = joined(seal_result(request, result, ResultMeta(INFO)))
    answer = json.loads(data)
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    return answer["result"]


def test_none_is_not_a_result() -> None:
    with pytest.raises(TypeError, match="return await next"):
        seal_result(opened("tools/list", {"_meta": META}), None, ResultMeta(INFO))


def test_encoded_caching_hints_are_cached_for_1024_lifetimes() -> None:
    result_meta = ResultMeta(INFO)
    request = opened("resources/read", {"uri": "a:b", "_meta": META})
    for ttl in range(1025):
        request.ttl_ms = ttl
        answer = json.loads(joined(seal_result(request, t.ReadResourceResult(contents=[]), result_meta)))
        assert answer["result"]["ttlMs"] == ttl
    assert [ttl for _, ttl, _ in result_meta.openings] == list(range(1024))


def test_encoded_caching_hints_of_a_single_result_are_not_cached() -> None:
    result_meta = ResultMeta(INFO)
    request = opened("tools/call", {"name": "x", "_meta": META})
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
    request = opened("resources/read", {"uri": "a:b", "_meta": META})
    result = sealed(request, t.ReadResourceResult(contents=[], result_type="input_required"))
    assert result["resultType"] == "input_required"
    assert "ttlMs" not in result
    assert "cacheScope" not in result


def test_results_of_unknown_methods_have_no_caching_hints() -> None:
    request = opened("x/y", {"_meta": META})
    assert request.row is None
    assert set(sealed(request, {"a": 1})) == {"resultType", "_meta", "a"}


def test_empty_result_is_an_object_in_every_revision() -> None:
    assert sealed(opened("tools/list", None, session_of("2025-11-25")), t.EmptyResult()) == {}
    assert set(sealed(opened("tools/list", {"_meta": META}), t.EmptyResult())) >= {"resultType", "_meta"}
    assert sealed(opened("tools/list", {"_meta": META}), Raw(b'{"a":1}'))["a"] == 1


class Point(t.EmptyResult):
    x: int = 0


@pytest.mark.parametrize(
    ("structured", "shown"),
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
    structured: Any, shown: dict[str, Any], revision: str
) -> None:
    request = opened_in(revision, "tools/call", {"name": "x"})
    found = sealed(request, t.CallToolResult(content=[], structured_content=structured))["structuredContent"]
    assert found == (shown["result"] if revision == STATELESS and "result" in shown else shown)
    request.wraps = True
    found = sealed(request, t.CallToolResult(content=[], structured_content=structured))["structuredContent"]
    if revision == STATELESS:
        assert found == shown.get("result", shown)
    else:
        assert found == (shown if "result" in shown else {"result": shown})


def test_result_without_structured_content_gets_none() -> None:
    request = opened_in("2025-11-25", "tools/call", {"name": "x"})
    request.wraps = True
    assert sealed(request, t.CallToolResult(content=[])) == {"content": []}


@pytest.mark.parametrize("revision", ALL)
def test_blocks_that_a_revision_does_not_know_are_sealed_as_text(revision: str) -> None:
    result = t.CallToolResult(content=[t.ResourceLink(uri="a:b", name="b")])
    (block,) = sealed(opened_in(revision, "tools/call", {"name": "x"}), result)["content"]
    assert block["type"] == ("text" if revision in ("2024-11-05", "2025-03-26") else "resource_link")


@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
def test_a_body_of_64_kib_is_sent_in_pieces(revision: str) -> None:
    request = opened_in(revision, "resources/read", {"uri": "a:b"})
    for size in (KIB_64 - 1, KIB_64, KIB_64 + 1):
        body = Raw(b'{"a":"%b"}' % (b"x" * (size - 8)))
        assert len(bytes(body)) == size
        data = seal_result(request, body, ResultMeta(INFO))
        assert isinstance(data, ChunkedMessage) is (size >= KIB_64)
        assert len(json.loads(joined(data))["result"]["a"]) == size - 8
        assert len(joined(data)) == len(data)


@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
@pytest.mark.parametrize("size", [KIB_64 - 1, KIB_64])
def test_a_blob_of_64_kib_is_encoded_while_it_is_sent(revision: str, size: int) -> None:
    request = opened_in(revision, "resources/read", {"uri": "a:b"})
    contents = [
        t.ResourceContents(uri="a:0", text="first"),
        t.ResourceContents(uri="a:1", blob=b"small"),
        t.ResourceContents(uri="a:2", blob=b"x" * size),
        t.ResourceContents(uri="a:3", text="last"),
    ]
    data = seal_result(request, t.ReadResourceResult(contents=contents, meta={"m": 1}), ResultMeta(INFO))
    assert isinstance(data, ChunkedMessage)
    assert any(isinstance(part, Base64) for part in data.parts) is (size >= KIB_64)
    result = json.loads(joined(data))["result"]
    assert [content["uri"] for content in result["contents"]] == ["a:0", "a:1", "a:2", "a:3"]
    assert base64.b64decode(result["contents"][1]["blob"]) == b"small"
    assert result["_meta"]["m"] == 1
    plain = seal_result(request, t.ReadResourceResult(contents=contents[2:]), ResultMeta(INFO))
    assert ("_meta" in json.loads(joined(plain))["result"]) is (revision == STATELESS)


# --- base64


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 196_607, 196_608, 196_609, 393_216])
def test_base64_of_parts_is_that_of_the_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    parts = list(Base64(data))
    assert b"".join(parts) == base64.b64encode(data)
    assert len(Base64(data)) == len(base64.b64encode(data))
    assert len(parts) == -(-size // 196_608)


class Content:
    """Stored bytes that record how they are read."""

    def __init__(self, size: int, real: int | None = None) -> None:
        self.size = size
        self.real = size if real is None else real
        self.reads: list[tuple[int, int]] = []
        self.used: list[weakref.ref[Any]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        opened = type("File", (), {})()
        self.used.append(weakref.ref(opened))
        if offset + length > self.real:
            raise OSError("gone")
        return b"y" * length


def test_stored_bytes_are_read_768_kib_at_a_time() -> None:
    content = Content(786_433)
    blob = Base64(StoredBlob(content))
    assert b"".join(blob) == base64.b64encode(b"y" * 786_433)
    assert content.reads == [(0, 786_432), (786_432, 1)]
    assert len(blob) == len(base64.b64encode(b"y" * 786_433))


@pytest.mark.parametrize("run", [True, False])
def test_stored_bytes_are_read_in_a_thread_if_possible(run: bool) -> None:
    content, ran = Content(786_433), []
    stored = StoredBlob(content)

    async def elsewhere(function: Any, *arguments: Any) -> Any:
        ran.append(function)
        return function(*arguments)

    async def collect() -> bytes:
        whole = ChunkedMessage((b"<", Base64(stored), Base64(b"z"), memoryview(b">")))
        return b"".join([bytes(piece) async for piece in whole])

    stored.run = elsewhere if run else None
    expected = b"<" + base64.b64encode(b"y" * 786_433) + base64.b64encode(b"z") + b">"
    assert asyncio.run(collect()) == expected
    assert len(ran) == (3 if run else 0)


def test_failed_reading_leaves_nothing_open() -> None:
    content = Content(786_433, real=786_432)

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
    assert [used() for used in content.used] == [None, None]


def test_the_size_of_pieces_excludes_stored_bytes() -> None:
    pieces = ChunkedMessage((b"abc", Base64(b"defghi"), Base64(StoredBlob(Content(3000)))))
    assert (len(pieces), pieces.memory) == (3 + 8 + 4000, 3 + 8)


# --- errors


def error_of(request: Request, error: ProtocolError) -> dict[str, Any]:
    data = joined(seal_error(request, error, ResultMeta(INFO)))
    found: dict[str, Any] = json.loads(data)
    assert found["id"] == 1
    return found


@pytest.mark.parametrize("revision", ALL)
def test_a_required_url_elicitation_has_the_form_of_the_revision(revision: str) -> None:
    error = URLElicitationRequired("Sign in", "https://a.test/x", elicitation_id="7")
    found = error_of(opened_in(revision, "tools/call", {"name": "x"}), error)["error"]
    if revision == "2025-11-25":
        assert found["code"] == -32042
    else:
        assert found["code"] == -32603
        assert "Sign in" in found["message"]
        assert "https://a.test/x" in found["message"]


def test_only_failures_of_tools_are_results() -> None:
    """A host stops the run of its agent at an error, and shows a result to the model."""
    failed = HandlerFailed("It failed.")
    found = error_of(opened_in("2025-11-25", "tools/call", {"name": "x"}), failed)["result"]
    assert (found["isError"], found["content"]) == (True, [{"type": "text", "text": "It failed."}])
    assert error_of(opened_in("2025-11-25", "prompts/get", {"name": "x"}), failed)["error"]["code"] == -32603
    assert (
        error_of(opened_in("2025-11-25", "tools/call", {"name": "x"}), InvalidParams("no"))["error"]["code"] == -32602
    )


def test_only_a_resource_that_is_forbidden_looks_like_one_that_is_missing() -> None:
    """Security: U02."""
    denied = PermissionDenied("not you")
    read = opened_in("2025-11-25", "resources/read", {"uri": "a:b"})
    assert error_of(read, denied) == error_of(read, ResourceNotFound("a:b"))
    for request in (opened_in("2025-11-25", "tools/call", {"name": "x"}), opened_in("2025-11-25", "x/y", {})):
        assert error_of(request, denied)["error"]["message"] == "not you"


# --- results on the client's side


def test_result_of_a_known_kind_is_opened() -> None:
    row = METHODS["tools/call"]
    assert open_result(row, b'{"content":[]}').content == []
    assert open_result(row, Raw(b'{"content":[],"resultType":"complete"}')).content == []
    for raw in (b'{"content":[],"resultType":"later"}', b'{"content":5}', b"[]", b'{"content":[],"resultType":""}'):
        with pytest.raises(InvalidResponse, match="tools/call"):
            open_result(row, raw)

"""A client's and a server's peer joined by two queues: in any order of events, no response is lost."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.conftest import examples
from wharfinger import types as t
from wharfinger.errors import InvalidParams
from wharfinger.protocol.client_peer import ClientPeer
from wharfinger.protocol.events import Cancellation, Malformed, NotAMessage, Notification, Reply, Response
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import encode_notification
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import Request, ResultMeta
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.protocol.server_peer import ServerPeer

LIMITS = Limits()
INFO = t.Implementation(name="x", version="1")
STATELESS = t.RequestMeta(protocol_version="2026-07-28", client_info=INFO, client_capabilities=t.ClientCapabilities())

UNEXPECTED = st.sampled_from(
    [b"INFO hello", b"\xff", b"[]", b"{}", b'{"jsonrpc":"2.0","id":"1","result":{}}', b'{"jsonrpc":"2.0","result":{}}']
)


class JoinedPeers(RuleBasedStateMachine):
    """The two peers, the two queues between them, and their invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(send_notification=lambda message: True)
        self.client: ClientPeer[str] = ClientPeer(LIMITS)
        self.server = ServerPeer(self.session, ResultMeta(INFO), LIMITS)
        self.to_server: deque[bytes] = deque()
        self.to_client: deque[bytes] = deque()
        self.sent_to_client: list[bytes] = []
        self.meta: Any = t.UNSET
        self.request_count = 0
        # For each request, by its name, which its URI and its response contain:
        self.ids: dict[str, int] = {}
        self.waiting: set[str] = set()
        self.cancelled_by_client: set[str] = set()
        self.answers: dict[str, str] = {}
        # The server's side:
        self.serving: dict[str, Request] = {}
        self.cancelled: set[str] = set()
        self.answered: set[str] = set()
        self.server_requests: set[str] = set()

    @initialize(revision=st.sampled_from(sorted(REVISIONS)))
    def agree_on_a_revision(self, revision: str) -> None:
        """Run the handshake, unless the revision is stateless."""
        rules = REVISIONS[revision]
        if rules.era == "stateless":
            self.meta = STATELESS
        else:
            params = t.InitializeRequestParams(
                protocol_version=revision, capabilities=t.ClientCapabilities(), client_info=INFO
            )
            _, data = self.client.request("initialize", params, "initialize")
            request = self.server.receive(data)
            assert type(request) is Request
            result = t.InitializeResult(
                protocol_version=revision, capabilities=t.ServerCapabilities(), server_info=INFO
            )
            (event,) = self.client.receive(self.response_to(request, result))
            assert type(event) is Response
            self.server.receive(encode_notification("notifications/initialized"))
        self.client.rules = rules

    def response_to(self, request: Request, result: Any) -> bytes:
        data = self.server.respond(request, result)
        assert isinstance(data, bytes)
        return data

    # The client.

    @rule(progress=st.booleans())
    def client_sends_a_request(self, progress: bool) -> None:
        self.request_count += 1
        name = f"r{self.request_count}"
        params = t.ReadResourceRequestParams(uri=f"a:{name}", meta=self.meta)
        self.ids[name], data = self.client.request("resources/read", params, name, progress=progress)
        self.waiting.add(name)
        self.to_server.append(data)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def client_cancels_a_request(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.waiting)))
        notice = self.client.cancel(self.ids[name], "enough")
        assert notice is not None
        self.waiting.discard(name)
        self.cancelled_by_client.add(name)
        self.to_server.append(notice)

    @precondition(lambda self: self.to_client)
    @rule()
    def client_reads(self) -> None:
        for event in self.client.receive(self.to_client.popleft()):
            if type(event) is Response:
                name = event.waiter
                assert name in self.waiting, "an answer without a waiting caller, or a second answer"
                self.waiting.discard(name)
                self.answers[name] = request_name(event.message)
            elif type(event) is Reply:
                assert self.meta is t.UNSET, "a stateless client sends no answers"
                self.to_server.append(event.data)
            elif type(event) is Notification:
                assert event.waiter is None or event.waiter in self.waiting
            else:
                assert type(event) is NotAMessage or type(event) is Malformed

    # The server.

    @precondition(lambda self: self.to_server)
    @rule()
    def server_reads(self) -> None:
        event = self.server.receive(self.to_server.popleft())
        match event:
            case Request():
                name = event.params.uri[2:]
                assert name not in self.serving
                self.serving[name] = event
            case Cancellation(request):
                name = request.params.uri[2:]
                assert self.serving.pop(name) is request
                self.cancelled.add(name)
            case Response(token, _):
                assert token in self.server_requests, "an answer without a request, or a second answer"
                self.server_requests.discard(token)
            case Reply(data):
                self.send(data)
            case Notification() | None:
                pass

    @precondition(lambda self: self.serving)
    @rule(data=st.data(), fails=st.booleans())
    def server_answers_a_request(self, data: st.DataObject, fails: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.serving)))
        request = self.serving.pop(name)
        if fails:
            response: Any = self.server.fail(request, InvalidParams(name))
        else:
            contents = [t.ResourceContents(uri="a:b", text=name)]
            response = self.server.respond(request, t.ReadResourceResult(contents=contents))
        assert response is not None
        self.answered.add(name)
        self.send(response)
        assert self.server.respond(request, t.ReadResourceResult(contents=[])) is None, "answered twice"

    @precondition(lambda self: self.meta is t.UNSET)
    @rule(method=st.sampled_from(["ping", "roots/list"]))
    def server_sends_a_request(self, method: str) -> None:
        self.request_count += 1
        token = f"s{self.request_count}"
        self.server_requests.add(token)
        self.send(self.server.request(method, t.RequestParams(), token)[1])

    @precondition(lambda self: self.serving)
    @rule(data=st.data())
    def server_sends_progress(self, data: st.DataObject) -> None:
        request = self.serving[data.draw(st.sampled_from(sorted(self.serving)))]
        self.send(encode_notification("notifications/progress", {"progressToken": request.id, "progress": 1}))

    def send(self, data: bytes) -> None:
        self.to_client.append(data)
        self.sent_to_client.append(data)

    # The network.

    @rule(message=UNEXPECTED, first=st.booleans())
    def an_unexpected_message_arrives(self, message: bytes, first: bool) -> None:
        queue = self.to_client
        queue.appendleft(message) if first else queue.append(message)

    @precondition(lambda self: self.sent_to_client)
    @rule(data=st.data())
    def a_message_arrives_twice(self, data: st.DataObject) -> None:
        """Requests are not repeated: the client would answer both, and the server would ignore the second answer."""
        message = data.draw(st.sampled_from(self.sent_to_client))
        if b'"method":"ping"' not in message and b'"method":"roots/list"' not in message:
            self.to_client.append(message)

    # The invariants.

    @invariant()
    def both_peers_know_the_requests_in_flight(self) -> None:
        assert set(self.client.awaited.values()) - {"initialize"} == self.waiting
        assert {request.params.uri[2:] for request in self.server.in_flight.values()} == set(self.serving)

    @invariant()
    def each_answer_belongs_to_its_request(self) -> None:
        for name, answer in self.answers.items():
            assert answer == name
        assert not self.cancelled_by_client & self.answers.keys()

    def teardown(self) -> None:
        """Deliver all queued messages, and check that no caller still waits for an answered request."""
        while self.to_server or self.to_client:
            if self.to_server:
                self.server_reads()
            if self.to_client:
                self.client_reads()
        self.both_peers_know_the_requests_in_flight()
        assert self.waiting == set(self.serving)
        assert self.answered - self.cancelled_by_client == self.answers.keys()
        assert self.server_requests == set()
        assert sorted(self.client.close()) == sorted(self.waiting)
        assert {request.params.uri[2:] for request in self.server.close()} == set(self.serving)


def request_name(message: Any) -> str:
    """Return the name of the request that a response answers."""
    if message.error is not t.UNSET:
        return str(json.loads(bytes(message.error))["message"])
    return str(json.loads(bytes(message.result))["contents"][0]["text"])


TestJoinedPeers = JoinedPeers.TestCase
TestJoinedPeers.settings = settings(
    max_examples=examples(50), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)

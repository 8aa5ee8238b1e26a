"""A client's and a server's peer joined by two queues, in any order of events: no answer is lost."""

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

RUBBISH = st.sampled_from(
    [b"INFO hello", b"\xff", b"[]", b"{}", b'{"jsonrpc":"2.0","id":"1","result":{}}', b'{"jsonrpc":"2.0","result":{}}']
)


class JoinedPeers(RuleBasedStateMachine):
    """The two peers, the two queues between them, and their invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session("", lambda message: True)
        self.client: ClientPeer[str] = ClientPeer(LIMITS)
        self.server = ServerPeer(self.session, ResultMeta(INFO), LIMITS)
        self.to_server: deque[bytes] = deque()
        self.to_client: deque[bytes] = deque()
        self.sent_to_client: list[bytes] = []
        self.meta: Any = t.UNSET
        self.made = 0
        # By the client's word for each request:
        self.ids: dict[str, int] = {}
        self.waiting: set[str] = set()
        self.given_up: set[str] = set()
        self.answers: dict[str, str] = {}
        # The server's side:
        self.serving: dict[str, Request] = {}
        self.cancelled: set[str] = set()
        self.sealed: dict[str, str] = {}
        self.asked: set[str] = set()

    @initialize(revision=st.sampled_from(sorted(REVISIONS)))
    def open(self, revision: str) -> None:
        """Agree on a revision, without anything in between."""
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
            (event,) = self.client.receive(self.sealed_by(request, result))
            assert type(event) is Response
            self.server.receive(encode_notification("notifications/initialized"))
        self.client.rules = rules

    def sealed_by(self, request: Request, result: Any) -> bytes:
        data = self.server.respond(request, result)
        assert isinstance(data, bytes)
        return data

    # The client.

    @rule(progress=st.booleans())
    def ask(self, progress: bool) -> None:
        self.made += 1
        word = f"r{self.made}"
        params = t.ReadResourceRequestParams(uri=f"a:{word}", meta=self.meta)
        self.ids[word], data = self.client.request("resources/read", params, word, progress=progress)
        self.waiting.add(word)
        self.to_server.append(data)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        word = data.draw(st.sampled_from(sorted(self.waiting)))
        notice = self.client.cancel(self.ids[word], "enough")
        assert notice is not None
        self.waiting.discard(word)
        self.given_up.add(word)
        self.to_server.append(notice)

    @precondition(lambda self: self.to_client)
    @rule()
    def client_reads(self) -> None:
        for event in self.client.receive(self.to_client.popleft()):
            if type(event) is Response:
                word = event.waiter
                assert word in self.waiting, "an answer without a waiting caller, or a second answer"
                self.waiting.discard(word)
                self.answers[word] = reported(event.message)
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
                word = event.params.uri[2:]
                assert word not in self.serving
                self.serving[word] = event
            case Cancellation(request):
                word = request.params.uri[2:]
                assert self.serving.pop(word) is request
                self.cancelled.add(word)
            case Response(token, _):
                assert token in self.asked, "an answer without a request, or a second answer"
                self.asked.discard(token)
            case Reply(data):
                self.send(data)
            case Notification() | None:
                pass

    @precondition(lambda self: self.serving)
    @rule(data=st.data(), fails=st.booleans())
    def answer(self, data: st.DataObject, fails: bool) -> None:
        word = data.draw(st.sampled_from(sorted(self.serving)))
        request = self.serving.pop(word)
        if fails:
            sealed: Any = self.server.fail(request, InvalidParams(word))
        else:
            contents = [t.ResourceContents(uri="a:b", text=word)]
            sealed = self.server.respond(request, t.ReadResourceResult(contents=contents))
        assert sealed is not None
        self.sealed[word] = word
        self.send(sealed)
        assert self.server.respond(request, t.ReadResourceResult(contents=[])) is None, "answered twice"

    @precondition(lambda self: self.meta is t.UNSET)
    @rule(method=st.sampled_from(["ping", "roots/list"]))
    def server_asks(self, method: str) -> None:
        self.made += 1
        token = f"s{self.made}"
        self.asked.add(token)
        self.send(self.server.request(method, t.RequestParams(), token)[1])

    @precondition(lambda self: self.serving)
    @rule(data=st.data())
    def progress(self, data: st.DataObject) -> None:
        request = self.serving[data.draw(st.sampled_from(sorted(self.serving)))]
        self.send(encode_notification("notifications/progress", {"progressToken": request.id, "progress": 1}))

    def send(self, data: bytes) -> None:
        self.to_client.append(data)
        self.sent_to_client.append(data)

    # The world.

    @rule(rubbish=RUBBISH, ahead=st.booleans())
    def rubbish_comes(self, rubbish: bytes, ahead: bool) -> None:
        queue = self.to_client
        queue.appendleft(rubbish) if ahead else queue.append(rubbish)

    @precondition(lambda self: self.sent_to_client)
    @rule(data=st.data())
    def message_comes_twice(self, data: st.DataObject) -> None:
        """Requests of the server's may not: a client answers each time, and the server ignores the second."""
        again = data.draw(st.sampled_from(self.sent_to_client))
        if b'"method":"ping"' not in again and b'"method":"roots/list"' not in again:
            self.to_client.append(again)

    # What must be true.

    @invariant()
    def both_ends_know_what_is_open(self) -> None:
        assert set(self.client.awaited.values()) - {"initialize"} == self.waiting
        assert {request.params.uri[2:] for request in self.server.in_flight.values()} == set(self.serving)

    @invariant()
    def every_answer_is_the_one_to_its_question(self) -> None:
        for word, answer in self.answers.items():
            assert answer == word
        assert not self.given_up & self.answers.keys()

    def teardown(self) -> None:
        """Deliver everything that is under way: no caller waits for an answered request."""
        while self.to_server or self.to_client:
            if self.to_server:
                self.server_reads()
            if self.to_client:
                self.client_reads()
        self.both_ends_know_what_is_open()
        assert self.waiting == set(self.serving)
        assert self.sealed.keys() - self.given_up == self.answers.keys()
        assert self.asked == set()
        assert sorted(self.client.close()) == sorted(self.waiting)
        assert {request.params.uri[2:] for request in self.server.close()} == set(self.serving)


def reported(message: Any) -> str:
    """Return the word in an answer."""
    if message.error is not t.UNSET:
        return str(json.loads(bytes(message.error))["message"])
    return str(json.loads(bytes(message.result))["contents"][0]["text"])


TestJoinedPeers = JoinedPeers.TestCase
TestJoinedPeers.settings = settings(
    max_examples=examples(50), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)

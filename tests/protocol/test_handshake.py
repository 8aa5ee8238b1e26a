"""Every transition of the handshake, the agreed revision, and the notifications and end of a session."""

from __future__ import annotations

import pytest

from wharfinger import types as t
from wharfinger.errors import InvalidRequest
from wharfinger.protocol.handshake import TRANSITIONS, Caller, Phase, Session
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.revisions import HANDSHAKE, LATEST_HANDSHAKE, REVISIONS, SUPPORTED


def test_the_table_has_a_transition_for_every_phase_and_kind_of_method() -> None:
    kinds = {"initialize", "ping", "notifications/initialized", ""}
    assert {(phase, kind) for phase in Phase for kind in kinds} == set(TRANSITIONS)


@pytest.mark.parametrize(("start", "target"), TRANSITIONS.items(), ids=lambda v: str(v)[:40])
def test_each_transition_changes_the_phase_or_is_refused(start: tuple[Phase, str], target: Phase | str) -> None:
    phase, method = start
    session = Session()
    session.phase = phase
    if isinstance(target, str):
        with pytest.raises(InvalidRequest, match=target.split(":")[0].split('"')[0]):
            session.advance(method or "resources/list")
        assert session.phase is phase
    else:
        assert session.advance(method or "resources/list") == (target is not phase)
        assert session.phase is target


@pytest.mark.parametrize("version", HANDSHAKE)
def test_a_known_revision_is_accepted(version: str) -> None:
    assert agreed_revision(version) == version


@pytest.mark.parametrize("version", ["2026-07-28", "1900-01-01", "2099-01-01", "", "2025-11"])
def test_any_other_revision_is_answered_with_the_latest(version: str) -> None:
    """Spec, lifecycle: a version is looked up in the set of revisions, and not compared with a minimum."""
    assert agreed_revision(version) == LATEST_HANDSHAKE


def agreed_revision(version: str) -> str:
    session = Session(Principal(subject="ann"))
    info = t.Implementation(name="c", version="1")
    session.agree(
        t.InitializeRequestParams(protocol_version=version, capabilities=t.ClientCapabilities(), client_info=info)
    )
    assert session.caller.principal.subject == "ann"
    return session.caller.rules.name


def test_notifications_are_sent_only_between_initialized_and_close() -> None:
    sent: list[bytes] = []
    session = Session(send_notification=lambda message: sent.append(message) is None)
    assert not session.send(b"early")
    session.advance("initialize")
    assert not session.send(b"still early")
    session.advance("notifications/initialized")
    assert session.send(b"now")
    session.close()
    assert not session.send(b"late")
    assert sent == [b"now"]


def test_closing_calls_each_callback_once() -> None:
    session, called = Session(), []
    session.on_close.append(called.append)
    session.close()
    session.close()
    assert called == [session]


def test_revisions_are_newest_first() -> None:
    assert list(SUPPORTED) == sorted(SUPPORTED, reverse=True)
    assert len(SUPPORTED) == 5


def test_a_caller_returns_its_settings_of_an_extension() -> None:
    capabilities = t.ClientCapabilities(extensions={"a.test/x": {"b": 1}, "a.test/y": {}})
    caller = Caller(REVISIONS[LATEST_HANDSHAKE], None, capabilities)
    assert (caller.extension("a.test/x"), caller.extension("a.test/y")) == ({"b": 1}, {})
    assert caller.extension("a.test/z") is None
    assert Caller(REVISIONS[LATEST_HANDSHAKE], None, t.ClientCapabilities()).extension("a.test/x") is None


def test_send_returns_false_without_a_stream_or_if_the_stream_fails() -> None:
    session = Session()
    session.phase = Phase.OPEN
    assert not session.send(b"x")
    session.send_notification = lambda message: False
    assert not session.send(b"x")


def test_a_closed_session_has_no_stream() -> None:
    session = Session(send_notification=lambda message: True)
    session.close()
    assert (session.phase, session.send_notification) == (Phase.CLOSED, None)


@pytest.mark.parametrize("method", ["initialize", "ping", "tools/list", ""])
def test_a_closed_session_refuses_every_request(method: str) -> None:
    session = Session()
    session.close()
    with pytest.raises(InvalidRequest, match="closed"):
        session.admit(method)

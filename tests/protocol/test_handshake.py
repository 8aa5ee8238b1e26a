"""The handshake's transition table, cell by cell."""

from __future__ import annotations

import pytest

from wharfinger import types as t
from wharfinger.errors import InvalidRequest
from wharfinger.protocol.handshake import TRANSITIONS, Caller, Phase, Session
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.revisions import HANDSHAKE, LATEST_HANDSHAKE, REVISIONS, SUPPORTED


def test_every_phase_has_a_cell_for_every_kind_of_method() -> None:
    kinds = {"initialize", "ping", "notifications/initialized", ""}
    assert {(phase, kind) for phase in Phase for kind in kinds} == set(TRANSITIONS)


@pytest.mark.parametrize(("cell", "target"), TRANSITIONS.items(), ids=lambda v: str(v)[:40])
def test_each_cell_changes_the_phase_or_refuses(cell: tuple[Phase, str], target: Phase | str) -> None:
    phase, method = cell
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
    assert _agreed_revision(version) == version


@pytest.mark.parametrize("version", ["2026-07-28", "1900-01-01", "2099-01-01", "", "2025-11"])
def test_any_other_revision_is_answered_with_our_latest(version: str) -> None:
    """Membership in the set of revisions, never a minimum (lifecycle)."""
    assert _agreed_revision(version) == LATEST_HANDSHAKE


def _agreed_revision(version: str) -> str:
    session = Session(Principal(subject="ann"))
    info = t.Implementation(name="c", version="1")
    session.agree(
        t.InitializeRequestParams(protocol_version=version, capabilities=t.ClientCapabilities(), client_info=info)
    )
    assert session.caller.principal.subject == "ann"
    return session.caller.rules.name


def test_nothing_is_sent_before_the_client_confirms_or_after_the_end() -> None:
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


def test_session_without_a_stream_sends_nothing() -> None:
    session = Session()
    session.phase = Phase.OPEN
    assert not session.send(b"x")
    session.send_notification = lambda message: False
    assert not session.send(b"x")


def test_closing_resets_the_stream_and_the_phase() -> None:
    session = Session(send_notification=lambda message: True)
    session.close()
    assert (session.phase, session.send_notification) == (Phase.CLOSED, None)


@pytest.mark.parametrize("method", ["initialize", "ping", "tools/list", ""])
def test_closed_session_admits_no_request(method: str) -> None:
    session = Session()
    session.close()
    with pytest.raises(InvalidRequest, match="closed"):
        session.admit(method)

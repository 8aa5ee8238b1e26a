"""The handshake's transition table, cell by cell."""

from __future__ import annotations

import pytest

from wharfinger import types as t
from wharfinger.errors import InvalidRequest
from wharfinger.protocol.handshake import TRANSITIONS, Phase, Session
from wharfinger.protocol.revisions import HANDSHAKE, LATEST_HANDSHAKE, SUPPORTED


def test_every_phase_says_something_to_every_kind_of_method() -> None:
    kinds = {"initialize", "ping", "notifications/initialized", ""}
    assert {(phase, kind) for phase in Phase for kind in kinds} == set(TRANSITIONS)


@pytest.mark.parametrize(("cell", "target"), TRANSITIONS.items(), ids=lambda v: str(v)[:40])
def test_a_cell_moves_or_refuses_as_the_table_says(cell: tuple[Phase, str], target: Phase | str) -> None:
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
def test_a_revision_that_is_known_is_agreed_on(version: str) -> None:
    assert _agreed(version) == version


@pytest.mark.parametrize("version", ["2026-07-28", "1900-01-01", "2099-01-01", "", "2025-11"])
def test_any_other_revision_is_answered_with_our_latest(version: str) -> None:
    """A membership test, never a minimum (lifecycle)."""
    assert _agreed(version) == LATEST_HANDSHAKE


def _agreed(version: str) -> str:
    session = Session(principal="ann")
    info = t.Implementation(name="c", version="1")
    session.agree(
        t.InitializeRequestParams(protocol_version=version, capabilities=t.ClientCapabilities(), client_info=info)
    )
    assert session.caller.principal == "ann"
    return session.caller.rules.name


def test_nothing_is_sent_before_the_client_confirms_or_after_the_end() -> None:
    sent: list[bytes] = []
    session = Session(outlet=lambda message: sent.append(message) is None)
    assert not session.send(b"early")
    session.advance("initialize")
    assert not session.send(b"still early")
    session.advance("notifications/initialized")
    assert session.send(b"now")
    session.close()
    assert not session.send(b"late")
    assert sent == [b"now"]


def test_closing_calls_everyone_who_asked_once() -> None:
    session, called = Session(), []
    session.on_close.append(called.append)
    session.close()
    session.close()
    assert called == [session]


def test_revisions_are_newest_first() -> None:
    assert list(SUPPORTED) == sorted(SUPPORTED, reverse=True)
    assert len(SUPPORTED) == 5

"""How a client detects the era of a server by its answers (spec: §2.4, §2.5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.errors import HeaderMismatch, RemoteError, UnsupportedRevision, UnsupportedVersion
from wharfinger.protocol.jsonrpc import Message, decode
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.negotiation import (
    Discover,
    GiveUp,
    Initialize,
    RevisionCache,
    Stateless,
    decide_discover,
    decide_initialize,
    decide_refusal,
    first_step,
    read_error,
    supported_in,
    to_remote_error,
)

NEWEST, HANDSHAKE = "2026-07-28", "2025-11-25"
FIRST = Discover(NEWEST)


def answer(**members: Any) -> Message:
    return decode(json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode(), Limits())


def refusal(code: int, data: Any = None) -> Message:
    error = {"code": code, "message": "no"}
    return answer(error=error if data is None else {**error, "data": data})


def discovered(*supported: str) -> Message:
    return answer(result={"supportedVersions": list(supported), "capabilities": {}, "resultType": "complete"})


def test_the_first_request_is_stateless_unless_pinned() -> None:
    assert first_step() == FIRST
    assert first_step(NEWEST) == FIRST
    assert first_step("2025-03-26") == Initialize("2025-03-26")
    with pytest.raises(UnsupportedRevision, match="1900"):
        first_step("1900-01-01")


def test_discover_result_means_stateless() -> None:
    verdict = decide_discover(FIRST, discovered("2025-11-25", NEWEST, "2031-01-01"))
    assert type(verdict) is Stateless
    assert verdict.revision == NEWEST


@pytest.mark.parametrize(
    "reply",
    [
        None,
        answer(result={}),
        answer(result={"supportedVersions": "all", "capabilities": {}}),
        answer(result={"supportedVersions": [NEWEST]}),
        answer(result=[1]),
        refusal(-32601),
        refusal(-32600),
        refusal(-32602),
        refusal(-32000),
        refusal(0),
        refusal(-32022),
        refusal(-32022, {"supported": NEWEST}),
        answer(error=3),
        answer(error={}),
    ],
)
def test_any_other_answer_means_handshake(reply: Message | None) -> None:
    """Never by one code: an empty success, any error, an invalid error, silence."""
    assert decide_discover(FIRST, reply) == Initialize(HANDSHAKE)


def test_a_refused_revision_is_retried_once_if_the_server_offers_it() -> None:
    """Spec §2.4: a server may refuse the very revision that it lists."""
    reply = refusal(-32022, {"supported": [NEWEST], "requested": NEWEST})
    assert decide_discover(FIRST, reply) == Discover(NEWEST, again=True)
    verdict = decide_discover(Discover(NEWEST, again=True), reply)
    assert type(verdict) is GiveUp
    assert isinstance(verdict.error, UnsupportedRevision)


def test_a_stateless_error_with_handshake_revisions_leads_to_the_handshake() -> None:
    reply = refusal(-32022, {"supported": ["2025-06-18", "2025-03-26"], "requested": NEWEST})
    assert decide_discover(FIRST, reply) == Initialize("2025-06-18")


def test_no_common_revision_is_reported_with_those_of_both_sides() -> None:
    reply = refusal(-32022, {"supported": ["1999-01-01"], "requested": NEWEST})
    verdict = decide_discover(FIRST, reply)
    assert type(verdict) is GiveUp
    assert isinstance(verdict.error, UnsupportedRevision)
    assert verdict.error.supported == ("1999-01-01",)
    assert "1999-01-01" in str(verdict.error)
    assert NEWEST in str(verdict.error)


@pytest.mark.parametrize("code", [-32020, -32021])
def test_other_errors_of_the_stateless_era_are_reported_and_not_hidden(code: int) -> None:
    verdict = decide_discover(FIRST, refusal(code))
    assert type(verdict) is GiveUp
    assert isinstance(verdict.error, RemoteError)
    assert verdict.error.code == code


def test_pinned_stateless_revision_never_falls_back() -> None:
    for reply in (None, refusal(-32601), discovered("2025-11-25"), answer(result={})):
        verdict = decide_discover(FIRST, reply, NEWEST)
        assert type(verdict) is GiveUp
        assert isinstance(verdict.error, UnsupportedRevision)


@pytest.mark.parametrize(
    ("chosen", "pinned", "agreed"),
    [
        (HANDSHAKE, None, True),
        ("2024-11-05", None, True),
        ("2025-06-18", "2025-06-18", True),
        ("2025-06-18", "2025-11-25", False),
        ("1900-01-01", None, False),
        (NEWEST, None, False),
    ],
)
def test_only_known_revisions_are_accepted_in_the_handshake(chosen: str, pinned: str | None, agreed: bool) -> None:
    """Security C22: a version of 1900 is a clean error."""
    result = t.InitializeResult(
        protocol_version=chosen,
        capabilities=t.ServerCapabilities(),
        server_info=t.Implementation(name="s", version="1"),
    )
    if agreed:
        assert decide_initialize(result, pinned) == chosen
    else:
        with pytest.raises(UnsupportedRevision, match=chosen):
            decide_initialize(result, pinned)


def test_a_stateless_server_that_refuses_initialize_with_its_revisions_is_retried() -> None:
    reply = refusal(-32022, {"supported": [NEWEST], "requested": HANDSHAKE})
    assert decide_refusal(reply, None) == Discover(NEWEST, again=True)
    assert type(decide_refusal(reply, None, "2025-06-18")) is GiveUp
    assert type(decide_refusal(reply, Discover(NEWEST, again=True))) is GiveUp
    assert type(decide_refusal(refusal(-32603), None)) is GiveUp


def test_codes_are_those_of_the_errors() -> None:
    assert (HeaderMismatch.code, UnsupportedVersion.code) == (-32020, -32022)


def test_an_invalid_error_has_code_0() -> None:
    assert to_remote_error(answer(error="boom")).code == 0


def test_a_known_handshake_server_gets_initialize_at_once() -> None:
    assert first_step(known="stateless") == FIRST
    assert first_step(known="handshake") == first_step(known="sse") == Initialize(HANDSHAKE)
    assert first_step(NEWEST, known="handshake") == FIRST


def test_a_revision_is_cached_until_it_is_too_old_or_the_cache_is_full() -> None:
    now = 0.0
    eras = RevisionCache(lambda: now, max_servers=2, max_age=10)
    eras.put("a", "stateless")
    eras.put("b", "handshake")
    assert (eras.get("a"), eras.get("b"), eras.get("c")) == ("stateless", "handshake", None)
    eras.put("a", "sse")
    eras.put("c", "stateless")
    assert (eras.get("a"), eras.get("b"), eras.get("c")) == ("sse", None, "stateless")
    eras.forget("c")
    eras.forget("never there")
    assert eras.get("c") is None
    now = 10.0
    assert eras.get("a") is None


def test_revisions_offered_are_those_of_one_error() -> None:
    assert supported_in(RemoteError(-32022, "", {"supported": [NEWEST], "requested": "x"})) == [NEWEST]
    assert supported_in(RemoteError(-32022, "")) == []
    assert supported_in(RemoteError(-32601, "", {"supported": [NEWEST]})) is None


def test_cached_eras_are_at_most_1024_and_an_hour_old_by_default() -> None:
    now = 0.0
    eras = RevisionCache(lambda: now)
    for server in range(1025):
        eras.put(server, "stateless")
    assert (eras.get(0), eras.get(1), eras.get(1024)) == (None, "stateless", "stateless")
    now = 3599.5
    assert eras.get(1) == "stateless"
    now = 3600.0
    assert eras.get(1) is None


def test_server_found_again_replaces_no_other_entry() -> None:
    eras = RevisionCache(lambda: 0.0, max_servers=2)
    eras.put("a", "stateless")
    eras.put("b", "stateless")
    eras.put("b", "handshake")
    assert (eras.get("a"), eras.get("b")) == ("stateless", "handshake")
    eras.put("a", "stateless")
    eras.put("c", "stateless")
    assert (eras.get("a"), eras.get("b"), eras.get("c")) == ("stateless", None, "stateless")


def test_the_cache_can_be_cleared() -> None:
    eras = RevisionCache(lambda: 0.0)
    eras.put("a", "stateless")
    eras.put("b", "handshake")
    eras.clear()
    assert (eras.get("a"), eras.get("b")) == (None, None)


def initialized(version: str) -> t.InitializeResult:
    info = t.Implementation(name="s", version="1")
    return t.InitializeResult(protocol_version=version, capabilities=t.ServerCapabilities(), server_info=info)


@pytest.mark.parametrize(
    ("chosen", "pinned", "words"),
    [
        ("x" * 41, None, f"'{'x' * 40}'; this client requires 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05."),
        ("1900-01-01", "2025-06-18", "'1900-01-01'; this client requires 2025-06-18."),
    ],
)
def test_an_unsupported_revision_is_reported_with_the_supported_ones(
    chosen: str, pinned: str | None, words: str
) -> None:
    with pytest.raises(UnsupportedRevision) as caught:
        decide_initialize(initialized(chosen), pinned)
    assert str(caught.value) == f"The server chose revision {words}"
    assert caught.value.supported == (chosen,)


def test_offer_is_shown_up_to_ten_revisions_of_forty_characters() -> None:
    reply = refusal(-32022, {"supported": [f"{number:02}" + "x" * 39 for number in range(11)]})
    verdict = decide_discover(FIRST, reply, NEWEST)
    assert type(verdict) is GiveUp
    shown = ", ".join(f"{number:02}" + "x" * 38 for number in range(10))
    assert str(verdict.error) == f"No revision in common: the server offers {shown}; this client requires {NEWEST}."
    verdict = decide_discover(FIRST, discovered(), None)
    assert type(verdict) is GiveUp
    assert str(verdict.error) == (
        f"No revision in common: the server offers none; this client requires {NEWEST}, 2025-11-25, 2025-06-18, "
        "2025-03-26, 2024-11-05."
    )


@pytest.mark.parametrize(
    ("pinned", "asked", "again"),
    [
        (None, None, True),
        (None, Discover(NEWEST), True),
        (None, Discover(NEWEST, again=True), False),
        (NEWEST, None, True),
        ("2025-06-18", None, False),
    ],
)
def test_refused_handshake_leads_back_at_most_once(pinned: str | None, asked: Discover | None, again: bool) -> None:
    reply = refusal(-32022, {"supported": [NEWEST], "requested": HANDSHAKE})
    verdict = decide_refusal(reply, asked, pinned)
    assert (verdict == Discover(NEWEST, again=True)) is again
    assert (type(verdict) is GiveUp) is not again


@pytest.mark.parametrize("supported", [[], ["1999-01-01"], ["2025-06-18"]])
def test_a_refused_handshake_without_a_common_stateless_revision_is_an_error(supported: list[str]) -> None:
    verdict = decide_refusal(refusal(-32022, {"supported": supported}), None)
    assert type(verdict) is GiveUp
    assert isinstance(verdict.error, RemoteError)
    assert verdict.error.code == -32022


def test_refused_handshake_with_another_code_names_no_revision() -> None:
    assert type(decide_refusal(refusal(-32602, {"supported": [NEWEST]}), None)) is GiveUp


def test_an_answer_without_a_valid_error_has_code_0() -> None:
    assert (read_error(answer(result={})).code, to_remote_error(answer(result={})).code) == (0, 0)
    assert read_error(answer(error={"code": "x"})).code == 0


def test_data_of_an_error_is_reported_if_present() -> None:
    assert to_remote_error(refusal(-32603)).data is None
    assert to_remote_error(refusal(-32603, {"a": 1})).data == {"a": 1}


def test_pinned_revision_is_chosen_among_those_that_are_offered() -> None:
    """A newer revision may work differently."""
    assert decide_discover(FIRST, discovered("2025-11-25", "2025-06-18"), "2025-06-18") == Initialize("2025-06-18")
    assert decide_discover(FIRST, discovered("2025-11-25", "2025-06-18")) == Initialize("2025-11-25")
    assert type(decide_discover(FIRST, discovered("2025-11-25"), "2025-06-18")) is GiveUp

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
    ProtocolCache,
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
FIRST_DISCOVER = Discover(NEWEST)


def answer(**members: Any) -> Message:
    return decode(json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode(), Limits())


def refusal(code: int, data: Any = None) -> Message:
    error = {"code": code, "message": "no"}
    return answer(error=error if data is None else {**error, "data": data})


def discover_result(*supported: str) -> Message:
    return answer(result={"supportedVersions": list(supported), "capabilities": {}, "resultType": "complete"})


def initialize_result(version: str) -> t.InitializeResult:
    info = t.Implementation(name="s", version="1")
    return t.InitializeResult(protocol_version=version, capabilities=t.ServerCapabilities(), server_info=info)


def test_the_first_request_is_stateless_unless_pinned() -> None:
    assert first_step() == FIRST_DISCOVER
    assert first_step(NEWEST) == FIRST_DISCOVER
    assert first_step("2025-03-26") == Initialize("2025-03-26")
    with pytest.raises(UnsupportedRevision, match="1900"):
        first_step("1900-01-01")


def test_a_discover_result_means_a_stateless_server() -> None:
    step = decide_discover(FIRST_DISCOVER, discover_result("2025-11-25", NEWEST, "2031-01-01"))
    assert type(step) is Stateless
    assert step.revision == NEWEST


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
def test_any_other_answer_means_a_handshake_server(reply: Message | None) -> None:
    """No single code decides: an empty result, any error, an invalid error and no answer all mean a handshake."""
    assert decide_discover(FIRST_DISCOVER, reply) == Initialize(HANDSHAKE)


def test_a_refused_revision_is_retried_once_if_the_server_offers_it() -> None:
    """Spec §2.4: a server may refuse a revision that it lists."""
    reply = refusal(-32022, {"supported": [NEWEST], "requested": NEWEST})
    assert decide_discover(FIRST_DISCOVER, reply) == Discover(NEWEST, again=True)
    step = decide_discover(Discover(NEWEST, again=True), reply)
    assert type(step) is GiveUp
    assert isinstance(step.error, UnsupportedRevision)


def test_a_stateless_error_with_handshake_revisions_leads_to_the_handshake() -> None:
    reply = refusal(-32022, {"supported": ["2025-06-18", "2025-03-26"], "requested": NEWEST})
    assert decide_discover(FIRST_DISCOVER, reply) == Initialize("2025-06-18")


def test_without_a_common_revision_the_error_names_those_of_both_sides() -> None:
    reply = refusal(-32022, {"supported": ["1999-01-01"], "requested": NEWEST})
    step = decide_discover(FIRST_DISCOVER, reply)
    assert type(step) is GiveUp
    assert isinstance(step.error, UnsupportedRevision)
    assert step.error.supported == ("1999-01-01",)
    assert "1999-01-01" in str(step.error)
    assert NEWEST in str(step.error)


@pytest.mark.parametrize("code", [-32020, -32021])
def test_other_stateless_errors_end_the_negotiation(code: int) -> None:
    step = decide_discover(FIRST_DISCOVER, refusal(code))
    assert type(step) is GiveUp
    assert isinstance(step.error, RemoteError)
    assert step.error.code == code


def test_a_pinned_stateless_revision_never_falls_back_to_the_handshake() -> None:
    for reply in (None, refusal(-32601), discover_result("2025-11-25"), answer(result={})):
        step = decide_discover(FIRST_DISCOVER, reply, NEWEST)
        assert type(step) is GiveUp
        assert isinstance(step.error, UnsupportedRevision)


@pytest.mark.parametrize(
    ("chosen", "pinned", "accepted"),
    [
        (HANDSHAKE, None, True),
        ("2024-11-05", None, True),
        ("2025-06-18", "2025-06-18", True),
        ("2025-06-18", "2025-11-25", False),
        ("1900-01-01", None, False),
        (NEWEST, None, False),
    ],
)
def test_only_known_revisions_are_accepted_in_the_handshake(chosen: str, pinned: str | None, accepted: bool) -> None:
    """Security C22: an unknown version raises UnsupportedRevision."""
    result = initialize_result(chosen)
    if accepted:
        assert decide_initialize(result, pinned) == chosen
    else:
        with pytest.raises(UnsupportedRevision, match=chosen):
            decide_initialize(result, pinned)


def test_discover_is_repeated_if_initialize_is_refused_with_a_stateless_revision() -> None:
    reply = refusal(-32022, {"supported": [NEWEST], "requested": HANDSHAKE})
    assert decide_refusal(reply) == decide_refusal(reply, NEWEST) == Discover(NEWEST, again=True)
    assert type(decide_refusal(reply, "2025-06-18")) is GiveUp
    assert type(decide_refusal(refusal(-32603))) is GiveUp


def test_the_error_classes_have_the_codes_of_the_specification() -> None:
    assert (HeaderMismatch.code, UnsupportedVersion.code) == (-32020, -32022)


def test_an_invalid_error_has_code_0() -> None:
    assert to_remote_error(answer(error="boom")).code == 0


def test_a_known_handshake_server_gets_initialize_at_once() -> None:
    assert first_step(known="stateless") == FIRST_DISCOVER
    assert first_step(known="handshake") == first_step(known="sse") == Initialize(HANDSHAKE)
    assert first_step(NEWEST, known="handshake") == FIRST_DISCOVER


def test_a_protocol_is_cached_until_it_is_too_old_or_the_cache_is_full() -> None:
    now = 0.0
    cache = ProtocolCache(lambda: now, max_servers=2, max_age=10)
    cache.put("a", "stateless")
    cache.put("b", "handshake")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("stateless", "handshake", None)
    cache.put("a", "sse")
    cache.put("c", "stateless")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("sse", None, "stateless")
    cache.forget("c")
    cache.forget("unknown")
    assert cache.get("c") is None
    now = 10.0
    assert cache.get("a") is None


def test_only_unsupported_version_errors_offer_revisions() -> None:
    assert supported_in(RemoteError(-32022, "", {"supported": [NEWEST], "requested": "x"})) == [NEWEST]
    assert supported_in(RemoteError(-32022, "")) == []
    assert supported_in(RemoteError(-32601, "", {"supported": [NEWEST]})) is None


def test_cached_protocols_are_at_most_1024_and_an_hour_old_by_default() -> None:
    now = 0.0
    cache = ProtocolCache(lambda: now)
    for server in range(1025):
        cache.put(server, "stateless")
    assert (cache.get(0), cache.get(1), cache.get(1024)) == (None, "stateless", "stateless")
    now = 3599.5
    assert cache.get(1) == "stateless"
    now = 3600.0
    assert cache.get(1) is None


def test_updating_an_entry_of_a_full_cache_evicts_no_other() -> None:
    cache = ProtocolCache(lambda: 0.0, max_servers=2)
    cache.put("a", "stateless")
    cache.put("b", "stateless")
    cache.put("b", "handshake")
    assert (cache.get("a"), cache.get("b")) == ("stateless", "handshake")
    cache.put("a", "stateless")
    cache.put("c", "stateless")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("stateless", None, "stateless")


def test_the_cache_can_be_cleared() -> None:
    cache = ProtocolCache(lambda: 0.0)
    cache.put("a", "stateless")
    cache.put("b", "handshake")
    cache.clear()
    assert (cache.get("a"), cache.get("b")) == (None, None)


@pytest.mark.parametrize(
    ("chosen", "pinned", "message"),
    [
        ("x" * 41, None, f"'{'x' * 40}'; this client requires 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05."),
        ("1900-01-01", "2025-06-18", "'1900-01-01'; this client requires 2025-06-18."),
    ],
)
def test_an_unsupported_revision_is_reported_with_the_supported_ones(
    chosen: str, pinned: str | None, message: str
) -> None:
    with pytest.raises(UnsupportedRevision) as caught:
        decide_initialize(initialize_result(chosen), pinned)
    assert str(caught.value) == f"The server chose revision {message}"
    assert caught.value.supported == (chosen,)


def test_an_error_shows_at_most_ten_offered_revisions_of_40_characters() -> None:
    reply = refusal(-32022, {"supported": [f"{number:02}" + "x" * 39 for number in range(11)]})
    step = decide_discover(FIRST_DISCOVER, reply, NEWEST)
    assert type(step) is GiveUp
    revisions = ", ".join(f"{number:02}" + "x" * 38 for number in range(10))
    assert str(step.error) == f"No revision in common: the server offers {revisions}; this client requires {NEWEST}."
    step = decide_discover(FIRST_DISCOVER, discover_result("1\n\x1b[2J"), None)
    assert type(step) is GiveUp
    assert "the server offers 1??[2J;" in str(step.error)
    step = decide_discover(FIRST_DISCOVER, discover_result(), None)
    assert type(step) is GiveUp
    assert str(step.error) == (
        f"No revision in common: the server offers none; this client requires {NEWEST}, 2025-11-25, 2025-06-18, "
        "2025-03-26, 2024-11-05."
    )


@pytest.mark.parametrize("supported", [[], ["1999-01-01"], ["2025-06-18"]])
def test_a_refused_handshake_without_a_common_stateless_revision_is_an_error(supported: list[str]) -> None:
    step = decide_refusal(refusal(-32022, {"supported": supported}))
    assert type(step) is GiveUp
    assert isinstance(step.error, RemoteError)
    assert step.error.code == -32022


def test_revisions_in_an_error_with_another_code_are_ignored() -> None:
    assert type(decide_refusal(refusal(-32602, {"supported": [NEWEST]}))) is GiveUp


def test_an_answer_without_a_valid_error_has_code_0() -> None:
    assert (read_error(answer(result={})).code, to_remote_error(answer(result={})).code) == (0, 0)
    assert read_error(answer(error={"code": "x"})).code == 0


def test_data_of_an_error_is_reported_if_present() -> None:
    assert to_remote_error(refusal(-32603)).data is None
    assert to_remote_error(refusal(-32603, {"a": 1})).data == {"a": 1}


def test_a_pinned_revision_is_used_even_if_the_server_offers_a_newer_one() -> None:
    """A newer revision may behave differently."""
    assert decide_discover(FIRST_DISCOVER, discover_result("2025-11-25", "2025-06-18"), "2025-06-18") == Initialize(
        "2025-06-18"
    )
    assert decide_discover(FIRST_DISCOVER, discover_result("2025-11-25", "2025-06-18")) == Initialize("2025-11-25")
    assert type(decide_discover(FIRST_DISCOVER, discover_result("2025-11-25"), "2025-06-18")) is GiveUp

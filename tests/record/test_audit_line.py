"""Each record is one line of bounded, printable JSON that decodes to the recorded values."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from wharfinger.record.audit_line import (
    MAX_FIELD_CHARACTERS,
    MAX_SEARCHED_CHARACTERS,
    MAX_TARGET_CHARACTERS,
    AuditLine,
    encode_line,
    rfc3339,
    trace_id,
)


def encode(**fields: Any) -> bytes:
    return encode_line(AuditLine(time="2026-01-01T00:00:00.000Z", action="read", outcome="allowed", **fields))


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_makes_one_printable_line(target: str, subject: str) -> None:
    line = encode(target=target, subject=subject)
    assert line.endswith(b"\n")
    assert line[:-1].decode().isprintable()
    record = json.loads(line)
    if len(target) <= MAX_TARGET_CHARACTERS and "://" not in target:
        assert record.get("target", "").encode("utf-16", "surrogatepass") == target.encode("utf-16", "surrogatepass")


@given(st.text(alphabet=st.characters(), min_size=1, max_size=40).map(lambda text: text * 400))
def test_any_field_is_bounded(text: str) -> None:
    line = encode(target=text, subject=text, rule=text, app=text, query=text)
    assert len(line) < 12 * (MAX_TARGET_CHARACTERS + 4 * MAX_FIELD_CHARACTERS) + 600


def test_fields_are_cut_beyond_their_bound() -> None:
    whole = json.loads(encode(target="t" * MAX_TARGET_CHARACTERS, subject="s" * MAX_FIELD_CHARACTERS))
    assert whole["target"] == "t" * MAX_TARGET_CHARACTERS
    assert whole["subject"] == "s" * MAX_FIELD_CHARACTERS
    cut = json.loads(encode(target="t" * (MAX_TARGET_CHARACTERS + 1), subject="s" * (MAX_FIELD_CHARACTERS + 1)))
    assert cut["target"] == "t" * MAX_TARGET_CHARACTERS + "…(+1)"
    assert cut["subject"] == "s" * MAX_FIELD_CHARACTERS + "…(+1)"
    assert json.loads(encode(target="t" * 1_000_000))["target"].endswith(f"…(+{1_000_000 - MAX_TARGET_CHARACTERS})")


def test_the_number_of_characters_left_out_does_not_count_a_removed_password() -> None:
    """A bug: the number was that of the whole target less the limit, although less than the limit was written."""
    uri = f"https://ann:{'p' * (MAX_SEARCHED_CHARACTERS - 20)}@host"
    assert json.loads(encode(target=uri + "/" * (MAX_SEARCHED_CHARACTERS - len(uri))))["target"] == (
        "https://ann@host" + "/" * (MAX_SEARCHED_CHARACTERS - len(uri))
    )
    cut = json.loads(encode(target=uri + "/" * (MAX_SEARCHED_CHARACTERS - len(uri) + 1)))["target"]
    assert cut == "https://ann@host" + "/" * (MAX_SEARCHED_CHARACTERS - len(uri)) + "…(+1)"


def test_a_password_in_a_uri_is_left_out() -> None:
    line = encode(target="https://ann:hunter2@host/x?token=sesame-opens&page=2")
    assert b"hunter2" not in line
    assert b"sesame" not in line
    assert b"page=2" in line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1.9996, "1970-01-01T00:00:01.999Z"),
        (1700000000.25, "2023-11-14T22:13:20.250Z"),
    ],
)
def test_times_are_rfc_3339_with_milliseconds(seconds: float, text: str) -> None:
    assert rfc3339(seconds) == text


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("traceparent", "expected"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-more", TRACE),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", ""),
        ("nonsense", ""),
        (UNSET, ""),
    ],
)
def test_the_trace_id_comes_from_a_valid_traceparent(traceparent: Any, expected: str) -> None:
    request: Any = SimpleNamespace(params=SimpleNamespace(meta=SimpleNamespace(traceparent=traceparent)))
    assert trace_id(request) == expected

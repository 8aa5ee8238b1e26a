"""Cursors are sealed: forged ones are refused, and processes with the same secret share them."""

from __future__ import annotations

import base64
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from wharfinger.errors import InvalidParams, MissingExtra
from wharfinger.server.cursors import CURSOR, Keys
from wharfinger.server.features.resource import MAX_RESOURCE_URI_CHARACTERS

KEYS = Keys("secret")


@given(st.recursive(st.none() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=8))
@settings(max_examples=examples(50), deadline=None)
def test_a_sealed_cursor_opens(position: object) -> None:
    assert KEYS.open("list", KEYS.seal("list", position)) == position


@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]*", fullmatch=True))
@settings(max_examples=examples(100), deadline=None)
def test_a_forged_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams):
        KEYS.open("list", text)


def test_a_cursor_with_any_changed_bit_is_refused() -> None:
    sealed = base64.urlsafe_b64decode(KEYS.seal("list", [1, "abc"]) + "==")
    for index in range(len(sealed)):
        changed = sealed[:index] + bytes([sealed[index] ^ 1]) + sealed[index + 1 :]
        with pytest.raises(InvalidParams):
            KEYS.open("list", base64.urlsafe_b64encode(changed).rstrip(b"=").decode())


def test_a_cursor_is_valid_only_for_its_list_and_secret() -> None:
    cursor = KEYS.seal("list", 1)
    for keys, purpose in ((KEYS, "other"), (Keys("other"), "list"), (Keys(), "list")):
        with pytest.raises(InvalidParams):
            keys.open(purpose, cursor)
    assert Keys(b"secret").open("list", cursor) == 1


def test_processes_with_the_same_environment_variable_share_cursors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHARFINGER_SECRET", raising=False)
    with pytest.raises(InvalidParams):
        Keys().open("list", Keys().seal("list", 1))
    monkeypatch.setenv("WHARFINGER_SECRET", "shared")
    assert Keys().open("list", Keys().seal("list", 1)) == 1
    with pytest.raises(InvalidParams):
        Keys("own").open("list", Keys().seal("list", 1))


def test_a_cursor_can_hold_the_longest_uri_but_longer_cursors_are_refused() -> None:
    longest = "é" * MAX_RESOURCE_URI_CHARACTERS
    assert KEYS.open("list", KEYS.seal("list", [1, longest])) == [1, longest]
    with pytest.raises(InvalidParams):
        KEYS.open("list", KEYS.seal("list", "x" * 100_000))
    with pytest.raises(InvalidParams):
        KEYS.open("list", "A" * 4_000_000)


def test_the_length_of_a_sealed_text_is_bounded() -> None:
    keys = Keys("secret")
    kind = CURSOR._replace(max_characters=len(keys.seal("list", "x" * 30)))
    assert keys.open("list", keys.seal("list", "x" * 30, kind), kind) == "x" * 30
    with pytest.raises(InvalidParams):
        keys.open("list", keys.seal("list", "x" * 33, kind), kind)


@pytest.mark.parametrize("sealed", ["é", "", "=", "a", "*" * 20, "A" * 40])
def test_a_malformed_cursor_is_refused(sealed: str) -> None:
    with pytest.raises(InvalidParams, match="This cursor is not valid here"):
        Keys("secret").open("list", sealed)


@pytest.mark.parametrize("sealed", ["", "A" * 40, KEYS.seal("list", 1)])
def test_without_cryptography_private_cursors_name_the_extra(monkeypatch: pytest.MonkeyPatch, sealed: str) -> None:
    """A bug: a cursor that was not sealed here raised ModuleNotFoundError."""
    for module in ("cryptography.exceptions", "cryptography.hazmat.primitives.ciphers.aead"):
        monkeypatch.setitem(sys.modules, module, None)
    private = KEYS.private("ann")
    with pytest.raises(MissingExtra, match=r"wharfinger\[auth\]"):
        private.open("list", sealed)
    with pytest.raises(MissingExtra, match=r"wharfinger\[auth\]"):
        private.seal("list", 1)


@pytest.mark.parametrize("keys", [KEYS, KEYS.private("ann")])
def test_a_cursor_of_another_type_is_refused(keys: Keys) -> None:
    """A bug: msgspec's error escaped. Another version of the server with the same secret may have sealed it."""
    with pytest.raises(InvalidParams, match="This cursor is not valid here"):
        keys.open("list", keys.seal("list", ["a"]), type=int)

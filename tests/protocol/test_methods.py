"""The table of methods, and the methods that an extension may add."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wharfinger import types as t
from wharfinger.protocol.methods import CORE, EXTENSIONS_FROM, METHODS, Method, add_method
from wharfinger.protocol.revisions import REVISIONS

ALL = list(REVISIONS)


class FerryParams(t.RequestParams):
    quay: str


class FerryResult(t.EmptyResult):
    minutes: int


def ferry_method(name: str = "x.test/ferry", **options: Any) -> Method:
    return Method(name, "client", FerryParams, FerryResult, **options)


@pytest.mark.parametrize(
    ("first", "last"), [("2025-03-26", "2025-11-25"), ("2024-11-05", "2026-07-28"), ("2025-06-18", "2025-06-18")]
)
def test_a_method_exists_from_its_first_to_its_last_revision(first: str, last: str) -> None:
    method = ferry_method(first=first, last=last)
    assert [name for name in ALL if method.within(REVISIONS[name])] == [name for name in ALL if first <= name <= last]


def test_methods_without_a_result_are_notifications() -> None:
    assert {name for name, method in METHODS.items() if method.is_notification and name in CORE} == {
        name for name in CORE if name.startswith("notifications/")
    }


@pytest.mark.parametrize(
    ("name_param", "routed_member"), [("", b""), ("uri", b'"uri"'), ("name", b'"name"'), ("task_id", b'"taskId"')]
)
def test_routed_member_is_the_json_name_of_the_name_param(name_param: Any, routed_member: bytes) -> None:
    assert ferry_method(name_param=name_param).routed_member == routed_member


def test_params_and_results_are_validated_each_time() -> None:
    method = ferry_method()
    for _ in range(2):
        assert method.decode_params(b'{"quay":"a"}').quay == "a"
        assert method.decode_result(b'{"minutes":3}').minutes == 3
        with pytest.raises(msgspec.ValidationError):
            method.decode_params(b'{"quay":1}')
        with pytest.raises(msgspec.ValidationError):
            method.decode_result(b'{"minutes":"x"}')
    assert type(Method("notifications/x.test/ferry", "client", FerryParams).decode_result(b"{}")) is t.EmptyResult


def test_an_extension_cannot_replace_a_method_of_the_protocol() -> None:
    for name in CORE:
        with pytest.raises(ValueError, match="is a method of the protocol: choose another name"):
            add_method(ferry_method(name))
        assert METHODS[name].params is not FerryParams


def test_a_method_may_be_added_again_only_unchanged() -> None:
    first = ferry_method("x.test/added", name_param="name")
    try:
        assert add_method(first) is first
        assert METHODS["x.test/added"] is first
        assert add_method(first) is first
        assert add_method(ferry_method("x.test/added", name_param="name")) is first
        with pytest.raises(ValueError, match="is known already, with other params, result or options"):
            add_method(ferry_method("x.test/added"))
        assert METHODS["x.test/added"] is first
    finally:
        METHODS.pop("x.test/added", None)


@pytest.mark.parametrize(
    "other",
    [
        Method("x.test/f", "server", FerryParams, FerryResult),
        Method("x.test/f", "client", t.RequestParams, FerryResult),
        Method("x.test/f", "client", FerryParams, t.EmptyResult),
        Method("x.test/f", "client", FerryParams, FerryResult, first="2025-03-26"),
        Method("x.test/f", "client", FerryParams, FerryResult, last="2025-11-25"),
        Method("x.test/f", "client", FerryParams, FerryResult, name_param="uri"),
        Method("x.test/f", "client", FerryParams, FerryResult, cacheable=True),
        Method("x.test/f", "client", FerryParams, FerryResult, long=True),
    ],
)
def test_methods_are_compared_by_every_field_except_the_capability(other: Method) -> None:
    assert other.spec != ferry_method("x.test/f").spec == ferry_method("x.test/f", capability="not on the wire").spec


def test_extensions_exist_since_2025_11_25() -> None:
    assert EXTENSIONS_FROM == "2025-11-25"


def test_revisions_have_their_order_and_error_codes() -> None:
    assert [rules.order for rules in REVISIONS.values()] == [1, 2, 3, 4, 5]
    assert {rules.resource_not_found for name, rules in REVISIONS.items() if name < "2026"} == {-32002}
    newest = REVISIONS["2026-07-28"]
    assert (newest.resource_not_found, newest.has_capability_error) == (-32602, True)

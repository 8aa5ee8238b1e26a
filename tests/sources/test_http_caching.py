"""The headers about caching are read as RFC 9111 says, and no header raises an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.sources.http_caching import conditional_headers, dated_validator, fresh_seconds


@pytest.mark.parametrize(
    ("control", "age", "seconds"),
    [
        ("", "", None),
        ("private", "", None),
        ("s-maxage=60", "", None),
        ("Max-Age=60", "", 60),
        ('public, max-age="60"', "", 60),
        ("max-age=60", "50", 10),
        ("max-age=60", "70", 0),
        ("max-age=60", "soon", 60),
        ("max-age=60, no-cache", "", 0),
        ('no-cache="set-cookie", max-age=60', "", 0),
        ("no-store", "", 0),
        ("max-age=soon", "", None),
    ],
)
def test_an_answer_is_fresh_for_the_rest_of_its_max_age(control: str, age: str, seconds: int | None) -> None:
    assert fresh_seconds({"cache-control": control, "age": age}) == seconds


@given(st.text(max_size=100), st.text(max_size=100))
def test_any_header_is_read_without_an_error(first: str, second: str) -> None:
    seconds = fresh_seconds({"cache-control": first, "age": second})
    assert seconds is None or seconds >= 0
    assert dated_validator({"last-modified": first, "date": second}) in ("", first.strip())


THEN, LATER = "Tue, 14 Nov 2023 22:13:20 GMT", "Tue, 14 Nov 2023 22:13:21 GMT"


@pytest.mark.parametrize(
    ("last_modified", "date", "validator"),
    [
        (THEN, LATER, THEN),
        (THEN, THEN, ""),
        (LATER, THEN, ""),
        (THEN, "", THEN),
        (THEN, "soon", THEN),
        ("Fri, 14 Nov 2223 22:13:20 GMT", "", ""),
        ("soon", LATER, ""),
        ("", LATER, ""),
    ],
)
def test_a_date_is_a_condition_unless_the_content_could_change_again_in_its_second(
    last_modified: str, date: str, validator: str
) -> None:
    """RFC 9110 §8.8.2.2."""
    assert dated_validator({"last-modified": last_modified, "date": date}) == validator


def test_a_request_has_the_conditions_that_the_answer_allows() -> None:
    assert conditional_headers('"1"', "") == {"if-none-match": '"1"'}
    assert conditional_headers("", "then") == {"if-modified-since": "then"}
    assert conditional_headers("", "") == {}

"""Tables and keys are written to URIs and read back, and invalid URIs are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.sql_database.row_text import unique_names
from wharfinger.sources.sql_database.sql_uris import SqlUris, join_key, quote_part, split_key
from wharfinger.sources.sql_database.sqlite import read_value, write_value
from wharfinger.sources.windows.window import split_query

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
keys = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20), min_size=1, max_size=4
)


@given(names, names, keys)
def test_names_and_keys_are_written_to_a_uri_and_read_back(schema: str, table: str, parts: list[str]) -> None:
    """The URIs have a schema or not, and a key or a query."""
    key = tuple(parts)
    for uris, schema_name in (
        (SqlUris("sqlite://shop", "main"), "main"),
        (SqlUris("postgres://host/shop", None), schema),
    ):
        uri = f"{uris.of_rows(schema_name, table)}/{quote_part(join_key(key))}"
        assert uri.isascii()
        target = uris.read(uri)
        assert (target.kind, target.schema, target.table, target.key) == ("row", schema_name, table, key)
        assert uris.read(uris.of_table(schema_name, table)).table == table
        target = uris.read(uris.of_rows(schema_name, table, "limit=5"))
        assert (target.kind, target.query) == ("rows", "limit=5")


@given(keys)
def test_a_key_is_joined_to_one_text_and_split_again(parts: list[str]) -> None:
    """So no two keys have the same text, also with commas, tildes and empty parts."""
    assert split_key(join_key(tuple(parts))) == tuple(parts)


@given(st.text(max_size=30))
def test_a_text_that_is_a_valid_key_is_joined_to_the_same_text(text: str) -> None:
    try:
        key = split_key(text)
    except ValueError:
        return
    assert join_key(key) == text


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.binary()))
def test_sqlite_values_are_written_as_text_and_read_back(value: object) -> None:
    """The number 17 and the text '17' are different keys."""
    if isinstance(value, str) and any(
        0xD800 <= ord(character) < 0xDC80 or 0xDCFF < ord(character) < 0xE000 for character in value
    ):
        return  # SQLite never returns such a text
    text = write_value(value)
    assert text is not None
    found = read_value(text)
    if isinstance(value, str) and text.startswith("t'"):
        assert isinstance(found, bytes)
        found = found.decode("utf-8", "surrogateescape")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "rest",
    [
        "/",
        "//",
        "//a",
        "/a/b",
        "/a/rows/1/2/3",
        "/%zz",
        "/%",
        "/a%00b",
        "/a/",
        "/a/rows/",
        "/a#b",
        "/%c3%28",
        "/a/rows/~",
        "/a" * 20_000,
    ],
)
def test_an_invalid_table_uri_is_not_found(rest: str) -> None:
    """The error is the same as for a missing table."""
    uris = SqlUris("sqlite://shop", "main")
    if rest == "/":
        assert uris.read(uris.top + rest).kind == "database"
        return
    with pytest.raises(ResourceNotFound):
        uris.read(uris.top + rest)


def test_only_rows_have_windows() -> None:
    """A definition is always read whole."""
    with pytest.raises(InvalidArgument):
        SqlUris("sqlite://shop", "main").read("sqlite://shop/a?limit=5")
    assert split_query("sqlite://shop/a/rows?limit=5")[1] == {"limit": "5"}


def test_column_names_are_made_unique() -> None:
    assert unique_names(["a", "a", "a_2", "a"]) == ["a", "a_3", "a_2", "a_4"]
    assert unique_names(["", ""]) == ["", "_2"]

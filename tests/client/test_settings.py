"""The options of a client: their names, their defaults, and what is refused."""

from __future__ import annotations

import typing
from typing import Any, cast

import msgspec
import pytest

from wharfinger.client import Client, ClientOptions, Retry
from wharfinger.client.settings import Settings, settings_of

URL = "http://127.0.0.1:1/mcp"


def test_every_option_has_a_setting_of_its_name_and_the_declared_capabilities_are_no_option() -> None:
    settings = {field.name for field in msgspec.structs.fields(Settings)}
    assert settings - typing.get_type_hints(ClientOptions).keys() == {"capabilities"}
    assert typing.get_type_hints(ClientOptions).keys() <= settings


def test_an_option_that_is_none_has_its_default() -> None:
    optional = {
        name: None for name, kind in typing.get_type_hints(ClientOptions).items() if type(None) in typing.get_args(kind)
    }
    assert {"info", "headers", "retry", "revision"} <= optional.keys()
    assert settings_of(cast("ClientOptions", optional)) == Settings()


def test_later_changes_of_headers_and_variables_do_not_reach_the_client() -> None:
    headers, variables = {"X-User": "ann"}, {"CHARTS": "ann"}
    settings = settings_of({"headers": headers, "env": variables})
    headers["X-User"] = variables["CHARTS"] = "bob"
    assert (settings.headers, settings.env) == ({"X-User": "ann"}, {"CHARTS": "ann"})


@pytest.mark.parametrize("cache", [None, False])
def test_no_cache_is_made_for_a_value_other_than_true(cache: Any) -> None:
    assert Client(URL, cache=cache)._session._cache is None
    assert Client(URL)._session._cache is not None


def test_options_that_are_false_or_zero_count() -> None:
    settings = settings_of({"cache": False, "validate": False, "timeout": 0.0, "max_pages": 0})
    assert (settings.cache, settings.validate, settings.timeout, settings.max_pages) == (False, False, 0.0, 0)


@pytest.mark.parametrize(
    ("name", "hint"), [("timeuot", r"did you mean 'timeout'\?"), ("capabilities", "there are allow_address, auth")]
)
def test_an_unknown_option_is_refused_with_the_nearest_one_or_all(name: str, hint: str) -> None:
    options: dict[str, Any] = {"retry": Retry(), name: 3}
    with pytest.raises(TypeError, match=f"^A client has no option '{name}': {hint}"):
        Client(URL, **options)

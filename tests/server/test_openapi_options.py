"""The options of `Server.from_openapi` are those of the functions that it calls."""

from __future__ import annotations

import inspect
import typing

from wharfinger import Server
from wharfinger.server.openapi_options import OpenApiOptions, OpenApiServerOptions
from wharfinger.sources import openapi


def keyword_types(function: object) -> dict[str, object]:
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    return {name: each.annotation for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}


def annotations_of(options: type) -> dict[str, object]:
    return {name: annotation.__forward_arg__ for name, annotation in options.__annotations__.items()}


def test_the_options_are_those_of_openapi_with_the_same_types() -> None:
    expected = keyword_types(openapi)
    del expected["app"]
    assert annotations_of(OpenApiOptions) == expected


def test_from_fastapi_takes_all_options_of_from_openapi() -> None:
    own = keyword_types(Server.from_openapi)
    del own["app"]
    assert annotations_of(OpenApiServerOptions) == {**annotations_of(OpenApiOptions), **own}
    assert typing.get_type_hints(OpenApiServerOptions)["tools"] is bool

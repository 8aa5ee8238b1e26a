"""Resources: registration, lists, reads in every revision, templates, and errors."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import enum
import functools
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from annotated_types import Le
from pydantic import Field

from tests.server.driving import ALL, ERAS, HANDSHAKE, META, STATELESS, Wire, ask, list_all, make_request, read
from wharfinger import Client
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, PermissionDenied, ResourceNotFound
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.protocol.uri.template_index import AmbiguousTemplate
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.features.resource import ResourceFeature
from wharfinger.server.features.resources import Content
from wharfinger.server.signature.complete import Complete
from wharfinger.source import Hit, Source

PNG = b"\x89PNG\r\n\x1a\n\0\0"


async def calm() -> str:
    """Today's weather.

    More of it.
    """
    return "calm"


# -- lists


@pytest.mark.parametrize("revision", ALL)
async def test_a_resource_is_listed_with_all_its_registered_fields(revision: str) -> None:
    server = Server("s")
    server.resources.add(
        "weather://today",
        calm,
        name="today",
        title="Today",
        mime_type="text/plain",
        size=4,
        annotations=t.Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z"),
        icons=[t.Icon(src="https://example.test/i.png", sizes=["48x48"])],
        meta={"example.test/k": 1},
    )
    server.resources.add("weather://{day}", lambda day: day, title="A day", description="Any day.")
    assert await list_all(server, revision=revision) == [
        {
            "uri": "weather://today",
            "name": "today",
            "title": "Today",
            "description": "Today's weather.",
            "mimeType": "text/plain",
            "size": 4,
            "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"},
            "icons": [{"src": "https://example.test/i.png", "sizes": ["48x48"]}],
            "_meta": {"example.test/k": 1},
        }
    ]
    assert await list_all(server, "resources/templates/list", revision) == [
        {"uriTemplate": "weather://{day}", "name": "<lambda>", "title": "A day", "description": "Any day."}
    ]


async def test_callable_annotations_are_called_for_every_list(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    calls: list[int] = []

    def annotations() -> t.Annotations:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("hunter2")
        return t.Annotations(priority=len(calls) / 10)

    server.resource("weather://today", name="w", annotations=annotations)(calm)
    server.resource("weather://{day}", name="w", annotations=annotations)(lambda day: day)
    assert [(await list_all(server))[0]["annotations"] for _ in range(2)] == [{"priority": 0.1}, {"priority": 0.2}]
    # If the function raises, the list omits the annotations and the log has the error.
    assert (await list_all(server))[0].keys() == {"uri", "name", "description"}
    assert "'w'" in caplog.text
    assert (await list_all(server, "resources/templates/list"))[0]["annotations"] == {"priority": 0.4}


def caching_hints(answer: Any) -> tuple[Any, Any]:
    return answer["result"].get("ttlMs"), answer["result"].get("cacheScope")


async def test_caching_hints_default_to_those_of_the_server_and_are_sent_only_in_the_stateless_revision() -> None:
    server = Server("s", ttl=60, cache_scope="public")
    server.resources.add("a:own", calm, ttl=0.5, cache_scope="private")
    server.resources.add("a:none", calm)
    server.resources.add("a:never", calm, ttl=0)
    server.resources.add("a:{x}", lambda x: x, ttl=1)

    def result(**caching: Any) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri="x:", text="")], **caching)

    server.resources.add("b:zero", lambda: result(ttl_ms=0, result_type="complete"))
    server.resources.add("b:silent", result)
    server.include(CachingSource(result))
    expected_hints = {
        "a:own": (500, "private"),
        "a:none": (60_000, "public"),
        "a:never": (0, "public"),
        "a:1": (1000, "public"),
        "b:zero": (0, "public"),
        "b:silent": (60_000, "public"),
        "shelf:silent": (60_000, "public"),
        "shelf:own": (5, "private"),
    }
    for uri, expected in expected_hints.items():
        answer = await ask(server, "resources/read", {"uri": uri})
        assert (uri, caching_hints(answer)) == (uri, expected)
        assert answer["result"]["_meta"] == {f"{META}serverInfo": {"name": "s", "version": "0"}}
        for revision in HANDSHAKE:
            assert (await ask(server, "resources/read", {"uri": uri}, revision))["result"].keys() == {"contents"}
    for method in ("resources/list", "resources/templates/list"):
        assert caching_hints(await ask(server, method)) == (60_000, "public")
        assert caching_hints(await ask(server, method, revision="2025-11-25")) == (None, None)


class CachingSource(Source):
    """A source whose results have caching hints for one URI and none for others."""

    def __init__(self, result: Callable[..., t.ReadResourceResult]) -> None:
        self.result = result

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf:")

    def read(self, uri: str) -> t.ReadResourceResult:
        return self.result(ttl_ms=5, cache_scope="private") if uri == "shelf:own" else self.result()


# -- reading


class Struct(msgspec.Struct):
    depth: int


@dataclasses.dataclass
class Data:
    depth: int


class Tide(enum.StrEnum):
    LOW = "low"


async def chunks() -> AsyncIterator[bytes]:
    yield b"one "
    yield b"two"


class Chunks:
    """An async iterator that is not a generator."""

    def __init__(self) -> None:
        self.left = [b"b", b"a"]

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop()


def text(value: str, mime_type: str = "text/plain", **fields: Any) -> list[dict[str, Any]]:
    return [{"uri": "x:y", "mimeType": mime_type, "text": value, **fields}]


def blob(value: bytes, mime_type: str = "application/octet-stream") -> list[dict[str, Any]]:
    return [{"uri": "x:y", "mimeType": mime_type, "blob": base64.b64encode(value).decode()}]


EXPLICIT_CONTENTS = t.ResourceContents(uri="x:z", text="as it is")
RETURN_VALUES: list[tuple[Any, str | None, list[dict[str, Any]]]] = [
    ("calm", None, text("calm")),
    ("", None, text("")),
    ("# calm", "text/markdown", text("# calm", "text/markdown")),
    (Tide.LOW, None, text("low")),
    (b"calm", None, text("calm")),
    (b"", None, text("")),
    (bytearray(b"\xff"), None, blob(b"\xff")),
    (memoryview(b"\0a"), None, blob(b"\0a")),
    (PNG, "image/png", blob(PNG, "image/png")),
    (b"\xff", "text/plain", blob(b"\xff", "text/plain")),
    (b"{}", "application/json; charset=utf-8", text("{}", "application/json; charset=utf-8")),
    (b"<svg/>", "image/svg+xml", text("<svg/>", "image/svg+xml")),
    ({"a": [1]}, None, text('{"a":[1]}', "application/json")),
    ([], None, text("[]", "application/json")),
    (["a"], "application/x-names", text('["a"]', "application/x-names")),
    (7, None, text("7", "application/json")),
    (Struct(3), None, text('{"depth":3}', "application/json")),
    (Data(3), None, text('{"depth":3}', "application/json")),
    (Content("a"), None, text("a")),
    (Content({"a": 1}, mime_type="x/y+json", meta={"k": 1}), None, text('{"a":1}', "x/y+json", _meta={"k": 1})),
    ([Content("a"), Content(b"\xff", uri="x:z")], "x/y", [*text("a", "x/y"), blob(b"\xff", "x/y")[0] | {"uri": "x:z"}]),
    (EXPLICIT_CONTENTS, None, [{"uri": "x:z", "text": "as it is"}]),
    (t.ReadResourceResult(contents=[EXPLICIT_CONTENTS]), None, [{"uri": "x:z", "text": "as it is"}]),
    (t.ReadResourceResult(contents=[]), None, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "mime_type", "expected"), RETURN_VALUES, ids=lambda case: repr(case).partition(" at 0x")[0][:30]
)
@pytest.mark.parametrize("revision", ERAS)
async def test_return_values_become_contents(revision: str, value: Any, mime_type: Any, expected: Any) -> None:
    server = Server("s")
    server.resources.add("x:y", lambda: value, mime_type=mime_type, inline=True)
    assert await read(server, "x:y", revision) == expected


async def test_async_iterators_are_joined() -> None:
    server = Server("s")
    server.resource("x:y")(chunks)
    server.resource("x:class", inline=True)(Chunks)
    server.resource("x:in-thread")(lambda: chunks())
    assert await read(server, "x:y") == text("one two")
    assert (await read(server, "x:class"))[0]["text"] == "ab"
    assert (await read(server, "x:in-thread"))[0]["text"] == "one two"


async def test_a_returned_path_is_read_and_a_missing_file_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\0")
    server = Server("s")
    server.resource("x:y")(lambda: tmp_path / "a")
    server.resource("x:gone")(lambda: tmp_path / "gone")
    server.resource("x:directory")(lambda: tmp_path)
    assert await read(server, "x:y") == blob(b"\xff\0")
    gone = await read(server, "x:gone")
    assert (gone["code"], gone["data"]) == (-32602, {"uri": "x:gone"})
    assert (await read(server, "x:directory"))["code"] == -32603
    assert str(tmp_path) not in str(gone)


@pytest.mark.parametrize(
    "value",
    [
        None,
        object(),
        {1, 2, object()},
        [Content("a"), "b"],
        t.ResourceContents(uri="x:y"),
        t.ReadResourceResult(contents=[t.ResourceContents(uri="x:y", text="", blob=b"")]),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_value_that_cannot_be_encoded_returns_an_internal_error(value: Any) -> None:
    server = Server("s")
    server.resources.add("x:y", lambda: value, inline=True)
    assert (await read(server, "x:y"))["code"] == -32603


async def test_a_pydantic_model_is_read_as_json() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", depth=(int, ...))
    server = Server("s")
    server.resources.add("x:y", lambda: model(depth=3))
    assert await read(server, "x:y") == text('{"depth":3}', "application/json")


# -- templates


@pytest.mark.parametrize("revision", ERAS)
async def test_variables_are_converted_and_invalid_values_are_not_found(revision: str) -> None:
    server = Server("s")

    @server.resource("log://{vessel}/{day}")
    async def log(vessel: str, day: int) -> str:
        return f"{vessel!r} {day + 1}"

    @server.resource("file://{+path}")
    def file(path: Path) -> str:
        return repr(path)

    @server.resource("lane://{number}")
    def lane(number: Annotated[int, msgspec.Meta(le=4), Complete(["1"])]) -> str:
        return str(number)

    @server.resource("berth://{name}/{meters}")
    def berth(name: Annotated[str, Field(max_length=3)], meters: Annotated[int, Le(9)]) -> str:
        return f"{name} {meters}"

    @server.resource("all://{?tags*}")
    def all_of(tags: list[int] | None = None) -> Any:
        return tags

    assert (await read(server, "log://mary/6", revision))[0]["text"] == "'mary' 7"
    assert (await read(server, "log://m%20y/6", revision))[0]["text"] == "'m y' 7"
    assert "a/b" in (await read(server, "file://a/b", revision))[0]["text"]
    assert (await read(server, "lane://4", revision))[0]["text"] == "4"
    assert (await read(server, "berth://abc/9", revision))[0]["text"] == "abc 9"
    beyond = ("lane://5", "berth://abcd/9", "berth://abc/10")
    for uri in ("log://mary/x", "log://mary/6.5", "log://mary/", *beyond):
        error = await read(server, uri, revision)
        assert error["code"] == (-32602 if revision == STATELESS else -32002)
        assert error["data"] == {"uri": uri}


def file_server(folder: Path) -> Server:
    """Return a server whose templates open paths, as in the documentation."""
    (folder / "notes").mkdir()
    (folder / "notes" / "a.md").write_text("inside")
    (folder / "secret").write_text("outside")
    server = Server("s")

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return (folder / "notes" / name).read_text()

    @server.resource("tree://{+path}")
    async def tree(path: str) -> str:
        return (folder / "notes" / path).read_text()

    @server.resource("parts://x{/parts*}")
    async def parts(parts: list[str]) -> str:
        return (folder / "notes" / "/".join(parts)).read_text()

    @server.read_resource("raw://{+path}", allow_traversal=True)
    async def raw(path: str) -> str:
        return path

    return server


TRAVERSALS = [
    "../secret",
    "..%2Fsecret",
    "%2e%2e%2fsecret",
    "..%5Csecret",
    "%2Fetc%2Fhostname",
    "/etc/hostname",
    "a.md%00",
    "./a.md",
]
"""Paths out of the folder, and invalid paths of a file in it."""


@pytest.mark.parametrize("revision", ERAS)
async def test_a_path_that_leaves_its_folder_is_not_found(revision: str, tmp_path: Path) -> None:
    """Regression: `{name}` matched escaped separators in the URI."""
    server = file_server(tmp_path)
    for uri in ("notes://a.md", "tree://a.md", "parts://x/a.md"):
        assert (await read(server, uri, revision))[0]["text"] == "inside"
    for path in TRAVERSALS:
        for prefix in ("notes://", "tree://", "parts://x/"):
            error = await read(server, prefix + path, revision)
            assert error["code"] == (-32602 if revision == STATELESS else -32002), prefix + path
    assert (await read(server, "raw:///a/../b%2Fc", revision))[0]["text"] == "/a/../b/c"


async def test_a_uri_refused_by_one_template_is_read_by_the_next() -> None:
    server = Server("s")
    server.resources.add("a://x/{name}", lambda name: "part")
    server.resources.add("a://{+path}", lambda path: "path")
    server.resources.add("{+every}", lambda every: "all", allow_traversal=True)
    for uri, expected in (("a://x/y", "part"), ("a://x/y/z", "path"), ("a://x/y%2Fz", "all"), ("a://x/..", "all")):
        assert (await read(server, uri))[0]["text"] == expected


@pytest.mark.parametrize("uri", ["a://{name}", "a://x", "a://x{/path*}{?q}"])
def test_allow_traversal_is_refused_for_templates_without_reserved_expansion(uri: str) -> None:
    server = Server("s")
    with pytest.raises(ValueError, match="allow_traversal"):
        server.resources.add(uri, lambda name="", path="", q="": "", allow_traversal=True)
    with pytest.raises(ValueError, match="allow_traversal"):
        server.read_resource(uri, allow_traversal=True)(lambda name="", path="", q="": "")


async def test_the_client_expands_a_traversal_that_the_server_refuses(tmp_path: Path) -> None:
    async with Client(file_server(tmp_path)) as client:
        template = client.template("notes://{name}")
        assert await template.uri(name="../secret") == "notes://..%2Fsecret"
        with pytest.raises(ResourceNotFound):
            await template.read(name="../secret")
        assert (await template.read(name="a.md")).text == "inside"


async def test_static_resources_take_precedence_over_templates_and_specific_templates_over_general_ones() -> None:
    server = Server("s")
    server.resources.add("a:{x}/{y}", lambda x, y: "two")
    server.resources.add("a:b/{y}", lambda y: "one")
    server.resources.add("a:b/c", lambda: "none")
    assert [(await read(server, uri))[0]["text"] for uri in ("a:b/c", "a:b/d", "a:d/d")] == ["none", "one", "two"]


def test_an_ambiguous_template_is_refused_with_an_error_that_names_both() -> None:
    server = Server("s")
    server.resources.add("a:{x}/b", lambda x: "")
    with pytest.raises(AmbiguousTemplate) as caught:
        server.resources.add("a:{y}/b", lambda y: "")
    assert "a:{x}/b" in str(caught.value)
    assert "a:{y}/b" in str(caught.value)
    assert [feature.definition.name for feature in server.resources.templates] == ["<lambda>"]


@pytest.mark.parametrize("uri", ["a:b", "a:{x}"])
def test_registering_a_uri_twice_is_refused(uri: str) -> None:
    server = Server("s")
    server.resources.add(uri, lambda **_: "")
    with pytest.raises(ValueError, match="is registered already") as caught:
        server.resources.add(uri, lambda **_: "")
    assert uri in str(caught.value)


@pytest.mark.parametrize("uri", ["", "today", "a b:c", "a:b c", "1a:b", "a:" + "b" * 9000, "a:\n"])
def test_an_invalid_uri_cannot_be_registered(uri: str) -> None:
    with pytest.raises(ValueError, match="URI"):
        Server("s").resources.add(uri, lambda: "")


def test_a_template_accepts_no_size_and_the_decorator_requires_a_uri() -> None:
    with pytest.raises(ValueError, match="size"):
        Server("s").resources.add("a:{x}", lambda x: x, size=3)
    with pytest.raises(TypeError, match="needs its URI"):
        Server("s").resource(calm)  # type: ignore[arg-type]


async def test_a_removed_resource_is_not_found_and_may_be_added_again() -> None:
    server = Server("s")
    server.resources.add("a:b", lambda: "first")
    server.resources.add("a:{x}", lambda x: "second")
    server.resources.add_unlisted("c:{x}", lambda x: "third")
    assert (await read(server, "c:d"))[0]["text"] == "third"
    assert len(await list_all(server)) == len(await list_all(server, "resources/templates/list")) == 1
    server.resources.remove("a:b")
    assert (await read(server, "a:b"))[0]["text"] == "second"
    server.resources.remove("a:{x}")
    assert (await read(server, "a:b"))["code"] == -32602
    for uri in ("a:b", "a:{x}"):
        with pytest.raises(KeyError, match="There is no"):
            server.resources.remove(uri)
    server.resources.remove("c:{x}")
    assert (await read(server, "c:d"))["code"] == -32602
    assert await list_all(server) == await list_all(server, "resources/templates/list") == []
    server.resources.add("a:{x}", lambda x: "again")
    assert (await read(server, "a:b"))[0]["text"] == "again"


# -- missing resources, and failures


@pytest.mark.parametrize("revision", ALL)
async def test_an_empty_server_has_no_resource_methods(revision: str) -> None:
    server = Server("s")
    for method, params in (
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "a:b"}),
        ("resources/subscribe", {"uri": "a:b"}),
        ("resources/unsubscribe", {"uri": "a:b"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}),
    ):
        assert (await ask(server, method, params, revision))["error"]["code"] == -32601
    assert server.capabilities(REVISIONS[revision]).resources is msgspec.UNSET


@pytest.mark.parametrize("revision", ALL)
async def test_missing_and_forbidden_resources_return_the_same_error(revision: str) -> None:
    server = Server("s")
    server.resources.add("a:b", calm)

    @server.resource("secret:{x}")
    async def secret(x: str) -> str:
        raise PermissionDenied(f"{x} is for ann alone")

    @server.resource("raises:{x}")
    def raises(x: str) -> str:
        raise ResourceNotFound(f"raises:{x}")

    code = -32602 if revision == STATELESS else -32002
    for uri, suggestion in (
        ("a:c", ""),
        ("secret:x", ""),
        ("raises:x", ""),
        ("Z:é", ""),
        ("a:B", ". Did you mean a:b?"),
    ):
        expected = {"code": code, "message": f"Resource not found: {uri}{suggestion}", "data": {"uri": uri}}
        assert await read(server, uri, revision) == expected


@pytest.mark.parametrize("uri", ["", "today", "a b:c", "a:b c", "../etc/passwd", "a:" + "b" * 9000, "a:\n", "://x"])
async def test_an_invalid_uri_is_an_invalid_param(uri: str) -> None:
    server = Server("s")
    server.resources.add("{+anything}", lambda anything: "")
    for revision in ALL:
        error = await read(server, uri, revision)
        assert (error["code"], "data" in error) == (-32602, False)


@pytest.mark.parametrize("revision", ALL)
async def test_an_error_of_a_handler_is_sent_without_its_details(revision: str) -> None:
    server = Server("s")

    @server.resource("a:async")
    async def fails() -> str:
        raise RuntimeError("hunter2")

    @server.resource("a:sync")
    def fails_in_thread() -> str:
        raise KeyError("hunter2")

    @server.resource("a:told")
    def refuses() -> str:
        raise InvalidArgument("Ask on a Monday.")

    for uri in ("a:async", "a:sync"):
        error = await read(server, uri, revision)
        assert error["code"] == -32603
        assert "hunter2" not in str(error)
    assert await read(server, "a:told", revision) == {"code": -32602, "message": "Ask on a Monday."}


# -- dynamic catalogues and sources


class Fleet(Source):
    """A source whose methods are sync functions."""

    templates = (t.ResourceTemplate(uri_template="ship:{name}", name="ship"),)

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.on_main_thread: list[bool] = []

    def matches(self, uri: str) -> bool:
        return uri.startswith("ship:")

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        self.on_main_thread.append(threading.current_thread() is threading.main_thread())
        names = sorted(name for name in self.names if after is None or name > after)
        resources = [t.Resource(uri=f"ship:{name}", name=name) for name in names[:limit]]
        return resources, names[limit - 1] if len(names) > limit else None

    def stat(self, uri: str) -> t.Resource:
        if uri[5:] not in self.names:
            raise ResourceNotFound(uri)
        return t.Resource(uri=uri, name=uri[5:])

    def read(self, uri: str) -> t.ReadResourceResult:
        self.stat(uri)
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text=uri[5:])])

    def search(self, query: str, limit: int) -> list[Hit]:
        return [Hit(uri=f"ship:{name}", title=name) for name in self.names if query in name]


@pytest.mark.parametrize("revision", ALL)
async def test_a_source_lists_and_reads_in_worker_threads(revision: str) -> None:
    server = Server("s", page_size=2)
    fleet = Fleet(["ann", "bob", "cat"])
    server.include(fleet)
    server.resources.add("a:b", calm)
    assert [r["uri"] for r in await list_all(server, revision=revision)] == ["a:b", "ship:ann", "ship:bob", "ship:cat"]
    assert [r["name"] for r in await list_all(server, "resources/templates/list", revision)] == ["ship"]
    assert (await read(server, "ship:ann", revision))[0]["text"] == "ann"
    assert (await read(server, "ship:dan", revision))["data"] == {"uri": "ship:dan"}
    assert not any(fleet.on_main_thread)


async def test_a_catalogue_lists_resources_that_are_not_registered() -> None:
    server = Server("s")

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        for number in range(3):
            yield t.Resource(uri=f"db://row/{number}", name=str(number))

    @server.read_resource("db://{+rest}")
    async def row(rest: str) -> dict[str, str]:
        return {"rest": rest}

    assert [r["uri"] for r in await list_all(server)] == ["db://row/0", "db://row/1", "db://row/2"]
    assert await list_all(server, "resources/templates/list") == []
    assert (await read(server, "db://row/2"))[0]["text"] == '{"rest":"row/2"}'


def test_a_catalogue_that_is_not_an_async_generator_is_refused() -> None:
    async def returns() -> list[t.Resource]:
        return []

    def yields() -> Any:
        yield 1

    for function in (returns, yields, functools.partial(returns)):
        with pytest.raises(TypeError, match="async generator"):
            Server("s").list_resources(function)  # type: ignore[arg-type]


def test_a_plain_generator_is_refused_also_for_an_unlisted_template() -> None:
    def rows(path: str) -> Any:
        yield path

    for register in (Server("s").resource("db://{path}"), Server("s").read_resource("db://{path}")):
        with pytest.raises(TypeError, match=r"rows\(\) .* is a generator"):
            register(rows)


async def test_search_returns_registered_resources_before_those_of_sources() -> None:
    server = Server("s")
    server.resources.add("a:b", calm, title="Annual report")
    server.resources.add("a:c", calm, name="other")
    server.include(Fleet(["ann", "anna", "bob"]))
    request = make_request(server, "resources/list")
    search = server.resources.search
    assert [hit.uri for hit in await search(request, "ann", 10)] == ["a:b", "ship:ann", "ship:anna"]
    assert [hit.uri for hit in await search(request, "REPORT annual", 10)] == ["a:b"]
    assert [hit.uri for hit in await search(request, "ann", 2)] == ["a:b", "ship:ann"]


# -- scaling


def test_registering_resources_takes_linear_time(caplog: pytest.LogCaptureFixture) -> None:
    """Twice as many resources need about twice as many function calls."""
    caplog.set_level(logging.ERROR)

    def count_calls(number: int) -> int:
        server, calls = Server("s"), 0

        def count(*_: Any) -> None:
            nonlocal calls
            calls += 1

        for n in range(10):
            server.resources.add(f"warm:{n}", calm)
        sys.setprofile(count)
        for n in range(number):
            server.resources.add(f"a:{n}", calm)
        sys.setprofile(None)
        return calls

    assert count_calls(1000) < 2.1 * count_calls(500)


async def test_ten_thousand_resources_are_listed_page_by_page() -> None:
    server = Server("s")
    server.resources.add("a:0", calm)
    call = server.resources.static.by_key["a:0"].call
    uris = [f"a:{number}" for number in range(10_000)]
    for uri in uris[1:]:
        server.resources.static.add(uri, ResourceFeature(t.Resource(uri=uri, name=uri), call))
    assert [r["uri"] for r in await list_all(server)] == uris
    assert (await read(server, "a:9999"))[0]["text"] == "calm"


async def test_a_disabled_resource_or_template_is_hidden_until_it_is_enabled() -> None:
    server = Server("s")
    for name in "abc":
        server.resources.add(f"x://{name}", lambda: "text")
    server.resources.add("log://{day}", lambda day: day)
    for uri, read_uri, method in (
        ("x://b", "x://b", "resources/list"),
        ("log://{day}", "log://1", "resources/templates/list"),
    ):
        before = await list_all(server, method)
        assert isinstance(await read(server, read_uri), list)
        server.resources.disable(uri)
        server.resources.disable(uri)
        assert len(await list_all(server, method)) == len(before) - 1
        assert (await read(server, read_uri))["code"] == -32602
        server.resources.enable(uri)
        server.resources.enable(uri)
        assert await list_all(server, method) == before
        assert isinstance(await read(server, read_uri), list)
        server.resources.disable(uri)
        server.resources.remove(uri)
        for change in (server.resources.enable, server.resources.disable, server.resources.remove):
            with pytest.raises(KeyError):
                change(uri)


async def test_a_disabled_unlisted_template_cannot_be_read_until_it_is_enabled() -> None:
    """A bug: there was no such template, although it can be removed."""
    part, server = Server("part"), Server("s")
    part.read_resource("log://{day}")(lambda day: day)
    server.include(part)
    for owner in (server, part):
        owner.resources.disable("log://{day}")
        owner.resources.disable("log://{day}")
        assert (await read(server, "log://1"))["code"] == -32602
        assert isinstance(await read(part, "log://1"), list) == (owner is server)
        owner.resources.enable("log://{day}")
        owner.resources.enable("log://{day}")
        assert (await read(server, "log://1"))[0]["text"] == "1"
        assert (await read(part, "log://1"))[0]["text"] == "1"


async def test_a_template_that_became_ambiguous_stays_disabled() -> None:
    server = Server("s")
    server.read_resource("log://{day}")(lambda day: "unlisted")
    server.resources.disable("log://{day}")
    server.resources.add("log://{hour}", lambda hour: "listed")
    with pytest.raises(ValueError, match="as specific"):
        server.resources.enable("log://{day}")
    assert (await read(server, "log://1"))[0]["text"] == "listed"
    server.resources.remove("log://{hour}")
    server.resources.enable("log://{day}")
    assert (await read(server, "log://1"))[0]["text"] == "unlisted"


# -- limits and failures


class Blob:
    """A stored blob with this many bytes: 0, 1, 2, …."""

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        return bytes(range(256))[offset : min(offset + length, self.size)]


async def test_a_stored_blob_is_loaded_up_to_the_content_limit() -> None:
    class Store(Source):
        def matches(self, uri: str) -> bool:
            return uri.startswith("store:")

        def read(self, uri: str) -> t.ReadResourceResult:
            blob = t.stored_blob(Blob(int(uri[6:])))
            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, blob=blob)])

    server = Server("s", limits=Limits(content=20))
    server.include(Store())
    (content,) = await read(server, "store:20")
    assert base64.b64decode(content["blob"]) == bytes(range(20))
    error = await read(server, "store:21")
    assert error["message"] == "This resource is over the server's limit for one content (limits.content)."


async def test_a_file_is_read_up_to_the_content_limit(tmp_path: Path) -> None:
    """`Limits.content`: a bug: a path that a function returns was read whole, whatever the size of its file."""
    server = Server("s", limits=Limits(content=20))

    @server.resource("file:{size}")
    def file(size: int) -> Path:
        (tmp_path / "file").write_bytes(b"x" * size)
        return tmp_path / "file"

    @server.resource("process:limits")
    def limits() -> Path:
        return Path("/proc/self/limits")  # reports 0 bytes

    assert (await read(server, "file:20"))[0]["text"] == "x" * 20
    for uri in ("file:21", "process:limits"):
        error = await read(server, uri)
        assert error["message"] == "This resource is over the server's limit for one content (limits.content)."


async def test_yielded_chunks_are_joined_up_to_the_content_limit() -> None:
    server = Server("s", limits=Limits(content=20))

    @server.resource("a:{size}")
    async def chunks(size: int) -> AsyncIterator[bytes]:
        for _ in range(2):
            yield b"x" * (size // 2)

    assert (await read(server, "a:20"))[0]["text"] == "x" * 20
    assert "limits.content" in (await read(server, "a:22"))["message"]

    @server.resource("b:text")
    async def texts() -> AsyncIterator[Any]:
        yield "text"

    assert (await read(server, "b:text"))["code"] == -32603


async def test_a_uri_may_have_up_to_8192_characters() -> None:
    server = Server("s")
    server.resources.add("a:{+rest}", lambda rest: str(len(rest)))
    assert (await read(server, "a:" + "x" * 8190))[0]["text"] == "8190"
    assert await read(server, "a:" + "x" * 8191) == {
        "code": -32602,
        "message": "A URI may have at most 8192 characters.",
    }
    server.resources.add("b:" + "x" * 8190, calm)
    assert (await read(server, "b:" + "x" * 8190))[0]["text"] == "calm"
    with pytest.raises(ValueError, match="8192"):
        server.resources.add("b:" + "x" * 8191, calm)


async def test_ttl_is_sent_in_milliseconds() -> None:
    server = Server("s", ttl=2.0, cache_scope="public")
    server.resources.add("a:own", calm, ttl=7.0)
    server.resources.add("a:none", calm)
    server.resources.add("a:mine", calm, cache_scope="private")
    server.read_resource("b:{x}")(lambda x: x)
    answers = {
        uri: caching_hints(await ask(server, "resources/read", {"uri": uri})) for uri in ("a:own", "a:none", "a:mine")
    }
    assert answers == {"a:own": (7000, "public"), "a:none": (2000, "public"), "a:mine": (2000, "private")}
    assert caching_hints(await ask(server, "resources/read", {"uri": "b:x"})) == (2000, "public")


async def test_a_template_refused_as_a_duplicate_does_not_change_the_first() -> None:
    server = Server("s")
    server.resources.add("a:{x}", lambda x: x)
    server.resources.disable("a:{x}")
    with pytest.raises(ValueError, match="registered already"):
        server.resources.add("a:{x}", lambda x: "other")
    assert (await read(server, "a:y"))["code"] == -32602
    server.resources.enable("a:{x}")
    assert (await read(server, "a:y"))[0]["text"] == "y"


async def test_a_disabled_template_keeps_its_text_from_the_other_kind_of_template() -> None:
    """A bug: disabling or removing the disabled template then took the other one away from reads."""
    server = Server("s")
    server.resources.add("a:{x}", lambda x: "listed")
    server.resources.add_unlisted("b:{x}", lambda x: "unlisted")
    for text, add in (("a:{x}", server.resources.add_unlisted), ("b:{x}", server.resources.add)):
        server.resources.disable(text)
        with pytest.raises(ValueError, match="registered already"):
            add(text, lambda x: "other")
        server.resources.enable(text)
    assert (await read(server, "a:y"))[0]["text"] == "listed"
    assert (await read(server, "b:y"))[0]["text"] == "unlisted"


async def test_an_unlisted_template_may_be_removed_and_added_again() -> None:
    server = Server("s")
    for answer in ("one", "two"):
        server.read_resource("a:{x}")(lambda x, answer=answer: answer)
        assert (await read(server, "a:y"))[0]["text"] == answer
        server.resources.remove("a:{x}")
        with pytest.raises(KeyError):
            server.resources.remove("a:{x}")


async def test_adding_sources_and_catalogues_reports_a_list_change() -> None:
    server = Server("s")
    server.resources.add("a:b", calm)
    changes: list[str] = []
    server.watching.list_changed = changes.append  # type: ignore[method-assign,assignment]
    server.include(Fleet(["ann"]))
    assert changes == ["resources"]

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        yield t.Resource(uri="db:1", name="1")

    assert changes == ["resources", "resources"]


async def test_the_repr_of_a_coroutine_is_an_error_and_other_text_is_read_unchanged() -> None:
    server = Server("s")
    server.resources.add("a:signs", lambda: "1 < 2, a <b> and object at 0x1")
    server.resources.add("a:coroutine", lambda: coroutine_text())

    async def direct() -> str:
        return coroutine_text()

    server.resources.add("a:direct", direct)
    assert (await read(server, "a:signs"))[0]["text"].startswith("1 < 2")
    for uri in ("a:coroutine", "a:direct"):
        assert (await read(server, uri))["code"] == -32603


def coroutine_text() -> str:
    coroutine = calm()
    coroutine.close()
    return repr(coroutine)


async def test_a_read_resource_result_may_override_one_caching_hint() -> None:
    server = Server("s", ttl=2.0, cache_scope="private")

    def result(**caching: Any) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b", text="x")], **caching)

    server.resources.add("a:none", lambda: result())
    server.resources.add("a:time", lambda: result(ttl_ms=5))
    server.resources.add("a:scope", lambda: result(cache_scope="public"))
    server.resources.add("a:type", lambda: result(result_type="complete"))
    hints_by_name = {
        name: caching_hints(await ask(server, "resources/read", {"uri": f"a:{name}"}))
        for name in ("none", "time", "scope")
    }
    assert hints_by_name == {"none": (2000, "private"), "time": (5, "private"), "scope": (2000, "public")}
    for uri in ("a:none", "a:time", "a:scope", "a:type"):
        older_result = (await ask(server, "resources/read", {"uri": uri}, "2025-11-25"))["result"]
        assert set(older_result) == {"contents"}
    server.resources.add("a:odd", lambda: t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b")]))
    assert (await read(server, "a:odd"))["code"] == -32603


async def test_a_list_of_contents_keeps_their_uris_and_types() -> None:
    server = Server("s")
    server.resources.add(
        "a:list", lambda: [Content("x"), Content(b"y", uri="a:2", mime_type="text/x-y", meta={"k": 1})]
    )
    server.resources.add("a:mixed", lambda: [Content("x"), "y"])
    server.resources.add("a:empty", list)
    server.resources.add("a:none", lambda: None)
    assert await read(server, "a:list") == [
        {"uri": "a:list", "mimeType": "text/plain", "text": "x"},
        {"uri": "a:2", "mimeType": "text/x-y", "text": "y", "_meta": {"k": 1}},
    ]
    assert (await read(server, "a:mixed"))["code"] == -32603
    assert (await read(server, "a:empty"))[0]["text"] == "[]"
    assert (await read(server, "a:none"))["code"] == -32603


@pytest.mark.parametrize("uri", ["a:x", "a:", "1:x", "a b:x", "a:x y", "x", ""])
async def test_only_existing_resources_may_be_subscribed_to(uri: str) -> None:
    server = Server("s")
    server.resources.add("a:x", calm)
    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        answer = await wire.ask("resources/subscribe", {"uri": uri})
        assert ("result" in answer) is (uri == "a:x")
    await server.close()


async def test_subscribing_reads_only_resources_whose_handlers_take_a_context() -> None:
    server = Server("s")
    reads: list[str] = []

    @server.resource("a:plain")
    async def plain() -> str:
        reads.append("plain")
        return "x"

    @server.resource("a:looks")
    async def looks(ctx: Context) -> str:
        reads.append("looks")
        return "x"

    await server.start()
    async with Wire(server, "2025-11-25") as wire:
        await wire.watch("a:plain", "a:looks")
    assert reads == ["looks"]
    await server.close()


async def test_a_partial_is_listed_with_the_name_and_the_docstring_of_its_function() -> None:
    """A bug: it was listed with its URI and with the docstring of `functools.partial`."""

    def tide(station: str) -> str:
        """The tide today."""
        return station

    server = Server("s")
    server.resource("tides://brest")(functools.partial(tide, "Brest"))
    (listed,) = await list_all(server)
    assert (listed["name"], listed["description"]) == ("tide", "The tide today.")


async def test_the_timeout_option_ends_a_generator() -> None:
    """A bug: it was not applied to generators."""
    server, ended = Server("s"), list[str]()

    @server.resource("log://today", timeout=0.01)
    async def log() -> AsyncIterator[bytes]:
        try:
            yield b"a"
            await asyncio.Event().wait()
        finally:
            ended.append("log")

    answer = await ask(server, "resources/read", {"uri": "log://today"})
    assert (answer["error"]["message"], ended) == ("The handler took longer than 0.01 s.", ["log"])


@pytest.mark.parametrize("chunk", [b"12345", "text"])
async def test_a_generator_that_is_stopped_early_ends_before_the_answer(chunk: Any) -> None:
    """A bug: it was ended when it was collected, when its dependencies were closed already."""
    server, ended = Server("s", limits=Limits(content=4)), list[str]()

    @server.resource("log://today")
    async def log() -> AsyncIterator[bytes]:
        try:
            yield chunk
        finally:
            ended.append("log")

    with pytest.raises((InvalidArgument, TypeError)):
        await server.resources.read(make_request(server, "resources/read", {"uri": "log://today"}))
    assert ended == ["log"]

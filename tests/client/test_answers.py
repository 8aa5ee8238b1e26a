"""Results of a client: contents, typed data, validation against schemas and manifests, and caching."""

from __future__ import annotations

import asyncio
import base64
import json
from hashlib import sha256
from typing import Any, TypedDict

import pytest

from tests.client.scripted import HANDSHAKE, STATELESS, TASKS_ERA, Refusal, Script, now, run, settle, text
from tests.clock import FakeClock
from wharfinger.client import Cache, Retry
from wharfinger.errors import ConnectionFailed, InvalidResponse, NotVerified, RemoteError, WharfingerError
from wharfinger.protocol.json_schema import CompiledSchema
from wharfinger.types.skills import Skill, SkillResource

MIB = 1024 * 1024


# Contents of resources.


def read_result(*contents: Any) -> Any:
    """Return the result of read_result a resource with these contents."""
    found: list[Any] = []

    async def test() -> None:
        whole = [{"uri": "a:b", **content} for content in contents]
        async with Script(resources__read={"contents": whole}) as server, server.client() as client:
            found.append(await client.read_resource("a:b"))

    run(test())
    return found[0]


def blob(data: bytes) -> dict[str, str]:
    return {"blob": base64.b64encode(data).decode()}


def test_content_is_returned_as_text_bytes_and_json() -> None:
    read = read_result({"text": '{"é": 1}', "mimeType": "application/json"})
    assert (read.text, read.bytes, read.mime_type) == ('{"é": 1}', '{"é": 1}'.encode(), "application/json")
    assert (read.json(), read.json(dict[str, int])) == ({"é": 1}, {"é": 1})
    with pytest.raises(ValueError, match="a:b is not the JSON that was asked for"):
        read.json(list[int])
    read = read_result(blob(b"[1]"))
    assert (read.text, read.bytes, read.mime_type, read.json()) == ("[1]", b"[1]", None, [1])
    read = read_result(blob(b"\xff"))
    assert read.bytes == b"\xff"
    with pytest.raises(ValueError, match=r"a:b is not text in UTF-8: use \.bytes"):
        _ = read.text
    with pytest.raises(ValueError, match="is not the JSON"):
        read.json()
    assert repr(read) == "<ReadResult 'a:b': 1 contents>"


def test_summary_contents_are_ignored_unless_there_is_only_one_content() -> None:
    summary = {"text": "more", "_meta": {"wharfinger/summary": True}}
    other = {"text": "calm", "_meta": {"wharfinger/summary": False}}
    assert read_result(summary, other).text == "calm"
    assert read_result({"text": "calm"}, summary).text == "calm"
    assert read_result(summary).text == "more"
    for contents, count in (((), 0), ((other, other), 2), ((summary, summary), 0)):
        with pytest.raises(ValueError, match=rf"a:b has {count} contents: use \.contents"):
            _ = read_result(*contents).text


# Data of tools.


def call_result(result: Any, **options: Any) -> Any:
    """Return the result of a call that the server answers with this result."""
    found: list[Any] = []

    async def test() -> None:
        async with Script(tools__call={"content": [], **result}) as server, server.client() as client:
            found.append(await client.call_tool("x", **options))

    run(test())
    return found[0]


@pytest.mark.parametrize(
    ("result", "data"),
    [
        (text("aye"), "aye"),
        ({"content": [*text("aye")["content"], {"type": "text", "text": "no"}]}, "aye\nno"),
        ({}, ""),
        ({"structuredContent": {"a": 1}}, {"a": 1}),
        ({"structuredContent": None}, None),
        ({"structuredContent": [1]}, [1]),
        ({"structuredContent": {"result": 3}, **text("3")}, 3),
        ({"structuredContent": {"result": "x"}, **text("x")}, "x"),
        ({"structuredContent": {"result": "x"}, **text('"x"')}, "x"),
        ({"structuredContent": {"result": "x"}, **text("y")}, {"result": "x"}),
        ({"structuredContent": {"result": [1]}, **text("[1]")}, [1]),
        ({"structuredContent": {"result": 3}, **text("4")}, {"result": 3}),
        ({"structuredContent": {"result": 3, "more": 1}, **text("3")}, {"result": 3, "more": 1}),
        ({"structuredContent": {"result": 3}, **text("4"), "_meta": {"fastmcp": {"wrap_result": True}}}, 3),
        ({"structuredContent": {"result": 3}, "_meta": {"fastmcp": {"wrap_result": False}}}, {"result": 3}),
        ({"structuredContent": {"result": 3}, "_meta": {"fastmcp": True}}, {"result": 3}),
        ({"structuredContent": {"result": 3}, "_meta": {"other": 1}}, {"result": 3}),
    ],
)
def test_data_of_a_tool_result_is_its_structured_content_or_text(result: Any, data: Any) -> None:
    assert call_result(result).data == data


def test_data_of_a_tool_result_has_the_requested_type() -> None:
    assert call_result({"structuredContent": {"result": 3}}, returns=int).data == 3
    assert call_result({"structuredContent": {"result": 3}}, returns=dict[str, int]).data == {"result": 3}
    assert call_result(text("3"), returns=int).data == 3
    assert call_result(text("3"), returns=str).data == "3"
    whole = call_result({"structuredContent": {"a": 1}, **text("aye")}, returns=dict[str, int])
    assert (whole.data, whole.structured, whole.text, len(whole.content)) == ({"a": 1}, {"a": 1}, "aye", 1)
    assert repr(whole) == "<ToolResult {'a': 1}>"
    for result in (text("aye"), {"structuredContent": {"a": 1}}, {"structuredContent": {"result": "x"}}, text("1.5")):
        with pytest.raises(InvalidResponse, match="The tool's result is not of type int"):
            call_result(result, returns=int)


class Count(TypedDict):
    result: int


@pytest.mark.parametrize("kind", [dict[str, int], Count])
def test_an_object_whose_text_is_its_only_member_has_the_requested_type(kind: Any) -> None:
    """Regression: only the member was converted, as if a server of an older revision had wrapped it."""
    assert call_result({"structuredContent": {"result": 3}, **text("3")}, returns=kind).data == {"result": 3}
    with pytest.raises(InvalidResponse, match="Expected `object`, got `str`"):
        call_result({"structuredContent": {"result": "x"}, **text("x")}, returns=kind)


def is_accepted(schema: Any, value: Any, **settings: Any) -> bool:
    """Return whether a result of a tool with this output schema is accepted."""
    found: list[bool] = []

    async def test() -> None:
        tool = {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema}
        script = Script(tools__list={"tools": [tool]}, tools__call={"content": [], "structuredContent": value})
        async with script as server, server.client(**settings) as client:
            await client.list_tools()
            try:
                await client.call_tool("x")
                found.append(True)
            except InvalidResponse as error:
                assert "does not match its output schema" in str(error)
                found.append(False)

    run(test())
    return found[0]


def test_results_are_validated_up_to_a_size() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for size, accepted in ((4 * MIB, False), (4 * MIB + 1, True)):
        assert is_accepted(schema, {"a": "x" * (size - len('{"a":""}'))}) is accepted


def test_results_are_validated_with_patterns_up_to_a_length() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^b"}}}
    for size, accepted in ((MIB, False), (MIB + 1, True)):
        assert is_accepted(schema, {"a": "x" * (size - len('{"a":""}'))}) is accepted


def test_results_are_validated_up_to_an_amount_of_work() -> None:
    def padded(size: int) -> Any:
        return {"type": "array", "items": {"type": "integer"}, "description": "x" * size}

    def work(schema: Any) -> int:
        weight = CompiledSchema(schema, "x", trusted=False).weight
        return int(weight + len(json.dumps(schema, separators=(",", ":"))) // 16)

    size = 16 * 15_000
    while work(padded(size)) > 15_000:
        size -= 16
    assert work(padded(size)) == 15_000
    # 200 values: the list, its first member, and a comma before each other member
    assert is_accepted(padded(size), ["x"] * 199) is False
    assert is_accepted(padded(size), ["x"] * 200) is True


def test_a_validation_error_contains_the_first_four_faults() -> None:
    async def test() -> None:
        schema = {"type": "object", "properties": {name: {"type": "integer"} for name in "abcdef"}}
        tool = {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema}
        result = {"content": [], "structuredContent": dict.fromkeys("abcdef", "no")}
        async with (
            Script(tools__list={"tools": [tool]}, tools__call=result) as server,
            server.client() as client,
        ):
            await client.list_tools()
            with pytest.raises(InvalidResponse) as caught:
                await client.call_tool("x")
            assert str(caught.value).count("; ") == 3

    run(test())


def test_the_output_schema_of_the_latest_list_is_used() -> None:
    async def test() -> None:
        bad = {"type": "object", "required": ["a"]}
        tool: dict[str, Any] = {"name": "x", "inputSchema": {"type": "object"}}
        result = {"content": [], "structuredContent": {}}
        async with Script(tools__call=result) as server, server.client() as client:
            for schema, fine in ((bad, False), (None, True), (bad, False), ({"type": "object"}, True), (bad, False)):
                more = {} if schema is None else {"outputSchema": schema}
                server.answers["tools/list"] = {"tools": [{**tool, **more}]}
                await client.list_tools()
                for _ in range(2):
                    if fine:
                        await client.call_tool("x")
                    else:
                        with pytest.raises(InvalidResponse, match="output schema"):
                            await client.call_tool("x")
            server.answers["tools/call"] = text("aye")
            with pytest.raises(InvalidResponse, match="returned no structured content"):
                await client.call_tool("x")

    run(test())


def test_output_schemas_are_remembered_up_to_a_number_of_tools() -> None:
    async def test() -> None:
        schema = {"type": "object", "required": ["a"]}
        tools = [{"name": f"n{n}", "inputSchema": {"type": "object"}, "outputSchema": schema} for n in range(10_001)]
        result = {"content": [], "structuredContent": {}}
        async with (
            Script(tools__list={"tools": tools}, tools__call=result) as server,
            server.client() as client,
        ):
            await client.list_tools()
            with pytest.raises(InvalidResponse, match="output schema"):
                await client.call_tool("n9999")
            await client.call_tool("n10000")

    run(test())


# Files of skills.


MANUAL = b"---\nname: knots\nmasts: 3\ndeep:\n  list: [1, true]\n---\nText.\n"
FRONT: dict[str, Any] = {"name": "knots", "masts": 3, "deep": {"list": [1, True]}}


def load_file(contents: list[bytes], skill: Skill, uri: str = "") -> Any:
    """Read a file of a skill with these contents. Return its bytes or the error, and the params of the reads."""
    found: list[Any] = []

    async def test() -> None:
        whole = [{"uri": uri or skill.uri, **blob(data)} for data in contents]
        async with Script(resources__read={"contents": whole}) as server, server.client() as client:
            try:
                found.append((await client.read_skill_file(skill, uri)).bytes)
            except NotVerified as error:
                found.append(str(error))
            found.append(server.params("resources/read"))

    run(test())
    return found


def skill_of(*files: tuple[str, bytes], front: Any = FRONT) -> Skill:
    listed = [
        SkillResource(uri=uri, digest=f"sha256:{sha256(data).hexdigest()}", size=len(data)) for uri, data in files
    ]
    return Skill(uri="skill://knots/SKILL.md", frontmatter=front, resources=listed or "dynamic")


MAIN = ("skill://knots/SKILL.md", MANUAL)
ROPE = ("skill://knots/rope.md", b"Hemp.")


def test_a_file_of_a_skill_must_match_the_manifest() -> None:
    skill = skill_of(ROPE, MAIN)
    assert load_file([MANUAL], skill) == [MANUAL, [{"uri": MAIN[0]}]]
    assert load_file([b"Hemp."], skill, ROPE[0]) == [b"Hemp.", [{"uri": ROPE[0]}]]
    assert "is not a file of the skill" in load_file([b"Hemp."], skill, "skill://knots/other.md")[0]
    assert load_file([b"Hemp."], skill, "skill://knots/other.md")[1] == []
    assert "has 6 bytes, but 5 in its manifest" in load_file([b"Hemp.."], skill, ROPE[0])[0]
    assert "does not have the digest" in load_file([b"Jute."], skill, ROPE[0])[0]
    assert "has 2 contents" in load_file([b"Hemp.", b""], skill, ROPE[0])[0]
    assert "has 0 contents" in load_file([], skill, ROPE[0])[0]
    assert load_file([b"Anything."], skill_of(), ROPE[0])[0] == b"Anything."
    assert load_file([MANUAL], skill_of())[0] == MANUAL


@pytest.mark.parametrize(
    ("front", "differs"),
    [
        ({**FRONT, "masts": 3.0}, None),
        ({**FRONT, "masts": 4}, "masts"),
        ({**FRONT, "masts": "3"}, "masts"),
        ({**FRONT, "more": 1}, "more"),
        ({"name": "knots", "masts": 3}, "deep"),
        ({**FRONT, "deep": {"list": [1, 1]}}, "deep"),
        ({**FRONT, "deep": {"list": [True, True]}}, "deep"),
        ({**FRONT, "deep": {"list": [1]}}, "deep"),
        ({**FRONT, "deep": {"list": [1, True], "x": 1}}, "deep"),
        ({**FRONT, "deep": [1]}, "deep"),
        ({**FRONT, "deep": {"list": {"0": 1}}}, "deep"),
    ],
)
def test_the_frontmatter_of_a_skill_must_match_its_entry(front: Any, differs: str | None) -> None:
    (expected, _) = load_file([MANUAL], skill_of(MAIN, front=front))
    if differs is None:
        assert expected == MANUAL
    else:
        assert f"differs from what the server listed: {differs}." in expected


def test_invalid_frontmatter_is_refused_and_errors_quote_at_most_200_characters() -> None:
    assert "cannot be read" in load_file([b"no frontmatter"], skill_of())[0]
    (expected, _) = load_file([MANUAL], skill_of(front={**FRONT, "x" * 300: 1}))
    assert expected.endswith(f"listed: {'x' * 200}.")


# Concurrent reads.


@pytest.mark.parametrize(("options", "most"), [({}, 32), ({"concurrency": 1}, 1), ({"concurrency": 3}, 3)])
def test_read_many_sends_up_to_concurrency_requests_at_once(options: Any, most: int) -> None:
    async def test() -> None:
        under_way = [0]
        highest = [0]

        async def read(message: Any) -> Any:
            under_way[0] += 1
            highest[0] = max(highest[0], under_way[0])
            await asyncio.sleep(1)
            under_way[0] -= 1
            return {"contents": [{"uri": "x", "text": message["params"]["uri"]}]}

        async with Script(resources__read=read) as server, server.client() as client:
            uris = [f"a:{n}" for n in range(40)]
            assert [each.text for each in await client.read_many(uris, **options)] == uris
            assert highest == [most]
            assert now() == pytest.approx(-(-40 // most))

    run(test())


def test_read_many_raises_the_first_error_or_returns_errors_in_order() -> None:
    async def test() -> None:
        async def read(message: Any) -> Any:
            number = int(message["params"]["uri"][2:])
            await asyncio.sleep(number)
            return Refusal(-32002, "gone") if number in (2, 3) else {"contents": []}

        async with Script(resources__read=read) as server, server.client() as client:
            uris = [f"a:{n}" for n in (5, 1, 2, 3)]
            with pytest.raises(RemoteError, match="gone"):
                await client.read_many(uris)
            assert now() == pytest.approx(2)
            await settle()
            assert server.count("notifications/cancelled") == 2
            errors = await client.read_many(uris, errors="return")
            assert [isinstance(each, WharfingerError) for each in errors] == [False, False, True, True]
            assert await client.read_many([]) == []
            for concurrency in (0, -1):
                with pytest.raises(ValueError, match=f"concurrency must be positive, not {concurrency}"):
                    await client.read_many(uris, concurrency=concurrency)
            call = asyncio.ensure_future(client.read_many(uris, concurrency=2))
            await asyncio.sleep(0.5)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await settle()
            assert server.count("notifications/cancelled") == 4

    run(test())


# Caching.


class CacheableServer(Script):
    """A server that answers each read with its number, cacheable for `ttl` milliseconds."""

    def __init__(self, ttl: int = 60_000, scope: str = "private") -> None:
        super().__init__(STATELESS, resources__read=self.read)
        self.ttl, self.scope = ttl, scope

    def read(self, message: Any) -> Any:
        content = {"uri": message["params"]["uri"][:20], "text": f"{self.count('resources/read'):03}"}
        return {"contents": [content], "ttlMs": self.ttl, "cacheScope": self.scope}


async def numbers(client: Any, *uris: str, **options: Any) -> list[int]:
    return [int((await client.read_resource(uri, **options)).text) for uri in uris]


def test_a_result_expires_exactly_at_its_ttl() -> None:
    async def test() -> None:
        clock = FakeClock(0.0)
        async with CacheableServer() as server, server.client(cache=Cache(clock=clock)) as client:
            for at, number in ((0, 1), (59.999, 1), (60, 2), (119.999, 2), (120, 3)):
                clock.now = at
                assert await numbers(client, "a:b") == [number]
        for settings, longest in (({}, 86_400), ({"max_ttl": 5}, 5)):
            clock.now = 0
            async with (
                CacheableServer(ttl=10**12) as server,
                server.client(cache=Cache(clock=clock, **settings)) as client,
            ):
                for at, number in ((0, 1), (longest - 0.001, 1), (longest, 2)):
                    clock.now = at
                    assert await numbers(client, "a:b") == [number]

    run(test())


def test_a_ttl_may_be_one_millisecond() -> None:
    async def test() -> None:
        clock = FakeClock(0.0)
        for ttl, kept in ((1, True), (0, False), (-1, False)):
            async with CacheableServer(ttl=ttl) as server, server.client(cache=Cache(clock=clock)) as client:
                assert await numbers(client, "a:b", "a:b") == [1, 1 if kept else 2]

    run(test())


def test_a_stale_result_is_returned_for_stale_if_error_seconds_if_the_server_is_gone() -> None:
    async def test() -> None:
        clock = FakeClock(0.0)
        cache = Cache(clock=clock, stale_if_error=10)
        async with CacheableServer() as server, server.client(cache=cache, retry=Retry(attempts=1)) as client:
            assert await numbers(client, "a:b") == [1]
            clock.now = 65
            server.answers["resources/read"] = Refusal(-32603)
            with pytest.raises(RemoteError):  # an error of the server takes precedence
                await numbers(client, "a:b")
            server.answers["resources/read"] = server.read
            assert await numbers(client, "a:b", "a:b") == [3, 3]
            await server.leave()
            for at, fresh, fine in ((134.999, True, False), (134.999, False, True), (135, False, False)):
                clock.now = at
                if fine:
                    assert await numbers(client, "a:b") == [3]
                else:
                    with pytest.raises(ConnectionFailed):
                        await numbers(client, "a:b", bypass_cache=fresh)

    run(test())


def test_no_stale_result_is_returned_by_default() -> None:
    async def test() -> None:
        clock = FakeClock(0.0)
        async with (
            CacheableServer() as server,
            server.client(cache=Cache(clock=clock), retry=Retry(attempts=1)) as client,
        ):
            await numbers(client, "a:b")
            await server.leave()
            clock.now = 59.5
            assert await numbers(client, "a:b") == [1]
            clock.now = 60
            with pytest.raises(ConnectionFailed):
                await numbers(client, "a:b")

    run(test())


def test_the_least_recently_used_result_is_evicted_first() -> None:
    async def test() -> None:
        async with CacheableServer() as server, server.client(cache=Cache(max_entries=2)) as client:
            assert await numbers(client, "a:1", "a:2", "a:1", "a:3", "a:1", "a:3", "a:2", "a:3", "a:1") == [
                1, 2, 1, 3, 1, 3, 4, 3, 5,
            ]  # fmt: skip
        async with CacheableServer() as server, server.client(cache=Cache(max_entries=0)) as client:
            assert await numbers(client, "a:1", "a:1") == [1, 2]
        cache = Cache()
        async with CacheableServer() as server, server.client(cache=cache) as client:
            uris = [f"a:{n}" for n in range(1025)]
            await numbers(client, *uris)
            assert len(cache) == 1024
            assert await numbers(client, *uris[1:3]) == [2, 3]

    run(test())


def test_results_are_cached_up_to_a_number_of_bytes() -> None:
    async def test() -> None:
        cache = Cache()
        async with CacheableServer() as server, server.client(cache=cache) as client:
            await numbers(client, "a:1")
            each = cache.size
            answer = len(json.dumps({"resultType": "complete", **server.read({"params": {"uri": "a:1"}})}))
            assert each == answer + 512 + len("a:1")
            await numbers(client, "a:2")
            assert cache.size == 2 * each
            cache.clear()
            assert (cache.size, len(cache)) == (0, 0)
            assert repr(cache) == "<Cache: 0 results, 0 bytes>"
        for size, kept in ((2 * each, 2), (2 * each - 1, 1), (each, 1), (each - 1, 0)):
            cache = Cache(max_bytes=size)
            async with CacheableServer() as server, server.client(cache=cache) as client:
                await numbers(client, "a:1", "a:2")
                assert len(cache) == kept
                assert cache.size == kept * each

    run(test())


def test_results_are_cached_up_to_a_length_of_the_uri() -> None:
    async def test() -> None:
        for length, kept in ((8192, True), (8193, False)):
            async with CacheableServer() as server, server.client() as client:
                assert await numbers(client, "a" * length, "a" * length) == [1, 1 if kept else 2]

    run(test())


def test_negative_bounds_of_a_cache_are_refused() -> None:
    for name in ("max_entries", "max_bytes", "max_ttl", "stale_if_error"):
        Cache(**{name: 0})
        with pytest.raises(ValueError, match="cannot be negative"):
            Cache(**{name: -1})


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
def test_a_cached_list_is_requested_again_after_a_change_notification(method: str) -> None:
    member = {"resources/templates/list": "resourceTemplates"}.get(method, method.partition("/")[0])
    kind = method.partition("/")[0]

    def listen(server: Script) -> Any:
        def answer(message: Any) -> Any:
            server.notify(
                "notifications/subscriptions/acknowledged",
                notifications=message["params"]["notifications"],
                _meta={"io.modelcontextprotocol/subscriptionId": message["id"]},
            )
            return asyncio.get_running_loop().create_future()

        return answer

    async def test() -> None:
        answer = {member: [], "ttlMs": 60_000, "cacheScope": "private"}
        async with Script(**{method.replace("/", "__"): answer}) as server, server.client() as client:
            server.answers["subscriptions/listen"] = listen(server)
            calls = {
                "tools/list": client.list_tools,
                "prompts/list": client.list_prompts,
                "resources/list": client.list_resources,
                "resources/templates/list": client.list_resource_templates,
            }
            call: Any = calls[method]
            async with client.watch_lists() as changes:
                for _ in range(2):
                    await call()
                assert server.count(method) == 1
                listens = [each["id"] for each in server.received if each["method"] == "subscriptions/listen"]
                tag = {"io.modelcontextprotocol/subscriptionId": listens[0]}
                for name in ("tools", "prompts", "resources"):
                    server.notify(f"notifications/{name}/list_changed", _meta=tag)
                    await anext(changes)
                    await call()
                    asked = 2 if name == kind or server.count(method) == 2 else 1
                    assert server.count(method) == asked
                assert server.count(method) == 2
            await call(bypass_cache=True)
            assert server.count(method) == 3

    run(test())


@pytest.mark.parametrize(
    ("capabilities", "kept"),
    [({"tools": {"listChanged": True}}, True), ({"tools": {"listChanged": False}}, False), ({"tools": {}}, False)],
)
def test_a_list_of_a_session_is_cached_while_its_changes_are_watched(capabilities: Any, kept: bool) -> None:
    async def test() -> None:
        for revision in (HANDSHAKE, TASKS_ERA):
            script = Script(revision, capabilities=capabilities, tools__list={"tools": []})
            async with script as server, server.client() as client:
                for _ in range(2):
                    await client.list_tools()
                assert server.count("tools/list") == 2
                async with client.watch_lists() as changes:
                    for _ in range(2):
                        await client.list_tools()
                    assert server.count("tools/list") == (3 if kept else 4)
                    server.notify("notifications/tools/list_changed")
                    await anext(changes)
                    before = server.count("tools/list")
                    await client.list_tools()
                    assert server.count("tools/list") == before + 1
                before = server.count("tools/list")
                await client.list_tools()
                assert server.count("tools/list") == before + 1

    run(test())


def test_a_refused_cursor_invalidates_all_pages_of_its_list() -> None:
    async def test() -> None:
        def page(message: Any) -> Any:
            cursor = message["params"].get("cursor")
            if cursor == "3":
                raise Refusal(-32602, "no such cursor")
            following = {None: "1", "1": "2", "2": "3"}[cursor]
            tool = {"name": f"n{cursor}", "inputSchema": {"type": "object"}}
            return {"tools": [tool], "nextCursor": following, "ttlMs": 60_000, "cacheScope": "public"}

        other = {"prompts": [], "ttlMs": 60_000, "cacheScope": "private"}
        async with Script(tools__list=page, prompts__list=other) as server, server.client() as client:
            await client.list_prompts()
            listing = client.list_tools()
            for cursor in ("1", "2"):
                await listing.page(cursor)
                await listing.page(cursor)
            assert server.count("tools/list") == 2
            with pytest.raises(RemoteError, match="no such cursor"):
                await listing.page("3")
            await listing.page("1")
            assert server.count("tools/list") == 4
            await client.list_prompts()
            assert server.count("prompts/list") == 1

    run(test())


def test_equal_reads_share_a_request_and_keep_their_own_timeouts() -> None:
    async def test() -> None:
        async with CacheableServer() as server, server.client() as client:

            async def late(message: Any) -> Any:
                await asyncio.sleep(10)
                return server.read(message)

            server.answers["resources/read"] = late
            first = asyncio.ensure_future(client.read_resource("a:b"))
            await settle()
            second = asyncio.ensure_future(client.read_resource("a:b"))
            short = asyncio.ensure_future(client.read_resource("a:b", timeout=3))
            with pytest.raises(WharfingerError):
                await short
            assert now() == pytest.approx(3)
            await settle()
            assert server.count("resources/read") == 1
            fresh = asyncio.ensure_future(client.read_resource("a:b", bypass_cache=True))
            await settle()
            assert server.count("resources/read") == 2
            assert [(await each).text for each in (first, second, fresh)] == ["002", "002", "002"]
            assert now() == pytest.approx(13)

    run(test())


def test_an_error_of_a_shared_request_is_raised_for_its_sender_only() -> None:
    async def test() -> None:
        async with CacheableServer() as server, server.client() as client:

            async def late(message: Any) -> Any:
                count = server.count("resources/read")
                await asyncio.sleep(10)
                return Refusal(-32603, "sunk") if count == 1 else server.read(message)

            server.answers["resources/read"] = late
            reads = [asyncio.ensure_future(client.read_resource("a:b")) for _ in range(3)]
            done = await asyncio.gather(*reads, return_exceptions=True)
            assert [isinstance(each, RemoteError) for each in done] == [True, False, False]
            assert server.count("resources/read") == 3
            assert now() == pytest.approx(20)

    run(test())


def test_reads_of_an_uncacheable_resource_do_not_wait_for_each_other() -> None:
    async def test() -> None:
        async with CacheableServer(ttl=0) as server, server.client() as client:

            async def late(message: Any) -> Any:
                await asyncio.sleep(10)
                return server.read(message)

            server.answers["resources/read"] = late
            await client.read_resource("a:b")
            await asyncio.gather(*(client.read_resource("a:b") for _ in range(3)))
            assert now() == pytest.approx(20)
            assert server.count("resources/read") == 4
            server.ttl = 60_000
            await client.read_resource("a:b")
            await client.read_resource("a:b")
            await client.read_resource("a:b")
            assert server.count("resources/read") == 6

    run(test())


def test_results_are_cached_up_to_64_mib_by_default() -> None:
    async def test() -> None:
        cache = Cache()
        async with CacheableServer() as server, server.client(cache=cache) as client:

            def large(message: Any) -> Any:
                found = server.read(message)
                size = len(json.dumps({"resultType": "complete", **found})) + 512 + len(message["params"]["uri"])
                found["contents"][0]["text"] += "x" * (MIB - size + 1)
                return found

            server.answers["resources/read"] = large
            for number in range(10, 74):
                await client.read_resource(f"a:{number}")
            assert (len(cache), cache.size) == (63, 63 * (MIB + 1))

    run(test())


@pytest.mark.parametrize(("depth", "fine"), [(256, True), (257, False)])
def test_results_may_be_nested_up_to_a_depth(depth: int, fine: bool) -> None:
    async def test() -> None:
        value: Any = []
        for _ in range(depth - 3):  # the message, its result, and the innermost list
            value = [value]
        result = {"content": [], "structuredContent": value}
        async with Script(tools__call=result) as server, server.client() as client:
            if fine:
                assert (await client.call_tool("x")).structured == value
            else:
                with pytest.raises(InvalidResponse):
                    await client.call_tool("x")

    run(test())

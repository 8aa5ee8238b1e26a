"""Invalid results of handlers are not sent, and the log names the value and the line."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.server.driving import ALL, Wire, initialize_params, line, make_request
from wharfinger import Client, Complete, Context, Image, Server, ToolError
from wharfinger import types as t


async def tide() -> float:
    return 2.5


def returns_a_coroutine():  # type: ignore[no-untyped-def]
    return tide()


async def holds_a_coroutine():  # type: ignore[no-untyped-def]
    return {"depths": [1.0, tide()]}


async def formats_a_coroutine() -> str:
    return str(tide())


async def returns_an_async_generator():  # type: ignore[no-untyped-def]
    async def depths() -> AsyncIterator[float]:
        yield 1.0

    return depths()


async def returns_a_generator():  # type: ignore[no-untyped-def]
    def depths() -> Iterator[float]:
        yield 1.0

    return [depths()]


async def returns_a_future():  # type: ignore[no-untyped-def]
    return {"a": asyncio.get_running_loop().create_future()}


async def forgets_to_return() -> float:
    pass  # type: ignore[return]


async def forgets_to_return_text() -> str:
    pass  # type: ignore[return]


async def returns_another_type() -> str:
    return 3  # type: ignore[return-value]


async def returns_a_list_of_another_type() -> list[int]:
    return [1, "x"]  # type: ignore[list-item]


async def returns_nan() -> dict[str, list[float]]:
    return {"a": [1.0, float("nan")]}


async def returns_an_object():  # type: ignore[no-untyped-def]
    return {"a": {"b": [1, object()]}}


async def contains_itself():  # type: ignore[no-untyped-def]
    ring: list[Any] = [1]
    ring.append(ring)
    return ring


async def shows_a_missing_file() -> Image:
    return Image("/nowhere/chart.png")


async def writes_content_as_text() -> t.CallToolResult:
    return t.CallToolResult(content="hello")  # type: ignore[arg-type]


async def holds_an_object() -> t.CallToolResult:
    return t.CallToolResult(content=[], structured_content={"a": object()})


async def has_text_of_another_type() -> t.TextContent:
    return t.TextContent(text=3)  # type: ignore[arg-type]


MISTAKES: dict[Callable[..., Any], str] = {
    returns_a_coroutine: "the result is a coroutine: await tide(…).",
    holds_a_coroutine: "the result['depths'][1] is a coroutine: await tide(…).",
    formats_a_coroutine: "the text of a coroutine instead of its result: await tide(…).",
    returns_an_async_generator: "the result is an async generator: return a list",
    returns_a_generator: "the result[0] is a generator: return a list, such as list(depths(…)).",
    returns_a_future: "the result['a'] is an awaitable (Future): await it.",
    forgets_to_return: "(float) says: Expected `float`, got `null` (is a return missing?)",
    forgets_to_return_text: "None, and its return annotation is str: is a return missing?",
    returns_another_type: "int, and its return annotation is str",
    returns_a_list_of_another_type: "(list[int]) says: Expected `int`, got `str` - at `$[1]`",
    returns_nan: "the result['a'][1] is nan, which JSON does not have",
    returns_an_object: "the result['a']['b'][1] is of type object, which JSON cannot express.",
    contains_itself: "the result[1] contains itself.",
    shows_a_missing_file: "No such file or directory: '/nowhere/chart.png'",
    writes_content_as_text: "a CallToolResult whose content is not a list of blocks",
    holds_an_object: "the result.structured_content['a'] is of type object",
    has_text_of_another_type: "a TextContent whose text is int.",
}
"""Handlers with a mistake, and part of its description in the log."""


@pytest.mark.parametrize(("mistake", "expected"), MISTAKES.items())
@pytest.mark.parametrize("revision", ALL)
async def test_an_invalid_tool_result_is_described_in_the_log_but_not_to_the_client(
    mistake: Callable[..., Any], expected: str, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")
    server.tools.add(mistake)
    name = mistake.__name__
    async with Wire(server, revision) as wire:
        answer = await wire.ask("tools/call", {"name": name})
    assert answer["result"]["isError"] is True
    (block,) = answer["result"]["content"]
    assert "Internal error (reference " in block["text"]
    assert "tide" not in block["text"]
    (record,) = caplog.records
    assert expected in record.message
    assert record.message.startswith(f"tools/call {name!r} failed")
    assert f"{name}() ({__file__}:{mistake.__code__.co_firstlineno})" in record.message
    assert block["text"].partition("(reference ")[2][:8] in record.message


RESOURCE_MISTAKES: dict[Callable[..., Any], str] = {
    returns_a_coroutine: MISTAKES[returns_a_coroutine],
    holds_a_coroutine: MISTAKES[holds_a_coroutine],
    formats_a_coroutine: MISTAKES[formats_a_coroutine],
    returns_a_generator: MISTAKES[returns_a_generator],
    returns_nan: MISTAKES[returns_nan],
    returns_an_object: MISTAKES[returns_an_object],
    forgets_to_return: "None: return text, bytes, or a value that JSON can express",
}


@pytest.mark.parametrize(("mistake", "expected"), RESOURCE_MISTAKES.items())
async def test_an_invalid_resource_result_is_described_in_the_log(
    mistake: Callable[..., Any], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")
    server.resources.add("tide://now", mistake)
    async with Wire(server) as wire:
        answer = await wire.ask("resources/read", {"uri": "tide://now"})
    assert answer["error"]["code"] == -32603
    assert expected in caplog.text
    assert "resources/read 'tide://now' failed: " in caplog.text
    assert f"{mistake.__name__}() ({__file__}:" in caplog.text


@pytest.mark.parametrize(
    ("mistake", "expected"),
    [
        (returns_a_coroutine, MISTAKES[returns_a_coroutine]),
        (formats_a_coroutine, MISTAKES[formats_a_coroutine]),
        (forgets_to_return, "NoneType: return text, PromptMessage"),
    ],
)
async def test_an_invalid_prompt_result_is_described_in_the_log(
    mistake: Callable[..., Any], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")
    server.prompts.add(mistake, name="it")
    async with Wire(server) as wire:
        answer = await wire.ask("prompts/get", {"name": "it"})
    assert answer["error"]["code"] == -32603
    assert expected in caplog.text
    assert f"{mistake.__name__}() ({__file__}:" in caplog.text


async def test_text_that_only_mentions_a_coroutine_is_sent() -> None:
    """A tool may return a line of a log that contains the repr of a coroutine."""
    text = "ERROR <coroutine object fetch at 0x7f24cd3b6820> was never awaited"
    server = Server("s")

    @server.tool
    async def last_line() -> str:
        return text

    async with Wire(server) as wire:
        assert (await wire.ask("tools/call", {"name": "last_line"}))["result"]["content"][0]["text"] == text


async def test_an_exception_is_logged_with_the_line_of_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.tool
    async def reads() -> Any:
        return json.loads("{")

    async with Wire(server) as wire:
        await wire.ask("tools/call", {"name": "reads"})
    (record,) = caplog.records
    line_number = reads.__code__.co_firstlineno + 2
    assert record.message.startswith(
        f"tools/call 'reads' failed at {__file__}:{line_number}, in reads: json.decoder.JSONDecode"
    )
    assert record.exc_info is not None


async def test_a_failing_lifespan_is_logged_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise LookupError("no database")
        yield

    with pytest.raises(LookupError):
        await Server("harbour", lifespan=lifespan).start()
    line_number = lifespan.__wrapped__.__code__.co_firstlineno + 2  # type: ignore[attr-defined]
    location = f"{__file__}:{line_number}"
    assert caplog.messages == [
        f"The lifespan of the server 'harbour' failed at {location}, in lifespan: LookupError: no database"
    ]


async def test_a_failing_lifespan_of_a_part_is_not_logged_as_that_of_the_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        if server.info.name == "part":
            raise LookupError("no database")
        yield

    server = Server("whole", lifespan=lifespan)
    server.include(Server("part", lifespan=lifespan))
    with pytest.raises(LookupError):
        await server.start()
    assert [message.partition(" failed")[0] for message in caplog.messages] == ["The lifespan of the server 'part'"]


async def test_the_exception_of_a_tool_is_raised_in_middleware() -> None:
    server, seen = Server("s"), list[BaseException]()

    @server.tool
    async def breaks() -> None:
        raise LookupError("reason")

    @server.middleware("tools/call")
    async def report(call: Any, next: Any) -> Any:
        try:
            return await next(call)
        except Exception as error:
            seen.append(error)
            raise

    async with Wire(server) as wire:
        assert (await wire.ask("tools/call", {"name": "breaks"}))["result"]["isError"] is True
    assert [type(error) for error in seen] == [LookupError]


def test_a_stdio_server_logs_the_failing_line_to_stderr(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        "from wharfinger import Server\nserver = Server('s')\n\n@server.tool\ndef divide(by: int) -> float:\n"
        "    return 1 / by\n\nif __name__ == '__main__':\n    server.run()\n"
    )
    for revision in ALL:
        lines = [line("tools/call", {"name": "divide", "arguments": {"by": 0}}, 1, revision)]
        if revision != ALL[-1]:
            lines[:0] = [
                line("initialize", initialize_params(revision), 0, revision),
                line("notifications/initialized"),
            ]
        result = subprocess.run([sys.executable, str(file)], input=b"".join(lines), capture_output=True, timeout=30)
        answer = json.loads(result.stdout.splitlines()[-1])
        assert answer["result"]["isError"] is True
        assert f"tools/call 'divide' failed at {file}:6, in divide: ZeroDivisionError".encode() in result.stderr


async def test_the_client_raises_tool_error_for_an_invalid_result() -> None:
    server = Server("s")
    server.tools.add(forgets_to_return)
    async with Client(server) as client:
        with pytest.raises(ToolError, match="reference"):
            await client.call_tool("forgets_to_return")


# -- errors at registration


def default_of_another_type(x: int = "a") -> int:  # type: ignore[assignment]
    return x


def context_without_annotation(ctx):  # type: ignore[no-untyped-def]
    return ctx


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (default_of_another_type, "the default of 'x' is of type str: expected `int`, as its annotation says."),
        (context_without_annotation, "ctx has no annotation: write ctx: Context"),
    ],
)
def test_the_error_for_an_unsupported_signature_has_its_file_and_line(
    function: Callable[..., Any], expected: str
) -> None:
    for register in (Server("s").tool, Server("s").prompt):
        with pytest.raises(TypeError) as caught:
            register(function)
        assert str(caught.value).startswith(f"{function.__name__}() ({__file__}:{function.__code__.co_firstlineno}): ")
        assert expected in str(caught.value)


SENTINEL: Any = object()


def test_unusual_but_valid_defaults_are_accepted() -> None:
    def tool(
        a: int = None,  # type: ignore[assignment]  # noqa: RUF013
        b: float = 1,
        c: Path = Path(),
        d: str = SENTINEL,
        e: int = True,
        f: list[int] = [],  # noqa: B006
        g: int | str = "x",
    ) -> None: ...

    Server("s").tool(tool)


def without_variables() -> str:
    return ""


def with_variable(name: str) -> str:
    return name


@pytest.mark.parametrize(
    ("uri", "function"),
    [("notes", without_variables), ("notes/{name}", with_variable), ("/notes{+name}", with_variable)],
)
def test_the_error_for_a_resource_without_a_scheme_has_the_file_and_line_of_the_function(
    uri: str, function: Callable[..., Any]
) -> None:
    expected = f"{function.__name__}() ({__file__}:{function.__code__.co_firstlineno}): {uri!r} has no scheme: "
    with pytest.raises(ValueError, match="has no scheme") as caught:
        Server("s").resource(uri)(function)
    assert str(caught.value).startswith(expected)
    with pytest.raises(ValueError, match="has no scheme"):
        Server("s").read_resource(uri)(function)


@pytest.mark.parametrize("uri", ["notes:{name}", "{+name}", "file{+name}", "my.app+x://{name}"])
def test_templates_with_a_scheme_or_a_variable_that_may_hold_one_are_accepted(uri: str) -> None:
    Server("s").resource(uri)(with_variable)


def test_a_generator_is_refused_as_a_plain_resource() -> None:
    def lines() -> Iterator[str]:
        yield ""

    with pytest.raises(TypeError, match="is a generator: return text"):
        Server("s").resource("a:b")(lines)


def test_resource_updated_warns_once_about_an_invalid_uri(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    for _ in range(3):
        server.resource_updated("not a uri, warned of once")
        server.resource_updated("notes://1")
    assert len(caplog.messages) == 1
    assert "is not a URI" in caplog.messages[0]
    with pytest.raises(ValueError, match="There is no list 'resource'"):
        server.list_changed("resource")  # type: ignore[arg-type]


async def test_the_log_advises_middleware_that_returns_none(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    server.tools.add(forgets_to_return_text, name="it")

    @server.middleware("tools/list")
    async def forgets(call: Any, next: Any) -> Any:
        await next(call)

    async with Wire(server) as wire:
        assert (await wire.ask("tools/list"))["error"]["code"] == -32603
    assert "return await next(call)" in caplog.text


async def test_a_completer_that_returns_a_string_is_an_error() -> None:
    server = Server("s")

    @server.prompt
    def chart(name: Annotated[str, Complete(lambda typed: "north")]) -> str:
        return name

    params = {"ref": {"type": "ref/prompt", "name": "chart"}, "argument": {"name": "name", "value": "n"}}
    async with Wire(server) as wire:
        assert (await wire.ask("completion/complete", params))["error"]["code"] == -32603


@dataclasses.dataclass
class Quay:
    name: str


@dataclasses.dataclass
class Ship:
    quay: Quay


async def test_the_log_names_the_nested_field_that_a_form_cannot_have(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.tool
    async def berth(ctx: Context) -> str:
        await ctx.elicit("Which?", Ship)
        return ""

    async with Wire(server) as wire:
        answer = await wire.ask("tools/call", {"name": "berth"})
    assert answer["result"]["isError"] is True
    (record,) = caplog.records
    assert f"failed at {__file__}:" in record.message
    assert "quay: a form has only flat fields" in record.message


# -- terminals and dev mode


def test_a_server_prints_a_notice_only_at_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        "from wharfinger import Server\nserver = Server('harbour')\n@server.tool\ndef tide() -> int:\n    return 1\n"
        "server.run()\n"
    )
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(file)], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        ready, _, _ = select.select([process.stderr], [], [], 30)
        assert ready
        notice = process.stderr.readline().decode()
        assert notice.startswith("harbour waits for MCP messages on stdin")
        assert f"wharfinger inspect {file}, or wharfinger call {file} tide." in notice
    finally:
        process.kill()
        process.communicate()
        os.close(controller)
        os.close(terminal)
    result = subprocess.run([sys.executable, str(file)], input=b"", capture_output=True, timeout=30)
    assert (result.returncode, result.stderr) == (0, b"")


def test_dev_mode_reports_the_line_that_blocks_the_event_loop(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        "import time\nfrom wharfinger import Server\nserver = Server('s')\n\n@server.tool\nasync def slow() -> str:\n"
        "    time.sleep(1.5)\n    return ''\n"
    )
    command = [sys.executable, "-m", "wharfinger", "run", "--stdio", str(file)]
    for options, is_reported in (["--dev"], True), ([], False):
        result = subprocess.run(
            [*command, *options], input=line("tools/call", {"name": "slow"}, 1), capture_output=True, timeout=30
        )
        assert json.loads(result.stdout)["result"]["content"][0]["text"] == ""
        expected = f"tools/call 'slow' blocks the event loop, and all other calls, at {file}:7, in slow"
        assert (expected in result.stderr.decode()) is is_reported


# -- paths of invalid values


def error_for(value: Any, function: Any = None) -> str:
    """Return the error for a tool that returns this value, or an empty string."""

    async def run() -> str:
        server = Server("s")
        server.tools.add(function or (lambda: value), name="it")
        request = make_request(server, "tools/call", {"name": "it"})
        try:
            await server.handlers["tools/call"](request)
        except TypeError as error:
            return str(error)
        return ""

    return asyncio.run(run())


class OpaqueObject:
    """A value that JSON cannot express."""


@dataclasses.dataclass
class Record:
    inner: Any


def nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, OpaqueObject()]}, "the result['a'][1] is of type OpaqueObject, which JSON cannot express."),
        ({"a": Record(OpaqueObject())}, "the result['a'].inner is of type OpaqueObject, which JSON cannot express."),
        ({"a": Record}, "the result['a'] is of type type, which JSON cannot express."),
        (
            {OpaqueObject: 1},
            f"the result has the key {OpaqueObject} of type type: keys must be strings.",
        ),
        ({"a": {(1, 2): 3}}, "the result['a'] has the key (1, 2) of type tuple: keys must be strings."),
        ({"a": t.TextContent}, "the result['a'] is of type StructMeta, which JSON cannot express."),
        ({"a": "x\ud800"}, "the result['a'] contains half of a surrogate pair, which UTF-8 cannot encode."),
        (["é", "\udcff"], "the result[1] contains half of a surrogate pair"),
        ([{"fine": None, "b": float("nan")}], "the result[0]['b'] is nan, which JSON does not have"),
        ([Record(1), Record("x"), Record(float("inf"))], "the result[2].inner is inf"),
        (nested(99, OpaqueObject()), "is of type OpaqueObject"),
        (nested(101, OpaqueObject()), "is nested too deeply."),
    ],
)
def test_an_invalid_value_is_reported_with_its_path_and_its_fault(value: Any, expected: str) -> None:
    assert expected in error_for(value)


def test_valid_values_are_not_reported() -> None:
    valid = {1: "a", 2.5: ["é", None, True], "b": (1, {"x"}), "c": Record({"d": 1})}
    assert error_for(valid) == ""
    assert "the result['z']" in error_for({**valid, "z": OpaqueObject()})


class Harbour:
    def bad(self) -> Any:
        return OpaqueObject()

    def __call__(self) -> Any:
        return OpaqueObject()

    @staticmethod
    def static_method() -> Any:
        return OpaqueObject()


def test_the_error_has_the_line_of_methods_partials_callable_objects_and_wrapped_functions() -> None:
    line_of_bad = Harbour.bad.__code__.co_firstlineno
    line_of_call = Harbour.__call__.__code__.co_firstlineno
    assert f"bad() ({__file__}:{line_of_bad}) returned" in error_for(None, Harbour().bad)
    assert f"bad() ({__file__}:{line_of_bad}) returned" in error_for(None, functools.partial(Harbour().bad))
    assert f"Harbour() ({__file__}:{line_of_call}) returned" in error_for(None, Harbour())

    @functools.wraps(Harbour.static_method)
    def wrapper() -> Any:
        return Harbour.static_method()

    assert f"static_method() ({__file__}:{Harbour.static_method.__code__.co_firstlineno}) returned" in error_for(
        None, wrapper
    )


def test_the_repr_of_a_coroutine_is_refused_but_text_that_contains_it_is_sent() -> None:
    coroutine = tide()
    formatted = repr(coroutine)
    coroutine.close()
    assert "await tide(…)" in error_for(formatted)
    assert "await tide(…)" in error_for([t.TextContent(text=formatted)])
    assert error_for(f"The log says {formatted}.") == ""
    assert error_for(f"{formatted}.") == ""
    assert "returned a TextContent whose text is int" in error_for([t.TextContent(text=5)])  # type: ignore[arg-type]

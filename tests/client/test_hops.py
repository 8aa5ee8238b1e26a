"""The number of functions of the client that one `read_resource` or `call_tool` enters."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import wharfinger
from wharfinger import Client

PACKAGE = str(Path(wharfinger.__file__).parent)
PROGRAM = Path(__file__).with_name("example_server.py")


async def profile_call(revision: str, call: Callable[[Client], Awaitable[Any]]) -> tuple[Any, set[str], set[str], int]:
    """Return the result of a call, the functions and files of Wharfinger it enters, and its number of Python calls.

    The server is another process, so that none of its functions is counted.
    """
    frames: list[FrameType] = []
    async with Client(PROGRAM, revision=revision) as client:
        for _ in range(3):
            await call(client)
        sys.setprofile(lambda frame, event, _: frames.append(frame) if event == "call" else None)
        result = await call(client)
        sys.setprofile(None)
    own = {(frame.f_code.co_filename, frame.f_code.co_qualname) for frame in frames}
    own = {(file, name) for file, name in own if file.startswith(PACKAGE)}
    files = {Path(file).name for file, _ in own}
    return result, {f"{Path(file).name}:{name}" for file, name in own}, files, len(frames)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_one_read_enters_few_functions_and_files(revision: str) -> None:
    """The client has its default settings, so its cache is on."""

    result, functions, files, calls = asyncio.run(
        profile_call(revision, lambda client: client.read_resource("notes://data"))
    )
    assert result.text == '{"a":1}'
    assert len(functions) <= 25, sorted(functions)
    assert len(files) <= 9, sorted(files)
    assert calls <= 60


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_one_tool_call_enters_few_functions_and_files(revision: str) -> None:
    result, functions, files, calls = asyncio.run(
        profile_call(revision, lambda client: client.call_tool("add", {"a": 1, "b": 2}))
    )
    assert result.data == 3
    assert len(functions) <= 25, sorted(functions)
    assert len(files) <= 9, sorted(files)
    assert calls <= 60

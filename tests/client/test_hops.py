"""The number of functions that one `read_resource` or `call_tool` crosses in the client."""

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


async def crossed(revision: str, call: Callable[[Client], Awaitable[Any]]) -> tuple[Any, set[str], set[str], int]:
    """What a call returns, our functions and files that it enters, and how many Python calls it makes.

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
def test_one_read_crosses_few_functions_and_files(revision: str) -> None:
    """A default client, whose cache is on."""

    result, functions, files, calls = asyncio.run(
        crossed(revision, lambda client: client.read_resource("notes://data"))
    )
    assert result.text == '{"a":1}'
    assert len(functions) <= 25, sorted(functions)
    assert len(files) <= 9, sorted(files)
    assert calls <= 60


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_one_call_of_a_tool_crosses_as_little(revision: str) -> None:
    result, functions, files, calls = asyncio.run(
        crossed(revision, lambda client: client.call_tool("add", {"a": 1, "b": 2}))
    )
    assert result.data == 3
    assert len(functions) <= 25, sorted(functions)
    assert len(files) <= 9, sorted(files)
    assert calls <= 60

"""`python tests/transcripts/record.py [REVISION/FAMILY …]` writes the transcripts anew from the fixture as it is.

Read the difference before you keep it: what is written is what the server says, right or wrong.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.transcripts.families import FAMILIES, OPEN_THEMSELVES, Client, Family
from tests.transcripts.transcript import FOLDER, Ear, connected

QUIET = 0.5
"""Seconds without a word after which a server that owes no answer has said all it had to say."""
LONG = 10.0
"""Seconds in which it must have given the answers that it owes."""
RANDOM = re.compile(r'"(requestState|taskId|elicitationId|nextCursor)":"([^"]+)"')
"""Members whose values are others every time, and that the client may repeat."""
TIMES = re.compile(r'"(createdAt|lastUpdatedAt|lastModified)":"[^"]+"')


async def record(revision: str, family: Family) -> str:
    """One conversation as a transcript."""
    lines = [f"# {(family.__doc__ or '').splitlines()[0]}"]
    client = Client(revision)
    async with connected() as ear:
        if family not in OPEN_THEMSELVES:
            await converse(client.open(), ear, lines)
        await converse(family(client), ear, lines)
        rest = await ear.end()
        lines += [f"< {line}" for line in rest.decode().splitlines()]
    return blanked(lines)


async def converse(conversation: Any, ear: Ear, lines: list[str]) -> None:
    """Let a client talk, and record both sides."""
    received: list[Any] | None = None
    owed: set[Any] = set()
    while True:
        try:
            text: str = conversation.send(received)
        except StopIteration:
            return
        lines += [f"> {line}" for line in text.split("\n")]
        for line in text.split("\n"):
            owe(line, owed)
        ear.say(text.encode() + b"\n")
        received = []
        asked = False
        while True:
            try:
                line = (await asyncio.wait_for(ear.hear(), LONG if owed and not asked else QUIET)).decode()
            except TimeoutError:
                break
            lines.append(f"< {line}")
            message = json.loads(line)
            received.append(message)
            for answer in message if isinstance(message, list) else [message]:
                asked = asked or {"id", "method"} <= answer.keys()
                owed.discard(answer.get("id") if "method" not in answer else None)


def owe(line: str, owed: set[Any]) -> None:
    """Note which answers the server owes for a line of the client."""
    try:
        expected = json.loads(line)
    except ValueError:
        return
    for message in expected if isinstance(expected, list) else [expected]:
        match message:
            case {"method": "notifications/cancelled", "params": {"requestId": id}}:
                owed.discard(id)
            case {"method": str(method), "id": str() | int() as id} if method != "subscriptions/listen":
                owed.add(id)


def blanked(lines: list[str]) -> str:
    """Return the lines with a blank for every value that differs each time."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def name(match: re.Match[str]) -> str:
        member, value = match[1], match[2]
        if member != "taskId" or value not in names:  # states may be the same, and need not be
            counts[member] += 1
            names[value] = f"{member}{counts[member]}"
        return f'"{member}":"${{{names[value]}}}"'

    written: list[str] = []
    for line in lines:
        if line.startswith("< "):
            line = TIMES.sub(r'"\1":"${_}"', RANDOM.sub(name, line))
        for value, blank in names.items():
            line = line.replace(value, f"${{{blank}}}")
        written.append(line)
    return "\n".join(written) + "\n"


async def main(wanted: list[str]) -> None:
    """Record the named transcripts, or all."""
    keys = [
        (revision, name)
        for revision, name in FAMILIES
        if not wanted or {f"{revision}/{name}", revision, name} & set(wanted)
    ]
    texts = await asyncio.gather(*(record(revision, FAMILIES[revision, name]) for revision, name in keys))
    for (revision, name), text in zip(keys, texts, strict=True):
        path = FOLDER / revision / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        print(path.relative_to(FOLDER))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

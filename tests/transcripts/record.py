"""`python tests/transcripts/record.py [REVISION/FAMILY …]` records the transcripts of the fixture again.

Review the difference before you commit it: the server's messages are recorded whether they are right or wrong.
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

from tests.transcripts.families import FAMILIES, OPEN_SESSIONS_THEMSELVES, Client, Family
from tests.transcripts.transcript import FOLDER, Connection, connected

QUIET_SECONDS = 0.5
"""A server without pending requests that sends nothing for this time has finished."""
ANSWER_SECONDS = 40.0
"""The time for the answers to pending requests."""
RANDOM = re.compile(r'"(requestState|taskId|elicitationId|nextCursor)":"([^"]+)"')
"""Members whose values differ each time, and that the client may send back."""
TIMES = re.compile(r'"(createdAt|lastUpdatedAt|lastModified)":"[^"]+"')


async def record(revision: str, family: Family) -> str:
    """Record one conversation as a transcript."""
    lines = [f"# {(family.__doc__ or '').splitlines()[0]}"]
    client = Client(revision)
    async with connected() as connection:
        if family not in OPEN_SESSIONS_THEMSELVES:
            await converse(client.open(), connection, lines)
        await converse(family(client), connection, lines)
        rest = await connection.end()
        lines += [f"< {line}" for line in rest.decode().splitlines()]
    return with_blanks(lines)


async def converse(conversation: Any, connection: Connection, lines: list[str]) -> None:
    """Send the messages of a client, and record both sides."""
    received: list[Any] | None = None
    pending_ids: set[Any] = set()
    while True:
        try:
            text: str = conversation.send(received)
        except StopIteration:
            return
        lines += [f"> {line}" for line in text.split("\n")]
        for line in text.split("\n"):
            note_expected_answers(line, pending_ids)
        connection.send(text.encode() + b"\n")
        received = []
        request_seen = False  # the client must answer a request of the server before the server can answer its own
        while True:
            try:
                line = (
                    await asyncio.wait_for(
                        connection.receive(), ANSWER_SECONDS if pending_ids and not request_seen else QUIET_SECONDS
                    )
                ).decode()
            except TimeoutError:
                break
            lines.append(f"< {line}")
            message = json.loads(line)
            received.append(message)
            for answer in message if isinstance(message, list) else [message]:
                request_seen = request_seen or {"id", "method"} <= answer.keys()
                pending_ids.discard(answer.get("id") if "method" not in answer else None)


def note_expected_answers(line: str, pending_ids: set[Any]) -> None:
    """Update the ids of pending requests for a line of the client."""
    try:
        decoded = json.loads(line)
    except ValueError:
        return
    for message in decoded if isinstance(decoded, list) else [decoded]:
        match message:
            case {"method": "notifications/cancelled", "params": {"requestId": id}}:
                pending_ids.discard(id)
            case {"method": str(method), "id": str() | int() as id} if method != "subscriptions/listen":
                pending_ids.add(id)


def with_blanks(lines: list[str]) -> str:
    """Return the lines with a blank for every value that differs each time."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def name(match: re.Match[str]) -> str:
        member, value = match[1], match[2]
        if member != "taskId" or value not in names:  # equal values of other members may be a coincidence
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


async def main(names: list[str]) -> None:
    """Record the named transcripts, or all."""
    keys = [
        (revision, name)
        for revision, name in FAMILIES
        if not names or {f"{revision}/{name}", revision, name} & set(names)
    ]
    texts = await asyncio.gather(*(record(revision, FAMILIES[revision, name]) for revision, name in keys))
    for (revision, name), text in zip(keys, texts, strict=True):
        path = FOLDER / revision / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        print(path.relative_to(FOLDER))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

"""Every request that a caller can send about the resources, tools and prompts of a `World`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.security.leaks.callers import HttpCaller, StreamCaller
from tests.security.leaks.world import World
from tests.server.driving import STATELESS

Caller = HttpCaller | StreamCaller
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
ROOT_URIS = (  # of sources and schemes, also spelled differently
    "file:///lab",
    "file:///open",
    "file:///lab/",
    "shelf://",
    "skill://",
    "file:///",
    "note://",
    "memo://box",
)


def all_requests(world: World, revision: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests about all resources, tools and prompts, whether they exist or not, and about misspelled names."""
    targets = [(thing.action, thing.target) for thing in world.things()]
    uris = [target for action, target in targets if action == "read"]
    yield ("server/discover", {}) if revision == STATELESS else ("ping", {})
    misspelled = (
        [f"{uri[:-4]}x{uri[-4:]}" for uri in uris[::3]]
        + [f"{uri}x" for uri in uris[::5]]
        + [f"{uri}/" for uri in uris[::4]]
    )
    for uri in (*ROOT_URIS, *uris, *misspelled, *(f"{uri}?lines=1" for uri in uris[::4])):
        yield "resources/read", {"uri": uri}
        for tool, arguments in (
            ("read_resource", {"uri": uri}),
            ("fetch", {"id": uri}),
            ("read_directory", {"uri": uri}),
        ):
            yield "tools/call", {"name": tool, "arguments": arguments}
        if revision == STATELESS:
            yield "resources/directory/read", {"uri": uri}
            yield "skills/get", {"uri": uri}
        else:
            yield "resources/subscribe", {"uri": uri}
            yield "resources/unsubscribe", {"uri": uri}
    if revision == STATELESS:
        yield "skills/list", {}
    yield "tools/call", {"name": "links_of_all", "arguments": {}}
    yield "prompts/get", {"name": "prompt_of_all", "arguments": {}}
    yield "tools/call", {"name": "list_resources", "arguments": {}}
    for query in (
        "harbour",
        "heading",
        "more",
        "harbor",
        "q",
        *(words for thing in world.things() for words in thing.words[:2]),
    ):
        yield "tools/call", {"name": "search", "arguments": {"query": query}}
        yield "tools/call", {"name": "search", "arguments": {"query": query, "source": "lab"}}
    for action, target in targets:
        name = target.partition(":")[2]
        if action == "call":
            yield "tools/call", {"name": name, "arguments": {}}
            yield "tools/call", {"name": f"{name}x", "arguments": {}}
        elif action == "prompt":
            yield "prompts/get", {"name": name, "arguments": {}}
            yield "prompts/get", {"name": f"{name}x", "arguments": {}}
            yield (
                "completion/complete",
                {
                    "ref": {"type": "ref/prompt", "name": name},
                    "argument": {"name": "text", "value": ""},
                },
            )
    for template, argument in (
        ("file:///lab/{+path}", "path"),
        ("file:///open/{+path}", "path"),
        ("memo://box/{name}", "name"),
        ("shelf://{name}/a", "name"),
        ("skill://{+path}", "path"),
    ):
        values = {"", "q", *(uri.split("/", 3)[-1][: 5 * cut] for uri in uris for cut in (1, 2, 3))}
        for value in sorted(values):
            yield (
                "completion/complete",
                {
                    "ref": {"type": "ref/resource", "uri": template},
                    "argument": {"name": argument, "value": value},
                },
            )


async def send_all_requests(caller: Caller, world: World) -> dict[str, bytes]:
    """Send all requests and read all pages of all lists. Return the answers by request."""
    answers: dict[str, bytes] = {}
    for method, member in LISTS.items():
        cursor, page = None, 0
        while page == 0 or cursor is not None:
            answer = await caller.ask(method, {} if cursor is None else {"cursor": cursor})
            answers[f"{method} page {page}"] = answer
            assert b"event:" not in answer, answer
            body = json.loads(answer[answer.index(b"{") :])
            assert member in body.get("result", {}), answer
            cursor, page = body["result"].get("nextCursor"), page + 1
            assert page < 100
    for method, params in all_requests(world, caller.revision):
        answers[f"{method} {json.dumps(params)}"] = await caller.ask(method, params)
    return answers


CURSOR = re.compile(rb"([cC]ursor[^A-Za-z0-9_\-]{1,24})([A-Za-z0-9_\-]{30,})")
VERSION = re.compile(rb'("wharfinger/version\\*":\s*\\*")([^"\\]*)')
LENGTH = re.compile(rb"content-length: \d+")


def normalized(answer: bytes) -> bytes:
    """Return an answer without the parts that differ between two equal servers: sealed texts and versions of files."""
    answer = CURSOR.sub(rb"\1(sealed)", answer)
    answer = VERSION.sub(rb"\1(version)", answer)
    return LENGTH.sub(b"content-length: (length)", answer)


def without_sealed_texts(answer: bytes) -> bytes:
    """Return an answer without its sealed texts, which are new each time, and without its length."""
    return LENGTH.sub(b"content-length: (length)", CURSOR.sub(rb"\1(sealed)", answer))


def with_decoded_base64(answer: bytes) -> bytes:
    """Return an answer followed by the decoded form of everything in it that could be base64."""
    texts = [answer]
    for found in re.findall(rb"[A-Za-z0-9+/_\-]{16,}", answer):
        raw = found.translate(bytes.maketrans(b"-_", b"+/"))
        texts.append(base64.b64decode(raw[: len(raw) // 4 * 4]))
    return b"\n".join(texts)

"""No answer, in any method, era or transport, reveals anything that the rules hide from the caller.

An oracle of a few lines (`tests.policy.oracle`) decides what a caller may see. No answer contains a word of a hidden
thing. Every answer has the same bytes as that of a server that never had the hidden things. No answer changes with a
hidden file.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.security.leaks.all_requests import normalized, send_all_requests, with_decoded_base64, without_sealed_texts
from tests.security.leaks.callers import HttpCaller, StreamCaller, http_app
from tests.security.leaks.world import ALWAYS, BuiltServer, Shape, View, World, build, file_path, file_text, word
from tests.server.driving import ALL, ERAS, STATELESS
from tests.waiting import wait_until_async
from wharfinger.policy import Policy, Rule
from wharfinger.protocol.principal import Principal
from wharfinger.server import near_uris

ANN, BOB = Principal(subject="ann"), Principal(subject="bob")
PRINCIPALS = {"ann": ANN, "bob": BOB}
SHAPE: Shape = ((0,), (1,), (2, 0), (2, 1), (3, 0, 0), (3, 0, 1), (3, 1, 0), (4, 0))
WORLD = World(SHAPE)
EXAMPLES = 10
"""Each example takes about 2 s."""


@pytest.fixture(autouse=True)
def _unhurried_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give suggestions time: on a busy machine, two answers would differ in whether they have any."""
    monkeypatch.setattr(near_uris, "LISTING_SECONDS", 30.0)


def path_of(*path: int) -> str:
    """Return the path of a file, or of a directory if its last number is -1."""
    return file_path(path) if path[-1] >= 0 else "/".join(file_path((*path[:-1], 0)).split("/")[:-1])


def policies(world: World) -> st.SearchStrategy[tuple[list[Rule], list[Rule]]]:
    """Generate rules that hide or show single things, directories, names with `*`, and whole labels."""
    targets = [thing.target for thing in world.things()]
    patterns = {"file:///lab/**", "file:///open/**", "file:///**", "note://*", "memo://**", "shelf://**", "skill://**"}
    patterns |= {"tool:*", "prompt:*", "tool:part_*", "**", "file:///*", "file:///lab/*", "file:///lab/**/*.md"}
    for target in targets:
        if target.startswith("skill:"):  # a page cannot be published without its skill
            patterns.add(f"{target.rpartition('/')[0]}/**")
            continue
        patterns.add(target)
        if target.startswith("file:"):
            patterns |= {f"{target}/**", f"{target.rpartition('/')[0]}/*", f"file:///*/**/{target.rpartition('/')[2]}"}
    what = st.lists(st.sampled_from(sorted(patterns)), min_size=1, max_size=4).map(tuple)
    rule = st.builds(Rule, who=st.sampled_from(["anyone", "sub:ann", "sub:bob", "signed-in"]), what=what)
    broad = Rule(who="signed-in", what=("**", "tool:*", "prompt:*"))
    return st.tuples(
        st.one_of(
            st.just([broad]),
            st.lists(rule, min_size=1, max_size=4),
            st.lists(rule, max_size=2).map(lambda more: [broad, *more]),
        ),
        st.lists(rule, max_size=4),
    )


Corpus = tuple[Sequence[Rule], Sequence[Rule]]
EVERYTHING = ("**", "tool:*", "prompt:*")
CORPUS: dict[str, Corpus] = {
    "nothing": ([], []),
    "everything": ([Rule(who="signed-in", what=EVERYTHING)], []),
    "one file hidden from bob": (
        [Rule(who="signed-in", what=EVERYTHING)],
        [Rule(who="sub:bob", what=f"file:///*/{path_of(2, 1)}")],
    ),
    "a directory hidden from bob": (
        [Rule(who="signed-in", what=EVERYTHING)],
        [Rule(who="sub:bob", what=(f"file:///*/{path_of(3, -1)}/**", f"file:///*/{path_of(4, -1)}/**"))],
    ),
    "one of two labels": ([Rule(who="signed-in", what=("file:///open/**", "tool:*"))], []),
    "one file shown": ([Rule(who="sub:bob", what=f"file:///lab/{path_of(3, 0, 1)}")], []),
    "a directory shown whose parent is hidden": (
        [Rule(who="sub:bob", what=f"file:///lab/{path_of(3, 0, -1)}/**")],
        [Rule(who="anyone", what=f"file:///lab/{path_of(3, -1)}/*")],
    ),
    "names": (
        [Rule(who="signed-in", what=EVERYTHING)],
        [
            Rule(who="sub:bob", what=(f"tool:{word('tool 0')}", f"prompt:part_{word('prompt part_0')}")),
            Rule(
                who="sub:bob",
                what=(f"note://{word('note 0')}", f"memo://box/{word('memo 1')}", f"shelf://{word('shelf 2')}/**"),
            ),
            Rule(who="sub:bob", what=f"skill://{word('skill 0')}/**"),
        ],
    ),
    "a page of a skill": (
        [Rule(who="signed-in", what=EVERYTHING)],
        [Rule(who="sub:bob", what=f"skill://{word('skill 1')}/{word('page 1')}.md")],
    ),
}


def build_world(world: World, root: Path, rules: Corpus, view: View | None = None) -> BuiltServer:
    policy = Policy(allow=[*rules[0], *ALWAYS], deny=rules[1])
    return build(world, root, (lambda action, target: True) if view is None else view.allows, policy)


async def answers_of(server: BuiltServer, world: World, who: str, revision: str, transport: str) -> dict[str, bytes]:
    """Return all answers to one principal. Over HTTP, the other principal sends the same requests first."""
    await server.server.start()
    try:
        if transport == "stream":
            async with StreamCaller(server.server, PRINCIPALS[who], revision) as caller:
                return await send_all_requests(caller, world)
        app = http_app(server.server, PRINCIPALS)
        async with HttpCaller(app, "ann", revision) as first, HttpCaller(app, who, revision) as caller:
            if who != "ann":
                await send_all_requests(first, world)
            server.shelf.calls.clear()
            server.handled.clear()
            return await send_all_requests(caller, world)
    finally:
        await server.server.close()


def check(rules: Corpus, world: World, who: str, revision: str, transport: str) -> None:
    """Compare all answers to one principal with the decisions of the oracle."""
    view = View(world, [*rules[0], *ALWAYS], rules[1], PRINCIPALS[who])

    async def run(root: Path) -> tuple[dict[str, bytes], dict[str, bytes], BuiltServer]:
        whole = build_world(world, root / "whole", rules)
        visible = build_world(world, root / "visible", rules, view)
        return (
            await answers_of(whole, world, who, revision, transport),
            await answers_of(visible, world, who, revision, transport),
            whole,
        )

    with tempfile.TemporaryDirectory() as root:
        answers, expected, whole = asyncio.run(run(Path(root).resolve()))
    failures = [
        f"{request}: {reason}"
        for request, answer in answers.items()
        for reason in reasons(request, answer, expected.get(request), view)
    ]
    hidden = {thing.target for thing in view.things if not view.allows(thing.action, thing.target)}
    called = {uri for _, uri in whole.shelf.calls} | set(whole.handled)
    failures += [f"{target}: called" for target in hidden & called]
    assert set(answers) == set(expected)
    assert not failures, "\n".join(failures[:20])


def reasons(request: str, answer: bytes, expected: bytes | None, view: View) -> list[str]:
    """Return why an answer reveals too much."""
    text = with_decoded_base64(answer).decode(errors="replace")
    leaked = [word for word in (*view.hidden, *view.hidden_uris) if word in text and word not in request]
    if leaked:
        return [f"it has {leaked} in {text[:2000]}"]
    if expected is None or normalized(answer) != normalized(expected):
        return [f"it differs:\n  {normalized(answer)[:2000]!r}\n  {normalized(expected or b'')[:2000]!r}"]
    return []


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize("transport", ["http", "stream"])
def test_nothing_hidden_reaches_a_caller(name: str, revision: str, transport: str) -> None:
    check(CORPUS[name], WORLD, "bob", revision, transport)


@pytest.mark.parametrize("revision", [revision for revision in ALL if revision not in ERAS])
def test_nothing_hidden_reaches_a_caller_of_an_older_revision(revision: str) -> None:
    check(CORPUS["names"], WORLD, "bob", revision, "http")


shapes = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=8, unique=True
).map(lambda paths: tuple(sorted(paths)))


@given(st.data(), shapes, st.sampled_from(ERAS), st.sampled_from(["http", "stream"]))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking an example takes minutes
)
@pytest.mark.timeout(300)
def test_nothing_hidden_reaches_a_caller_with_random_rules(
    data: st.DataObject, shape: Shape, revision: str, transport: str
) -> None:
    world = World(shape, notes=2, tools=1, prompts=1)
    check(data.draw(policies(world)), world, "bob", revision, transport)


@pytest.mark.parametrize("name", ["one file hidden from bob", "a directory hidden from bob"])
async def test_answers_do_not_change_with_hidden_files(name: str, tmp_path: Path) -> None:
    rules = CORPUS[name]
    view = View(WORLD, [*rules[0], *ALWAYS], rules[1], BOB)
    hidden = [
        path
        for path in SHAPE
        if not any(view.allows("read", f"file:///{label}/{file_path(path)}") for label in ("lab", "open"))
    ]
    assert hidden
    server = build_world(WORLD, tmp_path.resolve(), rules)
    await server.server.start()
    try:
        app = http_app(server.server, PRINCIPALS)
        async with HttpCaller(app, "ann", STATELESS) as ann, HttpCaller(app, "bob", STATELESS) as bob:
            before = await send_all_requests(bob, WORLD)
            for path in hidden:
                (server.folder / file_path(path)).write_text(file_text(path, edition=1))
                await wait_until_found(ann, word(f"content {path} 1"))
            after = await send_all_requests(bob, WORLD)
    finally:
        await server.server.close()
    changed = [
        (without_sealed_texts(answer), without_sealed_texts(after[request]))
        for request, answer in before.items()
        if without_sealed_texts(answer) != without_sealed_texts(after[request])
    ]
    assert not changed, changed[:2]


async def wait_until_found(caller: HttpCaller, new_word: str) -> None:
    """Wait until a search of this caller finds the word in the text of a file."""
    search = {"name": "search", "arguments": {"query": new_word}}

    async def is_found() -> bool:
        return f"harbour of {new_word}".encode() in await caller.ask("tools/call", search)

    await wait_until_async(is_found, f"{new_word} is found")

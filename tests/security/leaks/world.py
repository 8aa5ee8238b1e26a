"""Build servers whose resources, tools and prompts contain unique words, with all or some of these things.

The name and the content of each thing have words that occur nowhere else, so an answer with one of them reveals the
thing. Answers are also compared with those of a server that does not have the hidden things.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from tests.policy import oracle
from wharfinger import Complete, ResourceNotFound, Server
from wharfinger import types as t
from wharfinger.policy import Policy, Rule
from wharfinger.protocol.principal import Principal
from wharfinger.source import Source
from wharfinger.sources import files, resource_tools, skills

MODIFICATION_TIME = 1_700_000_000
"""The modification time of every file and directory."""


def word(seed: str) -> str:
    """Return a word of ten letters that is unique to this seed."""
    digits = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    letters = ""
    for _ in range(8):
        digits, letter = divmod(digits, 20)
        letters += "bcdfghjklmnpqrstvwxz"[letter]
    return f"q{letters}q"


class Thing(NamedTuple):
    """Something that a rule can hide."""

    action: str
    target: str
    words: tuple[str, ...]
    """The words that reveal its existence, its name or its content."""


Shape = tuple[tuple[int, ...], ...]
"""The paths of files, each as the numbers of its directories and of itself."""


def file_path(path: tuple[int, ...]) -> str:
    """Return the path of a file. Each part has a unique word."""
    parts = [word(f"directory {path[:depth]}") for depth in range(1, len(path))]
    return "/".join([*parts, f"{word(f'file {path}')}.md"])


def file_text(path: tuple[int, ...], edition: int = 0) -> str:
    """Return the content: a heading, a word that all files share, and unique words."""
    unique_word = word(f"content {path} {edition}")
    return f"# Heading {word(f'heading {path} {edition}')}\n\nThe harbour of {unique_word}.\n" + "More.\n" * (
        len(path) + edition
    )


class World(NamedTuple):
    """The paths of the files of a server, and how many other things it has."""

    shape: Shape
    notes: int = 3
    tools: int = 2
    prompts: int = 2

    def things(self) -> list[Thing]:
        """Return everything that can be hidden, with each of its URIs and names."""
        things: list[Thing] = []
        for path in self.shape:
            file = file_path(path)
            words = (
                *(word(f"{kind} {path} {edition}") for kind in ("content", "heading") for edition in (0, 1)),
                word(f"file {path}"),
            )
            things += [Thing("read", f"file:///{label}/{file}", words) for label in ("lab", "open")]
            for depth in range(1, len(path)):
                directory = "/".join(file.split("/")[:depth])
                words = (word(f"directory {path[:depth]}"),)
                things += [Thing("read", f"file:///{label}/{directory}", words) for label in ("lab", "open")]
        for number in range(self.notes):
            note = word(f"note {number}")
            things.append(Thing("read", f"note://{note}", (note, word(f"note text {number}"))))
            memo = word(f"memo {number}")
            things.append(Thing("read", f"memo://box/{memo}", (memo, word(f"memo text {number}"))))
            shelf = word(f"shelf {number}")
            things.append(Thing("read", f"shelf://{shelf}/a", (shelf, word(f"shelf text {number}"))))
        for kind, action, count in (("tool", "call", self.tools), ("prompt", "prompt", self.prompts)):
            for number in range(count):
                for part in ("", "part_"):
                    name = f"{part}{word(f'{kind} {part}{number}')}"
                    words = (
                        word(f"{kind} {part}{number}"),
                        word(f"{kind} about {part}{number}"),
                        word(f"{kind} answer {part}{number}"),
                    )
                    things.append(Thing(action, f"{kind}:{name}", words))
        for number in range(2):
            skill = word(f"skill {number}")
            things.append(
                Thing(
                    "read", f"skill://{skill}/SKILL.md", (word(f"skill about {number}"), word(f"skill text {number}"))
                )
            )
            things.append(
                Thing(
                    "read",
                    f"skill://{skill}/{word(f'page {number}')}.md",
                    (word(f"page {number}"), word(f"page text {number}")),
                )
            )
        return things


Keep = Callable[[str, str], bool]
"""Reports whether the server has a thing, by its action and its target."""


class RecordingSource(Source):
    """Texts in memory. Calls are recorded, except those of `matches` and `stat`."""

    name = "shelf"
    uri = "shelf://"
    location = "memory"

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.calls: list[tuple[str, Any]] = []
        self.templates = [t.ResourceTemplate(uri_template="shelf://{name}/a", name="shelf")]

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf://")

    def page(self, after: str | None, limit: int) -> Any:
        self.calls.append(("page", after))
        uris = [uri for uri in sorted(self.texts) if after is None or uri > after]
        return [self.stat(uri) for uri in uris[:limit]], uris[limit - 1] if len(uris) > limit else None

    def _text(self, uri: str) -> str:
        if uri not in self.texts:
            raise ResourceNotFound(uri)
        return self.texts[uri]

    def stat(self, uri: str) -> t.Resource:
        return t.Resource(uri=uri, name=uri.split("/")[2], size=len(self._text(uri)), mime_type="text/plain")

    def version(self, uri: str) -> str:
        self.calls.append(("version", uri))
        return str(len(self._text(uri)))

    def read(self, uri: str) -> t.ReadResourceResult:
        self.calls.append(("read", uri))
        text = self._text(uri)
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type="text/plain", text=text)])

    def complete(self, template: str, name: str, value: str, arguments: Any) -> Any:
        self.calls.append(("complete", value))
        names = [uri.split("/")[2] for uri in sorted(self.texts)]
        return t.Completion(values=[name for name in names if name.startswith(value)])

    def watch(self, uri: str | None, changed: Any) -> None:
        self.calls.append(("watch", uri))


class BuiltServer(NamedTuple):
    """A server, the folder that it publishes, and the calls of its handlers."""

    server: Server
    folder: Path
    shelf: RecordingSource
    handled: list[str]


def write_files(root: Path, shape: Iterable[tuple[int, ...]], edition: int = 0) -> None:
    """Write a tree in which all files and directories have the same date."""
    root.mkdir(parents=True, exist_ok=True)
    for path in shape:
        file = root / file_path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file_text(path, edition))
    set_dates(root)


def set_dates(root: Path) -> None:
    """Set the same date on all files and directories of a tree."""
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            os.utime(os.path.join(directory, name), (MODIFICATION_TIME, MODIFICATION_TIME))
        os.utime(directory, (MODIFICATION_TIME, MODIFICATION_TIME))


def write_skills(root: Path, keep: Keep) -> None:
    root.mkdir(parents=True)
    for number in range(2):
        name = word(f"skill {number}")
        if not keep("read", f"skill://{name}/SKILL.md"):
            continue
        (root / name).mkdir()
        (root / name / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {word(f'skill about {number}')}\n---\n"
            f"{word(f'skill text {number}')} harbour\n"
        )
        if keep("read", f"skill://{name}/{word(f'page {number}')}.md"):
            (root / name / f"{word(f'page {number}')}.md").write_text(f"{word(f'page text {number}')} harbour\n")
    set_dates(root)


def build(world: World, root: Path, keep: Keep, policy: Policy) -> BuiltServer:
    """Build a server with the things that `keep` accepts."""
    handled: list[str] = []
    shapes = {
        label: [path for path in world.shape if keep("read", f"file:///{label}/{file_path(path)}")]
        for label in ("lab", "open")
    }
    # If all files are kept, both sources publish the same folder.
    one_folder = len(shapes["lab"]) == len(shapes["open"]) == len(world.shape)
    for label, shape in shapes.items():
        if not one_folder or label == "lab":
            write_files(root / label, shape)
            for path in world.shape:  # a directory may be visible although nothing in it is
                parts = file_path(path).split("/")[:-1]
                for depth in range(1, len(parts) + 1):
                    if keep("read", f"file:///{label}/{'/'.join(parts[:depth])}"):
                        (root / label / "/".join(parts[:depth])).mkdir(parents=True, exist_ok=True)
            set_dates(root / label)
    server = Server("leaks", instructions="Ask about the harbour.", page_size=3, secret="x" * 32)
    part = Server("part", secret="x" * 32)
    server.include(files(root / "lab", label="lab"))
    server.include(files(root / ("lab" if one_folder else "open"), label="open"))
    write_skills(root / "skills", keep)
    server.include(skills(root / "skills"))
    shelf = RecordingSource(
        {
            f"shelf://{word(f'shelf {number}')}/a": f"harbour {word(f'shelf text {number}')}"
            for number in range(world.notes)
            if keep("read", f"shelf://{word(f'shelf {number}')}/a")
        }
    )
    server.include(shelf)
    add_notes(server, world, keep, handled)
    for owner, prefix in ((server, ""), (part, "part_")):
        add_names(owner, prefix, world, keep, handled)
    server.include(part, prefix="part")
    server.include(resource_tools())
    server.policy = policy
    return BuiltServer(server, root / "lab", shelf, handled)


def add_notes(server: Server, world: World, keep: Keep, handled: list[str]) -> None:
    """Register notes as resources, memos as a template, and a tool and a prompt that link to all of them."""
    texts: dict[str, str] = {}
    for number in range(world.notes):
        note, memo = f"note://{word(f'note {number}')}", f"memo://box/{word(f'memo {number}')}"
        if keep("read", note):
            texts[note] = word(f"note text {number}")
            server.resources.add(note, reader(note, texts[note], handled), description=f"About {texts[note]}")
        if keep("read", memo):
            texts[memo] = word(f"memo text {number}")

    def complete_name(value: str) -> list[str]:
        names = [uri.removeprefix("memo://box/") for uri in texts if uri.startswith("memo:")]
        return [name for name in names if name.startswith(value)]

    def memo_of(name: str) -> str:
        handled.append(f"memo://box/{name}")
        if f"memo://box/{name}" not in texts:
            raise ResourceNotFound(f"memo://box/{name}")
        return f"harbour {texts[f'memo://box/{name}']}"

    memo_of.__annotations__ = {"name": Annotated[str, Complete(complete_name)], "return": str}
    server.resources.add("memo://box/{name}", memo_of)

    @server.tool
    def links_of_all() -> list[t.ContentBlock]:
        """Link to every note and memo, and embed it."""
        blocks: list[t.ContentBlock] = [t.TextContent(text="Links:")]
        blocks += [t.ResourceLink(uri=uri, name=uri) for uri in texts]
        for uri, text in texts.items():
            contents = t.ResourceContents(uri=uri, mime_type="text/plain", text=text)
            blocks.append(t.EmbeddedResource(resource=contents))
        return blocks

    @server.prompt
    def prompt_of_all() -> list[t.PromptMessage]:
        """Mention every note and memo."""
        return [
            t.PromptMessage(role="user", content=t.TextContent(text="The harbour.")),
            *(t.PromptMessage(role="user", content=t.ResourceLink(uri=uri, name=uri)) for uri in texts),
        ]


def reader(name: str, text: str, handled: list[str]) -> Callable[[], str]:
    """Return a handler that records its calls and returns a text."""

    def read() -> str:
        handled.append(name)
        return f"harbour {text}"

    return read


def add_names(server: Server, prefix: str, world: World, keep: Keep, handled: list[str]) -> None:
    """Register tools and prompts. Those of the mounted server have a prefix and other words."""
    for number in range(world.tools):
        name = word(f"tool {prefix}{number}")
        if keep("call", f"tool:{prefix}{name}"):
            function = reader(f"tool:{prefix}{name}", word(f"tool answer {prefix}{number}"), handled)
            server.tools.add(function, name=name, description=word(f"tool about {prefix}{number}"))
    for number in range(world.prompts):
        name = word(f"prompt {prefix}{number}")
        if keep("prompt", f"prompt:{prefix}{name}"):
            answer = word(f"prompt answer {prefix}{number}")
            prompt = prompter(f"prompt:{prefix}{name}", answer, handled)
            server.prompts.add(prompt, name=name, description=word(f"prompt about {prefix}{number}"))


def prompter(name: str, answer: str, handled: list[str]) -> Callable[[str], str]:
    """Return a prompt that records its calls and completes its argument."""

    def prompt(text: str = "") -> str:
        handled.append(name)
        return answer

    prompt.__annotations__ = {"text": Annotated[str, Complete([answer])], "return": str}
    return prompt


ALWAYS = [
    Rule(
        who="signed-in",
        do="call",
        what=tuple(
            f"tool:{name}"
            for name in ("links_of_all", "search", "fetch", "list_resources", "read_resource", "read_directory")
        ),
    ),
    Rule(who="signed-in", do="prompt", what="prompt:prompt_of_all"),
]
"""Rules that allow all principals the tools that show many things."""


class View:
    """The things of a world that one principal may see, by the oracle."""

    def __init__(self, world: World, allow: Sequence[Rule], deny: Sequence[Rule], principal: Principal) -> None:
        self.things = world.things()
        self.rules = allow, deny, principal
        seen = [thing for thing in self.things if self.allows(thing.action, thing.target)]
        visible_words = {word for thing in seen for word in thing.words}
        for thing in seen:  # a file shows the names of its directories, and a page its skill
            visible_words |= {part for part in thing.target.replace(".md", "").split("/") if part.startswith("q")}
        self.hidden = {word for thing in self.things for word in thing.words} - visible_words
        """The words that must not reach the principal."""
        self.hidden_uris = [
            thing.target for thing in self.things if thing not in seen and thing.target.endswith((".md", "/a"))
        ]

    def allows(self, action: str, target: str) -> bool:
        """Report whether the principal may do this. Files below a hidden directory may be visible."""
        return oracle.allowed(*self.rules, action, target)

"""Histories to compare with git: clones in the folder that WHARFINGER_REPOS names, else ones of `git fast-import`.

Those that are made have everything that readers get wrong: long chains of deltas, merges of two and of four, renames,
copies, files that become folders and links, submodules, modes that only old programs wrote, names that are not UTF-8,
empty files, commits and messages, tags of tags, trees and blobs, signatures, other encodings, clocks that run
backwards, and objects of which nothing can be inflated from the first 64 bytes.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import random
import subprocess
import threading
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote_to_bytes

from msgspec import UNSET

from tests.sources.git_repository.conftest import GIT, Work
from wharfinger import types as t
from wharfinger.server.document_search import SourceReader, search_documents
from wharfinger.source import Changed, Hit, MaybeAwaitable, ResourcePage, Source
from wharfinger.sources.git_repository import git
from wharfinger.sources.windows.window import ENCODING, NEXT

__all__ = [
    "NAMES",
    "GitObject",
    "History",
    "Published",
    "Stream",
    "bytes_of",
    "clones",
    "close_all",
    "equals",
    "escaped",
    "fill_with_deltas",
    "fill_with_oddities",
    "hard_to_inflate",
    "name_in",
    "tree_uri",
    "whole",
    "windows",
    "write",
]

Result = TypeVar("Result")

NAMES = (
    b"caf\xe9.txt", b"new\nline.txt", b"tab\tname.txt", b'quo"te.txt', b"back\\slash.txt", b"per%20cent.txt",
    b"ques?tion.txt", b"ha#sh.txt", b"amp&er=sand.txt", b"-dash.txt", b"--output=x", b" lead and trail ", b"..hidden",
    "invoice\u202egnp.exe".encode(), "caf\u00e9.txt".encode(), "cafe\u0301.txt".encode(), b"\x1b[31mred.txt",
    b"a:b.txt", b":(glob)x.txt", b"[a-z]*.txt", b"semi;colon.txt", b"plus+sign.txt", b"\xff\xfe", b"~tilde^caret",
    b"{brace}.txt",
)  # fmt: skip
"""Names of files that git stores, byte for byte, and that mean something else elsewhere."""

_MANY = b"".join(b"line %d of many\n" % number for number in range(400))
CHANGES = (
    (b"", b"a\n"), (b"a\n", b""), (b"a", b"a\n"), (b"a\n", b"a"), (b"a\r\nb\r\n", b"a\r\nc\r\n"), (b"\n", b"\n\n"),
(b"a\0b\n", b"a\0c\n"), (b"", b"\0"),
    (bytes(range(256)) * 40, bytes(range(255, -1, -1)) * 40),
    ("\u0436\n".encode("utf-16"), "\u0449\n".encode("utf-16")),
    (b"\xef\xbb\xbfmark\n", b"\xef\xbb\xbfmarked\n"), (_MANY, _MANY.replace(b"line 200 ", b"LINE 200 ")),
    (b"x" * 70_000 + b"\n", b"x" * 70_000 + b"y\n"), (b"same\n" * 3_000, b"other\n" * 3_000),
    (b"-- a\n++ b\n", b"-- a\n++ c\n"), (b"diff --git a/x b/x\n@@ -1 +1 @@\n", b"--- a\n+++ b\n@@ -0,0 +1 @@\n"),
    (b"\x1b[31mred\x1b[0m\n", b"\x1b[32mgreen\x1b[0m\n"), (b"bell \x07\x0c\x0b\n", b"bell\x08\n"),
    ("\u2028one\u2029two\x85three\n".encode(), "\u2028one\u2029two\x85four\n".encode()),
)  # fmt: skip
"""Contents before and after a change, each a case of its own for whoever prints a difference."""

SIZES = (0, 1, 15, 16, 127, 128, 8_191, 8_192, 65_535, 65_536, (1 << 20) - 1, 1 << 20)
"""Sizes of blobs about which headers, windows and buffers change."""

BLOCK = 64 << 20  # bytes of objects that are compared at once


class GitObject(NamedTuple):
    """An object as `git cat-file --batch` gives it."""

    oid: str
    kind: str
    data: bytes


class History(Work):
    """A repository to compare with, and git in it, which gives bytes here."""

    def __init__(self, path: Path, digits: int = 40) -> None:
        super().__init__(path)
        self.digits = digits

    def output(self, *arguments: str, data: bytes = b"", check: bool = True, **env: str) -> bytes:
        """What git prints, byte for byte."""
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.path.parent), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        clean |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0"}
        git = [GIT or "git", "-c", "core.quotePath=true", "-c", f"safe.directory={self.path}", *arguments]
        ran = subprocess.run(git, cwd=self.path, input=data, env=clean | env, capture_output=True, timeout=300)
        assert ran.returncode == 0 or not check, ran.stderr.decode(errors="replace")
        return ran.stdout

    def lines(self, *arguments: str) -> list[str]:
        """The lines that git prints."""
        return os.fsdecode(self.output(*arguments)).splitlines()

    def commits(self, most: int) -> list[str]:
        """Commits of all references: each one, or an even choice among more."""
        every = self.lines("rev-list", "--all")
        return every[:: max(1, len(every) // most)]

    def objects(self) -> Iterator[GitObject]:
        """All objects, also unreachable ones; a few at a time."""
        group: list[str] = []
        size = 0
        for line in self.lines("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize)"):
            oid, bytes_in_it = line.split(" ")
            group.append(oid)
            size += int(bytes_in_it)
            if size > BLOCK or len(group) == 5_000:
                yield from self._batch(group)
                group, size = [], 0
        yield from self._batch(group)

    def _batch(self, oids: list[str]) -> Iterator[GitObject]:
        data = self.output("cat-file", "--batch", data="".join([f"{oid}\n" for oid in oids]).encode())
        at = 0
        while at < len(data):
            end = data.index(b"\n", at)
            oid, kind, size = data[at:end].decode().split(" ")
            yield GitObject(oid, kind, data[end + 1 : end + 1 + int(size)])
            at = end + 2 + int(size)


def clones() -> list[Path]:
    """The first three repositories, by name, in the folder WHARFINGER_REPOS."""
    folder = os.environ.get("WHARFINGER_REPOS")
    inside = sorted(Path(folder).iterdir()) if folder else []
    return [path for path in inside if (path / ".git").exists() or (path / "HEAD").exists()][:3]


# Writing


class Stream:
    """What `git fast-import` reads."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.mark = 0
        self.seconds = 1_600_000_000

    def commit(
        self,
        branch: str,
        message: bytes,
        *changes: bytes,
        parents: tuple[int, ...] = (),
        after: int = 60,
        zone: str = "+0000",
    ) -> int:
        """Add a commit, so many seconds after the last one. Return its mark."""
        self.mark += 1
        self.seconds += after
        self.out += f"commit refs/heads/{branch}\nmark :{self.mark}\n".encode()
        self.out += f"author Ada Berth <ada@example.org> {self.seconds - 30} {zone}\n".encode()
        self.out += f"committer Bo Quay <bo@example.org> {self.seconds} {zone}\n".encode()
        self.out += b"data %d\n%s\n" % (len(message), message)
        for number, parent in enumerate(parents):
            self.out += b"%s :%d\n" % (b"merge" if number else b"from", parent)
        self.out += b"".join(changes) + b"\n"
        return self.mark


def write(path: bytes, content: bytes, mode: bytes = b"100644") -> bytes:
    """The change that writes a file."""
    name = b"".join(
        [b"\\%03o" % byte if byte < 33 or byte > 126 or byte in b'"\\' else bytes((byte,)) for byte in path]
    )
    return b'M %s inline "%s"\ndata %d\n%s\n' % (mode, name, len(content), content)


def fill_with_oddities(work: History) -> None:
    """Fill an empty repository with rare cases."""
    stream = Stream()
    modules = [(digits * 7)[: work.digits].encode() for digits in ("1234567890", "abcdef1234")]
    first = stream.commit(
        "main", b"Begin",
        *[write(b"texts/%02d.txt" % number, old) for number, (old, _) in enumerate(CHANGES)],
        *[write(b"names/" + name, b"called %d\n" % number) for number, name in enumerate(NAMES)],
        write(b"run.sh", b"#!/bin/sh\necho hi\n", b"100755"), write(b"link", b"../outside", b"120000"),
        b"M 160000 %s lib\n" % modules[0], write(b"thing", b"a file\n"), write(b"turn", b"a file\n"),
        write(b"deep/er/still/here.txt", b"deep\n"),
        write(b"moved.txt", b"".join([b"part %d\n" % number for number in range(50)])),
        write(b"large.bin", random.Random(1).randbytes(1 << 20)),
    )  # fmt: skip
    second = stream.commit(
        "main", b"Change all texts\n\nWith a body,\n\n    indented,\nand a trailer.\n\nSigned-off-by: A <a@b>\n",
        *[write(b"texts/%02d.txt" % number, new) for number, (_, new) in enumerate(CHANGES)],
        *[write(b"names/" + name, b"now called %d\n" % number) for number, name in enumerate(NAMES)],
        parents=(first,), zone="+0545",
    )  # fmt: skip
    third = stream.commit(
        "main", "Rename, copy and retype: \u00fcn\u00efcode \u202e\x1b[31m\n".encode(),
        b"R moved.txt deep/moved.txt\n", b"C run.sh copy.sh\n", b"D thing\n", write(b"thing/inside.txt", b"inside\n"),
        b"D turn\n", write(b"turn", b"target", b"120000"), write(b"run.sh", b"#!/bin/sh\necho hi\n"),
        b"M 160000 %s lib\n" % modules[1], parents=(second,), zone="-1130",
    )  # fmt: skip
    empty = stream.commit("main", b"", parents=(third,))
    back = stream.commit("main", b"Change nothing, while the clock goes back", parents=(empty,), after=-86_400)
    sides = [
        stream.commit(f"side{number}", b"Side %d" % number, write(b"side%d.txt" % number, b"side\n"), parents=(second,))
        for number in range(3)
    ]
    merge = stream.commit(
        "main", b"Merge three sides\n", *[write(b"side%d.txt" % number, b"side\n") for number in range(3)],
        write(b"only-in-the-merge.txt", b"here\n"), parents=(back, *sides),
    )  # fmt: skip
    cross = stream.commit("cross", b"Cross", write(b"cross.txt", b"cross\n"), parents=(sides[0], merge))
    rows = b"".join([b"row %d of a table, long enough to be stored as a delta\n" % number for number in range(900)])
    last = merge
    for number in range(60):
        rows = rows.replace(b"row %d of" % (number * 14), b"ROW %d, changed in %d, of" % (number * 14, number))
        change = write(b"table.txt", rows)
        last = stream.commit("main", b"Revise %d" % number, change, parents=(last,), after=(number % 5 - 1) * 30)
    last = stream.commit("main", b"Delete everything\n", b"deleteall\n", parents=(last,))
    stream.commit("main", b"Merge what crossed\n", write(b"again.txt", rows), parents=(last, cross))
    stream.commit("orphan", b"Begin again", write(b"orphan.txt", b"orphan\n"))
    loose = ("-c", "core.compression=9", "-c", "fastimport.unpackLimit=1000000")
    work.output(*loose, "fast-import", "--quiet", data=bytes(stream.out))
    _put_objects(work)


def _put_objects(work: History) -> None:
    """Objects that only other programs write: old modes, signatures, encodings, tags of anything."""
    blob, tree, parent = (work.git("rev-parse", name) for name in ("main:again.txt", "main~3^{tree}", "main"))
    raw = bytes.fromhex(blob)
    modes = (b"100664 a", b"100600 b", b"100755 c", b"100644 d", b"120000 e", b"160000 f")
    old = work.put("tree", b"".join([mode + b"\0" + raw for mode in modes]) + b"40000 g\0" + bytes.fromhex(tree))
    ada = b"Ada Berth <ada@example.org> 1700000000 +0100\n"
    people = b"author " + ada + b"committer " + ada
    head = f"tree {old}\nparent {parent}\n".encode() + people
    signature = b"-----BEGIN PGP SIGNATURE-----\n \n iQ" + b"x" * 60 + b"\n =abcd\n -----END PGP SIGNATURE-----\n"
    merged = f"mergetag object {parent}\n type commit\n tag v0\n tagger ".encode() + ada + b" \n An old tag\n"
    commits = {
        "signed": head + b"gpgsig " + signature + b"\nSigned\n",
        "signed256": head + b"gpgsig-sha256 " + signature + b"\nSigned otherwise\n",
        "mergetag": head + merged + b"\nMerge a tag\n",
        "latin": head + b"encoding ISO-8859-1\n\ncaf\xe9 in another encoding\n\nth\xe9\n",
        "bytes": head + b"\nneither \xff\xfe UTF-8 nor \xe9 declared\n",
        "cut": head + b"\nno end of line",
        "blank": head + b"\n\n\n  \nlate subject\n\n\n",
        "nothing": head + b"\n",
        "returns": head + b"\nSubject\r\n\r\nBody with\r\nreturns\r\n",
        "header": head + b"x-unknown of\n several\n lines\n\nUnknown header\n",
        "nameless": f"tree {old}\nauthor  <> 1 +0000\ncommitter  <> 1 +0000\n\nNameless\n".encode(),
        "zones": f"tree {old}\nauthor A <a@b> 1 +9959\ncommitter A <a@b> 4102444800 -0001\n\nZones\n".encode(),
    }
    names = {name: work.put("commit", data) for name, data in commits.items()}
    for name, oid in names.items():
        work.git("update-ref", f"refs/heads/odd/{name}", oid)
    for kind, target in (("blob", blob), ("tree", tree), ("commit", names["signed"])):
        oid, of = target, kind
        for depth in range(3):
            text = f"object {oid}\ntype {of}\ntag {kind}-{depth}\ntagger ".encode() + ada + b"\nTag %d\n" % depth
            oid, of = work.put("tag", text), "tag"
            work.git("update-ref", f"refs/tags/{kind}-{depth}", oid)
    work.git("update-ref", "refs/tags/plain-blob", blob)
    work.git("update-ref", "refs/tags/plain-tree", tree)
    text = f"object {names['signed']}\ntype commit\ntag old\n\nWithout a tagger\n".encode()
    work.git("update-ref", "refs/tags/old", work.put("tag", text + signature.replace(b"\n ", b"\n")))
    for content in hard_to_inflate(40):
        work.output("-c", "core.compression=9", "hash-object", "-w", "--stdin", data=content)
    for size in SIZES:
        work.put("blob", (b"0123456789abcdef" * (size // 16 + 1))[:size])


def hard_to_inflate(number: int) -> list[bytes]:
    """Contents whose first 128 bytes inflate to nothing, because the table of their codes is longer."""
    chance = random.Random(2)
    weights = [2 ** chance.randrange(11) for _ in range(256)]
    return [bytes(chance.choices(range(256), weights, k=20_000 + at)) for at in range(number)]


def fill_with_deltas(work: History) -> None:
    """Fill an empty repository with similar contents, in chains of up to 200 deltas."""
    chance = random.Random(3)
    stream = Stream()
    bodies = {
        b"dir%d/file%02d.txt" % (number % 7, number): [chance.randbytes(20).hex().encode() for _ in range(300)]
        for number in range(40)
    }
    last = stream.commit("main", b"Begin", *[write(path, b"\n".join(lines)) for path, lines in bodies.items()])
    for number in range(150):
        changed = chance.sample(sorted(bodies), 5)
        for path in changed:
            bodies[path][chance.randrange(300)] = chance.randbytes(20).hex().encode()
        changes = [write(path, b"\n".join(bodies[path])) for path in changed]
        last = stream.commit("main", b"Change %d" % number, *changes, parents=(last,))
    work.output("fast-import", "--quiet", data=bytes(stream.out))
    work.git("repack", "-a", "-d", "-f", "-q", "--depth=200", "--window=50")


# Reading through the source


class Published:
    """A repository as its source publishes it, called `repo`; every method waits for its result.

    Use it as a context manager: the event loop of its coroutines runs in a thread until then.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        self.source: Source = git(path, label="repo", **options)
        self.uri, self.templates = self.source.uri, self.source.templates
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._result(self.source.start())
        _open.add(self)

    def __enter__(self) -> Published:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _result(self, value: MaybeAwaitable[Result]) -> Result:
        if not isinstance(value, Awaitable):
            return value

        async def waited() -> Result:
            return await cast("Awaitable[Result]", value)

        return asyncio.run_coroutine_threadsafe(waited(), self._loop).result(120)

    def read(self, uri: str) -> t.ReadResourceResult:
        """The content of a URI."""
        return self._result(self.source.read(uri))

    def first(self, uri: str) -> t.ResourceContents:
        """The first of its contents."""
        return self.read(uri).contents[0]

    def first_text(self, uri: str) -> str:
        """The text of the first of its contents."""
        text = self.first(uri).text
        assert isinstance(text, str)
        return text

    def stat(self, uri: str) -> t.Resource:
        """The resource of a URI."""
        return self._result(self.source.stat(uri))

    def version(self, uri: str) -> str:
        """The version of a URI."""
        return self._result(self.source.version(uri))

    def page(self, after: str | None = None, limit: int = 1_000) -> ResourcePage:
        """A page of the list."""
        return self._result(self.source.page(after, limit))

    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> ResourcePage:
        """A page of a directory."""
        return self._result(self.source.children(uri, after, limit))

    def complete(self, template: str, argument: str, value: str, context: dict[str, str]) -> Sequence[str]:
        """Return the completions of a variable."""
        return self._result(self.source.complete(template, argument, value, context))

    def search(self, query: str) -> list[Hit]:
        """The documents that have these words, and the text of each of them."""
        reader = SourceReader(self._loop)
        for document in self._result(self.source.documents(None, 1_000))[0]:
            list(reader.text(self.source, document.uri))
        return search_documents(self.source, query, 10, reader)

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Watch a URI."""
        self._loop.call_soon_threadsafe(self.source.watch, uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI."""
        self._loop.call_soon_threadsafe(self.source.unwatch, uri)

    def close(self) -> None:
        """Close the source, and end its event loop."""
        _open.discard(self)
        if self._thread.is_alive():
            self._result(self.source.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


_open: set[Published] = set()


def close_all() -> None:
    """Close what a test that failed has left open."""
    for source in list(_open):
        source.close()


def tree_uri(rev: str, path: bytes) -> str:
    """The URI of a path, with every byte escaped."""
    return f"git://repo/tree/{rev}/" + "/".join([escaped(part) for part in path.split(b"/")])


def escaped(part: bytes) -> str:
    """One part of a URI, with every byte escaped."""
    return "".join([f"%{byte:02X}" for byte in part])


def bytes_of(contents: t.ResourceContents) -> bytes:
    """The bytes that a content stands for, without a byte order mark of UTF-16 or UTF-32."""
    if contents.text is UNSET:
        assert contents.blob is not UNSET
        return bytes(contents.blob)
    meta = {} if contents.meta is UNSET else contents.meta
    return contents.text.encode(str(meta.get(ENCODING, "utf-8")))


def equals(contents: t.ResourceContents, data: bytes) -> bool:
    """Return whether a content stands for these bytes."""
    found = bytes_of(contents)
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
    return found == data or (contents.text is not UNSET and data in [mark + found for mark in marks])


def windows(source: Published, uri: str) -> Iterator[t.ResourceContents]:
    """The first contents of each window, from this one to the last."""
    seen: set[str] = set()
    while uri not in seen:
        seen.add(uri)
        first = source.first(uri)
        yield first
        meta = {} if first.meta is UNSET else first.meta
        if NEXT not in meta:
            return
        uri = str(meta[NEXT])
    raise AssertionError(f"{uri} follows itself")


def whole(source: Published, uri: str) -> str:
    """The texts of all windows, joined."""
    return "".join([str(contents.text) for contents in windows(source, uri)])


def name_in(uri: str) -> bytes:
    """The file name at the end of a URI."""
    return unquote_to_bytes(uri.rsplit("/", 1)[1])

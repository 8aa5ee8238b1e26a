"""Skills from a folder: which folders are skills, their manifests, and which files are not published."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from tests.server.driving import ask, list_all, make_request, read
from wharfinger import Server
from wharfinger.errors import ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.server.skills import serve_skills
from wharfinger.sources import Skills, UnusableFolder, files, skill_folder, skills
from wharfinger.sources.folder import tree
from wharfinger.sources.skill_folder import MAX_FILES
from wharfinger.testing.source_suite.driver import ChangeRecorder


def skill_md(name: str, description: str = "What it is for", extra_fields: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{extra_fields}---\n\n# {name}\n"


def write_files(root: Path, **paths: str | bytes) -> None:
    for path, content in paths.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    write_files(
        folder,
        **{
            "README.md": "Not of any skill.",
            "pdf/SKILL.md": skill_md("pdf", extra_fields="license: MIT\nmetadata: {version: '2'}\n"),
            "pdf/references/FORMS.md": "Forms",
            "pdf/scripts/fill.py": "print()",
            "acme/billing/refunds/SKILL.md": skill_md("refunds"),
            "acme/notes.txt": "Not of any skill either.",
            "empty/nothing.txt": "",
        },
    )
    return folder


def server_of(*sources: Any, **options: Any) -> Server:
    server = Server("skilled", **options)
    for source in sources:
        server.include(source)
    return server


async def error_of(server: Server, method: str, uri: str, revision: str = "2026-07-28") -> Any:
    return (await ask(server, method, {"uri": uri}, revision))["error"]


async def test_each_folder_with_a_skill_md_is_listed_with_all_of_its_files(root: Path) -> None:
    result = (await ask(server_of(skills(root)), "skills/list"))["result"]
    refunds, pdf = result["skills"]
    assert refunds["uri"] == "skill://acme/billing/refunds/SKILL.md"
    assert pdf["frontmatter"] == {
        "name": "pdf",
        "description": "What it is for",
        "license": "MIT",
        "metadata": {"version": "2"},
    }
    assert [file["uri"] for file in pdf["resources"]] == [
        "skill://pdf/SKILL.md",
        "skill://pdf/references/FORMS.md",
        "skill://pdf/scripts/fill.py",
    ]
    data = (root / "pdf" / "references" / "FORMS.md").read_bytes()
    assert pdf["resources"][1]["digest"] == "sha256:" + hashlib.sha256(data).hexdigest()
    assert pdf["resources"][1]["size"] == 5
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


async def test_the_extension_is_declared_with_directory_read(root: Path) -> None:
    answer = await ask(server_of(skills(root)), "server/discover")
    capabilities = answer["result"]["capabilities"]
    assert capabilities["extensions"] == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
    assert "resources" in capabilities


async def test_the_skills_of_several_sources_are_listed_in_pages(root: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    write_files(more, **{f"s{number}/SKILL.md": skill_md(f"s{number}") for number in range(5)})
    server = server_of(files(root), skills(root), skills(more, prefix="more"))
    server.handlers.pop("skills/list"), server.handlers.pop("skills/get")
    server.handlers.pop("resources/directory/read")
    serve_skills(server, page_size=2)
    names: list[str] = []
    params: dict[str, Any] = {}
    pages = 0
    while True:
        result = (await ask(server, "skills/list", params))["result"]
        pages += 1
        names += [skill["frontmatter"]["name"] for skill in result["skills"]]
        if "nextCursor" not in result:
            break
        params = {"cursor": result["nextCursor"]}
    assert names == ["refunds", "pdf", "s0", "s1", "s2", "s3", "s4"]
    assert pages >= 4
    error = (await ask(server, "skills/list", {"cursor": "made up"}))["error"]
    assert error["code"] == -32602


async def test_a_skill_is_returned_by_its_uri(root: Path) -> None:
    server = server_of(skills(root))
    result = (await ask(server, "skills/get", {"uri": "skill://pdf/SKILL.md"}))["result"]
    assert result["skill"] in (await ask(server, "skills/list"))["result"]["skills"]
    assert "nextCursor" not in result
    assert "ttlMs" in result
    plain = (await ask(server, "skills/get", {"uri": "skill://pdf/SKILL.md"}, "2025-11-25"))["result"]
    assert set(plain) == {"skill"}


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    "uri",
    ["skill://nothing/SKILL.md", "skill://pdf", "skill://pdf/references/FORMS.md", "skill://empty/SKILL.md",
     "skill://pd%66/SKILL.md", "file:///pdf/SKILL.md", "skill://../SKILL.md"],
)  # fmt: skip
async def test_an_unknown_skill_is_an_invalid_param_in_both_eras(root: Path, uri: str, revision: str) -> None:
    error = await error_of(server_of(skills(root)), "skills/get", uri, revision)
    assert (error["code"], error["data"]) == (-32602, {"uri": uri})


async def test_only_files_and_folders_of_skills_are_read(root: Path) -> None:
    server = server_of(skills(root))
    (contents,) = await read(server, "skill://pdf/SKILL.md")
    assert contents["mimeType"] == "text/markdown"
    assert contents["text"] == (root / "pdf" / "SKILL.md").read_text()
    for uri in ("skill://README.md", "skill://acme/notes.txt", "skill://empty/nothing.txt", "skill://empty"):
        assert (await read(server, uri))["code"] == -32602
        assert not await server.resources.exists(make_request(server, "resources/read", {"uri": uri}), uri)
    for uri, below in (("skill://acme", ["skill://acme/billing"]), ("skill://", ["skill://acme", "skill://pdf"])):
        assert [each["uri"] for each in await read(server, uri)] == [uri, *below]


async def test_the_bytes_of_a_read_match_the_digest(root: Path) -> None:
    """Text in another encoding than UTF-8 is sent as a blob, because a host hashes the bytes it receives."""
    write_files(root, **{"pdf/wide.txt": "quay".encode("utf-16"), "pdf/raw": b"\xff\0"})
    write_files(root, **{"pdf/mark.txt": b"\xef\xbb\xbfquay\r\n"})
    server = server_of(skills(root))
    skill = (await ask(server, "skills/get", {"uri": "skill://pdf/SKILL.md"}))["result"]["skill"]
    for file in skill["resources"]:
        (contents,) = await read(server, file["uri"])
        data = contents["text"].encode() if "text" in contents else base64.b64decode(contents["blob"])
        assert (len(data), "sha256:" + hashlib.sha256(data).hexdigest()) == (file["size"], file["digest"])


async def test_resources_list_has_each_skill_md_with_name_and_description(root: Path) -> None:
    resources = await list_all(server_of(skills(root)))
    assert [(r["uri"], r["name"], r["description"], r["mimeType"]) for r in resources] == [
        ("skill://acme/billing/refunds/SKILL.md", "refunds", "What it is for", "text/markdown"),
        ("skill://pdf/SKILL.md", "pdf", "What it is for", "text/markdown"),
    ]
    paged = await list_all(server_of(skills(root), page_size=1))
    assert [r["uri"] for r in paged] == [r["uri"] for r in resources]


async def test_directories_in_and_above_skills_are_read(root: Path) -> None:
    server = server_of(skills(root))

    async def children(uri: str) -> list[tuple[str, str]]:
        result = (await ask(server, "resources/directory/read", {"uri": uri}))["result"]
        assert "ttlMs" not in result
        return [(child["uri"], child["mimeType"]) for child in result["resources"]]

    directory = "inode/directory"
    assert await children("skill://pdf") == [
        ("skill://pdf/references", directory),
        ("skill://pdf/scripts", directory),
        ("skill://pdf/SKILL.md", "text/markdown"),
    ]
    assert await children("skill://") == [("skill://acme", directory), ("skill://pdf", directory)]
    assert await children("skill://acme") == [("skill://acme/billing", directory)]
    assert await children("skill://acme/billing") == [("skill://acme/billing/refunds", directory)]


@pytest.mark.parametrize("uri", ["skill://pdf/SKILL.md", "skill://nothing", "skill://empty", "other://pdf"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_reading_a_file_as_a_directory_is_an_invalid_param(root: Path, uri: str, revision: str) -> None:
    error = await error_of(server_of(skills(root)), "resources/directory/read", uri, revision)
    assert error["code"] == -32602


async def test_folders_of_other_sources_are_read_as_directories_if_skills_are_served(root: Path, charts: Path) -> None:
    server = server_of(files(charts), skills(root))
    result = (await ask(server, "resources/directory/read", {"uri": "file:///charts/harbours"}))["result"]
    assert [child["name"] for child in result["resources"]] == ["north", "hull.ts"]
    error = await error_of(server_of(files(charts)), "resources/directory/read", "file:///charts")
    assert error["code"] == -32601


async def test_a_directory_is_read_in_pages(root: Path) -> None:
    write_files(root, **{f"pdf/n{number}.txt": "" for number in range(5)})
    server = server_of(skills(root))
    for method in ("skills/list", "skills/get", "resources/directory/read"):
        del server.handlers[method]
    serve_skills(server, page_size=3)
    first = (await ask(server, "resources/directory/read", {"uri": "skill://pdf"}))["result"]
    assert len(first["resources"]) == 3
    params = {"uri": "skill://pdf", "cursor": first["nextCursor"]}
    second = (await ask(server, "resources/directory/read", params))["result"]
    assert {r["uri"] for r in first["resources"]}.isdisjoint(r["uri"] for r in second["resources"])
    other_directory = await ask(
        server, "resources/directory/read", {"uri": "skill://acme", "cursor": first["nextCursor"]}
    )
    assert other_directory["error"]["code"] == -32602
    top_names: list[str] = []
    params = {"uri": "skill://"}
    source = skills(root)
    key: str | None = None
    while True:
        page, key = source.children("skill://", key, 1)
        top_names += [child.name for child in page]
        if key is None:
            break
    assert top_names == ["acme", "pdf"]


async def test_a_nested_skill_is_listed_and_its_files_belong_to_the_outer_one(root: Path) -> None:
    write_files(root, **{"pdf/ocr/SKILL.md": skill_md("ocr"), "pdf/ocr/data.txt": "x"})
    result = (await ask(server_of(skills(root)), "skills/list"))["result"]
    by_name = {skill["frontmatter"]["name"]: [file["uri"] for file in skill["resources"]] for skill in result["skills"]}
    assert set(by_name) == {"pdf", "ocr", "refunds"}
    assert set(by_name["ocr"]) < set(by_name["pdf"])


async def test_a_folder_that_is_a_skill_is_published_under_its_name(root: Path) -> None:
    server = server_of(skills(root / "pdf"), skills(root / "acme" / "billing", prefix="acme"))
    result = (await ask(server, "skills/list"))["result"]
    assert [skill["uri"] for skill in result["skills"]] == ["skill://pdf/SKILL.md", "skill://acme/refunds/SKILL.md"]
    assert len(result["skills"][0]["resources"]) == 3
    (contents,) = await read(server, "skill://pdf/references/FORMS.md")
    assert contents["text"] == "Forms"


def test_duplicate_uris_and_invalid_prefixes_or_folder_names_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give one of them another prefix"):
        server_of(skills(root), skills(root / "acme"))
    with pytest.raises(ValueError, match="not a path"):
        skills(root, prefix="a//b")
    (tmp_path / "Bad Name").mkdir()
    write_files(tmp_path / "Bad Name", **{"SKILL.md": skill_md("Bad Name")})
    with pytest.raises(UnusableFolder, match="lower-case"):
        skills(tmp_path / "Bad Name")


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("tools/SKILL.md", "# No frontmatter\n", "does not begin with frontmatter"),
        ("tools/SKILL.md", skill_md("other"), "name: tools"),
        ("tools/SKILL.md", "---\nname: tools\n---\n", "must have a description"),
        ("Tools/SKILL.md", skill_md("Tools"), "lower-case letters"),
        ("two--many/SKILL.md", skill_md("two--many"), "next to another"),
    ],
)
async def test_an_invalid_skill_is_left_out_and_the_reason_is_logged(
    root: Path, path: str, content: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(root, **{path: content, path.replace("SKILL.md", "ledger.txt"): "x"})
    server = server_of(skills(root))
    with caplog.at_level(logging.WARNING, "wharfinger.sources"):
        names = [s["frontmatter"]["name"] for s in (await ask(server, "skills/list"))["result"]["skills"]]
        await ask(server, "skills/list")
    assert names == ["refunds", "pdf"]
    assert caplog.text.count(reason) == 1
    assert (await read(server, "skill://" + path.replace("SKILL.md", "ledger.txt")))["code"] == -32602


async def test_a_skill_over_the_limits_is_left_out(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_files(root, **{f"pdf/data/{number}.txt": "" for number in range(MAX_FILES)})
    write_files(root, **{"acme/billing/refunds/large.bin": b""})
    os.truncate(root / "acme/billing/refunds/large.bin", 16 << 20)
    server = server_of(skills(root))
    assert (await ask(server, "skills/list"))["result"]["skills"] == []
    assert "more than 512 files" in caplog.text
    assert "more than 16 MiB" in caplog.text
    assert (await error_of(server, "skills/get", "skill://pdf/SKILL.md"))["code"] == -32602


async def test_the_log_says_once_that_only_some_folders_are_searched(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: the log named a SKILL.md of the top folder, which does not exist."""
    monkeypatch.setattr(skill_folder, "MAX_DIRECTORIES", 2)
    server = server_of(skills(root))
    with caplog.at_level(logging.WARNING, "wharfinger.sources"):
        for _ in range(2):
            await ask(server, "skills/list")
    assert [record.getMessage() for record in caplog.records] == [
        f"Only the first 2 folders in {root} are searched for skills"
    ]


async def test_links_and_hidden_files_are_left_out(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    (root / "pdf" / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "linked").symlink_to(root / "pdf")
    write_files(root, **{"pdf/.env": "KEY=1", "pdf/.hidden": "x"})
    source = skills(root)
    uris = {file.uri for skill in source.skills(None, 9)[0] for file in skill.resources if not isinstance(file, str)}
    assert not any(name in uri for uri in uris for name in ("link", ".env", ".hidden"))
    with pytest.raises(ResourceNotFound):
        source.read("skill://pdf/link.txt")


def test_the_digest_of_a_changed_file_is_updated_at_once(root: Path) -> None:
    source = skills(root)
    uri = "skill://pdf/SKILL.md"
    digests = set()
    for number in range(5):
        (root / "pdf" / "references" / "FORMS.md").write_text(f"Form{number}")
        digests.add(str(source.skill(uri).resources[1]))
    assert len(digests) == 5
    (root / "pdf" / "SKILL.md").write_text(skill_md("pdf", "Something else"))
    assert source.skill(uri).frontmatter["description"] == "Something else"


def test_digests_of_unchanged_files_are_cached(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = skills(root)
    old = 1_600_000_000
    monkeypatch.setattr(tree, "SETTLED_NS", -1)
    monkeypatch.setattr(tree, "SETTLED_COARSE_NS", -1)
    for file in root.rglob("*"):
        os.utime(file, (old, old))
    first = source.skill("skill://pdf/SKILL.md")
    cached = dict(source._digests)
    assert len(cached) == 3
    assert source.skill("skill://pdf/SKILL.md") == first
    assert all(source._digests[parts] is digest for parts, digest in cached.items())


def test_completion_and_search_are_limited_to_skills(root: Path) -> None:
    source = skills(root)
    assert source.complete(source.template, "path", "", {}) == ["acme/billing/refunds/SKILL.md", "pdf/SKILL.md"]
    assert source.complete(source.template, "path", "pd", {}) == ["pdf/SKILL.md"]
    assert source.complete(source.template, "path", "refund", {}) == ["acme/billing/refunds/SKILL.md"]
    write_files(root, **{"acme/forms.txt": "Forms"})
    assert [hit.uri for hit in search_documents(source, "forms", 9)] == ["skill://pdf/references/FORMS.md"]


@pytest.mark.parametrize("uri", ["skill://pdf/SKILL.md", None])
def test_watchers_are_notified_of_a_change(root: Path, uri: str | None, recorder: ChangeRecorder) -> None:
    source = skills(root)
    try:
        source.watch(uri, recorder)
        if uri is None:
            write_files(root, **{"new/SKILL.md": skill_md("new")})
        else:
            (root / "pdf" / "SKILL.md").write_text(skill_md("pdf", "Changed"))
        recorder.wait_for(uri)
    finally:
        source._watches.close()


@pytest.mark.parametrize("reverse", [False, True])
async def test_skills_below_the_prefix_of_another_source_belong_to_that_source(
    root: Path, tmp_path: Path, reverse: bool
) -> None:
    write_files(tmp_path / "more", **{"s1/SKILL.md": skill_md("s1")})
    write_files(root, **{"acme/s1/SKILL.md": skill_md("s1", "Hidden by the other")})
    sources = [skills(root), skills(tmp_path / "more", prefix="acme")]
    server = server_of(*(reversed(sources) if reverse else sources))
    result = (await ask(server, "skills/list"))["result"]
    uris = {skill["uri"]: skill["frontmatter"]["description"] for skill in result["skills"]}
    assert uris == {"skill://pdf/SKILL.md": "What it is for", "skill://acme/s1/SKILL.md": "What it is for"}
    (contents,) = await read(server, "skill://acme/s1/SKILL.md")
    assert "What it is for" in contents["text"]


async def test_skills_of_an_included_server_are_listed(root: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "more", **{"s1/SKILL.md": skill_md("s1")})
    outer = server_of(skills(root, prefix="own"))
    outer.include(server_of(skills(tmp_path / "more", prefix="part")), prefix="part")
    plain = Server("plain")
    plain.include(outer)
    for server in (outer, plain):
        result = (await ask(server, "skills/list"))["result"]
        assert [skill["uri"] for skill in result["skills"]][1:] == [
            "skill://own/pdf/SKILL.md",
            "skill://part/s1/SKILL.md",
        ]
        assert (await ask(server, "skills/get", {"uri": "skill://part/s1/SKILL.md"}))["result"]["skill"]
        children = await ask(server, "resources/directory/read", {"uri": "skill://part/s1"})
        assert [child["name"] for child in children["result"]["resources"]] == ["s1"]


def test_the_repr_names_folder_and_prefix(root: Path) -> None:
    assert repr(skills(root, prefix="acme")) == f"skills({str(root)!r}) at skill://acme"
    assert isinstance(skills(root), Skills)


def test_only_files_of_skills_are_read_in_windows_and_searched(root: Path) -> None:
    write_files(
        root, **{"pdf/notes.txt": b"one\ntwo\nthr\xe9e\n", "pdf/plain.txt": b"one\ntwo\n", "apart/notes.txt": b"one\n"}
    )
    source = skills(root)
    assert source.read("skill://pdf/plain.txt?lines=2-2").contents[0].text == "two\n"
    assert source.read("skill://pdf/notes.txt?lines=3-3").contents[0].blob == b"thr\xe9e\n"
    assert source.stat("skill://pdf/notes.txt?lines=2-2").uri == "skill://pdf/notes.txt?lines=2-2"
    assert "".join(source.text("skill://pdf/notes.txt")) == "one\ntwo\nthrée\n"
    for uri in ("skill://apart/notes.txt", "skill://apart/notes.txt?lines=1-1"):
        with pytest.raises(ResourceNotFound):
            source.read(uri)
        with pytest.raises(ResourceNotFound):
            list(source.text(uri))
    documents = {document.uri: document for document in source.documents(None, 1_000)[0]}
    assert "skill://pdf/notes.txt" in documents and "skill://apart/notes.txt" not in documents
    assert documents["skill://pdf/notes.txt"].version
    # The extension defines `_meta` of the files of skills (SEP-2640), and the server sets their TTL.
    assert source.stat("skill://pdf/notes.txt").meta is UNSET
    read = source.read("skill://pdf/notes.txt")
    assert (read.contents[0].meta, read.ttl_ms, read.cache_scope) == (UNSET, UNSET, UNSET)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux allows such names")
async def test_a_folder_above_a_skill_may_have_a_name_that_is_not_utf_8(root: Path) -> None:
    """Regression: its resource had a lone surrogate, which JSON refuses."""
    write_files(root, **{os.fsdecode(b"caf\xe9") + "/tea/SKILL.md": skill_md("tea")})
    resource = skills(root).stat("skill://caf%E9")
    assert (resource.name, resource.mime_type) == ("caf\\xe9", "inode/directory")
    msgspec.json.encode(resource)


async def test_the_listing_of_a_folder_above_skills_says_if_it_is_cut(root: Path, tmp_path: Path) -> None:
    """Regression: it ended after 1,000 folders without a word."""
    (contents, *_) = await read(server_of(skills(root)), "skill://acme")
    assert contents["text"] == "skills/acme/ holds 1 folder with skills.\n\nbilling/  skill://acme/billing\n"
    write_files(tmp_path / "many", **{f"s{number}/SKILL.md": skill_md(f"s{number}") for number in range(1_001)})
    (contents, *children) = await read(server_of(skills(tmp_path / "many")), "skill://")
    lines = contents["text"].splitlines()
    assert lines[0] == "many/ holds more than 1,000 folders with skills."
    assert lines[1].startswith("Only the first 1,000 entries follow. The others are in resources/list, and in ")
    assert (len(lines), len(children)) == (1_003, 1_000)


def test_the_description_counts_all_files_of_the_folder(root: Path) -> None:
    """We say so: only the files of skills are published."""
    assert re.fullmatch(r"7 files, \d+ B in the folder, watched by .+", skills(root).describe())


def change_during_read(monkeypatch: pytest.MonkeyPatch, file: Path, reads: int, content: str) -> None:
    """Give a SKILL.md other content when its frontmatter has been read so many times."""
    read_descriptor, identity, count = os.read, file.stat().st_ino, 0

    def read_then_change(descriptor: int, length: int) -> bytes:
        nonlocal count
        data = read_descriptor(descriptor, length)
        if os.fstat(descriptor).st_ino == identity:
            count += 1
            if count == reads:
                file.write_text(content)
        return data

    monkeypatch.setattr(os, "read", read_then_change)


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_skill_may_become_invalid_while_its_resource_is_made(
    root: Path, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a KeyError."""
    source = skills(root)
    change_during_read(monkeypatch, root / "pdf" / "SKILL.md", reads, "---\nlicense: MIT\n---\n")
    with suppress(ResourceNotFound):
        assert source.stat("skill://pdf/SKILL.md").name in ("pdf", "SKILL.md")


def test_a_directory_may_become_a_skill_while_it_is_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: an IndexError."""
    (root / "acme" / "SKILL.md").write_text("---\nname: other\n---\n")
    source = skills(root)
    change_during_read(monkeypatch, root / "acme" / "SKILL.md", 1, skill_md("acme"))
    assert [child.name for child in source.children("skill://acme")[0]] == ["billing"]

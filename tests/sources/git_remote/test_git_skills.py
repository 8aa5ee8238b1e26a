"""Skills in local and remote git repositories follow HEAD, and no other files are written to disk."""

from __future__ import annotations

import asyncio
import os
import re
import select
from pathlib import Path

import pytest

from tests.sources.git_remote.conftest import TIMEOUT_SECONDS, read_text, serving, wait_for_text
from tests.sources.git_remote.git_host import GitHost
from tests.sources.git_repository.conftest import GitRepository
from tests.waiting import wait_until_async
from wharfinger import Client, Server
from wharfinger.errors import RemoteError
from wharfinger.source import UnusableSource
from wharfinger.sources.git_remote import git_skills
from wharfinger.sources.git_remote.git_skills import GitSkills
from wharfinger.sources.registry import make_sources
from wharfinger.sources.skill_folder import skills
from wharfinger.types.skills import Skill

pytestmark = pytest.mark.usefixtures("cache")

MANUAL = "---\nname: {}\ndescription: {}\n---\n\n# Use it\n"


@pytest.fixture
def library(work: GitRepository) -> GitRepository:
    """Return a repository with two skills, and files that belong to no skill."""
    work.write("skills/pdf-forms/SKILL.md", MANUAL.format("pdf-forms", "Fill in forms."))
    work.write("skills/pdf-forms/templates/invoice.md", "Name: …\n")
    work.write("skills/pdf-forms/logo.png", b"\x89PNG\r\n\x1a\n\0\0")
    work.write("skills/deep/refunds/SKILL.md", MANUAL.format("refunds", "Give money back."))
    work.write("src/secret.py", "password = 1\n").write("README.md", "# Skills\n")
    work.commit("Begin")
    return work


def skills_of(location: str, **options: object) -> GitSkills:
    source = skills(f"git:{location}", every=1.0, **options)  # type: ignore[arg-type]
    assert isinstance(source, GitSkills)
    return source


@pytest.mark.parametrize("remote", [False, True])
async def test_skills_of_a_repository_follow_head(host: GitHost, library: GitRepository, remote: bool) -> None:
    location = host.add(library) if remote else str(library.path)

    def push() -> None:
        if remote:
            library.git("push", "-q", "origin", "main")

    source = skills_of(location)
    async with serving(source) as client:
        found = await client.list_skills()
        assert {skill.uri for skill in found} == {
            "skill://skills/pdf-forms/SKILL.md",
            "skill://skills/deep/refunds/SKILL.md",
        }
        forms = next(skill for skill in found if "pdf" in skill.uri)
        assert {str(getattr(file, "uri", file)) for file in forms.resources} == {
            f"skill://skills/pdf-forms/{name}" for name in ("SKILL.md", "templates/invoice.md", "logo.png")
        }
        assert re.fullmatch(r"4 files, \d+ B(, .+)?", source.describe())
        template = await client.read_skill_file(forms, "skill://skills/pdf-forms/templates/invoice.md")
        assert template.text == "Name: …\n"
        with pytest.raises(RemoteError):
            await read_text(client, "skill://src/secret.py")
        async with client.watch("skill://skills/pdf-forms/SKILL.md") as changes:
            library.write("skills/pdf-forms/SKILL.md", MANUAL.format("pdf-forms", "Fill in all forms."))
            (library.path / "skills/pdf-forms/templates/invoice.md").unlink()
            (library.path / "skills/pdf-forms/templates").rmdir()
            library.write("skills/pdf-forms/templates", "now a file\n")
            (library.path / "skills/deep/refunds/SKILL.md").unlink()
            library.commit("Change")
            push()
            await asyncio.wait_for(anext(changes), 50)

        async def only_skill() -> list[Skill]:
            found = await client.list_skills()
            return found if len(found) == 1 and len(found[0].resources) == 3 else []

        found = await wait_until_async(only_skill, "one skill of three files is left")
        assert found[0].frontmatter["description"] == "Fill in all forms."
        changed = await client.read_skill_file(found[0], "skill://skills/pdf-forms/templates")
        assert changed.text == "now a file\n"
        written = sorted(str(path.relative_to(source._folder)) for path in source._folder.rglob("*") if path.is_file())
        assert written == ["skills/pdf-forms/SKILL.md", "skills/pdf-forms/logo.png", "skills/pdf-forms/templates"]
    assert not source._folder.exists()


@pytest.mark.parametrize("remote", [False, True])
async def test_skills_are_published_again_by_a_server_that_starts_again(
    host: GitHost, library: GitRepository, remote: bool
) -> None:
    """A bug: the second time, there were no skills."""
    server = Server("harbour")
    source = skills_of(host.add(library) if remote else str(library.path))
    server.include(source)
    for _ in range(2):
        async with Client(server, cache=False, timeout=TIMEOUT_SECONDS) as client:
            assert len(await client.list_skills()) == 2
        assert not Path(source._temporary.name).exists()


@pytest.mark.parametrize("remote", [False, True])
async def test_files_that_could_not_be_written_are_written_later(
    host: GitHost,
    library: GitRepository,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    remote: bool,
) -> None:
    """A bug: skills of a remote repository stayed as they were until its next commit."""
    monkeypatch.setattr(git_skills, "RETRY_SECONDS", 0.1)
    source = skills_of(host.add(library) if remote else str(library.path))
    template = "skill://skills/pdf-forms/templates/invoice.md"
    async with serving(source) as client:
        assert await read_text(client, template) == "Name: …\n"
        obstacle = source._folder.with_name(f"{source._folder.name}.staged")
        obstacle.mkdir()
        library.write("skills/pdf-forms/templates/invoice.md", "Sum: …\n").commit("Change")
        if remote:
            library.git("push", "-q", "origin", "main")
        await wait_until_async(lambda: "could not be read" in caplog.text, "the failure is logged")
        obstacle.rmdir()
        await wait_for_text(client, template, "Sum: …\n")


async def test_files_of_a_checkout_that_failed_are_replaced_by_those_of_the_old_commit(
    library: GitRepository, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: files that were written before the failure stayed."""
    source = skills_of(str(library.path))
    template = "skill://skills/pdf-forms/templates/invoice.md"
    old = library.head
    async with serving(source) as client:
        assert await read_text(client, template) == "Name: …\n"
        library.write("skills/pdf-forms/templates/invoice.md", "Sum: …\n")
        for number in range(64):
            library.write(f"skills/pdf-forms/zz/{number}.md", f"{number}\n")
        library.write("skills/zzz/SKILL.md", MANUAL.format("zzz", "Damaged."))
        library.commit("Change")
        objects = library.path / ".git" / "objects"
        damaged, other = library.git("rev-parse", "HEAD:skills/zzz/SKILL.md", "HEAD:README.md").split()
        (objects / damaged[:2] / damaged[2:]).chmod(0o600)
        (objects / damaged[:2] / damaged[2:]).write_bytes((objects / other[:2] / other[2:]).read_bytes())
        await wait_until_async(lambda: "could not be read" in caplog.text, "the failure is logged")
        assert await read_text(client, template) == "Sum: …\n"
        library.git("update-ref", "refs/heads/main", old)
        await wait_for_text(client, template, "Name: …\n")
        await wait_until_async(lambda: not (source._folder / "skills/pdf-forms/zz").exists(), "the files are removed")


async def test_a_skill_at_the_top_of_a_repository_is_named_after_the_repository(
    host: GitHost, work: GitRepository
) -> None:
    work.write("SKILL.md", MANUAL.format("tides", "Read tide tables.")).write("ports/hull.md", "Hull 6.1\n")
    work.commit("Begin")
    source = skills_of(host.add(work, "tides.git"))
    async with serving(source) as client:
        (skill,) = await client.list_skills()
        assert skill.uri == "skill://tides/SKILL.md"
        assert (await client.read_skill_file(skill, "skill://tides/ports/hull.md")).text == "Hull 6.1\n"


async def test_a_skill_with_a_large_file_is_left_out_and_named_in_the_log(
    library: GitRepository, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the skill was published without the file, and the log named a SKILL.md that did not exist."""
    monkeypatch.setattr(git_skills, "MAX_BYTES", 1 << 20)
    library.write("skills/pdf-forms/.cache/large.bin", bytes((1 << 20) + 1))
    library.write("skills/deep/refunds/large.bin", bytes((1 << 20) + 1)).commit("Add large files")
    async with serving(skills_of(str(library.path))) as client:
        (skill,) = await client.list_skills()
        assert skill.uri == "skill://skills/pdf-forms/SKILL.md"
    name = f"{library.path}/skills/deep/refunds/SKILL.md"
    assert f"{name} is not published as a skill: its files have more than 1 MiB" in caplog.messages


async def test_files_beyond_the_bound_of_a_checkout_are_left_out_and_logged(
    library: GitRepository, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the log said that a SKILL.md at the top is not published."""
    monkeypatch.setattr(git_skills, "MAX_FILES", 1)
    async with serving(skills_of(str(library.path))) as client:
        assert len(await client.list_skills()) == 1
    assert f"Only 1 files and 256 MiB of the skills in {library.path} are published" in caplog.messages


@pytest.mark.parametrize(("max_files", "published"), [(3, ["refunds"]), (4, ["pdf-forms", "refunds"])])
async def test_a_skill_is_published_only_with_all_its_files(
    library: GitRepository, monkeypatch: pytest.MonkeyPatch, max_files: int, published: list[str]
) -> None:
    monkeypatch.setattr(git_skills, "MAX_FILES", max_files)
    async with serving(skills_of(str(library.path))) as client:
        assert sorted(skill.frontmatter["name"] for skill in await client.list_skills()) == published


@pytest.mark.skipif(os.name == "nt", reason="named pipes")
async def test_close_removes_the_files_after_a_write_that_still_runs(library: GitRepository) -> None:
    """Regression: the write could make files again in a folder that was being removed."""
    source = skills_of(str(library.path))
    await source.start()
    await asyncio.to_thread(source._wait_until_ready)
    pipe = source._folder.with_name(f"{source._folder.name}.staged")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        library.write("skills/pdf-forms/templates/invoice.md", "x" * (1 << 20)).commit("Change")
        await wait_until_async(lambda: select.select([reader], [], [], 0)[0], "the file is being written")
        closing = asyncio.create_task(source.close())
        assert not (await asyncio.wait([closing], timeout=0.5))[0]
    finally:
        os.close(reader)  # the write fails
    await closing
    assert not Path(source._temporary.name).exists()


async def test_a_problem_before_a_restart_does_not_fail_the_first_read_after_it(
    library: GitRepository, caplog: pytest.LogCaptureFixture
) -> None:
    source = skills_of(str(library.path))
    await source.start()
    await asyncio.to_thread(source._wait_until_ready)
    source._folder.with_name(f"{source._folder.name}.staged").mkdir()
    library.write("skills/pdf-forms/templates/invoice.md", "Sum: …\n").commit("Change")
    await wait_until_async(lambda: "could not be read" in caplog.text, "the failure is logged")
    await source.close()
    await source.start()
    try:
        found, _ = await asyncio.to_thread(source.skills, None, 10)
        assert len(found) == 2
    finally:
        await source.close()


async def test_links_and_special_names_of_a_repository_are_not_written(tmp_path: Path, work: GitRepository) -> None:
    work.write("a/SKILL.md", MANUAL.format("a", "A skill."))
    (work.path / "a" / "passwd").symlink_to("/etc/passwd")
    (work.path / "a" / "up").symlink_to("../..")
    work.write("a/.gitignore", "kept.md\n").write("a/kept.md", "tracked all the same\n")
    work.git("add", "-f", "a/kept.md")
    work.commit("Begin")
    # paths that git would not create itself, such as a/../escape
    blob = work.git("rev-parse", "HEAD:a/kept.md")
    inner = work.put("tree", b"100644 escape\0" + bytes.fromhex(blob))
    entries = b""
    for line in work.git("ls-tree", "HEAD:a").split("\n"):
        fields, _, name = line.partition("\t")
        mode, _, oid = fields.split()
        entries += f"{mode} {name}\0".encode() + bytes.fromhex(oid)
    for name in (b"..", b".git", b"."):
        tree = work.put("tree", b"40000 " + name + b"\0" + bytes.fromhex(inner) + entries)
        top = work.put("tree", b"40000 a\0" + bytes.fromhex(tree))
        work.git("update-ref", "refs/heads/main", work.git("commit-tree", "-m", "Trap", top))
        assert "escape" in work.git("ls-tree", "-r", "--name-only", "HEAD")
        source = skills_of(str(work.path))
        async with serving(source) as client:
            (skill,) = await client.list_skills()
            names = {str(getattr(file, "uri", file)).removeprefix("skill://a/") for file in skill.resources}
            assert names == {"SKILL.md", "kept.md"}
            below = list(Path(source._temporary.name).rglob("*"))
            assert {path.name for path in below} == {source.repository.label, "a", "SKILL.md", "kept.md"}
            assert not any(path.is_symlink() for path in below)


async def test_a_file_whose_path_is_too_long_is_left_out(work: GitRepository) -> None:
    work.write("a/SKILL.md", MANUAL.format("a", "A skill.")).commit("Begin")
    manual = work.git("rev-parse", "HEAD:a/SKILL.md")
    tree = work.put("tree", b"100644 deep\0" + bytes.fromhex(manual))
    for _ in range(17):
        tree = work.put("tree", b"40000 " + b"d" * 250 + b"\0" + bytes.fromhex(tree))
    skill = work.put("tree", b"100644 SKILL.md\0" + bytes.fromhex(manual) + b"40000 d\0" + bytes.fromhex(tree))
    top = work.put("tree", b"40000 a\0" + bytes.fromhex(skill))
    work.git("update-ref", "refs/heads/main", work.git("commit-tree", "-m", "Deepen", top))
    async with serving(skills_of(str(work.path))) as client:
        (listed,) = await client.list_skills()
        assert [str(getattr(file, "uri", file)) for file in listed.resources] == ["skill://a/SKILL.md"]


async def test_a_failure_to_clone_is_reported_until_the_skills_can_be_read(
    host: GitHost, library: GitRepository
) -> None:
    url = host.add(library)
    host.stop()
    source = skills_of(url)
    async with serving(source) as client:
        with pytest.raises(RemoteError, match=r"127\.0\.0\.1 does not answer"):
            await client.list_skills()
        host.start()
        assert await asyncio.to_thread(source._ready.wait, TIMEOUT_SECONDS)
        assert len(await wait_until_async(client.list_skills, "the skills are listed", ignore=RemoteError)) == 2


async def test_the_command_line_accepts_skill_folders_and_skills_of_repositories(
    host: GitHost, library: GitRepository
) -> None:
    url = host.add(library)
    words = [f"here=skills:{library.path}/skills", f"skills:git:{library.path}", f"far=skills:git:{url}", f"git:{url}"]
    sources = make_sources(words, {"every": 1.0, "max_clone_size": 1 << 20})
    assert [each.source.uri for each in sources] == ["skill://here", "skill://", "skill://far", "git://harbour"]
    assert [each.name for each in sources] == ["here", "work", "far", "harbour"]
    async with serving(*[each.source for each in sources]) as client:
        assert await read_text(client, "skill://far/skills/pdf-forms/templates/invoice.md") == "Name: …\n"
        assert await read_text(client, "skill://here/pdf-forms/templates/invoice.md") == "Name: …\n"
        assert await read_text(client, "skill://skills/pdf-forms/templates/invoice.md") == "Name: …\n"
        assert len(await client.list_skills()) == 6
    for word in (f"skills:git:{library.path}/missing", "skills:git:ssh://a/b", f"skills:git:{host.origin}@b/c"):
        with pytest.raises(UnusableSource):
            make_sources([word])


def test_source_words_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wharfinger.sources.registry import absolute_word, parse_word

    monkeypatch.chdir(tmp_path)
    here = os.getcwd()
    for word, expected in {
        "skills:lib": f"skills:{here}/lib",
        "a=skills:git:lib": f"a=skills:git:{here}/lib",
        "skills:git:https://a.example/x.git": "skills:git:https://a.example/x.git",
        "git:https://a.example/x.git": "git:https://a.example/x.git",
        "git:lib": f"git:{here}/lib",
    }.items():
        assert absolute_word(parse_word(word)) == expected

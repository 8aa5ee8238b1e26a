"""Hostile repositories and requests are refused or harmless, and run no program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sources.git_repository.conftest import GitRepository, ServedGit, put_ambiguous_blobs, text_of
from tests.sources.git_repository.pack_files import encode_header, encode_size
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import UnusableSource
from wharfinger.sources.git_repository import git

Publish = Callable[..., ServedGit]
REFUSED = (ResourceNotFound, InvalidArgument)


# Requests


@pytest.mark.parametrize(
    "rev",
    [
        "--output=stolen", "-n", "--help", "HEAD:../x", "HEAD:hull.txt", ":/regex", ":0:hull.txt", "HEAD^{/(a+)+$}",
        "HEAD^{tree}", "^{/(a+)+$}", "@{-1}", "@{u}", "main@{1}", "main@{yesterday}", "HEAD~100000", "HEAD~999",
        "HEAD^2", "HEAD^9999999", "HEAD\n--output=x", "main\0x", "main..HEAD", "..", "/etc/passwd", "../../HEAD",
        "refs/heads", "refs/heads/../../HEAD", "config", "description", "FETCH_HEAD", "refs/stash", "~", "^", "HEAD~-1",
        "HEAD~" + "9" * 5_000, "HEAD" + "^" * 60_000, "\N{SNOWMAN}", "a" * 41, "deadbeef",
    ],
)  # fmt: skip
def test_only_plain_revisions_are_accepted(source: ServedGit, rev: str) -> None:
    """Security G01, G02."""
    began = time.monotonic()
    for uri in (
        source.repository.uris.tree(rev),
        source.repository.uris.commit(rev),
        source.repository.uris.diff(rev, "HEAD"),
        source.repository.uris.log(rev),
    ):
        for method in (source.read, source.stat, source.version):
            with pytest.raises(REFUSED):
                method(uri)
    assert time.monotonic() - began < 30
    assert not list(Path(source.location).glob("stolen*"))


def test_options_in_paths_and_queries_are_refused(source: ServedGit, history: GitRepository) -> None:
    """Security G01."""
    for uri in (
        "git://repo/log/HEAD?since=--output=x", "git://repo/log/HEAD?limit=--all", "git://repo/log/HEAD?path=--output=x",
        "git://repo/log/HEAD?after=--all", "git://repo/diff/HEAD~1..HEAD/--output=x", "git://repo/tree/HEAD/--output=x",
        "git://repo/tree/HEAD/:(glob)**", "git://repo/tree/HEAD/..%2F..%2Fetc%2Fpasswd", "git://repo/tree/HEAD/../x",
        "git://repo/tree/HEAD/.git/config", "git://repo/tree/HEAD/.GIT/config", "git://repo/tree/HEAD/%2e%2e/x",
    ):  # fmt: skip
        try:
            text = text_of(source, uri)
        except REFUSED:
            continue
        assert text.startswith("0 commits"), uri
    assert sorted(name for name in os.listdir(history.path) if name != ".git") == [
        "README.md", "bin", "buoy.png", "docs", "hull.txt",
    ]  # fmt: skip


def test_a_reference_that_looks_like_an_option_is_read_as_a_name(history: GitRepository, publish: Publish) -> None:
    """Security G01. git creates no such branch, but another program may."""
    history.write(".git/refs/heads/--output=x", history.head + "\n")
    source = publish(history, label="repo")
    assert source.version("git://repo/commit/--output%3Dx") == history.head


def test_an_ambiguous_short_object_name_is_refused(work: GitRepository, publish: Publish) -> None:
    """Security G02."""
    work.commit("Begin")
    digits, _ = put_ambiguous_blobs(work)
    source = publish(work, label="repo")
    with pytest.raises(InvalidArgument, match="more digits"):
        source.read(f"git://repo/tree/{digits}")
    with pytest.raises(REFUSED):
        source.read(f"git://repo/commit/{digits}")


# Configuration


def test_programs_in_the_configuration_of_a_repository_are_not_run(
    history: GitRepository, publish: Publish, tmp_path: Path
) -> None:
    """Security G03."""
    marker = tmp_path / "marker"
    script = tmp_path / "program.sh"
    script.write_text(f"#!/bin/sh\necho $0 >> {marker}\ncat\n")
    script.chmod(0o755)
    include = tmp_path / "include"
    include.write_text(f"[core]\n\tfsmonitor = {script}\n")
    history.write(
        ".git/config",
        f"""[core]
\trepositoryformatversion = 0
\tfsmonitor = {script}
\tworktree = /
\thooksPath = {tmp_path}
\tpager = {script}
\tsshCommand = {script}
\teditor = {script}
\tattributesFile = {tmp_path}/attributes
[diff "evil"]
\tcommand = {script}
\ttextconv = {script}
[diff]
\texternal = {script}
[filter "evil"]
\tclean = {script}
\tsmudge = {script}
\tprocess = {script}
\trequired = true
[include]
\tpath = {include}
[includeIf "gitdir:/"]
\tpath = {include}
[remote "origin"]
\turl = ext::{script}
\tpromisor = true
\tpartialclonefilter = blob:none
[gpg]
\tprogram = {script}
[alias]
\tlog = !{script}
""",
    )
    history.write(".gitattributes", "* diff=evil filter=evil text eol=crlf\n")
    for hook in ("post-checkout", "reference-transaction", "fsmonitor-watchman"):
        history.write(f".git/hooks/{hook}", script.read_text())
        (history.path / ".git/hooks" / hook).chmod(0o755)
    source = publish(history, label="repo")
    for uri in (
        "git://repo", "git://repo/tree/HEAD", "git://repo/tree/HEAD/hull.txt", "git://repo/diff/HEAD~2..HEAD",
        "git://repo/commit/HEAD", "git://repo/log/HEAD",
    ):  # fmt: skip
        source.read(uri)
    source.page(None, 1_000)
    source.search("fathoms", 10)
    source.describe()
    assert text_of(source, "git://repo/tree/HEAD/hull.txt") == "five\nfathoms\n"
    assert not marker.exists()


def test_the_environment_and_the_users_configuration_are_ignored(history: GitRepository, tmp_path: Path) -> None:
    """Security G03, G11. Only git is run, and only with the directory of the source in its environment."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[include]\n\tpath = /dev/zero\n[core]\n\trepositoryformatversion = 99\n")
    code = """
import asyncio, sys
started = []
sys.addaudithook(lambda event, args: started.append(args) if event == "subprocess.Popen" else None)
from wharfinger.sources import git
source = git(sys.argv[1], label="repo")

async def main():
    for uri in ("git://repo", "git://repo/tree/HEAD/hull.txt", "git://repo/diff/HEAD~2..HEAD", "git://repo/log/HEAD"):
        await source.read(uri)
    await source.page(None, 1000)
    print((await source.read("git://repo/tree/HEAD/hull.txt")).contents[0].text)
    await source.close()

asyncio.run(main())
source.describe()
programs = {program for program, *_ in started}
paths = {env.get("GIT_DIR", "").rpartition("wharfinger-git-")[0] for *_, env in started[1:]}
names = set().union(*[env for *_, env in started])
print(len(programs), len(paths), sorted(names & {"HOME", "PATH", "GIT_WORK_TREE", "GIT_CONFIG_COUNT", "GIT_NAMESPACE"}))
"""
    elsewhere = GitRepository(tmp_path / "elsewhere").init()
    elsewhere.commit("Other", hull__txt="other\n")
    other = str(elsewhere.path / ".git")
    ran = subprocess.run(
        [sys.executable, "-c", code, str(history.path)],
        env={
            "PATH": os.environ["PATH"], "HOME": str(home), "GIT_DIR": other, "GIT_OBJECT_DIRECTORY": other + "/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": other + "/objects", "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
            "GIT_EXTERNAL_DIFF": "touch stolen", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.worktree",
            "GIT_CONFIG_VALUE_0": "/", "GIT_NAMESPACE": "x", "GIT_COMMON_DIR": other, "GIT_WORK_TREE": "/",
            "GIT_SHALLOW_FILE": "/dev/zero", "GIT_GRAFT_FILE": "/dev/zero",
        },
        capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("five\nfathoms\n\n1 1 []\n", "")


# Locations


def test_a_planted_bare_repository_is_refused(history: GitRepository, tmp_path: Path) -> None:
    """Security G04."""
    GitRepository(history.path / "vendor" / "planted").init("--bare")
    with pytest.raises(UnusableSource, match="bare repository inside"):
        git(history.path / "vendor" / "planted")


def test_a_bare_repository_is_published(history: GitRepository, publish: Publish, tmp_path: Path) -> None:
    history.git("clone", "-q", "--bare", "--no-local", str(history.path), str(tmp_path / "store.git"))
    source = publish(tmp_path / "store.git")
    assert source.uri == "git://store"
    assert text_of(source, "git://store/tree/main/hull.txt") == "five\nfathoms\n"


def test_git_files_planted_in_a_work_tree_are_not_read(history: GitRepository, publish: Publish) -> None:
    """As in git, `.git` takes precedence over a bare repository around it."""
    for name in ("HEAD", "config", "objects/x", "refs/x"):
        history.write(name, "ref: refs/heads/evil\n")
    assert publish(history, label="repo").describe().startswith("main at")


def test_a_worktree_is_refused_with_the_directory_it_points_to(history: GitRepository, tmp_path: Path) -> None:
    """Security G05."""
    history.git("worktree", "add", "-q", str(tmp_path / "linked"), "-b", "other")
    with pytest.raises(UnusableSource, match=r"leads to .*worktrees/linked.*name that directory"):
        git(tmp_path / "linked")
    with pytest.raises(UnusableSource, match="linked worktree"):
        git(_copy_git_directory(history.path / ".git" / "worktrees" / "linked", tmp_path))


def _copy_git_directory(directory: Path, tmp_path: Path) -> Path:
    """Copy the git directory of a worktree out of its repository."""
    copy = tmp_path / "copied"
    copy.mkdir()
    for name in ("objects", "refs"):
        (copy / name).mkdir()
    for name in ("HEAD", "commondir"):
        (copy / name).write_bytes((directory / name).read_bytes())
    return copy


def test_borrowed_objects_are_refused(history: GitRepository, tmp_path: Path) -> None:
    """Security G05."""
    history.git("clone", "-q", "--shared", str(history.path), str(tmp_path / "shared"))
    with pytest.raises(UnusableSource, match=r"borrows objects.*git repack"):
        git(tmp_path / "shared")


def test_alternates_that_are_added_later_are_not_followed(
    history: GitRepository, publish: Publish, tmp_path: Path
) -> None:
    """Security G05."""
    other = GitRepository(tmp_path / "other").init()
    oid = other.commit("Secret", secret__txt="secret\n")
    source = publish(history, label="repo")
    history.write(".git/objects/info/alternates", str(other.path / ".git" / "objects") + "\n")
    with pytest.raises(ResourceNotFound):
        source.read(f"git://repo/commit/{oid}")


@pytest.mark.parametrize("name", [".git", ".git/objects", ".git/refs", ".git/HEAD", ".git/objects/pack", ".git/config"])
def test_symbolic_links_in_the_git_directory_are_refused(history: GitRepository, tmp_path: Path, name: str) -> None:
    """Security G05."""
    (history.path / name).rename(tmp_path / "moved")
    (history.path / name).symlink_to(tmp_path / "moved")
    with pytest.raises(UnusableSource, match="symbolic link"):
        git(history.path)


def test_links_among_references_and_objects_are_not_followed(
    history: GitRepository, publish: Publish, tmp_path: Path
) -> None:
    """Security G05."""
    other = GitRepository(tmp_path / "other").init()
    oid = other.commit("Secret", secret__txt="secret\n")
    source = publish(history, label="repo")
    (history.path / ".git/refs/heads/evil").symlink_to(other.path / ".git/refs/heads/main")
    (history.path / ".git/refs/heads/more").symlink_to(other.path / ".git/refs/heads")
    assert "evil" not in text_of(source, "git://repo")
    for uri in ("git://repo/commit/evil", "git://repo/commit/more%2Fmain", f"git://repo/commit/{oid}"):
        with pytest.raises(ResourceNotFound):
            source.read(uri)
    target = history.path / ".git/objects" / oid[:2]
    if target.exists():
        shutil.copytree(target, tmp_path / "copied")
        shutil.rmtree(target)
    target.symlink_to(other.path / ".git/objects" / oid[:2])
    for uri in ("git://repo", "git://repo/tree/HEAD", "git://repo/commit/HEAD"):
        with pytest.raises(InvalidArgument, match=f"objects/{oid[:2]} is a symbolic link"):
            source.read(uri)
    time.sleep(0.1)  # a URI that names only objects is answered from a cache for this long
    with pytest.raises(InvalidArgument, match="symbolic link"):
        source.read(f"git://repo/commit/{oid}")


def test_a_folder_without_a_repository_is_refused_with_advice(history: GitRepository, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for path, words in (
        (tmp_path / "plain", "git init"),
        (history.path / "docs", f"inside {history.path}"),
        (tmp_path / "absent", "There is no folder"),
        (history.path / "hull.txt", "is not a folder"),
    ):
        with pytest.raises(UnusableSource, match=words):
            git(path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[extensions]\n\tobjectFormat = sha3\n", "objectFormat = sha3"),
        ("[extensions]\n\trefStorage = reftable\n", r"reftable\), which needs git 2\.45"),
        ("[extensions]\n\tquantum = true\n", "quantum"),
        ('[Extensions] # objects\n\tobjectformat = "md5" ; by another hash\n', "objectFormat = md5"),
        ("[core]\n\tbare = false\n[extensions] refstorage = reftable\n", r"reftable\), which needs git 2\.45"),
        ("[core\n\0\n", "cannot be read"),
    ],
)
def test_unknown_repository_formats_are_refused(history: GitRepository, config: str, words: str) -> None:
    """As in git, because an unknown extension may change any format."""
    history.write(".git/config", config)
    with pytest.raises(UnusableSource, match=words):
        git(history.path)


@pytest.mark.parametrize(
    "config",
    [
        "",
        "[extensions]\n\tpreciousObjects = true\n\tworktreeConfig\n",
        '[extensionsx]\n\tx = y\n[a "extensions"]\nx=y\n',
        '\n# [extensions]\n; x = y\n[remote "o"]\n\turl = ../x[1]\n',
    ],
)
def test_known_repository_formats_are_read(history: GitRepository, publish: Publish, config: str) -> None:
    history.write(".git/config", config)
    assert publish(history, label="repo").describe().startswith("main at")


@pytest.mark.parametrize(
    "head",
    [
        b"", b"rubbish", b"ref: ", b"ref: ../../../etc/passwd", b"ref: /etc/passwd", b"ref: refs/heads/\x1b[31m",
        b"a" * 41, b"\xff\0", b"ref: HEAD", b"ref: refs/heads/none", b"0" * 40, b"ref: refs/heads/loop",
        b"ref: refs/", b"ref: refs/*", b"ref: refs/\0", b"ref: refs/" + b"a" * 500_000,
    ],
)  # fmt: skip
def test_an_invalid_head_is_never_used_as_a_path(history: GitRepository, publish: Publish, head: bytes) -> None:
    """The content of a file never becomes a path."""
    history.write(".git/HEAD", head + b"\n")
    history.write(".git/refs/heads/loop", "ref: refs/heads/pool\n")
    history.write(".git/refs/heads/pool", "ref: refs/heads/loop\n")
    source = publish(history, label="repo")
    assert source.describe().isprintable()
    assert "\x1b" not in text_of(source, "git://repo")
    assert "root:" not in text_of(source, "git://repo")
    with pytest.raises(REFUSED):
        source.read("git://repo/tree/HEAD")
    assert text_of(source, "git://repo/tree/main/hull.txt") == "five\nfathoms\n"
    assert source.page(None, 100)[0]
    assert source.search("fathoms", 5) == []
    assert source.documents(None, 5)[0] == []


# Contents of a repository


def test_submodules_are_named_and_not_read(history: GitRepository, publish: Publish, tmp_path: Path) -> None:
    """Security G07, G08."""
    other = GitRepository(tmp_path / "other").init()
    oid = other.commit("Inside", inside__txt="inside\n")
    history.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "lib")
    history.commit("Add a submodule")
    source = publish(history, label="repo")
    text = text_of(source, "git://repo/tree/HEAD/lib")
    assert oid in text
    assert "inside.txt" not in text
    for uri in ("git://repo/tree/HEAD/lib/inside.txt", f"git://repo/commit/{oid}", f"git://repo/tree/{oid}"):
        with pytest.raises(ResourceNotFound):
            source.read(uri)
    assert f"+Subproject commit {oid}" in text_of(source, "git://repo/diff/HEAD")


def test_links_in_trees_are_read_as_their_target_paths(history: GitRepository, publish: Publish) -> None:
    """Security G06."""
    (history.path / "passwd").symlink_to("/etc/passwd")
    (history.path / "up").symlink_to("..")
    history.commit("Add links")
    source = publish(history, label="repo")
    content = source.read("git://repo/tree/HEAD/passwd").contents[0]
    assert (content.mime_type, content.text) == ("inode/symlink", "/etc/passwd")
    with pytest.raises(ResourceNotFound):
        source.read("git://repo/tree/HEAD/up/harbour")


NAMES = {
    b"caf\xe9.txt": "caf%E9.txt",
    b"\x1b[31mred\x1b[0m": "%1B%5B31mred%1B%5B0m",
    "invoice\u202egnp.exe".encode(): "invoice%E2%80%AEgnp.exe",
    b"-rf": "-rf",
    b"a?b#c%41&d": "a%3Fb%23c%2541&d",
    b"new\nline": "new%0Aline",
    b"..hidden": "..hidden",
}


def test_odd_names_are_shown_safely_and_read_byte_for_byte(work: GitRepository, publish: Publish) -> None:
    """Security G09."""
    for name in NAMES:
        (work.path / os.fsdecode(name)).write_bytes(NAMES[name].encode())
    work.git("add", "-A")
    work.git("commit", "-q", "-m", "Red \x1b[31m and \u202e turned")
    source = publish(work, label="repo")
    listed = {resource.uri: resource for resource in source.page(None, 1_000)[0]}
    for path in NAMES.values():
        resource = listed[f"git://repo/tree/HEAD/{path}"]
        assert resource.name.isprintable()
        content = source.read(resource.uri).contents[0]
        assert content.text == path
        assert text_of(source, f"git://repo/diff/HEAD/{path}").startswith("diff --git")
        assert text_of(source, f"git://repo/log/HEAD?path={path.replace('&', '%26')}").startswith("1 commit ")
    for uri in ("git://repo", "git://repo/tree/HEAD", "git://repo/commit/HEAD", "git://repo/log/HEAD"):
        text = text_of(source, uri)
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_names_that_no_file_can_have_are_left_out(work: GitRepository, publish: Publish) -> None:
    """Security G06."""
    work.commit("Begin", a__txt="a")
    blob = bytes.fromhex(work.git("rev-parse", "HEAD:a.txt"))
    names = (b"", b".", b"..", b"../../up", b".git", b"ok")
    tree = work.put("tree", b"".join(b"100644 " + name + b"\0" + blob for name in names))
    commit = work.git("commit-tree", tree, "-m", "Odd")
    work.git("update-ref", "refs/heads/odd", commit)
    source = publish(work, label="repo")
    assert [child.name for child in source.children("git://repo/tree/odd")[0]] == [".git", "ok"]
    assert source.read("git://repo/tree/odd/.git").contents[0].text == "a"


def test_entries_with_unknown_modes_are_submodules(work: GitRepository, publish: Publish) -> None:
    """As in git."""
    blob = bytes.fromhex(work.put("blob", b"1"))
    tree = work.put("tree", b"".join(b"%o a%d\0%s" % (mode, mode, blob) for mode in (0, 0o644, 0o100664, 0o140000)))
    work.git("update-ref", "refs/heads/main", work.git("commit-tree", tree, "-m", "Odd modes"))
    source = publish(work, label="repo")
    for line in work.git("ls-tree", "main").split("\n"):
        _, kind, _, name = line.split()
        text = text_of(source, f"git://repo/tree/main/{name}")
        assert text.startswith("A submodule") if kind == "commit" else text == "1"


def test_a_name_that_a_tree_has_twice_is_listed_once(work: GitRepository, publish: Publish) -> None:
    """A page that ended with such a name was followed by the same page again, without an end."""
    first, second = [bytes.fromhex(work.put("blob", content)) for content in (b"1", b"2")]
    tree = work.put("tree", b"100644 a\0" + first + b"100644 b\0" + first + b"100644 a\0" + second)
    work.git("update-ref", "refs/heads/main", work.git("commit-tree", tree, "-m", "Repeat a name"))
    source = publish(work, label="repo")
    uris: list[str] = []
    resources, after = source.page(None, 1)
    while after is not None and len(uris) < 20:
        uris += [resource.uri for resource in resources]
        resources, after = source.page(after, 1)
    assert [uri for uri in [*uris, resources[0].uri] if "/HEAD/" in uri] == [
        "git://repo/tree/HEAD/a",
        "git://repo/tree/HEAD/b",
    ]
    assert text_of(source, "git://repo/tree/HEAD/a") == "1"


def test_a_tree_of_ten_billion_files_is_listed_in_pages(work: GitRepository, publish: Publish) -> None:
    """Security G10: folders of ten folders, ten levels deep, have 10^10 files."""
    oid, kind = work.put("blob", b"boom"), b"100644"
    for _ in range(10):
        entries = [kind + b" %d\0" % number + bytes.fromhex(oid) for number in range(10)]
        oid, kind = work.put("tree", b"".join(entries)), b"40000"
    work.git("update-ref", "refs/heads/main", work.git("commit-tree", oid, "-m", "Boom"))
    source = publish(work, label="repo")
    began = time.monotonic()
    resources, key = source.page(None, 500)
    assert len(resources) == 500
    assert key is not None
    source.page(key, 500)
    source.read("git://repo/commit/HEAD")
    with suppress(InvalidArgument):  # if it takes too much time or memory
        assert "in time" in text_of(source, "git://repo/diff/HEAD")
    source.search("nowhere", 5)
    assert "more than" in source.describe()
    assert time.monotonic() - began < 40


def test_deep_trees_are_listed_up_to_a_limit(work: GitRepository, publish: Publish) -> None:
    """Security G10."""
    oid, kind = work.put("blob", b"deep"), b"100644"
    for _ in range(700):
        oid, kind = work.put("tree", kind + b" d\0" + bytes.fromhex(oid)), b"40000"
    work.git("update-ref", "refs/heads/main", work.git("commit-tree", oid, "-m", "Deep"))
    source = publish(work, label="repo")
    assert len(source.page(None, 5_000)[0]) < 600
    assert source.read("git://repo/tree/main" + "/d" * 700).contents[0].text == "deep"
    source.read("git://repo/diff/HEAD")


# Damaged and forged objects


def write_loose_object(work: GitRepository, oid: str, data: bytes) -> None:
    """Write the file of a loose object."""
    path = work.path / ".git/objects" / oid[:2] / oid[2:]
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"rubbish", zlib.compress(b"blob 5"), zlib.compress(b"blob 5\0abc"), zlib.compress(b"blob 2\0abc"),
        zlib.compress(b"blob x\0abc"), zlib.compress(b"evil 3\0abc"), zlib.compress(b"blob 3\0abc")[:-6],
        zlib.compress(b"blob 3\0xyz"), zlib.compress(b"blob 99999999999999999999\0abc"),
        zlib.compress(b"commit 3\0abc"), zlib.compress(b"blob -3\0abc"),
    ],
)  # fmt: skip
def test_damaged_objects_are_reported_and_others_can_be_read(
    work: GitRepository, publish: Publish, data: bytes
) -> None:
    """Security G10."""
    work.commit("Begin", a__txt="abc", b__txt="whole\n")
    write_loose_object(work, work.git("rev-parse", "HEAD:a.txt"), data)
    source = publish(work, label="repo")
    with pytest.raises((InvalidArgument, ResourceNotFound)):
        source.read("git://repo/tree/HEAD/a.txt")
    assert text_of(source, "git://repo/tree/HEAD/b.txt") == "whole\n"
    assert "a.txt" in text_of(source, "git://repo/tree/HEAD")
    source.page(None, 100)
    source.search("whole", 5)
    source.read("git://repo/commit/HEAD")
    assert list(source.text("git://repo/tree/HEAD/b.txt")) == ["whole\n"]


def test_an_object_with_fewer_bytes_than_its_header_says_is_reported_soon(
    work: GitRepository, publish: Publish
) -> None:
    """A bug: its readers waited for 20 seconds, because git waits for the next request after the last byte."""
    work.commit("Begin", a__txt="abc")
    write_loose_object(work, work.git("rev-parse", "HEAD:a.txt"), zlib.compress(b"blob 5\0abc"))
    source = publish(work, label="repo")
    began = time.monotonic()
    with pytest.raises(InvalidArgument, match="it has fewer bytes than its header says"):
        source.read("git://repo/tree/HEAD/a.txt")
    assert time.monotonic() - began < 9


def test_a_description_says_why_the_references_cannot_be_read(
    history: GitRepository, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: a thread died with a traceback on stderr, and the description said nothing."""
    source = publish(history, label="repo")
    source.repository.private_directory.close()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert "No such file or directory" in source.describe()


@pytest.mark.parametrize("kind", ["commit", "tree"])
def test_a_damaged_commit_or_tree_is_reported(work: GitRepository, publish: Publish, kind: str) -> None:
    """Security G10."""
    work.commit("Begin", a__txt="abc")
    write_loose_object(
        work,
        work.git("rev-parse", "HEAD" if kind == "commit" else "HEAD^{tree}"),
        zlib.compress(b"%s 3\0abc" % kind.encode()),
    )
    source = publish(work, label="repo")
    with pytest.raises(InvalidArgument, match="damaged"):
        source.read("git://repo/tree/HEAD")
    assert source.read("git://repo").contents
    assert source.describe()
    source.search("abc", 5)
    assert source.page(None, 100)[0][0].uri == "git://repo"
    assert source.documents(None, 100)[1] is None


def test_a_damaged_folder_or_commit_does_not_hide_others(work: GitRepository, publish: Publish) -> None:
    first = work.commit("Begin", z__txt="z")
    work.write("a/b.txt", "b")
    second = work.commit("Second")
    work.git("rm", "-q", "z.txt")
    work.write("y.txt", "y")
    third = work.commit("Third")
    tree = work.git("rev-parse", "HEAD:a")
    write_loose_object(work, tree, b"rubbish")
    write_loose_object(work, first, b"rubbish")
    source = publish(work, label="repo")
    uris = [resource.uri for resource in source.page(None, 100)[0]]
    assert uris[-2:] == ["git://repo/tree/HEAD/a", "git://repo/tree/HEAD/y.txt"]
    assert f"git://repo/commit/{third}" in uris
    text = text_of(source, "git://repo/log/HEAD")
    assert text.startswith("1 commit ")  # as in git, which needs the damaged commit to read its child
    assert "there may be older commits" in text
    assert text_of(source, "git://repo/log/HEAD?path=y.txt").startswith("1 commit ")
    assert "paths changed" in text_of(source, f"git://repo/commit/{second}")


def test_a_decompression_bomb_is_not_inflated(work: GitRepository, publish: Publish) -> None:
    """Security G10: a megabyte would inflate to a gigabyte of zeros."""
    size = 1 << 30
    compressor = zlib.compressobj(9)
    pieces = [compressor.compress(b"blob %d\0" % size)]
    pieces += [compressor.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    pieces.append(compressor.flush())
    oid = "ab" * 20
    write_loose_object(work, oid, b"".join(pieces))
    source = publish(work, label="repo")
    began = time.monotonic()
    for uri in (f"git://repo/tree/{oid}", f"git://repo/tree/{oid}?bytes={size - 10}-"):
        with pytest.raises(InvalidArgument, match="damaged"):
            source.read(uri)
    assert time.monotonic() - began < 30


def write_pack(work: GitRepository, objects: list[tuple[int, int, bytes, bytes]]) -> None:
    """Write a pack of objects (kind, declared size, bytes before the data, data) and its index.

    The ids of the objects in the index are 00…0, 00…1 and so on.
    """
    body = b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big")
    offsets = []
    for kind, size, before, data in objects:
        offsets.append(len(body))
        body += encode_header(kind, size) + before + zlib.compress(data)
    names = b"".join(number.to_bytes(20, "big") for number in range(len(objects)))
    fan = b"".join(len(objects).to_bytes(4, "big") for _ in range(256))
    index = b"\xfftOc\0\0\0\x02" + fan + names + bytes(4 * len(objects))
    index += b"".join(offset.to_bytes(4, "big") for offset in offsets) + bytes(40)
    work.write(".git/objects/pack/pack-evil.pack", body + bytes(20))
    work.write(".git/objects/pack/pack-evil.idx", index)


COPY_BASE = b"\xff" + b"\0\0\0\0" + b"\xff\xff\x00"  # copies the first 65,535 bytes of the base


def bad_deltas() -> dict[str, bytes]:
    base = 65_535
    return {
        "more than promised": encode_size(base) + encode_size(10) + COPY_BASE * 3,
        "a bomb": encode_size(base) + encode_size(1 << 40) + COPY_BASE * 1_000,
        "a bomb that says nothing of it": encode_size(base) + encode_size(base) + COPY_BASE * 100_000,
        "outside of the base": encode_size(base) + encode_size(20) + b"\x91\xff\x20",
        "another base": encode_size(7) + encode_size(base) + COPY_BASE,
        "cut": encode_size(base) + encode_size(base) + b"\xff\0",
        "no instruction": encode_size(base) + encode_size(base) + b"\0",
        "no sizes": b"\xff\xff",
        "": b"",
    }


@pytest.mark.parametrize("name", list(bad_deltas()))
def test_bad_deltas_are_reported(work: GitRepository, publish: Publish, name: str) -> None:
    """Security G10."""
    delta = bad_deltas()[name]
    write_pack(work, [(3, 65_535, b"", bytes(65_535)), (7, len(delta), bytes(20), delta)])
    source = publish(work, label="repo")
    began = time.monotonic()
    with pytest.raises(InvalidArgument):
        source.read("git://repo/tree/" + "1".zfill(40))
    assert time.monotonic() - began < 20


def test_a_cycle_of_deltas_is_refused(work: GitRepository, publish: Publish) -> None:
    """Security G10."""
    delta = encode_size(5) + encode_size(5) + b"\x90\x05"
    write_pack(
        work,
        [(7, len(delta), (1).to_bytes(20, "big"), delta), (7, len(delta), (0).to_bytes(20, "big"), delta)],
    )
    with pytest.raises(InvalidArgument, match="damaged"):
        publish(work, label="repo").read("git://repo/tree/" + "1".zfill(40))


def test_a_chain_of_deltas_with_large_intermediate_objects_is_refused(work: GitRepository, publish: Publish) -> None:
    """Security G10: the limits include intermediate objects."""
    size = 30 << 20
    copies = (encode_size(size) + encode_size(size)) + b"".join(
        bytes((0xFF,)) + at.to_bytes(4, "little") + min(0xFFFF, size - at).to_bytes(3, "little")
        for at in range(0, size, 0xFFFF)
    )
    chain = [(3, size, b"", bytes(size))]
    chain += [(7, len(copies), base.to_bytes(20, "big"), copies) for base in range(100)]
    write_pack(work, chain)
    began = time.monotonic()
    with pytest.raises(InvalidArgument, match="damaged"):
        publish(work, label="repo").read("git://repo/tree/" + f"{100:x}".zfill(40))
    assert time.monotonic() - began < 40


def test_files_in_damaged_packs_are_refused_and_the_repository_is_described(
    history: GitRepository, publish: Publish
) -> None:
    """Security G10."""
    history.git("gc", "-q")
    pack = next((history.path / ".git/objects/pack").glob("*.pack"))
    index = pack.with_suffix(".idx")
    good = pack.read_bytes(), index.read_bytes()
    for file, content in (
        (index, b""), (index, good[1][:500]), (index, b"\xfftOc\0\0\0\x02" + b"\xff" * 1024), (pack, b""),
        (index, good[1][:1_032] + b"\xff" * (len(good[1]) - 1_032)), (pack, good[0][:40]),
        (pack, good[0][:12] + b"\xff" * (len(good[0]) - 12)),
    ):  # fmt: skip
        for path, data in zip((pack, index), good, strict=True):
            path.chmod(0o644)
            path.write_bytes(content if path == file else data)
        source = publish(history, label="repo")
        with pytest.raises((ResourceNotFound, InvalidArgument)):
            source.read("git://repo/tree/HEAD/hull.txt")
        assert source.read("git://repo").contents
        assert source.describe()


def test_a_pack_that_is_truncated_while_open_does_not_crash_the_process(
    history: GitRepository, publish: Publish
) -> None:
    """Truncating a mapped file raises SIGBUS, but reading a truncated file only fails."""
    history.git("gc", "-q")
    source = publish(history, label="repo")
    source.version("git://repo/tree/HEAD/hull.txt")
    pack = next((history.path / ".git/objects/pack").glob("*.pack"))
    pack.chmod(0o644)
    os.truncate(pack, 20)
    with pytest.raises((ResourceNotFound, InvalidArgument)):
        source.read("git://repo/tree/HEAD~1/docs/tides.md")


def test_replacements_and_grafts_are_ignored(history: GitRepository, publish: Publish) -> None:
    """An id always means the object with that id."""
    first = history.git("rev-list", "--max-parents=0", "HEAD")
    evil = history.git("commit-tree", "HEAD^{tree}", "-m", "Evil")
    history.git("replace", history.head, evil)
    history.write(".git/info/grafts", f"{history.git('rev-parse', 'refs/heads/main')} {first}\n")
    source = publish(history, label="repo")
    assert "Evil" not in text_of(source, "git://repo/commit/HEAD")
    assert text_of(source, "git://repo/log/HEAD").startswith("3 commits")


def test_the_log_of_a_shallow_clone_ends_at_its_boundary(
    history: GitRepository, publish: Publish, tmp_path: Path
) -> None:
    history.git("clone", "-q", "--depth=1", f"file://{history.path}", str(tmp_path / "shallow"))
    source = publish(tmp_path / "shallow", label="repo")
    assert text_of(source, "git://repo/log/HEAD").startswith("1 commit ")
    assert "A hull.txt" in text_of(source, "git://repo/commit/HEAD")
    with pytest.raises(ResourceNotFound):
        source.read("git://repo/commit/HEAD~1")


def test_a_log_that_ends_because_of_since_does_not_say_that_the_clone_is_shallow(
    history: GitRepository, publish: Publish, tmp_path: Path
) -> None:
    """A bug: the log said that the clone has no older commits."""
    history.git("clone", "-q", "--depth=2", f"file://{history.path}", str(tmp_path / "shallow"))
    source = publish(tmp_path / "shallow", label="repo")
    since = history.git("log", "-1", "--format=%ct")
    assert text_of(source, f"git://repo/log/HEAD?since={since}").startswith("1 commit ")
    assert "shallow clone" not in text_of(source, f"git://repo/log/HEAD?since={since}")
    assert "shallow clone" in text_of(source, "git://repo/log/HEAD")


def test_a_commit_encoding_is_used_only_if_it_is_a_text_encoding(work: GitRepository, publish: Publish) -> None:
    """Some codecs of Python are slow, or not for text."""
    work.commit("Begin")
    tree = work.git("rev-parse", "HEAD^{tree}")
    for encoding, expected in (
        ("latin-1", "café"),
        ("zlib", "caf\\xe9"),
        ("../../x", "caf\\xe9"),
        ("idna", "caf\\xe9"),
        ("latin-1\nencoding cp1251", "café"),  # of a repeated field, git takes the first
    ):
        person = b"A <a@b> 1 +0000\n"
        head = f"tree {tree}\n".encode() + b"author " + person + b"committer " + person
        oid = work.put("commit", head + f"encoding {encoding}\n\n".encode() + b"caf\xe9\n")
        source = publish(work, label="repo")
        assert expected in text_of(source, f"git://repo/commit/{oid}")


@pytest.mark.parametrize(
    "when", ["9" * 30 + " +0000", "-99999999999 -9999", "1e9 +0000", "", "9" * 5_000 + " +1", "253402300800 +0000"]
)
def test_commits_with_impossible_times_are_read(work: GitRepository, publish: Publish, when: str) -> None:
    """A commit may have any time."""
    work.commit("Begin")
    tree = work.git("rev-parse", "HEAD^{tree}")
    person = f"A <a@b> {when}\n"
    oid = work.put("commit", f"tree {tree}\nauthor {person}committer {person}\nOdd\n".encode())
    work.git("update-ref", "refs/heads/main", oid)
    source = publish(work, label="repo")
    for uri in ("git://repo", "git://repo/tree/HEAD", "git://repo/commit/HEAD", "git://repo/log/HEAD?since=1"):
        source.stat(uri.partition("?")[0])
        assert source.read(uri).ttl_ms is not None
    assert source.page(None, 100)[0]


def test_reading_does_not_change_the_repository(history: GitRepository, publish: Publish) -> None:
    """File times do not change either."""

    def state() -> dict[str, tuple[int, int]]:
        found = {}
        for root, _, files in os.walk(history.path):
            for name in files:
                status = os.stat(os.path.join(root, name))
                found[os.path.join(root, name)] = (status.st_mtime_ns, status.st_size)
        return found

    before = state()
    source = publish(history, label="repo")
    for resource in source.page(None, 1_000)[0]:
        source.read(resource.uri)
    assert state() == before

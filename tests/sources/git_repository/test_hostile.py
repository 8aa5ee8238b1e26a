"""A repository cannot make the source run a program, read outside of the repository, or exhaust the machine.

A trap is a configuration key, hook, attribute or file that makes git run a program. The program writes a marker file.
The test reads every kind of URI and checks that the marker does not exist. Then it runs plain git in the same
repository, and checks that the marker exists. This proves that the trap works.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import UNSET

from tests.sources.git_repository.conftest import GIT, GitRepository
from tests.sources.git_repository.git_processes import git_processes
from tests.sources.git_repository.histories import PublishedRepository, bytes_of, close_all, percent_encode
from tests.sources.git_repository.pack_files import encode_header, encode_size
from tests.waiting import wait_until
from wharfinger import Client
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import UnusableSource

REFUSED = (ResourceNotFound, InvalidArgument)
SECRET = "the combination of the safe is 8-21-40"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs of the traps are shell scripts")


# The repository and its requests

ADA = b"Ada Berth <ada@example.org> 1795000000 +0100\n"
SIGNATURES = {
    "pgp": b"-----BEGIN PGP SIGNATURE-----\n \n iQEz\n =abcd\n -----END PGP SIGNATURE-----\n",
    "ssh": b"-----BEGIN SSH SIGNATURE-----\n U1NI\n -----END SSH SIGNATURE-----\n",
    "x509": b"-----BEGIN SIGNED MESSAGE-----\n MIIB\n -----END SIGNED MESSAGE-----\n",
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with attributes for all files, a branch to merge, signed commits and uncommitted changes."""
    work = GitRepository(tmp_path_factory.mktemp("template") / "harbour").init()
    work.write(".gitattributes", "* diff=evil filter=evil merge=evil\n")
    work.commit("Begin", hull__txt="four\nfathoms\n", other__txt="other\n")
    work.git("tag", "v1")
    work.git("checkout", "-q", "-b", "side")
    work.commit("Side", hull__txt="side\nfathoms\n")
    work.git("checkout", "-q", "main")
    work.write("docs/tides.md", "# Tides\n")
    work.commit("Main", hull__txt="five\nfathoms\n")
    work.git("tag", "-a", "v2", "-m", "Second")
    for kind, signature in SIGNATURES.items():
        tree = work.git("rev-parse", "HEAD^{tree}").encode()
        head = b"tree " + tree + b"\nparent " + work.head.encode() + b"\nauthor " + ADA + b"committer " + ADA
        oid = work.put("commit", head + b"gpgsig " + signature + b"\nSigned by " + kind.encode() + b"\n")
        work.git("update-ref", f"refs/heads/{kind}", oid)
    work.git("tag", "trunk", "main")
    work.write("hull.txt", "six, not committed\nfathoms\n").write("staged.txt", "staged\n")
    work.git("add", "staged.txt")
    work.write("untracked.txt", "untracked\n")
    return work.path


@pytest.fixture
def work(template: Path, tmp_path: Path) -> GitRepository:
    """Return a copy of the template."""
    shutil.copytree(template, tmp_path / "harbour", symlinks=True)
    return GitRepository(tmp_path / "harbour")


VALUES = {
    "rev": ("HEAD", "pgp", "ssh", "x509", "v2"),
    "from": ("HEAD~1",),
    "to": ("HEAD",),
    "path": ("hull.txt", "docs"),
    "after": (),
    "since": ("2001-01-01",),
    "until": ("2099-01-01",),
    "limit": ("5",),
    "author": ("Ada",),
    "grep": ("Main",),
    "text": ("fathoms",),
    "pickaxe": ("fathoms",),
    "lines": ("1-2",),
    "follow": ("true",),
}
"""Values of the variables of all URI templates. A template with another variable fails the tests."""

_VARIABLES = re.compile(r"\{([+?&]?)([a-z,]+)\}")


def _expand(uri: str, name: str, value: str) -> str:
    return uri.replace(f"{{{name}}}", value).replace(f"{{+{name}}}", value)


def uris_of(source: PublishedRepository) -> list[str]:
    """Return URIs of every template of the source, with each value and each parameter."""
    found = [
        source.uri,
        f"{source.uri}/tree/HEAD",
        f"{source.uri}/changes",
        f"{source.uri}/tree/HEAD/hull.txt?lines=1-2",
    ]
    found += [f"{source.uri}/tree/HEAD/hull.txt?tail=1", f"{source.uri}/tree/HEAD/hull.txt?bytes=0-3"]
    for template in source.templates:
        path_template, _, query = template.uri_template.partition("{?")
        uris = [path_template]
        for _, name in _VARIABLES.findall(path_template):
            uris = [_expand(uri, name, value) for uri in uris for value in VALUES[name]]
        found += uris
        parameters = query.rstrip("}").split(",") if query else []
        found += [f"{uri}?{name}={value}" for uri in uris[:2] for name in parameters for value in VALUES[name]]
    return found


def make_all_requests(source: PublishedRepository) -> dict[str, list[bytes]]:
    """Make every kind of request. Return the contents, or the name of the error, of each URI."""
    found: dict[str, list[bytes]] = {}
    for uri in uris_of(source):
        for method in (source.stat, source.version):
            with suppress(*REFUSED):
                method(uri)
        try:
            found[uri] = [bytes_of(contents) for contents in source.read(uri).contents]
        except REFUSED as error:
            found[uri] = [f"{type(error).__name__}".encode()]
    resources = source.page()[0]
    found["page"] = [resource.uri.encode() for resource in resources]
    for resource in resources:
        try:
            source.read(resource.uri)
        except REFUSED:
            continue
    for uri in (source.uri, f"{source.uri}/tree/HEAD"):
        try:
            source.children(uri)
        except REFUSED:
            continue
    for template in source.templates:
        for argument, value in (("rev", ""), ("rev", "m"), ("path", "h"), ("from", ""), ("to", "")):
            source.complete(template.uri_template, argument, value, {"rev": "HEAD"})
    found["search"] = [hit.uri.encode() for hit in source.search("fathoms")]
    found["describe"] = [source.source.describe().encode()]
    _watch(source)
    return found


def _watch(source: PublishedRepository) -> None:
    """Watch some URIs for one round of polling."""
    changed = threading.Event()
    uris = (source.uri, f"{source.uri}/tree/HEAD/hull.txt", None)
    for uri in uris:
        source.watch(uri, lambda _: changed.set())
    changed.wait(0.06)
    for uri in uris:
        source.unwatch(uri)


@pytest.fixture(scope="module")
def expected_answers(template: Path) -> dict[str, list[bytes]]:
    """Return the answers of the repository without a trap."""
    with PublishedRepository(template, every=0.02) as source:
        found = make_all_requests(source)
    read = [uri for uri, contents in found.items() if contents not in ([b"ResourceNotFound"], [b"InvalidArgument"])]
    assert len(read) > 25, found
    return found


def read_all(path: Path) -> dict[str, list[bytes]] | None:
    """Return the answers to all requests, or None if the repository is refused."""
    try:
        source = PublishedRepository(path, every=0.02)
    except UnusableSource as error:
        print(f"refused: {error}")
        return None
    with source:
        try:
            return make_all_requests(source)
        except InvalidArgument as error:
            print(f"refused: {error}")
            return None


def changed_answers(found: dict[str, list[bytes]], expected_answers: dict[str, list[bytes]]) -> list[str]:
    """Return the URIs whose answers differ. Uncommitted changes are left out, because traps write files."""
    return [uri for uri, contents in expected_answers.items() if found[uri] != contents and "/changes" not in uri]


# Traps


class Trap(NamedTuple):
    """Configuration and files that make git run a program; `{}` stands for the program.

    `commands` lists the git commands that run it. It is empty if none of them runs the program.
    """

    config: str = ""
    commands: Sequence[Sequence[str]] = ()
    files: Sequence[tuple[str, str]] = ()
    stdin: str = ""
    """The input of plain git."""
    prepare: Callable[[GitRepository, str], None] = lambda work, program: None
    in_terminal: bool = False
    """Whether plain git runs the program only in a terminal."""
    same_answers: bool = True
    """Whether all answers are the same as without the trap."""


STATUS = [["status"]]
CHECKOUT = [["checkout", "-q", "-f", "v1"]]
MERGE = [["reset", "-q", "--hard"], ["merge", "-q", "--no-edit", "-s", "ours", "side"]]
TEXTCONV = '[diff "evil"]\n\ttextconv = {}\n'
SHOW = [["log", "-1", "-p", "HEAD"]]
HOOKS: dict[str, Sequence[Sequence[str]]] = {
    "applypatch-msg": (),
    "commit-msg": [["commit", "--allow-empty", "-m", "x"]],
    "fsmonitor-watchman": (),
    "p4-pre-submit": (),
    "post-applypatch": (),
    "post-checkout": CHECKOUT,
    "post-commit": [["commit", "--allow-empty", "-m", "x"]],
    "post-index-change": CHECKOUT,
    "post-merge": MERGE,
    "post-receive": (),
    "post-rewrite": [["commit", "--allow-empty", "--amend", "-m", "x"]],
    "post-update": (),
    "pre-applypatch": (),
    "pre-auto-gc": (),
    "pre-commit": [["commit", "--allow-empty", "-m", "x"]],
    "pre-merge-commit": MERGE,
    "pre-push": [["push", "-q", "../pushed.git", "main"]],
    "pre-rebase": [["reset", "-q", "--hard"], ["rebase", "-q", "side"]],
    "pre-receive": (),
    "prepare-commit-msg": [["commit", "--allow-empty", "-m", "x"]],
    "proc-receive": (),
    "push-to-checkout": (),
    "reference-transaction": [["update-ref", "refs/heads/more", "HEAD"]],
    "sendemail-validate": (),
    "update": (),
}


def _install(path: Path, program: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, path)
    path.chmod(0o755)


def _add_hook(name: str) -> Callable[[GitRepository, str], None]:
    def prepare(work: GitRepository, program: str) -> None:
        work.git("init", "-q", "--bare", str(work.path.parent / "pushed.git"))
        _install(work.path / ".git/hooks" / name, program)

    return prepare


def _add_hooks_folder(work: GitRepository, program: str) -> None:
    _install(work.path / "hooked/post-checkout", program)


def _delete_blob(work: GitRepository, program: str) -> None:
    """Delete a blob. In a partial clone, git would fetch it."""
    blob = work.git("rev-parse", "HEAD:other.txt")
    (work.path / ".git/objects" / blob[:2] / blob[2:]).unlink()


def _add_alternates(work: GitRepository, program: str) -> None:
    other = GitRepository(work.path.parent / "other").init()
    other.commit("Other", other__txt="other\n")
    work.write(".git/objects/info/alternates", str(other.path / ".git/objects") + "\n")


def _write_included_config(work: GitRepository, program: str) -> None:
    (work.path.parent / "included").write_text(f"[core]\n\tfsmonitor = {program}\n")


def _add_submodule(work: GitRepository, program: str) -> None:
    """Add a submodule whose own configuration names the program."""
    inner = GitRepository(work.path / "lib").init()
    inner.commit("Inside", inside__txt="inside\n")
    work.write(".gitmodules", '[submodule "lib"]\n\tpath = lib\n\turl = ./lib\n')
    work.git("update-index", "--add", "--cacheinfo", f"160000,{inner.head},lib")
    inner.git("config", "core.fsmonitor", program)
    inner.write("inside.txt", "changed\n")


def _use_signed_commit(kind: str) -> Callable[[GitRepository, str], None]:
    def prepare(work: GitRepository, program: str) -> None:
        work.git("update-ref", "refs/heads/main", f"refs/heads/{kind}")

    return prepare


TRAPS: dict[str, Trap] = {
    "core.fsmonitor": Trap("[core]\n\tfsmonitor = {}\n", STATUS),
    "core.fsmonitor version 1": Trap("[core]\n\tfsmonitor = {}\n\tfsmonitorHookVersion = 1\n", STATUS),
    "core.fsmonitor and the untracked cache": Trap("[core]\n\tfsmonitor = {}\n\tuntrackedCache = true\n", STATUS),
    "core.hooksPath": Trap(
        "[core]\n\thooksPath = hooked\n", CHECKOUT,
        prepare=_add_hooks_folder,
    ),
    "core.pager": Trap("[core]\n\tpager = {}\n", [["log", "-1"]], in_terminal=True),
    "pager.log": Trap("[pager]\n\tlog = {}\n", [["log", "-1"]], in_terminal=True),
    "pager.blame": Trap("[pager]\n\tblame = {}\n", [["blame", "v1", "hull.txt"]], in_terminal=True),
    "core.editor": Trap("[core]\n\teditor = {}\n", [["commit", "--allow-empty"]]),
    "sequence.editor": Trap("[sequence]\n\teditor = {}\n", [["rebase", "--autostash", "-i", "v1"]]),
    "core.sshCommand": Trap(
        '[core]\n\tsshCommand = {}\n[remote "origin"]\n\turl = ssh://host.invalid/x\n', [["fetch", "origin"]]
    ),
    "core.gitProxy": Trap(
        '[core]\n\tgitProxy = {}\n[remote "origin"]\n\turl = git://host.invalid/x\n', [["fetch", "origin"]]
    ),
    "core.askPass": Trap("[core]\n\taskPass = {}\n", [["credential", "fill"]], stdin="protocol=https\nhost=a\n\n"),
    "credential.helper": Trap(
        "[credential]\n\thelper = {}\n", [["credential", "fill"]], stdin="protocol=https\nhost=a\nusername=b\n\n"
    ),
    "core.alternateRefsCommand": Trap(
        "[core]\n\talternateRefsCommand = {}\n", [["rev-list", "--alternate-refs"]], prepare=_add_alternates
    ),
    "diff.external": Trap("[diff]\n\texternal = {}\n", [["diff", "v1", "main"]]),
    "diff.*.command": Trap('[diff "evil"]\n\tcommand = {}\n', [["diff", "v1", "main"]]),
    "diff.*.textconv": Trap(TEXTCONV, SHOW),
    "diff.*.textconv, blame": Trap(TEXTCONV, [["blame", "main", "--", "hull.txt"]]),
    "diff.*.textconv, diff": Trap(TEXTCONV, [["diff", "v1..main"]]),
    "diff.*.textconv, pickaxe": Trap(TEXTCONV, [["log", "-S", "five", "main"]]),
    "diff.*.textconv, grep": Trap(TEXTCONV, [["grep", "--textconv", "five", "main"]]),
    "diff.*.cachetextconv": Trap(TEXTCONV + "\tcachetextconv = true\n", SHOW),
    "diff.*.textconv, core.attributesFile": Trap(
        TEXTCONV + "[core]\n\tattributesFile = attributed\n", SHOW,
        [(".gitattributes", ""), ("attributed", "* diff=evil\n")],
    ),
    "diff.*.textconv, info/attributes": Trap(
        TEXTCONV, SHOW, [(".gitattributes", ""), (".git/info/attributes", "* diff=evil\n")]
    ),
    "filter.*.clean": Trap('[filter "evil"]\n\tclean = {}\n', [["status"], ["add", "hull.txt"]]),
    "filter.*.clean, required": Trap('[filter "evil"]\n\tclean = {}\n\trequired = true\n', [["diff"]]),
    "filter.*.smudge": Trap('[filter "evil"]\n\tsmudge = {}\n', CHECKOUT),
    "filter.*.smudge, cat-file": Trap('[filter "evil"]\n\tsmudge = {}\n', [["cat-file", "--filters", "HEAD:hull.txt"]]),
    "filter.*.process": Trap('[filter "evil"]\n\tprocess = {}\n', [["add", "hull.txt"]]),
    "merge.*.driver": Trap('[merge "evil"]\n\tdriver = {}\n', [["checkout", "-fq", "main"], ["merge", "-q", "side"]]),
    "log.showSignature, gpg.program": Trap(
        "[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {}\n", [["log", "-1", "pgp"]],
        prepare=_use_signed_commit("pgp"), same_answers=False,
    ),
    "log.showSignature, gpg.openpgp.program": Trap(
        '[log]\n\tshowSignature = true\n[gpg "openpgp"]\n\tprogram = {}\n', [["log", "-1", "pgp"]]
    ),
    "log.showSignature, gpg.ssh.program": Trap(
        '[log]\n\tshowSignature = true\n[gpg "ssh"]\n\tprogram = {}\n\tallowedSignersFile = allowed\n',
        [["log", "-1", "ssh"]], [("allowed", "x\n")],
    ),
    "log.showSignature, gpg.x509.program": Trap(
        '[log]\n\tshowSignature = true\n[gpg "x509"]\n\tprogram = {}\n', [["log", "-1", "x509"]]
    ),
    "format.pretty, gpg.program": Trap(
        "[format]\n\tpretty = %G? %s\n[gpg]\n\tprogram = {}\n", [["log", "-1", "pgp"]]
    ),
    "gpg.ssh.defaultKeyCommand": Trap(
        '[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tdefaultKeyCommand = {}\n', [["commit", "-S", "--allow-empty", "-m", "x"]]
    ),
    "include.path": Trap("[include]\n\tpath = ../../included\n", STATUS, prepare=_write_included_config),
    "includeIf": Trap('[includeIf "gitdir:/"]\n\tpath = ../../included\n', STATUS, prepare=_write_included_config),
    "extensions.worktreeConfig": Trap(
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n", STATUS,
        [(".git/config.worktree", "[core]\n\tfsmonitor = {}\n")],
    ),
    "extensions.partialClone": Trap(
        "[core]\n\trepositoryformatversion = 1\n\tsshCommand = {}\n[extensions]\n\tpartialClone = origin\n"
        '[remote "origin"]\n\turl = ssh://host.invalid/x\n\tpromisor = true\n\tpartialclonefilter = blob:none\n',
        [["cat-file", "-p", "HEAD:other.txt"]], prepare=_delete_blob, same_answers=False,
    ),
    "remote.*.promisor": Trap(
        '[core]\n\tsshCommand = {}\n[remote "origin"]\n\turl = ssh://host.invalid/x\n\tpromisor = true\n',
        [["cat-file", "-p", "HEAD:other.txt"]], prepare=_delete_blob, same_answers=False,
    ),
    "remote.*.promisor, ext::": Trap(
        '[protocol "ext"]\n\tallow = always\n[remote "origin"]\n\turl = ext::{}\n\tpromisor = true\n',
        [["cat-file", "-p", "HEAD:other.txt"]], prepare=_delete_blob, same_answers=False,
    ),
    "remote.*.uploadpack": Trap(
        '[remote "origin"]\n\turl = .\n\tuploadpack = {}\n\tpromisor = true\n', [["cat-file", "-p", "HEAD:other.txt"]],
        prepare=_delete_blob, same_answers=False,
    ),
    "url.*.insteadOf": Trap(
        '[protocol "ext"]\n\tallow = always\n[url "ext::{}"]\n\tinsteadOf = x:\n[remote "origin"]\n\turl = x:\n',
        [["fetch", "origin"]],
    ),
    "uploadpack.packObjectsHook": Trap("[uploadpack]\n\tpackObjectsHook = {}\n"),
    "alias": Trap("[alias]\n\tcat-file = !{}\n\tlog = !{}\n\tx = !{}\n", [["x"]]),
    "trailer.*.command": Trap(
        '[trailer "x"]\n\tkey = x\n\tcommand = {}\n', [["interpret-trailers", "--trailer", "x=1"]], stdin="subject\n"
    ),
    "interactive.diffFilter": Trap("[interactive]\n\tdiffFilter = {}\n\tsingleKey = false\n[color]\n\tui = always\n"),
    "gc.recentObjectsHook": Trap("[gc]\n\trecentObjectsHook = {}\n"),
    "submodule.*.update": Trap('[submodule "lib"]\n\tactive = true\n\turl = x\n\tupdate = !{}\n'),
    "a submodule's core.fsmonitor": Trap(
        "[status]\n\tsubmoduleSummary = true\n[diff]\n\tsubmodule = diff\n", STATUS,
        prepare=_add_submodule, same_answers=False,
    ),
    "man, browser, difftool, mergetool": Trap(
        '[man]\n\tviewer = evil\n[man "evil"]\n\tcmd = {}\n[browser "evil"]\n\tcmd = {}\n[web]\n\tbrowser = evil\n'
        '[diff]\n\ttool = evil\n[difftool "evil"]\n\tcmd = {}\n[mergetool "evil"]\n\tcmd = {}\n',
        [["difftool", "-y", "v1", "main"]],
    ),
    **{f"hook {name}": Trap("", commands, prepare=_add_hook(name)) for name, commands in HOOKS.items()},
}  # fmt: skip


def set_trap(trap: Trap, work: GitRepository, tmp_path: Path) -> Path:
    """Write the program and the files that name it. Return the path of the marker."""
    marker, program = tmp_path / "marker", tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{marker}'\nexit 1\n")
    program.chmod(0o755)
    trap.prepare(work, str(program))
    config = work.path / ".git/config"
    config.write_text(config.read_text() + trap.config.replace("{}", str(program)))
    for name, content in trap.files:
        work.write(name, content.replace("{}", str(program)))
    return marker


def run_plain_git(trap: Trap, work: GitRepository) -> None:
    """Run the commands of a trap. Their exit codes are ignored."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(work.path.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
        "TERM": "dumb",
    }
    for name in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{name}_NAME": "A", f"GIT_{name}_EMAIL": "a@b"}
    for arguments in trap.commands:
        outer, inner = pty.openpty()
        out = inner if trap.in_terminal else subprocess.DEVNULL
        try:
            subprocess.run(
                [GIT or "git", *arguments], cwd=work.path, env=environment, input=trap.stdin.encode(), stdout=out,
                stderr=subprocess.DEVNULL, timeout=20, check=False,
            )  # fmt: skip
        finally:
            os.close(outer)
            os.close(inner)


@pytest.mark.parametrize("name", list(TRAPS))
def test_programs_named_in_a_repository_are_not_run(
    work: GitRepository, tmp_path: Path, expected_answers: dict[str, list[bytes]], name: str
) -> None:
    """Security G03, G05, G08. The answers are the same as without the trap."""
    trap = TRAPS[name]
    marker = set_trap(trap, work, tmp_path)
    marker.unlink(missing_ok=True)
    found = read_all(work.path)
    assert not marker.exists(), marker.read_text()
    assert (found is None) == (name == "core.alternateRefsCommand"), "only the alternates are refused"
    if trap.same_answers and found is not None:
        assert changed_answers(found, expected_answers) == []
    run_plain_git(trap, work)
    assert marker.exists() == bool(trap.commands), "the trap does not work with plain git"


ENVIRONMENT: dict[str, Trap] = {
    "GIT_EXTERNAL_DIFF": Trap(commands=[["diff", "v1", "main"]]),
    "GIT_PAGER": Trap(commands=[["log", "-1"]], in_terminal=True),
    "PAGER": Trap(commands=[["log", "-1"]], in_terminal=True),
    "GIT_EDITOR": Trap(commands=[["commit", "--allow-empty"]]),
    "GIT_ASKPASS": Trap(commands=[["credential", "fill"]], stdin="protocol=https\nhost=a\n\n"),
    "GIT_SSH": Trap(commands=[["ls-remote", "ssh://host.invalid/x"]]),
    "GIT_SSH_COMMAND": Trap(commands=[["ls-remote", "ssh://host.invalid/x"]]),
    "GIT_PROXY_COMMAND": Trap(commands=[["ls-remote", "git://host.invalid/x"]]),
    "GIT_CONFIG_PARAMETERS": Trap("'core.fsmonitor={}'", STATUS),
    "GIT_CONFIG_GLOBAL": Trap("[core]\n\tfsmonitor = {}\n", STATUS),
    "GIT_CONFIG_VALUE_0": Trap("{}", STATUS),
    "GIT_EXEC_PATH": Trap(commands=[["remote-evil"]]),
    "GIT_TRACE": Trap(commands=STATUS),
    "GIT_TRACE2": Trap(commands=STATUS),
    "GIT_TRACE_PACKET": Trap(commands=[["ls-remote", "."]]),
}
"""Environment variables, and the commands with which plain git runs their program or writes the marker."""


@pytest.mark.parametrize("name", list(ENVIRONMENT))
def test_programs_named_in_the_environment_are_not_run(
    work: GitRepository,
    tmp_path: Path,
    expected_answers: dict[str, list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """Security G11: git starts with an empty environment."""
    trap = ENVIRONMENT[name]
    marker = set_trap(Trap(), work, tmp_path)
    program = str(tmp_path / "program")
    value = trap.config.replace("{}", program) or program
    if name == "GIT_CONFIG_GLOBAL":
        (tmp_path / "global").write_text(value)
        value = str(tmp_path / "global")
    if name == "GIT_CONFIG_VALUE_0":
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    if name == "GIT_EXEC_PATH":
        _install(tmp_path / "exec/git-remote-evil", program)
        value = str(tmp_path / "exec")
    if name.startswith("GIT_TRACE"):
        value = str(marker)
    monkeypatch.setenv(name, value)
    found = read_all(work.path)
    assert not marker.exists(), marker.read_text()
    assert found is not None
    assert changed_answers(found, expected_answers) == []
    for arguments in trap.commands:
        outer, inner = pty.openpty()
        subprocess.run(
            [GIT or "git", *arguments], cwd=work.path, env={**os.environ, "TERM": "dumb"}, input=trap.stdin.encode(),
            stdout=inner if trap.in_terminal else subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=20, check=False,
        )  # fmt: skip
        os.close(outer)
        os.close(inner)
    assert marker.exists(), "the trap does not work with plain git"


def test_a_program_called_git_in_the_repository_is_not_run(
    work: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PATH that contains the current folder would find it first."""
    marker = set_trap(Trap(), work, tmp_path)
    _install(work.path / "git", str(tmp_path / "program"))
    monkeypatch.chdir(work.path)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    read_all(work.path)
    assert not marker.exists(), marker.read_text()
    subprocess.run(["./git", "--version"], cwd=work.path, check=False)
    assert marker.exists()


def test_configuration_does_not_change_answers(work: GitRepository, expected_answers: dict[str, list[bytes]]) -> None:
    """With these keys, plain git prints other prefixes, colours, orders, encodings and names."""
    before = work.git("log", "-p", "main")
    config = work.path / ".git/config"
    config.write_text(
        config.read_text()
        + """
[core]
\tquotePath = false
\tabbrev = 4
\tignoreCase = true
\tprecomposeUnicode = true
\tautocrlf = true
\tlogAllRefUpdates = always
\tcommentChar = x
\twarnAmbiguousRefs = false
\tbigFileThreshold = 1
\tuseReplaceRefs = true
\tnotesRef = refs/notes/evil
[diff]
\tnoprefix = true
\tmnemonicPrefix = true
\talgorithm = patience
\trenames = copies
\tcontext = 0
\tinterHunkContext = 50
\twsErrorHighlight = all
\tignoreSubmodules = all
\tcolorMoved = zebra
\trelative = true
\tindentHeuristic = false
[color]
\tui = always
[log]
\tdate = relative
\tdecorate = full
\tfollow = true
\tshowRoot = false
\tabbrevCommit = true
\tmailmap = true
\texcludeDecoration = refs/heads/*
[i18n]
\tlogOutputEncoding = UTF-16
\tcommitEncoding = UTF-16
[format]
\tpretty = evil %H
[notes]
\tdisplayRef = refs/notes/*
[blame]
\tdate = relative
\tmarkIgnoredLines = true
[grep]
\tpatternType = perl
\tlineNumber = true
[mailmap]
\tblob = HEAD:.mailmap
[blame]
\tcoloring = repeatedLines
[tag]
\tsort = -version:refname
"""
    )
    work.write(".mailmap", "Eve Wrong <eve@example.org> <ada@example.org>\n")
    work.git("notes", "--ref=evil", "add", "-m", "a note", "main")
    work.git("update-ref", "-d", "refs/notes/evil")
    found = read_all(work.path)
    assert found is not None
    assert changed_answers(found, expected_answers) == []
    assert work.git("log", "-p", "main") != before, "the keys do not change the output of plain git"


def test_mailmaps_grafts_and_replacements_are_ignored(work: GitRepository) -> None:
    """A commit is read from its own object."""
    evil = work.git("commit-tree", "main^{tree}", "-m", "Replaced")
    work.git("replace", work.git("rev-parse", "main"), evil)
    assert "Replaced" in work.git("log", "-1", "main")
    work.write(".mailmap", "Eve Wrong <eve@example.org> <ada@example.org>\n")
    assert "Eve Wrong" in work.git("log", "-1", "side")
    work.write(".git/info/grafts", work.git("rev-parse", "side") + "\n")
    assert work.git("rev-list", "side").count("\n") == 0
    source = PublishedRepository(work.path)
    found = {
        name: str(source.read(f"git://repo/{name}").contents[0].text)
        for name in ("commit/main", "log/side", "log/main")
    }
    assert "Replaced" not in found["commit/main"] + found["log/main"]
    assert "Eve" not in "".join(found.values())
    assert "Begin" in found["log/side"]
    source.close()


# Links that leave the repository

LINKED_PATHS = (
    "refs", "refs/heads", "refs/tags", "refs/heads/evil", "refs/heads/evil/more", "packed-refs", "HEAD", "objects",
    "objects/pack", "objects/info", "objects/xx", "objects/xx/object", "objects/pack/pack", "shallow", "index",
    "config", "logs", "info",
)  # fmt: skip


@pytest.mark.parametrize("while_published", [False, True], ids=["before", "while it is published"])
@pytest.mark.parametrize("name", LINKED_PATHS)
def test_links_out_of_a_repository_are_not_followed(
    work: GitRepository, tmp_path: Path, name: str, while_published: bool
) -> None:
    """Security G05: no object outside of the repository is read through a link in `.git`."""
    other = GitRepository(tmp_path / "other").init()
    secret = other.commit("Secret", secret__txt=SECRET + "\n")
    blob = other.git("rev-parse", "HEAD:secret.txt")
    other.git("branch", "evil")
    other.git("tag", "kept")
    target = other.path / ".git"
    if name == "objects/pack/pack":
        other.git("gc", "-q")
    if name == "packed-refs":
        other.git("pack-refs", "--all")
    if name == "shallow":
        (target / "shallow").write_text(secret + "\n")
    source = PublishedRepository(work.path, every=0.02) if while_published else None
    if source is not None:
        make_all_requests(source)
    _replace_with_links(work.path / ".git", target, name, blob, secret)
    try:
        source = source or PublishedRepository(work.path, every=0.02)
    except UnusableSource as error:
        assert "link" in str(error)
        return
    secrets = [f"tree/{blob}", f"tree/{secret}/secret.txt", f"commit/{secret}", "tree/evil/secret.txt", f"log/{secret}"]
    wait_until(
        lambda: not any(_can_be_read(source, f"git://repo/{uri}") for uri in secrets),
        "no object outside of the repository is read",
        seconds=30 if while_published else 0,  # a later change is found within a second
    )
    try:
        found = make_all_requests(source)
    except InvalidArgument as error:  # nothing can be read until the link is removed
        assert "link" in error.message
        found = {}
    answers = b"\n".join([part for parts in found.values() for part in parts])
    assert SECRET.encode() not in answers
    assert name in ("HEAD", "packed-refs", "shallow") or secret[:12].encode() not in answers
    source.close()


def _can_be_read(source: PublishedRepository, uri: str) -> bool:
    try:
        source.read(uri)
    except REFUSED:
        return False
    return True


def _replace_with_links(inside: Path, outside: Path, name: str, blob: str, secret: str) -> None:
    """Replace parts of this repository with links to another one."""
    pairs = [(inside / name, outside / name)]
    if name == "objects/xx":
        pairs = [(inside / "objects" / oid[:2], outside / "objects" / oid[:2]) for oid in (blob, secret)]
    elif name == "objects/xx/object":
        pairs = [
            (inside / f"objects/{oid[:2]}/{oid[2:]}", outside / f"objects/{oid[:2]}/{oid[2:]}")
            for oid in (blob, secret)
        ]
    elif name == "objects/pack/pack":
        pairs = [(inside / "objects/pack" / path.name, path) for path in (outside / "objects/pack").iterdir()]
    elif name == "refs/heads/evil/more":
        pairs = [(inside / "refs/heads/evil", outside / "refs/heads")]
    for link, target in pairs:
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() or link.exists():
            link.rename(link.with_name(link.name + "-before"))
        link.symlink_to(target)


@pytest.mark.parametrize(
    "name",
    [
        ".git/HEAD", ".git/packed-refs", ".git/refs/heads/pipe", ".git/shallow", ".git/config", ".git/index",
        ".git/info/exclude", ".git/info/attributes", ".git/info/grafts", ".git/objects/info/alternates",
        ".git/objects/info/commit-graph", ".git/objects/pack/multi-pack-index", ".git/objects/pack/pack-1.idx",
        ".git/commondir", ".gitattributes", ".gitignore", ".gitmodules", ".mailmap", "hull.txt",
    ],
)  # fmt: skip
def test_a_fifo_instead_of_a_file_does_not_block(work: GitRepository, name: str) -> None:
    """Opening a FIFO blocks until a program writes to it."""
    path = work.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    began = time.monotonic()
    read_all(work.path)
    assert time.monotonic() - began < 30


# Bombs

KINDS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4, "delta": 6}


class PackedObject(NamedTuple):
    """An object of a pack: its kind, its declared size, and its data before compression.

    The base of a delta is the object before it.
    """

    kind: str
    size: int
    data: bytes


def write_pack(folder: Path, objects: Sequence[PackedObject]) -> tuple[list[str], int]:
    """Write a pack and its index (gitformat-pack(5)). Return the ids of the objects and the size of the pack."""
    body = bytearray(b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big"))
    offsets: list[int] = []
    for each in objects:
        offsets.append(len(body))
        body += encode_header(KINDS[each.kind], each.size)
        if each.kind == "delta":
            body += _encode_offset(offsets[-1] - offsets[-2])
        body += zlib.compress(each.data, 9)
    body += hashlib.sha1(body).digest()
    names = [f"{number + 16:02x}" * 20 for number in range(len(objects))]
    fan = b"".join([sum(int(name[:2], 16) <= first for name in names).to_bytes(4, "big") for first in range(256)])
    index = b"\xfftOc\0\0\0\x02" + fan + b"".join([bytes.fromhex(name) for name in names]) + bytes(4 * len(names))
    index += b"".join([offset.to_bytes(4, "big") for offset in offsets]) + body[-20:]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pack-bomb.pack").write_bytes(body)
    (folder / "pack-bomb.idx").write_bytes(index + hashlib.sha1(index).digest())
    return names, len(body)


def _encode_offset(value: int) -> bytes:
    out = [value & 0x7F]
    value >>= 7
    while value:
        value -= 1
        out.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes(reversed(out))


def _copy_delta(base: int, times: int) -> PackedObject:
    """Return a delta that copies its whole base this many times."""
    if base > 0xFFFFFF:
        steps = range(0, base, 0xFFFFFF)
        copy = b"".join(
            [b"\xff" + at.to_bytes(4, "little") + min(0xFFFFFF, base - at).to_bytes(3, "little") for at in steps]
        )
    else:
        copy = b"\xf0" + base.to_bytes(3, "little")
    delta = encode_size(base) + encode_size(base * times) + copy * times
    return PackedObject("delta", len(delta), delta)


def _prefix_delta(base: int, length: int) -> PackedObject:
    """Return a delta that copies the first bytes of its base."""
    delta = encode_size(base) + encode_size(length) + b"\x90" + bytes((length,))
    return PackedObject("delta", len(delta), delta)


def _small_bomb() -> list[PackedObject]:
    """Return objects of a pack of about 200 bytes: 16 bytes grow to 64 KiB and 2 GiB. The last object has ten bytes."""
    return [
        PackedObject("blob", 16, b"0123456789abcdef"),
        _copy_delta(16, 4_096),
        _copy_delta(65_536, 32_768),
        _prefix_delta(1 << 31, 10),
    ]


def _wide_bomb() -> list[PackedObject]:
    """Return 32 MiB of zeros and a chain of 64 deltas of 32 MiB each: 2 GiB of intermediate objects."""
    size = 32 << 20
    return [PackedObject("blob", size, bytes(size)), *[_copy_delta(size, 1) for _ in range(64)]]


BOMBS: dict[str, Callable[[], list[PackedObject]]] = {"2 GiB in 207 bytes": _small_bomb, "2 GiB on the way": _wide_bomb}

MEASURE_SCRIPT = """
import asyncio, inspect, resource, sys
from wharfinger.errors import WharfingerError
from wharfinger.sources import git

async def read(source, uri):
    result = source.read(uri)
    return (await result if inspect.isawaitable(result) else result).contents[0]

async def main(path, *uris):
    source = git(path, label="repo")
    await source.start()
    print("read", (await read(source, "git://repo/tree/main/hull.txt")).text.split()[0])
    for uri in uris:
        try:
            contents = await read(source, uri)
            print("read", uri, len(contents.text or contents.blob or ""))
        except WharfingerError as error:
            print("error", uri, error)
    print("read", (await read(source, "git://repo/tree/main/hull.txt")).text.split()[0])
    await source.close()

asyncio.run(main(*sys.argv[1:]))
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
with open("/proc/self/status") as status:  # the own ru_maxrss includes the process that was forked
    own = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print("peak", children >> 10, own >> 10)
"""
"""A program that reads URIs between two ordinary reads, and prints the peak MiB of its largest child and of itself."""


def measure_memory(work: GitRepository, *uris: str) -> tuple[list[str], int, int]:
    """Read URIs in a separate process. Return its output, the peak MiB of its largest child, and its own."""
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE_SCRIPT, str(work.path), *uris],
        capture_output=True,
        text=True,
        timeout=55,
        check=True,
    )
    *lines, last = ran.stdout.splitlines()
    children, own = map(int, last.split()[1:])
    print(ran.stdout)
    return lines, children, own


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_decompression_bomb_uses_little_memory_and_is_reported(work: GitRepository, name: str) -> None:
    """Security G10: the limits include intermediate objects."""
    names, size = write_pack(work.path / ".git/objects/pack", BOMBS[name]())
    assert size < 40_000
    target = names[-1]
    tree = work.put("tree", b"100644 bomb.txt\0" + bytes.fromhex(target))
    commit = work.git("commit-tree", tree, "-p", "main", "-m", "Bomb")
    uris = [f"git://repo/tree/{target}", f"git://repo/tree/{commit}/bomb.txt", f"git://repo/diff/{commit}"]
    lines, children, own = measure_memory(work, *uris, f"git://repo/tree/{target}?bytes=0-9")
    assert lines[0] == lines[-1] == "read five"
    assert children < 600, f"a child used {children} MiB"
    assert own < 400, f"the process used {own} MiB"
    assert any(line.startswith("error") and target in line for line in lines), lines


def test_git_without_a_limit_needs_2_gib_for_a_bomb(work: GitRepository) -> None:
    """Prove that the test above can fail. The object declares a size of ten bytes."""
    names, size = write_pack(work.path / ".git/objects/pack", _small_bomb())
    assert size < 300
    checked = work.git("cat-file", "--batch-check", data=names[-1].encode())
    assert checked.split(" ")[1:] == ["blob", "10"]
    code = (
        f"import resource, subprocess; subprocess.run(['git', 'cat-file', 'blob', '{names[-1]}'], capture_output=True)"
    )
    code += "; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=work.path, capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 1_500


# Revisions

REVISIONS = (
    ":/x", ":/.*", "HEAD^{/x}", "HEAD^{/(a+)+$}", "HEAD^{tree}", "HEAD^{commit}", "HEAD^{}", "v2^{object}", "@", "@{0}",
    "@{-1}", "@{u}", "@{push}", "main@{0}", "main@{1}", "main@{yesterday}", "main@{upstream}", "HEAD:hull.txt",
    ":hull.txt",
    ":0:hull.txt", "HEAD:", "HEAD:../x", "^HEAD", "^main", "HEAD^@", "HEAD^!", "HEAD^-", "HEAD^-1", "main...HEAD",
    "--all",
    "--output=stolen", "--stdin", "-n1", "--help", "--exec=touch stolen", "--upload-pack=touch stolen", "-", "--",
    "-O/etc",
    "HEAD\n--output=stolen", "HEAD\nHEAD", "main\rHEAD", "HEAD HEAD", "HEAD\t", "main\x1b", "main*", "ma[i]n", "ma?n",
    "refs/heads/*", "v2-0-g{}", "HEAD~1~", "HEAD~~1000000", "HEAD^1000", "HEAD~", "v2~-1", "HEAD~1.5", "\N{SNOWMAN}",
    "main.lock", "main/", "/main", "refs//heads/main", "refs/heads/../heads/main", "stash@{0}", "FETCH_HEAD",
    "ORIG_HEAD",
    "contents hull.txt", "info HEAD", "flush", "worktrees/x/HEAD", "main-worktree/HEAD", "a" * 65, "0" * 40, "0" * 64,
)  # fmt: skip
"""Revisions that git understands, or that look like options or commands."""
ACCEPTED = ("HEAD~1~", "HEAD~", "@", "HEAD^{}", "HEAD^{commit}", "HEAD^{tree}", "v2^{object}")


@pytest.mark.parametrize(
    "kind",
    [
        "tree/{}", "tree/{}/hull.txt", "commit/{}", "diff/{}", "diff/HEAD..{}", "diff/{}..HEAD", "log/{}",
        "log/{}?path=hull.txt", "log/HEAD?after={}",
    ],
)  # fmt: skip
def test_revisions_are_never_passed_as_options(
    work: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Security G01, G02: no argument of a git process is a revision of the client."""
    recorder = GitRecorder(tmp_path, monkeypatch)
    source = PublishedRepository(work.path)
    source.read("git://repo/log/HEAD")
    began = time.monotonic()
    for rev in REVISIONS:
        uri = "git://repo/" + kind.format(percent_encode(rev.encode()))
        for method in (source.read, source.stat, source.version):
            try:
                method(uri)
            except REFUSED:
                continue
            if "after=" not in kind or method is source.read:
                assert rev in ACCEPTED, f"{rev!r} was accepted as a revision"
        recorder.receive()
    assert time.monotonic() - began < 30
    source.close()
    assert not list(work.path.glob("stolen*"))
    recorder.receive()
    recorder.close()
    assert {"cat-file", "log", "for-each-ref"} <= recorder.arguments
    own_arguments = {"--all", "--stdin", "--", "-", "0" * 40, "0" * 64}  # options of the source, and ids of objects
    assert recorder.arguments.isdisjoint(set(REVISIONS) - own_arguments)


@pytest.mark.parametrize("tags", [0, 1])
def test_the_times_of_tags_are_read_only_if_there_are_tags(
    work: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tags: int
) -> None:
    for name in work.git("tag").split():
        work.git("tag", "--delete", name)
    for number in range(tags):
        work.git("tag", f"v{number}")
    recorder = GitRecorder(tmp_path, monkeypatch)
    source = PublishedRepository(work.path)
    uris = [resource.uri for resource in source.page(None, 100)[0]]
    source.close()
    recorder.receive()
    recorder.close()
    assert uris.count("git://repo/tree/v0") == tags
    assert ("--format=%(creatordate:unix) %(refname)" in recorder.arguments) == (tags > 0)


class GitRecorder:
    """Puts a program called `git` first in the PATH. It sends its arguments to this recorder and runs git."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arguments: set[str] = set()
        pipe = folder / "arguments"
        os.mkfifo(pipe)  # not a file: the limit on the size of files applies to the program
        self._descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        program = folder / "bin/git"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > '{pipe}'\nexec '{GIT}' \"$@\"\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    def receive(self) -> None:
        """Add the arguments that were received so far."""
        with suppress(BlockingIOError):
            while data := os.read(self._descriptor, 1 << 16):
                self.arguments |= set(os.fsdecode(data).split("\0"))

    def close(self) -> None:
        os.close(self._descriptor)


@pytest.mark.parametrize(
    "query",
    [
        "path=--output=stolen", "path=-O", "path=:(glob)**", "path=:/", "path=:!hull.txt", "path=../x",
        "path=/etc/passwd",
        "path=.git/config", "path=hull.txt%0A--output=stolen", "path=hull.txt%00x", "since=--output=stolen",
        "since=%0A--all", "until=1.day.ago%00", "limit=--all", "limit=-1", "author=--output=stolen", "author=%0A--all",
        "author=(a%2B)%2B$", "grep=--output=stolen", "grep=%0A--all", "grep=(a%2B)%2B$", "text=--output=stolen",
        "text=-f/etc/passwd", "text=--open-files-in-pager=touch stolen", "pickaxe=--output=stolen", "pickaxe=%0A--all",
    ],
)  # fmt: skip
def test_query_parameters_are_never_passed_as_options(work: GitRepository, query: str) -> None:
    """Security G01, G12."""
    source = PublishedRepository(work.path)
    began = time.monotonic()
    for kind in (
        "log/HEAD",
        "tree/HEAD",
        "diff/HEAD~1..HEAD",
        "tree/HEAD/hull.txt",
        "blame/HEAD/hull.txt",
        "grep/HEAD",
    ):
        try:
            text = bytes_of(source.read(f"git://repo/{kind}?{query}").contents[0])
        except REFUSED:
            continue
        assert b"root:" not in text
        assert b"repositoryformatversion" not in text
    assert time.monotonic() - began < 20
    assert not list(work.path.rglob("stolen*"))
    source.close()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_serving_a_hostile_repository_runs_no_program(work: GitRepository, tmp_path: Path, revision: str) -> None:
    """A client of either era reads a repository with many traps from `wharfinger serve git:PATH`."""
    names = ("core.fsmonitor", "diff.external", "diff.*.textconv", "filter.*.clean", "credential.helper")
    config = "".join(TRAPS[name].config for name in names) + "[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {}\n"
    marker = set_trap(Trap(config), work, tmp_path)
    command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", f"repo=git:{work.path}"]

    async def read() -> int:
        async with Client(command, revision=revision) as client:
            count = 0
            for resource in await client.list_resources():
                await client.read_resource(resource.uri)
                count += 1
            for path in (
                "log/HEAD?path=hull.txt",
                "diff/v1..main",
                "diff/HEAD",
                "commit/HEAD",
                "log/pgp",
                "commit/pgp",
            ):
                text = (await client.read_resource(f"git://repo/{path}")).contents[0].text
                assert text is not UNSET
                count += 1
            return count

    assert asyncio.run(asyncio.wait_for(read(), 50)) > 15
    assert not marker.exists(), marker.read_text()


@pytest.fixture(autouse=True)
def _no_processes_are_left() -> Iterator[None]:
    """Check that no git process is left after the sources are closed."""
    yield
    close_all()
    wait_until(lambda: not git_processes(), "all processes of git have ended", details=git_processes)

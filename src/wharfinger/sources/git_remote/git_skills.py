"""Publishes the skills of a git repository, local or remote, as they are at HEAD.

`skill_folder` reads skills from files on the disk. So the files of skills at HEAD are written to a temporary folder of
this process. When HEAD changes, the files that differ are written again, each atomically. Only regular files with plain
names in folders with a SKILL.md are written, never links or submodules. If the repository has a SKILL.md at its top,
its files are written to a folder with the name of the repository, so their URIs contain that name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from wharfinger import types as t
from wharfinger.errors import InvalidArgument
from wharfinger.source import Document, SourceUnavailable, UnusableSource
from wharfinger.sources.directories import MAX_CHILDREN
from wharfinger.sources.folder.ignore import IGNORE_FILE, PublishChoice
from wharfinger.sources.git_remote.mirror import CLONE_WAIT_SECONDS, Mirror
from wharfinger.sources.git_remote.remote_address import is_remote
from wharfinger.sources.git_remote.remote_source import open_clone
from wharfinger.sources.git_repository.answers import Repository
from wharfinger.sources.git_repository.git_process import run_git
from wharfinger.sources.skill_folder import MAX_BYTES, SKILL_FILE, Skills
from wharfinger.sources.windows.window import MAX_READ_BYTES
from wharfinger.types.skills import Skill

__all__ = ["GitSkills", "git_skills"]

log = logging.getLogger("wharfinger.sources")

CHECK_SECONDS = 1.0
"""Default time between two checks of a repository of this machine."""
RETRY_SECONDS = 10.0
"""Time after which skills of a clone that could not be read or written are tried again."""
MAX_FILES = 50_000
"""Maximum number of files of skills that are written."""
MAX_TOTAL_BYTES = 256 << 20
"""Maximum number of bytes of all files together."""
MAX_NAME_BYTES, MAX_PATH_BYTES = 255, 3_072  # with the temporary folder, Linux takes 4,096 bytes (PATH_MAX)


def git_skills(
    path_or_url: str, prefix: str, hidden: bool, every: float | None, max_clone_size: int | None
) -> GitSkills:
    """Return the skills of a repository, by its path or address.

    Raises:
        UnusableSource: it cannot be published.
    """
    mirror = None
    if is_remote(path_or_url):
        repository, mirror = open_clone(
            path_or_url, None, every=every, max_size=MAX_READ_BYTES, max_clone_size=max_clone_size
        )
        location = mirror.address.url
    else:
        repository = Repository.open(path_or_url, None, MAX_READ_BYTES)
        location = repository.private_directory.found.root
    try:
        check_seconds = every if mirror is None and every else CHECK_SECONDS
        return GitSkills(repository, mirror, location, prefix, PublishChoice((), (), hidden), check_seconds)
    except OSError as error:
        raise UnusableSource(f"The skills of {location} cannot be written to a temporary folder: {error}") from None


class _File(NamedTuple):
    oid: str
    size: int


_UNKNOWN = _File("", -1)
"""Recorded for a file while it is written, and after a write that failed."""


class GitSkills(Skills):
    """The source that `skill_folder.skills()` returns for a git repository."""

    noun = "repository"

    def __init__(
        self,
        repository: Repository,
        mirror: Mirror | None,
        location: str,
        prefix: str,
        choice: PublishChoice,
        every: float,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="wharfinger-skills-", ignore_cleanup_errors=True)
        self._folder = Path(os.path.realpath(self._temporary.name)) / repository.label
        self._folder.mkdir(mode=0o700)
        super().__init__(str(self._folder), prefix=prefix, choice=choice, poll=None)
        self.location = location
        self.root = "" if mirror is not None else location
        self.repository = repository
        self.mirror = mirror
        self._choice = choice
        self._every = every
        self._head: str | None = ""
        """The commit whose files were written; None if there are no commits, empty if not all files were written."""
        self._written: dict[str, _File] = {}
        self._problem = ""
        """Why the skills could not be read at the last attempt, or an empty string."""
        self._ready = threading.Event()
        self._began = time.monotonic()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._removed = False
        """Whether `close` has removed the folder."""
        self._disk = threading.Lock()
        """Held while files are written or removed: a thread goes on after its task is cancelled."""
        if mirror is not None:
            mirror.changed.append(self._wake)

    def __repr__(self) -> str:
        return f"skills({'git:' + self.location!r}) at {self.uri}"

    # Start and close

    async def start(self) -> None:
        """Begin to follow the repository."""
        if self._removed:
            os.mkdir(self._temporary.name, mode=0o700)  # fails if another user has made it
            os.mkdir(self._folder, mode=0o700)
            self._removed = False
        self._began = time.monotonic()
        self._wakeup = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._follow())
        if self.mirror is not None:
            self.mirror.start()

    async def close(self) -> None:
        """Stop following and watching, and remove the files."""
        if self.mirror is not None:
            await self.mirror.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        await super().close()
        await self.repository.objects.reader.close()
        await asyncio.to_thread(self.repository.private_directory.close)
        await asyncio.to_thread(self._clean_up)
        self._removed = True
        self._head = self._problem = ""
        self._written.clear()
        self._ready.clear()

    def _clean_up(self) -> None:
        with self._disk:
            self._temporary.cleanup()

    async def _wake(self) -> None:
        self._wakeup.set()

    async def _follow(self) -> None:
        while True:
            self._wakeup.clear()
            try:
                if self.mirror is None or self.mirror.cloned:
                    await self._check_out()
                    self._problem = ""
                    self._ready.set()
            except (InvalidArgument, LookupError, OSError) as error:
                problem = str(error)
                if problem != self._problem:
                    log.warning("The skills of %s could not be read: %s", self.location, problem)
                self._problem = problem
            except Exception:
                log.exception("The skills of %s could not be read", self.location)
                self._problem = "an error"
            if self.mirror is None:
                await asyncio.sleep(self._every)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS if self._problem else None):
                        await self._wakeup.wait()

    # The files

    async def _check_out(self) -> None:
        """Write the files of skills at HEAD, if HEAD has changed."""
        references = await self.repository.references.now()
        if references.head == self._head:
            return
        files = await self._files_of_skills(references.head) if references.head is not None else {}
        self._head = ""
        contents: list[tuple[str, bytes]] = []
        for path, file in files.items():
            if self._written.get(path) != file:
                contents.append((path, await self.repository.objects.reader.contents(file.oid)))
            if len(contents) >= 64:  # so that few contents are in memory at once
                await self._write_files(files, contents)
                contents.clear()
        await self._write_files(files, contents)
        removed = [path for path in self._written if path not in files]
        await asyncio.to_thread(self._remove, removed)
        for path in removed:
            del self._written[path]
        self._head = references.head

    async def _write_files(self, files: Mapping[str, _File], contents: list[tuple[str, bytes]]) -> None:
        """Write contents of files, and record them. If the write fails, these files are written again later."""
        for path, _ in contents:
            self._written[path] = _UNKNOWN
        await asyncio.to_thread(self._write, contents)
        for path, _ in contents:
            self._written[path] = files[path]

    async def _files_of_skills(self, head: str) -> dict[str, _File]:
        """Return the files of all skills at a commit, by their paths below `_folder`."""
        output = await run_git(self.repository.private_directory, "ls-tree", "-r", "-z", "-l", f"{head}^{{tree}}")
        files: dict[str, _File] = {}
        for line in output.data.split(b"\0")[:-1]:
            fields, _, name = line.partition(b"\t")
            mode, _, oid, size = fields.split()
            path = os.fsdecode(name)
            if mode in (b"100644", b"100755", b"100664") and size.isdigit() and _is_plain(path):
                files[path] = _File(oid.decode("ascii"), int(size))
        tops = {path.removesuffix(SKILL_FILE) for path in files if path.rpartition("/")[2] == SKILL_FILE}
        too_large: set[str] = set()
        beyond_limit: set[str] = set()
        prefix = f"{self.repository.label}/" if "" in tops else ""
        chosen: dict[str, _File] = {}
        total = 0
        for path, file in files.items():
            skills_with_file = [
                path[:end] for end in (0, *(match.end() for match in re.finditer("/", path))) if path[:end] in tops
            ]
            if not skills_with_file:
                continue
            if file.size > MAX_BYTES:
                # A hidden file matters only if hidden files are published.
                if self._choice.hidden or (not path.startswith(".") and "/." not in path):
                    too_large.update(skills_with_file)
                continue
            total += file.size
            if len(chosen) >= MAX_FILES or total > MAX_TOTAL_BYTES:
                beyond_limit.update(skills_with_file)
                continue
            chosen[prefix + path] = file
        for top in too_large | beyond_limit:  # without its SKILL.md, a skill is not published
            chosen.pop(prefix + top + SKILL_FILE, None)
        if beyond_limit:
            self._log_once(
                f"Only {MAX_FILES:,} files and {MAX_TOTAL_BYTES >> 20} MiB of the skills in {self.location} are "
                "published"
            )
        for top in too_large:
            self._report(tuple(top.split("/")[:-1]), f"its files have more than {MAX_BYTES >> 20} MiB")
        return chosen

    def _write(self, contents: list[tuple[str, bytes]]) -> None:
        """Write files, each atomically. Only this process writes below the folder, and it writes no links."""
        with self._disk:
            for path, data in contents:
                target = self._folder.joinpath(*path.split("/"))
                for parent in reversed(target.relative_to(self._folder).parents[:-1]):
                    folder = self._folder / parent
                    if not folder.is_dir():
                        folder.unlink(missing_ok=True)
                        folder.mkdir(mode=0o700)
                if target.is_dir():
                    shutil.rmtree(target)
                staged = self._folder.with_name(f"{self._folder.name}.staged")
                staged.write_bytes(data)
                os.replace(staged, target)

    def _remove(self, paths: list[str]) -> None:
        with self._disk:
            for path in paths:
                target = self._folder.joinpath(*path.split("/"))
                if target.is_dir():
                    continue  # a folder took its place
                try:
                    target.unlink(missing_ok=True)
                except NotADirectoryError:
                    continue
                for parent in target.parents:
                    if parent == self._folder or any(parent.iterdir()):
                        break
                    parent.rmdir()

    # Methods of the source. All but `describe` wait until the skills are written for the first time.

    def _wait_until_ready(self) -> None:
        """Wait some seconds until the skills are written for the first time.

        Raises:
            SourceUnavailable: the skills cannot be read yet; the message says why.
        """
        if self._ready.is_set():
            return
        deadline = self._began + CLONE_WAIT_SECONDS
        while (left := deadline - time.monotonic()) > 0 and self._task is not None:
            if self._problem or (self.mirror is not None and self.mirror.problem):
                break
            if self._ready.wait(min(left, 0.05)):
                return
        if self.mirror is not None and not self.mirror.cloned:
            raise SourceUnavailable(self.mirror.unavailable())
        raise SourceUnavailable(
            f"The skills of {self.location} cannot be read yet{': ' + self._problem if self._problem else '.'}"
        )

    def describe(self) -> str:
        """Describe how many files are published and, for a clone, how recent it is."""
        facts = [] if self.mirror is None else [self.mirror.describe()]
        if self._ready.is_set():
            facts.insert(0, str(self._count()))
        return ", ".join(facts) or f"HEAD is checked every {self._every:g} s"

    def skills(self, after: str | None, limit: int) -> tuple[list[Skill], str | None]:
        """Return at most `limit` skills after the key, and the key of the next page."""
        self._wait_until_ready()
        return super().skills(after, limit)

    def skill(self, uri: str) -> Skill:
        """Return the skill with a SKILL.md at this URI."""
        self._wait_until_ready()
        return super().skill(uri)

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return the SKILL.md of each skill."""
        self._wait_until_ready()
        return super().page(after, limit)

    def stat(self, uri: str) -> t.Resource:
        """Return the resource of a file or directory of a skill."""
        self._wait_until_ready()
        return super().stat(uri)

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read a file of a skill, or the listing of a directory in it."""
        self._wait_until_ready()
        return super().read(uri)

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """Return the entries of a directory in pages."""
        self._wait_until_ready()
        return super().children(uri, after, limit)

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Return the paths of skills that begin with `value`, then those that contain it."""
        self._wait_until_ready()
        return super().complete(template, argument, value, context)

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return the files of skills in pages."""
        self._wait_until_ready()
        return super().documents(after, limit)

    def text(self, uri: str) -> Iterator[str]:
        """Return the text of a file of a skill in pieces."""
        self._wait_until_ready()
        return super().text(uri)


def _is_plain(path: str) -> bool:
    """Return whether a path can be written below a folder, and is not a .gitignore file or in a `.git` folder."""
    return len(os.fsencode(path)) <= MAX_PATH_BYTES and all(
        part not in ("", ".", "..", IGNORE_FILE)
        and part.lower() not in (".git", "git~1")
        and len(os.fsencode(part)) <= MAX_NAME_BYTES
        and not any(character in part for character in ("\\", ":", "\0"))
        for part in path.split("/")
    )

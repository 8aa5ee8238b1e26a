"""Keeps a clone in step with its remote: clones it, fetches regularly, and survives outages.

A round compares the references that the remote lists with those of the last fetch. If they differ, it fetches.
References move in one step when all objects have arrived: readers see the last good state until then.

**The first clone comes in parts,** if the remote can send them (`--filter=blob:none`): first commits and folders, then
the files of HEAD. From then on the clone can be read, while a whole clone is fetched, which replaces the parts. git
never fetches missing objects by itself (GIT_NO_LAZY_FETCH): until they arrive, reads of them fail with an error that
says so. If the whole clone would exceed its bound, the parts stay and can be read.

git 2.39 checks the packs of a partial clone strictly, and refuses even the harmless mistakes of old tools in them. A
repository with such objects is therefore cloned as a whole.

While rounds fail, the wait for the next round becomes longer each time, up to `MAX_WAIT_SECONDS`, or `every`
if that is more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from wharfinger.content.text import many, shown, size_text
from wharfinger.source import SourceUnavailable
from wharfinger.sources.git_remote.clone_folder import CloneFolder
from wharfinger.sources.git_remote.fetch_process import FetchFailed, GitNetwork
from wharfinger.sources.git_remote.remote_address import RemoteAddress

__all__ = ["EVERY_SECONDS", "MAX_CLONE_BYTES", "Mirror"]

log = logging.getLogger("wharfinger.sources")

EVERY_SECONDS = 60.0
"""Default time between two fetches."""
MAX_CLONE_BYTES = 2 << 30
"""Default bound of the size of a clone."""
LIST_SECONDS = 60.0
"""Timeout for the list of references."""
FETCH_SECONDS = 3_600.0
"""Timeout for one fetch."""
LOCAL_SECONDS = 300.0
"""Timeout for a command that uses no network."""
CLONE_WAIT_SECONDS = 4.0
"""Longest wait of callers for the first clone: less than a list waits for a source."""
BUSY_SECONDS = 1.0
"""Time after which a server checks the lock again while another server fetches."""
MIN_WAIT_SECONDS = 1.0
FIRST_WAIT_SECONDS = 5.0
"""Time until the next round after the first failure, unless `every` is shorter."""
MAX_WAIT_SECONDS = 900.0
"""Maximum time between two rounds after failures, unless `every` is more."""
MAX_REFERENCES = 200_000
MAX_PACKS = 20
"""If there are more packs, they are joined."""
MAX_COMPARED_BRANCHES = 50
"""Maximum number of branches that are checked for a force-push after a fetch."""

_REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_FETCH = ("fetch", "--no-auto-gc", "--no-write-fetch-head", "--no-recurse-submodules", "--no-tags", "--progress")


class Mirror:
    """Maintains one clone while a server runs. Calls the functions in `changed` when the clone may have changed."""

    def __init__(
        self,
        program: str,
        address: RemoteAddress,
        folder: CloneFolder,
        *,
        every: float = EVERY_SECONDS,
        max_bytes: int = MAX_CLONE_BYTES,
    ) -> None:
        self.address = address
        self.folder = folder
        self.every = every
        self.changed: list[Callable[[], Awaitable[None]]] = []
        self.state = folder.state()
        self.problem = ""
        """Why the last round failed, in a clause; empty if it succeeded."""
        self.replaced = ""
        """A sentence on the last deletions and replacements of branches and tags; empty if there were none."""
        self._git = GitNetwork(program, address, folder, max_bytes, self._on_progress)
        self._progress = ""
        self._failures = 0
        self._failed_since = 0.0
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0
        self._event = asyncio.Event()
        """Set, and replaced by a new one, after each round and each change."""

    # Start, close and state

    def start(self) -> None:
        """Begin to fetch, on the running event loop."""
        if self._task is None:
            self._began = time.monotonic()
            self._event = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop fetching, and end the processes."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    @property
    def cloned(self) -> bool:
        """Whether the clone can be read."""
        return self.state.fetched > 0

    @property
    def why_incomplete(self) -> str:
        """Why contents of old revisions are missing, as a sentence; empty if the clone is complete."""
        state = self.state
        if state.cut:
            return (
                f"Contents of old revisions are missing from this clone of {self.address.url}, which would be larger "
                f"than {size_text(self._git.max_bytes)} with them: read a newer revision, or raise max_clone_size."
            )
        if state.missing:
            return (
                f"This content is still being fetched from {self.address.url} "
                f"({many(state.missing, 'object')} missing): try again in a minute, or read a newer revision."
            )
        return ""

    async def wait_until_cloned(self) -> None:
        """Wait until the clone can be read, for some seconds after the start.

        Raises:
            SourceUnavailable: it cannot be read yet; the message says why.
        """
        while not self.cloned:
            remaining = self._began + CLONE_WAIT_SECONDS - time.monotonic()
            if self._task is None or remaining <= 0 or self.problem:
                raise SourceUnavailable(self.unavailable())
            event = self._event
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await event.wait()

    def unavailable(self) -> str:
        """Return why the clone cannot be read yet, as a sentence."""
        if self.problem:
            return f"{self.address.url} could not be cloned: {self.problem}. Retrying in the background."
        words = f" ({self._progress})" if self._progress else ""
        return f"{self.address.url} is being cloned for the first time{words}: try again in a few seconds."

    def outage(self) -> str:
        """Return a sentence on the last fetch and the failure since then.

        It is empty if the last round succeeded, or if nothing was ever fetched.
        """
        if not (self.problem and self.cloned):
            return ""
        since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.state.fetched))
        return f"This is the state of {since}: {self.address.url} has not been fetched since then ({self.problem})."

    def describe(self) -> str:
        """Return a text with the age of the clone."""
        if not self.cloned:
            return self.unavailable().rstrip(".")
        facts = [f"fetched {_ago(time.time() - self.state.fetched)}, every {self.every:g} s"]
        if self.problem:
            since = f" for {_duration(time.time() - self._failed_since)}" if self._failed_since else ""
            fetched = _ago(time.time() - self.state.fetched)
            facts = [f"not fetched{since} ({self.problem}); its state of {fetched} is served"]
        if self.state.cut:
            facts.append("without contents of old revisions, which exceed the bound of its size")
        elif self.state.missing:
            facts.append(f"{many(self.state.missing, 'object')} of old revisions still to be fetched")
        if self.replaced:
            facts.append(self.replaced)
        return ", ".join(facts)

    def _on_progress(self, words: str) -> None:
        self._progress = words

    def _notify(self) -> None:
        """Wake the callers of `wait_until_cloned`."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    # Rounds

    async def _run(self) -> None:
        while True:
            wait, before = self.every, self.problem
            try:
                next_wait = await self._round()
                if next_wait is not None:
                    wait, self.problem, self._failures, self._failed_since = next_wait, "", 0, 0.0
                    if before:
                        log.warning("%s can be fetched again", self.address.url)
                else:  # another server is fetching, and may fail like this one
                    wait = min(BUSY_SECONDS, self.every)
                    if not self.cloned:
                        self.problem = ""
            except FetchFailed as error:
                wait = self._record_failure(str(error))
            except OSError as error:
                wait = self._record_failure(f"the clone cannot be written ({error.strerror})")
            except Exception as error:
                log.exception("%s could not be fetched", self.address.url)
                wait = self._record_failure(f"an error of {type(error).__name__}")
            self._notify()
            if before != self.problem:
                await self._report()
            await asyncio.sleep(wait)

    def _record_failure(self, reason: str) -> float:
        """Record a failure, and return the seconds until the next round."""
        if reason != self.problem:
            state = "its last good state is served" if self.cloned else "it has never been cloned"
            log.warning("%s could not be fetched: %s. Retrying in the background; %s", self.address.url, reason, state)
        self.problem = reason
        self._failed_since = self._failed_since or time.time()
        self._failures += 1
        first_wait = max(MIN_WAIT_SECONDS, min(self.every, FIRST_WAIT_SECONDS))
        wait = min(first_wait * 2.0 ** min(self._failures - 1, 20), max(MAX_WAIT_SECONDS, self.every))
        return wait * random.uniform(0.8, 1.0)  # noqa: S311  # so that several servers do not return at the same time

    async def _round(self) -> float | None:
        """Fetch if the remote changed, and return the seconds until the next round.

        Returns None if another server is fetching.

        Raises:
            FetchFailed: it could not be fetched.
        """
        with self.folder.lock() as lock:
            before, self.state = self.state, self.folder.state()
            if before != self.state:  # another server has fetched
                await self._report()
            if lock is None:
                self._progress = self._progress or "by another server"
                return None
            age = time.time() - self.state.fetched
            if self.state.fetched and 0 <= age < self.every / 2 and self.why_incomplete == "" and before != self.state:
                return self.every - age  # another server has just fetched everything
            await asyncio.to_thread(self.folder.prepare)
            await self._fetch(lock)
        return self.every

    async def _report(self) -> None:
        """Call the functions in `changed`."""
        self._notify()
        for report in self.changed:
            await report()

    async def _save(self, **changes: object) -> None:
        state = msgspec.structs.replace(self.state, url=self.address.url, **changes)
        if state.partial and not state.missing:
            await asyncio.to_thread(self.folder.end_partial)
            state = msgspec.structs.replace(state, partial=False, cut=0)
        self.state = state  # in one step: readers in between would be given a wrong reason for a missing object
        await asyncio.to_thread(self.folder.write_state, state)
        await self._report()

    # One fetch

    async def _fetch(self, lock: int) -> None:
        output = await self._git.run(
            "ls-remote", "--symref", "origin", "HEAD", "refs/heads/*", "refs/tags/*", lock=lock, seconds=LIST_SECONDS
        )
        head, count = _parse_references(output)
        if count > MAX_REFERENCES:
            raise FetchFailed(f"it has more than {MAX_REFERENCES:,} references")
        advertised = hashlib.blake2b(output, digest_size=16).hexdigest()
        if advertised != self.state.advertised or not self.cloned:
            old_references = await self._local_references(lock)
            partial = not self.cloned and not self.state.whole and await self._clone_partially(lock)
            if not partial:
                if not self.cloned and not old_references:
                    await asyncio.to_thread(self.folder.forget)
                await self._fetch_references(lock)
            await self._set_head(lock, head)
            self.replaced = (
                await self._compare(lock, old_references, await self._local_references(lock)) or self.replaced
            )
            if partial or self.why_incomplete:
                await self._fetch_missing(lock, await self._missing(lock, "--no-walk", "--ignore-missing", "HEAD"))
                missing = await self._missing(lock, "--all")
                await self._save(fetched=time.time(), advertised=advertised, missing=len(missing), partial=True)
            else:
                await self._save(fetched=time.time(), advertised=advertised, missing=0)
        else:
            await self._save(fetched=time.time())
        if self.state.missing and self._git.max_bytes > self.state.cut:
            await self._fetch_history(lock)
        if len(await asyncio.to_thread(self.folder.pack_names)) > MAX_PACKS:
            await self._join_packs(lock)

    async def _fetch_references(self, lock: int, *options: str, replaced_bytes: int = 0) -> None:
        try:
            await self._git.run(
                *_FETCH, *(options or ("--no-filter",)), "--prune", "--atomic", "origin", *_REFSPECS,
                lock=lock, seconds=FETCH_SECONDS, replaced_bytes=replaced_bytes,
            )  # fmt: skip
        except FetchFailed as error:
            if self.cloned and "bound of the clone" in str(error):
                # Objects that are in no branch any more may take up the space.
                await self._join_packs(lock, everything=True)
            raise

    async def _set_head(self, lock: int, head: str) -> None:
        """Set HEAD to the remote's branch, or to its commit if the clone has that commit."""
        if head.startswith("refs/"):
            await self._git.run("symbolic-ref", "HEAD", head, lock=lock, seconds=LOCAL_SECONDS, network=False)
        elif head:
            with contextlib.suppress(FetchFailed):
                command = ("update-ref", "--no-deref", "HEAD", head)
                await self._git.run(*command, lock=lock, seconds=LOCAL_SECONDS, network=False)

    async def _clone_partially(self, lock: int) -> bool:
        """Clone commits and folders without files, and return whether that was possible."""
        try:
            await self._fetch_references(lock, "--filter=blob:none")
        except FetchFailed as error:
            if "fsck error" not in error.stderr and "filter" not in error.stderr:
                raise
            log.info("%s is cloned as a whole: %s", self.address.url, error)
            await asyncio.to_thread(self.folder.forget)
            self.state = msgspec.structs.replace(self.state, whole=True)
            return False
        return True

    async def _local_references(self, lock: int) -> dict[str, str]:
        output = await self._git.run(
            "for-each-ref", f"--count={MAX_REFERENCES}", "--format=%(objectname) %(refname)",
            "refs/heads/", "refs/tags/",
            lock=lock, seconds=LOCAL_SECONDS, network=False,
        )  # fmt: skip
        return {name: oid for oid, _, name in (os.fsdecode(line).partition(" ") for line in output.splitlines())}

    async def _compare(self, lock: int, before: dict[str, str], after: dict[str, str]) -> str:
        """Log and return which branches were deleted or force-pushed, and which tags were moved or deleted."""
        changes: list[str] = []
        compared = 0
        for name, oid in before.items():
            words = shown(name.removeprefix("refs/heads/").replace("refs/tags/", "tag "))
            if name not in after:
                changes.append(f"{words} was deleted")
            elif after[name] != oid and name.startswith("refs/tags/"):
                changes.append(f"{words} was moved")
            elif after[name] != oid and compared < MAX_COMPARED_BRANCHES:
                compared += 1
                try:
                    await self._git.run(
                        "merge-base", "--is-ancestor", oid, after[name], lock=lock, seconds=10, network=False
                    )
                except FetchFailed:
                    changes.append(f"{words} was replaced by a force-push ({oid[:7]} became {after[name][:7]})")
        if not changes:
            return ""
        more = f" and {len(changes) - 5} more changes of this kind" if len(changes) > 5 else ""
        sentence = f"{', '.join(changes[:5])}{more}"
        log.warning("%s: %s", self.address.url, sentence)
        return sentence

    # Contents that a partial clone lacks

    async def _missing(self, lock: int, *revisions: str) -> list[str]:
        """Return the names of the missing objects of some revisions."""
        output = await self._git.run(
            "rev-list", "--quiet", "--objects", "--missing=print", *revisions,
            lock=lock, seconds=LOCAL_SECONDS, network=False, max_output_bytes=1 << 30,
        )  # fmt: skip
        return [line[1:].decode("ascii") for line in output.split(b"\n") if line.startswith(b"?")]

    async def _fetch_missing(self, lock: int, oids: Iterable[str]) -> None:
        text = "".join(f"{oid}\n" for oid in oids).encode()
        if not text:
            return
        with tempfile.TemporaryFile(dir=self.folder.path) as names:
            names.write(text)
            names.seek(0)
            await self._git.run(
                *_FETCH, "--no-filter", "--stdin", "origin", lock=lock, seconds=FETCH_SECONDS, stdin=names
            )

    async def _fetch_history(self, lock: int) -> None:
        """Fetch everything as a whole clone does, and drop the objects that were fetched in parts.

        To request the missing objects by name would take 50 bytes for each, and the remote would compress them again:
        those of mypy took 12 s and 88 MiB in a whole fetch, but minutes and 170 MiB in batches of 20,000.
        """
        parts = await asyncio.to_thread(self.folder.pack_names)
        try:
            await self._fetch_references(
                lock, "--no-filter", "--refetch", replaced_bytes=await asyncio.to_thread(self.folder.size)
            )
        except FetchFailed as error:
            if "bound of the clone" not in str(error):
                raise
            log.warning("%s: contents of old revisions are left out: %s", self.address.url, error)
            await asyncio.to_thread(self.folder.prepare)
            await self._save(cut=self._git.max_bytes)
            return
        missing = ["?"]  # so that an error restores the packs
        await asyncio.to_thread(self.folder.set_aside, parts)
        try:
            missing = await self._missing(lock, "--all")
        finally:
            await asyncio.to_thread(self.folder.restore if missing else self.folder.drop_aside)
        if missing:  # the remote did not send all objects of its references
            missing = await self._missing(lock, "--all")
        await self._save(missing=len(missing), cut=self._git.max_bytes if missing else 0)

    async def _join_packs(self, lock: int, *, everything: bool = False) -> None:
        """Join small packs into larger ones; with `everything`, drop objects that no reference leads to."""
        if self.state.partial:  # git would drop objects that it could fetch again
            return
        mode = ("-a",) if everything else ("--geometric=2",)
        with contextlib.suppress(FetchFailed):  # joined after the next fetch instead
            await self._git.run("repack", "-d", "-q", *mode, lock=lock, seconds=LOCAL_SECONDS, network=False)


def _parse_references(output: bytes) -> tuple[str, int]:
    """Return HEAD (a branch, a commit or empty) and the number of references, from `ls-remote --symref`."""
    branch = commit = ""
    count = 0
    for line in output.split(b"\n"):
        first, _, name = os.fsdecode(line).partition("\t")
        if name != "HEAD":
            count += not name.endswith("^{}")
        elif first.startswith("ref: refs/heads/"):
            branch = first.removeprefix("ref: ")
        else:
            commit = first
    return branch or commit, count


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s"


def _ago(seconds: float) -> str:
    return f"{_duration(seconds)} ago"

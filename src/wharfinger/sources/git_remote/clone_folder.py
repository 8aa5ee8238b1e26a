"""The folder of one clone in the cache: private, and locked by the server that fetches into it.

    FOLDER/lock             held while a server fetches, also by its child processes
    FOLDER/state.json       the result of the last fetch
    FOLDER/repository.git   a bare repository
    FOLDER/aside            packs that git does not read for a while (`set_aside`)

Several servers may read a clone, but only one at a time fetches. The lock belongs to an open file, which the processes
of git inherit: if a server is killed, no other server writes until the git of the killed one has ended too. Each fetch
first removes unfinished files, so that it starts with complete packs and references only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec

from wharfinger.private_files import cache_folder, is_private, replace_privately
from wharfinger.source import UnusableSource
from wharfinger.sources.git_remote.remote_address import RemoteAddress

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["CloneFolder", "CloneState"]

_CONFIG = """\
[core]
	repositoryFormatVersion = 1
	bare = true
"""
MAX_STATE_BYTES = 64 << 10
MAX_COUNTED_FILES = 2_000_000


class CloneState(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the last fetch."""

    url: str = ""
    fetched: float = 0.0
    """When it ended, in seconds since 1970; 0 if nothing was ever fetched."""
    advertised: str = ""
    """A digest of the references that the remote listed."""
    missing: int = 0
    """The number of objects of old revisions that are still to be fetched."""
    cut: int = 0
    """The bound in bytes that keeps the missing objects from being fetched; 0 if none does."""
    partial: bool = False
    """Whether git treats the clone as partial: some objects are missing, or were when this state was written."""
    whole: bool = False
    """Whether this repository cannot be cloned in parts."""


class CloneFolder:
    """The folder of one clone. Hold its lock to call a method that writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.repository = path / "repository.git"
        self.aside = path / "aside"

    @classmethod
    def of(cls, address: RemoteAddress, parent: Path | None = None) -> CloneFolder:
        """Return the folder for the clone of an address, in `parent`. A new folder gets an empty repository.

        Raises:
            UnusableSource: it cannot be created, or other users may read or change it.
        """
        try:
            parent = parent or cache_folder() / "git"
        except FileNotFoundError as error:
            raise UnusableSource(f"The clone of {address.url} cannot be kept: {error}.") from None
        folder = cls(parent / address.key)
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.path.mkdir(mode=0o700, exist_ok=True)
            for path in (parent, folder.path):
                if path.is_symlink() or not is_private(path):
                    raise UnusableSource(
                        f"The folder {path} is for clones, and others may enter it: `chmod 700` it, or remove it."
                    )
            with folder.lock() as descriptor:
                if descriptor is not None:
                    folder.prepare()
            for _ in range(100):  # another server may be creating it
                if (folder.repository / "HEAD").exists():
                    return folder
                time.sleep(0.05)
        except OSError as error:
            raise UnusableSource(
                f"The clone of {address.url} cannot be kept in {folder.path} ({error.strerror}): make room there, or "
                "set XDG_CACHE_HOME to another folder."
            ) from None
        raise UnusableSource(f"The folder {folder.path} is locked and has no repository: remove it.")

    @contextlib.contextmanager
    def lock(self) -> Generator[int | None]:
        """Lock the folder for fetching, and yield the descriptor of the lock; None if another server holds it."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                if sys.platform == "win32":
                    msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
                else:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield None
                return
            yield descriptor
        finally:
            os.close(descriptor)

    def prepare(self) -> None:
        """Create the repository if it is missing or incomplete, and remove what an interrupted fetch left.

        Raises:
            OSError: it cannot be written.
        """
        repository = self.repository
        if not (repository / "HEAD").exists():
            shutil.rmtree(repository, ignore_errors=True)
            for name in ("", "objects", "objects/pack", "objects/info", "refs", "refs/heads", "refs/tags"):
                (repository / name).mkdir(mode=0o700)
            replace_privately(repository / "config", _CONFIG.encode())
            replace_privately(self.path / "state.json", b"{}")
            replace_privately(repository / "HEAD", b"ref: refs/heads/main\n")  # last: it marks a complete repository
            self.drop_aside()
            return
        self.restore()
        for leftover in _leftovers(repository):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove the repository, so that the next fetch clones it again."""
        (self.repository / "HEAD").unlink(missing_ok=True)
        self.prepare()

    def end_partial(self) -> None:
        """Turn a partial clone that has all objects into an ordinary one.

        git may drop objects of a partial clone when it joins packs, because it could fetch them again.
        """
        replace_privately(self.repository / "config", _CONFIG.encode())
        for path in (self.repository / "objects" / "pack").glob("*.promisor"):
            path.unlink(missing_ok=True)

    def state(self) -> CloneState:
        """Return the result of the last fetch."""
        try:
            with open(self.path / "state.json", "rb") as file:
                return msgspec.json.decode(file.read(MAX_STATE_BYTES), type=CloneState)
        except (OSError, msgspec.MsgspecError, ValueError):
            return CloneState()

    def write_state(self, state: CloneState) -> None:
        """Write the result of this fetch."""
        replace_privately(self.path / "state.json", msgspec.json.encode(state))

    def size(self) -> int:
        """Return the size of all objects in bytes, including those that are being fetched."""
        total = count = 0
        folders = [str(self.repository / "objects")]
        while folders and count < MAX_COUNTED_FILES:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        count += 1
                        with contextlib.suppress(OSError):
                            if entry.is_dir(follow_symlinks=False):
                                folders.append(entry.path)
                            else:
                                total += entry.stat(follow_symlinks=False).st_size
            except OSError:  # git removed it meanwhile
                continue
        return total

    def pack_names(self) -> list[str]:
        """Return the names of all packs, without suffixes."""
        return [path.stem for path in (self.repository / "objects" / "pack").glob("pack-*.pack")]

    def set_aside(self, packs: list[str]) -> None:
        """Move packs to a folder that git does not read. Call `restore` or `drop_aside` afterwards."""
        self.aside.mkdir(mode=0o700, exist_ok=True)
        for name in packs:
            # The index first: without it, git does not see the pack.
            for path in sorted(
                (self.repository / "objects" / "pack").glob(f"{name}.*"), key=lambda path: path.suffix != ".idx"
            ):
                os.replace(path, self.aside / path.name)

    def restore(self) -> None:
        """Move back the packs that were set aside, the index of each pack last."""
        for path in sorted(self.aside.glob("*"), key=lambda path: path.suffix == ".idx"):
            os.replace(path, self.repository / "objects" / "pack" / path.name)
        self.drop_aside()

    def drop_aside(self) -> None:
        """Remove the packs that were set aside."""
        shutil.rmtree(self.aside, ignore_errors=True)


def _leftovers(repository: Path) -> Iterator[Path]:
    """Yield the locks and unfinished files of an interrupted fetch."""
    yield from repository.glob("*.lock")
    yield from repository.glob("objects/tmp_*")
    yield from repository.glob("objects/incoming-*")
    yield from repository.glob("objects/pack/tmp_*")
    yield from repository.glob("objects/pack/.tmp-*")
    yield from repository.glob("objects/pack/pack-*.keep")
    yield from repository.glob("objects/[0-9a-f][0-9a-f]/tmp_obj_*")
    for folder, _, names in os.walk(repository / "refs"):
        for name in names:
            if name.endswith(".lock"):  # no reference has such a name (git-check-ref-format(1))
                yield Path(folder, name)
    packs = repository / "objects" / "pack"
    for path in packs.glob("pack-*"):
        # The index is written last: without it, git does not see the rest.
        if stat.S_ISREG(path.lstat().st_mode) and not path.with_suffix(".idx").exists():
            yield path

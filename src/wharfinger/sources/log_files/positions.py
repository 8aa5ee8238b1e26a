"""A position in a log that survives rotation: an inode, an offset, and a digest of the bytes before the offset.

To find the file again, the file with the same inode is tried first, then the others, and the digest decides. A file
that was renamed, copied and truncated, or compressed is found, and another file with the same inode or name is not
mistaken for it.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import NamedTuple

from wharfinger.errors import InvalidArgument
from wharfinger.sources.log_files.rotated_files import LogContent, LogFiles, LogMoved

__all__ = ["SAMPLE_BYTES", "LogPlace", "LogPosition", "contains_position", "locate", "position_of"]

SAMPLE_BYTES = 1_024
"""The digest covers this many bytes at the beginning of the file, and as many before the position."""
_PACKED = struct.Struct(">BQQq8s")
_VERSION = 1


class LogPosition(NamedTuple):
    """A position between two bytes of a log. `str()` writes it as text.

    `written` is the time (ns) of the file's last change when the position was made. It may be before 1970.
    """

    inode: int
    offset: int
    written: int
    digest: bytes

    def __str__(self) -> str:
        packed = _PACKED.pack(_VERSION, self.inode & (1 << 64) - 1, self.offset, self.written, self.digest)
        return urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def read(cls, name: str, text: str) -> LogPosition:
        """Read a position from the text that `str()` wrote.

        Raises:
            InvalidArgument: it is not a position.
        """
        try:
            version, *fields = _PACKED.unpack(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (ValueError, struct.error):
            version, fields = 0, []
        if version != _VERSION:
            raise InvalidArgument(f"{name}={text[:80]} is not a position of a log: copy it from wharfinger/next.")
        return cls(*fields)


class LogPlace(NamedTuple):
    """An offset in the file with the index `at` in `LogFiles.files`.

    If `lost`, the file of a position is gone, and this is the beginning of the oldest file that changed after the
    position was made.
    """

    at: int
    offset: int
    lost: bool = False


def position_of(content: LogContent, offset: int) -> LogPosition:
    """Return the position at an offset in an open file."""
    return LogPosition(content.file.identity[1], offset, content.modified, _digest(content, offset))


def _digest(content: LogContent, offset: int) -> bytes:
    digest = blake2b(digest_size=8)
    digest.update(content.read(0, min(SAMPLE_BYTES, offset)))
    digest.update(content.read(max(0, offset - SAMPLE_BYTES), min(SAMPLE_BYTES, offset)))
    return digest.digest()


def contains_position(content: LogContent, position: LogPosition) -> bool:
    """Return whether the position is in this content."""
    return content.size >= position.offset and _digest(content, position.offset) == position.digest


def locate(log: LogFiles, position: LogPosition) -> LogPlace:
    """Find the place of a position.

    Raises:
        LogMoved: the files changed during the search.
    """
    files = log.files
    if not position.offset:
        return _locate_beginning(log, position)
    same_inode = [file.identity[1] == position.inode for file in files]
    for at in sorted(range(len(files)), key=lambda at: (not same_inode[at], at)):
        # The length of a compressed file of several parts is estimated as the length of its last part.
        may_contain = same_inode[at] or log.length(at) >= position.offset
        if may_contain and contains_position(log.content(at), position):
            return LogPlace(at, position.offset)
        log.close_file(at)
    if not log.is_current():
        raise LogMoved
    return _oldest_since(log, position)


def _locate_beginning(log: LogFiles, position: LogPosition) -> LogPlace:
    """Return the beginning of the file of a position at offset 0, or of a copy made before the file was truncated."""
    since = [
        at
        for at, file in enumerate(log.files)
        if file.identity[1] == position.inode or (file.modified > position.written and not file.live)
    ]
    return LogPlace(max(since), 0) if since else _oldest_since(log, position)


def _oldest_since(log: LogFiles, position: LogPosition) -> LogPlace:
    """Return the oldest file that changed after the position was made. The bytes before it are gone."""
    since = [at for at, file in enumerate(log.files) if file.modified > position.written or file.live]
    return LogPlace(max(since, default=0), 0, lost=True)

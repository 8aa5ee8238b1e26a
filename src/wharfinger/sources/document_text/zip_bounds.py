"""Opens a document that is a ZIP archive, within bounds checked before it is parsed. Runs in the child process.

A member cannot give more bytes than the archive declares for it, since `zipfile` stops there. So a check of the
declared sizes is a check of the unpacked ones.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

from wharfinger.content.text import size_text
from wharfinger.sources.document_text.page_list import Refused

__all__ = ["MAX_MEMBERS", "MAX_RATIO", "MAX_UNPACKED_BYTES", "RATIO_APPLIES_ABOVE_BYTES", "check_sizes", "open_zip"]

MAX_MEMBERS = 20_000
"""Maximum number of files in an archive."""
MAX_UNPACKED_BYTES = 256 << 20
"""Maximum number of bytes of all files together, when they are unpacked."""
MAX_RATIO = 200
"""Maximum number of bytes that one packed byte may become. Office programs' XML becomes 5 to 20, in rare cases 100."""
RATIO_APPLIES_ABOVE_BYTES = 4 << 20
"""A file with fewer bytes, unpacked, may have any ratio: a list of empty cells is packed very well."""

_OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""The beginning of an OLE file: an office document with a password, or one of the formats before 2007."""


def open_zip(data: bytes) -> zipfile.ZipFile:
    """Open an archive.

    Raises:
        Refused: it is encrypted, damaged, or exceeds a bound.
    """
    if data.startswith(_OLE_SIGNATURE):
        raise Refused("it is encrypted, or has the format of Office before 2007: save a copy without a password")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        raise Refused("it is damaged: save it again with the program that made it") from None
    members = archive.infolist()
    if any(member.flag_bits & 1 for member in members):
        raise Refused("it is encrypted: publish a copy without a password")
    check_sizes([(member.file_size, member.compress_size) for member in members])
    return archive


def check_sizes(sizes: Sequence[tuple[int, int]]) -> None:
    """Check the sizes of the files in an archive, each unpacked and packed, in bytes.

    Raises:
        Refused: they exceed a bound.
    """
    if len(sizes) > MAX_MEMBERS:
        raise Refused(f"it is an archive of {len(sizes):,} files, and at most {MAX_MEMBERS:,} are unpacked")
    total = sum(unpacked for unpacked, _ in sizes)
    if total > MAX_UNPACKED_BYTES:
        limit = size_text(MAX_UNPACKED_BYTES)
        raise Refused(f"it would be unpacked to {size_text(total)}, and at most {limit} are unpacked")
    for unpacked, packed in sizes:
        if unpacked > RATIO_APPLIES_ABOVE_BYTES and unpacked > MAX_RATIO * packed:
            raise Refused(f"a part of it would become more than {MAX_RATIO} times as large when it is unpacked")

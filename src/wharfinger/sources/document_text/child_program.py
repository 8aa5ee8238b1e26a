"""The program of a child process, which parses documents of one format that it reads from stdin.

Input: for each document its length as 8 bytes (big-endian), then its bytes. Output: for each document the length of the
answer in the same form, then an `ExtractedText` as MessagePack.

A document may exploit an error of its parser. So before the process reads documents, it gives up what it does not need:
memory beyond a bound, processor time, files, sockets and other programs. It has no environment. If the server ends in
any way, even by SIGKILL, stdin is closed, and the process ends at once, even during a parse. On Windows there are no
such limits, and the process ends only after the document that it is parsing.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import BinaryIO

import msgspec

from wharfinger.sources.child_main import set_limits
from wharfinger.sources.document_text.page_list import ExtractedText, PageList, Refused, TooMuchText

if sys.platform != "win32":
    import resource
    import select

__all__ = ["LENGTH_BYTES", "MEMORY_BYTES", "PARSERS", "PARSE_SECONDS", "main"]

LENGTH_BYTES = 8
MEMORY_BYTES = 1 << 30
"""Address space of the process (Linux)."""
TOO_MUCH_MEMORY = f"parsing it needs more than {MEMORY_BYTES >> 20} MiB of memory: split it"
XML_ERR_NO_MEMORY = 2
"""The code of an error of lxml, from `xmlerror.h` of libxml2."""
PARSE_SECONDS = 20
"""Maximum processor time of one document, and the time that the server waits for the answer."""
STANDARD_FILES = 3
"""stdin, stdout and stderr: the only files of the process, once it has loaded its parser."""

LIMITS: Mapping[str, int] = {
    "RLIMIT_AS": MEMORY_BYTES,
    "RLIMIT_FSIZE": 0,
    "RLIMIT_CORE": 0,
    "RLIMIT_NPROC": 0,  # it can start no other program, unless it runs as root
    "RLIMIT_NOFILE": STANDARD_FILES + 2,  # stdin and stdout are open twice
}
"""The limits of the process, once it has loaded its parser."""

PARSERS: Mapping[str, str] = {"pdf": "pdf_text", "docx": "docx_text", "pptx": "pptx_text", "epub": "epub_text"}
"""The module of each format. Its function is named `read_` and the format."""

ENCODINGS = ("cp437", "latin-1", "utf-16", "utf-16-be", "utf-16-le", "utf-8-sig")
"""Encodings of names and texts in documents. Python loads each on first use."""

Parser = Callable[[bytes, PageList], None]


def main(format_name: str) -> None:
    """Parse documents of this format until stdin is closed."""
    stdin, stdout = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    module = importlib.import_module(f"wharfinger.sources.document_text.{PARSERS[format_name]}")
    parser: Parser = getattr(module, f"read_{format_name}")
    parser(module.example(), PageList())  # loads what the libraries load on first use, while files can be opened
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    _end_with_the_server()
    if sys.platform != "win32":
        os.nice(5)
    set_limits(LIMITS)
    while (data := _read_document(stdin)) is not None:
        _limit_processor_time()
        answer = msgspec.msgpack.encode(_extract(parser, data))
        del data
        stdout.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        stdout.flush()


def _read_document(stdin: BinaryIO) -> bytes | None:
    """Return the bytes of the next document, or None if stdin was closed."""
    head = stdin.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    data = stdin.read(length)
    return data if len(data) == length else None


def _extract(parser: Parser, data: bytes) -> ExtractedText:
    pages = PageList()
    try:
        with contextlib.suppress(TooMuchText):
            parser(data, pages)
    except Refused as error:
        return ExtractedText(failure=str(error))
    except MemoryError:
        return ExtractedText(failure=TOO_MUCH_MEMORY)
    except Exception as error:  # parsers raise errors of many kinds for damaged files
        kind = type(error).__name__
        if isinstance(error, SyntaxError) and getattr(error, "code", 0) == XML_ERR_NO_MEMORY:
            return ExtractedText(failure=TOO_MUCH_MEMORY)
        return ExtractedText(failure=f"it is damaged ({kind}): save it again with the program that made it")
    return ExtractedText(pages=pages.pages, cut=pages.cut)


def _limit_processor_time() -> None:
    if sys.platform != "win32":
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + PARSE_SECONDS + 1, hard))


def _end_with_the_server() -> None:
    """End the process when the other end of stdin is closed, even if it is parsing."""
    if sys.platform == "win32":
        return
    poll = select.poll()
    poll.register(0, 0)  # reports only errors and the end of stdin

    def wait() -> None:
        poll.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

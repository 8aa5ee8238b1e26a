"""Finds contents that contradict their declared MIME types.

A declared type that has a signature needs that signature, a textual type needs text, JSON must parse, and XML must
begin with `<`. An image, a sound, a film or a font of a type without a signature must not be text, and must not begin
like another kind of content. Empty content is not checked.
"""

from __future__ import annotations

import codecs
import json
import re

from wharfinger.content.encodings import BYTE_ORDER_MARKS, declared_encoding
from wharfinger.content.mime import (
    DIRECTORY,
    PDF,
    SNIFFED_BYTES,
    begins_text,
    by_signature,
    charset_of,
    decode_text,
    essence_of,
    is_text,
)

__all__ = ["MAX_PARSED_BYTES", "contradiction"]

MAX_PARSED_BYTES = 4 << 20
"""The maximum size in bytes of JSON that is parsed."""

_ZIP = "application/zip"
_OLE = "application/x-ole-storage"
_MP4 = ("video/mp4", "video/quicktime", "audio/mp4", "video/3gpp", "image/heic", "image/avif")
_OTHER_MP4 = (
    "audio/3gpp", "audio/3gpp2", "audio/m4a", "audio/x-m4a", "video/3gpp2", "video/x-m4v", "image/heif",
    "image/heic-sequence", "image/heif-sequence",
)  # fmt: skip
"""Further types of MP4 files, which `by_signature` does not return."""
_SIGNED = {
    **{
        kind: (kind,)
        for kind in (
            "image/png", "image/jpeg", "image/gif", "image/webp", "image/tiff", "image/jp2", "image/jxl",
            "image/vnd.djvu", "image/vnd.adobe.photoshop", "application/pdf", "application/gzip", "application/x-bzip2",
            "application/x-xz", "application/zstd", "application/x-7z-compressed", "application/vnd.rar",
            "application/vnd.sqlite3", "application/vnd.apache.parquet", "application/avro", "application/wasm",
            "audio/flac", "audio/ogg", "audio/wav", "audio/aiff", "audio/midi", "video/x-msvideo", "video/x-flv",
            "font/woff", "font/woff2", "font/collection", "model/gltf-binary",
        )
    },
    **dict.fromkeys((*_MP4, *_OTHER_MP4), _MP4),
    _ZIP: (_ZIP,),
    "application/epub+zip": (_ZIP,),
    "application/java-archive": (_ZIP,),
    "application/x-numpy": ("application/x-numpy", _ZIP),
    "application/msword": (_OLE,),
    "application/vnd.ms-excel": (_OLE, _ZIP),
    "application/vnd.ms-powerpoint": (_OLE,),
    "image/bmp": ("image/bmp",),
    "video/webm": ("video/x-matroska",),
    "video/x-matroska": ("video/x-matroska",),
    "video/ogg": ("audio/ogg",),
    "audio/x-matroska": ("video/x-matroska",),
    "audio/webm": ("video/x-matroska",),
    "audio/mpeg": ("audio/mpeg", "audio/aac"),
}  # fmt: skip
"""What `by_signature` may return for content of a type."""
_TEXT_FORMATS = frozenset(
    {
        "audio/mpegurl", "audio/x-mpegurl", "audio/x-scpls", "video/vnd.mpegurl", "image/vnd.dxf", "image/x-xbitmap",
        "image/x-xpixmap", "image/x-portable-anymap", "image/x-portable-bitmap", "image/x-portable-graymap",
        "image/x-portable-pixmap",
    }
)  # fmt: skip
"""Sounds, films and pictures that are text."""
_FAMILIES = ("image/", "audio/", "video/", "font/")
_MPEG_FRAME = re.compile(rb"\xff[\xe0-\xff]").match
_XML_ENCODING = re.compile(rb"""<\?xml(?=\s)[^>]{0,100}?\sencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""").match
_HTML_ENCODING = re.compile(
    rb"""<meta\s[^>]{0,200}?\bcharset\s*=\s*["']?([A-Za-z0-9._-]{1,40})(?=["'\s;/>])""", re.IGNORECASE
).search
_HTML_PRESCAN_BYTES = 1024
"""Browsers look for the encoding in this many bytes (HTML standard, section 13.2.3.2)."""
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}").fullmatch


def contradiction(declared: str, content: bytes | str, *, complete: bool = True) -> str:
    """Return a clause that says how content contradicts its type, or an empty string.

    Args:
        declared: The type, with or without parameters.
        content: The text, or the bytes. It may be only the beginning.
        complete: Whether `content` is the whole content, so that JSON can be parsed.
    """
    kind = essence_of(declared)
    if not kind or kind == DIRECTORY or not content:
        return ""
    if not _TYPE(kind):
        return f"{declared[:80]!r} is not a MIME type"
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    signature = by_signature(data[:SNIFFED_BYTES])
    signatures = _signatures(kind)
    if signatures and signature not in signatures:
        if kind == "audio/mpeg" and _MPEG_FRAME(data):
            return ""
        return f"declared {kind}, but it begins like {signature or _looks_like(data)}"
    if is_text(kind):
        return _contradiction_of_text(declared, kind, content, data, signature, complete)
    if kind.startswith(_FAMILIES) and not signatures:
        if signature and not signature.startswith(kind.partition("/")[0]):
            return f"declared {kind}, but it begins like {signature}"
        if (isinstance(content, str) and kind not in _TEXT_FORMATS) or _looks_like(data) in _MARKUP.values():
            return f"declared {kind}, but it is text"
    return ""


def _signatures(kind: str) -> tuple[str, ...]:
    """Return what `by_signature` may return for content of this type; empty if it needs no signature."""
    if kind.endswith(("+xml", "-xml")):  # a part of a document, or a document that is not packed
        return ()
    if kind.startswith("application/vnd.openxmlformats"):
        return _ZIP, _OLE  # with a password, it is not a ZIP archive
    return (_ZIP,) if kind.startswith("application/vnd.oasis.opendocument") else _SIGNED.get(kind, ())


_MARKUP = {b"<!doctype html": "text/html", b"<html": "text/html", b"<svg": "image/svg+xml", b"<?xml": "application/xml"}


def _looks_like(data: bytes) -> str:
    """Return what content without a signature looks like, in words or as a type."""
    head = data[:SNIFFED_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for mark, kind in _MARKUP.items():
        if head.startswith(mark):
            return kind
    return "text" if decode_text(data[:SNIFFED_BYTES]) is not None else "unknown bytes"


def _contradiction_of_text(
    declared: str, kind: str, content: bytes | str, data: bytes, signature: str, complete: bool
) -> str:
    """Check content that is declared as text, JSON or XML."""
    is_binary = isinstance(content, bytes) and not begins_text(data[:SNIFFED_BYTES])
    if signature and (is_binary or signature == PDF):
        return f"declared {kind}, but it begins like {signature}"
    if isinstance(content, bytes):
        charset = charset_of(declared) or "UTF-8"
        decoded = _decode(data, charset, complete)
        if decoded is None and not charset_of(declared) and (match := _encoding_declaration(kind, data)):
            charset = match[1].decode()
            decoded = _decode(data, charset, complete)
        if decoded is None:
            return f"declared {declared[:80]}, but it is not {charset}"
    else:
        decoded = content
    text = decoded.removeprefix("\ufeff").lstrip(" \t\r\n")
    if (kind == "application/json" or kind.endswith("+json")) and complete and len(data) <= MAX_PARSED_BYTES:
        try:
            json.loads(text, parse_float=str, parse_int=str, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            return f"declared {kind}, but it is not JSON: {str(error)[:100]}"
    elif kind == "image/svg+xml" and "<svg" not in text[:SNIFFED_BYTES].lower():
        return f"declared {kind}, but no <svg is at its beginning"
    elif (kind == "application/xml" or kind.endswith("+xml")) and text and not text.startswith("<"):
        return f"declared {kind}, but it does not begin with <"
    return ""


def _encoding_declaration(kind: str, data: bytes) -> re.Match[bytes] | None:
    """Return the declaration in a document, which counts if its type has no charset.

    For XML see RFC 7303, section 3.2, for HTML section 13.2.3 of the HTML standard.
    """
    if kind == "text/html":
        return _HTML_ENCODING(data[:_HTML_PRESCAN_BYTES])
    return _XML_ENCODING(data) if kind.endswith(("/xml", "+xml")) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"it contains {constant}")


def _decode(data: bytes, charset: str, complete: bool) -> str | None:
    """Return the text, which may begin with U+FEFF, or None if the bytes are not in this charset."""
    marked = (encoding for mark, encoding in BYTE_ORDER_MARKS if data.startswith(mark))
    charset = next(marked, declared_encoding(charset))
    if not charset:
        return None
    try:
        "".encode(charset)  # refuses codecs that are not text encodings, such as zlib, which could expand without bound
        return codecs.getincrementaldecoder(charset)().decode(data, final=complete)
    except (LookupError, ValueError, AttributeError, TypeError, AssertionError):
        return None

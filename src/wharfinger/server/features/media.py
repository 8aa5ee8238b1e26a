"""`Image`, `Audio` and `File`: content that tools and prompts return, made from bytes or a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.types.base import or_unset

__all__ = ["Audio", "File", "Image", "Media"]

_SUBTYPES: Mapping[str, str] = {"jpg": "jpeg", "svg": "svg+xml", "tif": "tiff", "mp3": "mpeg", "m4a": "mp4"}
"""Common names of formats, with the subtype of the MIME type if that differs."""


class Media:
    """Bytes, or the file that contains them; subclasses turn them into one kind of content.

    Pass a path, or the bytes as `data`. `format` is a short name such as `png`, `mime_type` a full MIME type; without
    either, the type is detected from the name of the file, else from the first bytes. The file is read in
    a thread when the result is sent.

    Raises:
        TypeError: both a path and data are given, or neither; or `data` is text.
    """

    __slots__ = ("annotations", "data", "meta", "mime_type", "path")

    family: ClassVar[str] = "application"

    path: Path | None
    data: bytes | None

    def __init__(
        self,
        path: str | os.PathLike[str] | bytes | None = None,
        *,
        data: bytes | None = None,
        format: str | None = None,
        mime_type: str | None = None,
        annotations: t.Annotations | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        if (path is None) == (data is None):
            raise TypeError(f"{type(self).__name__}() takes either a path or data.")
        if isinstance(path, (bytes, bytearray, memoryview)):
            path, data = None, path
        if isinstance(data, str):
            raise TypeError(f"{type(self).__name__}(data=…) takes bytes, not text: encode or base64-decode it first.")
        self.path = None if path is None else Path(path)
        self.data = None if data is None else bytes(data)
        self.mime_type = mime_type or (self._type_of(format) if format else None)
        self.annotations = annotations
        self.meta = meta

    def _type_of(self, format: str) -> str:
        short = format.lower().lstrip(".")
        return short if "/" in short else f"{self.family}/{_SUBTYPES.get(short, short)}"

    def read(self, max_bytes: int) -> bytes:
        """Return the bytes. Blocks if they are in a file.

        Raises:
            OSError: the file cannot be read.
            ValueError: there are more than `max_bytes` bytes.
        """
        if self.data is not None:
            data = self.data
        else:
            assert self.path is not None  # checked by __init__
            with self.path.open("rb") as file:
                data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise ValueError(f"the content has more than {max_bytes} bytes, the limit of this server (Limits.content)")
        return data

    def block(self, max_bytes: int) -> t.ContentBlock:
        """Return the content block for a result. See `read`, which this calls, for `max_bytes` and the errors."""
        data = self.read(max_bytes)
        mime_type = self.mime_type
        if not mime_type:
            from wharfinger.content.mime import by_name, sniff

            mime_type = (by_name(self.path.name) if self.path is not None else "") or sniff(data)
        return self._block(data, mime_type)

    def _hints(self) -> dict[str, Any]:
        return {"annotations": or_unset(self.annotations), "meta": or_unset(self.meta)}

    def _block(self, data: bytes, mime_type: str) -> t.ContentBlock:
        raise NotImplementedError


class Image(Media):
    """An image for a tool or a prompt to return: `Image("chart.png")`, or `Image(data=…, format="png")`.

    See `Media` for the arguments.
    """

    __slots__ = ()

    family = "image"

    def _block(self, data: bytes, mime_type: str) -> t.ContentBlock:
        return t.ImageContent(data=data, mime_type=mime_type, **self._hints())


class Audio(Media):
    """Sound for a tool or a prompt to return: `Audio("horn.wav")`, `Audio(data=…, format="mp3")`.

    In a revision without audio, a text block says that a sound was left out. See `Media` for the arguments.
    """

    __slots__ = ()

    family = "audio"

    def _block(self, data: bytes, mime_type: str) -> t.ContentBlock:
        return t.AudioContent(data=data, mime_type=mime_type, **self._hints())


class File(Media):
    """Any file, embedded as a resource: text as `text`, other bytes as `blob`.

    `uri` is the URI of the embedded resource, by default `file:///` and the name. See `Media` for the other arguments.
    """

    __slots__ = ("name", "uri")

    def __init__(
        self,
        path: str | os.PathLike[str] | bytes | None = None,
        *,
        data: bytes | None = None,
        format: str | None = None,
        mime_type: str | None = None,
        name: str | None = None,
        uri: str | None = None,
        annotations: t.Annotations | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(path, data=data, format=format, mime_type=mime_type, annotations=annotations, meta=meta)
        suffix = (format or "").lstrip(".")
        default = f"file.{suffix}" if suffix and "/" not in suffix else "file"  # `format` may be a MIME type
        self.name = name or (self.path.name if self.path is not None else default)
        if uri is None:
            from urllib.parse import quote

            uri = f"file:///{quote(self.name, errors='surrogateescape')}"
        self.uri = uri

    def _type_of(self, format: str) -> str:
        from wharfinger.content.mime import by_name

        short = format.lower().lstrip(".")
        return short if "/" in short else by_name(f"file.{short}") or f"application/{short}"

    def _block(self, data: bytes, mime_type: str) -> t.ContentBlock:
        from wharfinger.content.mime import is_text

        text: str | None = None
        if is_text(mime_type):
            try:
                text = data.decode()
            except UnicodeDecodeError:
                text = None
        contents = t.ResourceContents(
            uri=self.uri,
            mime_type=mime_type,
            text=or_unset(text),
            blob=data if text is None else UNSET,
        )
        return t.EmbeddedResource(resource=contents, **self._hints())

"""Objects as live resources, from S3, archives and other stores of fsspec: `objects("s3://bucket/prefix")`."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from wharfinger.content.redaction import redacted_text
from wharfinger.source import UnusableSource
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.labels import usable_label
from wharfinger.sources.object_store.library import LibraryStore, refuse_scheme
from wharfinger.sources.object_store.object_store_contract import StoreFailed, StoreUnavailable, is_served
from wharfinger.sources.object_store.s3 import S3Store
from wharfinger.sources.object_store.source import Objects

__all__ = ["Objects", "StoreFailed", "StoreUnavailable", "objects"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL).fullmatch
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}").fullmatch


def objects(url: str, *, label: str | None = None, **storage_options: object) -> Objects:
    """Publish a store of objects: `server.include(objects("s3://bucket/prefix"))`.

    Args:
        url: `s3://bucket/prefix`, `zip:FILE`, `tar:FILE`, `memory://path`, or another URL that fsspec supports.
        label: The name that is shown to people, and used in `zip://label/…` and `tar://label/…`. Default: the name of
            the file, bucket or host.
        storage_options: Options of fsspec's file system, such as `endpoint_url=` or `anon=True`, but not credentials:
            put them into the environment.

    Raises:
        UnusableSource: the store does not exist, or cannot be published.
        MissingExtra: fsspec or s3fs is not installed.
    """
    match = _URL(url)
    if match is None:
        raise UnusableSource(f"{_safe(url)} is not the URL of a store: give s3://bucket/prefix, zip:FILE or tar:FILE.")
    scheme, slashes, rest = match[1].lower(), match[2], match[3]
    if label is not None:
        usable_label(label)
    if scheme in ("zip", "tar") and not slashes:
        if storage_options:
            raise UnusableSource(f"{scheme}:FILE takes no options of a store: leave out {', '.join(storage_options)}.")
        return _open_archive(scheme, rest, label)
    if "::" in url:
        raise UnusableSource(f"{_safe(url)} wraps one store in another: give the inner one.")
    refuse_scheme(scheme)
    if not slashes:
        raise UnusableSource(f"{scheme}: needs two slashes, as in {scheme}://bucket/prefix.")
    if "?" in rest or "#" in rest:
        raise UnusableSource(f"{_safe(url)} has a query or fragment: leave out everything from ? or #.")
    host, _, path = rest.partition("/")
    if path.rstrip("/") and not is_served(path.rstrip("/")):
        raise UnusableSource(f"{_safe(url)} has empty parts, . or .. in its path: leave them out.")
    if scheme in ("s3", "s3a"):
        return _open_bucket(host, path.strip("/"), label, storage_options)
    return _open_library(scheme, host, path.strip("/"), url, label, storage_options)


def _open_archive(scheme: str, path: str, label: str | None) -> Objects:
    from wharfinger.sources.object_store.tar_archive import TarStore
    from wharfinger.sources.object_store.zip_archive import ZipStore

    store = TarStore(path) if scheme == "tar" else ZipStore(path)
    name = label if label is not None else os.path.basename(store.path)
    source = Objects(store, uri=f"{scheme}://{quote(name)}/", name=name, title=name)
    source.root = store.path
    return source


def _open_bucket(bucket: str, prefix: str, label: str | None, options: dict[str, Any]) -> Objects:
    if not _BUCKET(bucket):
        raise UnusableSource(
            "Give a bucket as s3://bucket/prefix, without credentials or endpoint: "
            "use AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL for them."
        )
    store = S3Store(bucket, f"{prefix}/" if prefix else "", options)
    name = label or bucket
    source = Objects(store, uri=_top("s3", bucket, prefix), name=name, title=label or _title(bucket, prefix))
    if store.unavailable_reason is not None:
        source.breaker.failed(store.unavailable_reason)  # so that lists do not wait for it
    return source


def _open_library(scheme: str, host: str, path: str, url: str, label: str | None, options: dict[str, Any]) -> Objects:
    address = host.rpartition("@")[2]
    top = _top(scheme, address, path)
    if host and not path and not url.endswith("/"):
        url += "/"  # without it, the path of SFTP would be empty and name the home directory
    return Objects(
        LibraryStore(url, top, options), uri=top, name=label or address or scheme, title=label or _title(address, path)
    )


def _top(scheme: str, host: str, path: str) -> str:
    """Return the URI of the top directory, without credentials."""
    parts = [quote(part) for part in (host, *path.split("/")) if part]
    return f"{scheme}://{'/'.join(parts)}/" if parts else f"{scheme}:///"


def _title(host: str, path: str) -> str:
    return "/".join(part for part in (host, path) if part) or "objects"


def _safe(url: str) -> str:
    """Return the URL without credentials, for errors."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "This"
    safe_url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else url
    return redacted_text(safe_url[:200])

"""Objects in S3 or a compatible store: listed in the store's own pages, and read in ranges of one version (ETag)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from wharfinger.content.redaction import redacted, redacted_text
from wharfinger.errors import MissingExtra
from wharfinger.source import UnusableSource
from wharfinger.sources.object_store.object_store_contract import (
    ObjectChanged,
    ObjectContent,
    ObjectInfo,
    StoreFailed,
    StoreUnavailable,
    after_directory,
)
from wharfinger.sources.windows.window import RandomAccess

__all__ = ["S3Store"]

READ_CALL_SECONDS, CALL_SECONDS = 30.0, 10.0
"""Timeouts of a call including its retries: to read bytes, and for any other call."""
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 15, 2
CHECK_SECONDS = 2.0
"""Timeout for the check of a new bucket. Importing the library, which takes about one second, does not count."""
CLOSE_SECONDS = 2.0
MAX_KEYS = 1_000
"""Maximum number of keys that S3 lists in one page."""

T = TypeVar("T")


class S3Store:
    """A bucket, or the objects below a prefix of it. Credentials are found in the same places as by AWS's own tools."""

    noun = "bucket"
    poll_seconds = 1.5
    sleep_ratio = 1.0

    def __init__(self, bucket: str, prefix: str, options: Mapping[str, Any]) -> None:
        if find_spec("s3fs") is None:
            raise MissingExtra("objects", "Publishing a bucket")
        self.bucket = bucket
        self.prefix = prefix
        self.location = f"s3://{bucket}/{prefix}"
        self._options = _with_timeouts(options)
        self._lock = threading.Lock()
        self._opened: Any = None
        self.unavailable_reason: str | None = None
        """Why the store seems unavailable; empty if it did not answer the check in time. None if it seems available."""
        self._check()

    def _check(self) -> None:
        """Refuse a bucket that is missing or may not be listed, if that is known within `CHECK_SECONDS`.

        A server must not wait longer. If the store answers later, the source notices when it polls.
        """
        self._filesystem()  # first, so that the time it takes to import the library does not count
        outcomes: SimpleQueue[Exception | None] = SimpleQueue()

        def list_one() -> None:
            try:
                self._call("list_objects_v2", Bucket=self.bucket, MaxKeys=1, Prefix=self.prefix)
            except Exception as error:
                outcomes.put(error)
            else:
                outcomes.put(None)

        threading.Thread(target=list_one, name="wharfinger-s3-check", daemon=True).start()
        try:
            error = outcomes.get(timeout=CHECK_SECONDS)
        except Empty:
            self.unavailable_reason = ""
            return
        if isinstance(error, FileNotFoundError):
            raise UnusableSource(f"There is no bucket {self.bucket} at {redacted(self._endpoint())}.")
        if isinstance(error, _CallRefused):
            raise UnusableSource(
                f"{self.location} may not be listed ({error}): set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or pass anon=True if it is public."
            )
        if isinstance(error, StoreUnavailable):
            self.unavailable_reason = str(error)
        elif error is not None and not isinstance(error, StoreFailed):
            raise error

    # Listing

    def page(self, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List a page of all objects, in the order of their keys."""
        answer = self._list(after, limit + 1)
        infos = [self._info_of(item) for item in answer.get("Contents", ())]
        return _page([info for info in infos if info.key], limit, answer)

    def directory_page(self, directory: str, begin: str, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List a page of one directory. The store itself groups the keys by the delimiter."""
        start = after_directory(after) if after.endswith("/") else after
        answer = self._list(start, limit + 1, directory + begin, "/")
        infos = [self._info_of(item) for item in answer.get("Contents", ())]
        infos += [ObjectInfo(common["Prefix"][len(self.prefix) :]) for common in answer.get("CommonPrefixes", ())]
        return _page(sorted(info for info in infos if info.key > after and info.key != directory), limit, answer)

    def _list(self, after: str, limit: int, prefix: str = "", delimiter: str = "") -> dict[str, Any]:
        arguments: dict[str, Any] = {"Prefix": self.prefix + prefix, "MaxKeys": min(limit, MAX_KEYS)}
        if after:
            arguments["StartAfter"] = self.prefix + after
        if delimiter:
            arguments["Delimiter"] = delimiter
        try:
            return cast("dict[str, Any]", self._call("list_objects_v2", Bucket=self.bucket, **arguments))
        except (FileNotFoundError, _CallRefused) as error:
            raise StoreUnavailable(f"{self.location} cannot be listed: {_reason(error)}") from None

    def _info_of(self, item: Mapping[str, Any]) -> ObjectInfo:
        return ObjectInfo(
            item["Key"][len(self.prefix) :], item["Size"], _seconds(item.get("LastModified")), _tag(item), item["Key"]
        )

    def info(self, key: str) -> ObjectInfo | None:
        """Return one object, from a HEAD request, or None if it does not exist or may not be read."""
        try:
            head = self._call("head_object", Bucket=self.bucket, Key=self.prefix + key)
        except (FileNotFoundError, _CallRefused):
            return None
        return ObjectInfo(key, head["ContentLength"], _seconds(head.get("LastModified")), _tag(head), self.prefix + key)

    def content(self, info: ObjectInfo) -> RandomAccess:
        """Return the content of one version of an object."""
        return ObjectContent(self, info)

    def range(self, info: ObjectInfo, offset: int, length: int) -> bytes:
        """Read bytes of the version of an object that `info` describes.

        Raises:
            ObjectChanged: it has another version, or no longer exists.
        """
        headers = {
            "Range": f"bytes={offset}-{offset + length - 1}",
            **({"IfMatch": f'"{info.version}"'} if info.version else {}),
        }

        async def get(fs: Any) -> bytes:
            answer = await fs._call_s3("get_object", Bucket=self.bucket, Key=info.handle, **headers)
            try:
                return cast("bytes", await answer["Body"].read())
            finally:
                answer["Body"].close()

        try:
            return self._run(get)
        except (FileNotFoundError, _VersionChanged):
            raise ObjectChanged from None
        except _CallRefused as error:
            raise StoreFailed(f"{self.location}{info.key} cannot be read: {_reason(error)}") from None

    def describe(self) -> str:
        """Return an empty string, because counting the objects would take too long."""
        return ""

    # Calling

    def _call(self, method: str, **arguments: object) -> Any:
        return self._run(lambda fs: fs._call_s3(method, **arguments), CALL_SECONDS)

    def _run(self, call: Callable[[Any], Coroutine[Any, Any, T]], seconds: float = READ_CALL_SECONDS) -> T:
        """Run a call on the library's own loop. Convert its errors and leave out texts that may contain secrets."""
        errors: Any = import_module("botocore.exceptions")
        timeout: Any = import_module("fsspec.exceptions").FSTimeoutError
        library: Any = import_module("fsspec.asyn")
        fs = self._filesystem()
        try:
            return cast("T", library.sync(library.get_loop(), call, fs, timeout=seconds))
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise _CallRefused(_code(error) or "access denied") from None
        except errors.NoCredentialsError:
            raise _CallRefused("there are no credentials") from None
        except (timeout, TimeoutError, ConnectionError, errors.ConnectionError, errors.HTTPClientError) as error:
            raise StoreUnavailable(f"{self._endpoint()} does not answer: {type(error).__name__}.") from None
        except errors.BotoCoreError as error:
            raise StoreFailed(f"{self._endpoint()} cannot be called: {type(error).__name__}.") from None
        except OSError as error:
            code = _code(error)
            if code in ("PreconditionFailed", "412", "InvalidRange", "416"):
                raise _VersionChanged from None
            unavailable = _status(error) >= 500
            raise (StoreUnavailable if unavailable else StoreFailed)(
                f"{self._endpoint()} failed: {code or type(error).__name__}."
            ) from None

    def _filesystem(self) -> Any:
        with self._lock:
            if self._opened is None:
                s3fs: Any = import_module("s3fs")
                self._opened = s3fs.S3FileSystem(**self._options)
                self._opened.retries = ATTEMPTS
            return self._opened

    def _endpoint(self) -> str:
        fs = self._opened
        client = getattr(fs, "_s3", None)
        url = urlsplit(client.meta.endpoint_url if client is not None else self._options.get("endpoint_url") or "")
        return f"{url.scheme}://{url.hostname}{f':{url.port}' if url.port else ''}" if url.hostname else "S3"

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            fs, self._opened = self._opened, None
        creator = getattr(fs, "_s3creator", None)
        if creator is not None:  # it must be closed on the loop of its connections
            loop = import_module("fsspec.asyn").get_loop()
            closing = asyncio.run_coroutine_threadsafe(creator.__aexit__(None, None, None), loop)
            with suppress(TimeoutError, FutureTimeout):
                closing.result(CLOSE_SECONDS)


class _CallRefused(Exception):
    """The store refused the call. The message is its error code, or says why."""


class _VersionChanged(Exception):
    """The object has another version."""


def _with_timeouts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Add timeouts to the options, and turn off caches of lists and of shared instances.

    With `asynchronous`, the file system is only used on the library's loop. Otherwise it would close itself on the
    loop on which it is garbage-collected.
    """
    config = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
        "retries": {"total_max_attempts": ATTEMPTS, "mode": "standard"},
        **options.get("config_kwargs", {}),
    }
    fixed = {"asynchronous": True, "config_kwargs": config}
    return {"use_listings_cache": False, "skip_instance_cache": True, **options, **fixed}


def _page(infos: list[ObjectInfo], limit: int, answer: Mapping[str, Any]) -> tuple[list[ObjectInfo], bool]:
    """Return at most `limit` entries of an answer, and whether there are more. The request asked for `limit + 1`."""
    return infos[:limit], len(infos) > limit or bool(answer.get("IsTruncated"))


def _tag(item: Mapping[str, Any]) -> str:
    return str(item.get("ETag") or "").strip('"')


def _seconds(moment: object) -> float | None:
    return moment.timestamp() if isinstance(moment, datetime) else None


def _code(error: BaseException) -> str:
    """Return the store's error code, as in its documentation."""
    response: Any = getattr(error.__cause__ or error, "response", None)
    return str(response["Error"].get("Code", "")) if response else ""


def _status(error: BaseException) -> int:
    """Return the HTTP status of the store's error, or 0 if there was no response."""
    response: Any = getattr(error.__cause__ or error, "response", None)
    return int(response["ResponseMetadata"].get("HTTPStatusCode", 0)) if response else 0


def _reason(error: BaseException) -> str:
    return "it does not exist." if isinstance(error, FileNotFoundError) else f"{redacted_text(str(error))}."

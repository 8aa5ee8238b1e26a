"""The options of `Client`: what callers may pass, and the values that apply."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client.cache import Cache
from wharfinger.client.calls import Middleware
from wharfinger.client.input_handlers import Consent, Elicit, Roots, Sample
from wharfinger.client.retry import Retry
from wharfinger.option_names import check_option_names
from wharfinger.protocol.interfaces import Authorize
from wharfinger.protocol.limits import Limits
from wharfinger.version import __version__

__all__ = ["ClientOptions", "HostClientOptions", "Settings", "settings_of"]

LIMITS = Limits(message=128 * 1024 * 1024, depth=256)
"""Bounds on one message of a server. A client accepts larger messages than a server does."""
MAX_TIMEOUT_SECONDS = 3600.0
"""The maximum seconds of a call, even if its deadline is extended."""


class HostClientOptions(TypedDict, total=False):
    """The options of `Client` that `Host` also takes, for the clients of all its servers.

    Defaults are in parentheses.
    """

    revision: str | None
    """Pins the revision of the protocol. By default the client finds out which ones the server supports."""
    timeout: float
    """The timeout in seconds of calls that have none of their own (60)."""
    max_timeout: float
    """The maximum seconds of a call whose deadline is extended by progress, a question, or a task (3,600)."""
    open_timeout: float
    """The timeout in seconds for connecting and negotiating the revision (60)."""
    probe_timeout: float
    """The seconds without a response after which the client tries the handshake of older revisions too (3)."""
    info: t.Implementation | None
    """The name and version of your application, which servers see. By default Wharfinger's."""
    stderr: Callable[[str], object] | None
    """Called with each line that a command writes to its standard error, for example `print`."""
    auth: Authorize | None
    """Signs in to a server over HTTP, for example `wharfinger.auth.SignIn()`."""
    allow_address: Callable[[str], bool] | None
    """Returns whether a URL may lead to an IP address. For URLs from an untrusted source, use
    `wharfinger.net.is_public`."""
    log: Callable[[t.LoggingMessageNotificationParams], Any] | None
    """Called with log messages of `log_level` and above."""
    log_level: t.LoggingLevel
    """The lowest level of log messages that `log` gets (`"info"`)."""
    middleware: Sequence[Middleware]
    """Functions that are called around every call, the first one outermost."""
    validate: bool
    """Whether to check tool results against their output schemas (True). Needs the extra `schema`, and does nothing
    without it."""
    retry: Retry | None
    """Configures how the client reconnects, and which calls it sends again (`Retry()`)."""
    cache: Cache | bool
    """Where to keep results for as long as the server allows: True (the default) for a separate cache, a `Cache` that
    several clients share, or False to keep none."""
    fetch_web_resources: bool
    """Whether to read resources whose URI begins with `https://` from the web (False): only those that the server has
    named, from public addresses only, and without `headers`, `auth` or cookies. If the web does not have them, the
    server is asked as usual."""
    max_pages: int
    """The maximum number of pages of a list (10,000)."""
    limits: Limits
    """Bounds on what the server sends. By default a message has at most 128 MiB."""


class ClientOptions(HostClientOptions, total=False):
    """The options of `Client`. For those that may be None, None stands for the default."""

    headers: Mapping[str, str] | None
    """Sent with each HTTP request."""
    env: Mapping[str, str] | None
    """Environment variables of a command, in addition to what every program needs. It gets nothing else of this
    process's environment."""
    cwd: str | os.PathLike[str] | None
    """The folder in which a command or a Python file runs. The path of the file is not relative to it."""
    elicitation: Elicit | None
    """Shows a form to the user. A server may ask only for what has a handler: `elicitation`, `consent`, `sampling`,
    `roots`."""
    consent: Consent | None
    """Asks the user whether a URL may be opened."""
    sampling: Sample | None
    """Asks a model for the server."""
    sampling_tools: bool
    """Whether the model that `sampling` asks can use tools (False)."""
    roots: Roots | None
    """The folders in which the user works."""
    tasks: bool
    """Whether the server may turn a call into a task, which the client waits for (False). Tools of 2025-11-25 that
    require a task are always called as tasks."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The values of all options of one client; times are in seconds."""

    revision: str | None = None
    timeout: float = 60.0
    max_timeout: float = MAX_TIMEOUT_SECONDS
    open_timeout: float = 60.0
    probe_timeout: float = 3.0
    info: t.Implementation = msgspec.field(
        default_factory=lambda: t.Implementation(name="wharfinger", version=__version__)
    )
    headers: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    cwd: str | os.PathLike[str] | None = None
    stderr: Callable[[str], object] | None = None
    auth: Authorize | None = None
    allow_address: Callable[[str], bool] | None = None
    elicitation: Elicit | None = None
    consent: Consent | None = None
    sampling: Sample | None = None
    sampling_tools: bool = False
    roots: Roots | None = None
    log: Callable[[t.LoggingMessageNotificationParams], Any] | None = None
    log_level: t.LoggingLevel = "info"
    middleware: Sequence[Middleware] = ()
    tasks: bool = False
    validate: bool = True
    retry: Retry = Retry()
    cache: Cache | bool = True
    fetch_web_resources: bool = False
    max_pages: int = 10_000
    limits: Limits = LIMITS
    capabilities: t.ClientCapabilities = msgspec.field(default_factory=t.ClientCapabilities)
    """The capabilities that the client declares; `ClientSession` derives them from the options."""

    @property
    def requested_log_level(self) -> t.LoggingLevel | UnsetType:
        """The lowest level of log messages to ask the server for; UNSET without a function `log`."""
        return UNSET if self.log is None else self.log_level


def settings_of(options: ClientOptions) -> Settings:
    """Return the values that apply with these options.

    Raises:
        TypeError: there is no such option.
    """
    check_option_names("A client", options, ClientOptions)
    given: dict[str, Any] = {
        name: value for name, value in options.items() if value is not None or name not in _DEFAULTS_FOR_NONE
    }
    for name in given.keys() & {"headers", "env"}:
        given[name] = dict(given[name])  # if the caller changed it later, a shared cache would mix up results
    return Settings(**given)


_DEFAULTS_FOR_NONE = frozenset({"info", "headers", "env", "retry"})
"""Options for which a caller may pass None, although their default is another value."""

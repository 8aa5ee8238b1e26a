"""What the features of a server share: they get this, not the server, and so depend on nothing above them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from wharfinger import types as t
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import Request
from wharfinger.server.cursors import Keys
from wharfinger.server.dependencies import Overrides
from wharfinger.server.middleware.chain import MethodTable
from wharfinger.server.signature.annotations import RequestContext
from wharfinger.server.subscriptions.watching import Watching
from wharfinger.server.threads import Pool

__all__ = ["ListName", "Services"]

ListName = Literal["resources", "tools", "prompts"]


@dataclass(slots=True, kw_only=True, eq=False)
class Services:
    """The limits, threads, keys and hints of one server, and where its features report what changed."""

    name: str
    """The server's name."""
    limits: Limits
    pool: Pool
    keys: Keys
    methods: MethodTable
    """Every method that the server has, with what is around it: how a feature uses another one as the caller would."""
    serve: Callable[[ListName], None]
    """Has the methods of a kind of feature served, here and wherever this server is mounted."""
    notify: Watching
    """Where to report that a list or a resource changed."""
    context: Callable[[Request], RequestContext]
    """Makes the `Context` of a request, which knows the server; features only hand it on."""
    ttl_ms: int = 0
    """The caching hints of what has none of its own."""
    cache_scope: t.CacheScope = "private"
    decode_json_strings: bool = False
    """Whether tools take arrays and objects also as strings that hold them."""
    replay: bool = False
    """Whether handlers that ask run again in every revision, and never wait in place."""
    overrides: Overrides = field(default_factory=Overrides)
    """Functions that stand in for dependencies."""
    open_urls: dict[str, Session] = field(default_factory=dict[str, Session])
    """Who waits for what happens at a URL, by the elicitation's id (2025-11-25)."""

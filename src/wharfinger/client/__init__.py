"""`Client`, and the types that its calls take and return. A transport is imported on first use."""

from wharfinger.client.cache import Cache
from wharfinger.client.calls import Call, CallOptions, Middleware, Next, ReadManyOptions
from wharfinger.client.client import Client
from wharfinger.client.results import Listing, ReadResult, ToolResult
from wharfinger.client.retry import NEVER, Retry
from wharfinger.client.settings import ClientOptions, HostClientOptions
from wharfinger.client.subscriptions import Change, Watch
from wharfinger.client.templates import Template

__all__ = [
    "NEVER",
    "Cache",
    "Call",
    "CallOptions",
    "Change",
    "Client",
    "ClientOptions",
    "HostClientOptions",
    "Listing",
    "Middleware",
    "Next",
    "ReadManyOptions",
    "ReadResult",
    "Retry",
    "Template",
    "ToolResult",
    "Watch",
]

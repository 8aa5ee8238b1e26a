"""Several servers as one: read from the configuration of a host, supervised, and with names that do not collide."""

from wharfinger.upstreams.config import ServerConfig, read_config, read_host_config
from wharfinger.upstreams.placeholders import InvalidConfiguration
from wharfinger.upstreams.upstream import Upstream, UpstreamChange, UpstreamUnreachable
from wharfinger.upstreams.upstreams import (
    UpstreamPrompt,
    UpstreamResource,
    Upstreams,
    UpstreamTemplate,
    UpstreamTool,
)

__all__ = [
    "InvalidConfiguration",
    "ServerConfig",
    "Upstream",
    "UpstreamChange",
    "UpstreamPrompt",
    "UpstreamResource",
    "UpstreamTemplate",
    "UpstreamTool",
    "UpstreamUnreachable",
    "Upstreams",
    "read_config",
    "read_host_config",
]

"""Another MCP server as a source: its resources, published here under their own URIs."""

from wharfinger.sources.upstream_server.source import UpstreamSource, upstream

__all__ = ["UpstreamSource", "upstream"]

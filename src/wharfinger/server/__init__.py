"""The server: features (tools, resources, templates, prompts) from functions and sources, for every revision."""

from wharfinger.server.app import Includable, Server
from wharfinger.server.completion import Complete
from wharfinger.server.context import Context
from wharfinger.server.depends import Depends
from wharfinger.server.resources import Content
from wharfinger.server.source import Hit, Hits, Source
from wharfinger.server.threads import Pool

__all__ = ["Complete", "Content", "Context", "Depends", "Hit", "Hits", "Includable", "Pool", "Server", "Source"]

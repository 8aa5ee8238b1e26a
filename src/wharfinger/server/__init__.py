"""The server: features (tools, resources, templates, prompts) from functions and sources, for every revision."""

from wharfinger.server.app import Includable, Server
from wharfinger.server.context import Context
from wharfinger.server.dependencies import Depends
from wharfinger.server.features.resources import Content
from wharfinger.server.signature.complete import Complete
from wharfinger.server.threads import Pool
from wharfinger.source import Hit, Hits, Source

__all__ = ["Complete", "Content", "Context", "Depends", "Hit", "Hits", "Includable", "Pool", "Server", "Source"]

"""`Host`: what an application that runs a model needs of its MCP servers, in one object."""

from wharfinger.host.approval import Approval
from wharfinger.host.host import Host

__all__ = ["Approval", "Host"]

"""`Host`: manages the MCP servers of an application that runs a model."""

from wharfinger.host.approval import Approval, unless_read_only
from wharfinger.host.host import Host
from wharfinger.host.questions import Elicitation, SamplingRequest, SamplingReview

__all__ = ["Approval", "Elicitation", "Host", "SamplingRequest", "SamplingReview", "unless_read_only"]

"""`Host`: manages the MCP servers of an application that runs a model."""

from wharfinger.host.approval import ApprovalRequest, unless_read_only
from wharfinger.host.host import Host, HostOptions
from wharfinger.host.questions import Elicitation, SamplingRequest, SamplingReview

__all__ = [
    "ApprovalRequest",
    "Elicitation",
    "Host",
    "HostOptions",
    "SamplingRequest",
    "SamplingReview",
    "unless_read_only",
]

"""The client's side: `Client` and what its calls give back; imports no transport before it is used."""

from wharfinger.client.client import Client
from wharfinger.client.results import Listing, ReadResult, ToolResult
from wharfinger.client.watching import Change, Watch

__all__ = ["Change", "Client", "Listing", "ReadResult", "ToolResult", "Watch"]

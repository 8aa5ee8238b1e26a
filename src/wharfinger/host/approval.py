"""Approvals: whether a tool may run, asked before it runs, and remembered for each tool and server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from wharfinger import types as t

__all__ = ["Approval", "Approve"]


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The question whether a tool may run with these arguments."""

    server: str
    tool: t.Tool
    """The tool, with the server's own name for it."""
    public_name: str
    """The name under which the host offers it."""
    arguments: Any
    read_only: bool
    """Whether a trusted server says that it changes nothing. False if the server is not trusted."""
    changed_since: bool
    """Whether its definition has changed since it was last approved for good."""


Answer = bool | Literal["always", "never"]
Approve = Callable[[Approval], Answer | Awaitable[Answer]]
"""Returns whether the tool may run: True or False for this call, `"always"` or `"never"` from now on."""

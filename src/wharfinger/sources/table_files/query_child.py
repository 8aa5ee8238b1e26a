"""Runs a caller's statement of DuckDB in a child process (`query_process`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from wharfinger.sources.child_process import ChildBounds, ChildProcesses, ChildRefused, ChildStopped
from wharfinger.sources.sql_database.database_engine import QueryBounds, QueryRefused, Rows, TableRow
from wharfinger.sources.sql_database.row_text import PartialValue
from wharfinger.sources.table_files.query_process import CUT_VALUE, QueryReply, QueryRequest

__all__ = ["run_in_child"]

CHILD_MEMORY_BYTES = 1 << 30
"""Address space of a child. DuckDB's own limit is 256 MB, but does not count all memory."""
_PROCESS = "wharfinger.sources.table_files.query_process"


def run_in_child(
    children: ChildProcesses, request: QueryRequest, bounds: QueryBounds, descriptors: Sequence[int] = ()
) -> tuple[list[str], Rows]:
    """Run a statement, and return the names of its columns and its rows. The child inherits `descriptors`.

    Raises:
        QueryRefused: the statement is not allowed, fails, or reaches a bound. The message says why.
    """
    child_bounds = ChildBounds(bounds.seconds, CHILD_MEMORY_BYTES, 4 * bounds.size + (1 << 20))
    try:
        data = children.run(_PROCESS, msgspec.msgpack.encode(request), child_bounds, descriptors)
    except ChildRefused as error:
        raise QueryRefused(f"The statement is not run: {error}.") from None
    except ChildStopped as error:
        raise QueryRefused(f"The statement was stopped: {error}. Narrow it, or aggregate.") from None
    reply = msgspec.msgpack.decode(data, type=QueryReply, ext_hook=_decode)
    return reply.columns, Rows([TableRow((), tuple(row)) for row in reply.rows], reply.more)


def _decode(code: int, data: memoryview) -> Any:
    return PartialValue(msgspec.msgpack.decode(data)) if code == CUT_VALUE else None

"""The formats of tables, by the end of a file's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wharfinger.sources.table_files.csv_table import Csv
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine
from wharfinger.sources.table_files.json_lines_table import JsonLines
from wharfinger.sources.table_files.parquet_table import Parquet
from wharfinger.sources.table_files.table_format import OpenFile, TableFile
from wharfinger.sources.table_files.workbooks import Sheet

__all__ = ["FORMATS", "TEXT_FORMATS", "WORKBOOK_FORMATS", "format_of"]

FORMATS: dict[str, tuple[str, Callable[[DuckDBEngine, OpenFile, Any], TableFile]]] = {
    "csv": ("CSV", Csv),
    "tsv": ("TSV", Csv),
    "tab": ("TSV", Csv),
    "jsonl": ("JSON Lines", JsonLines),
    "ndjson": ("JSON Lines", JsonLines),
    "parquet": ("Parquet", Parquet),
    "xlsx": ("Excel workbook", Sheet),
    "xlsm": ("Excel workbook", Sheet),
}
"""Formats by the end of a file's name: their titles, and the functions that open a file of this format."""
WORKBOOK_FORMATS = frozenset(("xlsx", "xlsm"))
"""Formats of files with several tables."""
TEXT_FORMATS = frozenset(("csv", "tsv", "tab"))
"""Formats that may be in any encoding."""


def format_of(name: str) -> str:
    """Return the key of `FORMATS` that a file's name ends with, or an empty string if it is not the name of a table."""
    ending = name.rpartition(".")[2].lower() if "." in name[1:] else ""
    return ending if ending in FORMATS else ""

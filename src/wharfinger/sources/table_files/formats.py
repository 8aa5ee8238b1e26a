"""The formats of tables, by file extension."""

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
"""The title of each format, and the function that opens a file of it, by file extension.

The third argument of the function is the encoding of a text file, the `SheetFacts` of a sheet, or None.
"""
WORKBOOK_FORMATS = frozenset(("xlsx", "xlsm"))
"""Formats of files with several tables."""
TEXT_FORMATS = frozenset(("csv", "tsv", "tab"))
"""Formats whose files may be in any encoding. JSON Lines is always UTF-8."""


def format_of(name: str) -> str:
    """Return the key of `FORMATS` that a file's name ends with, or an empty string if it is not the name of a table."""
    ending = name.rpartition(".")[2].lower() if "." in name[1:] else ""
    return ending if ending in FORMATS else ""

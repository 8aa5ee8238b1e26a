"""Files with tables (CSV, TSV, JSON Lines, Parquet, Excel) as live resources: `server.include(tables("sales"))`."""

from __future__ import annotations

import os
import re

from wharfinger.source import UnusableSource
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.labels import default_label, usable_label
from wharfinger.sources.table_files.csv_encoding import checked_encoding
from wharfinger.sources.table_files.duckdb_engine import UnreadableTable
from wharfinger.sources.table_files.formats import FORMATS, format_of
from wharfinger.sources.table_files.source import Tables

__all__ = ["Tables", "UnreadableTable", "tables"]

_WILD = re.compile(r"[*?\[]").search


def tables(path: str | os.PathLike[str], *, label: str | None = None, encoding: str | None = None) -> Tables:
    """Publish files with tables: `server.include(tables("sales"))`.

    Args:
        path: A file, a folder that contains such files at any depth, or a pattern such as `sales/2026-*.csv`.
        label: The name in URIs, `table://label/…`. Default: the name of the folder.
        encoding: The encoding of CSV and TSV files. By default, each file's byte order mark decides; without one, it is
            UTF-8 if the file or most of it is valid UTF-8, otherwise windows-1252.

    Raises:
        UnusableSource: the file, folder or encoding does not exist, the file is not a table, or the label is not valid
            in a URI.
        MissingExtra: duckdb is not installed.
    """
    path_text = os.fsdecode(os.fspath(path))
    root, patterns, depth = _published_files(path_text)
    deeper = [f"/{'*/' * depth}"] if depth else []
    name = usable_label(default_label(root) if label is None else label)
    location = path_text if os.path.isabs(path_text) else os.path.realpath(path_text)
    codec = "" if encoding is None else checked_encoding(encoding)
    return Tables(root, name, PublishChoice(patterns, deeper), location, codec)


def _published_files(path_text: str) -> tuple[str, list[str], int]:
    """Return the published folder, the patterns of its files, and the number of parts of their paths (0: any)."""
    resolved = os.path.realpath(path_text)
    if os.path.isdir(resolved):
        in_any_case = ["".join(f"[{letter}{letter.upper()}]" for letter in ending) for ending in FORMATS]
        return resolved, [f"*.{ending}" for ending in in_any_case], 0
    if os.path.isfile(resolved):
        if not format_of(resolved):
            raise UnusableSource(f"{resolved} is not a table file: its name must end with one of {_ENDINGS}.")
        escaped_name = re.sub(r"([\\*?\[\]!# ])", r"\\\1", os.path.basename(resolved))
        return os.path.dirname(resolved), [f"/{escaped_name}"], 1
    if not _WILD(path_text):
        raise UnusableSource(f"There is no file or folder {resolved}.")
    parts = path_text.replace(os.sep, "/").split("/")
    first = next(index for index, part in enumerate(parts) if _WILD(part))
    root = os.path.realpath("/".join(parts[:first]) or ("/" if path_text.startswith("/") else "."))
    if not os.path.isdir(root) or ".." in parts[first:]:
        raise UnusableSource(f"There is no folder {root} for the pattern {path_text}.")
    return root, ["/" + "/".join(parts[first:])], 0 if "**" in parts else len(parts) - first


_ENDINGS = ", ".join(f".{ending}" for ending in FORMATS)

"""The query examples that sources declare can be read, and are shown to models."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pptx
import pytest

from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.source import Source, UriParameter
from wharfinger.sources import files, git, logs, objects, sql, system, tables
from wharfinger.sources.resource_tool_set.uri_queries import (
    MAX_LINE_CHARACTERS,
    MAX_SOURCES,
    explained,
    parameters_at,
    queries_of,
    template_entry,
    with_queries,
)
from wharfinger.sources.upstream_server import upstream


def database_source(folder: Path) -> Source:
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute(
            "CREATE TABLE ports (id INTEGER PRIMARY KEY, name TEXT, status TEXT, date TEXT, a INT, b INT)"
        )
        connection.execute("INSERT INTO ports VALUES (1, 'Hull', 'paid', '2026-11-20', 1, 2)")
    connection.close()
    return sql(f"sqlite:///{folder}/shop.db", label="shop")


def git_source(folder: Path) -> Source:
    def run(*words: str) -> None:
        settings = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", "-C", str(folder), *settings, *words], check=True, capture_output=True)

    run("init", "-q", "-b", "main")
    (folder / "app.log").write_text("Hull 4\n")
    (folder / "docs").mkdir()
    (folder / "docs" / "guide.md").write_text("# Guide\n")
    run("add", ".")
    run("commit", "-q", "-m", "Measure")
    return git(folder, label="harbour")


def log_source(folder: Path) -> Source:
    (folder / "app.log").write_text("2026-11-20T10:00:00Z ERROR a timeout\n")
    return logs(folder / "*.log", label="app")


def table_source(folder: Path) -> Source:
    (folder / "app.csv").write_text("day,price,date,name\n2026-11-20,5,2026-11-20,Ada\n")
    return tables(str(folder / "*.csv"), label="sales")


def folder_source(folder: Path) -> Source:
    (folder / "app.log").write_text("a line\n")
    presentation = pptx.Presentation()
    for _ in range(3):
        presentation.slides.add_slide(presentation.slide_layouts[0])
    presentation.save(str(folder / "plan.pptx"))
    return files(folder, label="charts")


def archive_source(folder: Path) -> Source:
    import zipfile

    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("app.log", "a line\n")
    return objects(f"zip:{folder}/a.zip", label="a")


PUBLISHED: dict[str, tuple[Callable[[Path], Source], dict[str, str]]] = {
    "folder": (folder_source, {"path": "app.log"}),
    "log": (log_source, {"path": "app.log"}),
    "sql": (database_source, {"table": "ports"}),
    "git": (git_source, {"rev": "HEAD", "from": "HEAD", "to": "HEAD", "path": "app.log"}),
    "tables": (table_source, {"path": "app.csv"}),
    "objects": (archive_source, {"key": "app.log", "path": "app.log"}),
    "system": (lambda folder: system(), {}),
}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_every_example_of_a_source_can_be_read(tmp_path: Path, kind: str) -> None:
    make, values = PUBLISHED[kind]
    source = make(tmp_path)
    server = Server("asked")
    server.include(source)
    query = re.compile(r"\{[?&]([^}]*)\}")

    def expand(template: str, names: list[str]) -> str:
        only_for_documents = any(name in source.parameters and source.parameters[name].types for name in names)
        document = {"path": "plan.pptx"} if only_for_documents else dict[str, str]()
        base = re.sub(r"\{\+?(\w+)\}", lambda found: {**values, **document}[found[1]], query.sub("", template))
        # `rows` cannot be combined with `limit` or `tail` in one URI.
        excluded = {"limit", "tail"} if "rows" in names else set[str]()
        parameters = {name: source.parameters[name] for name in names if name in source.parameters.keys() - excluded}
        pairs = [f"{name}={parameter.example}" for name, parameter in parameters.items()]
        return f"{base}?{'&'.join(pair for pair in pairs if not pair.endswith('=KEY'))}"

    names_by_template = {
        template.uri_template: ",".join(query.findall(template.uri_template)).split(",")
        for template in source.templates
    }
    uris = [expand(template, names) for template, names in names_by_template.items() if names != [""]]
    for name in source.parameters:
        if name != "COLUMN" and not any(name in names for names in names_by_template.values()):
            uris += [
                expand(template, [name]) for template in names_by_template if template.endswith(("{+path}", "{+key}"))
            ][:1]
    assert uris
    assert {name for names in names_by_template.values() for name in names} - {"", "after"} <= set(source.parameters)

    async def main() -> None:
        async with Client(server) as client:
            for uri in uris:
                await client.read_resource(uri)

    asyncio.run(main())


class Tides(Source):
    """A source with one parameter in a template, and one that all URIs accept."""

    uri = "tides://top"
    templates = (
        t.ResourceTemplate(uri_template="tides://top/{port}{?day}", name="port", title="A port"),
        t.ResourceTemplate(uri_template="tides://top/years/{year}", name="year"),
    )
    parameters = {"day": UriParameter("today", "that day"), "unit": UriParameter("m", "heights in metres")}  # noqa: RUF012


def test_parameters_are_shown_with_the_uris_that_accept_them() -> None:
    tides = Tides()
    assert list(queries_of(tides)) == ["tides://top/{port}?day=today", "tides://top/…?unit=m"]
    assert parameters_at(tides, "tides://top/hull") == ["?day=today: that day", "?unit=m: heights in metres"]
    assert parameters_at(tides, "tides://top/years/2026?unit=m") == ["?unit=m: heights in metres"]
    assert template_entry(tides, tides.templates[0]) == {
        "uriTemplate": "tides://top/{port}{?day}",
        "description": "A port",
        "parameters": {"day": "such as today: that day"},
    }
    assert "parameters" not in template_entry(None, tides.templates[0])
    without_example = type("WithoutExample", (Tides,), {"parameters": {"day": UriParameter("", "that day")}})
    assert template_entry(without_example(), tides.templates[0])["parameters"] == {"day": "that day"}
    assert list(queries_of(Source())) == []


class ManyTides(Tides):
    """Tides with more parameters than a line has room for, and one that only PDF documents accept."""

    parameters = {  # noqa: RUF012
        **{f"parameter{number}": UriParameter("x" * 20, "that") for number in range(12)},
        "pages": UriParameter("1-3", "these pages", ("application/pdf",)),
    }


def test_the_declared_parameters_of_a_source_are_explained_in_one_line_of_limited_length() -> None:
    assert explained(Tides()) == "tides://top: tides://top/{port}?day=today; tides://top/…?unit=m"
    assert explained(Tides(), parameters=False) == "tides://top"
    line = explained(ManyTides())
    assert len(line) <= MAX_LINE_CHARACTERS and "?pages" in line
    assert all(f"?{name}" in line for name in ManyTides.parameters)
    pdf_tides = type("PdfTides", (Tides,), {"parameters": {"pages": ManyTides.parameters["pages"]}})
    assert explained(pdf_tides()) == "tides://top: for some types ?pages=1-3"
    long_names = type(
        "LongNames", (Tides,), {"parameters": {"n" * 99 + str(n): UriParameter("1", "") for n in range(9)}}
    )
    assert len(explained(long_names())) == MAX_LINE_CHARACTERS


def test_a_description_explains_each_kind_of_source_once_up_to_a_limit() -> None:
    kinds: list[Any] = [type(f"Tides{number}", (Tides,), {}) for number in range(MAX_SOURCES + 5)]
    text = with_queries("Read.", [kind() for kind in kinds for _ in range(3)])
    assert text.startswith("Read.\n\nTo read less, add a query:\ntides://top/{port}?day=today; tides://top/…?unit=m\n")
    assert text.count("{port}") == MAX_SOURCES
    assert with_queries("Read.", [Source()]) == "Read."


@pytest.mark.parametrize("excess", [0, 1])
def test_the_queries_of_a_source_are_cut_to_the_length_of_a_line(excess: int) -> None:
    """A bug: a line that was cut had one character more."""
    example = "m" * (MAX_LINE_CHARACTERS - len("tides://top/…?unit=") + excess)
    kind = type("LongTides", (Tides,), {"parameters": {"unit": UriParameter(example, "heights")}})
    line = with_queries("Read.", [kind()]).splitlines()[-1]
    assert len(line) == MAX_LINE_CHARACTERS
    assert line.endswith("…" if excess else "m")


def test_a_thousand_templates_of_another_server_are_not_compiled_for_each_read() -> None:
    """A bug: each read of a long text took a second."""
    source = upstream("https://harbour.example/mcp")
    source.templates += [
        t.ResourceTemplate(name="log", uri_template=f"log://{number}/{{a}}/{{b}}/{{c}}{{?level,text}}")
        for number in range(2_000)
    ]
    began = time.process_time()
    assert parameters_at(source, "log://1/a/b/c") == []
    assert time.process_time() - began < 0.5

"""The query examples that sources declare can be read, and are shown to models."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
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


def shop(folder: Path) -> Source:
    with sqlite3.connect(folder / "shop.db") as made:
        made.execute("CREATE TABLE ports (id INTEGER PRIMARY KEY, name TEXT, status TEXT, date TEXT, a INT, b INT)")
        made.execute("INSERT INTO ports VALUES (1, 'Hull', 'paid', '2026-11-20', 1, 2)")
    made.close()
    return sql(f"sqlite:///{folder}/shop.db", label="shop")


def harbour(folder: Path) -> Source:
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


def log(folder: Path) -> Source:
    (folder / "app.log").write_text("2026-11-20T10:00:00Z ERROR a timeout\n")
    return logs(folder / "*.log", label="app")


def sales(folder: Path) -> Source:
    (folder / "app.csv").write_text("day,price,date,name\n2026-11-20,5,2026-11-20,Ada\n")
    return tables(str(folder / "*.csv"), label="sales")


def folder_of(folder: Path) -> Source:
    (folder / "app.log").write_text("a line\n")
    presentation = pptx.Presentation()
    for _ in range(3):
        presentation.slides.add_slide(presentation.slide_layouts[0])
    presentation.save(str(folder / "plan.pptx"))
    return files(folder, label="charts")


def archive(folder: Path) -> Source:
    import zipfile

    with zipfile.ZipFile(folder / "a.zip", "w") as made:
        made.writestr("app.log", "a line\n")
    return objects(f"zip:{folder}/a.zip", label="a")


PUBLISHED: dict[str, tuple[Callable[[Path], Source], dict[str, str]]] = {
    "folder": (folder_of, {"path": "app.log"}),
    "log": (log, {"path": "app.log"}),
    "sql": (shop, {"table": "ports"}),
    "git": (harbour, {"rev": "HEAD", "from": "HEAD", "to": "HEAD", "path": "app.log"}),
    "tables": (sales, {"path": "app.csv"}),
    "objects": (archive, {"key": "app.log", "path": "app.log"}),
    "system": (lambda folder: system(), {}),
}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_every_example_of_a_source_can_be_read(tmp_path: Path, kind: str) -> None:
    make, values = PUBLISHED[kind]
    source = make(tmp_path)
    server = Server("asked")
    server.include(source)
    query = re.compile(r"\{[?&]([^}]*)\}")

    def filled(template: str, names: list[str]) -> str:
        for_documents = any(name in source.parameters and source.parameters[name].types for name in names)
        typed = {"path": "plan.pptx"} if for_documents else dict[str, str]()
        base = re.sub(r"\{\+?(\w+)\}", lambda found: {**values, **typed}[found[1]], query.sub("", template))
        one_of = {"limit", "tail"} if "rows" in names else set[str]()  # a URI has only one of them
        parameters = {name: source.parameters[name] for name in names if name in source.parameters.keys() - one_of}
        asked = [f"{name}={parameter.example}" for name, parameter in parameters.items()]
        return f"{base}?{'&'.join(one for one in asked if not one.endswith('=KEY'))}"

    named = {each.uri_template: ",".join(query.findall(each.uri_template)).split(",") for each in source.templates}
    uris = [filled(template, names) for template, names in named.items() if names != [""]]
    for name in source.parameters:
        if name != "COLUMN" and not any(name in names for names in named.values()):
            uris += [filled(template, [name]) for template in named if template.endswith(("{+path}", "{+key}"))][:1]
    assert uris
    assert {name for names in named.values() for name in names} - {"", "after"} <= set(source.parameters)

    async def main() -> None:
        async with Client(server) as client:
            for uri in uris:
                await client.read_resource(uri)

    asyncio.run(main())


class Tides(Source):
    """A source with a parameter of a template and one of all URIs."""

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
    assert list(queries_of(Source())) == []


class ManyTides(Tides):
    """Tides with more parameters than examples have room for, and one for documents."""

    parameters = {  # noqa: RUF012
        **{f"parameter{number}": UriParameter("x" * 20, "that") for number in range(12)},
        "pages": UriParameter("1-3", "these pages", ("application/pdf",)),
    }


def test_a_source_is_explained_in_one_bounded_line_from_its_own_declaration() -> None:
    assert explained(Tides()) == "tides://top: tides://top/{port}?day=today; tides://top/…?unit=m"
    assert explained(Tides(), parameters=False) == "tides://top"
    line = explained(ManyTides())
    assert len(line) <= MAX_LINE_CHARACTERS and "?pages" in line
    assert all(f"?{name}" in line for name in ManyTides.parameters)
    named = type("Named", (Tides,), {"parameters": {"pages": ManyTides.parameters["pages"]}})
    assert explained(named()) == "tides://top: for some types ?pages=1-3"
    huge = type("Huge", (Tides,), {"parameters": {"n" * 99 + str(n): UriParameter("1", "") for n in range(9)}})
    assert len(explained(huge())) == MAX_LINE_CHARACTERS


def test_a_description_names_each_kind_of_source_once_and_few_of_them() -> None:
    kinds: list[Any] = [type(f"Tides{number}", (Tides,), {}) for number in range(MAX_SOURCES + 5)]
    text = with_queries("Read.", [kind() for kind in kinds for _ in range(3)])
    assert text.startswith("Read.\n\nAsk for less by a query:\ntides://top/{port}?day=today; tides://top/…?unit=m\n")
    assert text.count("{port}") == MAX_SOURCES
    assert with_queries("Read.", [Source()]) == "Read."

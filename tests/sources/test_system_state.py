"""The state of this machine as resources."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from wharfinger import Client, Server
from wharfinger.errors import InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import version_of
from wharfinger.sources.system_state import CACHE_SECONDS, MAX_PROCESSES, System, system
from wharfinger.testing import SourceContract
from wharfinger.testing.source_suite.driver import ChangeRecorder

psutil = pytest.importorskip("psutil")


@pytest.fixture
def machine() -> Iterator[System]:
    source = system()
    yield source
    source._watches.close()


def read_json(machine: System, uri: str) -> Any:
    (content,) = machine.read(uri).contents
    assert content.mime_type == "application/json"
    return json.loads(str(content.text))


def test_four_views_and_their_directory_are_listed_in_pages(machine: System) -> None:
    resources, key = machine.page(None, 100)
    assert key is None
    names = ["system", "disks", "load", "memory", "processes"]
    assert [resource.name for resource in resources] == names
    paged: list[str] = []
    after = None
    for _ in names:
        page, after = machine.page(after, 1)
        paged += [resource.name for resource in page]
    assert (paged, after) == (names, None)
    with pytest.raises(InvalidArgument, match="cursor"):
        machine.page("none", 10)


def test_the_directory_describes_its_views(machine: System) -> None:
    top, *children = machine.read("system:///").contents
    assert "system:///memory" in str(top.text)
    assert [child.uri for child in children] == [resource.uri for resource in machine.children("system:///")[0]]
    with pytest.raises(ResourceNotFound):
        machine.children("system:///load")


def test_values_match_psutil(machine: System) -> None:
    memory = read_json(machine, "system:///memory")
    assert memory["total"] == psutil.virtual_memory().total
    assert 0 <= memory["percent"] <= 100
    load = read_json(machine, "system:///load")
    assert load["cpus"] == psutil.cpu_count() and set(load["load_average_of_minutes"]) == {"1", "5", "15"}
    root = next(disk for disk in read_json(machine, "system:///disks")["disks"] if disk["place"] == "/")
    assert root["total"] == psutil.disk_usage("/").total


def test_the_first_load_that_a_thread_measures_is_not_zero(machine: System) -> None:
    """A bug: psutil remembers the last measurement of each thread, so the first one in a thread was 0."""
    used = time.process_time()
    while time.process_time() - used < 0.3:
        pass
    with ThreadPoolExecutor(1) as thread:
        load = thread.submit(read_json, machine, "system:///load").result()
    assert 0 < load["cpu_percent"] <= 100


def test_answers_have_a_ttl_and_a_version(machine: System) -> None:
    result = machine.read("system:///memory")
    assert (result.ttl_ms, result.cache_scope) == (2000, "public")
    second = machine.read("system:///memory")  # within half a second, so both reads share one measurement
    assert result.contents[0].meta == second.contents[0].meta
    assert version_of(machine.stat("system:///memory"))


def test_processes_are_bounded_and_ordered(machine: System) -> None:
    all_processes = read_json(machine, "system:///processes?by=memory&limit=1000")
    largest = read_json(machine, "system:///processes?by=memory&limit=3")
    assert largest["shown"] == 3 and largest["running"] == all_processes["running"] == len(all_processes["processes"])
    memory = [process["memory"] for process in all_processes["processes"]]
    assert memory == sorted(memory, reverse=True)
    assert largest["processes"] == all_processes["processes"][:3]
    assert os.getpid() in [process["pid"] for process in all_processes["processes"]]


def test_command_lines_and_environments_of_processes_are_not_shown(machine: System) -> None:
    command = [sys.executable, "-c", "input()", "--password=barnacle"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={"PASSWORD": "limpet"}) as child:
        text = str(machine.read(f"system:///processes?limit={MAX_PROCESSES}").contents[0].text)
        assert f'"pid": {child.pid},' in text
        child.communicate(b"\n")
    assert "barnacle" not in text and "limpet" not in text
    fields = {"pid", "name", "user", "cpu_percent", "memory", "memory_percent"}
    assert all(process.keys() == fields for process in json.loads(text)["processes"])


@pytest.mark.parametrize(
    "uri",
    [
        "system:///processes?by=name",
        "system:///processes?limit=0",
        "system:///processes?limit=1001",
        "system:///processes?limit=%2B5",
        "system:///processes?limit=",
        "system:///processes?tail=5",
        "system:///load?by=cpu",
    ],
)
def test_unknown_queries_are_refused_with_the_valid_ones(machine: System, uri: str) -> None:
    with pytest.raises(InvalidArgument, match=r"by=|limit"):
        machine.read(uri)


@pytest.mark.parametrize("uri", ["system:///tides", "system:////load", "system:///load/", "system:///../load"])
def test_unknown_uris_are_not_found(machine: System, uri: str) -> None:
    for method in (machine.read, machine.stat):
        with pytest.raises(ResourceNotFound):
            method(uri)


def test_watchers_are_notified_of_a_busy_process(machine: System, recorder: ChangeRecorder) -> None:
    uri = "system:///processes?limit=1000"
    machine._watches.every = CACHE_SECONDS
    machine.stat(uri)
    machine.watch(uri, recorder)
    with subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        recorder.wait_for(uri)
        pids = [process["pid"] for process in read_json(machine, uri)["processes"]]
        busy.kill()
    assert busy.pid in pids


def test_small_fluctuations_are_not_reported_as_changes(machine: System) -> None:
    from wharfinger.sources.system_state import VIEWS

    rounded = VIEWS["load"].rounded
    quiet = {"cpu_percent": 1.1, "cpus": 4, "load_average_of_minutes": {"1": 0.40}}
    assert rounded(quiet) == rounded({**quiet, "cpu_percent": 1.9, "load_average_of_minutes": {"1": 0.35}})
    assert rounded(quiet) != rounded({**quiet, "cpu_percent": 97.0})


def test_values_of_the_template_are_completed(machine: System) -> None:
    (template,) = machine.templates
    assert machine.complete(template.uri_template, "by", "m", {}) == ["memory"]
    assert machine.complete(template.uri_template, "limit", "", {})
    assert machine.complete(template.uri_template, "other", "", {}) == []


def test_a_search_finds_views_by_title_and_not_by_content(machine: System) -> None:
    assert [hit.uri for hit in search_documents(machine, "memory FREE", 5)] == ["system:///memory"]
    documents, _ = machine.documents(None, 5)
    assert [document.title for document in documents][2] == "Memory in use and free"
    assert [machine.text(document.uri) for document in documents] == [()] * 4


def test_a_client_reads_and_watches_processes() -> None:
    server = Server("host")
    source = system()
    source._watches.every = CACHE_SECONDS
    server.include(source)

    async def main() -> None:
        async with Client(server) as client, client.watch("system:///processes?limit=1000") as changes:
            read = await client.read_resource("system:///processes?limit=1000")
            assert read.json()["running"] > 0
            busy = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
            try:
                assert (await anext(changes)).uri == "system:///processes?limit=1000"
            finally:
                busy.kill()
                await busy.wait()

    asyncio.run(main())


def test_a_missing_extra_is_reported_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(MissingExtra, match=r"wharfinger\[system\]"):
        system()


class TestSystemStateContract(SourceContract):
    missing = "system:///none"
    live = True

    @pytest.fixture
    def source(self) -> System:
        return system()

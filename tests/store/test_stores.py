"""Stores in memory and in SQLite files. Files are also tested with other processes, kills and damage."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clock import FakeClock
from wharfinger.errors import StoreUnusable
from wharfinger.protocol.interfaces import Store
from wharfinger.store import open_store
from wharfinger.store.memory import MemoryStore
from wharfinger.store.sqlite import SqliteStore

MakeStore = Callable[[Path, FakeClock], Store]
STORES: dict[str, MakeStore] = {
    "memory": lambda path, clock: MemoryStore(clock),
    "sqlite": lambda path, clock: SqliteStore(path / "kept.db", clock),
}


@pytest.fixture(params=STORES.values(), ids=list(STORES))
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    return request.param  # type: ignore[no-any-return]


@asynccontextmanager
async def closing(store: Store) -> AsyncGenerator[Store]:
    try:
        yield store
    finally:
        await store.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_a_value_exists_until_it_is_deleted(make_store: MakeStore, tmp_path: Path) -> None:
    async def test() -> None:
        async with closing(make_store(tmp_path, FakeClock())) as store:
            assert await store.get("a") is None
            assert await store.put("a", b"1")
            assert await store.put("a", b"\x00\xff")
            assert await store.get("a") == b"\x00\xff"
            await store.delete("a")
            await store.delete("a")
            assert await store.get("a") is None

    run(test())


def test_an_expired_value_is_deleted(make_store: MakeStore, tmp_path: Path) -> None:
    async def test() -> None:
        clock = FakeClock()
        async with closing(make_store(tmp_path, clock)) as store:
            await store.put("a", b"1", expires=clock.now + 10)
            await store.put("b", b"22")
            assert await store.usage("") == (2, 3)
            clock.now += 10
            assert await store.get("a") is None
            assert await store.scan("") == [("b", b"22")]
            assert await store.usage("") == (1, 2)
            clock.now += 1000
            await store.put("c", b"333")  # deletes expired values
            assert await store.put("a", b"4", instead_of=None)
            assert await store.get("a") == b"4"

    run(test())


def test_put_with_instead_of_writes_only_if_the_value_is_unchanged(make_store: MakeStore, tmp_path: Path) -> None:
    async def test() -> None:
        clock = FakeClock()
        async with closing(make_store(tmp_path, clock)) as store:
            assert not await store.put("a", b"1", instead_of=b"0")
            assert await store.put("a", b"1", instead_of=None)
            assert not await store.put("a", b"2", instead_of=None)
            assert not await store.put("a", b"2", instead_of=b"0")
            assert await store.put("a", b"2", instead_of=b"1", expires=clock.now + 1)
            assert await store.get("a") == b"2"
            clock.now += 1
            assert not await store.put("a", b"3", instead_of=b"2")
            assert await store.put("a", b"3", instead_of=None)

    run(test())


@pytest.mark.parametrize("last", ["\ud7ff", "\uffff", "\U0010ffff"])
def test_a_prefix_may_end_with_a_character_that_has_no_successor(
    make_store: MakeStore, tmp_path: Path, last: str
) -> None:
    """A bug: the end of the range was the prefix with its last character plus one, such as a surrogate."""

    async def test() -> None:
        async with closing(make_store(tmp_path, FakeClock())) as store:
            keys = [last, f"{last}/a", f"{last}\U0010ffff"]
            for key in (*keys, "a", "\ue000"):
                await store.put(key, b"12")
            assert [key for key, _ in await store.scan(last)] == keys
            assert await store.usage(last) == (3, 6)
            assert (await store.usage("")) == (5, 10)

    run(test())


def test_a_scan_is_sorted_and_continues_after_a_key(make_store: MakeStore, tmp_path: Path) -> None:
    async def test() -> None:
        async with closing(make_store(tmp_path, FakeClock())) as store:
            for key in ("t/b", "t/a", "t", "t/é", "t0", "s/z", "t/c"):
                await store.put(key, key.encode())
            keys = [key for key, _ in await store.scan("t/")]
            assert keys == ["t/a", "t/b", "t/c", "t/é"]
            assert [key for key, _ in await store.scan("t/", limit=2)] == keys[:2]
            assert [key for key, _ in await store.scan("t/", after="t/b")] == keys[2:]
            assert await store.scan("t/", after="t/é") == []
            assert await store.usage("t/") == (4, 13)
            assert await store.usage("t/a") == (1, 3)
            assert await store.usage("") == (7, 19)
            await store.put("t/a", b"")
            await store.delete("t/b")
            assert await store.usage("t/") == (3, 7)
            await store.put("t/b", b"t/b")
            assert len(await store.scan("")) == 7

    run(test())


def test_concurrent_calls_run_in_order(make_store: MakeStore, tmp_path: Path) -> None:
    async def test() -> None:
        async with closing(make_store(tmp_path, FakeClock())) as store:
            await asyncio.gather(*(store.put("a", b"%d" % number) for number in range(50)))
            assert await store.get("a") == b"49"

    run(test())


def test_a_closed_store_can_be_used_again(make_store: MakeStore, tmp_path: Path) -> None:
    async def test() -> None:
        async with closing(make_store(tmp_path, FakeClock())) as store:
            await store.put("a", b"1")
            await store.close()
            await store.close()
            assert await store.get("a") == b"1"

    run(test())


def test_a_store_is_opened_by_its_url(tmp_path: Path) -> None:
    relative = open_store("sqlite:///var/tasks.db")
    assert isinstance(relative, SqliteStore)
    assert relative.path == Path("var/tasks.db")
    absolute = open_store(f"sqlite:///{tmp_path}/tasks.db")
    assert isinstance(absolute, SqliteStore)
    assert absolute.path == tmp_path / "tasks.db"
    assert isinstance(open_store(), MemoryStore)


@pytest.mark.parametrize("text", ["tasks.db", "sqlite://tasks.db", "sqlite:///", "redis://here", ""])
def test_an_invalid_store_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a store"):
        open_store(text)


def test_the_name_of_sqlite_for_memory_is_refused_as_the_url_of_a_store() -> None:
    """A bug: an empty file named `:memory:` was made, and the store was lost when its connection closed."""
    with pytest.raises(ValueError, match="to keep it in memory, leave out its URL"):
        open_store("sqlite:///:memory:")


# Files


def test_a_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    async def test() -> None:
        async with closing(SqliteStore(tmp_path / "kept.db")) as store:
            await store.put("a", b"secret")
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
            assert set(modes.values()) == {0o600}, modes

    run(test())


def write_damaged_file(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def write_foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    connection.close()


def write_newer_store(path: Path) -> None:
    run(put_one(path))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


async def put_one(path: Path) -> None:
    async with closing(SqliteStore(path)) as store:
        await store.put("a", b"1")


@pytest.mark.parametrize(
    ("make_file", "message"),
    [
        (write_damaged_file, "damaged one .*: move it away"),
        (write_foreign_database, "is a database of another program"),
        (write_newer_store, "written by another version"),
        (Path.mkdir, "cannot be opened"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(make_file: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    make_file(path)
    before = path.read_bytes() if path.is_file() else b""

    async def test() -> None:
        async with closing(SqliteStore(path)) as store:
            for _ in range(2):  # each call tries to open it
                with pytest.raises(StoreUnusable, match=message) as caught:
                    await store.put("b", b"2")
                assert str(path) in str(caught.value)

    run(test())
    if path.is_file():  # its journal mode, too
        assert path.read_bytes() == before


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    async def test() -> None:
        async with closing(SqliteStore(tmp_path / "missing" / "kept.db")) as store:
            with pytest.raises(StoreUnusable, match="No such file or directory"):
                await store.get("a")

    run(test())


def test_a_store_works_again_after_no_thread_could_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the next calls waited for ever."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def test() -> None:
        store = SqliteStore(tmp_path / "kept.db")
        with monkeypatch.context() as patch, pytest.raises(RuntimeError):
            patch.setattr(threading.Thread, "start", fail)
            await store.get("a")
        async with asyncio.timeout(10), closing(store):
            assert await store.get("a") is None

    asyncio.run(test())


def test_the_first_call_opens_the_file_and_starts_the_thread(tmp_path: Path) -> None:
    async def test() -> None:
        before = set(threading.enumerate())  # threads of other tests may end meanwhile
        async with closing(SqliteStore(tmp_path / "kept.db")) as store:
            assert list(tmp_path.iterdir()) == []
            assert set(threading.enumerate()) <= before
            await store.get("a")
            assert len(set(threading.enumerate()) - before) == 1

    run(test())
    for thread in threading.enumerate():
        if thread.name == "wharfinger-kept.db":
            thread.join(5)
            assert not thread.is_alive()


COUNTER = """
import asyncio, sys
from wharfinger.store.sqlite import SqliteStore

async def add_one(store):
    while True:
        old = await store.get("count")
        if await store.put("count", b"%d" % (int(old) + 1), instead_of=old):
            return

async def main(path, name):
    store = SqliteStore(path)
    for number in range(100):
        await store.put(f"{name}/{number:03}", b"x" * 100)
        await add_one(store)
    print("done", flush=True)
    await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_write_concurrently_and_lose_nothing_when_killed(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"

    async def prepare() -> None:
        async with closing(SqliteStore(path)) as store:
            await store.put("count", b"0")

    async def check() -> None:
        async with closing(SqliteStore(path)) as store:
            assert await store.get("count") == b"200"
            assert await store.usage("one/") == await store.usage("two/") == (100, 10_000)

    run(prepare())
    program = tmp_path / "writer.py"
    program.write_text(COUNTER)
    writers = [
        subprocess.Popen([sys.executable, str(program), str(path), name], stdout=subprocess.PIPE)
        for name in ("one", "two")
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"done\n"
    finally:
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.communicate()
    run(check())

"""A small source of every kind, with functions that change its data."""

from __future__ import annotations

import io
import sqlite3
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.sources.git_remote.git_host import GitHost
from tests.sources.git_repository.conftest import GitRepository
from tests.sources.http_api.conftest import ShopServer
from tests.sources.sql_database.conftest import SHOP, PostgresServer
from tests.sources.sql_database.mariadb_server import MariaDBServer
from tests.sources.systemd_journal.conftest import CAN_WRITE, WrittenJournal
from tests.sources.web_pages.site_server import SiteServer

__all__ = ["Case", "Everything"]

TIDES_CSV = "port,high\nHull,6.1\nGoole,5.2\n"


class Case(NamedTuple):
    """A source, and its resources that tests list, read, complete, find and change."""

    argument: str
    """The argument of `wharfinger serve`."""
    listed_uri: str
    """The URI of a listed resource."""
    read_uri: str
    """The URI of a resource to read."""
    expected_text: str
    """A part of the text of `read_uri`."""
    completion: tuple[str, str, str] | None = None
    """The beginning of a template, one of its variables, and a value to complete from its first character."""
    search_word: str = ""
    """A word that only this source contains."""
    found_uri: str = ""
    """The URI of the search result. If it is empty, the result is `read_uri`."""
    change: Callable[[], object] | None = None
    """Changes the content of `read_uri`."""


class Everything:
    """A source of every kind: files below one folder, databases, a bucket, and web servers."""

    def __init__(self, folder: Path, postgres: PostgresServer, mariadb: MariaDBServer, s3: Any, upstream: str) -> None:
        self.folder = folder
        self.upstream = upstream
        self._lock = threading.Lock()
        self._number = 0
        self._s3 = s3
        self._postgres = postgres
        (folder / "docs").mkdir()
        (folder / "docs" / "notes.md").write_text("# Notes\n\nsoundingline\n")
        self._work = GitRepository(folder / "code").init()
        self._work.commit("First lighthouse", hull__py="lamp = 'fresnel'\n")
        self._remote_work = GitRepository(folder / "far-code").init()
        self._remote_work.commit("First foghorn", horn__py="horn = 'diaphone'\n")
        self._host = GitHost(folder / "host")
        self._remote_url = self._host.add(self._remote_work)
        (folder / "deck" / "knots").mkdir(parents=True)
        (folder / "deck" / "knots" / "SKILL.md").write_text("---\nname: knots\ndescription: Tie.\n---\n\nmarlinspike\n")
        self._shop = sqlite3.connect(folder / "shop.db", isolation_level=None, check_same_thread=False)
        self._shop.executescript(SHOP)
        self._database = postgres.database(SHOP.replace("'Ada'", "'Postgrada'"))
        self._mariadb = mariadb
        self._schema = mariadb.database(SHOP.replace("'Ada'", "'Mariada'"))
        (folder / "logs").mkdir()
        (folder / "logs" / "app.log").write_text("2026-07-01T12:00:00Z INFO anchorwatch begins\n")
        s3.create_bucket(Bucket="bucket")
        self._put("README.md", "# Bucket\n\ncapstan\n")
        (folder / "data").mkdir()
        (folder / "data" / "tides.csv").write_text(TIDES_CSV)
        self._zip("springtide")
        self._tar("neaptide")
        self._journal = WrittenJournal(folder / "journal")
        if CAN_WRITE:
            self._journal.write("the bowsprit broke")
        self._append("said.txt", "halyard")
        self._api = ShopServer()
        self._site = SiteServer(folder / "web")
        self._site.put("docs/llms.txt", "# Site\n\n- [Bollards](bollards.html)\n")
        self._page("fairlead")

    @property
    def cases(self) -> Mapping[str, Case]:
        folder = self.folder
        return {
            "folder": Case(
                f"{folder}/docs",
                "file:///docs/notes.md",
                "file:///docs/notes.md",
                "soundingline",
                ("file:///docs/", "path", "notes.md"),
                "soundingline",
                change=lambda: self._append("docs/notes.md", "more"),
            ),
            "git": Case(
                f"git:{folder}/code",
                "git://code/tree/HEAD/hull.py",
                "git://code/tree/HEAD/hull.py",
                "fresnel",
                ("git://code/log/", "rev", "main"),
                "fresnel",
                change=lambda: self._work.commit("More light", hull__py=f"lamp = 'fresnel {self._next()}'\n"),
            ),
            "git elsewhere": Case(
                f"git:{self._remote_url}",
                "git://harbour/tree/HEAD/horn.py",
                "git://harbour/tree/HEAD/horn.py",
                "diaphone",
                ("git://harbour/log/", "rev", "main"),
                "diaphone",
                change=self._push,
            ),
            "skills": Case(
                f"skills:{folder}/deck",
                "skill://knots/SKILL.md",
                "skill://knots/SKILL.md",
                "marlinspike",
                ("skill://", "path", "knots/SKILL.md"),
                "marlinspike",
                change=lambda: self._append("deck/knots/SKILL.md", f"more {self._next()}"),
            ),
            "sqlite": Case(
                f"sqlite:///{folder}/shop.db",
                "sqlite://shop/customers",
                "sqlite://shop/customers/rows",
                "Goole",
                ("sqlite://shop/", "table", "customers"),
                change=lambda: self._shop.execute(f"INSERT INTO customers (name) VALUES ('Eve {self._next()}')"),
            ),
            "postgres": Case(
                f"pg=postgresql://reader@/{self._database}?host={self._postgres.folder}",
                "postgres://pg/public/customers",
                "postgres://pg/public/customers/rows",
                "Postgrada",
                None,
                "Postgrada",
                change=lambda: self._postgres.run(
                    f"INSERT INTO customers VALUES ({100 + self._next()}, 'Eve')", self._database
                ),
            ),
            "mariadb": Case(
                f"maria={self._mariadb.url(self._schema, password='', scheme='mariadb')}",
                "mariadb://maria/customers",
                "mariadb://maria/customers/rows",
                "Mariada",
                ("mariadb://maria/", "table", "customers"),
                "Mariada",
                change=lambda: self._mariadb.run(
                    f"INSERT INTO customers VALUES ({100 + self._next()}, 'Eve', '')", self._schema
                ),
            ),
            "log": Case(
                f"log:{folder}/logs/*.log",
                "log://logs/app.log",
                "log://logs/app.log",
                "anchorwatch",
                None,
                "anchorwatch",
                change=lambda: self._append("logs/app.log", f"2026-07-01T12:00:{self._next() % 60:02}Z INFO more"),
            ),
            "s3": Case(
                "s3://bucket/prefix",
                "s3://bucket/prefix/README.md",
                "s3://bucket/prefix/README.md",
                "capstan",
                ("s3://bucket/prefix/", "path", "README.md"),
                "capstan",
                change=lambda: self._put("README.md", f"# Bucket\n\ncapstan {self._next()}\n"),
            ),
            "table": Case(
                f"table:{folder}/data/*.csv",
                "table://data/tides.csv",
                "table://data/tides.csv",
                "high",
                None,
                change=lambda: self._append("data/tides.csv", f"Port {self._next()},4.4"),
            ),
            "system": Case("system:", "system:///load", "system:///load", "load"),
            "zip": Case(
                f"zip:{folder}/old.zip",
                "zip://old.zip/a/b.txt",
                "zip://old.zip/a/b.txt",
                "springtide",
                None,
                "springtide",
                change=lambda: self._zip(f"springtide {self._next()}"),
            ),
            "tar": Case(
                f"tar:{folder}/old.tar.gz",
                "tar://old.tar.gz/a/b.txt",
                "tar://old.tar.gz/a/b.txt",
                "neaptide",
                ("tar://old.tar.gz/", "path", "a/"),
                "neaptide",
                change=lambda: self._tar(f"neaptide {self._next()}"),
            ),
            "command": Case(
                f"said=command:cat {folder}/said.txt",
                "command://said",
                "command://said",
                "halyard",
                change=lambda: self._append("said.txt", f"more {self._next()}"),
            ),
            "openapi": Case(
                f"ropes=openapi:{self._api.url}/openapi.json",
                "api://ropes/orders",
                "api://ropes/orders/1",
                "rope 1",
                ("api://ropes/harbours/", "harbour", "hull"),
                "mariners",
                "api://ropes/notices?about=get",
                lambda: self._api.shop.orders[1].update(amount=100 + self._next()),
            ),
            "web": Case(
                f"web:{self._site.origin}/docs/",
                f"{self._site.origin}/docs/bollards.html",
                f"{self._site.origin}/docs/bollards.html",
                "fairlead",
                (f"{self._site.origin}/docs/", "path", "bollards.html"),
                "bollards",
                change=lambda: self._page(f"fairlead {self._next()}"),
            ),
            "upstream": Case(
                self.upstream,
                "file:///far/beacon.md",
                "file:///far/beacon.md",
                "beaconlight",
                ("file:///far/", "path", "beacon.md"),
                "beacon",  # only the names of an upstream are indexed, not its texts
                change=lambda: self._append("far/beacon.md", f"more {self._next()}"),
            ),
        } | ({"journal": self._journal_case()} if CAN_WRITE else {})

    def _journal_case(self) -> Case:
        return Case(
            f"journal:{self.folder}/journal",
            "journal://journal/nginx.service",
            "journal://journal/nginx.service",
            "bowsprit",
            ("journal://journal/", "log", "nginx.service"),
            "bowsprit",
            change=lambda: self._journal.write(f"more {self._next()}"),
        )

    @property
    def arguments(self) -> list[str]:
        return [case.argument for case in self.cases.values()]

    def _next(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def _append(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(line + "\n")

    def _page(self, text: str) -> None:
        self._site.put("docs/bollards.html", f"<main><p>{text}</p></main>")

    def _put(self, key: str, text: str) -> None:
        self._s3.put_object(Bucket="bucket", Key=f"prefix/{key}", Body=text.encode())

    def _zip(self, text: str) -> None:
        new = self.folder / "new.zip"
        with zipfile.ZipFile(new, "w") as archive:
            archive.writestr("a/b.txt", text)
        new.replace(self.folder / "old.zip")

    def _tar(self, text: str) -> None:
        new = self.folder / "new.tar.gz"
        with tarfile.open(new, "w:gz") as archive:
            member = tarfile.TarInfo("a/b.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        new.replace(self.folder / "old.tar.gz")

    def _push(self) -> None:
        self._remote_work.commit("Louder", horn__py=f"horn = 'diaphone {self._next()}'\n")
        self._remote_work.git("push", "-q", "origin", "main")

    def close(self) -> None:
        self._api.stop()
        self._shop.close()
        self._site.stop()
        self._host.close()

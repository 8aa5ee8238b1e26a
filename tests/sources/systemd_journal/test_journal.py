"""The journal: entries as journalctl has them, windows, secrets, a policy, following, and what can be wrong."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.sources.systemd_journal.conftest import BOOT, NOON, WrittenJournal
from wharfinger import Client, Server
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.document_search import search_documents
from wharfinger.source import SourceUnavailable, UnusableSource
from wharfinger.sources import journal
from wharfinger.sources.systemd_journal import Journal, journal_process, journal_windows
from wharfinger.sources.windows.window_budget import window_budget

Permit = Callable[..., AbstractContextManager[None]]
NGINX = "journal://journal/nginx.service"


def made(written: WrittenJournal, **options: Any) -> Journal:
    return journal(directory=written.folder, **options)


def text_of(source: Journal, uri: str) -> str:
    return str(source.read(uri).contents[0].text)


def messages(source: Journal, uri: str) -> list[str]:
    return [line.partition(": ")[2] for line in text_of(source, uri).splitlines()]


def link(source: Journal, uri: str, name: str) -> str:
    meta: Any = source.read(uri).contents[0].meta
    return str(meta.get(f"wharfinger/{name}", ""))


def notes(source: Journal, uri: str) -> str:
    return " ".join([str(content.text) for content in source.read(uri).contents[1:]])


# What is read


def test_the_entries_are_those_of_journalctl(written: WrittenJournal) -> None:
    for number in range(40):
        written.write(f"message {number}", PRIORITY=number % 8, _SYSTEMD_UNIT=f"{'ab'[number % 2]}@x.service")
    source = made(written)
    for unit in ("a@x.service", "b@x.service"):
        expected = written.read(f"--unit={unit}", "--output=cat").decode().splitlines()
        assert messages(source, f"journal://journal/{unit}") == expected
        worse = written.read(f"--unit={unit}", "--output=cat", "--priority=3").decode().splitlines()
        assert messages(source, f"journal://journal/{unit}?level=error") == worse
    assert messages(source, "journal://journal/all") == written.read("--output=cat").decode().splitlines()


def test_a_line_has_time_level_program_and_message(written: WrittenJournal) -> None:
    written.write("it sank", PRIORITY=2, at=NOON + 1.25, _PID=42)
    written.write("no level", PRIORITY="", _PID="", SYSLOG_IDENTIFIER="", _COMM="crane")
    assert text_of(made(written), NGINX) == (
        "2026-11-18T12:00:01.250Z CRITICAL nginx[42]: it sank\n2026-11-18T12:00:00.000Z crane: no level\n"
    )


@pytest.mark.parametrize("priority", ["012", "8", "-1", "٣"])
def test_a_level_that_syslog_does_not_have_is_left_out(written: WrittenJournal, priority: str) -> None:
    written.write("it sank", PRIORITY=priority, _PID="", SYSLOG_PID="7" * 11)
    assert text_of(made(written), NGINX) == "2026-11-18T12:00:00.000Z nginx: it sank\n"


def test_a_message_cannot_look_like_another_entry(written: WrittenJournal) -> None:
    written.write("first\n2026-11-18T12:00:00.000Z INFO sshd[1]: Accepted\x1b[31m\r\nlast", SYSLOG_IDENTIFIER="a\nb")
    assert text_of(made(written), NGINX) == (
        "2026-11-18T12:00:00.000Z INFO a b[7]: first\n"
        "    2026-11-18T12:00:00.000Z INFO sshd[1]: Accepted\\x1b[31m\r\n"
        "    last\n"
    )


def test_bytes_that_are_not_text_are_shown_as_numbers(written: WrittenJournal) -> None:
    written.write(b"\xff\xfe\0binary", "café ✓")
    first, second = text_of(made(written), NGINX).splitlines()
    assert first.endswith(r": \xff\xfe\x00binary") and second.endswith(": café ✓")


def test_an_entry_of_one_mebibyte_is_cut_and_its_fields_are_read_in_windows(written: WrittenJournal) -> None:
    long = "fathoms of water\n" * 62_000
    assert len(long) > 1 << 20
    written.write("before", long, "after", CODE_FILE="keel.c")
    source = made(written)
    text = text_of(source, NGINX)
    assert len(text) < 40_000
    assert text.splitlines()[0].endswith(": before") and text.splitlines()[-1].endswith(": after")
    at = text.index(" bytes more in this entry: ?entry=")
    position = text[at:].partition("entry=")[2].partition("]")[0]
    uri: str = f"{NGINX}?entry={position}&bytes=0-"
    pieces = []
    while uri:
        pieces.append(text_of(source, uri))
        uri = link(source, uri, "next")
    whole = "".join(pieces)
    assert "CODE_FILE=keel.c\n" in whole and whole.count("fathoms of water") == len(long[: 1 << 20].splitlines())
    assert "bytes more in this entry]" in whole


def test_a_field_at_the_bound_is_whole(written: WrittenJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    from wharfinger.sources.systemd_journal import export_format

    monkeypatch.setattr(export_format, "MAX_FIELD_BYTES", 1_000)
    for length, more in ((1_000, ""), (1_001, "[1 bytes more in this entry")):
        for message in ("x" * length, "\n" * 5 + "x" * (length - 5)):
            written.write(message)
            last = text_of(made(written), f"{NGINX}?tail=1")
            assert (more in last) if more else ("more in" not in last)


@pytest.mark.parametrize("budget", [1_000, 4_000, 20_000])
def test_a_window_keeps_to_the_budget_of_its_caller(written: WrittenJournal, budget: int) -> None:
    written.write(*["x" * 700] * 60, "y" * 50_000)
    source = made(written)
    for query in ("", "?tail=50", f"?since={NOON}", "?text=y"):
        with window_budget(budget):
            text = text_of(source, NGINX + query)
        assert 0 < len(text) <= budget, query


# Windows


def test_windows_lead_back_to_the_oldest_entry_and_forward_to_the_newest(written: WrittenJournal) -> None:
    written.write(*[f"entry {number:05} {'x' * 50}" for number in range(2_000)])
    source = made(written)
    expected = written.read("--output=cat").decode().splitlines()
    pieces, uri = [], NGINX
    while uri:
        pieces.insert(0, messages(source, uri))
        uri = link(source, uri, "previous")
    assert [one for piece in pieces for one in piece] == expected and len(pieces) > 3
    forward, uri = [], f"{NGINX}?since={NOON - 5}"
    while (found := messages(source, uri)) or not forward:
        forward += found
        uri = link(source, uri, "next")
    assert forward == expected
    assert "Nothing was written after this" in notes(source, uri)
    assert messages(source, link(source, f"{NGINX}?tail=3", "previous")) == expected[-6:-3]


@pytest.mark.parametrize("tail", [1, 2, 5])
def test_the_last_lines_are_those_of_whole_entries(written: WrittenJournal, tail: int) -> None:
    written.write("one", "two\nthree", "four", "five")
    expected = {1: ["five"], 2: ["four", "five"], 5: ["one", "two", "", "four", "five"]}[tail]
    assert messages(made(written), f"{NGINX}?tail={tail}") == expected


def test_times_select_from_since_until_before(written: WrittenJournal) -> None:
    for second in range(10):
        written.write(f"at {second}", at=NOON + second)
    source = made(written)
    assert messages(source, f"{NGINX}?since={NOON + 3}&until={NOON + 6}") == ["at 3", "at 4", "at 5"]
    assert messages(source, f"{NGINX}?until={NOON + 2}") == ["at 0", "at 1"]
    assert messages(source, f"{NGINX}?since=2026-11-18T12:00:08Z") == ["at 8", "at 9"]
    assert messages(source, f"{NGINX}?since={NOON + 3}&until={NOON + 6}&tail=1") == ["at 5"]
    earlier = link(source, f"{NGINX}?since={NOON + 3}&until={NOON + 6}&tail=2", "previous")
    assert messages(source, earlier) == ["at 3"]
    assert "No entry of nginx.service matched" in notes(source, f"{NGINX}?since={NOON + 90}")


def test_boots_are_selected(written: WrittenJournal) -> None:
    written.write("old", boot="b" * 32, at=NOON)
    written.write("new", at=NOON + 9)
    source = made(written)
    for boot, expected in (("0", "new"), ("-1", "old"), ("b" * 32, "old"), (BOOT, "new")):
        assert messages(source, f"{NGINX}?boot={boot}") == [expected]
    for boot in ("-5", "c" * 32):
        with pytest.raises(InvalidArgument, match="That boot is not in the journal: ask for boot=0"):
            source.read(f"{NGINX}?boot={boot}")


def test_a_text_is_found_beyond_the_first_window_and_only_so_far(
    written: WrittenJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.write("the Anna is in", *["filler " + "x" * 1_000] * 200)
    source = made(written)
    assert messages(source, f"{NGINX}?text=ANNA") == ["the Anna is in"]
    monkeypatch.setattr(journal_windows, "MAX_SCANNED_BYTES", 50_000)
    assert messages(source, f"{NGINX}?text=ANNA") == []
    uri = f"{NGINX}?text=ANNA"
    assert "Looked back to 2026-11-18T12:0" in notes(source, uri)
    while not messages(source, uri):
        uri = link(source, uri, "previous")
    assert messages(source, uri) == ["the Anna is in"]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("lines=1-9", "Of a journal, ask for tail=200"),
        ("unit=x", "This asked for unit"),
        ("tail=5&after=1", "Of a journal, ask for"),
        ("level=loud", "is not one of trace"),
        ("since=yesterday", "is not a time"),
        ("since=1h&until=2h", "is not before until"),
        ("boot=1", "boot= takes 0"),
        ("boot=--system", "boot= takes 0"),
        ("after=s=1", "after= takes a position"),
        ("before=--file=/etc/passwd", "before= takes a position"),
        ("entry=x", "entry= takes a position"),
        ("text=", "text= takes 1 to 200"),
        (f"text={'x' * 201}", "text= takes 1 to 200"),
    ],
)
def test_impossible_queries_are_refused(written: WrittenJournal, query: str, why: str) -> None:
    written.write("x")
    with pytest.raises(InvalidArgument, match=why):
        made(written).read(f"{NGINX}?{query}")


@pytest.mark.parametrize("unit", ["--file=x.service", "-x", "a b.service", "nginx*", "a/b", "x\n", "", "a" * 256, "ü"])
def test_a_name_that_is_not_of_a_unit_is_refused(written: WrittenJournal, unit: str) -> None:
    written.write("x")
    with pytest.raises(UnusableSource, match="is not the name of a unit"):
        made(written, unit=unit)


def test_hostile_names_in_the_journal_are_not_listed(written: WrittenJournal) -> None:
    written.write("x", _SYSTEMD_UNIT="--file=x.service")
    written.write("x", _SYSTEMD_UNIT="../../etc.service")
    written.write("x", _SYSTEMD_UNIT="a\\x2db@1:2.service")
    source = made(written)
    assert [one.uri for one in source.page(None, 9)[0]] == [
        "journal://journal",
        r"journal://journal/a%5Cx2db@1:2.service",
        "journal://journal/all",
    ]
    assert messages(source, r"journal://journal/a%5Cx2db@1:2.service") == ["x"]
    for path in ("--file=x.service", "..%2F..%2Fetc.service", "%00", "%ff", "none.service"):
        with pytest.raises(ResourceNotFound):
            source.read(f"journal://journal/{path}")


def test_one_unit_is_published_alone(written: WrittenJournal) -> None:
    written.write("seen")
    written.write("hidden", _SYSTEMD_UNIT="other.service")
    written.write("hidden", _SYSTEMD_UNIT="", _TRANSPORT="kernel")
    source = made(written, unit="nginx")
    assert [one.uri for one in source.page(None, 9)[0]] == ["journal://nginx", "journal://nginx/nginx.service"]
    assert messages(source, "journal://nginx/nginx.service") == ["seen"]
    for name in ("all", "kernel", "other.service"):
        with pytest.raises(ResourceNotFound):
            source.read(f"journal://nginx/{name}")
    assert [document.uri for document in source.documents(None, 9)[0]] == ["journal://nginx/nginx.service"]


def test_the_kernel_has_a_log(written: WrittenJournal) -> None:
    written.write("Linux version 6", _SYSTEMD_UNIT="", _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", _PID="")
    written.write("other")
    assert text_of(made(written), "journal://journal/kernel").endswith("INFO kernel: Linux version 6\n")


# Secrets


def test_secrets_are_left_out_also_those_that_begin_before_the_window(written: WrittenJournal) -> None:
    body = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" + str(number) * 12 for number in range(6)]
    written.write(
        "password=hunter2 was given", "-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----", "end"
    )
    source = made(written)
    cursor = link(source, f"{NGINX}?tail=6", "previous").partition("before=")[2].partition("&")[0]
    for query in ("", "?tail=4", "?tail=20", f"?since={NOON + 4}", f"?after={cursor}", f"?text={body[3][:30]}"):
        text = text_of(source, NGINX + query)
        assert "hunter2" not in text and "MIIEv" not in text, query
    assert "password=[redacted] was given" in text_of(source, NGINX)
    assert "hunter2" not in str(list(search_documents(source, "hunter2 password", 9)))
    assert "hunter2" in text_of(made(written, redact=False), NGINX)


def test_fields_are_shown_without_secrets(written: WrittenJournal) -> None:
    written.write("x" * 20_000, REQUEST="token=abcdef123456 x")
    source = made(written)
    position = text_of(source, NGINX).partition("?entry=")[2].partition("]")[0]
    assert "REQUEST=token=[redacted] x" in text_of(source, f"{NGINX}?entry={position}")


# A policy


def test_a_policy_shows_a_journal_as_one_without_the_hidden_units(
    written: WrittenJournal, tmp_path: Path, permit: Permit
) -> None:
    """Also in the log of all entries, in that of a slice, and for what systemd says about a hidden unit."""
    rest = WrittenJournal(tmp_path / "rest")

    def write(message: str, hidden: bool, **fields: str) -> None:
        written.write(message, at=NOON + len(message), **fields)
        if not hidden:
            rest.write(message, at=NOON + len(message), **fields)

    write("seen", False, _SYSTEMD_SLICE="system.slice")
    write("hiddenword", True, _SYSTEMD_UNIT="secret.service", _SYSTEMD_SLICE="system.slice")
    write("hiddenword starts", True, _SYSTEMD_UNIT="init.scope", UNIT="secret.service", _PID="1")
    write("hiddenword of a program", True, _SYSTEMD_UNIT="x.scope", OBJECT_SYSTEMD_UNIT="secret.service", _UID="0")
    write("not about a hidden one, only it says so", False, UNIT="secret.service")
    write("last", False, _SYSTEMD_UNIT="system.slice")
    answers = []
    with permit("journal://j/**", deny=["journal://j/secret.service", "journal://j/x.scope", "journal://j/init.scope"]):
        for place in (written, rest):
            source = journal(directory=place.folder, label="j")
            found = [encode(source.page(None, 100)), [one.uri for one in source.documents(None, 100)[0]]]
            found += [source.complete(source.template, "log", value, {}) for value in ("", "s")]
            for name in ("", "/all", "/nginx.service", "/system.slice", "/secret.service", "/all?text=hiddenword"):
                try:
                    found.append(text_of(source, "journal://j" + name))
                except ResourceNotFound as error:
                    found.append(repr(error))
            answers.append(found)
    assert answers[0] == answers[1]
    shown = str(answers[0])
    assert "hiddenword" not in shown.replace("text=hiddenword", "") and "not about a hidden one" in shown


# Following


def test_what_is_written_later_is_followed_across_files(written: WrittenJournal) -> None:
    written.write("one")
    source = made(written)
    following = link(source, NGINX, "next")
    assert messages(source, following) == []
    written.write("two")
    written.write("three", file="system@rotated.journal")
    assert messages(source, following) == ["two", "three"]
    later = link(source, following, "next")
    written.write("four")
    assert messages(source, later) == ["four"]


def test_an_empty_log_can_be_followed(written: WrittenJournal) -> None:
    written.write("other", _SYSTEMD_UNIT="other.service")
    source = made(written, unit="nginx")
    following = link(source, "journal://nginx/nginx.service", "next")
    assert "nginx.service has no entries" in notes(source, "journal://nginx/nginx.service")
    written.write("first", at=time.time() + 1)
    assert messages(source, following) == ["first"]


def test_a_position_whose_entry_was_vacuumed_is_an_error(written: WrittenJournal) -> None:
    written.write("old", file="old.journal")
    source = made(written)
    following = link(source, NGINX, "next")
    before = f"{NGINX}?before={following.partition('after=')[2]}"
    entry = f"{NGINX}?entry={following.partition('after=')[2]}"
    written.write("new", file="new.journal")
    (written.folder / "old.journal").unlink()
    for name, uri in (("after", following), ("before", before), ("entry", entry)):
        with pytest.raises(
            InvalidArgument, match=f"The entry that {name}= names is not in the journal: it was rotated"
        ):
            source.read(uri)
    with pytest.raises(InvalidArgument, match=r"or with since=2026-11-18T12:00:00Z"):
        source.read(following)


def test_a_position_is_valid_with_another_filter(written: WrittenJournal) -> None:
    written.write("one", PRIORITY=6)
    source = made(written)
    following = link(source, NGINX, "next")
    written.write("bad", PRIORITY=3)
    assert messages(source, following + "&level=error") == ["bad"]
    assert messages(source, following.replace("nginx.service", "all")) == ["bad"]


def test_a_watcher_of_a_level_is_notified_only_of_that_level(written: WrittenJournal) -> None:
    written.write("one")
    server = Server("harbour")
    server.include(journal(directory=written.folder, poll=0.2))

    async def work() -> None:
        async with Client(server, cache=False) as client, client.watch(f"{NGINX}?level=error") as changes:
            waiting = asyncio.ensure_future(anext(aiter(changes)))
            await asyncio.to_thread(written.write, "fine")
            done, _ = await asyncio.wait({waiting}, timeout=1.5)
            assert not done
            await asyncio.to_thread(written.write, "broken", PRIORITY=3)
            assert (await asyncio.wait_for(waiting, 20)).uri == f"{NGINX}?level=error"
            assert "broken" in (await client.read_resource(f"{NGINX}?level=error")).text

    asyncio.run(work())


def test_no_process_is_started_while_no_file_changes(written: WrittenJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    written.write("one")
    source = made(written)
    source._prepare()
    first = source._look(NGINX)
    monkeypatch.setattr(source, "_version", lambda *_: pytest.fail("the version was computed again"))
    source._prepare()
    assert source._look(NGINX) == first


def test_several_threads_read_at_once(written: WrittenJournal) -> None:
    written.write(*[f"{number}" for number in range(300)])
    source = made(written)
    expected = messages(source, NGINX)

    async def work() -> None:
        found = await asyncio.gather(*[asyncio.to_thread(messages, source, NGINX) for _ in range(20)])
        assert all(one == expected for one in found)

    asyncio.run(work())


# What can be wrong


def test_without_journalctl_the_error_says_so(written: WrittenJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f".:{written.folder}")
    with pytest.raises(UnusableSource, match="needs journalctl, which is part of systemd: none is in PATH"):
        made(written)


@pytest.mark.parametrize("there", [True, False])
def test_without_a_journal_the_error_names_the_place(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "none").mkdir()
    with pytest.raises(UnusableSource, match=r"There are no journal files in|There is no directory"):
        journal(directory=tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="changes to another account")
def test_an_account_without_permission_is_told_the_group(written: WrittenJournal) -> None:
    written.write("x")
    for folder in (written.folder, *written.folder.parents):
        if folder != Path("/") and folder.stat().st_uid == 0 and "pytest" in str(folder):
            folder.chmod(0o755)
    (written.folder / "system.journal").chmod(0o600)
    code = (
        "import os, sys; from wharfinger.sources import journal; from wharfinger.source import UnusableSource\n"
        "import wharfinger.sources.systemd_journal; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: journal(directory=sys.argv[1])\n"
        "except UnusableSource as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, written.folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "This account may not read the journal: add it to the group systemd-journal" in done.stdout


def program(folder: Path, script: str) -> Path:
    """Make a program `journalctl` in a folder."""
    folder.mkdir()
    path = folder / "journalctl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_run_that_takes_too_long_returns_what_it_found(
    written: WrittenJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.write("x")
    real = subprocess.run(["which", "journalctl"], capture_output=True, text=True, check=True).stdout.strip()
    program(tmp_path / "bin", f'{real} "$@"\ncase "$*" in *reverse*) sleep 60;; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(journal_process, "RUN_SECONDS", 0.5)
    monkeypatch.setattr(journal_windows, "RUN_SECONDS", 0.5)
    source = made(written)
    began = time.monotonic()
    assert messages(source, NGINX) == ["x"]
    assert "Ended after 0.5 s" in notes(source, NGINX)
    assert time.monotonic() - began < 20


def test_a_program_that_fails_later_makes_the_journal_unavailable(
    written: WrittenJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.write("x")
    monkeypatch.setenv("PATH", f"{program(tmp_path / 'bin', 'exit 0').parent}:{os.environ['PATH']}")
    source = made(written, unit="nginx")
    (tmp_path / "bin" / "journalctl").write_text("#!/bin/sh\necho 'Failed to open: Input/output error' >&2\nexit 1\n")
    with pytest.raises(SourceUnavailable, match="The journal cannot be read: Failed to open: Input/output error"):
        source.read("journal://nginx/nginx.service")


def test_a_damaged_journal_file_does_not_hide_the_others(written: WrittenJournal) -> None:
    written.write("healthy")
    (written.folder / "broken.journal").write_bytes(os.urandom(9_000))
    assert messages(made(written), NGINX) == ["healthy"]


def test_a_policy_with_roots_covers_the_whole_directory(written: WrittenJournal) -> None:
    written.write("x")
    source = made(written)
    assert source.root == str(written.folder)
    assert list(source.patterns_below(["anything"])) == ["journal://journal/**"]

"""The journal: the same entries as journalctl, windows, secrets, policies, following, and errors."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sources.conftest import Permit
from tests.sources.systemd_journal.conftest import BOOT, NOON, WrittenJournal
from wharfinger import Client, Server
from wharfinger.errors import InvalidArgument, Overloaded, ResourceNotFound
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.document_search import search_documents
from wharfinger.source import SourceUnavailable, UnusableSource
from wharfinger.sources import journal, systemd_journal
from wharfinger.sources.log_files.log_text import MAX_SHOWN_LINE_BYTES
from wharfinger.sources.systemd_journal import Journal, journal_process, journal_windows
from wharfinger.sources.systemd_journal.export_format import ExportedEntry
from wharfinger.sources.systemd_journal.journal_query import JournalQuery
from wharfinger.sources.windows.window_budget import window_budget

NGINX = "journal://journal/nginx.service"


def open_journal(journal_files: WrittenJournal, **options: Any) -> Journal:
    return journal(directory=journal_files.folder, **options)


def text_of(source: Journal, uri: str) -> str:
    return str(source.read(uri).contents[0].text)


def messages(source: Journal, uri: str) -> list[str]:
    return [line.partition(": ")[2] for line in text_of(source, uri).splitlines()]


def link(source: Journal, uri: str, name: str) -> str:
    meta: Any = source.read(uri).contents[0].meta
    return str(meta.get(f"wharfinger/{name}", ""))


def notes(source: Journal, uri: str) -> str:
    return " ".join([str(content.text) for content in source.read(uri).contents[1:]])


# Reads


def test_entries_equal_those_of_journalctl(journal_files: WrittenJournal) -> None:
    for number in range(40):
        journal_files.write(f"message {number}", PRIORITY=number % 8, _SYSTEMD_UNIT=f"{'ab'[number % 2]}@x.service")
    source = open_journal(journal_files)
    for unit in ("a@x.service", "b@x.service"):
        expected = journal_files.read(f"--unit={unit}", "--output=cat").decode().splitlines()
        assert messages(source, f"journal://journal/{unit}") == expected
        errors = journal_files.read(f"--unit={unit}", "--output=cat", "--priority=3").decode().splitlines()
        assert messages(source, f"journal://journal/{unit}?level=error") == errors
    assert messages(source, "journal://journal/all") == journal_files.read("--output=cat").decode().splitlines()


def test_a_line_has_time_level_program_and_message(journal_files: WrittenJournal) -> None:
    journal_files.write("it sank", PRIORITY=2, at=NOON + 1.25, _PID=42)
    journal_files.write("no level", PRIORITY="", _PID="", SYSLOG_IDENTIFIER="", _COMM="crane")
    assert text_of(open_journal(journal_files), NGINX) == (
        "2026-11-18T12:00:01.250Z CRITICAL nginx[42]: it sank\n2026-11-18T12:00:00.000Z crane: no level\n"
    )


@pytest.mark.parametrize("priority", ["012", "8", "-1", "٣"])
def test_an_invalid_priority_or_pid_is_omitted(journal_files: WrittenJournal, priority: str) -> None:
    journal_files.write("it sank", PRIORITY=priority, _PID="", SYSLOG_PID="7" * 11)
    assert text_of(open_journal(journal_files), NGINX) == "2026-11-18T12:00:00.000Z nginx: it sank\n"


def test_a_message_cannot_look_like_another_entry(journal_files: WrittenJournal) -> None:
    journal_files.write(
        "first\n2026-11-18T12:00:00.000Z INFO sshd[1]: Accepted\x1b[31m\r\nlast", SYSLOG_IDENTIFIER="a\nb"
    )
    assert text_of(open_journal(journal_files), NGINX) == (
        "2026-11-18T12:00:00.000Z INFO a b[7]: first\n"
        "    2026-11-18T12:00:00.000Z INFO sshd[1]: Accepted\\x1b[31m\r\n"
        "    last\n"
    )


def test_bytes_that_are_not_text_are_escaped(journal_files: WrittenJournal) -> None:
    journal_files.write(b"\xff\xfe\0binary", "café ✓")
    first, second = text_of(open_journal(journal_files), NGINX).splitlines()
    assert first.endswith(r": \xff\xfe\x00binary") and second.endswith(": café ✓")


def test_an_entry_of_one_mebibyte_is_cut_and_its_fields_are_read_in_windows(journal_files: WrittenJournal) -> None:
    long = "fathoms of water\n" * 62_000
    assert len(long) > 1 << 20
    journal_files.write("before", long, "after", CODE_FILE="keel.c")
    source = open_journal(journal_files)
    text = text_of(source, NGINX)
    assert len(text) < 40_000
    assert text.splitlines()[0].endswith(": before") and text.splitlines()[-1].endswith(": after")
    begin = text.index(" bytes more in this entry: ?entry=")
    position = text[begin:].partition("entry=")[2].partition("]")[0]
    uri: str = f"{NGINX}?entry={position}&bytes=0-"
    pieces = []
    while uri:
        pieces.append(text_of(source, uri))
        uri = link(source, uri, "next")
    whole = "".join(pieces)
    assert "CODE_FILE=keel.c\n" in whole and whole.count("fathoms of water") == len(long[: 1 << 20].splitlines())
    assert "bytes more in this entry]" in whole


def test_a_field_is_cut_only_above_the_limit(journal_files: WrittenJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    from wharfinger.sources.systemd_journal import export_format

    monkeypatch.setattr(export_format, "MAX_FIELD_BYTES", 1_000)
    for length, more in ((1_000, ""), (1_001, "[1 bytes more in this entry")):
        for message in ("x" * length, "\n" * 5 + "x" * (length - 5)):
            journal_files.write(message)
            last = text_of(open_journal(journal_files), f"{NGINX}?tail=1")
            assert (more in last) if more else ("more in" not in last)


@pytest.mark.parametrize("budget", [1_000, 4_000, 20_000])
def test_a_window_fits_into_the_budget_of_the_caller(journal_files: WrittenJournal, budget: int) -> None:
    journal_files.write(*["x" * 700] * 60, "y" * 50_000)
    source = open_journal(journal_files)
    for query in ("", "?tail=50", f"?since={NOON}", "?text=y"):
        with window_budget(budget):
            text = text_of(source, NGINX + query)
        assert 0 < len(text) <= budget, query


@pytest.mark.parametrize("budget", [1_000, 4_000, 20_000])
@pytest.mark.parametrize("piece", [b"\n", b"x\n", b"\x1b", b"\xff", "\u202e".encode(), "ä\r".encode()])
def test_a_message_that_is_longer_when_it_is_shown_fits_into_the_budget(
    journal_files: WrittenJournal, piece: bytes, budget: int
) -> None:
    """A bug: only the bytes of the message counted, not the spaces and escapes that are added to it."""
    journal_files.write(b"a" + piece * 20_000 + b"z", *[b"a" + piece * 60 + b"z"] * 100)
    source = open_journal(journal_files)
    for query in ("", "?tail=5000", f"?since={NOON}", "?text=a"):
        with window_budget(budget):
            text = text_of(source, NGINX + query)
        assert budget / 4 < len(text.encode()) <= budget, query


# Windows


def test_links_of_windows_lead_to_the_oldest_and_to_the_newest_entry(journal_files: WrittenJournal) -> None:
    journal_files.write(*[f"entry {number:05} {'x' * 50}" for number in range(2_000)])
    source = open_journal(journal_files)
    expected = journal_files.read("--output=cat").decode().splitlines()
    pieces, uri = [], NGINX
    while uri:
        pieces.insert(0, messages(source, uri))
        uri = link(source, uri, "previous")
    assert [message for piece in pieces for message in piece] == expected and len(pieces) > 3
    forward, uri = [], f"{NGINX}?since={NOON - 5}"
    while (found := messages(source, uri)) or not forward:
        forward += found
        uri = link(source, uri, "next")
    assert forward == expected
    assert "Nothing was written after this" in notes(source, uri)
    assert messages(source, link(source, f"{NGINX}?tail=3", "previous")) == expected[-6:-3]


@pytest.mark.parametrize("tail", [1, 2, 5])
def test_tail_never_splits_an_entry(journal_files: WrittenJournal, tail: int) -> None:
    journal_files.write("one", "two\nthree", "four", "five")
    expected = {1: ["five"], 2: ["four", "five"], 5: ["one", "two", "", "four", "five"]}[tail]
    assert messages(open_journal(journal_files), f"{NGINX}?tail={tail}") == expected


def test_since_is_inclusive_and_until_is_exclusive(journal_files: WrittenJournal) -> None:
    for second in range(10):
        journal_files.write(f"at {second}", at=NOON + second)
    source = open_journal(journal_files)
    assert messages(source, f"{NGINX}?since={NOON + 3}&until={NOON + 6}") == ["at 3", "at 4", "at 5"]
    assert messages(source, f"{NGINX}?until={NOON + 2}") == ["at 0", "at 1"]
    assert messages(source, f"{NGINX}?since=2026-11-18T12:00:08Z") == ["at 8", "at 9"]
    assert messages(source, f"{NGINX}?since={NOON + 3}&until={NOON + 6}&tail=1") == ["at 5"]
    earlier = link(source, f"{NGINX}?since={NOON + 3}&until={NOON + 6}&tail=2", "previous")
    assert messages(source, earlier) == ["at 3"]
    assert "No entry of nginx.service matched" in notes(source, f"{NGINX}?since={NOON + 90}")


def test_a_window_until_a_time_in_the_future_links_to_later_entries(journal_files: WrittenJournal) -> None:
    """A bug: such a window had no link, as if it ended in the past."""
    journal_files.write("first")
    source = open_journal(journal_files)
    later = link(source, f"{NGINX}?until={2 * NOON}", "next")
    assert "after=" in later
    journal_files.write("second")
    assert messages(source, later) == ["second"]
    assert link(source, f"{NGINX}?until={NOON + 1}", "next") == ""


def test_the_entries_of_one_boot_are_selected(journal_files: WrittenJournal) -> None:
    journal_files.write("old", boot="b" * 32, at=NOON)
    journal_files.write("new", at=NOON + 9)
    source = open_journal(journal_files)
    for boot, expected in (("0", "new"), ("-1", "old"), ("b" * 32, "old"), (BOOT, "new")):
        assert messages(source, f"{NGINX}?boot={boot}") == [expected]
    for boot in ("-5", "c" * 32):
        with pytest.raises(InvalidArgument, match="That boot is not in the journal: ask for boot=0"):
            source.read(f"{NGINX}?boot={boot}")


def test_a_text_search_scans_a_limited_part_and_links_to_the_rest(
    journal_files: WrittenJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_files.write("the Anna is in", *["filler " + "x" * 1_000] * 200)
    source = open_journal(journal_files)
    assert messages(source, f"{NGINX}?text=ANNA") == ["the Anna is in"]
    monkeypatch.setattr(journal_windows, "MAX_SCANNED_BYTES", 50_000)
    assert messages(source, f"{NGINX}?text=ANNA") == []
    uri = f"{NGINX}?text=ANNA"
    assert "Looked back to 2026-11-18T12:0" in notes(source, uri)
    while not messages(source, uri):
        uri = link(source, uri, "previous")
    assert messages(source, uri) == ["the Anna is in"]


@pytest.mark.parametrize("word", ["Straße", "STRASSE", "ÆRØ"])
def test_a_text_is_found_in_any_case(journal_files: WrittenJournal, word: str) -> None:
    """`ß` and `SS` are the same letters in different cases."""
    journal_files.write("nothing", "Straße auf Ærø")
    assert messages(open_journal(journal_files), f"{NGINX}?text={word}") == ["Straße auf Ærø"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("lines=1-9", "Of a journal, ask for tail=200"),
        ("unit=x", "This asked for unit"),
        ("tail=5&after=1", "Of a journal, ask for"),
        ("level=loud", "is not one of trace"),
        ("since=yesterday", "is not a time"),
        ("since=1h&until=2h", "is not before until"),
        ("boot=1", "boot= takes 0"),
        ("boot=--system", "boot= takes 0"),
        (f"boot={'0' * 32}", "boot= takes 0"),
        ("after=s=1", "after= takes a position"),
        ("before=--file=/etc/passwd", "before= takes a position"),
        ("entry=x", "entry= takes a position"),
        ("text=", "text= takes 1 to 200"),
        (f"text={'x' * 201}", "text= takes 1 to 200"),
    ],
)
def test_an_invalid_query_is_refused(journal_files: WrittenJournal, query: str, message: str) -> None:
    journal_files.write("x")
    with pytest.raises(InvalidArgument, match=message):
        open_journal(journal_files).read(f"{NGINX}?{query}")


@pytest.mark.parametrize("unit", ["--file=x.service", "-x", "a b.service", "nginx*", "a/b", "x\n", "", "a" * 256, "ü"])
def test_an_invalid_name_of_a_unit_is_refused(journal_files: WrittenJournal, unit: str) -> None:
    journal_files.write("x")
    with pytest.raises(UnusableSource, match="is not the name of a unit"):
        open_journal(journal_files, unit=unit)


def test_hostile_names_in_the_journal_are_not_listed(journal_files: WrittenJournal) -> None:
    journal_files.write("x", _SYSTEMD_UNIT="--file=x.service")
    journal_files.write("x", _SYSTEMD_UNIT="../../etc.service")
    journal_files.write("x", _SYSTEMD_UNIT="a\\x2db@1:2.service")
    source = open_journal(journal_files)
    assert [resource.uri for resource in source.page(None, 9)[0]] == [
        "journal://journal",
        r"journal://journal/a%5Cx2db@1:2.service",
        "journal://journal/all",
    ]
    assert messages(source, r"journal://journal/a%5Cx2db@1:2.service") == ["x"]
    for path in ("--file=x.service", "..%2F..%2Fetc.service", "%00", "%ff", "none.service"):
        with pytest.raises(ResourceNotFound):
            source.read(f"journal://journal/{path}")


def test_only_the_chosen_unit_is_published(journal_files: WrittenJournal) -> None:
    journal_files.write("seen")
    journal_files.write("hidden", _SYSTEMD_UNIT="other.service")
    journal_files.write("hidden", _SYSTEMD_UNIT="", _TRANSPORT="kernel")
    source = open_journal(journal_files, unit="nginx")
    assert [resource.uri for resource in source.page(None, 9)[0]] == [
        "journal://nginx",
        "journal://nginx/nginx.service",
    ]
    assert messages(source, "journal://nginx/nginx.service") == ["seen"]
    for name in ("all", "kernel", "other.service"):
        with pytest.raises(ResourceNotFound):
            source.read(f"journal://nginx/{name}")
    assert [document.uri for document in source.documents(None, 9)[0]] == ["journal://nginx/nginx.service"]


def test_messages_of_the_kernel_are_in_a_separate_log(journal_files: WrittenJournal) -> None:
    journal_files.write("Linux version 6", _SYSTEMD_UNIT="", _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", _PID="")
    journal_files.write("other")
    assert text_of(open_journal(journal_files), "journal://journal/kernel").endswith("INFO kernel: Linux version 6\n")


def test_names_of_units_that_programs_invent_displace_no_real_unit(
    journal_files: WrittenJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: 5,000 invented names, the first in the order of names, hid all logs."""
    monkeypatch.setattr(systemd_journal.source, "MAX_UNITS", 3)
    journal_files.write("real")
    for number in range(5):
        journal_files.write("invented", _SYSTEMD_UNIT="user@1000.service", UNIT=f"a{number}.service")
    source = open_journal(journal_files)
    names = [resource.name for resource in source.children(source.uri)[0]]
    assert names == ["a0.service", "all", "nginx.service", "user@1000.service"]
    assert messages(source, NGINX) == ["real"]


# Searches


def test_the_version_of_the_log_of_a_slice_changes_with_each_entry(journal_files: WrittenJournal) -> None:
    """A bug: the search index read the log again only after entries of systemd about the slice itself."""
    journal_files.write("about the slice", _SYSTEMD_UNIT="init.scope", UNIT="system.slice", _PID="1")
    journal_files.write("one", _SYSTEMD_SLICE="system.slice")
    source = open_journal(journal_files)

    def versions() -> dict[str, str]:
        return {document.title: document.version for document in source.documents(None, 9)[0]}

    before = versions()
    journal_files.write("two", _SYSTEMD_SLICE="system.slice")
    after = versions()
    assert messages(source, "journal://journal/system.slice") == ["about the slice", "one", "two"]
    assert after["system.slice"] != before["system.slice"] and after["init.scope"] == before["init.scope"] != "old"


def test_a_search_reads_a_limited_number_of_windows_even_if_they_have_little_text(
    journal_files: WrittenJournal,
) -> None:
    """A bug: of a log with long secrets it read windows until it had 256 KiB of text without them."""
    journal_files.write(*['password="' + "x" * 17_000] * 40)
    source = open_journal(journal_files)
    assert 10 <= "".join(source.text(NGINX)).count("password=") <= 20


# Secrets


def test_secrets_are_redacted_even_if_they_begin_before_the_window(journal_files: WrittenJournal) -> None:
    body = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" + str(number) * 12 for number in range(6)]
    journal_files.write(
        "password=hunter2 was given", "-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----", "end"
    )
    source = open_journal(journal_files)
    cursor = link(source, f"{NGINX}?tail=6", "previous").partition("before=")[2].partition("&")[0]
    for query in ("", "?tail=4", "?tail=20", f"?since={NOON + 4}", f"?after={cursor}", f"?text={body[3][:30]}"):
        text = text_of(source, NGINX + query)
        assert "hunter2" not in text and "MIIEv" not in text, query
    assert "password=[redacted] was given" in text_of(source, NGINX)
    assert "hunter2" not in str(list(search_documents(source, "hunter2 password", 9)))
    assert "hunter2" in text_of(open_journal(journal_files, redact=False), NGINX)


def test_no_part_of_a_secret_is_shown_where_a_long_message_is_cut(journal_files: WrittenJournal) -> None:
    """A bug: the password of a URL was shown if the message was cut before the `@`."""
    url = "postgres://ann:hunter2hunter2@db/boats"
    journal_files.write(
        *["x" * (MAX_SHOWN_LINE_BYTES - 1 - shown) + f" {url} {'y' * 100}" for shown in range(len(url))]
    )
    text = text_of(open_journal(journal_files), f"{NGINX}?tail=100")
    assert text.count(" bytes more in this entry: ?entry=") == len(url)
    assert "hunt" not in text


def test_secrets_in_fields_are_redacted(journal_files: WrittenJournal) -> None:
    journal_files.write("x" * 20_000, REQUEST="token=abcdef123456 x")
    source = open_journal(journal_files)
    position = text_of(source, NGINX).partition("?entry=")[2].partition("]")[0]
    assert "REQUEST=token=[redacted] x" in text_of(source, f"{NGINX}?entry={position}")


# Policies


def test_answers_equal_those_of_a_journal_without_the_hidden_units(
    journal_files: WrittenJournal, tmp_path: Path, permit: Permit
) -> None:
    """This also holds for the log of all entries, the log of a slice, and entries of systemd about a hidden unit."""
    visible = WrittenJournal(tmp_path / "visible")

    def write(message: str, hidden: bool, **fields: str) -> None:
        journal_files.write(message, at=NOON + len(message), **fields)
        if not hidden:
            visible.write(message, at=NOON + len(message), **fields)

    write("seen", False, _SYSTEMD_SLICE="system.slice")
    write("hiddenword", True, _SYSTEMD_UNIT="secret.service", _SYSTEMD_SLICE="system.slice")
    write("hiddenword starts", True, _SYSTEMD_UNIT="init.scope", UNIT="secret.service", _PID="1")
    write("hiddenword of a program", True, _SYSTEMD_UNIT="x.scope", OBJECT_SYSTEMD_UNIT="secret.service", _UID="0")
    write("not about a hidden one, only it says so", False, UNIT="secret.service")
    write("last", False, _SYSTEMD_UNIT="system.slice")
    answers = []
    with permit("journal://j/**", deny=["journal://j/secret.service", "journal://j/x.scope", "journal://j/init.scope"]):
        for files in (journal_files, visible):
            source = journal(directory=files.folder, label="j")
            found = [encode(source.page(None, 100)), [document.uri for document in source.documents(None, 100)[0]]]
            found += [source.complete(source.template, "log", value, {}) for value in ("", "s")]
            for name in ("", "/all", "/nginx.service", "/system.slice", "/secret.service", "/all?text=hiddenword"):
                try:
                    found.append(text_of(source, "journal://j" + name))
                except ResourceNotFound as error:
                    found.append(repr(error))
            answers.append(found)
    assert answers[0] == answers[1]
    text = str(answers[0])
    assert "hiddenword" not in text.replace("text=hiddenword", "") and "not about a hidden one" in text


def test_no_link_names_an_entry_that_may_not_be_read(journal_files: WrittenJournal, permit: Permit) -> None:
    """A bug: the position of the newest entry revealed when a hidden one was written."""
    journal_files.write("first", "second")
    source = open_journal(journal_files)
    log = "journal://journal/all"
    with permit("journal://journal/**", deny=["journal://journal/secret.service"]):
        links = [link(source, log, "next"), link(source, f"{log}?since={NOON}", "next")]
        journal_files.write("hidden", "hidden", _SYSTEMD_UNIT="secret.service")
        assert [link(source, log, "next"), link(source, f"{log}?since={NOON}", "next")] == links
        assert text_of(source, links[0]) == "" and link(source, links[0], "next") == links[0]
        journal_files.write("third")
        assert messages(source, links[0]) == ["third"]
        assert messages(source, link(source, f"{log}?tail=1", "previous")) == ["second"]


def test_hidden_entries_beyond_a_limit_do_not_end_a_log(
    journal_files: WrittenJournal, permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_files.write("first")
    journal_files.write(*["hidden " + "x" * 1_000] * 100, _SYSTEMD_UNIT="secret.service")
    journal_files.write("last")
    monkeypatch.setattr(journal_windows, "MAX_SCANNED_BYTES", 20_000)
    source = open_journal(journal_files)
    with permit("journal://journal/**", deny=["journal://journal/secret.service"]):
        for direction, query in (("previous", ""), ("next", f"?since={NOON}")):
            found: list[str] = []
            uri = f"journal://journal/all{query}"
            for _ in range(10):
                found += messages(source, uri)
                uri = link(source, uri, direction)
                if len(found) == 2:
                    break
            assert sorted(found) == ["first", "last"]


# Following


def test_new_entries_are_followed_across_files(journal_files: WrittenJournal) -> None:
    journal_files.write("one")
    source = open_journal(journal_files)
    following = link(source, NGINX, "next")
    assert messages(source, following) == []
    journal_files.write("two")
    journal_files.write("three", file="system@rotated.journal")
    assert messages(source, following) == ["two", "three"]
    later = link(source, following, "next")
    journal_files.write("four")
    assert messages(source, later) == ["four"]


def test_an_empty_log_can_be_followed(journal_files: WrittenJournal) -> None:
    journal_files.write("other", _SYSTEMD_UNIT="other.service")
    source = open_journal(journal_files, unit="nginx")
    following = link(source, "journal://nginx/nginx.service", "next")
    assert "nginx.service has no entries" in notes(source, "journal://nginx/nginx.service")
    journal_files.write("first", at=time.time() + 1)
    assert messages(source, following) == ["first"]


def test_a_position_whose_entry_was_removed_is_refused(journal_files: WrittenJournal) -> None:
    journal_files.write("old", file="old.journal")
    source = open_journal(journal_files)
    following = link(source, NGINX, "next")
    before = f"{NGINX}?before={following.partition('after=')[2]}"
    entry = f"{NGINX}?entry={following.partition('after=')[2]}"
    journal_files.write("new", file="new.journal")
    (journal_files.folder / "old.journal").unlink()
    for name, uri in (("after", following), ("before", before), ("entry", entry)):
        with pytest.raises(
            InvalidArgument, match=f"The entry that {name}= names is not in the journal: it was rotated"
        ):
            source.read(uri)
    with pytest.raises(InvalidArgument, match=r"or with since=2026-11-18T12:00:00Z"):
        source.read(following)


def test_a_position_is_valid_with_another_filter(journal_files: WrittenJournal) -> None:
    journal_files.write("one", PRIORITY=6)
    source = open_journal(journal_files)
    following = link(source, NGINX, "next")
    journal_files.write("bad", PRIORITY=3)
    assert messages(source, following + "&level=error") == ["bad"]
    assert messages(source, following.replace("nginx.service", "all")) == ["bad"]


def test_a_watcher_of_a_level_is_notified_only_of_that_level(journal_files: WrittenJournal) -> None:
    journal_files.write("one")
    server = Server("harbour")
    server.include(journal(directory=journal_files.folder, poll=0.2))

    async def main() -> None:
        async with Client(server, cache=False) as client, client.watch(f"{NGINX}?level=error") as changes:
            notification = asyncio.ensure_future(anext(aiter(changes)))
            await asyncio.to_thread(journal_files.write, "fine")
            done, _ = await asyncio.wait({notification}, timeout=1.5)
            assert not done
            await asyncio.to_thread(journal_files.write, "broken", PRIORITY=3)
            assert (await asyncio.wait_for(notification, 40)).uri == f"{NGINX}?level=error"
            assert "broken" in (await client.read_resource(f"{NGINX}?level=error")).text

    asyncio.run(main())


def test_no_process_is_started_while_no_file_changes(
    journal_files: WrittenJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_files.write("one")
    source = open_journal(journal_files)
    source._prepare()
    first = source._look(NGINX)
    monkeypatch.setattr(source, "_version", lambda *_: pytest.fail("the version was computed again"))
    source._prepare()
    assert source._look(NGINX) == first


def test_several_threads_read_at_once(journal_files: WrittenJournal) -> None:
    journal_files.write(*[f"{number}" for number in range(300)])
    source = open_journal(journal_files)
    expected = messages(source, NGINX)

    async def main() -> None:
        results = await asyncio.gather(*[asyncio.to_thread(messages, source, NGINX) for _ in range(20)])
        assert all(result == expected for result in results)

    asyncio.run(main())


# Errors


def test_a_missing_journalctl_is_reported(journal_files: WrittenJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f".:{journal_files.folder}")
    with pytest.raises(UnusableSource, match="needs journalctl, which is part of systemd: it is not in PATH"):
        open_journal(journal_files)


@pytest.mark.parametrize("exists", [True, False])
def test_a_directory_without_a_journal_is_refused(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "none").mkdir()
    with pytest.raises(UnusableSource, match=r"There are no journal files in|There is no directory"):
        journal(directory=tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="changes to another account")
def test_the_error_for_missing_permission_names_the_group(journal_files: WrittenJournal) -> None:
    journal_files.write("x")
    for folder in (journal_files.folder, *journal_files.folder.parents):
        if folder != Path("/") and folder.stat().st_uid == 0 and "pytest" in str(folder):
            folder.chmod(0o755)
    (journal_files.folder / "system.journal").chmod(0o600)
    code = (
        "import os, sys; from wharfinger.sources import journal; from wharfinger.source import UnusableSource\n"
        "import wharfinger.sources.systemd_journal; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: journal(directory=sys.argv[1])\n"
        "except UnusableSource as error: print(error)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, journal_files.folder], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 0, process.stderr
    assert "This account may not read the journal: add it to the group systemd-journal" in process.stdout


def write_journalctl(folder: Path, script: str) -> Path:
    """Write an executable `journalctl` into a new folder, and return its path."""
    folder.mkdir()
    path = folder / "journalctl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_read_that_exceeds_the_time_limit_returns_the_entries_so_far(
    journal_files: WrittenJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_files.write("x")
    journalctl = subprocess.run(["which", "journalctl"], capture_output=True, text=True, check=True).stdout.strip()
    write_journalctl(tmp_path / "bin", f'{journalctl} "$@"\ncase "$*" in *reverse*) sleep 60;; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(journal_process, "RUN_SECONDS", 2)
    monkeypatch.setattr(journal_windows, "RUN_SECONDS", 2)
    source = open_journal(journal_files)
    began = time.monotonic()
    assert messages(source, NGINX) == ["x"]
    assert "Ended after 2 s" in notes(source, NGINX)
    assert time.monotonic() - began < 40


def test_an_entry_that_is_not_found_in_time_is_not_reported_as_removed(
    journal_files: WrittenJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_files.write("x")
    position = link(open_journal(journal_files), NGINX, "next").partition("after=")[2]
    journalctl = subprocess.run(["which", "journalctl"], capture_output=True, text=True, check=True).stdout.strip()
    write_journalctl(tmp_path / "bin", f'case "$*" in *cursor*) exec sleep 60;; esac\nexec {journalctl} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    source = open_journal(journal_files, unit="nginx")
    monkeypatch.setattr(journal_process, "RUN_SECONDS", 0.5)
    with pytest.raises(Overloaded, match=r"Reading the journal took longer than 0\.5 s: try again later\."):
        source.read(f"journal://nginx/nginx.service?entry={position}")


def test_a_list_of_logs_that_is_not_complete_in_time_is_not_used(
    journal_files: WrittenJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the logs looked as if they did not exist."""
    journal_files.write("x")
    journalctl = subprocess.run(["which", "journalctl"], capture_output=True, text=True, check=True).stdout.strip()
    program = write_journalctl(
        tmp_path / "bin", f'case "$*" in *--field*) exec sleep 60;; esac\nexec {journalctl} "$@"'
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    source = open_journal(journal_files)
    monkeypatch.setattr(journal_process, "RUN_SECONDS", 0.5)
    slow = program.read_text()
    for read in (lambda: source.page(None, 9), lambda: source.read(NGINX)):
        with pytest.raises(Overloaded, match=r"Reading the journal took longer than 0\.5 s: try again later\."):
            read()
    program.write_text(f'#!/bin/sh\nexec {journalctl} "$@"\n')
    monkeypatch.setattr(journal_process, "RUN_SECONDS", 10.0)
    listed = source.page(None, 9)
    program.write_text(slow)
    monkeypatch.setattr(journal_process, "RUN_SECONDS", 0.5)
    journal_files.write("y", _SYSTEMD_UNIT="other.service")
    assert source.page(None, 9) == listed


def test_a_window_that_is_full_when_the_time_ends_leaves_out_no_entry(
    journal_files: WrittenJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the window before it began one entry too early."""
    journal_files.write("a", "b", "c")
    source = open_journal(journal_files)
    monkeypatch.setattr(journal_process, "RUN_SECONDS", 2)

    def slow_check(entry: ExportedEntry) -> bool:
        if entry.text("MESSAGE") == "c":
            time.sleep(2.5)
        return True

    selection = source._reader.select("nginx.service", JournalQuery(tail=1), slow_check)
    assert selection.lines[0].endswith(b" c\n") and selection.before == selection.cursors[0]


def test_nothing_before_the_oldest_entry_does_not_mean_that_a_log_is_empty(journal_files: WrittenJournal) -> None:
    """A bug: the remark said that the log has no entries."""
    journal_files.write("x")
    source = open_journal(journal_files)
    position = link(source, NGINX, "next").partition("after=")[2]
    assert "Nothing was written before this" in notes(source, f"{NGINX}?before={position}")


def test_a_failure_of_journalctl_makes_the_journal_unavailable(
    journal_files: WrittenJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_files.write("x")
    monkeypatch.setenv("PATH", f"{write_journalctl(tmp_path / 'bin', 'exit 0').parent}:{os.environ['PATH']}")
    source = open_journal(journal_files, unit="nginx")
    (tmp_path / "bin" / "journalctl").write_text("#!/bin/sh\necho 'Failed to open: Input/output error' >&2\nexit 1\n")
    with pytest.raises(SourceUnavailable, match="The journal cannot be read: Failed to open: Input/output error"):
        source.read("journal://nginx/nginx.service")


def test_the_journal_is_unavailable_while_journalctl_cannot_be_started(
    journal_files: WrittenJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: a search took the error, such as that of too many processes, for a log without text."""
    journal_files.write("x")
    program = write_journalctl(tmp_path / "bin", "exit 0")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    source = open_journal(journal_files, unit="nginx")
    program.unlink()
    with pytest.raises(SourceUnavailable, match=r"journalctl cannot be started: No such file or directory\."):
        next(iter(source.text("journal://nginx/nginx.service")))


def test_a_file_that_is_missing_when_its_size_is_read_does_not_hide_the_others(journal_files: WrittenJournal) -> None:
    """A bug: the list of files ended there, while systemd removes old ones. A dangling link is such a file for good."""
    journal_files.write("a")
    for name in ("0.journal", "z.journal"):
        (journal_files.folder / name).symlink_to("nowhere")
    (journal_files.folder / "machine").mkdir()
    journal_files.write("b", file="machine/system.journal")
    paths = [path for path, *_ in open_journal(journal_files)._files()]
    assert paths == [str(journal_files.folder / name) for name in ("machine/system.journal", "system.journal")]


def test_a_damaged_journal_file_does_not_hide_the_others(journal_files: WrittenJournal) -> None:
    journal_files.write("healthy")
    (journal_files.folder / "broken.journal").write_bytes(os.urandom(9_000))
    assert messages(open_journal(journal_files), NGINX) == ["healthy"]


def test_a_rule_about_any_path_below_the_root_covers_the_whole_journal(journal_files: WrittenJournal) -> None:
    journal_files.write("x")
    source = open_journal(journal_files)
    assert source.root == str(journal_files.folder)
    assert list(source.patterns_below(["anything"])) == ["journal://journal/**"]

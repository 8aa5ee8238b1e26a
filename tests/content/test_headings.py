"""The heading or first comment that describes a file is found in linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content.headings import _READERS, HEAD_BYTES, MAX_HEADING_CHARACTERS, has_heading, heading_of

MARKDOWN, REST, HTML = "text/markdown", "text/x-rst", "text/html"
PYTHON, SCRIPT, SHELL = "text/x-python", "text/javascript", "text/x-shellscript"


@pytest.mark.parametrize(
    ("mime_type", "text", "heading"),
    [
        (MARKDOWN, "# Tides\n\nText", "Tides"),
        (MARKDOWN, "\ufeff# Tides #\r\n", "Tides"),
        (MARKDOWN, "text\n\n## Of the **second** _rank_ ##\n", "Of the second rank"),
        (MARKDOWN, "Tides\n=====\n", "Tides"),
        (MARKDOWN, "Tides\n---\n", "Tides"),
        (MARKDOWN, "# [Tides](https://example.test/a) and `code` &amp; more\n", "Tides and code & more"),
        (MARKDOWN, "# ![badge](x.svg)\n\n# Tides ![badge][b]\n", "Tides"),
        (MARKDOWN, '<p align="center"><img src="x"></p>\n<h1 align="center">Tides</h1>\n', "Tides"),
        (MARKDOWN, "```sh\n# a comment\n```\n# Tides\n", "Tides"),
        (MARKDOWN, "---\ntitle: Tides\n---\n# Other\n", "Tides"),
        (MARKDOWN, '---\ntitle: Tides\ndescription: "When they turn"\n---\n# Other\n', "When they turn"),
        (MARKDOWN, "---\nlayout: page\n---\n\n# Tides\n", "Tides"),
        (MARKDOWN, "#hashtag\n\nwords\n", ""),
        (MARKDOWN, "Only words.\n", ""),
        (MARKDOWN, "# \n---\n# ***\n", ""),
        (MARKDOWN, "# snake_case stays\n", "snake_case stays"),
        (REST, "=====\nTides\n=====\n", "Tides"),
        (
            REST,
            ".. image:: x.png\n\nTides of :ref:`the sea <sea>`\n-----------------------------\n",
            "Tides of the sea ",
        ),
        (REST, ".. _tides:\n\nTides\n~~~~~\n", "Tides"),
        (REST, "no title\n\n- a\n- b\n", ""),
        (HTML, "<!doctype html><html><head><title lang=en>\n  Tides &mdash; home </title>", "Tides \u2014 home"),
        (HTML, "<body><h2 class=x>Tides</h2>", "Tides"),
        (HTML, "<body><header>x</header>", ""),
        ("text/asciidoc", ":toc:\n= Tides\n", "Tides"),
        ("text/org", "#+TITLE: Tides\n* First\n", "Tides"),
        ("text/x-tex", "% comment\n\\title{Tides}\n", "Tides"),
        (PYTHON, '"""Guides ships.\n\nMore."""\n', "Guides ships."),
        (PYTHON, "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n\nr'''\nGuides ships.\n'''\n", "Guides ships."),
        (PYTHON, "'Guides ships.'\nimport os\n", "Guides ships."),
        (PYTHON, "import os\n\ndef f():\n    '''Not the module's.'''\n", ""),
        (PYTHON, "x = '''no'''\n", ""),
        (SCRIPT, "// Guides ships.\nexport {}\n", "Guides ships."),
        (SCRIPT, "/**\n * Guides ships.\n */\n", "Guides ships."),
        (SCRIPT, "/* eslint-disable */\n'use strict';\n// Guides ships.\n", "Guides ships."),
        (SCRIPT, "/*\n * Copyright 2020 Mary\n * Licensed to all.\n */\n\n/* Guides ships. */\n", "Guides ships."),
        (SCRIPT, "const a = 1; // not first\n// nor this\n", ""),
        ("text/x-rust", "//! Guides ships.\n", "Guides ships."),
        (
            "text/x-go",
            "//go:build linux\n\n// Package pilot guides ships.\npackage pilot\n",
            "Package pilot guides ships.",
        ),
        ("text/x-php", "<?php\n/**\n * Guides ships.\n */\n", "Guides ships."),
        (SHELL, "#!/bin/sh\n# Guides ships.\nset -e\n", "Guides ships."),
        (SHELL, "#!/bin/sh\nset -e\n# later\n", ""),
        (SHELL, "# SPDX-License-Identifier: MIT\n#\n\n# Guides ships.\n", "Guides ships."),
        ("application/yaml", "# yaml-language-server: $schema=x\n# Guides ships.\na: 1\n", "Guides ships."),
        ("application/sql", "-- Ships and their guides.\nCREATE TABLE a (b);\n", "Ships and their guides."),
        ("text/x-lisp", ";;; Guides ships.\n", "Guides ships."),
        ("text/x-erlang", "%% Guides ships.\n", "Guides ships."),
        ("text/plain", "# no heading\n", ""),
        ("text/csv", "# a,b\n", ""),
        (MARKDOWN, "", ""),
    ],
)
def test_a_heading_is_found(mime_type: str, text: str, heading: str) -> None:
    assert heading_of(mime_type, text.encode()) == heading.strip()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_a_heading_is_found_in_every_encoding(encoding: str) -> None:
    assert (
        heading_of(MARKDOWN, "# H\u00f6hen der Gezeiten\n\nText und mehr Text.\n".encode(encoding))
        == "H\u00f6hen der Gezeiten"
    )


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0# a", b"# a\0b", b"%PDF-1.4\n\xff\xfe\0# a"])
def test_binary_data_has_no_headings(data: bytes) -> None:
    assert heading_of(MARKDOWN, data) == ""


def test_a_heading_is_short_and_printable() -> None:
    assert heading_of(MARKDOWN, b"# " + b"a" * 500) == "a" * MAX_HEADING_CHARACTERS + "\u2026"
    assert heading_of(MARKDOWN, b"# a" + b"a" * (MAX_HEADING_CHARACTERS - 1)) == "a" * MAX_HEADING_CHARACTERS
    assert heading_of(MARKDOWN, "# red\x1b[31m \u202e text\n".encode()) == "red?[31m ? text"


def test_only_the_first_bytes_are_examined() -> None:
    fill = b"word " * ((HEAD_BYTES - 4) // 5)
    assert heading_of(MARKDOWN, fill + b"\n# Late\n# Later") == ""
    assert heading_of(MARKDOWN, b"# Early\n" + fill * 2) == "Early"
    assert heading_of(MARKDOWN, b"\n" * 79 + b"# Last line\n") == "Last line"
    assert heading_of(MARKDOWN, b"\n" * 80 + b"# One too many\n") == ""


@given(st.sampled_from(sorted(_READERS)), st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_accepted(mime_type: str, data: bytes) -> None:
    heading = heading_of(mime_type, data)
    assert len(heading) <= MAX_HEADING_CHARACTERS + 1 and heading.isprintable() and heading == heading.strip()


@pytest.mark.parametrize(
    "piece", ["[", "![", "[](", "<h1 ", "<", "`", "_", "*", ":a:`", "<title ", "&", "(", "# [", '"""']
)
def test_hostile_text_takes_bounded_time(piece: str) -> None:
    start = time.process_time()
    for mime_type in _READERS:
        heading_of(mime_type, (piece * HEAD_BYTES).encode())
        heading_of(mime_type, ("# " + piece * HEAD_BYTES).encode())
        heading_of(mime_type, (f"{piece}\n" * HEAD_BYTES).encode())
    assert time.process_time() - start < 5


def test_types_without_headings_are_known_without_the_content() -> None:
    assert has_heading(MARKDOWN)
    assert not has_heading("text/csv")
    assert not has_heading("image/png")

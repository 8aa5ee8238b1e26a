"""A terminal that is paused or closed never stops the server that prints to it."""

from __future__ import annotations

import sys
import threading

import pytest

from wharfinger.cli.render import printer as printer_module
from wharfinger.cli.render.printer import WAITING_LINES, Printer


class PausedStdout:
    """A stdout that blocks until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.text = ""

    def write(self, text: str) -> None:
        """Block like a terminal after Ctrl-S."""
        self.released.wait()
        self.text += text

    def flush(self) -> None:
        """Do nothing."""


def test_lines_are_dropped_while_the_terminal_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = PausedStdout()
    monkeypatch.setattr(sys, "stdout", stdout)
    printer = Printer()
    for number in range(WAITING_LINES * 2):
        printer.print(str(number))
    stdout.released.set()
    while not printer.lines.empty():
        threading.Event().wait(0.001)
    printer.print("last")
    printer.close()
    assert stdout.text.startswith("0\n")
    assert stdout.text.endswith("last\n")
    assert "lines dropped)\n" in stdout.text


def test_the_waiting_lines_are_printed_at_the_end_even_if_no_more_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: nothing more was printed if `close` found the queue full."""
    stdout = PausedStdout()
    monkeypatch.setattr(sys, "stdout", stdout)
    printer = Printer()
    number = 0
    printer.print("the line that is being written")
    while not printer.lines.empty():
        threading.Event().wait(0.001)
    while not printer.lines.full():
        printer.print(str(number := number + 1))
    monkeypatch.setattr(printer_module, "CLOSE_SECONDS", 40.0)
    threading.Timer(0.05, stdout.released.set).start()
    printer.close()
    assert not printer.thread.is_alive()
    assert stdout.text.endswith(f"{number}\n")


def test_a_closed_terminal_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class ClosedStdout(PausedStdout):
        """A closed stdout."""

        def write(self, text: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", ClosedStdout())
    printer = Printer()
    printer.print("a")
    printer.print("b")
    printer.close()
    assert not printer.thread.is_alive()

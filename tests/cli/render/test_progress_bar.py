"""The line that shows the progress of a call."""

from __future__ import annotations

import time

import pytest

from wharfinger.cli.options import Verbosity
from wharfinger.cli.render.progress_bar import ProgressBar


def test_a_message_of_megabytes_is_shown_in_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug: the whole message was escaped, which took seconds for each report of a server."""
    verbosity = Verbosity()
    verbosity.level = 1
    bar = ProgressBar(verbosity)
    started = time.thread_time()
    bar.progress(1, 2, "é" * 4_000_000)
    assert time.thread_time() - started < 0.2
    assert capsys.readouterr().err == f"1/2 {'é' * 1000}\n"

"""The example source in `examples/` keeps the contract."""

from __future__ import annotations

import importlib.util
import mailbox
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from wharfinger.testing import SourceContract

FILE = ROOT / "examples" / "code" / "maildir.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("maildir", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def post(box: mailbox.Maildir, subject: str) -> str:
    message = mailbox.MaildirMessage(f"Subject: {subject}\nFrom: harbour@example.test\n\nWater at the quay: 3.1 m.\n")
    return box.add(message)


class TestMail(SourceContract):
    missing = "mail://inbox/none"

    @pytest.fixture
    def source(self, tmp_path: Path) -> Any:
        self.box = mailbox.Maildir(tmp_path / "inbox")
        self.keys = [post(self.box, f"Tide {number}") for number in range(9)]
        return load().Mail(tmp_path / "inbox")

    def change(self, source: Any) -> str | None:
        message: Any = self.box[self.keys[3]]
        (message.remove_flag if "F" in message.get_flags() else message.add_flag)("F")
        self.box[self.keys[3]] = message
        return f"mail://inbox/{self.keys[3]}"

    def add(self, source: Any) -> str | None:
        return f"mail://inbox/{post(self.box, 'A new tide')}"


def test_the_example_is_short() -> None:
    assert len(FILE.read_text().splitlines()) <= 60

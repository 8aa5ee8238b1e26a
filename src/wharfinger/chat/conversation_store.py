"""Stores conversations in files that only their owner may read, at most 100 of at most 16 MiB."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

import msgspec

from wharfinger.chat.conversation import Conversation
from wharfinger.errors import StoreUnusable
from wharfinger.private_files import home_folder, is_private, replace_privately

__all__ = ["ConversationStore", "state_folder"]

MAX_CONVERSATIONS = 100
"""Maximum number of conversations that are kept; the oldest are deleted."""
MAX_CONVERSATION_BYTES = 16 * 1024 * 1024
"""Maximum size of a conversation; its oldest questions are dropped to fit."""


class ConversationStore:
    """The conversations of one person, in one folder, each in a file of its own."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._file: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder with the files.

        Raises:
            StoreUnusable: it is in the home folder, and this user has none.
        """
        return self._folder or state_folder() / "chat"

    def load_last(self) -> Conversation | None:
        """Return the last saved conversation, or None if nothing has been saved. The next `save` replaces its file.

        Raises:
            StoreUnusable: it cannot be read, or others may enter the folder.
        """
        files = self._files()
        if not files:
            return None
        self._check_private()
        try:
            with files[-1].open("rb") as file:
                data = file.read(MAX_CONVERSATION_BYTES + 1)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            if len(data) > MAX_CONVERSATION_BYTES:
                raise ValueError(f"it has more than {MAX_CONVERSATION_BYTES} bytes")
            conversation = msgspec.json.decode(data, type=Conversation)
        except (ValueError, RecursionError) as error:  # the errors of msgspec are ValueErrors
            raise StoreUnusable(
                f"The last conversation, {files[-1]}, cannot be read: {error}. Delete the file, or start without -c."
            ) from None
        self._file = files[-1]
        conversation.repair()
        return conversation

    def save(self, conversation: Conversation) -> None:
        """Write the conversation, and delete the oldest ones above the limit.

        Raises:
            StoreUnusable: the folder or the file cannot be written, others may enter the folder, or one question is
                larger than the limit.
        """
        data = msgspec.json.encode(conversation)
        excess = len(data) - MAX_CONVERSATION_BYTES
        if excess > 0:
            while excess > 0:
                dropped = conversation.drop_oldest()
                if not dropped:
                    raise StoreUnusable(
                        f"The conversation is not saved: one question has more than {MAX_CONVERSATION_BYTES} bytes."
                    )
                excess -= len(msgspec.json.encode(dropped)) - 1  # without its brackets, but with a comma
            data = msgspec.json.encode(conversation)
        if self._file is None:
            self._file = self.folder / f"{time.time_ns()}-{secrets.token_hex(4)}.json"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_private()
            replace_privately(self._file, data)
        except OSError as error:
            raise self._unusable(error) from None
        for old in self._files()[:-MAX_CONVERSATIONS]:
            with contextlib.suppress(OSError):
                old.unlink()

    def forget_file(self) -> None:
        """Save to a new file from now on."""
        self._file = None

    def _files(self) -> list[Path]:
        """Return the files of conversations in the order in which they were saved."""
        dated_names: list[tuple[int, str]] = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".json"):
                        with contextlib.suppress(FileNotFoundError):  # another chat has just deleted it
                            dated_names.append((entry.stat().st_mtime_ns, entry.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from None
        return [self.folder / name for _, name in sorted(dated_names)]

    def _check_private(self) -> None:
        """Raise StoreUnusable if others may enter the folder: they could read conversations, or replace them."""
        if not is_private(self.folder):
            raise StoreUnusable(
                f"Conversations are not stored in {self.folder}, because others may enter it."
                f" Run: chmod 700 {self.folder}"
            )

    def _unusable(self, error: OSError) -> StoreUnusable:
        return StoreUnusable(f"Conversations cannot be stored in {self.folder}: {error.strerror or error}.")


def state_folder() -> Path:
    """Return the folder for the state of this program (XDG Base Directory).

    Raises:
        StoreUnusable: this user has no home folder.
    """
    state_home = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(state_home) if os.path.isabs(state_home) else home_folder("XDG_STATE_HOME") / ".local" / "state"
    except FileNotFoundError as error:
        raise StoreUnusable(f"Conversations cannot be stored: {error}.") from None
    return base / "wharfinger"

"""Saved conversations: private files of limited number and size, which are valid input for a model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from wharfinger import types as t
from wharfinger.chat import conversation_store
from wharfinger.chat.conversation import STOPPED, Conversation
from wharfinger.chat.conversation_store import ConversationStore, state_folder
from wharfinger.errors import StoreUnusable


def conversation_with(*questions: str) -> Conversation:
    conversation = Conversation(model="ollama/x")
    for question in questions:
        conversation.add_question(question, [])
        conversation.add_answer([t.TextContent(text=f"answer to {question}")])
    return conversation


def test_the_last_conversation_is_loaded(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "chat")
    assert store.load_last() is None
    conversation = conversation_with("one")
    picture = t.ImageContent(data=b"\x89PNG", mime_type="image/png")
    conversation.add_answer([t.ToolUseContent(id="1", name="draw", input={"x": [1, None]})])
    link = t.ResourceLink(uri="tide://now", name="now")
    conversation.add_results([t.ToolResultContent(tool_use_id="1", content=[picture, link], is_error=False)])
    store.save(conversation_with("an older one"))
    store.forget_file()
    store.save(conversation)
    assert ConversationStore(tmp_path / "chat").load_last() == conversation


def test_a_continued_conversation_stays_in_its_file(tmp_path: Path) -> None:
    ConversationStore(tmp_path / "chat").save(conversation_with("one"))
    reopened = ConversationStore(tmp_path / "chat")
    conversation = reopened.load_last()
    assert conversation is not None
    conversation.add_question("two", [])
    reopened.save(conversation)
    assert len(list((tmp_path / "chat").iterdir())) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
def test_only_the_owner_may_read_a_saved_conversation(tmp_path: Path) -> None:
    old_umask = os.umask(0)
    try:
        ConversationStore(tmp_path / "chat").save(conversation_with("one"))
    finally:
        os.umask(old_umask)
    (file,) = (tmp_path / "chat").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.parent.chmod(0o755)
    for call in (
        ConversationStore(tmp_path / "chat").load_last,
        lambda: ConversationStore(tmp_path / "chat").save(conversation_with()),
    ):
        with pytest.raises(StoreUnusable, match="chmod 700"):
            call()


def test_the_oldest_conversations_beyond_the_limit_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_store, "MAX_CONVERSATIONS", 3)
    for number in range(4):
        store = ConversationStore(tmp_path)
        tmp_path.chmod(0o700)
        store.save(conversation_with(f"question {number}"))
        os.utime(store._file, ns=(number, number))  # type: ignore[arg-type]
    remaining = sorted(file.read_text() for file in tmp_path.iterdir())
    assert len(remaining) == 3 and not any("question 0" in text for text in remaining)


def test_the_oldest_questions_of_a_large_conversation_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_store, "MAX_CONVERSATION_BYTES", 4000)
    conversation = conversation_with(*(f"{number}: {'x' * 500}" for number in range(5)))
    conversation.versions["tide://now"] = "1"
    store = ConversationStore(tmp_path / "chat")
    store.save(conversation)
    (file,) = (tmp_path / "chat").iterdir()
    assert file.stat().st_size <= 4000
    first = conversation.messages[0].content[0]  # type: ignore[index]
    assert isinstance(first, t.TextContent) and first.text.startswith("2:")
    assert conversation.versions == {}
    with pytest.raises(StoreUnusable, match="one question has more than"):
        store.save(conversation_with("x" * 5000))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format":1,"messages":3}', b"[" * 100_000])
def test_a_damaged_file_is_reported(tmp_path: Path, data: bytes) -> None:
    store = ConversationStore(tmp_path / "chat")
    store.save(conversation_with("one"))
    (file,) = (tmp_path / "chat").iterdir()
    file.write_bytes(data)
    with pytest.raises(StoreUnusable, match=r"cannot be read.*start without -c"):
        ConversationStore(tmp_path / "chat").load_last()


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")
def test_a_file_that_another_chat_deletes_hides_no_other(tmp_path: Path) -> None:
    """A bug: it hid all conversations, as if the folder did not exist. A broken link has no status either."""
    store = ConversationStore(tmp_path / "chat")
    conversation = conversation_with("one")
    store.save(conversation)
    (tmp_path / "chat" / "1.json").symlink_to("deleted")
    assert ConversationStore(tmp_path / "chat").load_last() == conversation


def test_repair_adds_a_result_to_each_stopped_call() -> None:
    conversation = conversation_with("one")
    calls = [t.ToolUseContent(id=id, name="rise", input={}) for id in ("a", "b")]
    conversation.add_answer([t.TextContent(text="I will"), *calls])
    conversation.repair()
    conversation.repair()
    t.check_tool_use(conversation.messages)
    last = conversation.messages[-1].content
    assert isinstance(last, list) and len(last) == 2
    assert isinstance(last[0], t.ToolResultContent) and last[0].content == [t.TextContent(text=STOPPED)]


def test_drop_oldest_removes_a_question_with_its_calls_and_results() -> None:
    conversation = conversation_with("one")
    conversation.add_answer([t.ToolUseContent(id="a", name="rise", input={})])
    conversation.repair()
    conversation.add_question("two", [])
    assert len(conversation.drop_oldest()) == 4
    assert conversation.drop_oldest() == []
    assert len(conversation.messages) == 1


def test_the_folder_follows_xdg_state_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "wharfinger"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_folder().is_absolute()


def test_a_missing_home_folder_is_reported_when_a_conversation_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: without HOME, and for a user who is not in the list of users, no chat could begin."""
    for variable in ("HOME", "USERPROFILE", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, "relative")
    store = ConversationStore()
    for use in (store.load_last, lambda: store.save(conversation_with("one"))):
        with pytest.raises(StoreUnusable, match="there is no home folder: set HOME or XDG_STATE_HOME"):
            use()

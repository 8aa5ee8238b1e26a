"""Completions of resources at the prompt of the chat."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from wharfinger import Server
from wharfinger.chat.chat_completer import ChatCompleter
from wharfinger.host import Host
from wharfinger.host.context import find_mentions


@pytest.mark.parametrize("uri", ["wiki://Mercury_(planet)", "wiki://@ada/tides", "wiki://tides"])
async def test_a_completed_mention_is_that_of_the_resource(uri: str) -> None:
    """A bug: a mention ended before a bracket at the end of the URI, or an `@` in it."""
    server = Server("wiki")
    server.resource(uri)(lambda: "text")
    typed = "What does @wiki:"
    async with Host([server]) as host:
        completions = ChatCompleter(host).get_completions_async(Document(typed), CompleteEvent())
        (completion,) = [completion async for completion in completions]
    question = typed[: len(typed) + completion.start_position] + completion.text + " say?"
    assert find_mentions(question) == [uri]

"""Completes `@` to resources of all servers, and `/` to commands and prompts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import UNSET
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from wharfinger.chat.chat_commands import COMMANDS, first_line
from wharfinger.content.text import escape_controls
from wharfinger.errors import WharfingerError
from wharfinger.host.context.mentions import mention_text

if TYPE_CHECKING:
    from wharfinger.host import Host

__all__ = ["ChatCompleter"]

MAX_COMPLETIONS = 50
"""Maximum number of completions that are shown."""
MAX_SEARCHED = 100_000
"""Maximum number of resources that are searched for one completion."""
TYPED_MENTION = re.compile(r"(?:^|\s)@(\S*)$")


class ChatCompleter(Completer):
    """Completes the word before the cursor."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return no completions: the chat calls the asynchronous method."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the completions, or nothing if the servers cannot be asked."""
        text = document.text_before_cursor
        mention = TYPED_MENTION.search(text)
        with suppress(WharfingerError, TimeoutError):
            if mention is not None:
                for completion in await self._resources(mention[1]):
                    yield completion
            elif text.startswith("/") and " " not in text:
                for completion in await self._commands(text[1:]):
                    yield completion

    async def _resources(self, typed: str) -> list[Completion]:
        """Return the resources whose URIs begin with the typed text, then those whose URI or title contains it."""
        begins: list[Completion] = []
        contains: list[Completion] = []
        folded = typed.casefold()
        for number, entry in enumerate(await self._host.catalogue.entries(limit=MAX_SEARCHED)):
            if entry.is_template or not entry.uri.isprintable() or " " in entry.uri:
                continue
            title = str(entry.resource.title or entry.resource.name)
            if entry.uri.startswith(typed):
                begins.append(complete_to(mention_text(entry.uri)[1:], typed, f"{title} ({entry.server})"))
                if len(begins) == MAX_COMPLETIONS:
                    break
            elif len(contains) < MAX_COMPLETIONS and (folded in entry.uri.casefold() or folded in title.casefold()):
                contains.append(complete_to(mention_text(entry.uri)[1:], typed, f"{title} ({entry.server})"))
            if number % 1000 == 999:  # so that a long list does not block the prompt
                await asyncio.sleep(0)
        return (begins + contains)[:MAX_COMPLETIONS]

    async def _commands(self, typed: str) -> list[Completion]:
        """Return the commands and prompts whose names begin with the typed text."""
        matches = [
            complete_to(name, typed, command.about) for name, command in COMMANDS.items() if name.startswith(typed)
        ]
        for prompt in await self._host.upstreams.prompts():
            if prompt.name.startswith(typed):
                arguments = [] if prompt.prompt.arguments is UNSET else prompt.prompt.arguments
                takes = " ".join(f"{each.name}=" for each in arguments)
                matches.append(complete_to(prompt.name, typed, f"{first_line(prompt.prompt.description)} {takes}"))
        return matches[:MAX_COMPLETIONS]


def complete_to(text: str, typed: str, about: str) -> Completion:
    """Return a completion that replaces the typed text, with a description."""
    return Completion(text, start_position=-len(typed), display_meta=escape_controls(about)[:120])

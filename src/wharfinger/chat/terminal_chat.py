"""The chat at a terminal: reads questions with prompt_toolkit, and lets Ctrl-C stop an answer without ending the chat.

While a question is typed, prompt_toolkit reads the terminal. While the model answers, it does not: Ctrl-C is then the
signal SIGINT, which cancels the task of the answer, and forms of servers are filled in line by line.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.history import InMemoryHistory

from wharfinger import types as t
from wharfinger.chat.chat_commands import ChatCommands, ChatExit
from wharfinger.chat.chat_completer import ChatCompleter
from wharfinger.chat.chat_display import ChatDisplay
from wharfinger.chat.chat_loop import Chat
from wharfinger.chat.conversation import Conversation, is_question
from wharfinger.chat.model_clients.message_parts import blocks_of
from wharfinger.errors import WharfingerError

__all__ = ["TerminalChat", "above_prompt"]

T = TypeVar("T")
MAX_HISTORY = 100
"""Maximum number of questions of a continued conversation that the arrow keys bring back."""


class TerminalChat:
    """Reads questions and answers them until the user leaves. `save` is called after each question or command."""

    def __init__(self, chat: Chat, commands: ChatCommands, display: ChatDisplay, save: Callable[[], object]) -> None:
        self._chat = chat
        self._commands = commands
        self._display = display
        self._save = save
        self._task: asyncio.Task[None] | None = None
        history = InMemoryHistory(questions_of(chat.conversation)[-MAX_HISTORY:])
        self._session: PromptSession[str] = PromptSession(
            history=history, completer=ChatCompleter(chat.host), complete_while_typing=True
        )

    async def run(self) -> None:
        """Answer questions until Ctrl-D or /exit."""
        with suppress(NotImplementedError, ValueError, RuntimeError):  # on Windows, and outside of the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        while True:
            try:
                line = await self._session.prompt_async("> ", handle_sigint=False)
            except KeyboardInterrupt:  # the key Ctrl-C
                self._display.note("Press Ctrl-D or type /exit to leave.")
                continue
            except EOFError:
                return
            if not line.strip():
                continue
            self._task = asyncio.ensure_future(self._answer(line.strip()))
            try:
                await self._task
            except ChatExit:
                return
            except asyncio.CancelledError:  # `_interrupt`
                self._display.end()
                self._display.note("Stopped.")
            except WharfingerError as error:
                self._display.note(str(error))
            finally:
                self._task = None
            self._save()

    def _interrupt(self) -> None:
        """Stop the current answer, if any."""
        if self._task is not None:
            self._task.cancel()

    async def _answer(self, line: str) -> None:
        question: str | None = line
        if line.startswith("/"):
            question = await self._commands.run(line)
        if question is not None:
            await self._chat.ask(question)


def above_prompt(ask: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Return a function that calls `ask`, and hides the prompt meanwhile if the user is typing."""

    async def asked(*args: Any) -> T:
        async with in_terminal():
            return await ask(*args)

    return asked


def questions_of(conversation: Conversation) -> list[str]:
    """Return the questions of a conversation, the oldest first."""
    questions: list[str] = []
    for message in conversation.messages:
        last_block = blocks_of(message)[-1]
        if is_question(message) and isinstance(last_block, t.TextContent):
            questions.append(last_block.text)
    return questions

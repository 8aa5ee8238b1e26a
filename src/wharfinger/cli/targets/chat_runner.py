"""Runs `wharfinger chat`: opens the servers and the conversation, and answers one question or many."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from wharfinger import types as t
from wharfinger.chat.chat_display import ChatDisplay, TerminalDisplay
from wharfinger.chat.chat_loop import Chat, ChatAnswer, ChatOptions
from wharfinger.chat.conversation import Conversation
from wharfinger.chat.conversation_store import ConversationStore
from wharfinger.chat.model_clients import ModelChoice, ModelClient, choose_model
from wharfinger.cli.error_report import CTRL_C_EXIT_CODE, CommandError
from wharfinger.cli.options import verbosity_of
from wharfinger.cli.targets.open_client import ConnectionOptions, on_ctrl_c, saved_sign_in
from wharfinger.cli.targets.terminal_approval import SamplingApproval, TerminalApproval
from wharfinger.cli.targets.terminal_forms import TerminalForms
from wharfinger.content.text import escape_controls, many
from wharfinger.errors import MissingExtra, StoreUnusable
from wharfinger.host import Host

if TYPE_CHECKING:
    from wharfinger.upstreams import ServerConfig

__all__ = ["ChatCommandOptions", "ChatRunner"]

START_SECONDS = 10.0
"""The maximum time that a chat at a terminal waits for its servers at the start. Slower servers join later."""


class ChatCommandOptions(NamedTuple):
    """The values of the options of `wharfinger chat`, apart from its servers, its model and the question."""

    continue_last: bool
    """Whether to continue the last conversation."""
    approve: str
    budget: int
    no_rules: bool
    no_tools: bool
    max_rounds: int
    max_tokens: int | None
    model_timeout: float
    no_save: bool
    as_json: bool


class ChatRunner:
    """One run of the command, with its options."""

    def __init__(self, ctx: click.Context, connection: ConnectionOptions, options: ChatCommandOptions) -> None:
        self._verbosity = verbosity_of(ctx)
        self._connection = connection
        self._options = options
        self._display = ChatDisplay() if options.as_json else TerminalDisplay(quiet=self._verbosity.quiet)
        self._forms = TerminalForms(self._display.end)
        self._chat: Chat | None = None

    def run(self, choice: ModelChoice, configs: list[ServerConfig], question: str | None) -> int:
        """Answer the question; if it is None, chat until the user leaves. Returns the exit code."""
        if question is None:
            check_prompt_toolkit()
        store = ConversationStore()
        conversation = (store.load_last() if self._options.continue_last else None) or Conversation()
        save = self._saver(store, conversation)
        options = ChatOptions(
            budget=self._options.budget,
            rules=not self._options.no_rules,
            tools=not self._options.no_tools,
            max_rounds=self._options.max_rounds,
            max_tokens=self._options.max_tokens,
        )
        interrupted: list[bool] = []

        async def work() -> int:
            if question is not None:
                on_ctrl_c(interrupted)
            async with (
                self._make_host(configs, question) as host,
                aclosing(Chat(host, self._make_client(choice), conversation, self._display, options)) as chat,
            ):
                self._chat = chat
                if question is not None:
                    return await self._answer_once(chat, question, save)
                await self._talk(chat, save, store)
                return 0

        try:
            return asyncio.run(work())
        except (KeyboardInterrupt, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not interrupted:
                raise
            self._display.end()
            return CTRL_C_EXIT_CODE

    def _make_client(self, choice: ModelChoice) -> ModelClient:
        def on_wait(seconds: float, reason: str) -> None:
            self._display.note(f"The endpoint is busy ({reason}): asking again in {seconds:.1f} s.")

        return ModelClient(choice, silence=self._options.model_timeout, on_wait=on_wait)

    def _make_host(self, configs: list[ServerConfig], question: str | None) -> Host:
        def hiding_prompt(callback: Any) -> Any:
            """Return a callback that hides the prompt of the chat while it asks the user something."""
            if question is not None:
                return callback
            from wharfinger.chat.terminal_chat import above_prompt

            return above_prompt(callback)

        approval = TerminalApproval(self._forms, self._options.approve, self._display.note)
        review = SamplingApproval(self._forms, self._options.approve, self._display.note)
        return Host(
            configs,
            approve=None if self._options.approve == "never" else hiding_prompt(approval),
            elicitation=hiding_prompt(self._forms.form),
            consent=hiding_prompt(self._forms.consent),
            sampling=self._sample,
            review=hiding_prompt(review),
            timeout=self._connection.timeout,
            revision=self._connection.revision,
            stderr=self._show_stderr,
            auth=saved_sign_in(config.target for config in configs),
        )

    async def _sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        """Answer a sampling request of a server with the model of the chat."""
        assert self._chat is not None
        return await self._chat.sample(params)

    def _show_stderr(self, line: str) -> None:
        if self._verbosity.level:
            click.echo(escape_controls(line), err=True)

    def _saver(self, store: ConversationStore, conversation: Conversation) -> Callable[[], None]:
        """Return a function that saves the conversation. It reports the first failure, and then does nothing more."""
        failed: list[bool] = []

        def save() -> None:
            if self._options.no_save or failed or not conversation.messages:
                return
            try:
                store.save(conversation)
            except StoreUnusable as error:
                failed.append(True)
                self._display.note(str(error))

        return save

    async def _answer_once(self, chat: Chat, question: str, save: Callable[[], None]) -> int:
        """Answer one question, and print the answer. Returns 1 if the maximum number of rounds was reached, else 0."""
        await chat.host.ready(self._connection.timeout)
        check_servers(chat.host)
        self._note_servers(chat.host)
        try:
            answer = await chat.ask(question)
        finally:
            save()
        if self._options.as_json:
            from wharfinger.cli.render.output import print_json

            print_json(as_object(answer, chat))
        return 1 if answer.stop_reason == "maxRounds" else 0

    async def _talk(self, chat: Chat, save: Callable[[], None], store: ConversationStore) -> None:
        """Answer questions until the user leaves."""
        from wharfinger.chat.chat_commands import ChatCommands
        from wharfinger.chat.terminal_chat import TerminalChat

        await chat.host.ready(START_SECONDS)
        servers = ", ".join(chat.host.servers) or "no server"
        self._display.note(f"{chat.model.choice} with {servers}. /help lists commands.")
        if chat.conversation.messages:
            messages = many(len(chat.conversation.messages), "message")
            self._display.note(f"Continues: {chat.conversation.title} ({messages})")
        self._note_servers(chat.host)

        def make_client(name: str) -> ModelClient:
            return self._make_client(choose_model(name, os.environ))

        commands = ChatCommands(chat, make_client, self._display.note, store.forget_file)
        await TerminalChat(chat, commands, self._display, save).run()

    def _note_servers(self, host: Host) -> None:
        from wharfinger.chat.chat_commands import server_line

        for server in host.servers.values():
            if server.status not in ("ready", "idle"):
                self._display.note(server_line(server))


def check_servers(host: Host) -> None:
    """Raise CommandError if the host has servers and all of them are down."""
    from wharfinger.chat.chat_commands import server_line

    servers = list(host.servers.values())
    if servers and all(server.status == "down" for server in servers):
        raise CommandError("\n".join(server_line(server) for server in servers), 3)


def check_prompt_toolkit() -> None:
    """Raise MissingExtra unless prompt_toolkit is installed."""
    try:
        import_module("prompt_toolkit")
    except ImportError:
        raise MissingExtra("chat", "A chat at the terminal") from None


def as_object(answer: ChatAnswer, chat: Chat) -> dict[str, Any]:
    """Return an answer as one JSON object."""
    usage = answer.usage
    return {
        "answer": answer.text,
        "model": str(chat.model.choice),
        "stopReason": answer.stop_reason,
        "usage": {"inputTokens": usage.input, "outputTokens": usage.output, "cachedTokens": usage.cached},
        "calls": [{"name": call.name, "arguments": call.arguments, "isError": call.is_error} for call in answer.calls],
        "resources": [
            {
                "uri": resource.uri,
                "server": resource.server,
                "reason": resource.reason,
                "tokens": resource.tokens,
                "missing": resource.missing,
            }
            for resource in answer.resources
        ],
    }

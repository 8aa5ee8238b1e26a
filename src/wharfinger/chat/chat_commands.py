"""The commands of the chat, which begin with `/`. Prompts of servers are used in the same way."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.chat.chat_loop import Chat
from wharfinger.chat.model_clients import ModelClient
from wharfinger.content.text import many
from wharfinger.errors import WharfingerError

if TYPE_CHECKING:
    from wharfinger.upstreams import Upstream

__all__ = ["COMMANDS", "ChatCommands", "ChatExit"]

MAX_LISTED = 200
"""Maximum number of tools, or of prompts, that one command lists."""


class ChatExit(Exception):
    """Raised when the user leaves the chat."""


class ChatCommand(NamedTuple):
    """A command: its argument, or an empty string, and a description."""

    argument: str
    about: str


COMMANDS = {
    "model": ChatCommand("[MODEL]", "show or change the model"),
    "tools": ChatCommand("[on|off]", "list the tools, or set whether the model may use any"),
    "context": ChatCommand(
        "[on|off]", "list the resources sent with the last question, or set whether the chat adds some"
    ),
    "cost": ChatCommand("", "show the number of tokens used"),
    "clear": ChatCommand("", "forget the conversation"),
    "help": ChatCommand("", "list the commands and prompts"),
    "exit": ChatCommand("", "leave"),
}


class ChatCommands:
    """Runs the commands of a chat.

    `make_client` returns a client for the name of a model, `show` prints a line, and `started_new` is called when a new
    conversation begins.
    """

    def __init__(
        self,
        chat: Chat,
        make_client: Callable[[str], ModelClient],
        show: Callable[[str], object],
        started_new: Callable[[], object] = lambda: None,
    ) -> None:
        self._chat = chat
        self._make_client = make_client
        self._show = show
        self._started_new = started_new

    async def run(self, line: str) -> str | None:
        """Run a line that begins with `/`. Returns the text to send to the model if it fills in a prompt, else None.

        Raises:
            ChatExit: the user leaves.
            WharfingerError: the command failed; the message says why.
        """
        name, _, argument = line[1:].strip().partition(" ")
        if name in COMMANDS:
            command: Callable[[str], Awaitable[None]] = getattr(self, name)
            await command(argument.strip())
            return None
        prompts = {prompt.name: prompt.prompt for prompt in await self._chat.host.upstreams.prompts()}
        if name in prompts:
            return await self._fill_in(name, prompts[name], argument)
        matches = get_close_matches(name, [*COMMANDS, *prompts], 1, 0.6)
        self._show(
            f"There is no command /{name}.{f' Did you mean /{matches[0]}?' if matches else ' /help lists them.'}"
        )
        return None

    async def model(self, argument: str) -> None:
        """Show or change the model."""
        if argument:
            old, self._chat.model = self._chat.model, self._make_client(argument)
            await old.close()
        self._show(f"The model is {self._chat.model.choice}, at {self._chat.model.choice.host}.")

    async def tools(self, argument: str) -> None:
        """List the tools, or set whether the model may use them."""
        options = self._chat.options
        if argument not in ("", "on", "off"):
            self._show(f"/tools {argument} is not a setting: write /tools on or /tools off.")
            return
        if argument:
            options.tools = argument == "on"
        tools = await self._chat.host.upstreams.tools()
        self._show(f"The model may {'use' if options.tools else 'not use'} {many(len(tools), 'tool')}:")
        for tool in tools[:MAX_LISTED]:
            self._show(f"  {tool.name}  {first_line(tool.tool.description)}")
        if len(tools) > MAX_LISTED:
            self._show(f"  and {len(tools) - MAX_LISTED:,} more")
        for server in self._chat.host.servers.values():
            if server.status != "ready":
                self._show(f"  {server_line(server)}")

    async def context(self, argument: str) -> None:
        """List the resources sent with the last question, or set whether the chat adds some by its rules."""
        options = self._chat.options
        if argument not in ("", "on", "off"):
            self._show(f"/context {argument} is not a setting: write /context on or /context off.")
            return
        if argument:
            options.rules = argument == "on"
        others = "and others that the chat adds" if options.rules else "and no others"
        self._show(
            f"With a question, the model gets the resources that it mentions with @, {others}:"
            f" together at most {options.budget:,} tokens."
        )
        last = self._chat.context.last
        for used in last.used:
            missing = f", cut: {used.missing}" if used.missing else ""
            self._show(f"  @{used.uri}  {used.server}, {many(used.tokens, 'token')}, {used.reason}{missing}")
        for note in last.notes:
            self._show(f"  {note}")
        known_count = len(self._chat.conversation.versions)
        self._show(f"In this conversation the model has {many(known_count, 'resource')}.")

    async def cost(self, argument: str) -> None:
        """Show the number of tokens used."""
        usage = self._chat.conversation.usage
        if not usage.input and not usage.output:
            self._show("No tokens yet, or the endpoint does not count them.")
            return
        cached = f", {usage.cached:,} of them from its cache" if usage.cached else ""
        self._show(f"{usage.input:,} tokens sent{cached}, {usage.output:,} received in all.")

    async def clear(self, argument: str) -> None:
        """Forget the conversation."""
        self._chat.conversation.clear()
        self._started_new()
        self._show("The conversation is forgotten.")

    async def help(self, argument: str) -> None:
        """List the commands and prompts."""
        for name, command in COMMANDS.items():
            self._show(f"  /{f'{name} {command.argument}'.strip():<18} {command.about}")
        for prompt in (await self._chat.host.upstreams.prompts())[:MAX_LISTED]:
            takes = "" if prompt.prompt.arguments is UNSET else arguments_text(prompt.prompt.arguments)
            self._show(f"  /{prompt.name}{takes}  {first_line(prompt.prompt.description)}")
        self._show("  @URI sends a resource with the question; Tab completes. Ctrl-C stops an answer, Ctrl-D leaves.")

    async def exit(self, argument: str) -> None:
        """Leave."""
        raise ChatExit

    async def _fill_in(self, name: str, prompt: t.Prompt, argument: str) -> str | None:
        """Fill in a prompt with arguments NAME=TEXT, and return its text, and that of the resources embedded in it.

        If the arguments are invalid, show why, and return None.
        """
        declared = [] if prompt.arguments is UNSET else prompt.arguments
        declared_names = [item.name for item in declared]
        values: dict[str, str] = {}
        try:
            words = shlex.split(argument.encode(errors="backslashreplace").decode())  # JSON takes only UTF-8
        except ValueError:
            self._show("A quote is not closed.")
            return None
        for word in words:
            key, equals, text = word.partition("=")
            if not equals or key not in declared_names:
                takes = " ".join(f"{each}=TEXT" for each in declared_names) or "no arguments"
                self._show(f"{word} is not an argument of /{name}, which takes {takes}.")
                return None
            values[key] = text
        missing_names = [item.name for item in declared if item.required is True and item.name not in values]
        if missing_names:
            self._show(f"/{name} needs {', '.join(f'{each}=TEXT' for each in missing_names)}.")
            return None
        result = await self._chat.host.prompt(name, values)
        texts: list[str] = []
        for message in result.messages:
            content = message.content.resource if isinstance(message.content, t.EmbeddedResource) else message.content
            if isinstance(content, (t.TextContent, t.ResourceContents)) and content.text is not UNSET:
                texts.append(content.text)
        if not texts:
            raise WharfingerError(f"/{name} has no text.")
        if without_text := len(result.messages) - len(texts):
            self._show(f"Only the text of /{name} is sent: {many(without_text, 'message')} without text left out.")
        return "\n\n".join(texts)


def arguments_text(arguments: list[t.PromptArgument]) -> str:
    """Return the arguments of a prompt in the form in which the user types them."""
    return "".join(f" {each.name}=…" if each.required is True else f" [{each.name}=…]" for each in arguments)


def first_line(text: object) -> str:
    """Return the first line of an optional text, shortened."""
    return text.strip().split("\n")[0][:120] if isinstance(text, str) else ""


def server_line(server: Upstream) -> str:
    """Return the state of a server, with the reason if it is down."""
    return f"{server.name} is {server.status}{f': {server.error}' if server.error else ''}"

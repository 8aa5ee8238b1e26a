"""A conversation after an answer that was stopped, or that failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.chat.scripted_endpoint import Call, Endpoint, Raw, Refusal, endpoint
from wharfinger import Server
from wharfinger import types as t
from wharfinger.chat.chat_commands import ChatCommands
from wharfinger.chat.chat_display import ChatDisplay
from wharfinger.chat.chat_loop import Chat, ChatOptions
from wharfinger.chat.conversation import STOPPED, Conversation
from wharfinger.chat.model_clients import ModelClient, ModelError, choose_model
from wharfinger.host import Host


class ObservedDisplay(ChatDisplay):
    """Sets an event when the result of a tool arrives."""

    def __init__(self, result_arrived: asyncio.Event) -> None:
        self.result_arrived = result_arrived

    def result(self, call: t.ToolUseContent, result: t.ToolResultContent) -> None:
        self.result_arrived.set()


@pytest.fixture
def model() -> Iterator[Endpoint]:
    with endpoint("openai") as started:
        yield started


@asynccontextmanager
async def chat_with(model: Endpoint, display: ChatDisplay, server: Server) -> AsyncGenerator[Chat]:
    async with (
        Host([server]) as host,
        ModelClient(choose_model(model.model, model.environment)) as client,
    ):
        await host.ready(10)
        yield Chat(host, client, Conversation(), display, ChatOptions())


async def test_a_stopped_chat_keeps_the_results_of_calls_that_have_finished(model: Endpoint) -> None:
    """A bug: the model was told that the user had stopped these calls too, so it might call the tools again."""
    server, waiting, finished = Server("harbour"), asyncio.Event(), asyncio.Event()

    @server.tool
    def rise() -> str:
        return "4 m"

    @server.tool
    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    model.answer(Call("wait", id="w"), Call("rise", id="r"))
    async with chat_with(model, ObservedDisplay(finished), server) as chat:
        asking = asyncio.create_task(chat.ask("Rise and wait."))
        await waiting.wait()
        await finished.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        results = chat.conversation.messages[-1].content
        assert isinstance(results, list)
        texts = {block.tool_use_id: block.content for block in results if isinstance(block, t.ToolResultContent)}
        assert texts == {"w": [t.TextContent(text=STOPPED)], "r": [t.TextContent(text="4 m")]}
        t.check_tool_use(chat.conversation.messages)


async def test_a_question_that_is_removed_is_not_the_title_of_the_conversation(model: Endpoint) -> None:
    """A bug: the conversation kept the title of a question that it did not contain."""
    model.answer(Refusal(400))
    model.answer("Hello.")
    async with chat_with(model, ChatDisplay(), Server("harbour")) as chat:
        with pytest.raises(ModelError):
            await chat.ask("the first")
        assert (chat.conversation.messages, chat.conversation.title) == ([], "")
        await chat.ask("the second")
        assert chat.conversation.title == "the second"


async def test_an_answer_that_fails_in_the_middle_is_kept_and_marked(model: Endpoint) -> None:
    """The mark does not name a cause: an error of the endpoint was called a failed connection."""
    model.answer("It begins", Raw(b"data: {\n\n"))
    async with chat_with(model, ChatDisplay(), Server("harbour")) as chat:
        with pytest.raises(ModelError):
            await chat.ask("tell me")
        last = chat.conversation.messages[-1]
        assert (last.role, last.content) == ("assistant", [t.TextContent(text="It begins [cut off by an error]")])


async def test_a_question_with_bytes_that_are_not_utf_8_is_sent_with_them_escaped(model: Endpoint) -> None:
    """A bug: it ended in a UnicodeEncodeError, which also ended the chat."""
    model.answer("Coffee.")
    async with chat_with(model, ChatDisplay(), Server("harbour")) as chat:
        await chat.ask("What is caf\udce9?")
    assert model.requests[-1]["messages"][-1]["content"] == r"What is caf\udce9?"


async def test_an_argument_of_a_prompt_with_bytes_that_are_not_utf_8_is_sent_with_them_escaped(model: Endpoint) -> None:
    server = Server("harbour")

    @server.prompt
    def about(ship: str) -> str:
        return f"Tell me about {ship}."

    async with chat_with(model, ChatDisplay(), server) as chat:
        commands = ChatCommands(chat, lambda name: chat.model, print)
        assert await commands.run("/about 'ship=Caf\udce9 noir'") == r"Tell me about Caf\udce9 noir."

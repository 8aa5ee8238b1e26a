"""The tool-calling loop of an application, with the official client of each model API."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
from google import genai

from wharfinger.host import Host

QUESTION = "Is there room for the Amber?"
MAX_TURNS = 10


async def ask(format: str, url: str, host: Host, *, stream: bool, **options: Any) -> str:
    """Ask the question, run the tool calls of each answer, and return the text of the last answer."""
    ask_api = {
        "openai": ask_openai,
        "openai-responses": ask_openai_responses,
        "anthropic": ask_anthropic,
        "gemini": ask_gemini,
    }[format]
    tool_options = {name: options.pop(name) for name in ("resources", "strict", "servers") if name in options}
    tools = await host.tools(format=format, **tool_options)
    return await ask_api(url, host, tools, stream, options)


async def ask_openai(url: str, host: Host, tools: Any, stream: bool, options: Any) -> str:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        history: list[Any] = [{"role": "user", "content": QUESTION}]
        for _ in range(MAX_TURNS):
            answer: Any
            if stream:
                answer = [
                    chunk
                    async for chunk in await client.chat.completions.create(
                        model="m", messages=history, tools=tools, stream=True
                    )
                ]
                text = "".join(chunk.choices[0].delta.content or "" for chunk in answer)
                message: Any = join_chunks(answer)
            else:
                answer = await client.chat.completions.create(model="m", messages=history, tools=tools)
                message = answer.choices[0].message
                text = message.content or ""
            results = await host.call_all(answer, **options)
            if not results:
                return text
            history += [message, *results]
    raise AssertionError("the model called tools in every turn")


def join_chunks(chunks: list[Any]) -> Any:
    """Return the assistant message of streamed chunks."""
    calls: dict[int, Any] = {}
    for chunk in chunks:
        for piece in chunk.choices[0].delta.tool_calls or ():
            call = calls.setdefault(
                piece.index, {"id": piece.id, "type": "function", "function": {"name": "", "arguments": ""}}
            )
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += piece.function.arguments or ""
    return {"role": "assistant", "content": None, "tool_calls": list(calls.values())}


async def ask_openai_responses(url: str, host: Host, tools: Any, stream: bool, options: Any) -> str:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        history: list[Any] = [{"role": "user", "content": QUESTION}]
        for _ in range(MAX_TURNS):
            answer: Any
            if stream:
                stream_events = await client.responses.create(model="m", input=history, tools=tools, stream=True)
                events: list[Any] = [event async for event in stream_events]
                answer = events[-1].response
                results = await host.call_all(events, **options)
            else:
                answer = await client.responses.create(model="m", input=history, tools=tools)
                results = await host.call_all(answer, **options)
            if not results:
                return str(answer.output_text)
            history += [*answer.output, *results]
    raise AssertionError("the model called tools in every turn")


async def ask_anthropic(url: str, host: Host, tools: Any, stream: bool, options: Any) -> str:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        history: list[Any] = [{"role": "user", "content": QUESTION}]
        for _ in range(MAX_TURNS):
            answer: Any
            if stream:
                async with client.messages.stream(
                    model="m", max_tokens=99, messages=history, tools=tools
                ) as event_stream:
                    events = [event async for event in event_stream]
                    answer = await event_stream.get_final_message()
                results = await host.call_all(events, **options)
            else:
                answer = await client.messages.create(model="m", max_tokens=99, messages=history, tools=tools)
                results = await host.call_all(answer, **options)
            if not results:
                return str(answer.content[0].text)
            history += [{"role": "assistant", "content": answer.content}, *results]
    raise AssertionError("the model called tools in every turn")


async def ask_gemini(url: str, host: Host, tools: Any, stream: bool, options: Any) -> str:
    client = genai.Client(api_key="none", vertexai=False, http_options={"base_url": url})
    history: list[Any] = [{"role": "user", "parts": [{"text": QUESTION}]}]
    config: Any = {"tools": tools, "automatic_function_calling": {"disable": True}}
    for _ in range(MAX_TURNS):
        answer: Any
        if stream:
            answer = [
                chunk
                async for chunk in await client.aio.models.generate_content_stream(
                    model="m", contents=history, config=config
                )
            ]
            parts = [part for chunk in answer for part in chunk.candidates[0].content.parts]
        else:
            answer = await client.aio.models.generate_content(model="m", contents=history, config=config)
            parts = answer.candidates[0].content.parts
        results = await host.call_all(answer, **options)
        if not results:
            await client.aio.aclose()
            return str(parts[0].text)
        history += [{"role": "model", "parts": parts}, *results]
    raise AssertionError("the model called tools in every turn")

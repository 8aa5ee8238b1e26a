"""Asks a model over HTTP and reads its streamed answer: time limits, retries, bounds, and errors without the key."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from wharfinger.chat.model_clients.anthropic_messages import AnthropicAnswerReader, anthropic_body, anthropic_headers
from wharfinger.chat.model_clients.choosing import ModelChoice
from wharfinger.chat.model_clients.model_errors import ModelError, ModelNotAuthorized, ModelUnreachable
from wharfinger.chat.model_clients.ollama_chat import OllamaAnswerReader, ollama_body, ollama_headers
from wharfinger.chat.model_clients.openai_chat import OpenAIAnswerReader, error_text, openai_body, openai_headers
from wharfinger.chat.model_clients.streamed_answer import AnswerReader, AnswerRequest, ModelAnswer
from wharfinger.content.mime import essence_of
from wharfinger.content.redaction import redacted, redacted_text
from wharfinger.content.text import printable
from wharfinger.net import connection_failure, proxy_for, seconds_to_wait
from wharfinger.protocol.sse import EventDecoder, EventTooLarge

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

__all__ = ["ModelClient"]

SILENCE_SECONDS = 120.0
"""Longest silence of an endpoint before and during its answer. A local model must be loaded first."""
CONNECT_SECONDS = 15.0
"""Longest time to connect, and also to read the message of an error."""
ANSWER_SECONDS = 3600.0
"""Maximum time of one answer, even if it never pauses."""
ATTEMPTS = 5
"""Maximum number of requests for one answer, if an overloaded endpoint refuses them."""
RETRY_STATUSES = frozenset((429, 502, 503, 504, 529))
"""HTTP statuses of an endpoint that is over a limit, or not available for the moment; 529 is Anthropic's."""
FIRST_DELAY_SECONDS = 0.5
"""Longest wait before the first retry. It doubles with each retry; a random part, up to half, is left out."""
MAX_DELAY_SECONDS = 60.0
"""Longest wait for which an endpoint may ask. If it asks for more, there is no retry."""
MAX_EVENT_BYTES = 8 * 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of one stream; the text is only a small part of them."""
MAX_ERROR_BYTES = 64 * 1024
MAX_ERROR_CHARACTERS = 500
OPTIONAL_MEMBERS = ("stream_options", "max_completion_tokens", "temperature", "stop", "stop_sequences")
"""Members that are left out of a request if the endpoint refuses them by name."""


class Api(NamedTuple):
    """One API: its path below the base URL, the functions that write its requests and read its answers, and the
    environment variable of its key."""

    path: str
    headers: Callable[[ModelChoice], dict[str, str]]
    body: Callable[[ModelChoice, AnswerRequest, frozenset[str]], dict[str, Any]]
    reader: Callable[[], AnswerReader]
    key_variable: str


APIS = {
    "openai": Api("/chat/completions", openai_headers, openai_body, OpenAIAnswerReader, "OPENAI_API_KEY"),
    "anthropic": Api("/v1/messages", anthropic_headers, anthropic_body, AnthropicAnswerReader, "ANTHROPIC_API_KEY"),
    "ollama": Api("/api/chat", ollama_headers, ollama_body, OllamaAnswerReader, "OLLAMA_API_KEY"),
}


class ModelClient:
    """A client of one model. `async with` closes its connections.

    `silence` is the number of seconds for which the endpoint may send nothing. `on_wait` is called before a retry with
    the seconds to wait and the reason.
    """

    def __init__(
        self,
        choice: ModelChoice,
        *,
        silence: float = SILENCE_SECONDS,
        on_wait: Callable[[float, str], object] | None = None,
    ) -> None:
        self.choice = choice
        self._api = APIS[choice.api]
        self._silence = silence
        self._on_wait = on_wait
        self._omit: frozenset[str] = frozenset()
        """The members that the endpoint has refused."""
        self._session: ClientSession | None = None
        self._open_answers = 0
        self._is_closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections as soon as no answer is open: a server may wait for one when the model is changed."""
        self._is_closing = True
        if not self._open_answers and self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def answer(self, request: AnswerRequest, on_text: Callable[[str], object] | None = None) -> ModelAnswer:
        """Ask the model. `on_text` is called with each piece of text as it arrives; the result has the whole text.

        Cancelling closes the connection, and endpoints then stop generating.

        Raises:
            ModelUnreachable: the endpoint cannot be reached, is overloaded, or was silent for too long.
            ModelNotAuthorized: it refused the key.
            ModelError: it refused the request, or its answer does not have the format of its API.
        """
        reader = self._api.reader()
        self._open_answers += 1
        try:
            async with asyncio.timeout(ANSWER_SECONDS), aclosing(self._pieces(request)) as pieces:
                async for piece in pieces:
                    text = reader.feed(piece)
                    if text and on_text is not None:
                        on_text(text)
            return reader.finish()
        except TimeoutError:
            raise ModelUnreachable(
                f"The answer of {self._endpoint} took more than {ANSWER_SECONDS / 60:g} min."
            ) from None
        except ModelError as error:
            raise type(error)(self._without_key(str(error))).with_traceback(error.__traceback__) from None
        finally:
            self._open_answers -= 1
            if self._is_closing:
                await self.close()

    @property
    def _endpoint(self) -> str:
        """The URL of the endpoint as error messages show it."""
        return redacted(self.choice.base_url)

    def _without_key(self, text: str, limit: int = 1000) -> str:
        """Return a message on one line, shortened, without the key, which an endpoint may repeat."""
        if self.choice.key:
            text = text.replace(self.choice.key, "***")  # before it is shortened: a part of the key is not found
        return redacted_text(printable(text, limit))

    async def _pieces(self, request: AnswerRequest) -> AsyncGenerator[bytes]:
        """Send the request, and yield each event or line of the answer."""
        import aiohttp

        response = await self._request(request)
        try:
            decode = make_decoder(response.headers.get("Content-Type", ""))
            size = 0
            while True:
                async with asyncio.timeout(self._silence):
                    chunk = await response.content.readany()
                if not chunk:
                    break
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    raise ModelError(f"The stream of {self._endpoint} has more than {MAX_ANSWER_BYTES:,} bytes.")
                for piece in decode(chunk):
                    yield piece
            for piece in decode(b""):
                yield piece
        except TimeoutError:
            raise self._silent() from None
        except EventTooLarge:
            raise ModelError(f"{self._endpoint} sent an event larger than {MAX_EVENT_BYTES:,} bytes.") from None
        except (aiohttp.ClientError, OSError):
            raise ModelUnreachable(f"{self._endpoint} closed the connection in the middle of the answer.") from None
        finally:
            response.close()  # not `release`: an unread answer would be read to its end

    async def _request(self, request: AnswerRequest) -> ClientResponse:
        """Send the request, again if the endpoint is overloaded or refuses a member. Returns the open response."""
        attempt = 0
        while True:
            body = self._api.body(self.choice, request, self._omit)
            response = await self._post(msgspec.json.encode(body))
            if response.status == 200:
                return response
            status, wait = response.status, seconds_to_wait(response.headers.get("Retry-After", ""), time.time())
            text = await self._error_text(response)
            refused = next((name for name in OPTIONAL_MEMBERS if name in body and name in text), None)
            if status in (400, 422) and refused is not None:
                self._omit |= {refused}
                continue
            attempt += 1
            if status not in RETRY_STATUSES or attempt >= ATTEMPTS or (wait or 0) > MAX_DELAY_SECONDS:
                raise self._refusal(status, text, wait)
            delay = FIRST_DELAY_SECONDS * 2 ** (attempt - 1) * (0.5 + random.random() / 2)  # noqa: S311
            delay = delay if wait is None else wait
            if self._on_wait is not None:
                self._on_wait(delay, f"HTTP {status}")
            await asyncio.sleep(delay)

    async def _post(self, body: bytes) -> ClientResponse:
        import aiohttp
        from yarl import URL

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(
                timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        parts = urlsplit(self.choice.base_url)  # it may have a query, such as `?api-version=1`
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/x-ndjson, application/json",
            "Accept-Encoding": "identity",  # decompressing would be unbounded work
            **self._api.headers(self.choice),
        }
        try:
            url = URL(parts._replace(path=parts.path.rstrip("/") + self._api.path).geturl())
            async with asyncio.timeout(self._silence):
                return await self._session.post(
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,  # another host would get the key
                    proxy=proxy_for(url.scheme, url.host or ""),
                )
        except aiohttp.ConnectionTimeoutError:
            raise ModelUnreachable(f"Cannot connect to {self._endpoint} within {CONNECT_SECONDS:g} s.") from None
        except TimeoutError:
            raise self._silent() from None
        except aiohttp.ClientSSLError as error:
            raise ModelUnreachable(
                self._without_key(f"Cannot connect to {self._endpoint}: TLS failed ({error}).")
            ) from None
        except aiohttp.ClientConnectorError as error:
            raise self._unreachable(connection_failure(error.os_error)) from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise ModelUnreachable(
                self._without_key(f"The request to {self._endpoint} failed: {str(error) or type(error).__name__}.")
            ) from None

    async def _error_text(self, response: ClientResponse) -> str:
        """Return the message of an error response."""
        import aiohttp

        body = b""
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                while len(body) < MAX_ERROR_BYTES and (chunk := await response.content.readany()):
                    body += chunk
        response.close()
        text = " ".join(body[:MAX_ERROR_BYTES].decode("utf-8", "replace").split()).rstrip(".") or "no message"
        try:
            text = error_text(msgspec.json.decode(body[:MAX_ERROR_BYTES], type=dict[str, Any]), text)
        except (ValueError, RecursionError):  # not JSON, or not UTF-8
            text = "a web page" if text.startswith("<") else text
        return self._without_key(text, MAX_ERROR_CHARACTERS)

    def _silent(self) -> ModelUnreachable:
        return ModelUnreachable(
            f"{self._endpoint} was silent for {self._silence:g} s. Give it more time with --model-timeout SECONDS."
        )

    def _unreachable(self, reason: str) -> ModelUnreachable:
        advice = {
            "ollama": "Start it with `ollama serve`, or set OLLAMA_HOST to its address.",
            "openai": "Check OPENAI_BASE_URL and the network.",
            "anthropic": "Check ANTHROPIC_BASE_URL and the network.",
        }[self.choice.api]
        return ModelUnreachable(self._without_key(f"Cannot connect to {self._endpoint}: {reason}. {advice}"))

    def _refusal(self, status: int, text: str, wait: float | None) -> ModelError:
        """Return the error for a refused request, with what to change."""
        kind, advice = ModelError, ""
        name = self.choice.name
        too_long = any(word in text.lower() for word in ("context length", "context window", "too long", "too large"))
        if status in (401, 403):
            kind, advice = ModelNotAuthorized, f" Check {self._api.key_variable}."
        elif status == 404:
            pull = f" Get it with `ollama pull {name}`." if self.choice.api == "ollama" else ""
            advice = pull or " Check the name of the model, and the address of the endpoint."
        elif status in RETRY_STATUSES:
            kind = ModelUnreachable
            advice = f" It asks to wait {wait:,.0f} s." if wait else " Ask again in a minute."
        elif status == 413 or too_long:
            advice = " Forget the conversation with /clear, or send less with --budget TOKENS."
        elif 300 <= status < 400:
            advice = " It redirects, which is not followed: set the address that it redirects to."
        elif "tool" in text.lower() and "support" in text.lower():
            advice = " Choose a model that can call tools, or give --no-tools."
        return kind(
            self._without_key(f"{self._endpoint} refused the request for {name} (HTTP {status}: {text}).{advice}")
        )


def make_decoder(content_type: str) -> Callable[[bytes], list[bytes]]:
    """Return a function that splits a stream into events or lines, depending on `content_type`.

    It takes a chunk, or b"" at the end of the stream, and returns the events or lines that the chunk completes. It
    raises EventTooLarge.
    """
    if essence_of(content_type) == "text/event-stream":
        decoder = EventDecoder(MAX_EVENT_BYTES)
        # The empty lines at the end complete the last event if the endpoint did not send an empty line after it.
        return lambda chunk: [event.data for event in decoder.feed(chunk or b"\n\n")]
    pending: list[bytes] = []
    size = begin = 0

    def add(part: bytes) -> None:
        nonlocal size
        pending.append(part)
        size += len(part)
        if size > MAX_EVENT_BYTES:
            raise EventTooLarge(f"a line is larger than {MAX_EVENT_BYTES} bytes")

    def lines(chunk: bytes) -> list[bytes]:
        nonlocal size, begin
        *ends, rest = (chunk or b"\n").split(b"\n")
        complete_lines: list[bytes] = []
        for end in ends:
            add(end)
            line = b"".join(pending[begin:]).rstrip()
            # An endpoint that does not stream may write its answer in several lines, from `{` to `}`.
            if chunk and (line != b"}" if begin else line == b"{"):
                begin = len(pending)
                continue
            complete_lines.append(b"".join(pending).strip())
            pending.clear()
            size = begin = 0
        add(rest)
        return [line for line in complete_lines if line]

    return lines

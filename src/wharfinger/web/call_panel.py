"""The panel of a tool, a prompt or a template: a form for its arguments, its progress and questions, and its result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import ToolError, WharfingerError
from wharfinger.net import page_host
from wharfinger.protocol.uri.template import InvalidTemplate, UriTemplate
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.html_elements import HtmlElement, name_text, node
from wharfinger.web.preview import ContentPreview, show_blocks
from wharfinger.web.schema_fields import FormField, arguments_of, fields_of, fields_of_prompt
from wharfinger.web.server_connections import ServerConnections
from wharfinger.web.vue_elements import CallForm

__all__ = ["CallPanel"]

MAX_MESSAGE_CHARACTERS = 4_000
QUESTION_SECONDS = 600.0
"""Longest time that a question waits for an answer; then it is cancelled."""

Run = Callable[[dict[str, Any]], Awaitable[Sequence[Any]]]
"""Runs the action of the form, and returns the blocks of the result."""


class CallPanel:
    """Shows a form in an element of the page, and the result of the call."""

    def __init__(
        self, container: HtmlElement, connections: ServerConnections, shelf: ContentShelf, visitor: str, server: str
    ) -> None:
        self._container = container
        self._connections = connections
        self._shelf = shelf
        self._visitor = visitor
        self._server = server
        self._running: asyncio.Task[None] | None = None
        self._question_lock = asyncio.Lock()
        """Held by the question that is shown; the other questions wait for it."""
        self._answer: asyncio.Future[Any] | None = None
        """The answer to the question that was shown last."""
        self._previews: list[ContentPreview] = []

    def show_tool(self, tool: t.Tool) -> None:
        """Show the form of a tool, and its declared effects."""

        async def run(arguments: dict[str, Any]) -> Sequence[Any]:
            call = await self._client().call_tool(
                tool.name, arguments, progress=self._show_progress, reset_on_progress=True
            )
            result: t.CallToolResult = call.result
            if result.structured_content is UNSET or result.content:
                return result.content
            return [t.TextContent(text=json.dumps(result.structured_content, indent=2, ensure_ascii=False))]

        effects = _effects_text(tool)
        fields = fields_of(tool.input_schema)
        self._show(tool.title or tool.name, tool.name, tool.description, effects, fields, "Call", run, is_call=True)

    def show_prompt(self, prompt: t.Prompt) -> None:
        """Show the form of a prompt."""

        async def run(arguments: dict[str, Any]) -> Sequence[Any]:
            result = await self._client().get_prompt(prompt.name, arguments)
            return [message.content for message in result.messages]

        self._show(
            prompt.title or prompt.name, prompt.name, prompt.description, "", fields_of_prompt(prompt), "Fill in", run
        )

    def show_template(self, template: t.ResourceTemplate, open_uri: Callable[[str], None]) -> None:
        """Show the form of a template; `open_uri` is called with the URI that the variables make."""
        text = template.uri_template
        try:
            variables = UriTemplate(text).variables
        except InvalidTemplate:
            variables = ()
        fields = [FormField(name, name_text(name, 200), "", "text", False, "") for name in variables]

        async def run(arguments: dict[str, Any]) -> Sequence[Any]:
            open_uri(await self._client().template(text).uri(**arguments))
            return ()

        self._show(template.title or template.name, text, template.description, "", fields, "Open", run)

    def _client(self) -> Any:
        upstream = self._connections.server(self._server)
        if upstream is None:
            raise WharfingerError("This server is no longer there.")
        return upstream.client

    def _show(
        self,
        title: str,
        name: str,
        description: Any,
        effects: str,
        fields: list[FormField],
        button: str,
        run: Run,
        *,
        is_call: bool = False,
    ) -> None:
        async def submit(_: str, values: dict[str, Any]) -> None:
            arguments, errors = arguments_of(fields, values)
            busy = self._running is not None and not self._running.done()
            if errors or busy:
                self._form.show(errors=errors, busy=busy)
                return
            self._running = asyncio.get_running_loop().create_task(self._run(run, arguments))

        self._container.clear()
        with self._container:
            node("h2", name_text(str(title)), dir="auto")
            node("p", name_text(name, 2000), classes="uri")
            if effects:
                node("p", effects, classes="detail")
            if isinstance(description, str) and description:
                node("p", _multiline_text(description), classes="description", dir="auto")
            if self._connections.read_only and is_call:
                node("p", "This is another principal's view: tools cannot be called here.")
                return
            self._form = CallForm([field.for_browser() for field in fields], [button], submit)
            self._state = node("p", "", role="status", classes="state")
            self._bar = node("progress", max=1, aria_label="Progress")
            self._bar.set_visibility(False)
            self._stop_button = node("button", "Stop", type="button").on("click", self.stop, args=[])
            self._stop_button.set_visibility(False)
            self._question = node("section", classes="question")
            self._result = node("section", classes="result", aria_label="Result")

    async def _run(self, run: Run, arguments: dict[str, Any]) -> None:
        self._form.show(busy=True)
        self._state.text = "Running …"
        self._stop_button.set_visibility(True)
        self._close_previews()
        self._result.clear()
        try:
            state = "Done."
            try:
                with self._connections.questions[self._server].shown_by(self._ask):
                    blocks = await run(arguments)
            except ToolError as error:
                state = f"The tool failed: {name_text(str(error), MAX_MESSAGE_CHARACTERS)}"
                blocks = error.result.content if error.result is not None else ()
            self._state.text = state
            with self._result:
                await show_blocks(self._shelf, self._visitor, blocks, self._previews)
        except asyncio.CancelledError:
            self._state.text = "Stopped."
        except (WharfingerError, ValueError, TypeError) as error:
            self._state.text = name_text(str(error), MAX_MESSAGE_CHARACTERS) or type(error).__name__
        finally:
            self._bar.set_visibility(False)
            self._stop_button.set_visibility(False)
            if self._answer is not None and not self._answer.done():
                self._answer.set_result("cancel")
            self._form.show()

    def _show_progress(self, done: float, total: float | None, message: str | None) -> None:
        self._bar.set_visibility(True)
        if total:
            self._bar.props["value"] = max(0.0, min(1.0, done / total))
        else:
            self._bar.props.pop("value", None)  # without a value, the bar only moves
        self._bar.update()
        text = name_text(message, 500) if message else f"{done:g}{f' of {total:g}' if total else ''}"
        self._state.text = text

    async def _ask(self, params: t.ElicitRequestParams, is_certain: bool) -> Any:
        """Show a question of the server when no other one is shown, and wait for the answer.

        `is_certain` is False if another call may have caused the question. The end of the call cancels its questions.
        """
        call = self._running
        async with self._question_lock:
            if call is None or call.done():
                return "cancel"
            self._answer = answer = asyncio.get_running_loop().create_future()
            try:
                with self._question:
                    node("h3", f"{name_text(self._server)} asks")
                    if not is_certain:
                        node("p", "Several calls to this server are running, and it does not say which of them asks.")
                    node("p", _multiline_text(params.message), dir="auto")
                    if params.mode == "url" and isinstance(params.url, str):
                        self._ask_to_open(params.url, answer)
                    else:
                        self._ask_form(params, answer)
                async with asyncio.timeout(QUESTION_SECONDS):
                    return await answer
            except TimeoutError:
                return "cancel"
            finally:
                self._question.clear()

    def _ask_form(self, params: t.ElicitRequestParams, answer: asyncio.Future[Any]) -> None:
        fields = fields_of(msgspec.to_builtins(params.requested_schema))

        async def submit(button: str, values: dict[str, Any]) -> None:
            if answer.done():
                return
            if button != "Answer":
                answer.set_result({"Decline": "decline"}.get(button, "cancel"))
                return
            answers, errors = arguments_of(fields, values)
            if errors:
                form.show(errors=errors)
            else:
                answer.set_result(answers)

        form = CallForm([field.for_browser() for field in fields], ["Answer", "Decline", "Cancel"], submit)

    def _ask_to_open(self, url: str, answer: asyncio.Future[Any]) -> None:
        """Show the URL. It becomes a link only if it is of http or https and names a host."""
        node("p", name_text(url, 4000), classes="uri")

        def set_answer(value: bool) -> None:
            if not answer.done():
                answer.set_result(value)

        host = page_host(url)
        if host:
            link = node("a", f"Open {name_text(host)}", href=url, target="_blank", rel="noopener noreferrer")
            link.on("click", lambda: set_answer(True), args=[])
        node("button", "Decline", type="button").on("click", lambda: set_answer(False), args=[])

    def stop(self) -> None:
        """Cancel the call."""
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        """Cancel the running call, and forget its result."""
        self.stop()
        self._close_previews()

    def _close_previews(self) -> None:
        for preview in self._previews:
            preview.close()
        self._previews.clear()


def _multiline_text(text: str) -> str:
    """Return text of a server for people, as `name_text` does, but longer and with its line breaks."""
    return "\n".join(name_text(line, MAX_MESSAGE_CHARACTERS) for line in text[:MAX_MESSAGE_CHARACTERS].splitlines())


def _effects_text(tool: t.Tool) -> str:
    """Return a sentence with the effects of a tool that the server declares, or an empty string."""
    hints = tool.annotations
    if not isinstance(hints, t.ToolAnnotations):
        return ""
    effects = [
        text
        for name, text in (
            ("read_only_hint", "only reads"),
            ("destructive_hint", "may destroy data"),
            ("idempotent_hint", "can safely be repeated"),
            ("open_world_hint", "reaches other systems"),
        )
        if getattr(hints, name) is True
    ]
    return f"According to the server, this tool {', '.join(effects)}." if effects else ""

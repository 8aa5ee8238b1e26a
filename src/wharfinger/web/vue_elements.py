"""The elements of the page that have JavaScript of their own, and the events that they send.

They are made of render functions, which need no compiler in the browser, so that the Content-Security-Policy can forbid
`eval`. For the same reason the page uses none of NiceGUI's elements with a template, and never `run_javascript`.
Every event comes from a browser, and is checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from nicegui.element import Element
from nicegui.events import GenericEventArguments

__all__ = ["CallForm", "MarkdownView", "ResourceTree", "SearchBox", "TreeRow"]

TreeRow = dict[str, Any]
"""A row: `key`, `kind`, `level`, `label`, and perhaps `expanded`, `detail`, `badge`, `title`, `position`."""
MAX_KEY_CHARACTERS = 64 * 1024


class ResourceTree(Element, component="resource_tree.js"):
    """A tree. `toggle` and `choose` are called with the key of a row."""

    def __init__(
        self, label: str, toggle: Callable[[str], Awaitable[None]], choose: Callable[[str], Awaitable[None]]
    ) -> None:
        super().__init__()
        self.props["rows"] = []
        self.props["label"] = label
        self.props["selected"] = ""
        for name, function in (("toggle", toggle), ("choose", choose)):
            self.on(name, _with_key(function))

    def show(self, rows: Sequence[TreeRow], selected: str) -> None:
        """Show these rows."""
        self.props["rows"] = list(rows)
        self.props["selected"] = selected
        self.update()


def _with_key(function: Callable[[str], Awaitable[None]]) -> Callable[[GenericEventArguments], Awaitable[None]]:
    """Return an event handler that calls a function with the key of the row."""

    async def call(event: GenericEventArguments) -> None:
        if isinstance(event.args, str) and len(event.args) <= MAX_KEY_CHARACTERS:
            await function(event.args)

    return call


class SearchBox(Element, component="search_box.js"):
    """A search field; `search` is called with the words, and whether contents are searched too."""

    def __init__(self, search: Callable[[str, bool], Awaitable[None]], *, contents: bool) -> None:
        super().__init__()
        self.props["status"] = ""
        self.props["canSearchContents"] = contents

        async def call(event: GenericEventArguments) -> None:
            if isinstance(event.args, dict):
                sent = cast("dict[str, Any]", event.args)
                await search(str(sent.get("words", ""))[:500], sent.get("contents") is True)

        self.on("search", call)

    def say(self, status: str) -> None:
        """Show a status, such as the number of results."""
        self.props["status"] = status
        self.update()


class CallForm(Element, component="call_form.js"):
    """A form. `submit` is called with the label of the button and the values, as they were typed."""

    _form_count = 0

    def __init__(
        self,
        fields: Sequence[dict[str, Any]],
        buttons: Sequence[str],
        submit: Callable[[str, dict[str, Any]], Awaitable[None]],
    ) -> None:
        super().__init__()
        CallForm._form_count += 1
        self.props.update({"name": f"form{CallForm._form_count}", "fields": list(fields), "buttons": list(buttons)})
        self.props.update({"errors": {}, "busy": False})

        async def call(event: GenericEventArguments) -> None:
            if isinstance(event.args, dict):
                sent = cast("dict[str, Any]", event.args)
                if sent.get("button") in buttons and isinstance(sent.get("values"), dict):
                    await submit(sent["button"], sent["values"])

        self.on("submitted", call)

    def show(self, *, errors: dict[str, str] | None = None, busy: bool = False) -> None:
        """Show the errors of values, and whether the form is being submitted."""
        self.props.update({"errors": errors or {}, "busy": busy})
        self.update()


class MarkdownView(Element, component="markdown_view.js"):
    """HTML that `markdown_html` made from Markdown."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.props["html"] = html

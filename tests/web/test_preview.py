"""Previews in a page that no browser shows: the ways to show a content, and what overlaps."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from tests.conftest import absent
from wharfinger import types as t
from wharfinger.web.content_shelf import ContentShelf


@contextmanager
def page() -> Generator[Any]:
    """Open a page, and return an empty element of it."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from nicegui import Client, ui

    from wharfinger.web.html_elements import node

    with Client(ui.page("/")) as client:
        yield node("main")
    client.delete()


def contents(mime_type: str, text: str) -> t.ResourceContents:
    return t.ResourceContents(uri="log://today", mime_type=mime_type, text=text)


def pressed(container: Any) -> dict[str, str]:
    """Return the buttons of the ways to show a content, and whether they are pressed."""
    return {each.text: each.props["aria-pressed"] for each in container.descendants() if "aria-pressed" in each.props}


def test_the_button_of_the_shown_way_is_pressed_also_after_the_type_has_changed() -> None:
    async def test() -> None:
        from wharfinger.web.preview import ContentPreview

        with page() as container:
            preview = ContentPreview(ContentShelf(), "visitor", name="log://today")
            await preview.show(container, contents("text/markdown", "# One"))
            [button] = [each for each in container.descendants() if getattr(each, "text", "") == "Markdown"]
            [listener] = vars(button)["_event_listeners"].values()
            await listener.handler()  # as a click
            await preview.show(container, contents("application/json", "{}"))
            assert pressed(container) == {"JSON": "true", "Text": "false"}

    asyncio.run(test())


def test_of_two_contents_that_are_shown_at_once_the_newer_one_stays() -> None:
    async def test() -> None:
        from wharfinger.web.preview import ContentPreview

        with page() as container:
            preview = ContentPreview(ContentShelf(), "visitor", name="log://today")
            for kind, one, two in (
                ("application/json", "[1]", "[2]"),
                ("text/csv", "one", "two"),
                ("text/markdown", "one", "two"),
            ):
                before = set(container.client.elements)
                await asyncio.gather(
                    preview.show(container, contents(kind, one)), preview.show(container, contents(kind, two))
                )
                added = set(container.client.elements) - before
                assert added <= {each.id for each in container.descendants()}, kind

    asyncio.run(test())

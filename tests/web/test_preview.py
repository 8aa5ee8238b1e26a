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


def test_an_empty_text_has_no_lines() -> None:
    """A bug: it had "Lines 1 to 1 of 0"."""

    async def test() -> None:
        from wharfinger.web.preview import ContentPreview

        with page() as container:
            await ContentPreview(ContentShelf(), "visitor", name="log://today").show(container, contents("", ""))
            assert [each.text for each in container.descendants() if each.tag == "span"] == ["No lines"]

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


def test_what_a_stopped_call_has_shown_can_be_taken_from_the_shelf() -> None:
    """A bug: if a call was stopped while its result was shown, its images stayed on the shelf."""

    async def test() -> None:
        from wharfinger.web.preview import ContentPreview, show_blocks

        shelf = ContentShelf()
        previews: list[ContentPreview] = []
        image = t.ImageContent(data=b"\x89PNG\r\n\x1a\n" + bytes(64), mime_type="image/png")
        text = t.EmbeddedResource(resource=contents("text/markdown", "# One"))

        async def show(container: Any) -> None:
            with container:
                await show_blocks(shelf, "visitor", [image, text], previews)

        with page() as container:
            showing = asyncio.create_task(show(container))
            while len(previews) < 2 and not showing.done():
                await asyncio.sleep(0)
            showing.cancel()
            await asyncio.wait([showing])
            assert showing.cancelled()
            assert shelf._items
            for preview in previews:
                preview.close()
            assert not shelf._items

    asyncio.run(test())

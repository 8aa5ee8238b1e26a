"""The text of the slides of a PPTX file: titles, texts, tables, charts and notes. Runs in the child process."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from pptx import Presentation
from pptx.enum.shapes import PP_PLACEHOLDER

from wharfinger.sources.document_text.markdown_table import markdown_table
from wharfinger.sources.document_text.page_list import PageList
from wharfinger.sources.document_text.zip_bounds import open_zip

__all__ = ["example", "read_pptx"]

_LISTS = (PP_PLACEHOLDER.BODY, PP_PLACEHOLDER.OBJECT)
"""Placeholders whose paragraphs are the items of a list."""
_SKIPPED = (PP_PLACEHOLDER.SLIDE_NUMBER, PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.FOOTER)


def read_pptx(data: bytes, pages: PageList) -> None:
    """Add the text of each slide.

    Raises:
        Refused: the archive is encrypted or damaged, or exceeds a bound.
        TooMuchText: it has more pages or text than `pages` takes.
    """
    open_zip(data).close()
    presentation: Any = Presentation(io.BytesIO(data))
    for slide in presentation.slides:
        title = slide.shapes.title
        blocks = [f"# {' '.join(title.text_frame.text.split())}"] if title is not None and title.has_text_frame else []
        # Not compared by their ids, which some programs repeat.
        blocks += _blocks(shape for shape in slide.shapes if title is None or shape.element is not title.element)
        if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None and frame.text.strip():
            blocks += ["## Notes", frame.text]
        pages.add("\n\n".join([block for block in blocks if block.strip(" #")]))


def _blocks(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if shape.is_placeholder and shape.placeholder_format.type in _SKIPPED:
            continue
        if hasattr(shape, "shapes"):  # a group
            yield from _blocks(shape.shapes)
        elif getattr(shape, "has_table", False):
            yield markdown_table(
                [["" if cell.is_spanned else cell.text for cell in row.cells] for row in shape.table.rows]
            )
        elif getattr(shape, "has_chart", False):
            with suppress(AttributeError, LookupError, TypeError, ValueError, NotImplementedError):  # a rare kind
                yield _chart(shape.chart)
        elif shape.has_text_frame:
            is_list = shape.is_placeholder and shape.placeholder_format.type in _LISTS
            paragraphs = [paragraph for paragraph in shape.text_frame.paragraphs if paragraph.text.strip()]
            yield "\n".join(
                [
                    f"{'  ' * paragraph.level}- {paragraph.text}" if is_list else paragraph.text
                    for paragraph in paragraphs
                ]
            )


def _chart(chart: Any) -> str:
    """Return the title of a chart, and its numbers as a table."""
    title = chart.chart_title.text_frame.text if chart.has_title and chart.chart_title.has_text_frame else ""
    series = list(chart.series)
    values = [list(each.values) for each in series]
    categories = [str(category) for category in chart.plots[0].categories]
    places = [_x_values(each, len(numbers)) or categories for each, numbers in zip(series, values, strict=True)]
    if all(each == places[0] for each in places):
        rows = [["", *[each.name for each in series]]]
        for place, *numbers in zip_longest(places[0] if places else categories, *values):
            rows.append([place or "", *map(_number, numbers)])
    else:  # the series of a scatter chart have x values of their own
        rows = [["", "x", "y"]]
        for each, xs, ys in zip(series, places, values, strict=True):
            rows += [[each.name, x or "", _number(y)] for x, y in zip_longest(xs, ys)]
    return "\n\n".join(filter(None, [title, markdown_table(rows)]))


def _x_values(series: Any, count: int) -> list[str]:
    """Return the x values of the points of a scatter chart; an empty list for another kind of chart."""
    texts = {int(point.get("idx")): point.findtext("{*}v") or "" for point in series._element.xpath("c:xVal//c:pt")}
    xs: list[str] = []
    for text in map(texts.get, range(count) if texts else ()):
        try:
            xs.append(_number(None if text is None else float(text)))
        except ValueError:  # the x values may be texts
            xs.append(text or "")
    return xs


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.15g}"


def example() -> bytes:
    """Return a document to parse first, so that the library is loaded."""
    presentation: Any = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "title"
    slide.shapes.add_table(1, 1, 0, 0, 1, 1).table.cell(0, 0).text = "cell"
    slide.notes_slide.notes_text_frame.text = "note"
    data = io.BytesIO()
    presentation.save(data)
    return data.getvalue()

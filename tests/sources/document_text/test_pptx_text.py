"""The text of PPTX files equals the text that was written into them, and hostile files are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pptx
import pytest
from pptx.chart.data import BubbleChartData, CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from tests.sources.document_text.document_builders import docx_of, pptx_of, to_bytes, zip_of
from wharfinger.errors import InvalidArgument
from wharfinger.sources.folder.source import Folder

PagesOf = Callable[[str, bytes], list[str]]
INCH = Inches(1)


def test_each_slide_is_a_page_with_title_text_and_notes(pages_of: PagesOf) -> None:
    presentation: Any = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "Tides\nof the north"
    frame = slide.placeholders[1].text_frame
    frame.text = "High water"
    paragraph = frame.add_paragraph()
    paragraph.text, paragraph.level = "at 14:20", 1
    slide.notes_slide.notes_text_frame.text = "Say where.\nThen when."
    presentation.slides.add_slide(presentation.slide_layouts[6])
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    slide.shapes.add_textbox(0, 0, INCH, INCH).text_frame.text = "free text"
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, INCH, INCH).text_frame.text = "grouped"
    assert pages_of("a.pptx", to_bytes(presentation)) == [
        "# Tides of the north\n\n- High water\n  - at 14:20\n\n## Notes\n\nSay where.\nThen when.",
        "",
        "free text\n\ngrouped",
    ]


def test_tables_and_charts_become_markdown(pages_of: PagesOf) -> None:
    presentation: Any = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = slide.shapes.add_table(2, 3, 0, 0, INCH, INCH).table
    for row, texts in enumerate([("port", "depth", ""), ("Bodø", "7.5 | low", "m")]):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(0, 1).merge(table.cell(0, 2))
    numbers: Any = CategoryChartData()
    numbers.categories = ["May", "June"]
    numbers.add_series("metres", (3.25, None))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, INCH, INCH, numbers).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "Depths"
    (page,) = pages_of("a.pptx", to_bytes(presentation))
    assert page == (
        "| port | depth |  |\n| --- | --- | --- |\n| Bodø | 7.5 \\| low | m |\n\n"
        "Depths\n\n|  | metres |\n| --- | --- |\n| May | 3.25 |\n| June |  |"
    )


def test_a_chart_has_the_series_of_all_its_kinds_with_all_digits(pages_of: PagesOf) -> None:
    presentation: Any = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    charts = []
    for kind, name, value in (
        (XL_CHART_TYPE.COLUMN_CLUSTERED, "income", 1234567.25),
        (XL_CHART_TYPE.LINE, "ships", 1000001),
    ):
        numbers: Any = CategoryChartData()
        numbers.categories = ["May"]
        numbers.add_series(name, (value,))
        charts.append(slide.shapes.add_chart(kind, 0, 0, INCH, INCH, numbers))
    columns, lines = [chart.chart._chartSpace.plotArea for chart in charts]
    columns.insert_element_before(next(lines.iter_xCharts()), "c:catAx")
    charts[1].element.getparent().remove(charts[1].element)
    (page,) = pages_of("a.pptx", to_bytes(presentation))
    assert page == "|  | income | ships |\n| --- | --- | --- |\n| May | 1234567.25 | 1000001 |"


@pytest.mark.parametrize("kind", [XL_CHART_TYPE.XY_SCATTER, XL_CHART_TYPE.BUBBLE])
def test_a_scatter_chart_has_its_x_values(pages_of: PagesOf, kind: Any) -> None:
    """A bug: only the y values were in the text."""
    points = {"sea": [(0.5, 3), (1.25, None), (4, 7)], "quay": [(0.5, 1), (1.25, 2), (4, 3)]}
    for quay in (points["quay"], [(9, 1)]):
        numbers: Any = XyChartData() if kind == XL_CHART_TYPE.XY_SCATTER else BubbleChartData()
        for name, places in (("sea", points["sea"]), ("quay", quay)):
            series = numbers.add_series(name)
            for place in places:
                series.add_data_point(*place, *([] if kind == XL_CHART_TYPE.XY_SCATTER else [1]))
        presentation: Any = pptx.Presentation()
        slide = presentation.slides.add_slide(presentation.slide_layouts[6])
        slide.shapes.add_chart(kind, 0, 0, INCH, INCH, numbers)
        (page,) = pages_of("a.pptx", to_bytes(presentation))
        if quay == points["quay"]:
            rows = "|  | sea | quay |", "| --- | --- | --- |", "| 0.5 | 3 | 1 |", "| 1.25 |  | 2 |", "| 4 | 7 | 3 |"
        else:
            rows = (
                *("|  | x | y |", "| --- | --- | --- |"),
                *("| sea | 0.5 | 3 |", "| sea | 1.25 |  |", "| sea | 4 | 7 |", "| quay | 9 | 1 |"),
            )
        assert page == "\n".join(rows)


def test_a_text_with_the_id_of_the_title_is_read(pages_of: PagesOf) -> None:
    presentation: Any = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[5])
    slide.shapes.title.text = "Tides"
    box = slide.shapes.add_textbox(0, 0, INCH, INCH)
    box.text_frame.text = "High water"
    box.element.nvSpPr.cNvPr.set("id", str(slide.shapes.title.shape_id))
    assert pages_of("a.pptx", to_bytes(presentation)) == ["# Tides\n\nHigh water"]


def test_a_presentation_without_slides_has_an_empty_text(published: Folder, papers: Path) -> None:
    (papers / "a.pptx").write_bytes(to_bytes(pptx.Presentation()))
    text, remark = published.read(f"{published.uri}/a.pptx?text").contents
    assert (text.text, remark.text) == ("", "\n[It has no slides.]\n")
    with pytest.raises(InvalidArgument, match="has 0 slides, and no slide 1"):
        published.read(f"{published.uri}/a.pptx?pages=1")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pptx_of(("a", "b"))[:-200], "it is damaged"),
        (docx_of("text"), "it is damaged"),
        (zip_of({"a": "b"}), "it is damaged"),
        (zip_of({"ppt/a.xml": b" " * (5 << 20)}), "more than 200 times as large"),
    ],
    ids=["truncated", "a DOCX", "no office file", "a bomb"],
)
def test_a_hostile_pptx_is_refused_and_the_next_file_is_read(
    published: Folder, papers: Path, data: bytes, reason: str
) -> None:
    (papers / "hostile.pptx").write_bytes(data)
    with pytest.raises(InvalidArgument, match=f"hostile.pptx has no text here, because .*{reason}"):
        published.read(f"{published.uri}/hostile.pptx?text")
    (papers / "good.pptx").write_bytes(pptx_of(("good", "text")))
    assert "# good" in str(published.read(f"{published.uri}/good.pptx?pages=1").contents[0].text)

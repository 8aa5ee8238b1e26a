"""Workbooks that no library would write, and files that are not workbooks."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from html import escape

__all__ = ["MAIN", "hostile_workbooks", "workbook"]

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPES = (
    f'<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/></Types>'
)


def workbook(
    sheet: str, *, strings: str = "<si><t>x</t></si>", names: Sequence[str] = ("S",), before: str = ""
) -> bytes:
    """Return a workbook with these shared strings, and with this XML in each sheet. `before` precedes each sheet."""
    data = io.BytesIO()
    numbered = list(enumerate(names, 1))
    sheets = "".join(f'<sheet name="{escape(name)}" sheetId="{n}" r:id="rId{n}"/>' for n, name in numbered)
    links = "".join(
        f'<Relationship Id="rId{n}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n, _ in numbered
    )
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" '
            f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{MAIN}" xmlns:r="{_OFFICE}"><sheets>{sheets}</sheets></workbook>'
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{_PACKAGE}/relationships">{links}<Relationship Id="rIdS" '
            f'Type="{_OFFICE}/sharedStrings" Target="sharedStrings.xml"/></Relationships>',
        )
        for n, _ in numbered:
            archive.writestr(f"xl/worksheets/sheet{n}.xml", f'{before}<worksheet xmlns="{MAIN}">{sheet}</worksheet>')
        archive.writestr("xl/sharedStrings.xml", f'<sst xmlns="{MAIN}">{strings}</sst>')
    return data.getvalue()


def hostile_workbooks() -> dict[str, tuple[bytes, str]]:
    """Return workbooks that cannot be read, each with a part of its error."""
    rows = "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 100_001))
    entities = '<!ENTITY a0 "lol">' + "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * (64 << 20))
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as archive:
        for n in range(20_001):
            archive.writestr(f"{n}", b"")
    return {
        "a far cell": (
            workbook(
                '<sheetData><row r="1"><c r="A1"><v>1</v></c></row>'
                '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
            ),
            "more than 1024 MiB of memory",
        ),
        "shared strings": (
            workbook(f"<sheetData>{rows}</sheetData>", strings=f"<si><t>{'x' * 32_000}</t></si>"),
            "more than",
        ),
        "entities": (
            workbook(
                '<sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>&a9;</t></is></c></row></sheetData>',
                before=f"<!DOCTYPE x [{entities}]>",
            ),
            "it is damaged",
        ),
        "entities beside an error": (
            workbook(
                '<sheetData><row r="1"><c r="A1" t="e"><v>#N/A</v></c></row></sheetData>',
                before=f"<!DOCTYPE x [{entities}]>",
            ),
            "document type",
        ),
        "an endless row": (
            workbook('<sheetData><row r="99999999999"><c r="ZZZZZZZ99999999"><v>1</v></c></row></sheetData>'),
            "longer than",
        ),
        "missing shared string": (
            workbook('<sheetData><row r="1"><c r="A1" t="s"><v>99</v></c></row></sheetData>'),
            "it is damaged",
        ),
        "row zero": (workbook('<sheetData><row r="0"><c r="A0"><v>1</v></c></row></sheetData>'), "it is damaged"),
        "a bomb": (bomb.getvalue(), "200 times as large"),
        "many files": (many.getvalue(), "20,001 files"),
        "not an archive": (b"PK nothing", "it is damaged"),
        "encrypted": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1_000), "it is encrypted"),
        "empty": (b"", "it is damaged"),
        "truncated": (workbook("<sheetData/>")[:-100], "it is damaged"),
        "CSV text": (b"a,b\n1,2\n", "it is damaged"),
    }

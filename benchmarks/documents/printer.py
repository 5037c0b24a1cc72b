"""Prints documents as PDF with WeasyPrint, in a layout of `print_layouts`.

The document becomes HTML and the layout CSS. The fonts are those of matplotlib, so that a print
does not depend on the fonts of the machine; only Chinese needs a font of the machine. A document is
laid out once. Then it is written several times: with bookmarks, with tags, or without both.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.documents.print_layouts import (
    HeadingStyle,
    HeadStyle,
    Outline,
    PrintLayout,
    TableStyle,
)
from benchmarks.documents.source_document import (
    Block,
    Cell,
    Code,
    Heading,
    Item,
    Paragraph,
    SourceDocument,
    Style,
    Table,
    Text,
    numbered,
    readable,
)

NEEDED = """\
The documents are printed by WeasyPrint: pip install 'hrag[bench]'. It needs Pango, which is the
package libpangoft2-1.0-0 on Debian, with libharfbuzz-subset0."""

_CHINESE = '"Noto Serif CJK SC", "Noto Sans CJK SC", "WenQuanYi Zen Hei"'
_TAGS = {
    Style.PLAIN: "{}",
    Style.BOLD: "<b>{}</b>",
    Style.ITALIC: "<i>{}</i>",
    Style.CODE: "<code>{}</code>",
    Style.RAISED: "<sup>{}</sup>",
}
_FONT_FILES = {
    "DejaVu Serif": ("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    "DejaVu Sans": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique"),
    "STIXGeneral": ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic"),
    "DejaVu Sans Mono": ("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique"),
}
_FACES = ("", "font-weight:bold", "font-style:italic")
# Up to this depth, a heading has a line in the contents page.
_CONTENTS_DEPTH = 3
_BODY_ANCHOR = "body-of-text"


class NoPrinter(Exception):
    """WeasyPrint or one of its libraries is not installed. The message says how to install it."""


@dataclass(frozen=True, slots=True)
class PrintedDocument:
    """The PDFs of a document, one for each outline, and what is on the pages beside the text.

    `document` is the document as it was printed: its headings have their printed numbers. `heads`
    are the texts that the edges of each page may have. The first `contents_page_count` pages are
    the contents pages.
    """

    document: SourceDocument
    layout: PrintLayout
    pdfs: dict[Outline, bytes]
    heads: tuple[tuple[str, ...], ...]
    contents_page_count: int

    @property
    def page_count(self) -> int:
        """The count of pages."""
        return len(self.heads)


def print_document(
    document: SourceDocument, layout: PrintLayout, outlines: Sequence[Outline] = tuple(Outline)
) -> PrintedDocument:
    """Prints a document once for each outline. Raises NoPrinter if WeasyPrint is not installed."""
    if layout.headings is HeadingStyle.NUMBERED:
        document = numbered(document)
    weasyprint = _weasyprint()
    fonts = weasyprint.text.fonts.FontConfiguration()
    rendered = weasyprint.HTML(string=_html(document, layout)).render(font_config=fonts)
    pdfs = {}
    bookmarks = [page.bookmarks for page in rendered.pages]
    for outline in outlines:
        for page, page_bookmarks in zip(rendered.pages, bookmarks, strict=True):
            page.bookmarks = page_bookmarks if outline is Outline.BOOKMARKS else []
        pdfs[outline] = rendered.write_pdf(pdf_tags=outline is Outline.TAGS)
    contents_page_count = next(
        number for number, page in enumerate(rendered.pages) if _BODY_ANCHOR in page.anchors
    )
    heads = tuple(_heads(document, layout, len(rendered.pages)))
    return PrintedDocument(document, layout, pdfs, heads, contents_page_count)


@cache
def _weasyprint() -> Any:
    try:
        import weasyprint  # noqa: PLC0415
        import weasyprint.text.fonts  # noqa: PLC0415
    except (ImportError, OSError) as error:  # OSError: Pango is missing.
        raise NoPrinter(f"{NEEDED}\n{error}") from None
    for name in ("weasyprint", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return weasyprint


# The following functions write the HTML of a document.


def _html(document: SourceDocument, layout: PrintLayout) -> str:
    blocks = list(document.blocks)
    title = ""
    first = blocks[0] if blocks else None
    if isinstance(first, Heading) and first.depth == 1:
        title = _heading(first, 0)
        del blocks[0]
    contents = _contents(document) if layout.has_contents else ""
    body = "\n".join(_body(blocks, document.notes, first_number=1 if title else 0))
    body_class = "after-contents" if contents else ""
    return (
        f'<!DOCTYPE html><html lang="{document.language}"><head>'
        f"<title>{escape(document.title)}</title><style>{_css(document, layout)}</style></head>"
        f'<body>{title}{contents}<main id="{_BODY_ANCHOR}" class="{body_class}">{body}</main>'
        "</body></html>"
    )


def _contents(document: SourceDocument) -> str:
    lines = (
        f'<div class="depth{heading.depth}"><a href="#h{number}">{_inline(heading.text)}</a></div>'
        for number, heading in enumerate(document.headings)
        if 1 < heading.depth <= _CONTENTS_DEPTH
    )
    return f'<nav><div class="contents">Contents</div>{"".join(lines)}</nav>'


def _body(blocks: Sequence[Block], notes: Sequence[Text], first_number: int) -> Iterator[str]:
    """Yields the HTML of blocks. Consecutive items become nested lists."""
    number = first_number
    open_lists: list[str] = []
    for block in blocks:
        if isinstance(block, Item):
            yield from _item(block, notes, open_lists)
            continue
        while open_lists:
            yield f"</li></{open_lists.pop()}>"
        if isinstance(block, Heading):
            yield _heading(block, number)
            number += 1
        else:
            yield _block(block, notes)
    while open_lists:
        yield f"</li></{open_lists.pop()}>"


def _item(item: Item, notes: Sequence[Text], open_lists: list[str]) -> Iterator[str]:
    """Yields the HTML of an item, with the ends and beginnings of lists before it."""
    kind = "ol" if item.number else "ul"
    while len(open_lists) > item.depth or (
        len(open_lists) == item.depth and (open_lists[-1] != kind or item.number == 1)
    ):
        yield f"</li></{open_lists.pop()}>"
    if len(open_lists) == item.depth:
        yield "</li>"
    while len(open_lists) < item.depth:
        open_lists.append(kind)
        start = f' start="{item.number}"' if item.number > 1 else ""
        # A list inside a list needs an item around it.
        yield f"<{kind}{start}>" + ("<li>" if len(open_lists) < item.depth else "")
    yield f"<li>{_inline(item.text, notes)}"


def _heading(heading: Heading, number: int) -> str:
    depth = min(heading.depth, 6)
    return f'<h{depth} id="h{number}">{_inline(heading.text)}</h{depth}>'


def _block(block: Block, notes: Sequence[Text]) -> str:
    match block:
        case Code():
            return f"<pre>{escape(block.text)}</pre>"
        case Table():
            head, body = _rows(block, "th"), _rows(block, "td")
            return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
        case Paragraph(is_quote=True):
            return f"<blockquote><p>{_inline(block.text, notes)}</p></blockquote>"
        case Paragraph():
            return f"<p>{_inline(block.text, notes)}</p>"
        case _:
            raise TypeError(block)


def _rows(table: Table, tag: str) -> str:
    """Returns the HTML of the rows of a table's header (`th`) or body (`td`)."""
    rows = table.header if tag == "th" else table.rows
    return "".join(
        "<tr>"
        + "".join(_cell(cell, tag, column in table.numeric) for column, cell in row)
        + "</tr>"
        for row in _placed(rows, len(table.names))
    )


def _cell(cell: Cell, tag: str, is_numeric: bool) -> str:
    kind = "spanning" if cell.columns > 1 else "number" if is_numeric else "text"
    spans = f' colspan="{cell.columns}" rowspan="{cell.rows}"'
    return f'<{tag} class="{kind}"{spans}>{escape(cell.text)}</{tag}>'


def _placed(rows: Sequence[Sequence[Cell]], width: int) -> Iterator[list[tuple[int, Cell]]]:
    """Yields the cells of each row, each with the index of its column."""
    covered = [0] * width
    for row in rows:
        cells = iter(row)
        placed: list[tuple[int, Cell]] = []
        column = 0
        while column < width:
            if covered[column]:
                covered[column] -= 1
                column += 1
                continue
            cell = next(cells)
            placed.append((column, cell))
            for spanned in range(column, column + cell.columns):
                covered[spanned] = cell.rows - 1
            column += cell.columns
        yield placed


def _inline(text: Text, notes: Sequence[Text] = ()) -> str:
    """Returns the HTML of a text. The text of a footnote stands where its mark will be."""
    parts = []
    for run in text:
        if run.style is Style.NOTE:
            note = _inline(notes[int(run.text) - 1])
            parts.append(f'<span class="note">{note}</span> ')
        else:
            escaped = escape(run.text).replace("\n", "<br>")
            parts.append(_TAGS[run.style].format(escaped))
    return "".join(parts)


# The following functions write the CSS of a layout.


def _css(document: SourceDocument, layout: PrintLayout) -> str:
    return "\n".join(
        (
            _font_faces(),
            _page_css(document, layout),
            _text_css(layout),
            _heading_css(layout),
            _table_css(layout),
        )
    )


@cache
def _font_faces() -> str:
    spec = find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise NoPrinter(NEEDED)
    folder = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"
    return "\n".join(
        f'@font-face{{font-family:"{family}";src:url("{(folder / name).as_uri()}.ttf");{face}}}'
        for family, names in _FONT_FILES.items()
        for name, face in zip(names, _FACES, strict=True)
    )


def _page_css(document: SourceDocument, layout: PrintLayout) -> str:
    title = json.dumps(document.title, ensure_ascii=False)
    boxes = {
        HeadStyle.NONE: "",
        HeadStyle.TITLE: f"@top-left{{content:{title}}}@bottom-center{{content:counter(page)}}",
        HeadStyle.SECTION: ("@top-left{content:string(section)}@top-right{content:counter(page)}"),
        HeadStyle.MIRRORED: "",
        HeadStyle.COUNTED: ('@bottom-right{content:"Page " counter(page) " of " counter(pages)}'),
    }[layout.heads]
    css = f"@page{{size:{layout.paper};margin:24mm 22mm;font-size:8pt;{boxes}}}"
    if layout.heads is HeadStyle.MIRRORED:
        css += (
            f"@page:left{{@top-left{{content:counter(page)}}@top-right{{content:{title}}}}}"
            f"@page:right{{@top-left{{content:{title}}}@top-right{{content:counter(page)}}}}"
        )
    if layout.heads in (HeadStyle.TITLE, HeadStyle.MIRRORED):
        css += "@page:first{@top-left{content:none}@top-right{content:none}}"
    return css


def _text_css(layout: PrintLayout) -> str:
    family = f'"{layout.family}", {_CHINESE}'
    spacing = "text-indent:1.5em;margin:0" if layout.is_indented else "margin:0 0 .7em"
    return f"""
html {{ font: {layout.size_pt}pt/1.3 {family} }}
body {{ margin: 0 }}
main {{ column-count: {layout.columns}; column-gap: 8mm; column-fill: auto }}
main.after-contents {{ break-before: page }}
p {{ {spacing}; orphans: 2; widows: 2; overflow-wrap: break-word;
  text-align: {"justify" if layout.is_justified else "left"} }}
p, li {{ hyphens: {"auto" if layout.is_hyphenated else "manual"} }}
ul, ol {{ margin: .4em 0; padding-left: 2em }}
blockquote {{ margin: .6em 2em; font-style: italic }}
code, pre {{ font-family: "DejaVu Sans Mono"; font-size: .85em; hyphens: manual }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: .6em 0 }}
sup {{ font-size: .7em; line-height: 1 }}
.note {{ float: footnote; font-size: .8em; hyphens: manual }}
nav a {{ color: inherit; text-decoration: none }}
nav a::after {{ content: leader(dotted) target-counter(attr(href), page) }}
nav .contents {{ font-weight: bold; font-size: 1.3em; margin-bottom: .8em }}
nav .depth3 {{ padding-left: 1.5em }}"""


_HEADING_SIZES = {
    HeadingStyle.SIZED: (1.9, 1.45, 1.2, 1.05),
    HeadingStyle.LIGHT: (2.0, 1.6, 1.35, 1.15),
    HeadingStyle.NUMBERED: (1.7, 1.3, 1.0, 1.0),
    HeadingStyle.SANS: (1.7, 1.35, 1.15, 1.0),
}


def _heading_css(layout: PrintLayout) -> str:
    weight = "normal" if layout.headings is HeadingStyle.LIGHT else "bold"
    family = 'font-family: "DejaVu Sans";' if layout.headings is HeadingStyle.SANS else ""
    sizes = _HEADING_SIZES[layout.headings]
    css = (
        f"h1,h2,h3,h4,h5,h6{{font-weight:{weight};{family}hyphens:manual;text-align:left;"
        "line-height:1.2;margin:1em 0 .5em;break-after:avoid}"
        "h1{margin-top:0}h2{string-set:section content(text)}h5,h6{font-style:italic;font-size:1em}"
    )
    return css + "".join(f"h{depth}{{font-size:{size}em}}" for depth, size in enumerate(sizes, 1))


def _table_css(layout: PrintLayout) -> str:
    css = (
        "table{border-collapse:collapse;margin:.8em 0;hyphens:manual;font-size:.9em}"
        "td,th{padding:.8mm 2mm;text-align:left;vertical-align:top}"
        "th.spanning{text-align:center}td.number,th.number{text-align:right}tr{break-inside:avoid}"
    )
    if layout.columns == 2:
        css += "table{break-inside:avoid}td,th{padding:.6mm 1.2mm}"
    match layout.tables:
        case TableStyle.GRID:
            css += "td,th{border:.5pt solid black}"
        case TableStyle.SHADED:
            css += "td,th{border:.5pt solid #888}th{background:#ddd}"
        case TableStyle.RULES:
            css += (
                "table{border-top:1pt solid;border-bottom:1pt solid}thead{border-bottom:.5pt solid}"
            )
    return css


def _heads(
    document: SourceDocument, layout: PrintLayout, page_count: int
) -> Iterator[tuple[str, ...]]:
    """Yields the texts that the edges of each page may have."""
    sections = [readable(heading.text) for heading in document.headings if heading.depth == 2]
    for number in range(1, page_count + 1):
        match layout.heads:
            case HeadStyle.NONE:
                yield ()
            case HeadStyle.SECTION:
                yield (*dict.fromkeys(sections), str(number))
            case HeadStyle.COUNTED:
                yield (f"Page {number} of {page_count}",)
            case _:
                yield document.title, str(number)

"""OpenDocument files that are written element by element."""

from collections.abc import Mapping

from tests.support.documents.format_files import archive

_NAMES = ("office", "style", "text", "table", "drawing", "form", "presentation", "meta")
_ODF = "urn:oasis:names:tc:opendocument:xmlns"
NAMESPACES = " ".join(
    (
        *(f'xmlns:{"draw" if name == "drawing" else name}="{_ODF}:{name}:1.0"' for name in _NAMES),
        f'xmlns:svg="{_ODF}:svg-compatible:1.0"',
        'xmlns:xlink="http://www.w3.org/1999/xlink"',
        'xmlns:dc="http://purl.org/dc/elements/1.1/"',
        'xmlns:loext="urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0"',
        'xmlns:field="urn:openoffice:names:experimental:ooo-ms-interop:xmlns:field:1.0"',
    )
)


def odt_file(body: str, styles: str = "", title: str = "", **other_files: str) -> bytes:
    """Returns a text whose body has the markup `body`.

    `styles` is the markup of its styles, and `title` the title in its metadata. `other_files` are
    added to the archive.
    """
    return _file("text", body, styles, title, other_files)


def odp_file(body: str, styles: str = "", title: str = "") -> bytes:
    """Returns a presentation whose body has the markup `body`."""
    return _file("presentation", body, styles, title, {})


def paragraph(content: str, style: str = "") -> str:
    """Returns the markup of a paragraph."""
    return f'<text:p text:style-name="{style}">{content}</text:p>'


def heading(content: str, depth: int = 1, attributes: str = "") -> str:
    """Returns the markup of a heading."""
    return f'<text:h text:outline-level="{depth}" {attributes}>{content}</text:h>'


def list_of(*items: str, attributes: str = "") -> str:
    """Returns the markup of a list. Content that is no markup becomes a paragraph in its item."""
    return f"<text:list {attributes}>{''.join(map(item, items))}</text:list>"


def item(*content: str, attributes: str = "") -> str:
    """Returns the markup of an item; markup of an item is returned as it is."""
    if content[0].startswith(("<text:list-item", "<text:list-header")):
        return content[0]
    markup = "".join(part if part.startswith("<") else paragraph(part) for part in content)
    return f"<text:list-item {attributes}>{markup}</text:list-item>"


def table(*rows: str) -> str:
    """Returns the markup of a table."""
    return f"<table:table>{''.join(rows)}</table:table>"


def row(*cells: str, attributes: str = "") -> str:
    """Returns the markup of a row. Content that is no markup becomes a cell."""
    markup = "".join(part if part.startswith("<") else cell(part) for part in cells)
    return f"<table:table-row {attributes}>{markup}</table:table-row>"


def cell(content: str, attributes: str = "") -> str:
    """Returns the markup of a cell. Content that is no markup becomes a paragraph."""
    markup = content if content.startswith("<") else paragraph(content)
    return f"<table:table-cell {attributes}>{markup}</table:table-cell>"


def text_style(name: str, properties: str, family: str = "text") -> str:
    """Returns the markup of a style with properties of text."""
    return (
        f'<style:style style:name="{name}" style:family="{family}">'
        f"<style:text-properties {properties}/></style:style>"
    )


def list_style(name: str, *levels: str) -> str:
    """Returns the markup of a style of lists."""
    return f'<text:list-style style:name="{name}">{"".join(levels)}</text:list-style>'


def level(index: int, format_: str, suffix: str = ".", shown: int = 1, kind: str = "list") -> str:
    """Returns the markup of a level of a list or, with the kind `outline`, of headings."""
    name = "text:list-level-style-number" if kind == "list" else "text:outline-level-style"
    return (
        f'<{name} text:level="{index}" style:num-format="{format_}"'
        f' style:num-suffix="{suffix}" text:display-levels="{shown}"/>'
    )


def _file(kind: str, body: str, styles: str, title: str, other_files: Mapping[str, str]) -> bytes:
    body = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    styles = f"<office:automatic-styles>{styles}</office:automatic-styles>"
    meta = f"<office:meta><dc:title>{title}</dc:title></office:meta>"
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": (
                f"<office:document-content {NAMESPACES}>{styles}{body}</office:document-content>"
            ),
            "meta.xml": f"<office:document-meta {NAMESPACES}>{meta}</office:document-meta>",
            **other_files,
        }
    )

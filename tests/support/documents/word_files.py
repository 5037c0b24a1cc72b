"""Word documents that are written element by element, with constructs that no library writes."""

from collections.abc import Mapping

from tests.support.documents.format_files import archive

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
NAMESPACES = (
    f'xmlns:w="{WORD}"'
    ' xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
    ' xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    ' xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml"'
    ' xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
    ' xmlns:v="urn:schemas-microsoft-com:vml"'
)


def word_file(body: str, other_files: Mapping[str, str] = {}, **parts: str) -> bytes:
    """Returns a document whose body has the markup `body`.

    `parts` has the markup of other parts by their names, for example `styles`. The root element of
    a part has the part's name. `other_files` are added to the archive as they are.
    """
    files = {
        "word/document.xml": f"<w:document {NAMESPACES}><w:body>{body}</w:body></w:document>",
        **other_files,
    }
    for name, markup in parts.items():
        files[f"word/{name}.xml"] = f"<w:{name} {NAMESPACES}>{markup}</w:{name}>"
    return archive(files)


def run(text: str, properties: str = "") -> str:
    """Returns the markup of a run of text."""
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*content: str, style: str = "", properties: str = "") -> str:
    """Returns the markup of a paragraph. Content that is no markup becomes a run."""
    style = f'<w:pStyle w:val="{style}"/>' if style else ""
    runs = "".join(part if part.startswith("<") else run(part) for part in content)
    return f"<w:p><w:pPr>{style}{properties}</w:pPr>{runs}</w:p>"


def item(text: str, num_id: int, level: int = 0) -> str:
    """Returns the markup of an item of a list."""
    return paragraph(
        text,
        properties=f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{num_id}"/></w:numPr>',
    )


def level(index: int, text: str, format_: str = "decimal", start: int = 1, extra: str = "") -> str:
    """Returns the markup of a level of a list's definition."""
    return (
        f'<w:lvl w:ilvl="{index}"><w:start w:val="{start}"/><w:numFmt w:val="{format_}"/>'
        f'{extra}<w:lvlText w:val="{text}"/></w:lvl>'
    )


def definition(definition_id: int, *levels: str) -> str:
    """Returns the markup of a definition of lists."""
    return f'<w:abstractNum w:abstractNumId="{definition_id}">{"".join(levels)}</w:abstractNum>'


def list_of(num_id: int, definition_id: int, overrides: str = "") -> str:
    """Returns the markup of a list that uses a definition."""
    return (
        f'<w:num w:numId="{num_id}"><w:abstractNumId w:val="{definition_id}"/>{overrides}</w:num>'
    )


def style(style_id: str, name: str, content: str = "", based_on: str = "", kind: str = "") -> str:
    """Returns the markup of a style. `content` has its properties."""
    base = f'<w:basedOn w:val="{based_on}"/>' if based_on else ""
    return (
        f'<w:style w:type="{kind or "paragraph"}" w:styleId="{style_id}">'
        f'<w:name w:val="{name}"/>{base}{content}</w:style>'
    )


def field(code: str, result: str = "") -> str:
    """Returns the markup of a field with several elements. `result` is markup or empty."""
    shown = f'<w:r><w:fldChar w:fldCharType="separate"/></w:r>{result}' if result else ""
    return (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        f"<w:r><w:instrText>{code}</w:instrText></w:r>{shown}"
        '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )


def table(*rows: str) -> str:
    """Returns the markup of a table."""
    return f"<w:tbl><w:tblPr/>{''.join(rows)}</w:tbl>"


def row(*cells: str, properties: str = "") -> str:
    """Returns the markup of a row. Content that is no markup becomes a cell."""
    markup = "".join(part if part.startswith("<") else cell(part) for part in cells)
    return f"<w:tr><w:trPr>{properties}</w:trPr>{markup}</w:tr>"


def cell(*content: str, properties: str = "") -> str:
    """Returns the markup of a cell. Content that is no markup becomes a paragraph."""
    markup = "".join(part if part.startswith("<") else paragraph(part) for part in content)
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{markup}</w:tc>"

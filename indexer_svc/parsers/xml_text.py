"""Parses XML into readable lines with their paths, as `write_data` writes them.

An element is a record: its attributes (`order@id`), its own text and its child elements. An element
with nothing but text is a text. Elements of the same name that follow one another are a list. If an
element contains both text and elements, its content is one text, with all words in order, as in a
paragraph with words in bold type; attributes inside this text are left out.

Names keep the short prefix of their namespace, and the declarations of namespaces are left out.
Comments and processing instructions are left out too.

Expat reads the file without recursion. No entity is ever expanded: references to entities that are
not predefined are rewritten to text before Expat sees them, the document type declaration is
removed, and a file that still declares an entity is refused. References with the names of
HTML, for example `&eacute;`, become their characters. Nothing that a file refers to is loaded.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.entities import html5
from itertools import groupby
from xml.parsers import expat

from hrag.values.document_limits import MAX_XML_NODES
from hrag.values.errors import TooLarge, UnreadableDocument
from indexer_svc.parsers.data_text import Record, Value, check_depth, data_title, write_data
from indexer_svc.parsers.package import readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_lines import utf8_text
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_KIND = "XML"
_FIELD = "content"
_BLOCK_BYTES = 1 << 16
# Matches what contains no references (CDATA sections, comments, processing instructions), the
# beginning of the document type declaration, and references.
_MARKUP = re.compile(
    r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)"
    r"|(?P<doctype><!DOCTYPE\b)"
    r"|&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});)"
    r"(?:(?P<entity>[A-Za-z_:][\w:.-]{0,100});)?",
    re.DOTALL,
)
# A part without an end is matched up to the end of the text, so that the match takes linear time.
_DOCTYPE = re.compile(
    r"""<!DOCTYPE(?:[^\[<>"']|"[^"]*"|'[^']*')*+"""
    r"""(?:\[(?:<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^\]"'])*+"""
    r"""\]\s*+)?>""",
    re.DOTALL,
)
_DECLARATION = re.compile(r"\s*<\?xml\s.*?\?>", re.DOTALL)
_LEFT_OUT_ATTRIBUTES = re.compile(r"xmlns(?::.*)?|xsi:(?:schemaLocation|noNamespaceSchemaLocation)")
# These elements begin a new line inside a text, in the vocabularies of documents (XHTML, DocBook,
# JATS, TEI, DITA). Other elements inside a text belong to its line.
_LINES = frozenset((
    "br", "lb", "p", "para", "simpara", "div", "sec", "section", "title", "head", "list", "ul",
    "ol", "li", "item", "listitem", "list-item", "entry", "row", "tr", "td", "th", "table", "lg",
    "l", "blockquote", "disp-quote", "pre", "programlisting", "note", "step", "cmd", "info",
))  # fmt: skip

# Line ends are kept in these elements, and in elements with the attribute `xml:space="preserve"`.
_CODE = frozenset(
    ("pre", "programlisting", "screen", "literallayout", "code", "codeblock", "verse")
)
_PRESERVED = ("xml:space", "preserve")
_LINE_BREAK = "\0"  # XML cannot contain this character.
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")


def parse_xml(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of XML in UTF-8 as lines, tables and sections, and the title in it.

    Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        name, value = _root(utf8_text(content))
        writer = TextWriter(max_text_bytes)
        write_data(value, name, writer)
        return writer.parsed(metadata_title(data_title(value)))


@dataclass(slots=True)
class _Element:
    """An element that has begun and not ended.

    `text_start` is the index of its first piece of text among all pieces. `has_text` is True if
    it has text outside of its child elements.
    """

    name: str
    attributes: Sequence[tuple[str, str]]
    text_start: int
    children: list[tuple[str, Value]] = field(default_factory=list)
    has_text: bool = False


def _root(text: str) -> tuple[str, Value]:
    """Returns the name of the root element and its value."""
    parser = expat.ParserCreate("utf-8")
    builder = _TreeBuilder()
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.EntityDeclHandler = _refuse_entity
    content = _without_entities(text).encode("utf-8", "replace")
    try:
        for start in range(0, len(content), _BLOCK_BYTES):
            parser.Parse(content[start : start + _BLOCK_BYTES], False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise UnreadableDocument(f"content is not XML: {error}", field=_FIELD) from None
    return builder.root


def _refuse_entity(*_declaration: object) -> None:
    raise UnreadableDocument("content declares XML entities, which is not allowed", field=_FIELD)


def _without_entities(text: str) -> str:
    """Returns XML without its declarations, in which references to entities are text.

    The result has neither the XML declaration, which names an encoding that no longer applies, nor
    the document type declaration.
    """
    start = _DECLARATION.match(text)
    parts: list[str] = []
    position = start.end() if start else 0
    for match in _MARKUP.finditer(text, position):
        if match.start() < position:
            continue  # The match is inside the document type declaration.
        if match["doctype"]:
            parts.append(text[position : match.start()])
            position = _doctype_end(text, match.start())
        elif match[0].startswith("&"):
            name = match["entity"]
            character = html5.get(f"{name};") if name else None
            parts += (text[position : match.start()], character or f"&amp;{match[0][1:]}")
            position = match.end()
    return "".join((*parts, text[position:]))


def _doctype_end(text: str, start: int) -> int:
    """Returns the offset after a document type declaration. Raises UnreadableDocument."""
    doctype = _DOCTYPE.match(text, start)
    if doctype is None:
        raise UnreadableDocument(
            "content is not XML: its document type declaration has no end", field=_FIELD
        )
    return doctype.end()


class _TreeBuilder:
    """Builds the value of the root element from the events of Expat."""

    def __init__(self) -> None:
        self.root: tuple[str, Value] = ("", "")
        self._open: list[_Element] = []
        self._pieces: list[str] = []
        self._count = 0

    def start(self, name: str, attributes: list[str]) -> None:
        check_depth(len(self._open) + 1)
        self._count += 1 + len(attributes) // 2
        if self._count > MAX_XML_NODES:
            raise TooLarge(
                f"content has more than {MAX_XML_NODES} elements and attributes; at most "
                f"{MAX_XML_NODES} are allowed",
                field=_FIELD,
                limit="xml_nodes",
            )
        if _local(name) in _LINES:
            self._pieces.append(_LINE_BREAK)
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        kept = [pair for pair in pairs if not _LEFT_OUT_ATTRIBUTES.fullmatch(pair[0])]
        self._open.append(_Element(name, kept, len(self._pieces)))

    def text(self, text: str) -> None:
        self._pieces.append(text)
        if not text.isspace():
            self._open[-1].has_text = True

    def end(self, name: str) -> None:
        element = self._open.pop()
        value = self._value(element)
        if _local(name) in _LINES:
            self._pieces.append(_LINE_BREAK)
        if self._open:
            self._open[-1].children.append((name, value))
        else:
            self.root = name, value

    def _value(self, element: _Element) -> Value:
        children: list[tuple[str, Value]] = []
        text = ""
        if element.has_text:
            keeps_lines = _local(element.name) in _CODE or _PRESERVED in element.attributes
            text = _joined(self._pieces[element.text_start :], keeps_lines=keeps_lines)
        elif element.children:
            children = _grouped(element.children)
        entries: list[tuple[str, Value]] = [
            (f"@{name}", " ".join(value.split())) for name, value in element.attributes
        ]
        if text:
            if not entries:
                return text
            entries.append(("", text))
        entries += children
        return Record(entries) if entries else ""


def _joined(pieces: Sequence[str], *, keeps_lines: bool) -> str:
    """Returns pieces of text as lines. A piece that is _LINE_BREAK begins a new line.

    With `keeps_lines`, other line ends are kept. Otherwise they count as spaces, except that a
    blank line begins a new paragraph.
    """
    whole = "".join(pieces)
    if keeps_lines:
        return "\n".join(map(str.rstrip, whole.replace(_LINE_BREAK, "\n").split("\n"))).strip("\n")
    paragraphs = (
        "\n".join(filter(None, (" ".join(line.split()) for line in paragraph.split(_LINE_BREAK))))
        for paragraph in _BLANK_LINE.split(whole)
    )
    return "\n\n".join(filter(None, paragraphs))


def _local(name: str) -> str:
    """Returns a name without the prefix of its namespace."""
    return name.rpartition(":")[2]


def _grouped(children: Sequence[tuple[str, Value]]) -> list[tuple[str, Value]]:
    """Returns child elements with each run of elements of the same name as a list.

    If several runs have the same name, each element gets its index among all elements of the name.
    """
    runs = [(name, [value for _, value in run]) for name, run in groupby(children, _name)]
    run_counts = Counter(name for name, _ in runs)
    seen = Counter[str]()
    grouped: list[tuple[str, Value]] = []
    for name, values in runs:
        if run_counts[name] == 1:
            grouped.append((name, values[0] if len(values) == 1 else values))
            continue
        grouped += ((f"{name}[{seen[name] + at}]", value) for at, value in enumerate(values))
        seen[name] += len(values)
    return grouped


def _name(child: tuple[str, Value]) -> str:
    return child[0]

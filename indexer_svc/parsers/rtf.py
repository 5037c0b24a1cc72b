"""Parses Rich Text Format (RTF 1.9): headings, paragraphs, list items, tables and notes.

An RTF file is a sequence of groups in braces, control words (`\\par`) and text. One regular
expression divides it into tokens, and one pass over the tokens writes the text; nothing recurses.
A group restores the state of the group around it when it ends. A group that begins with `\\*`, or
with a control word of _SKIPPED, is no part of the text, for example a picture, a table of fonts, or
a header of the page.

Headings are paragraphs with an outline level, or in a style with the name `heading 1`. The numbers
and bullets of lists are in the file as text (`\\listtext`). A note is written after the paragraph
that refers to it. Hidden text and deleted text of tracked changes are left out. Superscripts and
subscripts are written as `raised_text` describes.

Bytes beyond ASCII (`\\'e9`) are in the encoding of their font, or else of the file. `\\u233?` is a
character by its number, and `\\uc` says how many bytes after it repeat it for older programs.

The library striprtf reads text only: it loses headings, tables, numbers of lists and notes.
"""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hrag.values.document_limits import MAX_RTF_DEPTH
from hrag.values.errors import UnreadableDocument
from indexer_svc.parsers.package import readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.placed_text import Piece, Placement, joined_pieces
from indexer_svc.parsers.text_lines import filled_lines
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_KIND = "a rich text (RTF)"
_FIELD = "content"
_START = re.compile(rb"[\s\xef\xbb\xbf\0]{0,1000}+\{\s*\\rtf")
_TOKEN = re.compile(
    rb"\\bin(?P<size>\d{1,9})[ ]?"
    rb"|\\(?P<word>[A-Za-z]{1,32})(?P<number>-?\d{1,10})?[ ]?"
    rb"|\\'(?P<byte>[0-9A-Fa-f]{2})"
    rb"|\\(?P<sign>[^A-Za-z'])"
    rb"|(?P<brace>[{}])"
    rb"|(?P<text>[^\\{}\r\n]++)"
    rb"|[\r\n]++",
    re.DOTALL,
)
_MAX_CELLS = 1_000
_MAX_ROWS = 50_000  # A longer table is written as several tables, so that it needs less memory.
_MAX_FONTS = _MAX_STYLES = 10_000
_MAX_TITLE_CHARS = 2_000
_MAX_STYLE_NAME_CHARS = 200
_MAX_LIST_LEVEL = 8
# Text that is moved up or down by fewer half points stands on the line.
_MIN_SHIFT = 4
_DEFAULT_SHIFT = 6
_BODY_LEVEL = 9  # Outline levels are counted from 0. The last one means body text.

# Groups that begin with these words have no text of the document. Most other such groups begin
# with `\*`, which says that a reader may skip them.
_SKIPPED = frozenset((
    "colortbl", "filetbl", "pict", "object", "objdata", "header", "headerl", "headerr",
    "headerf", "footer", "footerl", "footerr", "footerf", "fldinst", "listtable", "xe", "tc", "rxe",
    "listoverridetable", "revtbl", "rsidtbl", "generator", "themedata", "datastore", "sp",
    "nonshppict", "annotation", "atnid", "atnauthor", "pntxtb", "pntxta", "ftnsep", "ftnsepc",
    "aftnsep", "aftnsepc", "ftncn", "aftncn", "bkmkstart", "bkmkend", "private", "nonesttables",
    "do", "falt", "panose", "shprslt",
))  # fmt: skip
# Groups that begin with `\*` although they have text, or a meaning for this reader.
_KEPT_STARRED = ("shpinst", "shptxt", "footnote", "ftnalt")
_CHARACTERS: Mapping[str, str] = {
    "tab": "\t", "emdash": "\u2014", "endash": "\u2013", "emspace": "\u2003", "enspace": "\u2002",
    "qmspace": " ", "bullet": "\u2022", "lquote": "\u2018", "rquote": "\u2019",
    "ldblquote": "\u201c", "rdblquote": "\u201d", "line": "\n", "lbr": "\n", "zwj": "\u200d",
    "zwnj": "\u200c",
}  # fmt: skip
_SIGNS: Mapping[str, str] = {
    "~": "\xa0", "_": "-", "{": "{", "}": "}", "\\": "\\", "\t": "\t", "-": "", ":": "", "|": "",
}  # fmt: skip
_PARAGRAPH_ENDS = ("par", "sect", "page", "column", "\n", "\r")
_CHARSETS: Mapping[int, str] = {
    0: "cp1252", 2: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab",
    134: "gb18030", 136: "big5hkscs", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255",
    178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250", 254: "cp437",
    255: "cp850",
}  # fmt: skip
_CODE_PAGES: Mapping[int, str] = {
    **{page: f"cp{page}" for page in (437, 850, 852, 855, 857, 858, 860, 862, 866, 874, 932, 949)},
    **{page: f"cp{page}" for page in range(1250, 1259)},
    936: "gb18030", 950: "big5hkscs", 1361: "johab", 10000: "mac_roman", 65001: "utf_8",
}  # fmt: skip
# Codecs are modules, and a confined process cannot load modules. So all codecs are loaded here.
_CODECS = {name: codecs.lookup(name) for name in {*_CHARSETS.values(), *_CODE_PAGES.values()}}
_DEFAULT = "cp1252"
_HEADING_STYLE = re.compile(r"(?:heading|标题|見出し|titre|überschrift) ?([1-9])")
_TITLE_STYLES = ("title", "titel", "titre", "标题")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLACEMENTS: Mapping[str, Placement] = {
    "super": Placement.SUPERSCRIPT, "up": Placement.SUPERSCRIPT, "sub": Placement.SUBSCRIPT,
    "dn": Placement.SUBSCRIPT, "nosupersub": Placement.NORMAL,
}  # fmt: skip
_CHARACTER_WORDS = frozenset(("v", "deleted", "htmlrtf", "plain", *_PLACEMENTS))
_BULLETS = re.compile(r"[\u2022\u00b7\u25cf\u25aa\u25e6\uf0a7\uf0b7oo*-]")


def parse_rtf(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a rich text, its headings and its title.

    The title is the one in its properties, or else its first paragraph in the style Title, or
    else its first heading of level 1. Raises UnreadableDocument or TooLarge.
    """
    if not _START.match(content):
        raise UnreadableDocument(
            f"content is not {_KIND}: it does not begin with {{\\rtf", field=_FIELD
        )
    with readable(_KIND):
        writer = TextWriter(max_text_bytes)
        reader = _Reader(writer)
        reader.read(content)
        title = metadata_title(reader.title) or reader.styled_title
        return writer.parsed(title or writer.first_heading)


@dataclass(slots=True)
class _State:
    """The properties that a group inherits from the group around it.

    `target` names what the text of the group is: "" for text of the document, or `skip`, `fonts`,
    `styles`, `title`, `marker`, `note`.
    """

    target: str = ""
    codec: str = ""
    fallback_bytes: int = 1
    is_hidden: bool = False
    placement: Placement = Placement.NORMAL


@dataclass(slots=True)
class _Paragraph:
    """The properties of the paragraph that is being read."""

    style: int = 0
    outline: int = -1
    is_cell: bool = False
    nesting: int = 1
    list_level: int = 0


@dataclass(slots=True)
class _Note:
    """A note that is being read: the depth of its group, and the paragraph that refers to it."""

    depth: int
    outer: list[Piece]
    paragraph: _Paragraph


@dataclass(slots=True)
class _Style:
    """A style of paragraphs: its name so far, and its outline level, or -1."""

    name: str = ""
    outline: int = -1


class _Reader:
    """Reads the tokens of a file, and writes each paragraph and table when it ends."""

    def __init__(self, writer: TextWriter) -> None:
        self.title = ""
        self.styled_title = ""
        self._writer = writer
        self._state = _State()
        self._groups: list[_State] = []
        self._file_codec = _DEFAULT
        self._fonts: dict[int, str] = {}
        self._font = 0
        self._styles: dict[int, _Style] = {}
        self._style = 0
        self._style_depth = 0
        self._paragraph = _Paragraph()
        self._inline: list[Piece] = []
        self._marker: list[str] = []
        self._bytes = bytearray()
        self._bytes_codec = _DEFAULT
        self._unread_fallback = 0
        self._notes: list[str] = []
        self._note: _Note | None = None
        self._row: list[str] = []
        # The texts of the cells beyond the first _MAX_CELLS cells of the row.
        self._more_cells: list[str] = []
        self._rows: list[list[str]] = []
        self._is_group_start = False
        self._is_starred = False

    def read(self, content: bytes) -> None:
        """Writes the text of a file."""
        position = content.index(b"{")
        size = len(content)
        while position < size:
            match = _TOKEN.match(content, position)
            if match is None:  # A backslash before a byte that has no meaning there is ignored.
                position += 1
                continue
            position = match.end()
            if match["size"]:
                position += int(match["size"])
            elif not self._read_token(match):
                break
        self._flush_bytes()
        self._end_note(0)
        self._end_paragraph()
        self._end_table()

    def _read_token(self, match: re.Match[bytes]) -> bool:
        """Reads a token; returns False at the end of the document's outermost group."""
        kind = match.lastgroup
        if kind is None:  # A line end in the file means nothing.
            return True
        if kind == "byte":
            self._read_byte(int(match["byte"], 16))
            return True
        if kind == "text":
            self._read_text(match["text"])
            self._is_group_start = False
            return True
        self._flush_bytes()
        if kind == "brace":
            return self._begin_group() if match["brace"] == b"{" else self._end_group()
        if kind == "sign":
            self._read_sign(match["sign"].decode("latin-1"))
            return True
        number = match["number"]
        self._read_word(match["word"].decode(), None if number is None else int(number))
        self._is_group_start = False
        return True

    def _begin_group(self) -> bool:
        if len(self._groups) == MAX_RTF_DEPTH:
            raise UnreadableDocument(
                f"content has groups nested deeper than {MAX_RTF_DEPTH}; at most {MAX_RTF_DEPTH} "
                "levels are allowed",
                field=_FIELD,
                limit="rtf_depth",
            )
        self._unread_fallback = 0
        self._groups.append(self._state)
        self._state = replace(self._state)
        if len(self._groups) == self._style_depth:
            self._style = 0  # The definition of a style begins.
        self._is_group_start, self._is_starred = True, False
        return True

    def _end_group(self) -> bool:
        self._unread_fallback = 0
        if self._groups:
            self._state = self._groups.pop()
        self._is_group_start = False
        self._end_note(len(self._groups))
        return bool(self._groups)

    def _read_sign(self, sign: str) -> None:
        if sign == "*":
            self._is_starred = self._is_group_start
            return
        self._is_group_start = False
        if sign in "\r\n":
            self._read_word("par", None)
        else:
            self._append(_SIGNS.get(sign, ""))

    def _read_word(self, word: str, number: int | None) -> None:
        if self._is_group_start and self._begin_destination(word):
            return
        self._unread_fallback = 0
        if word == "u":
            self._append_character(number)
        elif word == "uc":
            self._state.fallback_bytes = max(0, min(number or 0, 8))
        elif word in ("f", "fcharset", "cpg", "ansicpg", "deff", "mac", "pc", "pca"):
            self._read_font(word, number)
        elif word in _CHARACTER_WORDS:
            self._read_properties(word, number)
        elif self._state.target == "styles":
            self._read_style(word, number)
        elif word in _CHARACTERS:
            self._append(_CHARACTERS[word])
        elif self._state.target in ("", "note"):
            self._read_layout(word, number)

    def _begin_destination(self, word: str) -> bool:
        """Sets what the text of a group is, by its first word; returns True if it is known."""
        target = self._state.target
        if target == "skip":
            return True
        if self._is_starred and word not in _KEPT_STARRED:
            self._state.target = "skip"
        elif word == "fonttbl":
            self._state.target = "fonts"
        elif word == "stylesheet":
            self._state.target = "styles"
            self._style_depth = len(self._groups) + 1
        elif word == "info":
            self._state.target = "info"
        elif word == "title" and target == "info":
            self._state.target = "title"
        elif word in _SKIPPED or target == "info":
            self._state.target = "skip"
        elif word in ("listtext", "pntext"):
            self._state.target = "marker"
            self._marker.clear()
        elif word in ("footnote", "ftnalt"):
            self._begin_note()
        else:
            return False
        return True

    def _read_font(self, word: str, number: int | None) -> None:
        value = number or 0
        if self._state.target == "fonts":
            if word == "f":
                self._font = value
            elif word in ("fcharset", "cpg") and len(self._fonts) < _MAX_FONTS:
                names = _CHARSETS if word == "fcharset" else _CODE_PAGES
                # The charset 1 is the default of the file.
                self._fonts[self._font] = names.get(value, "")
        elif word == "f":
            self._state.codec = self._fonts.get(value, "")
        elif word == "ansicpg":
            self._file_codec = _CODE_PAGES.get(value, _DEFAULT)
        elif word == "mac":
            self._file_codec = "mac_roman"
        elif word in ("pc", "pca"):
            self._file_codec = "cp437" if word == "pc" else "cp850"

    def _read_properties(self, word: str, number: int | None) -> None:
        """Reads a property of characters."""
        state = self._state
        if word == "plain":
            state.is_hidden, state.codec, state.placement = False, "", Placement.NORMAL
        elif word in _PLACEMENTS:
            state.placement = _placement(word, number)
        else:
            # `\htmlrtf` marks what a mail program has added to text that it got as HTML.
            state.is_hidden = number != 0

    def _read_style(self, word: str, number: int | None) -> None:
        if word == "s":
            self._style = number or 0
        elif word == "outlinelevel" and len(self._styles) < _MAX_STYLES:
            self._styles.setdefault(self._style, _Style()).outline = number or 0

    def _read_layout(self, word: str, number: int | None) -> None:
        paragraph = self._paragraph
        if word in _PARAGRAPH_ENDS:
            self._end_paragraph()
        elif word == "pard":
            self._paragraph = _Paragraph()
        elif word == "s":
            paragraph.style = number or 0
        elif word == "outlinelevel":
            paragraph.outline = _BODY_LEVEL if number is None else number
        elif word == "intbl":
            paragraph.is_cell = True
        elif word == "itap":
            paragraph.nesting = number or 0
        elif word == "ilvl":
            paragraph.list_level = max(0, min(number or 0, _MAX_LIST_LEVEL))
        elif word in ("cell", "nestcell"):
            self._end_cell(is_nested=word == "nestcell")
        elif word in ("row", "nestrow"):
            self._end_row(is_nested=word == "nestrow")

    def _read_text(self, text: bytes) -> None:
        if self._unread_fallback:
            skipped = min(self._unread_fallback, len(text))
            self._unread_fallback -= skipped
            text = text[skipped:]
        if self._state.target == "skip" or not text:
            return
        if self._bytes or not text.isascii():
            # A character of two bytes may have its second byte in the text.
            self._collect(text)
        else:
            self._append(text.decode("ascii"))

    def _read_byte(self, byte: int) -> None:
        self._is_group_start = False
        if self._unread_fallback:
            self._unread_fallback -= 1
        elif self._state.target != "skip":
            self._collect(bytes((byte,)))

    def _collect(self, data: bytes) -> None:
        codec = self._state.codec or self._file_codec
        if codec != self._bytes_codec:
            self._flush_bytes()
            self._bytes_codec = codec
        self._bytes += data

    def _flush_bytes(self) -> None:
        if self._bytes:
            text = _CODECS[self._bytes_codec].decode(bytes(self._bytes), "replace")[0]
            self._bytes.clear()
            self._append(text)

    def _append_character(self, number: int | None) -> None:
        """Adds the character of `\\u`. Its number is a UTF-16 code unit, often with a sign."""
        self._unread_fallback = self._state.fallback_bytes
        code = (number or 0) & 0xFFFF if number is None or number <= 0xFFFF else number
        if 0 < code <= 0x10FFFF:
            self._append(chr(code))

    def _append(self, text: str) -> None:
        state = self._state
        if not text or state.target == "skip" or state.is_hidden:
            return
        if state.target == "styles":
            self._append_style_name(text)
        elif state.target == "title":
            self.title = _paired(self.title + text)[:_MAX_TITLE_CHARS]
        elif state.target == "marker":
            self._marker.append(text)
        elif state.target in ("", "note"):
            self._inline.append((text, state.placement))

    def _append_style_name(self, text: str) -> None:
        if len(self._styles) < _MAX_STYLES or self._style in self._styles:
            style = self._styles.setdefault(self._style, _Style())
            if not style.name.endswith(";"):
                style.name = (style.name + text)[:_MAX_STYLE_NAME_CHARS]

    def _begin_note(self) -> None:
        if self._note is None:
            self._note = _Note(len(self._groups), self._inline, self._paragraph)
            self._inline, self._paragraph = [], _Paragraph()
            self._state.target = "note"
            self._state.placement = Placement.NORMAL

    def _end_note(self, depth: int) -> None:
        """Ends a note if the group in which it began has ended."""
        if self._note is not None and depth < self._note.depth:
            self._notes.append(_joined(self._inline))
            self._inline, self._paragraph = self._note.outer, self._note.paragraph
            self._note = None

    def _end_paragraph(self) -> None:
        if self._note is not None:
            self._inline.append(_LINE_END)
            return
        paragraph = self._paragraph
        if paragraph.is_cell:
            self._inline.append(_LINE_END)
            return
        self._end_table()
        text = _joined(self._inline)
        marker = " ".join(_paired("".join(self._marker)).split())
        self._inline.clear()
        self._marker.clear()
        self._write_block(text, marker, paragraph)
        self._write_notes()

    def _write_block(self, text: str, marker: str, paragraph: _Paragraph) -> None:
        style = self._styles.get(paragraph.style, _NO_STYLE)
        name = style.name.rstrip(";").strip().lower()
        if name in _TITLE_STYLES and not self.styled_title:
            self.styled_title = metadata_title(text)
        depth = _heading_depth(name, style.outline, paragraph.outline)
        if depth and text:
            self._writer.heading(depth, f"{marker} {text}" if _is_number(marker) else text)
        elif marker and text:
            shown = marker if _is_number(marker) else "-"
            self._writer.item(text, paragraph.list_level + 1, shown)
        else:
            self._writer.paragraph(text)

    def _write_notes(self) -> None:
        for note in self._notes:
            self._writer.paragraph(f"Note: {note}" if note else "")
        self._notes.clear()

    def _end_cell(self, *, is_nested: bool) -> None:
        if self._note is not None:
            return
        if is_nested:  # A table inside a cell is text of this cell.
            self._inline.append((" ", Placement.NORMAL))
            return
        marker = " ".join(_paired("".join(self._marker)).split())
        self._marker.clear()
        text = _joined(self._inline)
        self._inline.clear()
        if len(self._row) < _MAX_CELLS:
            self._row.append(f"{marker} {text}" if _is_number(marker) else text)
        elif text:
            self._more_cells.append(text)

    def _end_row(self, *, is_nested: bool) -> None:
        if is_nested or self._note is not None:
            self._inline.append(_LINE_END)
        elif self._row:
            if self._more_cells:
                self._row[-1] = " ".join((self._row[-1], *self._more_cells))
                self._more_cells.clear()
            self._rows.append(self._row)
            self._row = []
            if len(self._rows) >= _MAX_ROWS:
                self._end_table()

    def _end_table(self) -> None:
        if self._row:
            self._end_row(is_nested=False)
        if self._rows:
            self._writer.table(self._rows)
            self._rows = []


_NO_STYLE = _Style()
_LINE_END: Piece = ("\n", Placement.NORMAL)


def _heading_depth(style: str, style_outline: int, outline: int) -> int:
    """Returns the depth of a heading, from 1; 0 for other paragraphs."""
    match = _HEADING_STYLE.fullmatch(style)
    if match:
        return int(match[1])
    level = outline if outline >= 0 else style_outline
    return level + 1 if 0 <= level < _BODY_LEVEL else 0


def _is_number(marker: str) -> bool:
    return bool(marker) and not _BULLETS.fullmatch(marker) and any(map(str.isalnum, marker))


def _placement(word: str, number: int | None) -> Placement:
    """Returns the placement of text after a word of _PLACEMENTS."""
    if word in ("up", "dn"):
        is_moved = (_DEFAULT_SHIFT if number is None else number) >= _MIN_SHIFT
    else:
        is_moved = number != 0
    return _PLACEMENTS[word] if is_moved else Placement.NORMAL


def _joined(pieces: list[Piece]) -> str:
    """Returns the lines of a paragraph without white space around them."""
    return "\n".join(filled_lines(_paired(joined_pieces(pieces))))


def _paired(text: str) -> str:
    """Returns a text in which two surrogates that belong together are one character.

    A surrogate that stays alone becomes U+FFFD.
    """
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

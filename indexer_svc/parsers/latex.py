"""Parses LaTeX: sections, paragraphs, lists, tables, code and formulas.

The blocks are found by one pass over the commands of the document. The text of a paragraph, a title
or a cell is converted by `latex_inline`. Formulas stay as they are written, because people search
for them in this form, and a model reads them.

First, comments are removed, and what is written verbatim is set aside. Commands of the document
without parameters (`\\newcommand{\\sys}{Apis}`) are replaced by their text; other commands that are
unknown lose their name and keep the text in their braces. Drawings are left out. The files that
`\\input` names are not part of the document that was sent, so the report names them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hrag.values.errors import UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.latex_inline import MAX_INLINE_CHARS, LatexText
from indexer_svc.parsers.package import readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_lines import filled_lines, utf8_text, with_line_feeds
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_KIND = "a LaTeX text"
_FIELD = "content"
_LEVELS = (
    *("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph"),
)
_FORMULAS = frozenset((
    "equation", "align", "gather", "multline", "eqnarray", "displaymath", "math", "flalign",
    "alignat", "dmath", "subequations", "array",
))  # fmt: skip
_TABLES = frozenset(("tabular", "tabularx", "tabulary", "longtable", "supertabular", "tblr"))
_LISTS = {"itemize": "-", "enumerate": "1.", "description": "-", "thebibliography": "-"}
_DRAWINGS = frozenset((
    "tikzpicture", "pgfpicture", "picture", "pspicture", "asy", "filecontents", "comment",
    "CCSXML", "overpic",
))  # fmt: skip
# These environments begin with their name, as in print.
_NAMED = frozenset((
    "theorem", "lemma", "corollary", "proposition", "definition", "proof", "example", "remark",
    "conjecture", "claim", "exercise",
))  # fmt: skip
_SECTIONS = {"abstract": "Abstract", "thebibliography": "References"}
# The arguments of these commands are no text: their number is the count of arguments in braces.
_SETTINGS = {
    **dict.fromkeys(
        ("documentclass", "usepackage", "label", "vspace", "hspace", "includegraphics"), 1
    ),
    **dict.fromkeys(
        ("bibliographystyle", "bibliography", "pagestyle", "thispagestyle", "cline"), 1
    ),
    **dict.fromkeys(
        ("pagenumbering", "hypersetup", "graphicspath", "index", "nocite", "cmidrule"), 1
    ),
    **dict.fromkeys(
        ("newtheorem", "theoremstyle", "geometry", "captionsetup", "usetikzlibrary"), 1
    ),
    **dict.fromkeys(("title", "author", "date"), 1),
    **dict.fromkeys(("maketitle", "tableofcontents", "listoffigures", "listoftables", "today"), 0),
    **dict.fromkeys(("setlength", "addtolength", "setcounter", "addtocounter", "definecolor"), 2),
    **dict.fromkeys(("newcommand", "renewcommand", "providecommand", "DeclareMathOperator"), 2),
    **dict.fromkeys(("newenvironment", "renewenvironment"), 3),
}
_PIECE = re.compile(
    r"\\begin\{(?P<env>verbatim|Verbatim|lstlisting|minted|alltt)\*?\}"
    r"(?P<code>.*?)(?:\\end\{(?P=env)\*?\}|\Z)"
    r"|\\verb\*?(?P<mark>[^A-Za-z\s*])(?P<verb>[^\n]{0,300}?)(?P=mark)"
    r"|\\."
    r"|(?P<line>^[ \t]*%[^\n]*\n?)"
    r"|(?P<comment>%[^\n]*)",
    re.DOTALL | re.MULTILINE,
)
_CODE_OPTIONS = re.compile(
    r"[ \t]*(?:\[[^\]\n]{0,500}\])?[ \t]*(?:\{[^}\n]{0,100}\})?[ \t]*(?:\n|\Z)"
)
_SPECIAL = re.compile(r"[\\{}$&#^_%~]")
_SPECIAL_SIGNS = {"\\": "\\textbackslash{}", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}"}
_BODY = re.compile(r"\\begin\s*\{document\}")
_BODY_END = re.compile(r"\\end\s*\{document\}")
_COMMAND = re.compile(
    r"\\begin\s*\{(?P<begin>[A-Za-z]{1,40}\*?)\}"
    r"|\\end\s*\{(?P<end>[A-Za-z]{1,40})\*?\}"
    r"|\\(?P<name>[A-Za-z]{1,60})\*?"
    r"|(?P<display>\$\$|\\\[)"
    r"|(?P<formula>\$)"
    r"|\\."
    r"|(?P<blank>\n[ \t]*\n\s*)",
    re.DOTALL,
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_OPTION = re.compile(r"\s*\[([^\]]{0,1000})\]")
_COMMAND_NAME = re.compile(r"\s*\\[A-Za-z]{1,60}")
_SPACE = re.compile(r"[ \t]*\n?[ \t]*")
_DEFINITION = re.compile(
    # White space is matched possessively, because two runs of it that follow one another would take
    # quadratic time.
    r"\\(?:(?:re|provide)?newcommand|renewcommand|providecommand)\*?\s*+\{?\s*+\\"
    r"([A-Za-z]{1,60})\s*+\}?\s*+(?=\{)|\\def\s*+\\([A-Za-z]{1,60})\s*+(?=\{)"
)
_CELL = re.compile(r"\\begin\s*\{|\\end\s*\{|\\\\(?:\s*\[[^\]]{0,50}\])?|\\.|[{}&]", re.DOTALL)
_RULES = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|endhead|endfirsthead|endfoot|endlastfoot|tabularnewline)"
    r"(?![A-Za-z])|\\(?:cline|cmidrule|addlinespace)(?:\([a-z]{1,4}\))?\s*(?:\{[^}]{0,50}\})?"
)
_MULTICOLUMN = re.compile(r"\\multicolumn\s*\{\s*(\d{1,3})\s*\}\s*\{[^}]{0,200}\}\s*(?=\{)")
_MULTIROW = re.compile(r"\\multirow\s*(?:\[[^\]]{0,20}\])?\{[^}]{0,20}\}\s*\{[^}]{0,50}\}\s*(?=\{)")
_NOTES = re.compile(r"\\(?:thanks|inst|footnote|orcid|footnotemark)\s*\{[^{}]{0,500}\}")
# An argument that is longer is not closed: the longest captions and footnotes are a page.
_MAX_ARGUMENT_CHARS = 20_000
# Looking for the end of an argument takes time for each that is not closed.
_MAX_UNCLOSED = 200
_MAX_DEFINITIONS = 500
_MAX_DEFINITION_CHARS = 300
_MAX_AUTHORS = 100
_MAX_COLUMNS = 200


def parse_latex(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of LaTeX in UTF-8, its sections, its title, and its authors as metadata.

    Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        pieces = _pieces(utf8_text(content))
        source = "\n".join(piece.text for piece in pieces if not piece.is_code)
        inline = LatexText(_definitions(source))
        writer = TextWriter(max_text_bytes)
        reader = _BlockReader(writer, inline, _top_level(source))
        for piece in _body(pieces):
            reader.read(piece)
        reader.end()
        title = metadata_title(inline.text(_NOTES.sub("", _value_of("title", source))))
        return writer.parsed(
            title or metadata_title(writer.first_heading), metadata=_metadata(source, inline)
        )


@dataclass(frozen=True, slots=True)
class _SourcePart:
    """A part of the source without comments: code that is shown as it is written, or LaTeX."""

    text: str
    is_code: bool = False


def _pieces(source: str) -> list[_SourcePart]:
    """Returns the source without comments, divided at what is written verbatim."""
    source = with_line_feeds(source)
    pieces: list[_SourcePart] = []
    parts: list[str] = []
    position = 0
    for match in _PIECE.finditer(source):
        parts.append(source[position : match.start()])
        position = match.end()
        if match["env"]:
            pieces.append(_SourcePart("".join(parts)))
            parts.clear()
            code = match["code"]
            options = _CODE_OPTIONS.match(code)
            pieces.append(_SourcePart(code[options.end() :] if options else code, is_code=True))
        elif match["mark"]:
            parts.append(_SPECIAL.sub(_as_text, match["verb"]))
        elif match["line"] is None and match["comment"] is None:
            parts.append(match[0])
    parts.append(source[position:])
    pieces.append(_SourcePart("".join(parts)))
    return pieces


def _as_text(match: re.Match[str]) -> str:
    """Returns the command that prints a special sign."""
    return _SPECIAL_SIGNS.get(match[0], f"\\{match[0]}")


def _body(pieces: Sequence[_SourcePart]) -> Iterator[_SourcePart]:
    """Yields the pieces of the document, without the preamble and what follows the document.

    A file without `\\begin{document}` is a part of a document, and is yielded whole.
    """
    has_begun = not any(not piece.is_code and _BODY.search(piece.text) for piece in pieces)
    for piece in pieces:
        text = piece.text
        if not piece.is_code:
            begin = None if has_begun else _BODY.search(text)
            if begin:
                has_begun, text = True, text[begin.end() :]
            end = _BODY_END.search(text)
            if has_begun and end:
                yield _SourcePart(text[: end.start()])
                return
        if has_begun:
            yield _SourcePart(text, piece.is_code)


def _top_level(source: str) -> int:
    """Returns the index in _LEVELS of the highest level of sections in a source."""
    return next(
        (at for at, name in enumerate(_LEVELS) if re.search(rf"\\{name}\b", source)), len(_LEVELS)
    )


def _definitions(source: str) -> dict[str, str]:
    """Returns the texts of the commands without parameters that a document defines."""
    definitions: dict[str, str] = {}
    for match in _DEFINITION.finditer(source):
        if len(definitions) == _MAX_DEFINITIONS:
            break
        text, _end = _argument(source, match.end(), _MAX_DEFINITION_CHARS)
        if text is not None and "#" not in text:
            definitions[match[1] or match[2]] = text
    return definitions


def _value_of(name: str, source: str) -> str:
    """Returns the argument of the first command with this name; empty if there is none."""
    match = re.search(rf"\\{name}(?![A-Za-z])\s*+(?:\[[^\]]{{0,300}}\])?\s*+(?=\{{)", source)
    return "" if match is None else _argument(source, match.end(), _MAX_ARGUMENT_CHARS)[0] or ""


def _metadata(source: str, inline: LatexText) -> dict[str, str | list[str]]:
    """Returns the names of the authors."""
    value = _NOTES.sub("", _value_of("author", source))
    parts = re.split(r"\\(?:and|And|AND)(?![A-Za-z])", value)
    # The lines after the name are the affiliation and the mail address.
    names = [inline.text(re.split(r"\\\\", part.strip(), maxsplit=1)[0]) for part in parts]
    authors = [" ".join(name.split())[:200] for name in names if name.strip()]
    return {"author": authors[:_MAX_AUTHORS]} if authors else {}


def _argument(source: str, start: int, longest: int) -> tuple[str | None, int]:
    """Returns the text in the braces after `start`, and the offset after it.

    The text is None, and the offset `start`, if no brace follows, or if it is not closed within
    `longest` characters.
    """
    space = _SPACE.match(source, start)
    begin = space.end() if space else start
    if not source.startswith("{", begin):
        return None, start
    depth = 0
    for match in _BRACE.finditer(source, begin, begin + longest):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return source[begin + 1 : match.start()], match.end()
    return None, start


@dataclass(slots=True)
class _List:
    """A list that has begun and not ended. `count` is the number of its last item so far."""

    environment: str
    count: int = 0

    def next_marker(self) -> str:
        self.count += 1
        return f"{self.count}." if self.environment == "enumerate" else "-"


class _BlockReader:
    """Reads commands in order, and writes each block when it ends."""

    def __init__(self, writer: TextWriter, inline: LatexText, top_level: int) -> None:
        self._writer = writer
        self._text = inline
        self._top_level = top_level
        self._inline: list[str] = []
        self._lists: list[_List] = []
        self._marker = ""
        self._source = ""
        self._position = 0
        self._unclosed = 0
        # Names of environments whose end was not found, so that it is not looked for again.
        self._endless: set[str] = set()

    def read(self, piece: _SourcePart) -> None:
        """Reads a piece of the document."""
        if piece.is_code:
            self._end_block()
            self._writer.code(piece.text)
            return
        self._source, self._position = piece.text, 0
        self._endless.clear()
        while match := _COMMAND.search(self._source, self._position):
            self._inline.append(self._source[self._position : match.start()])
            self._position = match.end()
            self._read_command(match)
        self._inline.append(self._source[self._position :])

    def end(self) -> None:
        """Writes the last block."""
        self._end_block()

    def _read_command(self, match: re.Match[str]) -> None:
        if match["blank"]:
            self._end_block()
        elif match["begin"]:
            self._begin(match["begin"], match.start())
        elif match["end"]:
            self._end(match["end"])
        elif match["display"]:
            self._display("$$" if match["display"] == "$$" else "\\]", match.start())
        elif match["formula"]:
            self._skip_formula(match.start())
        elif match["name"] is None or not self._named_command(match["name"], match.start()):
            self._inline.append(match[0])

    def _skip_formula(self, start: int) -> None:
        """Adds a formula inside a line, so that its commands are not read as commands of text."""
        end = self._source.find("$", self._position, start + MAX_INLINE_CHARS)
        blank = self._source.find("\n\n", self._position, start + MAX_INLINE_CHARS)
        if end >= 0 and (blank < 0 or end < blank):
            self._position = end + 1
        self._inline.append(self._source[start : self._position])

    def _named_command(self, name: str, start: int) -> bool:
        """Reads a command that begins or ends a block, or is no text; returns False for others."""
        if name in _LEVELS:
            self._heading(_LEVELS.index(name))
        elif name == "item":
            self._item()
        elif name == "bibitem":
            self._item(is_bibliography=True)
        elif name == "caption":
            self._end_block()
            self._writer.paragraph(self._text.text(self._next_argument()))
        elif name in ("input", "include", "subfile"):
            self._writer.leave_out(LeftOutKind.ATTACHMENT, self._next_argument() or name)
        elif name in ("par", "newpage", "clearpage", "bigskip", "medskip", "smallskip", "hrule"):
            self._end_block()
        elif name in _SETTINGS:
            self._skip_settings(_SETTINGS[name])
        else:
            return name == "def" and self._skip_definition(start)
        return True

    def _skip_definition(self, start: int) -> bool:
        definition = _DEFINITION.match(self._source, start)
        if definition is not None:
            self._position = definition.end()
            self._next_argument()
        return definition is not None

    def _skip_settings(self, count: int) -> None:
        for _ in range(count):
            self._skip_options()
            if not self._next_argument():
                name = _COMMAND_NAME.match(self._source, self._position)
                self._position = name.end() if name else self._position
        self._skip_options()

    def _skip_options(self) -> None:
        while self._next_option() is not None:
            pass

    def _next_option(self) -> str | None:
        """Returns the text in the brackets that follow; None if there are none."""
        option = _OPTION.match(self._source, self._position)
        if option is None:
            return None
        self._position = option.end()
        return option[1]

    def _next_argument(self) -> str:
        """Returns the argument in braces that follows, after any options in brackets."""
        start = self._position
        while option := _OPTION.match(self._source, start):
            start = option.end()
        text, end = _argument(self._source, start, _MAX_ARGUMENT_CHARS)
        if text is not None:
            self._position = end
            return text
        space = _SPACE.match(self._source, start)
        if self._source.startswith("{", space.end() if space else start):
            self._unclosed += 1
            if self._unclosed > _MAX_UNCLOSED:
                raise UnreadableDocument(
                    f"content is not {_KIND}: more than {_MAX_UNCLOSED} braces are not closed",
                    field=_FIELD,
                )
        return ""

    def _heading(self, level: int) -> None:
        self._end_block()
        self._writer.heading(level - self._top_level + 1, self._text.text(self._next_argument()))

    def _item(self, *, is_bibliography: bool = False) -> None:
        self._end_block()
        label = self._text.text(self._next_option() or "").strip()
        if is_bibliography:
            key = self._next_argument()
            label = f"[{label or key}]"
        self._marker = self._lists[-1].next_marker() if self._lists else "-"
        if label:
            self._inline.append(f"{_SPECIAL.sub(_as_text, label)} ")

    def _begin(self, environment: str, start: int) -> None:
        self._end_block()
        whole_name, environment = environment, environment.rstrip("*")
        if environment in _FORMULAS or environment in _TABLES or environment in _DRAWINGS:
            self._read_whole(environment, whole_name, start)
        elif environment in _LISTS:
            self._lists.append(_List(environment))
            if environment == "thebibliography":
                self._next_argument()
        elif environment in _NAMED:
            title = self._next_option()
            title = f" ({title})" if title else ""
            self._inline.append(f"{environment.capitalize()}{title}. ")
        else:
            self._skip_environment_options(environment)
        if environment in _SECTIONS:
            self._writer.heading(1, _SECTIONS[environment])

    def _skip_environment_options(self, environment: str) -> None:
        """Skips the options of an environment, for example the position of a figure."""
        self._skip_options()
        if environment in ("minipage", "multicols", "wrapfigure", "subfigure", "adjustbox"):
            self._skip_settings(2 if environment == "wrapfigure" else 1)

    def _end(self, environment: str) -> None:
        self._end_block()
        if environment in _LISTS and self._lists:
            self._lists.pop()

    def _read_whole(self, environment: str, whole_name: str, start: int) -> None:
        """Writes a formula or a table, or leaves out a drawing. Without an end, it is text.

        `whole_name` is the name of the environment with its asterisk, if it has one.
        """
        content_start = self._position
        end = self._find_end(whole_name)
        if end is None:
            return
        if environment in _FORMULAS:
            self._writer.paragraph(self._source[start : self._position])
        elif environment in _TABLES:
            has_width = whole_name in ("tabularx", "tabulary", "tabular*", "tabularx*")
            self._write_table(content_start, end, setting_count=2 if has_width else 1)

    def _find_end(self, environment: str) -> int | None:
        """Returns where the end of an environment begins, and continues after it."""
        mark = f"\\end{{{environment}}}"
        end = -1 if environment in self._endless else self._source.find(mark, self._position)
        if end < 0:
            self._endless.add(environment)
            return None
        self._position = end + len(mark)
        return end

    def _display(self, mark: str, start: int) -> None:
        if mark in self._endless:
            return
        end = self._source.find(mark, self._position)
        if end < 0:
            self._endless.add(mark)
            return
        self._end_block()
        self._position = end + len(mark)
        self._writer.paragraph(self._source[start : self._position])

    def _write_table(self, start: int, end: int, *, setting_count: int) -> None:
        source, after = self._source, self._position
        self._source, self._position = source[start:end], 0
        self._skip_settings(setting_count)
        rows = [
            [" ".join(self._text.text(cell).split()) for cell in row]
            for row in _rows(self._source[self._position :])
        ]
        self._source, self._position = source, after
        self._writer.table(rows)

    def _end_block(self) -> None:
        source = "".join(self._inline).strip()
        self._inline.clear()
        text = "\n".join(filled_lines(self._text.text(source)))
        if not text:
            return
        if self._marker:
            self._writer.item(text, max(1, len(self._lists)), self._marker)
            self._marker = ""
        else:
            self._writer.paragraph(text)


def _rows(source: str) -> Iterator[list[str]]:
    """Yields the rows of a table as LaTeX of their cells.

    A cell that spans several columns is followed by empty cells.
    """
    source = _MULTIROW.sub("", _RULES.sub(" ", source))
    row: list[str] = []
    parts: list[str] = []
    position = depth = inner = 0
    for match in _CELL.finditer(source):
        sign = match[0]
        if sign == "{":
            depth += 1
        elif sign == "}":
            depth = max(0, depth - 1)
        elif sign.startswith("\\begin"):
            inner += 1
            depth += 1
        elif sign.startswith("\\end"):
            inner = max(0, inner - 1)
            depth += 1
        elif depth == 0 and inner == 0 and (sign == "&" or sign.startswith("\\\\")):
            parts.append(source[position : match.start()])
            _add_cell(row, "".join(parts))
            parts.clear()
            position = match.end()
            if sign != "&" or len(row) >= _MAX_COLUMNS:
                yield row
                row = []
    parts.append(source[position:])
    _add_cell(row, "".join(parts))
    yield row


def _add_cell(row: list[str], cell: str) -> None:
    spanning = _MULTICOLUMN.search(cell)
    row.append(_MULTICOLUMN.sub("", cell, count=1))
    if spanning:
        row.extend([""] * (min(int(spanning[1]), _MAX_COLUMNS - len(row) + 1) - 1))

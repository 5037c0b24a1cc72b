"""Parses LaTeX: sections, paragraphs, lists, tables, code and formulas.

The blocks are found by one pass over the commands of the document. The text of a paragraph, a title
or a cell is converted by the library pylatexenc, which knows accents, symbols and the commands for
fonts. Formulas stay as they are written, because people search for them in this form, and a model
reads them.

First, comments are removed, and what is written verbatim is set aside. Commands of the document
without parameters (`\\newcommand{\\sys}{Apis}`) are replaced by their text; other commands that are
unknown lose their name and keep the text in their braces. Drawings are left out. The files that
`\\input` names are not part of the document that was sent, so the report names them.

pylatexenc recurses over groups and environments. It only gets texts of at most _MAX_INLINE_CHARS
characters; a text that it cannot read, for example because it is nested too deeply, loses its
commands and braces instead. Each argument that is not closed makes pylatexenc read the rest of the
text twice, so the number of the tokens that it reads is limited too.
"""

import logging
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pylatexenc.latex2text import (
    LatexNodes2Text,
    MacroTextSpec,
    get_default_latex_context_db,
)
from pylatexenc.latexwalker import LatexWalker
from pylatexenc.latexwalker import get_default_latex_context_db as get_walker_context_db
from pylatexenc.macrospec import MacroSpec

from hrag.values.errors import UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.package import readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.placed_text import Piece, Placement, joined_pieces
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
# The combining character of each accent.
_ACCENTS = {
    "'": "\u0301", "`": "\u0300", '"': "\u0308", "^": "\u0302", "~": "\u0303", "=": "\u0304",
    ".": "\u0307", "c": "\u0327", "H": "\u030b", "k": "\u0328", "b": "\u0331", "d": "\u0323",
    "r": "\u030a", "u": "\u0306", "v": "\u030c", "vec": "\u20d7", "dot": "\u0307",
    "hat": "\u0302", "check": "\u030c", "breve": "\u0306", "acute": "\u0301", "grave": "\u0300",
    "tilde": "\u0303", "bar": "\u0305", "ddot": "\u0308", "not": "\u0338",
}  # fmt: skip
_DOTLESS = str.maketrans("\u0131\u0237", "ij")
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
_MARKUP = re.compile(r"[\\{}$~&#%]|--|``|''")
_LEFT_COMMANDS = re.compile(r"\\(?:[A-Za-z]+\*?|.)|[{}]", re.DOTALL)

# An argument that is longer is not closed: the longest captions and footnotes are a page.
_MAX_ARGUMENT_CHARS = 20_000
# Looking for the end of an argument takes time for each that is not closed.
_MAX_UNCLOSED = 200
_MAX_INLINE_CHARS = 10_000
# pylatexenc reads at most 2 tokens for each character of a text whose arguments are closed.
_MAX_TOKENS_PER_CHAR = 3
_MIN_TOKENS = 100
# After so many texts of a document that take more tokens, it does not get any further ones.
_MAX_COSTLY_TEXTS = 10
_MAX_DEFINITIONS = 500
_MAX_DEFINITION_CHARS = 300
_MAX_AUTHORS = 100
_MAX_COLUMNS = 200

# These characters for private use mark the beginning of a superscript, of a subscript, and of the
# text after it. They are removed when a line is complete and the text before a script is known.
_SUPERSCRIPT, _SUBSCRIPT, _NORMAL = "\ue0f0", "\ue0f1", "\ue0f2"
_PLACEMENTS = {
    _SUPERSCRIPT: Placement.SUPERSCRIPT,
    _SUBSCRIPT: Placement.SUBSCRIPT,
    _NORMAL: Placement.NORMAL,
}
_PLACEMENT_MARK = re.compile(f"([{_SUPERSCRIPT}-{_NORMAL}])")

# The library logs what it does not understand.
logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)


def parse_latex(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of LaTeX in UTF-8, its sections, its title, and its authors as metadata.

    Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        pieces = _pieces(utf8_text(content))
        source = "\n".join(piece.text for piece in pieces if not piece.is_code)
        inline = _InlineText(_definitions(source))
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


def _metadata(source: str, inline: "_InlineText") -> dict[str, str | list[str]]:
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


def _last_argument(node: Any, l2tobj: Any) -> str:
    nodes = node.nodeargd.argnlist if node.nodeargd else ()
    return str(l2tobj.nodelist_to_text([nodes[-1]])) if nodes and nodes[-1] is not None else ""


def _citation(node: Any, l2tobj: Any) -> str:
    return f"[{_last_argument(node, l2tobj)}]"


def _accented(accent: str) -> Callable[[Any, Any], str]:
    """Returns a function that writes an argument with an accent on each of its characters.

    The library's function puts accents on accents too, so each nested accent would double the text.
    """

    def text(node: Any, l2tobj: Any) -> str:
        accented = (
            char if unicodedata.combining(char) else char.translate(_DOTLESS) + accent
            for char in _last_argument(node, l2tobj).strip()
        )
        return unicodedata.normalize("NFC", "".join(accented))

    return text


def _superscript(node: Any, l2tobj: Any) -> str:
    return f"{_SUPERSCRIPT}{_last_argument(node, l2tobj)}{_NORMAL}"


def _subscript(node: Any, l2tobj: Any) -> str:
    return f"{_SUBSCRIPT}{_last_argument(node, l2tobj)}{_NORMAL}"


def _with_scripts(text: str) -> str:
    """Returns a text in which superscripts and subscripts have signs instead of marks."""
    return "\n".join(
        joined_pieces(_placed_pieces(line)) if _PLACEMENT_MARK.search(line) else line
        for line in text.split("\n")
    )


def _placed_pieces(line: str) -> Iterator[Piece]:
    placement = Placement.NORMAL
    for part in _PLACEMENT_MARK.split(line):
        if part in _PLACEMENTS:
            placement = _PLACEMENTS[part]
        elif part:
            yield part, placement


_CITATIONS = (
    *("cite", "citep", "citet", "parencite", "textcite", "autocite", "footcite", "citealt"),
    *("citealp", "citeauthor", "citefullauthor", "citeyear", "citeyearpar", "Citep", "Citet"),
    *("Citealt", "Citealp", "Citeauthor"),
)
# pylatexenc knows that these commands have an argument, but would leave it out.
_TEXTS = ("texttt", "textsf", "textup", "textmd", "mbox", "keywords", "citetext")
_SIGNS = {
    **{
        name: name
        for name in ("TeX", "LaTeX", "XeTeX", "XeLaTeX", "LuaTeX", "LuaLaTeX", "pdfTeX", "BibTeX")
    },
    "LaTeXe": "LaTeX2e",
    "S": "§",
    "P": "¶",
    "copyright": "©",
    "pounds": "£",
    "euro": "€",
    "EUR": "€",
    "degree": "°",
    "textregistered": "®",
    "texttrademark": "™",
}
# Numbers with units, of the package siunitx. The unit is the last argument.
_QUANTITIES = {"SI": "[{[{", "qty": "[{{", "SIrange": "[{{{", "qtyrange": "[{{{"}
_UNITS = {"si": "[{", "unit": "[{"}
_UNIT_WORD = re.compile(r"\\([A-Za-z]+)|[^\\{}~\s]+")
_UNIT_PREFIXES = frozenset((
    "yocto", "zepto", "atto", "femto", "pico", "nano", "micro", "milli", "centi", "deci", "deca",
    "hecto", "kilo", "mega", "giga", "tera", "peta", "exa", "kibi", "mebi", "gibi", "tebi",
))  # fmt: skip


def _unit(node: Any, **_: Any) -> str:
    """Returns the words of a unit: `kilogram per second` for `\\kilo\\gram\\per\\second`."""
    nodes = node.nodeargd.argnlist if node.nodeargd else ()
    source = nodes[-1].latex_verbatim() if nodes and nodes[-1] is not None else ""
    words = (match[1] or match[0] for match in _UNIT_WORD.finditer(source))
    return "".join(word if word in _UNIT_PREFIXES else f"{word} " for word in words).strip()


def _quantity(node: Any, l2tobj: Any) -> str:
    """Returns a number, or a range of two numbers, with its unit."""
    arguments = node.nodeargd.argnlist[1:-1] if node.nodeargd else ()
    numbers = [
        str(l2tobj.nodelist_to_text([number]))
        for number in arguments
        if number is not None and number.delimiters[0] == "{"
    ]
    return " ".join(filter(None, ("\u2013".join(numbers), _unit(node))))


_REFERENCES = (
    "ref",
    "eqref",
    "pageref",
    "autoref",
    "cref",
    "Cref",
    "label",
    "index",
    "vspace",
    "hspace",
)
# pylatexenc loads its specifications on first use, and a confined process cannot load modules.
get_default_latex_context_db()
_WALKER_CONTEXT = get_walker_context_db()
_WALKER_CONTEXT.add_context_category(
    "hrag",
    prepend=True,
    macros=[
        MacroSpec("href", "{{"),
        MacroSpec("url", "{"),
        MacroSpec("textsuperscript", "{"),
        MacroSpec("textsubscript", "{"),
        *(MacroSpec(name, "{") for name in _TEXTS),
        *(MacroSpec(name, spec) for name, spec in (_QUANTITIES | _UNITS).items()),
        *(MacroSpec(name, "*[[{") for name in _CITATIONS),
        *(MacroSpec(name, "*{") for name in _REFERENCES),
    ],
)


class _TooManyTokens(Exception):
    """Raised if pylatexenc reads the same parts of a text again and again."""


class _Walker(LatexWalker):  # type: ignore[misc]  # pylatexenc has no types.
    """A parser of pylatexenc that reads a limited number of tokens."""

    def __init__(self, source: str) -> None:
        super().__init__(source, latex_context=_WALKER_CONTEXT, tolerant_parsing=True)
        self._tokens_left = _MIN_TOKENS + _MAX_TOKENS_PER_CHAR * len(source)

    def get_token(self, *arguments: Any, **options: Any) -> Any:
        """Returns a token as the library does. Raises _TooManyTokens."""
        self._tokens_left -= 1
        if self._tokens_left < 0:
            raise _TooManyTokens
        return super().get_token(*arguments, **options)


class _InlineText:
    """Converts the text of a paragraph, a title or a cell."""

    def __init__(self, definitions: dict[str, str]) -> None:
        self._costly_count = 0
        self._converter = _converter({})
        replaced = {name: self.text(text) for name, text in definitions.items()}
        self._converter = _converter(replaced)

    def text(self, source: str) -> str:
        """Returns LaTeX as plain text, with formulas as they are written."""
        if _MARKUP.search(source) is None:
            return source
        if len(source) <= _MAX_INLINE_CHARS:
            return self._converted(source)
        return "".join(map(self._converted, _divided(source)))

    def _converted(self, source: str) -> str:
        if self._costly_count >= _MAX_COSTLY_TEXTS:
            return _LEFT_COMMANDS.sub(" ", source)
        try:
            nodes, _start, _length = _Walker(source).get_latex_nodes()
            return _with_scripts(str(self._converter.nodelist_to_text(nodes)))
        except MemoryError:
            raise
        except _TooManyTokens:
            self._costly_count += 1
            return _LEFT_COMMANDS.sub(" ", source)
        except Exception:  # The library raises errors of many kinds for malformed texts.
            return _LEFT_COMMANDS.sub(" ", source)


def _divided(source: str) -> Iterator[str]:
    """Yields a long text in parts of at most _MAX_INLINE_CHARS characters, cut at white space."""
    start = 0
    while start < len(source):
        end = start + _MAX_INLINE_CHARS
        if end < len(source):
            end = max(source.rfind(" ", start, end), source.rfind("\n", start, end)) + 1 or end
        yield source[start:end]
        start = end


def _converter(definitions: dict[str, str]) -> LatexNodes2Text:
    context = get_default_latex_context_db()
    context.add_context_category(
        "hrag",
        prepend=True,
        macros=[
            MacroTextSpec("href", simplify_repl=_last_argument),
            MacroTextSpec("url", simplify_repl=_last_argument),
            MacroTextSpec("textsuperscript", simplify_repl=_superscript),
            MacroTextSpec("textsubscript", simplify_repl=_subscript),
            MacroTextSpec("-", simplify_repl=""),
            *(
                MacroTextSpec(name, simplify_repl=_accented(accent))
                for name, accent in _ACCENTS.items()
            ),
            # The same file must give the same text on every day.
            MacroTextSpec("today", simplify_repl=""),
            MacroTextSpec("maketitle", simplify_repl=""),
            *(MacroTextSpec(name, simplify_repl=_last_argument) for name in _TEXTS),
            *(MacroTextSpec(name, simplify_repl=sign) for name, sign in _SIGNS.items()),
            *(MacroTextSpec(name, simplify_repl=_quantity) for name in _QUANTITIES),
            *(MacroTextSpec(name, simplify_repl=_unit) for name in _UNITS),
            *(MacroTextSpec(name, simplify_repl=_citation) for name in _CITATIONS),
            *(MacroTextSpec(name, simplify_repl="") for name in _REFERENCES),
            *(
                MacroTextSpec(name, simplify_repl=lambda *_, text=text, **__: text)
                for name, text in definitions.items()
            ),
        ],
    )
    return LatexNodes2Text(context, math_mode="verbatim", keep_comments=False)


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

    def __init__(self, writer: TextWriter, inline: _InlineText, top_level: int) -> None:
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
        end = self._source.find("$", self._position, start + _MAX_INLINE_CHARS)
        blank = self._source.find("\n\n", self._position, start + _MAX_INLINE_CHARS)
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

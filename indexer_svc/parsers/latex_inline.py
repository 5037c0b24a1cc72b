"""Converts the text of a LaTeX paragraph, title or cell, by the library pylatexenc.

The library knows accents, symbols and the commands for fonts. It recurses over groups and
environments, so it only gets texts of at most MAX_INLINE_CHARS characters; a text that it cannot
read, for example because it is nested too deeply, loses its commands and braces instead. Each
argument that is not closed makes it read the rest of the text twice, so the number of the tokens
that it reads is limited too.
"""

import logging
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db
from pylatexenc.latexwalker import LatexWalker
from pylatexenc.latexwalker import get_default_latex_context_db as get_walker_context_db
from pylatexenc.macrospec import MacroSpec

from indexer_svc.parsers.placed_text import Piece, Placement, joined_pieces

# The combining character of each accent.
_ACCENTS = {
    "'": "\u0301", "`": "\u0300", '"': "\u0308", "^": "\u0302", "~": "\u0303", "=": "\u0304",
    ".": "\u0307", "c": "\u0327", "H": "\u030b", "k": "\u0328", "b": "\u0331", "d": "\u0323",
    "r": "\u030a", "u": "\u0306", "v": "\u030c", "vec": "\u20d7", "dot": "\u0307",
    "hat": "\u0302", "check": "\u030c", "breve": "\u0306", "acute": "\u0301", "grave": "\u0300",
    "tilde": "\u0303", "bar": "\u0305", "ddot": "\u0308", "not": "\u0338",
}  # fmt: skip
_DOTLESS = str.maketrans("\u0131\u0237", "ij")
_MARKUP = re.compile(r"[\\{}$~&#%]|--|``|''")
_LEFT_COMMANDS = re.compile(r"\\(?:[A-Za-z]+\*?|.)|[{}]", re.DOTALL)

MAX_INLINE_CHARS = 10_000
# pylatexenc reads at most 2 tokens for each character of a text whose arguments are closed.
_MAX_TOKENS_PER_CHAR = 3
_MIN_TOKENS = 100
# After so many texts of a document that take more tokens, it does not get any further ones.
_MAX_COSTLY_TEXTS = 10

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


class LatexText:
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
        if len(source) <= MAX_INLINE_CHARS:
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
    """Yields a long text in parts of at most MAX_INLINE_CHARS characters, cut at white space."""
    start = 0
    while start < len(source):
        end = start + MAX_INLINE_CHARS
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

r"""Follows the fields of a Word document: which text is a field's result, and which is its code.

A field is a run of elements: `begin`, its code (`REF table7 \h`), `separate`, its result
(`Table 7`), `end`. The result is what Word shows, so it is text, and the code is not. A field may
be in the code or the result of another one, and it may reach over several paragraphs. A simple
field is one element that contains its result.

Numbers of the current page are no text, because pages depend on the printer. Tables of contents and
indexes repeat headings and words with page numbers, so they are left out too.
"""

import re
from dataclasses import dataclass

from indexer_svc.parsers.package import Element
from indexer_svc.parsers.symbol_fonts import NOT_TICKED, TICKED
from indexer_svc.parsers.word.equation_fields import equation_of_field
from indexer_svc.parsers.word.names import WORD, number_of, switch_of

_PAGE_FIELDS = ("PAGE", "NUMPAGES", "SECTIONPAGES", "SECTION")
_CONTENTS_FIELDS = ("TOC", "INDEX", "TOA", "RD")
_BEGIN, _SEPARATE, _END = "begin", "separate", "end"
# The beginnings of fields that are nested more deeply are ignored.
_MAX_FIELDS = 64
_MAX_CODE_CHARS = 2_000
_KIND = re.compile(r"\s*([A-Za-z]+)")
# The code of a button contains the name of a macro or a place, and then the text of the button.
_BUTTON = re.compile(r"(?is)\s*(?:MACROBUTTON|GOTOBUTTON)\s+\S+\s+(?P<text>.*)")
_EQUATION = re.compile(r"\s*EQ(?![A-Za-z])", re.IGNORECASE)
# A switch for the format of the result. It is no part of an equation or of the text of a button.
_FORMAT_SWITCH = re.compile(r"\\\*\s*(?:\"[^\"]*\"|\S+)")
_SYMBOL = re.compile(r"\s*SYMBOL\s+(?P<code>\d{1,6}|0x[0-9A-Fa-f]{1,6})\b", re.IGNORECASE)


@dataclass(slots=True)
class _OpenField:
    """A field that has begun. `form` is its element with the data of a form, if it has one.

    `has_result` is True if its result has text. `is_unseen` is True if Word does not show its
    beginning or its code, because they are hidden.
    """

    form: Element | None = None
    code: str = ""
    is_result: bool = False
    has_result: bool = False
    is_unseen: bool = False
    kind: str = ""

    @property
    def is_hidden(self) -> bool:
        """True if text in the field at this time is code, or the number of a page."""
        return not self.is_result or self.kind in _PAGE_FIELDS


class WordFields:
    """The fields that have begun and not ended in a text: the body, a note or a text box."""

    def __init__(self) -> None:
        """Begins without fields."""
        self._open: list[_OpenField] = []

    @property
    def is_shown(self) -> bool:
        """True if text at this place is text of the document: no code, and no page number."""
        return not any(open_.is_hidden for open_ in self._open)

    @property
    def is_contents(self) -> bool:
        """True if this place is in a table of contents or an index."""
        return any(open_.kind in _CONTENTS_FIELDS for open_ in self._open)

    def mark(self, element: Element, *, is_unseen: bool) -> str:
        """Reads an element `fldChar`; returns the text that a field without result shows.

        `is_unseen` is True if the element is hidden.
        """
        kind = element.get(f"{WORD}fldCharType")
        if kind == _BEGIN:
            if len(self._open) < _MAX_FIELDS:
                form = element.find(f"{WORD}ffData")
                self._open.append(_OpenField(form, is_unseen=is_unseen))
        elif kind == _SEPARATE and self._open:
            self._begin_result(self._open[-1])
        elif kind == _END and self._open:
            ended = self._open.pop()
            return "" if is_unseen or ended.is_unseen else self._end(ended)
        return ""

    def add_code(self, text: str, *, is_unseen: bool) -> None:
        """Adds text to the code of the innermost field. `is_unseen` is True if it is hidden."""
        if self._open and not self._open[-1].is_result:
            field = self._open[-1]
            field.code += text[: _MAX_CODE_CHARS - len(field.code)]
            field.is_unseen |= is_unseen

    def add_text(self) -> None:
        """Notes that the results of the fields have text."""
        for open_ in self._open:
            open_.has_result = True

    def begin_simple(self, code: str) -> bool:
        """Begins a simple field; returns False if there are too many, so that it must not end."""
        if len(self._open) == _MAX_FIELDS:
            return False
        self._open.append(_OpenField(code=code[:_MAX_CODE_CHARS]))
        self._begin_result(self._open[-1])
        return True

    def end_simple(self) -> None:
        """Ends a simple field."""
        if self._open:
            self._open.pop()

    def end_paragraph(self) -> None:
        """Ends the fields whose code or page number would continue in the next paragraph.

        Otherwise a field without an end would hide the rest of the document. Results of other
        fields may have several paragraphs.
        """
        while self._open and self._open[-1].is_hidden:
            self._open.pop()

    def end_contents(self) -> None:
        """Ends tables of contents and indexes, because a heading of the document begins.

        Otherwise a table of contents without an end would hide the rest of the document.
        """
        while self.is_contents:
            self._open.pop()

    def _begin_result(self, open_: _OpenField) -> None:
        kind = _KIND.match(open_.code)
        open_.is_result = True
        open_.kind = kind[1].upper() if kind else ""

    def _end(self, ended: _OpenField) -> str:
        """Returns what a field without a result shows: a tick, a chosen entry, or an equation."""
        if not self.is_shown:
            return ""
        box = None if ended.form is None else ended.form.find(f"{WORD}checkBox")
        if box is not None:
            return _box_sign(box)
        if ended.has_result:
            return ""
        entries = None if ended.form is None else ended.form.find(f"{WORD}ddList")
        if entries is not None:
            return _chosen_entry(entries)
        return _shown_code(ended.code.strip())


def _box_sign(box: Element) -> str:
    """Returns the sign of a check box of a form."""
    ticked = switch_of(box, f"{WORD}checked")
    if ticked is None:
        ticked = switch_of(box, f"{WORD}default")
    return TICKED if ticked else NOT_TICKED


def _chosen_entry(entries: Element) -> str:
    index = number_of(entries, f"{WORD}result")
    if index is None:
        index = number_of(entries, f"{WORD}default") or 0
    texts = [entry.get(f"{WORD}val", "") for entry in entries.iterfind(f"{WORD}listEntry")]
    return texts[index] if 0 <= index < len(texts) else ""


def _shown_code(code: str) -> str:
    """Returns what Word shows for a field that has only a code."""
    if (match := _SYMBOL.match(code)) is not None:
        number = int(match["code"], 0)
        return chr(number) if 0x20 <= number < 0xD800 else ""
    code = _FORMAT_SWITCH.sub("", code)
    if (button := _BUTTON.match(code)) is not None:
        return button["text"].strip()
    equation = _EQUATION.match(code)
    return "" if equation is None else equation_of_field(code[equation.end() :])

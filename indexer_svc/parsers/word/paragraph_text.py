"""Reads the text of paragraphs: what Word shows of their runs, fields, notes and equations.

Hidden and deleted text is left out, inserted text is read. A reading above a word (ruby) is left
out. Superscripts and subscripts get signs, see `placed_text`. Text boxes are not part of the text
around them; they are returned separately.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from indexer_svc.parsers.office_graphics import GRAPHICS
from indexer_svc.parsers.package import Element
from indexer_svc.parsers.placed_text import Piece, Placement, tidied_pieces
from indexer_svc.parsers.symbol_fonts import NOT_TICKED, TICKED, symbol, with_symbols
from indexer_svc.parsers.word.equations import linear_equation
from indexer_svc.parsers.word.fields import WordFields
from indexer_svc.parsers.word.names import (
    CONTENT_CONTROL,
    EQUATION,
    EQUATIONS,
    PARAGRAPH_PROPERTIES,
    RUN,
    RUN_PROPERTIES,
    TABLE,
    TEXT,
    TEXT_BOX,
    TRUE_VALUES,
    WORD,
    WORD_2010,
    shown_children,
    switch_of,
    value_of,
)
from indexer_svc.parsers.word.notes import ENDNOTE, FOOTNOTE, WordNote, WordNotes
from indexer_svc.parsers.word.styles import WordStyle, WordStyles, font_of

_SIGNS: Mapping[str, str] = {
    f"{WORD}tab": "\t",
    f"{WORD}ptab": "\t",
    f"{WORD}br": "\n",
    f"{WORD}cr": "\n",
    f"{WORD}noBreakHyphen": "-",
}
_NOTE_REFERENCES = {
    f"{WORD}footnoteReference": FOOTNOTE,
    f"{WORD}endnoteReference": ENDNOTE,
}
_FIELD_CHARACTER, _FIELD_CODE = f"{WORD}fldChar", f"{WORD}instrText"
_SIMPLE_FIELD, _SYMBOL = f"{WORD}fldSimple", f"{WORD}sym"
_RUBY, _RUBY_BASE = f"{WORD}ruby", f"{WORD}rubyBase"
# Old decorated text (WordArt): a shape whose text is in an attribute.
_WORD_ART = "{urn:schemas-microsoft-com:vml}textpath"
_CODE_POINT = re.compile(r"[0-9A-Fa-f]{1,6}")
_CHECK_BOX = f"{WORD}sdtPr/{WORD_2010}checkbox"
_PLACEMENTS = {
    "superscript": Placement.SUPERSCRIPT,
    "subscript": Placement.SUBSCRIPT,
}


@dataclass(slots=True)
class WordText:
    """The text of a paragraph, and what belongs to it.

    `contents` is its text in a table of contents or an index. `boxes` are the text boxes, charts
    and diagrams that are anchored in it, and tables inside it. `notes` are the notes to which it
    refers first.
    """

    pieces: list[Piece] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    boxes: list[Element] = field(default_factory=list)
    notes: list[WordNote] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text, with the marks of notes."""
        return tidied_pieces(self.pieces)

    @property
    def title(self) -> str:
        """The text without the marks of notes."""
        return tidied_pieces([piece for piece in self.pieces if piece[1] is not Placement.NOTE])


@dataclass(frozen=True, slots=True)
class _RunLook:
    """The properties of the run around an element.

    `custom_mark` is the mark that the author has chosen for the note to which the run refers, or
    None. It is empty if the mark is in a later run.
    """

    custom_mark: str | None = None
    placement: Placement = Placement.NORMAL
    font: str | None = None
    is_hidden: bool = False


_NO_LOOK = _RunLook()
_Pending = list[tuple[Element | None, _RunLook]]


class WordParagraphReader:
    """Reads paragraphs in the order of the document."""

    def __init__(self, styles: WordStyles, notes: WordNotes) -> None:
        """Begins a document. `notes` counts the references to its notes."""
        self._styles = styles
        self._notes = notes

    def read(
        self, paragraph: Element, fields: WordFields, *, table_hides: bool = False
    ) -> WordText:
        """Returns the text of a paragraph.

        `fields` are the fields that have begun before it; they are updated. `table_hides` is True
        if the style of the table around it hides text.
        """
        result = WordText()
        style = self._styles.of(paragraph)
        # In this list, None means that a simple field ends.
        pending: _Pending = [(paragraph, _NO_LOOK)]
        while pending:
            element, look = pending.pop()
            if element is None:
                fields.end_simple()
            elif element.tag == RUN:
                self._read_run(element, style, table_hides, pending)
            elif element.tag in (TEXT_BOX, TABLE, *GRAPHICS):
                if fields.is_shown:
                    result.boxes.append(element)
            elif element.tag in (EQUATION, EQUATIONS):
                hides = self._hiding(style, table_hides=table_hides)
                _add(result, fields, linear_equation(element, hides), _NO_LOOK)
            elif not self._read_sign(element, look, fields, result):
                _read_children(element, look, fields, result, pending)
        fields.end_paragraph()
        return result

    def _hiding(self, style: WordStyle, *, table_hides: bool) -> Callable[[Element], bool]:
        return lambda run: self._styles.hides(run, style, table_hides=table_hides)

    def _read_run(
        self, run: Element, style: WordStyle, table_hides: bool, pending: _Pending
    ) -> None:
        properties = run.find(RUN_PROPERTIES)
        children = list(shown_children(run))
        is_hidden = self._styles.hides(run, style, table_hides=table_hides)
        if is_hidden:
            # Fields are followed in hidden text too, because a part of them may be hidden only.
            children = [child for child in children if child.tag in (_FIELD_CHARACTER, _FIELD_CODE)]
        run_style = self._styles.of(run)
        vertical = value_of(properties, f"{WORD}vertAlign") or run_style.vertical or style.vertical
        font = font_of(properties) or run_style.font or style.font
        look = _RunLook(
            _custom_mark(children, font),
            _PLACEMENTS.get(vertical or "", Placement.NORMAL),
            font,
            is_hidden,
        )
        pending += ((child, look) for child in reversed(children))

    def _read_sign(
        self, element: Element, look: _RunLook, fields: WordFields, result: WordText
    ) -> bool:
        """Reads an element that has no children with text; returns False for any other one."""
        if (text := _sign_text(element, look)) is not None:
            _add(result, fields, text, look)
        elif element.tag == _FIELD_CODE:
            fields.add_code(element.text or "", is_unseen=look.is_hidden)
        elif element.tag == _FIELD_CHARACTER:
            _add(result, fields, fields.mark(element, is_unseen=look.is_hidden), look)
        elif element.tag in _NOTE_REFERENCES:
            if fields.is_shown:
                self._refer(element, look, result)
        else:
            return False
        return True

    def _refer(self, reference: Element, look: _RunLook, result: WordText) -> None:
        kind, note_id = _NOTE_REFERENCES[reference.tag], reference.get(f"{WORD}id", "")
        mark, note = self._notes.refer(kind, note_id, look.custom_mark)
        if mark:
            result.pieces.append((mark, Placement.NOTE))
        if note is not None:
            result.notes.append(note)


def _sign_text(element: Element, look: _RunLook) -> str | None:
    """Returns the text of an element that stands for text; None for any other element."""
    if element.tag in (TEXT, _SYMBOL) and look.custom_mark:
        return ""
    if element.tag == TEXT:
        return with_symbols(element.text or "", look.font)
    if element.tag == _SYMBOL:
        code = element.get(f"{WORD}char", "")
        is_code = _CODE_POINT.fullmatch(code) is not None
        return symbol(element.get(f"{WORD}font", ""), int(code, 16)) if is_code else ""
    if element.tag == _WORD_ART:
        return f" {element.get('string', '')} "
    return _SIGNS.get(element.tag)


def _read_children(
    element: Element, look: _RunLook, fields: WordFields, result: WordText, pending: _Pending
) -> None:
    """Reads a content control, a field or a reading, or appends the children of any other."""
    if element.tag == CONTENT_CONTROL and (box := element.find(_CHECK_BOX)) is not None:
        checked = box.find(f"{WORD_2010}checked")
        is_ticked = checked is not None and checked.get(f"{WORD_2010}val", "1") in TRUE_VALUES
        _add(result, fields, TICKED if is_ticked else NOT_TICKED, _NO_LOOK)
        return
    if element.tag == _SIMPLE_FIELD and fields.begin_simple(element.get(f"{WORD}instr", "")):
        pending.append((None, _NO_LOOK))
    children = list(shown_children(element))
    if element.tag == _RUBY:
        children = [child for child in children if child.tag == _RUBY_BASE]
    pending += ((child, look) for child in reversed(children))


def _add(result: WordText, fields: WordFields, text: str, look: _RunLook) -> None:
    if not text or not fields.is_shown:
        return
    fields.add_text()
    if fields.is_contents:
        result.contents.append(text)
    else:
        result.pieces.append((text, look.placement))


def _custom_mark(children: Sequence[Element], font: str | None) -> str | None:
    """Returns the mark that the author has chosen for a note, from the children of a run.

    The result is None if the run refers to no note with such a mark. It is empty if the mark is in
    a later run.
    """
    for child in children:
        if child.tag in _NOTE_REFERENCES and child.get(f"{WORD}customMarkFollows") in TRUE_VALUES:
            signs = (text for text in children if text.tag in (TEXT, _SYMBOL))
            look = _RunLook(font=font)
            return "".join(_sign_text(sign, look) or "" for sign in signs).strip()
    return None


def mark_is_removed(paragraph: Element) -> bool:
    """Returns True if a paragraph continues in the next one.

    This is the case if the end of the paragraph is deleted, or if the paragraph is an initial that
    hangs before the lines of the next one.
    """
    properties = paragraph.find(PARAGRAPH_PROPERTIES)
    if properties is None:
        return False
    mark = properties.find(RUN_PROPERTIES)
    if mark is not None and mark.find(f"{WORD}del") is not None:
        return True
    frame = properties.find(f"{WORD}framePr")
    return frame is not None and frame.get(f"{WORD}dropCap") in ("drop", "margin")


def is_counted_when_empty(paragraph: Element) -> bool:
    """Returns True if Word shows the number of a paragraph without text."""
    properties = paragraph.find(PARAGRAPH_PROPERTIES)
    if properties is None:
        return True
    mark = properties.find(RUN_PROPERTIES)
    return not (
        properties.find(f"{WORD}sectPr") is not None
        or switch_of(mark, f"{WORD}vanish")
        or (mark is not None and mark.find(f"{WORD}moveFrom") is not None)
    )

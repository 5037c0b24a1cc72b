"""Reads the text of paragraphs in OpenDocument files: what an office program shows of them.

Hidden and deleted text is left out. A reading above a word (ruby) is left out. Superscripts and
subscripts get signs, see `placed_text`. Text boxes and notes are not part of the text around them;
they are returned separately.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from indexer_svc.parsers.odf.names import (
    DRAW,
    FIELD,
    FORM,
    GRID,
    LINK,
    LIST,
    NOTE,
    NOTE_BODY,
    NOTE_MARK,
    OFFICE,
    PARAGRAPH,
    TEXT,
    XML_ID,
    number,
    shown_children,
)
from indexer_svc.parsers.odf.styles import OdfStyleFamily, OdfStyles
from indexer_svc.parsers.package import Element
from indexer_svc.parsers.placed_text import Piece, Placement, tidied_pieces
from indexer_svc.parsers.symbol_fonts import NOT_TICKED, TICKED, with_symbols

# Elements that only style the text inside them. A style may show what a style around it hides.
_TRANSPARENT = (f"{TEXT}span", f"{TEXT}a")
_SIGNS = {f"{TEXT}s": " ", f"{TEXT}tab": "\t", f"{TEXT}line-break": "\n"}
# Elements that begin a new block of text.
_BLOCKS = (PARAGRAPH, f"{TEXT}h", LIST, GRID)
_CONTROL, _FORMULA = f"{DRAW}control", f"{DRAW}object"
_FORM_FIELD, _PARAMETER = f"{FIELD}fieldmark", f"{FIELD}param"


@dataclass(frozen=True, slots=True)
class OdfNote:
    """A note to which a text refers: its content and its mark."""

    content: Element
    mark: str


@dataclass(slots=True)
class OdfText:
    """The text of a paragraph, and what belongs to it.

    `boxes` are the elements anchored in it that contain blocks of text.
    """

    pieces: list[Piece] = field(default_factory=list)
    boxes: list[Element] = field(default_factory=list)
    notes: list[OdfNote] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text, with the marks of notes."""
        return tidied_pieces(self.pieces)

    @property
    def title(self) -> str:
        """The text without the marks of notes."""
        return tidied_pieces([piece for piece in self.pieces if piece[1] is not Placement.NOTE])


@dataclass(frozen=True, slots=True)
class _OdfLook:
    """The properties of the styles around a text."""

    placement: Placement = Placement.NORMAL
    is_hidden: bool = False
    font: str | None = None


class OdfParagraphReader:
    """Reads the paragraphs of a file."""

    def __init__(
        self, styles: OdfStyles, controls: Mapping[str, str], formula: Callable[[str], str]
    ) -> None:
        """Reads paragraphs with the styles of a file.

        `controls` has the text of each control of a form by its id. `formula` returns the text of
        the embedded formula to which a link leads, or an empty string.
        """
        self._styles = styles
        self._controls = controls
        self._formula = formula

    def read(self, paragraph: Element) -> OdfText:
        """Returns the text of a paragraph, a heading or another element with text."""
        result = OdfText()
        look = self._look(_OdfLook(), OdfStyleFamily.PARAGRAPH, paragraph)
        # In this list, a text is text that follows an element.
        pending: list[tuple[Element | str, _OdfLook]] = _content(paragraph, look)
        while pending:
            part, look = pending.pop()
            if not isinstance(part, str) and part.tag in _TRANSPARENT:
                look = self._look(look, OdfStyleFamily.TEXT, part)
                pending += _content(part, look)
            elif look.is_hidden:
                continue
            elif isinstance(part, str):
                result.pieces.append((with_symbols(part, look.font), look.placement))
            elif part.tag in _SIGNS:
                result.pieces.append((_SIGNS[part.tag], look.placement))
            elif part.tag == NOTE:
                _refer(part, result)
            elif (value := self._value(part)) is not None:
                result.pieces.append((value, look.placement))
            elif part.tag in _BLOCKS or any(child.tag in _BLOCKS for child in part):
                result.boxes.append(part)
            else:
                pending += _content(part, look)
        return result

    def _value(self, element: Element) -> str | None:
        """Returns what a control, a field of a form or a formula shows; None for any other."""
        if element.tag == _CONTROL:
            return self._controls.get(element.get(f"{DRAW}control", ""), "")
        if element.tag == _FORM_FIELD:
            return _form_field_text(element)
        if element.tag == _FORMULA and element.get(LINK):
            return self._formula(element.get(LINK, ""))
        return None

    def _look(self, around: _OdfLook, family: OdfStyleFamily, element: Element) -> _OdfLook:
        style = self._styles.of(family, element.get(f"{TEXT}style-name"))
        return replace(
            around,
            placement=style.placement or around.placement,
            is_hidden=around.is_hidden if style.is_hidden is None else style.is_hidden,
            font=style.font or around.font,
        )


def read_controls(root: Element) -> dict[str, str]:
    """Returns what the controls of a form show, by their ids: ticks, texts and chosen entries."""
    texts = {}
    for forms in root.iter(f"{OFFICE}forms"):
        for control in forms.iter():
            name = control.get(XML_ID) or control.get(f"{FORM}id")
            if name and control.tag.startswith(FORM):
                texts[name] = _control_text(control)
    return texts


def _control_text(control: Element) -> str:
    label = control.get(f"{FORM}label", "")
    if control.tag in (f"{FORM}checkbox", f"{FORM}radio"):
        state = control.get(f"{FORM}current-state") or control.get(f"{FORM}state")
        is_ticked = state == "checked" or control.get(f"{FORM}current-selected") == "true"
        return f"{TICKED if is_ticked else NOT_TICKED} {label}"
    if control.tag == f"{FORM}button":
        return ""
    chosen = [
        option.get(f"{FORM}label", "")
        for option in control.iter(f"{FORM}option")
        if option.get(f"{FORM}current-selected") == "true"
    ]
    value = control.get(f"{FORM}current-value") or control.get(f"{FORM}value")
    return value or ", ".join(chosen) or label


def _form_field_text(field: Element) -> str:
    """Returns what a field of a form from a Word document shows: a tick, or the chosen entry."""
    parameters = [
        (parameter.get(f"{FIELD}name", ""), parameter.get(f"{FIELD}value", ""))
        for parameter in field.iterfind(_PARAMETER)
    ]
    values = dict(parameters)
    kind = field.get(f"{FIELD}type", "")
    if kind.endswith("FORMCHECKBOX"):
        return TICKED if values.get("Checkbox_Checked") == "true" else NOT_TICKED
    entries = [value for name, value in parameters if name == "Dropdown_ListEntry"]
    chosen = number(values.get("Dropdown_Selected"), 0)
    return entries[chosen] if 0 <= chosen < len(entries) else ""


def _content(element: Element, look: _OdfLook) -> list[tuple[Element | str, _OdfLook]]:
    """Returns the texts and shown children of an element, last one first."""
    content: list[tuple[Element | str, _OdfLook]] = []
    if element.text:
        content.append((element.text.replace("\n", " "), look))
    shown = set(shown_children(element))
    for child in element:
        if child in shown:
            content.append((child, look))
        if child.tail:
            content.append((child.tail.replace("\n", " "), look))
    content.reverse()
    return content


def _refer(note: Element, result: OdfText) -> None:
    mark = note.find(NOTE_MARK)
    body = note.find(NOTE_BODY)
    text = "" if mark is None else "".join(mark.itertext()).strip()
    if text:
        result.pieces.append((text, Placement.NOTE))
    if body is not None:
        result.notes.append(OdfNote(body, text))

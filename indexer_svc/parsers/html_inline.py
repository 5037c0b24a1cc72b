"""Collects the text of inline elements of an HTML page: one paragraph, heading or cell.

Some elements change the text inside them, for example `sup`, `ruby` and `del`. A region is the text
since the beginning of one of these elements. When the element ends, its region is replaced.
"""

import re
from dataclasses import dataclass

from selectolax.lexbor import LexborNode

from indexer_svc.parsers import raised_text
from indexer_svc.parsers.html_formulas import (
    drawn_formula,
    formula,
    is_formula,
    picture_formula,
    script_formula,
)
from indexer_svc.parsers.html_nodes import WIDE_CHARACTER, Attributes, words_of
from indexer_svc.parsers.raised_text import FRACTION_SLASHES, LOOKED_AT_CHARS, UNSEEN

_WHITE_SPACE = re.compile(r"\s+")
# A space without width inside an ASCII word only allows a line break there.
_UNSEEN = re.compile(rf"{UNSEEN.pattern}|(?<=[!-~])\u200b(?=[!-~])")
_REGIONS = frozenset(
    ("sup", "sub", "ruby", "rt", "rtc", "del", "s", "strike", "q", "abbr", "dfn", "a", "span")
)
_STRUCK = ("del", "s", "strike")
_RAISED = re.compile(r"vertical-align\s*:\s*(super|sub)\b", re.IGNORECASE)
# More nested regions are read without their signs, because each block ends all of them.
_MAX_REGIONS = 20
_MAX_NOTE_CHARS = 12
_MAX_ABBREVIATION_CHARS = 12
_MAX_EXPANSION_CHARS = 200
# A shorter alternative text rarely describes a picture: `logo`, `photo`.
_MIN_DESCRIPTION_CHARS = 10
_MIN_WIDE_DESCRIPTION_CHARS = 4  # In Chinese, Japanese and Korean, a few characters are words.
_FILE_NAME = re.compile(r"\S*\.(?:png|jpe?g|gif|svg|webp|bmp|tiff?|avif)\W*", re.IGNORECASE)
_MAX_FIGURE_ANCESTORS = 4
_NOTE_TYPES = ("noteref", "doc-noteref")


@dataclass(slots=True)
class _Region:
    """An element that has begun. `start` is the index of the first part of its text."""

    kind: str
    mem_id: int
    start: int
    title: str = ""
    is_note: bool = False


class InlineText:
    """The text of inline elements that has been collected and not taken yet."""

    def __init__(self, *, keeps_white_space: bool = False) -> None:
        """Begins an empty text. White space is kept in preformatted text only."""
        self.keeps_white_space = keeps_white_space
        self.is_heading = False
        self._parts: list[str] = []
        self._regions: list[_Region] = []
        self._readings: list[str] = []
        self._expanded: set[str] = set()
        # The `mem_id` of the last figure with a picture, and its caption. It is read once, because
        # reading it for each picture of a figure would take quadratic time.
        self._figure: tuple[int, str] = (0, "")
        self._formula_parent: tuple[int, bool] = (0, False)
        # The text before the last superscript or subscript, and what was written for it.
        self._script: tuple[str, str] = ("", "")

    def enter(self, node: LexborNode, tag: str) -> bool:
        """Reads the start of an inline node; returns True if its child nodes must be visited."""
        if node.is_text_node:
            self._add_text(node.text_content or "")
            return False
        if tag == "br":
            self.add("\n")
        elif tag == "img":
            self._add_picture(node)
        elif tag == "input":
            self._add_checkbox(node.attributes)
        elif tag == "script":
            self.add(script_formula(node.attributes, node))
        elif is_formula(tag):
            self.add(formula(node))
        elif tag == "svg":
            self._add_drawing(node.attributes)
        else:
            self._enter_element(node, tag)
            return True
        return False

    def _enter_element(self, node: LexborNode, tag: str) -> None:
        if tag in _REGIONS:
            self._begin(node, tag)
        elif tag == "mjx-container":
            self.add(drawn_formula(node))
        elif tag == "label" and _follows_label(node):
            self.add(" ")

    def leave(self, node: LexborNode) -> None:
        """Reads the end of an inline node."""
        if self._regions and self._regions[-1].mem_id == node.mem_id:
            self._end(self._regions.pop())

    def add(self, text: str) -> None:
        """Adds text as it is."""
        if text:
            self._parts.append(text)

    def line_end(self) -> None:
        """Adds a line end if the text does not end with one. Blocks inside of a cell need it."""
        self._script = ("", "")
        if self._parts and not self._parts[-1].endswith("\n"):
            self._parts.append("\n")

    def take(self) -> str:
        """Returns the collected text, and begins an empty text inside of the same elements."""
        for region in reversed(self._regions):
            self._end(region)
        text = "".join(self._parts)
        self._parts.clear()
        self._script = ("", "")
        for region in self._regions:
            region.start = 0
        return text

    def _add_text(self, text: str) -> None:
        text = _UNSEEN.sub("", text)
        if not self.keeps_white_space:
            text = _WHITE_SPACE.sub(" ", text)
        if not text:
            return
        before, script = self._script
        if script and raised_text.needs_space(before, script, text):
            self._parts.append(" ")
        self._script = ("", "")
        self._parts.append(text)

    def _begin(self, node: LexborNode, tag: str) -> None:
        if len(self._regions) >= _MAX_REGIONS:
            return
        attributes = node.attributes
        region = _Region(tag, node.mem_id, len(self._parts))
        if tag == "span":
            region.kind = _kind_of_span(node, attributes)
            if not region.kind:
                return
        elif tag == "a":
            if not _is_note_type(attributes):
                return
            region.kind, region.is_note = "sup", True
        elif tag in ("abbr", "dfn"):
            region.title = attributes.get("title") or ""
        elif tag == "q":
            self.add('"')
        if region.kind == "sup":
            if _precedes_denominator(node):
                region.kind = "numerator"
            else:
                region.is_note = region.is_note or _is_note(node, attributes)
        self._regions.append(region)

    def _end(self, region: _Region) -> None:
        text = "".join(self._parts[region.start :])
        if region.kind in ("ruby", "rt", "rtc"):
            self._end_ruby(region, text)
        elif not text.strip():
            return
        elif region.kind in ("sup", "sub", "numerator"):
            self._end_script(region, text)
        elif region.kind in _STRUCK:
            self._replace(region, f"~~{text.strip()}~~", text)
        elif region.kind == "q":
            self.add('"')
        elif region.title:
            self._expand(region.title, text)

    def _end_script(self, region: _Region, text: str) -> None:
        if any(
            outer.kind in ("sup", "numerator") for outer in self._regions if outer is not region
        ):
            return  # The link inside a superscript is written by the superscript.
        before = self._before(region.start)
        if region.kind == "sub":
            script = raised_text.subscript(before, text)
        elif region.kind == "numerator":
            script = raised_text.numerator(before, text)
        else:
            is_note = region.is_note and len(text.strip()) <= _MAX_NOTE_CHARS
            script = raised_text.superscript(before, text, is_note=is_note)
        del self._parts[region.start :]
        self._parts.append(script)
        self._script = (before, script)

    def _end_ruby(self, region: _Region, text: str) -> None:
        """Moves the readings of a ruby after its base, so that the words of the base stay whole."""
        if region.kind != "ruby":
            if text.strip():
                self._readings.append(text.strip())
            del self._parts[region.start :]
            return
        if self._readings:
            base = text.strip()
            gap = " " if self._readings[0][-1].isascii() else ""
            self._parts[region.start :] = [f"{base}({gap.join(self._readings)})"]
            self._readings.clear()

    def _replace(self, region: _Region, text: str, replaced: str) -> None:
        start = " " if replaced[0].isspace() else ""
        end = " " if replaced[-1].isspace() else ""
        self._parts[region.start :] = [f"{start}{text}{end}"]

    def _expand(self, title: str, text: str) -> None:
        """Adds the long form after the first use of an abbreviation."""
        short, long = text.strip(), " ".join(title.split())
        is_short = len(short) <= _MAX_ABBREVIATION_CHARS and not any(map(str.isspace, short))
        is_long = len(short) < len(long) <= _MAX_EXPANSION_CHARS and any(map(str.isalpha, long))
        if is_short and is_long and any(map(str.isupper, short)) and short not in self._expanded:
            self._expanded.add(short)
            self.add(f" ({long})")

    def _before(self, end: int) -> str:
        """Returns the last characters before the part with the index `end`."""
        texts: list[str] = []
        chars = 0
        for at in range(end - 1, -1, -1):
            texts.append(self._parts[at])
            chars += len(self._parts[at])
            if chars >= LOOKED_AT_CHARS:
                break
        return "".join(reversed(texts))[-LOOKED_AT_CHARS:]

    def _add_picture(self, node: LexborNode) -> None:
        attributes = node.attributes
        if tex := picture_formula(attributes):
            if not self._has_formula_near(node):
                self.add(tex)
            return
        text = " ".join((attributes.get("alt") or "").split())
        if not text or attributes.get("role") in ("presentation", "none"):
            return
        if not any(map(str.isalnum, text)) or self.is_heading:
            self.add(text)
            return
        min_chars = _MIN_DESCRIPTION_CHARS
        if WIDE_CHARACTER.search(text):
            min_chars = _MIN_WIDE_DESCRIPTION_CHARS
        is_long = len(text) >= min_chars
        if is_long and not _FILE_NAME.fullmatch(text) and not self._repeats_caption(node, text):
            self.add(f" ![{text}] ")

    def _repeats_caption(self, picture: LexborNode, text: str) -> bool:
        """Returns True if a figure has a caption that says the same as its picture's text."""
        figure = _figure_of(picture)
        if figure is None:
            return False
        if figure.mem_id != self._figure[0]:
            caption = figure.css_first("figcaption")
            words = "" if caption is None else " ".join(caption.text().split())
            self._figure = figure.mem_id, words
        words = self._figure[1]
        return bool(words) and (text in words or words in text)

    def _has_formula_near(self, picture: LexborNode) -> bool:
        """Returns True if the parent of a picture of a formula also has the formula in MathML."""
        parent = picture.parent
        if parent is None:
            return False
        # One parent may have many pictures, and is searched once.
        if parent.mem_id != self._formula_parent[0]:
            self._formula_parent = parent.mem_id, parent.css_first("math") is not None
        return self._formula_parent[1]

    def _add_checkbox(self, attributes: Attributes) -> None:
        """Adds the state of a box in a list of tasks, as in Markdown."""
        if (attributes.get("type") or "").lower() == "checkbox" and "disabled" in attributes:
            self.add("[x] " if "checked" in attributes else "[ ] ")

    def _add_drawing(self, attributes: Attributes) -> None:
        label = " ".join((attributes.get("aria-label") or "").split())
        if attributes.get("role") == "img" and len(label) >= _MIN_DESCRIPTION_CHARS:
            self.add(label if self.is_heading else f" ![{label}] ")


def _is_note_type(attributes: Attributes) -> bool:
    return (
        attributes.get("epub:type") in _NOTE_TYPES
        or attributes.get("role") in _NOTE_TYPES
        or "footnote-ref" in (attributes.get("class") or "").split()
    )


def _is_note(node: LexborNode, attributes: Attributes) -> bool:
    """Returns True if a superscript is a link to a position, or is inside of one."""
    if _is_note_type(attributes) or not words_of(attributes, "class").isdisjoint(
        ("footnote", "noteref", "reference", "citation", "fn")
    ):
        return True
    parent = node.parent
    links = [parent] if parent is not None and parent.tag == "a" else node.css("a")[:1]
    return any("#" in (link.attributes.get("href") or "") for link in links)


def _follows_label(label: LexborNode) -> bool:
    """Returns True if there is nothing between a label and another one, as in a row of tabs."""
    before = label.prev
    return before is not None and before.tag == "label"


def _kind_of_span(span: LexborNode, attributes: Attributes) -> str:
    """Returns the kind of the region of a raised or lowered span; empty for another span."""
    style = _RAISED.search(attributes.get("style") or "")
    if style is not None:
        return "sup" if style[1].lower() == "super" else "sub"
    return "numerator" if _is_numerator(span, attributes) else ""


def _is_numerator(node: LexborNode, attributes: Attributes) -> bool:
    """Returns True for the upper number of a fraction in Wikipedia: a slash follows it."""
    if "num" not in (attributes.get("class") or "").split():
        return False
    slash = node.next
    return slash is not None and (slash.text_content or "").strip() in FRACTION_SLASHES


def _precedes_denominator(node: LexborNode) -> bool:
    """Returns True if a slash and a subscript follow a superscript."""
    slash = node.next
    if slash is None or not slash.is_text_node:
        return False
    below = slash.next
    return (
        (slash.text_content or "").strip() in FRACTION_SLASHES
        and below is not None
        and below.tag == "sub"
    )


def _figure_of(picture: LexborNode) -> LexborNode | None:
    ancestor = picture.parent
    for _ in range(_MAX_FIGURE_ANCESTORS):
        if ancestor is None or ancestor.tag == "figure":
            return ancestor
        ancestor = ancestor.parent
    return None

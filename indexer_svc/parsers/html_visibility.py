"""Decides which elements of an HTML page are read.

Everything that a reader of the page can see is read. That includes parts that a click reveals, for
example the panel of a tab or the answer to a question in an accordion, and the label of the button
that reveals it. Scripts, styles, templates, controls, hidden elements, and copies of what is read
elsewhere are left out.
"""

import re
from collections.abc import Collection

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexer_svc.parsers.html_formulas import BOXES, is_rendered_again, is_script_of_formula
from indexer_svc.parsers.html_nodes import BLOCKS, HEADINGS, Attributes

_NOT_TEXT = frozenset((
    "head", "title", "style", "template", "select", "datalist", "textarea", "progress", "meter",
    "object", "embed", "iframe", "map", "canvas", "audio", "video", "rp", "annotation",
    "annotation-xml",
))  # fmt: skip
_HIDING_STYLE = re.compile(
    r"(?:^|[;\s])(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE
)
# Names of classes of elements that programs add to a text: links that edit a section, links to its
# source or from a reference back to the text, icons, copies of slides.
_ADDED = frozenset((
    *("copybtn", "headerlink", "viewcode-link", "mw-editsection", "skip-link", "skiplink"),
    *("skip-to-content", "skip-nav", "slick-cloned", "swiper-slide-duplicate", "material-icons"),
    *("material-symbols-outlined", "mw-cite-backlink"),
))  # fmt: skip
# Names of classes of numbers of lines or pages. Some programs use the same names for an element
# that contains the text, so an element with longer text or with words is read.
_NUMBERS = frozenset((
    *("linenos", "linenodiv", "lineno", "line-number", "line-numbers", "line-numbers-rows"),
    *("source-line-no", "gutter", "gl", "rouge-gutter", "hljs-ln-numbers", "blob-num"),
    *("pagebreak", "page-break", "pagenum", "page-number"),
))  # fmt: skip
# A page number may be written with letters: `xviii`.
_MAX_NUMBER_CHARS = 8
# Some fonts show a word as an icon: `arrow_forward`.
_MAX_ICON_CHARS = 40
# Classes of text that only screen readers read, in place of what is shown.
_FOR_SCREEN_READERS = frozenset((
    *("sr-only", "visually-hidden", "visuallyhidden", "screen-reader-text", "a-offscreen"),
    *("screen-reader-only", "assistive-text", "u-hiddenVisually"),
))  # fmt: skip
_MATH_CONTAINERS = ("mwe-math-mathml-inline", "mwe-math-mathml-display", "katex-mathml")
_TOGGLES = ("collapse", "tab", "pill", "accordion")
_DISCLOSURE_CLASSES = ("accordion", "collapsible", "accordion-button", "accordion-toggle")
_NOTE_SIGNS = frozenset("*†‡[]()")
_LABELLED = ("dt", "summary", "legend", *HEADINGS)
_TRIGGERS_WITHOUT_TARGETS = ", ".join(
    f"{trigger}:not([aria-controls])"
    for trigger in ("[aria-expanded]", *(f".{name}" for name in _DISCLOSURE_CLASSES))
)
_MAX_ANCESTORS = 8
_MAX_SIBLINGS = 8


class Visibility:
    """The elements of one page that are read."""

    def __init__(self, page: LexborHTMLParser, left_out: Collection[int] = ()) -> None:
        """Finds what a page can reveal. `left_out` are `mem_id`s of elements that are not read."""
        self._left_out = left_out
        self._reads_noscript = False
        self._revealed, self._labels = _revealed(page)
        self._panels = _panels_without_names(page)
        # The `mem_id` of the last heading with a button, and its text. It is read once, because
        # reading it for each button of a heading would take quadratic time.
        self._heading: tuple[int, str] = (0, "")

    def read_noscript(self) -> None:
        """Makes the elements `noscript` visible, which a browser shows only without scripts."""
        self._reads_noscript = True

    def shows(self, node: LexborNode) -> bool:
        """Returns True for text, and for elements whose text is read."""
        if node.is_text_node:
            return True
        if not node.is_element_node or self._is_left_out(node):
            return False
        return self._shows_element(node, node.tag or "", node.attributes)

    def _shows_element(self, node: LexborNode, tag: str, attributes: Attributes) -> bool:
        if tag in _NOT_TEXT or (tag == "dialog" and "open" not in attributes):
            return False
        if tag == "noscript":
            return self._reads_noscript
        if tag == "script":
            return is_script_of_formula(attributes)
        if tag == "button" and not _is_disclosure(attributes) and not self._is_label(node):
            return False
        return not attributes or not (
            self._is_hidden(node, attributes)
            or self._is_label_of_panel(attributes)
            or _is_added(node, attributes)
        )

    def count_left_out_before(self, node: LexborNode) -> int:
        """Returns how many elements directly before a node, with its tag, are left out."""
        count = 0
        before = node.prev if self._left_out else None
        while before is not None and (not before.is_element_node or self._is_left_out(before)):
            count += before.tag == node.tag
            before = before.prev
        return count

    def _is_left_out(self, node: LexborNode) -> bool:
        return node.mem_id in self._left_out

    def label(self, attributes: Attributes) -> str:
        """Returns the label of a panel that is labelled by a tab elsewhere, or an empty string."""
        if attributes.get("role") != "tabpanel":
            return ""
        return self._labels.get(attributes.get("aria-labelledby") or "", "")

    def _is_label(self, button: LexborNode) -> bool:
        """Returns True if a heading or term begins with the text of a button.

        A button after the text of a heading, for example to copy a link, is not a label.
        """
        heading = _labelled(button)
        if heading is None:
            return False
        if heading.mem_id != self._heading[0]:
            self._heading = heading.mem_id, heading.text().strip()
        label = button.text().strip()
        return bool(label) and self._heading[1].startswith(label)

    def _is_label_of_panel(self, attributes: Attributes) -> bool:
        """Returns True for a tab whose label is read with its panel."""
        return attributes.get("role") == "tab" and (attributes.get("id") or "") in self._labels

    def _is_hidden(self, node: LexborNode, attributes: Attributes) -> bool:
        is_hidden = (
            "hidden" in attributes and (attributes["hidden"] or "").lower() != "until-found"
        ) or _HIDING_STYLE.search(attributes.get("style") or "")
        if not is_hidden:
            return False
        names = (attributes.get("class") or "").split()
        return not (
            any(name in _MATH_CONTAINERS for name in names)
            or (attributes.get("id") or "") in self._revealed
            or attributes.get("role") == "tabpanel"
            or node.mem_id in self._panels
        )


def _is_added(node: LexborNode, attributes: Attributes) -> bool:
    """Returns True for an element that a program has added, or that repeats another one."""
    names = attributes.get("class")
    classes = names.split() if names else ()
    if not _ADDED.isdisjoint(classes):
        return True
    is_break = attributes.get("role") == "doc-pagebreak" or (
        attributes.get("epub:type") == "pagebreak"
    )
    if (is_break or not _NUMBERS.isdisjoint(classes)) and _is_number(node):
        return True
    if (names or node.tag in BOXES) and is_rendered_again(node, attributes):
        return True
    if attributes.get("aria-hidden") == "true" and _is_decoration(node, names or ""):
        return True
    return node.tag == "a" and _is_anchor(node, attributes)


def _is_number(node: LexborNode) -> bool:
    """Returns True if an element contains only a short text, or no letters."""
    text = node.text().strip()
    return len(text) <= _MAX_NUMBER_CHARS or not any(map(str.isalpha, text))


def _is_anchor(link: LexborNode, attributes: Attributes) -> bool:
    """Returns True if a link has no letters or digits and leads to a position on the page.

    Many pages have a link like that next to each heading. The mark of a note may also be a sign.
    """
    target = attributes.get("href") or ""
    if not target.startswith("#"):
        return False
    text = link.text().strip()
    return not any(map(str.isalnum, text)) and not (text and _NOTE_SIGNS.issuperset(text))


def _is_decoration(node: LexborNode, names: str) -> bool:
    """Returns True if an element with `aria-hidden` is an icon, or repeats text next to it.

    Other elements with `aria-hidden` are read, because a browser shows them, and a page that was
    saved while a dialog was open has `aria-hidden` on its whole content.
    """
    text = node.text()
    if not any(map(str.isalnum, text)):
        return True
    parent = node.parent
    if parent is None or node.tag in BLOCKS:
        return False
    if len(text) <= _MAX_ICON_CHARS and (node.tag == "i" or "icon" in names):
        return True
    if parent.attributes.get("aria-label"):
        return True
    sibling = parent.child
    for _ in range(_MAX_SIBLINGS):
        if sibling is None:
            break
        if sibling.is_element_node:
            classes = (sibling.attributes.get("class") or "").split()
            if not _FOR_SCREEN_READERS.isdisjoint(classes):
                return True
        sibling = sibling.next
    return False


def _is_disclosure(attributes: Attributes) -> bool:
    """Returns True if a button shows and hides a part of the page. Its label is text."""
    if (attributes.get("aria-haspopup") or "false") != "false":
        return False
    toggle = attributes.get("data-bs-toggle") or attributes.get("data-toggle")
    names = (attributes.get("class") or "").split()
    return (
        "aria-expanded" in attributes
        or toggle in _TOGGLES
        or attributes.get("role") == "tab"
        or any(name in _DISCLOSURE_CLASSES for name in names)
    )


def _labelled(button: LexborNode) -> LexborNode | None:
    """Returns the heading, term or summary that contains a button, or None."""
    ancestor = button.parent
    for _ in range(_MAX_ANCESTORS):
        if ancestor is None or ancestor.tag in _LABELLED:
            return ancestor
        if ancestor.attributes.get("role") == "heading":
            return ancestor
        ancestor = ancestor.parent
    return None


def _revealed(page: LexborHTMLParser) -> tuple[set[str], dict[str, str]]:
    """Returns the ids of the elements that buttons reveal, and the labels of tabs by their ids."""
    revealed: set[str] = set()
    labels: dict[str, str] = {}
    for trigger in page.css("[aria-controls], [data-toggle], [data-bs-toggle]"):
        attributes = trigger.attributes
        if not _is_disclosure(attributes):
            continue
        revealed.update((attributes.get("aria-controls") or "").split())
        for name in ("data-bs-target", "data-target", "href"):
            target = attributes.get(name) or ""
            if target.startswith("#"):
                revealed.add(target[1:])
    panels = page.css("[role=tabpanel][aria-labelledby]")
    labelling = {panel.attributes.get("aria-labelledby") or "" for panel in panels}
    if labelling:
        for tab in page.css("[role=tab][id]"):
            name = tab.attributes.get("id") or ""
            if name in labelling:
                labels[name] = " ".join(tab.text().split())
    return revealed, labels


def _panels_without_names(page: LexborHTMLParser) -> set[int]:
    """Returns the `mem_id`s of the elements that buttons reveal without naming their ids.

    The element is the next one after the button, or after the heading or term that contains it.
    """
    panels: set[int] = set()
    for trigger in page.css(_TRIGGERS_WITHOUT_TARGETS):
        if _is_disclosure(trigger.attributes):
            for element in (trigger, _labelled(trigger)):
                panel = None if element is None else _next_element(element)
                if panel is not None:
                    panels.add(panel.mem_id)
    return panels


def _next_element(node: LexborNode) -> LexborNode | None:
    """Returns the element after a node, or None if text or too many other nodes are between."""
    following = node.next
    for _ in range(_MAX_SIBLINGS):
        if following is None or following.is_element_node:
            return following
        if following.is_text_node and (following.text_content or "").strip():
            return None
        following = following.next
    return None

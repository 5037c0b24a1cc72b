"""Reads the formulas of HTML pages, each once.

Programs write a formula several times: as MathML for screen readers, as TeX for programs, and as
boxes or a picture for the eye. The TeX is read if the page has it; it stands between dollar signs,
as in Markdown: `$E=mc^2$`. Otherwise the MathML is read, in a linear format: `E=mc^2`, `1/2`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexer_svc.parsers.html_nodes import Attributes
from indexer_svc.parsers.linear_formula import INVISIBLE_SIGNS, operand, root

_TEX = ("application/x-tex", "latex", "tex", "text/x-tex", "application/x-latex")
_SCRIPT = re.compile(r"math/(tex|latex|asciimath|mml)\b", re.IGNORECASE)
_STYLE = re.compile(r"\{?\\(?:displaystyle|textstyle)\b\s*(?P<tex>.*?)\}?", re.DOTALL)
_TEX_PICTURES = (
    "tex",
    "latex",
    "mwe-math-fallback-image-inline",
    "mwe-math-fallback-image-display",
)
# MathJax 2 puts these elements before the script that contains the formula.
_RENDERED = frozenset((
    *("MathJax_Preview", "MathJax", "MathJax_Display", "MathJax_SVG", "MathJax_SVG_Display"),
    *("MathJax_CHTML", "mjx-chtml", "MJXc-display"),
))  # fmt: skip
# Elements of MathJax that show a formula and have no class.
BOXES = ("mjx-math", "nobr")
_MAX_SIBLINGS = 6
# A deeper or longer formula is left out of the text. It is no formula, but an attack.
_MAX_CHARS = 20_000
_ENDS_WITH_SCRIPT = re.compile(r"[\^_]\w+\Z")
_ANNOTATIONS = ("annotation", "annotation-xml")
_NOT_READ = (*_ANNOTATIONS, "mphantom", "maligngroup")
_NO_LINE = re.compile(r"\s*0+(?:\.0+)?\s*(?:[a-z]+|%)?\s*", re.IGNORECASE)


def is_formula(tag: str) -> bool:
    """Returns True for the element `math`, also with a prefix of XML."""
    return tag == "math" or tag.endswith(":math")


def is_rendered_again(node: LexborNode, attributes: Attributes) -> bool:
    """Returns True for an element that shows a formula that another element contains too.

    The other element is one of KaTeX or MathJax with the MathML or the TeX.
    """
    if node.tag == "mjx-math":
        return _has_sibling(node, lambda other: other.tag == "mjx-assistive-mml")
    names = (attributes.get("class") or "").split()
    if node.tag == "nobr" or "mjx-math" in names:
        return _has_sibling(node, lambda other: "MJX_Assistive_MathML" in _class_of(other))
    if "katex-html" in names:
        return _has_sibling(node, lambda other: "katex-mathml" in _class_of(other))
    return not _RENDERED.isdisjoint(names) and _precedes_script(node)


def is_script_of_formula(attributes: Attributes) -> bool:
    """Returns True for a script of MathJax 2, which contains a formula."""
    return _SCRIPT.match(attributes.get("type") or "") is not None


def script_formula(attributes: Attributes, node: LexborNode) -> str:
    """Returns the formula that a script of MathJax 2 contains, or an empty string."""
    kind = _SCRIPT.match(attributes.get("type") or "")
    if kind is None:
        return ""
    source = node.text() or ""
    if kind[1].lower() == "mml":
        math = LexborHTMLParser(source).css_first("math")
        return "" if math is None else formula(math)
    return _tex(source) if kind[1].lower() != "asciimath" else " ".join(source.split())


def picture_formula(attributes: Attributes) -> str:
    """Returns the formula that is the alternative text of a picture, or an empty string."""
    names = (attributes.get("class") or "").split()
    is_tex = any(name in _TEX_PICTURES for name in names)
    return _tex(attributes.get("alt") or "") if is_tex else ""


def drawn_formula(container: LexborNode) -> str:
    """Returns the formula that an element of MathJax only draws; empty if it has text or MathML.

    It is the TeX from which it was drawn, or else what a screen reader says.
    """
    is_drawn = container.css_first("svg") is not None or not container.text().strip()
    if not is_drawn or container.css_first("math") is not None:
        return ""
    source = container.css_first("[data-latex]")
    if source is not None and (tex := _tex(source.attributes.get("data-latex") or "")):
        return tex
    spoken = container if "aria-label" in container.attributes else None
    spoken = spoken or container.css_first("[aria-label]")
    label = "" if spoken is None else spoken.attributes.get("aria-label") or ""
    return " ".join(label.split())[:_MAX_CHARS]


def formula(math: LexborNode) -> str:
    """Returns the formula of an element `math`."""
    attributes = math.attributes
    tex = attributes.get("alttext") or attributes.get("data-latex") or _annotation(math)
    return _tex(tex) if tex.strip() else _linear(math)


def _tex(source: str) -> str:
    tex = " ".join(source.split())[:_MAX_CHARS]
    if style := _STYLE.fullmatch(tex):
        tex = style["tex"].strip()
    tex = tex.strip("$").strip()
    return f"${tex}$" if tex else ""


def _annotation(math: LexborNode) -> str:
    """Returns the TeX in an annotation of a formula, or an empty string."""
    for annotation in math.css("annotation"):
        if (annotation.attributes.get("encoding") or "").lower() in _TEX:
            return annotation.text() or ""
    return ""


def _has_sibling(node: LexborNode, is_other: Callable[[LexborNode], bool]) -> bool:
    """Returns True if one of the first siblings of a node is an element that `is_other` accepts."""
    sibling = node.parent.child if node.parent is not None else None
    for _ in range(_MAX_SIBLINGS):
        if sibling is None:
            return False
        if sibling.is_element_node and is_other(sibling):
            return True
        sibling = sibling.next
    return False


def _precedes_script(node: LexborNode) -> bool:
    """Returns True if one of the next siblings of a node is a script with a formula."""
    sibling = node.next
    for _ in range(_MAX_SIBLINGS):
        if sibling is None:
            return False
        if sibling.tag == "script":
            return _SCRIPT.match(sibling.attributes.get("type") or "") is not None
        sibling = sibling.next
    return False


def _class_of(node: LexborNode) -> list[str]:
    return (node.attributes.get("class") or "").split()


def _linear(math: LexborNode) -> str:
    """Returns MathML in a linear format. Elements are read after their children."""
    values: list[list[str]] = [[]]
    ancestors = [math]
    node = math.child
    chars = 0
    while ancestors:
        if node is None:
            parent = ancestors.pop()
            value = _value(parent, values.pop())
            chars += len(value)
            if chars > _MAX_CHARS * 8 or not values:
                return "" if values else value
            values[-1].append(value)
            node = parent.next
        elif node.is_text_node:
            values[-1].append((node.text_content or "").translate(INVISIBLE_SIGNS))
            node = node.next
        elif node.is_element_node and _name(node) not in _NOT_READ:
            ancestors.append(node)
            values.append([])
            node = node.child
        else:
            node = node.next
    return ""


def _name(node: LexborNode) -> str:
    return (node.tag or "").rpartition(":")[2]


def _value(node: LexborNode, parts: Sequence[str]) -> str:
    """Returns the text of an element of MathML whose children have the texts `parts`."""
    name = _name(node)
    if name == "mmultiscripts":
        return _with_multiscripts(node, parts)
    if name in _TOKENS:
        text = " ".join("".join(parts).split())
        return f" {text} " if name == "mtext" and text else text
    operands = [part for part in parts if part.strip()] if name in _SCHEMES else list(parts)
    scheme = _SCHEMES.get(name)
    if scheme is not None and len(operands) >= scheme[0]:
        is_binomial = name == "mfrac" and _NO_LINE.fullmatch(
            node.attributes.get("linethickness") or ""
        )
        return _binomial(operands) if is_binomial else scheme[1](operands)
    if name == "math":
        return " ".join(_row(parts).split())
    return _row(parts)


def _row(parts: Sequence[str]) -> str:
    """Returns parts one after the other. A space separates two words."""
    texts: list[str] = []
    before = ""
    for part in parts:
        text = part if texts else part.lstrip()
        if not text.strip():
            continue
        if _needs_space(before, text):
            texts.append(" ")
        texts.append(text)
        before = text
    return "".join(texts)


def _needs_space(before: str, text: str) -> bool:
    """Returns True if two parts would be read as one word or as one exponent without a space."""
    if not (before[-1:].isalnum() and text[0].isalnum()):
        return False
    return (
        _is_word(before[-2:]) or _is_word(text[:2]) or _ENDS_WITH_SCRIPT.search(before) is not None
    )


def _is_word(letters: str) -> bool:
    return len(letters) > 1 and letters.isalpha()


def _with_multiscripts(node: LexborNode, parts: Sequence[str]) -> str:
    names = [_name(child) for child in node.iter() if _name(child) not in _ANNOTATIONS]
    operands = [part for part in parts if part.strip() or not part]
    if len(names) != len(operands) or not operands or names[0] == "mprescripts":
        return _row(parts)
    at = names.index("mprescripts") if "mprescripts" in names else len(names)
    return _multiscripts(operands[at + 1 :], operands[:at])


def _binomial(parts: Sequence[str]) -> str:
    return f"{operand(parts[0])}¦{operand(parts[1])}"


def _fraction(parts: Sequence[str]) -> str:
    return f"{operand(parts[0])}/{operand(parts[1])}"


def _scripted(*signs: str) -> Callable[[Sequence[str]], str]:
    def write(parts: Sequence[str]) -> str:
        scripts = (sign + operand(part) for sign, part in zip(signs, parts[1:], strict=False))
        return operand(parts[0]) + "".join(scripts)

    return write


def _over(parts: Sequence[str]) -> str:
    """Returns a letter with its accent, or what has another sign or a text above it."""
    base, upper = parts[0].strip(), parts[1].strip()
    accent = _ACCENTS.get(upper, "")
    if accent or upper in _BRACES:
        return base + accent if len(base) == 1 else base
    return f"{operand(base)}^{operand(upper)}"


def _under(parts: Sequence[str]) -> str:
    base, lower = parts[0].strip(), parts[1].strip()
    return base if lower in _BRACES else f"{operand(base)}_{operand(lower)}"


def _multiscripts(before: Sequence[str], after: Sequence[str]) -> str:
    """Returns a base with its scripts, for example an isotope: `_6^14C`.

    `before` are the scripts before the base, and `after` is the base with those after it. In each,
    a lower script and an upper script follow each other.
    """

    def written(scripts: Sequence[str]) -> str:
        signs = zip(cycle("_^"), scripts, strict=False)
        return "".join(sign + operand(script) for sign, script in signs if script.strip())

    return written(before) + operand(after[0]) + written(after[1:])


# Signs above a letter, and the characters that put them there. A long base is written without.
_ACCENTS = {
    **dict.fromkeys("^ˆ\u0302", "\u0302"),
    **dict.fromkeys("~˜∼\u0303", "\u0303"),
    **dict.fromkeys("¯‾_―−-\u0304\u0305", "\u0304"),
    **dict.fromkeys(".˙\u0307", "\u0307"),
    **dict.fromkeys("¨\u0308", "\u0308"),
    **dict.fromkeys("ˇ\u030c", "\u030c"),
    **dict.fromkeys("→⟶⃗\u20d7", "\u20d7"),
}
_BRACES = frozenset("⏞⏟⏠⏡⎴⎵_¯‾̲\u0332")

_TOKENS = ("mi", "mn", "mo", "mtext", "ms")
# For each element: how many operands it has, and the function that writes them.
_SCHEMES: Mapping[str, tuple[int, Callable[[Sequence[str]], str]]] = {
    "mfrac": (2, _fraction),
    "msup": (2, _scripted("^")),
    "msub": (2, _scripted("_")),
    "msubsup": (3, _scripted("_", "^")),
    "munder": (2, _under),
    "mover": (2, _over),
    "munderover": (3, _scripted("_", "^")),
    "msqrt": (1, lambda parts: root(_row(parts))),
    "mroot": (2, lambda parts: root(parts[0], parts[1])),
    "mfenced": (1, lambda parts: f"({', '.join(part.strip() for part in parts)})"),
    "mtable": (1, lambda parts: f"[{'; '.join(parts)}]"),
    "mtr": (1, lambda parts: ", ".join(part.strip() for part in parts)),
}

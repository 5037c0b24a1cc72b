"""Writes the equations of a Word document in a linear format, see `linear_formula`.

    E=mc^2    x_i^2    (a+b)/(2c)    sqrt(x+1)    ∑_(i=1)^n i    [1, 0; 0, 1]

An operand of more than one character that could be misread is put into parentheses. An equation is
a tree: the text of an element is made of the texts of its children.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from indexer_svc.parsers.linear_formula import INVISIBLE_SIGNS, operand, root
from indexer_svc.parsers.package import Element
from indexer_svc.parsers.word.names import (
    DELETED,
    EQUATION,
    FALSE_VALUES,
    MATH,
    MATH_RUN,
    MATH_TEXT,
    TEXT,
)

_VALUE = f"{MATH}val"
# Elements that are nested more deeply are left out. They are no equation, but an attack.
_MAX_DEPTH = 100
# The last operand of these elements has no sign at its end.
_OPEN_ENDED = tuple(f"{MATH}{name}" for name in ("f", "sSup", "sSub", "sSubSup", "nary"))
_ROOT = f"{MATH}rad"
_ALIGNMENT = re.compile(r"#(?=\s*\()")
_PROPERTIES = re.compile(re.escape(MATH) + r"\w*Pr")

_Parts = Sequence[tuple[str, str]]
"""The names and texts of the children of an element."""


def linear_equation(equation: Element, hides: Callable[[Element], bool]) -> str:
    """Returns the text of an equation, or of several ones with a space between them.

    `hides` returns True for a run that is not shown.
    """
    # Each frame has an element, its children that are not read yet, and the texts of the others.
    frames: list[tuple[Element, list[Element], list[tuple[str, str]]]] = [
        (equation, _children(equation), [])
    ]
    while True:
        element, unread, parts = frames[-1]
        if unread:
            child = unread.pop()
            if child.tag == MATH_RUN:
                parts.append((child.tag, "" if hides(child) else _run_text(child)))
            elif child.tag not in DELETED and len(frames) < _MAX_DEPTH:
                frames.append((child, _children(child), []))
            continue
        frames.pop()
        text = _WRITERS.get(element.tag, _joined)(element, parts)
        if not frames:
            return " ".join(text.split())
        frames[-1][2].append((element.tag, text))


def _children(element: Element) -> list[Element]:
    """Returns the children of an element that have text, last child first."""
    children = [child for child in element if not _PROPERTIES.fullmatch(child.tag)]
    children.reverse()
    return children


def _run_text(run: Element) -> str:
    text = "".join(part.text or "" for part in run if part.tag in (MATH_TEXT, TEXT))
    return text.translate(INVISIBLE_SIGNS)


def _joined(_element: Element, parts: _Parts) -> str:
    """Returns the texts of the parts, with a space where two of them would be read as one."""
    texts: list[str] = []
    needs_space = False
    for tag, text in parts:
        if not text:
            continue
        is_name = tag == _ROOT and bool(texts) and texts[-1][-1].isalnum()
        is_apart = tag == EQUATION or is_name or (needs_space and text[0].isalnum())
        texts.append(f" {text}" if is_apart else text)
        needs_space = tag == EQUATION or (tag in _OPEN_ENDED and text[-1].isalnum())
    return "".join(texts)


def _part(parts: _Parts, name: str) -> str:
    return next((text for tag, text in parts if tag == MATH + name), "")


def _setting(element: Element, name: str, default: str) -> str:
    """Returns a value from the properties of an element, such as the sign of an operator."""
    for properties in element:
        if _PROPERTIES.fullmatch(properties.tag):
            setting = properties.find(MATH + name)
            return default if setting is None else setting.get(_VALUE, default)
    return default


def _scripts(parts: _Parts) -> str:
    lower, upper = _part(parts, "sub"), _part(parts, "sup")
    return (f"_{operand(lower)}" if lower else "") + (f"^{operand(upper)}" if upper else "")


def _with_scripts(_element: Element, parts: _Parts) -> str:
    return _part(parts, "e") + _scripts(parts)


def _with_scripts_before(_element: Element, parts: _Parts) -> str:
    return _scripts(parts) + _part(parts, "e")


def _fraction(element: Element, parts: _Parts) -> str:
    upper, lower = operand(_part(parts, "num")), operand(_part(parts, "den"))
    sign = "¦" if _setting(element, "type", "bar") == "noBar" else "/"
    return f"{upper}{sign}{lower}"


def _root(_element: Element, parts: _Parts) -> str:
    return root(_part(parts, "e"), _part(parts, "deg"))


def _operator(element: Element, parts: _Parts) -> str:
    scripts = _scripts(parts)
    return _setting(element, "chr", "∫") + scripts + (" " if scripts else "") + _part(parts, "e")


def _enclosed(element: Element, parts: _Parts) -> str:
    separator = _setting(element, "sepChr", "|")
    content = separator.join(text for tag, text in parts if tag == f"{MATH}e")
    return _setting(element, "begChr", "(") + content + _setting(element, "endChr", ")")


def _function(_element: Element, parts: _Parts) -> str:
    name, argument = _part(parts, "fName"), _part(parts, "e")
    gap = " " if name[-1:].isalnum() and argument[:1].isalnum() else ""
    return name + gap + argument


def _lower_limit(_element: Element, parts: _Parts) -> str:
    return f"{_part(parts, 'e')}_{operand(_part(parts, 'lim'))} "


def _upper_limit(_element: Element, parts: _Parts) -> str:
    return f"{_part(parts, 'e')}^{operand(_part(parts, 'lim'))} "


def _accent(element: Element, parts: _Parts) -> str:
    base = _part(parts, "e")
    accent = _setting(element, "chr", "\u0302")
    return base + accent if len(base) == 1 and len(accent) == 1 else base


def _phantom(element: Element, parts: _Parts) -> str:
    return "" if _setting(element, "show", "1") in FALSE_VALUES else _part(parts, "e")


def _matrix_row(_element: Element, parts: _Parts) -> str:
    return ", ".join(text for _tag, text in parts)


def _matrix(_element: Element, parts: _Parts) -> str:
    return "[" + "; ".join(text for _tag, text in parts) + "]"


def _equation_array(_element: Element, parts: _Parts) -> str:
    """Returns the lines of a set of equations.

    `&` marks where the lines are aligned, and `#` is between an equation and its number. Word shows
    neither of them.
    """
    lines = (_ALIGNMENT.sub(" ", text.replace("&", "")) for _tag, text in parts)
    return "; ".join(" ".join(line.split()) for line in lines)


def _bar(element: Element, parts: _Parts) -> str:
    base = _part(parts, "e")
    if len(base) != 1:
        return base
    return base + ("\u0305" if _setting(element, "pos", "bot") == "top" else "\u0332")


_WRITERS: Mapping[str, Callable[[Element, _Parts], str]] = {
    f"{MATH}f": _fraction,
    f"{MATH}sSup": _with_scripts,
    f"{MATH}sSub": _with_scripts,
    f"{MATH}sSubSup": _with_scripts,
    f"{MATH}sPre": _with_scripts_before,
    _ROOT: _root,
    f"{MATH}nary": _operator,
    f"{MATH}d": _enclosed,
    f"{MATH}func": _function,
    f"{MATH}limLow": _lower_limit,
    f"{MATH}limUpp": _upper_limit,
    f"{MATH}acc": _accent,
    f"{MATH}bar": _bar,
    f"{MATH}phant": _phantom,
    f"{MATH}mr": _matrix_row,
    f"{MATH}m": _matrix,
    f"{MATH}eqArr": _equation_array,
}

"""The rules by which formulas are written on one line, as in Word's linear format and in TeX.

A root is written as a word, `sqrt(x)` or `root(3)(x)`, and not as a sign, `√x`: TeX and programs
use this word, and a search can find a word, but not a sign.
"""

import re

# Invisible signs say that a function is applied, or that two factors are multiplied.
INVISIBLE_SIGNS = str.maketrans({"\u2061": " ", "\u2062": "", "\u2063": "", "\u2064": ""})
_SIMPLE = re.compile(
    r"\w+(?:[.,]\w+)*|(?:sqrt|root\([^()]*\))?\([^()]*\)|\[[^\[\]]*\]|.?", re.DOTALL
)


def operand(text: str) -> str:
    """Returns an operand, in parentheses if it has several characters that could be misread."""
    text = text.strip()
    return text if _SIMPLE.fullmatch(text) else f"({text})"


def root(radicand: str, degree: str = "") -> str:
    """Returns a root. A root without a degree is a square root."""
    degree, radicand = degree.strip(), radicand.strip()
    is_enclosed = radicand[:1] == "(" and radicand.find(")") == len(radicand) - 1
    enclosed = radicand if is_enclosed else f"({radicand})"
    return f"sqrt{enclosed}" if degree in ("", "2") else f"root({degree}){enclosed}"

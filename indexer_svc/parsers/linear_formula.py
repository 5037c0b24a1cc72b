"""The rules by which formulas are written on one line, as in Word's linear format and in TeX."""

import re

# Invisible signs say that a function is applied, or that two factors are multiplied.
INVISIBLE_SIGNS = str.maketrans({"\u2061": " ", "\u2062": "", "\u2063": "", "\u2064": ""})
_SIMPLE = re.compile(r"\w+(?:[.,]\w+)*|\([^()]*\)|\[[^\[\]]*\]|.?", re.DOTALL)


def operand(text: str) -> str:
    """Returns an operand, in parentheses if it has several characters that could be misread."""
    text = text.strip()
    return text if _SIMPLE.fullmatch(text) else f"({text})"

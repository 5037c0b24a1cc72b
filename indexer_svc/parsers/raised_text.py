"""Writes superscripts and subscripts as plain text. All functions are pure.

Without a sign, a raised digit would become a digit of the number before it: 10<sup>6</sup> would be
read as 106. The notation is that of Word's linear format and of TeX:

    10^6   e^(-x/2)   Ca^2+   ^14C      a superscript follows `^`
    x_i    V_max      1010_2            a subscript follows `_`
    H2O    C6H12O6                      digits below a letter follow it directly
    1st    Acme®      Word™   Price*    ordinals and signs follow directly
    Warranty [2]                        the mark of a note is apart from the word
    2 1/2                               a raised and a lowered number around a slash are a fraction

A superscript of digits is the mark of a note if it is a link to a note, or if it follows
punctuation, or a word that is not a unit or a function. After a number it is an exponent.
"""

import re

# A unit has at most this many letters (`km`, `sec`). A longer word before raised digits has a note.
_MAX_UNIT_LETTERS = 3
# Longer units and functions that have exponents.
_LONG_UNITS = frozenset((
    *("feet", "foot", "inch", "inches", "mile", "miles", "yard", "yards", "acre", "meter"),
    *("meters", "metre", "metres", "second", "seconds", "sinh", "cosh", "tanh", "coth", "sech"),
))  # fmt: skip
# Raised text with more characters is not an exponent but text in small print.
_MAX_EXPONENT_CHARS = 40
LOOKED_AT_CHARS = 40
"""The functions of this module look at this many characters before a script."""
_NOTE = re.compile(r"(?:\d{1,3}|[a-z])(?:\s?[,;–-]\s?(?:\d{1,3}|[a-z]))*")
_BRACKETED = re.compile(r"\[[^\[\]]*\]|\(\d{1,3}\)")
_ORDINALS = frozenset((
    *("st", "nd", "rd", "th", "er", "re", "ère", "ème", "eme", "ième", "nde", "de", "ste", "º"),
))  # fmt: skip
_LETTER_SIGNS = {"TM": "™", "SM": "℠", "(R)": "®", "(C)": "©"}
_SIMPLE = re.compile(r"[-+−±]?\w+(?:[.,]\w+)*[-+−]?|[-+−±]")
_WORDS = re.compile(r"[^\W\d_]{4,}\s+[^\W\d_]|[^\W\d_]\s+[^\W\d_]{4,}")
_LAST_WORD = re.compile(r"[^\W\d_]+\Z")
_ENDS = frozenset(".,;:!?\"'”’»…]}。，、；：！？」』）》")
_IDEOGRAPH = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
FRACTION_SLASHES = ("/", "⁄")
# Signs that change the direction of text, and signs without width. A search would not find a word
# that contains one.
UNSEEN = re.compile("[\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


def superscript(before: str, raised: str, *, is_note: bool = False) -> str:
    """Returns what a text gets for a superscript.

    `before` is the text of the same paragraph before it; its last LOOKED_AT_CHARS characters are
    enough. `is_note` is True if the superscript is known to be the mark of a note, for example
    because it is a link to the note.
    """
    before = before[-LOOKED_AT_CHARS:]
    text = " ".join(raised.split())
    if text in _LETTER_SIGNS and before[-1:].isalnum():
        return _LETTER_SIGNS[text]
    if not any(map(str.isalnum, text)):
        return text
    gap = " " if before and not before[-1].isspace() else ""
    if mark := _note_mark(before, text, is_note=is_note):
        return gap + mark
    if len(text) > _MAX_EXPONENT_CHARS or _WORDS.search(text):
        return gap + text
    is_ordinal = before[-1:].isdigit() and text.casefold() in _ORDINALS
    if is_ordinal or (not gap and not text[0].isdigit()):
        return text
    return "^" + _operand(text)


def _note_mark(before: str, text: str, *, is_note: bool) -> str:
    """Returns raised text as the mark of a note, in brackets; empty if it is not one."""
    if _BRACKETED.fullmatch(text):
        return text if text[0] == "[" or is_note or _has_note(before, "1") else ""
    return f"[{text}]" if is_note or (_NOTE.fullmatch(text) and _has_note(before, text)) else ""


def subscript(before: str, lowered: str) -> str:
    """Returns what a text gets for a subscript. `before` is as for `superscript`."""
    text = " ".join(lowered.split())
    last = before[-1:]
    if not any(map(str.isalnum, text)) or not last or last.isspace() or last in FRACTION_SLASHES:
        return text
    if text.isdecimal() and (last.isalpha() or last in ")]"):
        return text
    if len(text) > _MAX_EXPONENT_CHARS or _WORDS.search(text):
        return " " + text
    return "_" + _operand(text)


def numerator(before: str, raised: str) -> str:
    """Returns what a text gets for the upper number of a fraction.

    A slash and a subscript, the lower number, follow it. `before` is as for `superscript`.
    """
    gap = " " if before[-1:].isalnum() else ""
    return gap + " ".join(raised.split())


def needs_space(before: str, script: str, following: str) -> bool:
    """Returns True if a space must separate a superscript or subscript from the text after it.

    `script` is what one of the functions above has returned for the text `before`, and `following`
    is the text after it. Without the space, letters after an exponent would become a part of it.
    An isotope needs no space: `^14C`.
    """
    if not script or not following[:1].isalnum():
        return False
    if script[0] in "^_":
        has_base = bool(before) and not before[-1].isspace()
        return has_base or not script[1:].isdecimal()
    return script[-1] == "]" or (script[-1].isdigit() and following[0].isdigit())


def _has_note(before: str, text: str) -> bool:
    """Returns True if raised digits or letters after `before` are the mark of a note."""
    if not before:
        return text[0].isdigit()
    if before[-1] in _ENDS or _IDEOGRAPH.match(before[-1]):
        return True
    word = _LAST_WORD.search(before)
    if word is None:
        return False
    return len(word[0]) > _MAX_UNIT_LETTERS and word[0].casefold() not in _LONG_UNITS


def _operand(text: str) -> str:
    is_enclosed = text[0] == "(" and text.find(")") == len(text) - 1
    return text if is_enclosed or _SIMPLE.fullmatch(text) else f"({text})"

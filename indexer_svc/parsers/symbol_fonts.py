"""Maps characters of symbol fonts to Unicode. All functions are pure.

Office programs write such a character as a code of the font (0x20 to 0xFF), often moved to the
private code points from U+F000 on. The tables follow the mappings that the Unicode Consortium
publishes for Symbol, and the signs of the Wingdings fonts that stand for text in documents: boxes,
ticks, arrows and numbers in circles. Ornaments have no equivalent and are left out.
"""

import re
from collections.abc import Mapping

TICKED, NOT_TICKED = "\N{BALLOT BOX WITH X}", "\N{BALLOT BOX}"
"""The signs of the two states of a check box."""

_PRIVATE = range(0xF000, 0xF100)
_PRIVATE_CHARACTER = re.compile("[\uf020-\uf0ff]")
_SYMBOL_LOW = (
    " !∀#∃%&∋()∗+,−./0123456789:;<=>?"
    "≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_"
    "‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
)
_SYMBOL_HIGH = "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪"
_SYMBOL_LAST = "〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"
_SYMBOL = {
    **dict(enumerate(_SYMBOL_LOW, 0x20)),
    **dict(enumerate(_SYMBOL_HIGH, 0xA0)),
    **dict(enumerate(_SYMBOL_LAST, 0xF1)),
}
_WINGDINGS = {
    0x28: "☎", 0x29: "✆", 0x2A: "✉", 0x4A: "☺", 0x4C: "☹", 0x6C: "●", 0x6E: "■", 0x6F: "☐",
    0x71: "☐", 0x72: "☐", 0x74: "◆", 0x75: "◆", 0x76: "❖", 0x77: "◆", 0x9E: "·", 0x9F: "•",
    0xA7: "▪", 0xA8: "☐", 0xD5: "⌫", 0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE1: "↑", 0xE2: "↓",
    0xE8: "→", 0xE7: "←", 0xE9: "↑", 0xEA: "↓", 0xEF: "⇦", 0xF0: "⇨", 0xF1: "⇧", 0xF2: "⇩",
    0xF3: "⇔", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑",
    **dict(enumerate("⓪①②③④⑤⑥⑦⑧⑨⑩", 0x80)),
    **dict(enumerate("⓿❶❷❸❹❺❻❼❽❾❿", 0x8B)),
}  # fmt: skip
_WINGDINGS_2 = {
    0x4F: "✗", 0x50: "✓", 0x51: "☒", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0x55: "☒", 0x56: "☒",
    0x2A: "☐", 0xA3: "☐", 0x97: "●",
}  # fmt: skip
_WEBDINGS = {0x61: "✓", 0x63: "☐", 0x67: "■", 0x72: "✗", 0x3D: "●"}
_FONTS: Mapping[str, Mapping[int, str]] = {
    "symbol": _SYMBOL,
    "wingdings": _WINGDINGS,
    "wingdings 2": _WINGDINGS_2,
    "webdings": _WEBDINGS,
}


def symbol(font: str, code: int) -> str:
    """Returns the character of a font with this code; empty if Unicode has no such character.

    A code of a font that is no symbol font is a code point of Unicode.
    """
    is_private = code in _PRIVATE
    table = _FONTS.get(font.strip().lower())
    if table is None:
        is_character = 0x20 <= code < 0xD800 or (0xE000 <= code <= 0x10FFFF and not is_private)
        return chr(code) if is_character else ""
    return table.get(code - _PRIVATE.start if is_private else code, "")


def with_symbols(text: str, font: str | None) -> str:
    """Returns a text in a font, with its characters of a symbol font mapped to Unicode.

    Only private code points are such characters. They are left out if the font is unknown.
    """
    if _PRIVATE_CHARACTER.search(text) is None:
        return text
    return _PRIVATE_CHARACTER.sub(lambda match: symbol(font or "", ord(match[0])), text)

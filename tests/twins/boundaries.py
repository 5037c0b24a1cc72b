"""The twin of `_boundaries.pyx`: it decodes the text to strings, and returns the same ranks."""

import numpy as np
from numpy.typing import NDArray

from hrag_fast import CUT_CODE_POINT, CUT_FORBIDDEN, CUT_PARAGRAPH, CUT_SENTENCE, CUT_WORD

WHITE_SPACE = " \t\n\v\f\r\u3000"
CLOSERS = "\"')]}”’」』）》】"
SENTENCE_ENDS = (".", "!", "?")
CJK_SENTENCE_ENDS = ("。", "！", "？", "；", "…", "．", "｡")
BLANK_LOOK_BACK = 64
CLOSER_LOOK_BACK = 16
MAX_CODE_POINT_BYTES = 4
CJK_RANGES = (
    (0x3000, 0x303F),  # Punctuation.
    (0x3040, 0x30FF),  # Kana.
    (0x3400, 0x4DBF),  # Ideographs, extension A.
    (0x4E00, 0x9FFF),  # Ideographs.
    (0xAC00, 0xD7AF),  # Hangul.
    (0xF900, 0xFAFF),  # Compatibility ideographs.
    (0xFF00, 0xFFEF),  # Full-width forms.
    (0x20000, 0x3FFFF),  # Ideographs beyond the basic plane.
)


def boundary_ranks(text: bytes, ends: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The twin of `hrag_fast.boundary_ranks`, which `_boundaries.pyi` documents."""
    for i, end in enumerate(ends.tolist()):
        if not 0 < end <= len(text):
            raise IndexError(
                f"ends[{i}] is {end}; it must be from 1 to {len(text)}, the text's bytes"
            )
    return np.array([_rank(text, end) for end in ends.tolist()], dtype=np.uint8)


def _rank(text: bytes, end: int) -> int:
    if end == len(text):
        return CUT_PARAGRAPH
    if _is_continuation(text[end]) or text[end - 1 : end + 1] == b"\r\n":
        return CUT_FORBIDDEN
    before = _code_points(text, end - MAX_CODE_POINT_BYTES, end)[-1]
    after = _code_points(text, end, end + MAX_CODE_POINT_BYTES)[0]
    blanks = _trailing(WHITE_SPACE, text, end, BLANK_LOOK_BACK)
    newlines = _newlines(blanks)
    next_to_blank = blanks != "" or after in WHITE_SPACE
    if newlines >= 2 or "\f" in blanks:
        return CUT_PARAGRAPH
    if newlines == 1 or _ends_sentence(text, end - len(blanks.encode()), next_to_blank):
        return CUT_SENTENCE
    if next_to_blank or _is_cjk(before) or _is_cjk(after):
        return CUT_WORD
    return CUT_CODE_POINT


def _ends_sentence(text: bytes, end: int, next_to_blank: bool) -> bool:
    closers = _trailing(CLOSERS, text, end, CLOSER_LOOK_BACK)
    end -= len(closers.encode())
    before = _code_points(text, end - MAX_CODE_POINT_BYTES, end)
    return before.endswith(CJK_SENTENCE_ENDS) or (next_to_blank and before.endswith(SENTENCE_ENDS))


def _trailing(alphabet: str, text: bytes, end: int, look_back: int) -> str:
    """Returns the run of characters of `alphabet` that ends at `end`.

    At most `look_back` bytes before `end` are read.
    """
    window = _code_points(text, end - look_back, end)
    return window[len(window.rstrip(alphabet)) :]


def _code_points(text: bytes, start: int, end: int) -> str:
    """Returns the code points that lie completely between two byte offsets."""
    return text[max(start, 0) : end].decode(errors="ignore")


def _newlines(blanks: str) -> int:
    one_each = blanks.replace("\r\n", "\n").replace("\r", "\n")
    return one_each.count("\n")


def _is_continuation(byte: int) -> bool:
    return 0x80 <= byte < 0xC0


def _is_cjk(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in CJK_RANGES)

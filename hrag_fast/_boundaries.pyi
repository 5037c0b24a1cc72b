"""Types and documentation of the compiled `boundary_ranks`, which releases the GIL."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

# How good a place for a cut is; higher is better.
CUT_FORBIDDEN: Final = 0
CUT_CODE_POINT: Final = 1
CUT_WORD: Final = 2
CUT_SENTENCE: Final = 3
CUT_PARAGRAPH: Final = 4

def boundary_ranks(text: bytes, ends: NDArray[np.uint32]) -> NDArray[np.uint8]:
    r"""Ranks a cut of `text` at each of `ends`: returns uint8[n], one CUT_ rank each.

    `text` is valid UTF-8 (of other bytes the ranks mean nothing). `ends` is uint32[n],
    C-contiguous: byte offsets from 1 to `len(text)`, in any order. A cut at p separates bytes
    p - 1 and p. The first rule that applies decides:

    * CUT_PARAGRAPH: p is the end of the text.
    * CUT_FORBIDDEN: p is inside a code point or a CRLF.
    * CUT_PARAGRAPH: the white space just before p contains a form feed or two newlines
      (``\n``, ``\r\n`` or a lone ``\r``).
    * CUT_SENTENCE: that white space contains one newline; or a sentence end comes before it and
      any closing quotes and brackets: a CJK one, or one of ``. ! ?`` if p has white space on
      either side.
    * CUT_WORD: p has white space or a CJK code point on either side.
    * CUT_CODE_POINT: anywhere else.

    White space is that of ASCII and U+3000. At most 64 bytes of white space and 16 bytes of
    closers before p are looked at, so the time is O(n).

    The rules are hrag's own, made for cuts near a token limit. They are simpler than Unicode's
    text segmentation (UAX #29) and treat English, Chinese and Japanese in one pass.

    Raises IndexError for an end outside 1 to `len(text)`, ValueError for another dtype or shape,
    TypeError if `text` is not bytes.
    """

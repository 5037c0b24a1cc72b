"""Types and promises of the compiled `boundary_ranks`, which releases the GIL."""

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
    r"""Says how good a cut of `text` at each of `ends` is: uint8[n], one CUT_ rank each.

    `text` is valid UTF-8; `ends` uint32[n] are byte offsets from 1 to `len(text)`, in any
    order. A cut at p parts bytes p - 1 and p. The first rule that fits decides:

    * CUT_PARAGRAPH: p is the end of the text.
    * CUT_FORBIDDEN: p is inside a code point or a CRLF.
    * CUT_PARAGRAPH: the white space just before p holds a form feed or two newlines
      (``\n``, ``\r\n`` or lone ``\r``).
    * CUT_SENTENCE: that white space holds one newline; or before it, and before any
      closing quotes and brackets, stands a CJK sentence end, or one of ``. ! ?`` where p
      has white space on either side.
    * CUT_WORD: p has white space on either side, or a CJK code point.
    * CUT_CODE_POINT: anywhere else.

    White space is that of ASCII and U+3000. The look-back ends after 64 bytes of white
    space and 16 bytes of closers.

    Raises IndexError for an end outside 1 to `len(text)`, TypeError if `text` is no bytes.
    """

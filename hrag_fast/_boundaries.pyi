"""Types and documentation of the compiled `boundary_ranks`, which releases the GIL."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

# The ranks of offsets at which a text may be cut. A higher rank is a better offset.
CUT_FORBIDDEN: Final = 0
CUT_CODE_POINT: Final = 1
CUT_WORD: Final = 2
CUT_SENTENCE: Final = 3
CUT_PARAGRAPH: Final = 4

def boundary_ranks(text: bytes, ends: NDArray[np.uint32]) -> NDArray[np.uint8]:
    r"""Returns the rank of a cut of `text` at each of `ends`, uint8[n], one of the CUT_ ranks.

    `text` is valid UTF-8; for other bytes the ranks have no meaning. `ends` is uint32[n],
    C-contiguous: byte offsets from 1 to `len(text)`, in any order. A cut at p separates bytes
    p - 1 and p. The first rule that applies decides:

    * CUT_PARAGRAPH: p is the end of the text.
    * CUT_FORBIDDEN: p is inside a code point or a CRLF.
    * CUT_PARAGRAPH: the white space just before p contains a form feed or two newlines
      (``\n``, ``\r\n`` or a lone ``\r``).
    * CUT_SENTENCE: the white space just before p contains one newline. Or there is a sentence end
      before p, perhaps followed by closing quotes or brackets and by white space. A sentence end
      is a CJK one, or one of ``. ! ?`` if p has white space on either side.
    * CUT_WORD: p has white space or a CJK code point on either side.
    * CUT_CODE_POINT: anywhere else.

    White space means ASCII white space and U+3000. At most 64 bytes of white space and 16 bytes
    of closing quotes and brackets before p are read, so the time is O(n).

    The rules are made for cuts near a token limit. They are simpler than Unicode's text
    segmentation (UAX #29), and handle English, Chinese and Japanese in one pass.

    Raises IndexError for an end outside 1 to `len(text)`, ValueError for another dtype or shape,
    and TypeError if `text` is not bytes.
    """

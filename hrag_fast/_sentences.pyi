"""Types and documentation of the compiled `sentence_ends`."""

from typing import Final

MAX_SENTENCE_CHARS: Final = 1000
"""A longer sentence is cut at the end of a line or of a word."""

def sentence_ends(text: str) -> list[int]:
    """Returns the end of each sentence in characters, ascending; the last is the text's end.

    The list is empty for an empty text. Takes time linear in the text. The GIL is kept, because a
    leaf of 256 tokens takes only some microseconds. A wrong type, or an instance of a subclass of
    `str`, raises TypeError.
    """

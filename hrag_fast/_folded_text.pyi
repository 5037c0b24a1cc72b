"""Types and documentation of the compiled `fold`.

It holds the GIL. An instance of a subclass of `str` raises TypeError.
"""

from hrag_fast._characters import Folding

def fold(text: str, folding: Folding = Folding.UNICODE, *, single_spaces: bool = False) -> str:
    """Returns the folded text, in which different spellings of a word are equal.

    Folding is NFKC, then full case folding, then NFKC again; `folding` may make more spellings
    equal. Before that, it drops characters that are invisible inside words: soft hyphens U+00AD,
    joiners U+034F, U+200C, U+200D and U+2060, byte order marks U+FEFF, and variation selectors.
    With `single_spaces`, each run of white space also becomes one space, and white space at both
    ends is removed.

    A cluster is a character with the marks, inner Hangul letters and invisible characters that
    follow it. A cluster of more than 32 code points is folded in pieces of 32, so that the time
    is linear for every text. A lone surrogate becomes U+FFFD.
    """

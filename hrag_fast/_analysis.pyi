"""Types and documentation of the compiled `TermExtractor`, and of folding and hashing.

Arrays that are returned are new. The GIL is held, but `leaf_terms` gives other threads a turn
after every 256 KB of text. A `str` of a subclass is a TypeError.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_FREQUENCY: Final = 255

class LeafTerms(NamedTuple):
    """The forward form of n leaves: the terms of each leaf with their frequencies.

    The entries of leaf i are `entries[starts[i]:starts[i + 1]]`.
    """

    starts: NDArray[np.int64]
    """int64[n + 1]: from 0 to the number of entries."""
    entries: NDArray[np.uint64]
    """uint64: `term_id << 8 | min(frequency, MAX_FREQUENCY)`, ascending in each leaf, each term
    once."""
    lengths: NDArray[np.uint32]
    """uint32[n]: how many occurrences of terms a leaf has in all."""

class Matches(NamedTuple):
    """Where m occurrences of terms lie in a text, ordered by start, end and term.

    They overlap where a word lies in a joined run, and where CJK bigrams follow each other.
    """

    starts: NDArray[np.uint32]
    """uint32[m]: first code point."""
    ends: NDArray[np.uint32]
    """uint32[m]: end in code points."""
    which: NDArray[np.uint32]
    """uint32[m]: index of the term in the ids that were asked for."""

class Token(NamedTuple):
    """What is hashed to a term, if it is a word after stemming."""

    text: str
    """Folded."""
    is_word: bool
    """False for joined runs and CJK terms."""

class TermExtractor:
    """Finds the terms of texts.

    The text is folded (see `fold`). Letters, digits and numerals are word characters, and so
    are marks that follow one. Han, Hiragana, Katakana, Hangul syllables, Thai, Lao, Khmer and
    Myanmar are CJK characters, here for short. Terms are:

    * words: runs of word characters, stemmed;
    * every CJK character, and every pair of neighbouring ones (bigrams);
    * joined runs: words joined by any of ``. - _ / @ + #``, with what follows of ``+ #``, whole
      and not stemmed: ``3.11.7``, ``c++``, ``user@example.org``. Their words are terms too.

    They come in the order in which they begin, but a joined run after its words.

    `stem` returns the stem of a word, for the same word always the same; None: words are not
    stemmed. With `ascii_only`, words with other characters are not stemmed. Words of more than
    64 characters never are. If the stem is empty, the term is the word.

    Stems are remembered: those of 32,768 words of up to 24 bytes in 1 MB, in sets of four where
    a new word ousts the oldest; those of up to 8,192 longer words in about as much. The words
    are compared in full. Threads may share an extractor: the GIL protects it, also where `stem`
    releases it.
    """

    def __init__(self, stem: Callable[[str], str] | None, *, ascii_only: bool = False) -> None: ...
    def terms(self, text: str) -> NDArray[np.uint64]:
        """Returns uint64[n]: the ids of all occurrences of terms, in order."""

    def word_ids(self, text: str) -> NDArray[np.uint64]:
        """Returns uint64[n]: the distinct ids of words and CJK terms, ascending."""

    def leaf_terms(self, texts: Sequence[str]) -> LeafTerms:
        """Returns the terms of each text in the forward form."""

    def matches(self, text: str, ids: NDArray[np.uint64]) -> Matches:
        """Returns where terms with these ids occur in the text as it came, not folded.

        `ids` is uint64[k], C-contiguous, ascending. A match begins and ends with whole clusters
        (see `fold`): the letters of ``ﬁ`` both lie where the ligature lies.

        Raises ValueError for another dtype, shape or order.
        """

    def tokens(self, text: str) -> list[Token]:
        """Returns all occurrences of tokens, in the order of `terms`."""

    def term(self, token: Token) -> str:
        """Returns the term of a token: the stem of a word, or the token's text."""

def term_id(term: str) -> int:
    """Returns the id of a term: the highest 56 bits of a 64-bit hash of its UTF-8.

    The hash is FNV-1a with the finalizer of MurmurHash3. Raises UnicodeEncodeError for a lone
    surrogate, which no term has.
    """

def fold(text: str, *, single_spaces: bool = False) -> str:
    """Returns the folded text: in it, spellings that mean the same are equal.

    That is NFKC, then full case folding, then NFKC. What is invisible inside words is dropped
    before: soft hyphens U+00AD, joiners U+034F, U+200C, U+200D and U+2060, byte order marks
    U+FEFF, and variation selectors. With `single_spaces`, white space is also replaced by one
    space for each run, and removed at the ends.

    A cluster is a character with the marks, inner Hangul letters and invisible characters that
    follow it. One of more than 32 code points is folded in pieces of 32, so that time stays
    linear in whatever text. A lone surrogate becomes U+FFFD.
    """

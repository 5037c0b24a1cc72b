"""Types and documentation of the compiled `TermExtractor`, and of folding and hashing.

Arrays that are returned are new. The GIL is held, but `leaf_terms` lets other threads run after
every 256 KB of text. An instance of a subclass of `str` raises TypeError.
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
    """int64[n + 1], ascending from 0 to the number of entries."""
    entries: NDArray[np.uint64]
    """uint64: `term_id << 8 | min(frequency, MAX_FREQUENCY)`. They ascend within a leaf, and a
    leaf has each term once."""
    lengths: NDArray[np.uint32]
    """uint32[n]: the number of all occurrences of terms in each leaf."""

class Matches(NamedTuple):
    """The places of m occurrences of terms in a text, ordered by start, end and term.

    Places overlap if a word lies in a joined run, and if CJK bigrams follow each other.
    """

    starts: NDArray[np.uint32]
    """uint32[m]: the first code point of each occurrence."""
    ends: NDArray[np.uint32]
    """uint32[m]: the end of each occurrence, in code points."""
    which: NDArray[np.uint32]
    """uint32[m]: the index of the term in the ids that `matches` was called with."""

class Token(NamedTuple):
    """A piece of text that is hashed to a term. A word is stemmed first."""

    text: str
    """The folded text."""
    is_word: bool
    """True for words, False for joined runs and CJK terms."""

class TermExtractor:
    """Finds the terms of texts.

    The text is folded (see `fold`). Letters, digits and numerals are word characters, and so are
    marks that follow a word character. Here, "CJK characters" is short for Han, Hiragana,
    Katakana, Hangul syllables, Thai, Lao, Khmer and Myanmar. Terms are:

    * words: runs of word characters, stemmed;
    * every CJK character, and every pair of neighbouring ones (bigrams);
    * joined runs: words joined by any of ``. - _ / @ + #``, with any ``+ #`` that follow. They
      are one term each, and are not stemmed: ``3.11.7``, ``c++``, ``user@example.org``. Their
      words are terms too.

    Terms come in the order in which they begin, except that a joined run comes after its words.

    `stem` returns the stem of a word. It must always return the same stem for the same word. If
    `stem` is None, words are not stemmed. With `ascii_only`, words that have other characters are
    not stemmed. Words of more than 64 characters are never stemmed. If the stem is empty, the
    term is the word itself.

    Stems are cached. One cache has the stems of 32,768 words of up to 24 bytes, in 1 MB. It
    consists of sets of four words, and a new word evicts the oldest word of its set. Another
    cache has the stems of up to 8,192 longer words, in about 1 MB too. Cached words are compared
    in full. Threads may share an extractor: the GIL protects it, even if `stem` releases the GIL.
    """

    def __init__(self, stem: Callable[[str], str] | None, *, ascii_only: bool = False) -> None: ...
    def terms(self, text: str) -> NDArray[np.uint64]:
        """Returns the ids of all occurrences of terms, in order, uint64[n]."""

    def word_ids(self, text: str) -> NDArray[np.uint64]:
        """Returns the distinct ids of words and CJK terms, ascending, uint64[n]."""

    def leaf_terms(self, texts: Sequence[str]) -> LeafTerms:
        """Returns the terms of each text in the forward form."""

    def matches(self, text: str, ids: NDArray[np.uint64]) -> Matches:
        """Returns where terms with these ids occur in the original text, which is not folded.

        `ids` is uint64[k], C-contiguous, ascending. A match begins and ends with whole clusters
        (see `fold`): both letters of ``ﬁ`` have the place of the ligature.

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

    Folding is NFKC, then full case folding, then NFKC again. Before that, it drops characters
    that are invisible inside words: soft hyphens U+00AD, joiners U+034F, U+200C, U+200D and
    U+2060, byte order marks U+FEFF, and variation selectors. With `single_spaces`, each run of
    white space also becomes one space, and white space at both ends is removed.

    A cluster is a character with the marks, inner Hangul letters and invisible characters that
    follow it. A cluster of more than 32 code points is folded in pieces of 32, so that the time
    is linear for every text. A lone surrogate becomes U+FFFD.
    """

"""Types and documentation of the compiled `TermExtractor` and `term_id`.

Arrays that are returned are new. All functions hold the GIL, but `leaf_terms` lets other threads
run after every 256 KB of text. An instance of a subclass of `str` raises TypeError.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag_fast._characters import Folding

MAX_FREQUENCY: Final = 255

class LeafTerms(NamedTuple):
    """The forward form of n leaves: for each leaf, its terms with their frequencies.

    The entries of leaf i are `entries[starts[i]:starts[i + 1]]`.
    """

    starts: NDArray[np.int64]
    """int64[n + 1], ascending from 0 to the total count of entries."""
    entries: NDArray[np.uint64]
    """uint64: `term_id << 8 | min(frequency, MAX_FREQUENCY)`. The entries of a leaf ascend, and
    each term has one entry."""
    lengths: NDArray[np.uint32]
    """uint32[n]: how many terms each leaf has, counted with repetitions and without variants."""

class Matches(NamedTuple):
    """The spans of m occurrences of terms in a text, ordered by start, end and term.

    Spans overlap if a word lies in a joined run, and if CJK bigrams follow each other.
    """

    starts: NDArray[np.uint32]
    """uint32[m]: the first code point of each occurrence."""
    ends: NDArray[np.uint32]
    """uint32[m]: the end of each occurrence, in code points."""
    which: NDArray[np.uint32]
    """uint32[m]: the index of the term in the ids that `matches` was called with."""

class Token(NamedTuple):
    """A piece of text from which a term is made. A word is stemmed first."""

    text: str
    """The folded text."""
    is_word: bool
    """True for words, False for joined runs and CJK terms."""

class Variant(NamedTuple):
    """Another spelling of a part of a word or joined run, for example ``cafe`` for ``café``."""

    text: str
    """The spelling, which is stemmed like a word."""
    start: int
    """The first character of the part."""
    end: int
    """The end of the part, in characters."""

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

    * variants: the words that `variants` returns for a word or a joined run. They are stemmed, and
      are left out if their term is that of the word. `variants` must always return the same for
      the same text. It is called for texts of up to 256 bytes, and must return nothing for a word
      of ASCII letters alone or of ASCII digits alone.

    Terms come in the order in which they begin, except that a joined run comes after its words, and
    variants come after the word or the joined run that they vary.

    `stem` returns the stem of a word. Both are in UTF-8. It must always return the same stem for
    the same word. If `stem` is None, words are not stemmed. With `ascii_only`, words that have
    characters outside of ASCII are not stemmed. Words of more than 64 characters are never stemmed.
    If the stem is empty, the term is the word itself.

    Stems are cached in a cache of 2 MB and in one of about 1 MB. The first cache has the stems of
    up to 65,536 words of up to 24 bytes. It consists of sets of four words, in which words that are
    looked up move to the front, and a new word evicts the last one. The second cache has the stems
    of up to 8,192 longer words. A look-up compares whole words, not only their hashes. A third
    cache has the variants of up to 16,384 words and joined runs, in 5 MB. Threads may share an
    extractor: the GIL protects the caches, even if `stem` releases the GIL.
    """

    def __init__(
        self,
        stem: Callable[[bytes], bytes] | None,
        *,
        ascii_only: bool = False,
        folding: Folding = Folding.UNICODE,
        variants: Callable[[str], Sequence[Variant]] | None = None,
    ) -> None: ...
    def terms(self, text: str) -> NDArray[np.uint64]:
        """Returns the ids of all terms of a text, in order, with repetitions, uint64[n]."""

    def word_ids(self, text: str) -> NDArray[np.uint64]:
        """Returns the distinct ids of words and CJK terms, ascending, uint64[n]."""

    def leaf_terms(self, texts: Sequence[str]) -> LeafTerms:
        """Returns the terms of each text in the forward form."""

    def matches(self, text: str, ids: NDArray[np.uint64]) -> Matches:
        """Returns where terms with these ids occur in the original text, which is not folded.

        `ids` is uint64[k], C-contiguous, ascending. A match begins and ends with whole clusters
        (see `fold`). So a term that begins or ends inside the ligature ``ﬁ`` gets all of it.

        Raises ValueError for another dtype, shape or order.
        """

    def tokens(self, text: str) -> list[Token]:
        """Returns all tokens of a text, with repetitions, in the order of the method `terms`.

        Variants are not among them.
        """

    def term(self, token: Token) -> str:
        """Returns the term of a token: the stem of a word, or the token's text."""

def term_id(term: str) -> int:
    """Returns the id of a term: the highest 56 bits of a 64-bit hash of its UTF-8.

    The hash is FNV-1a with the finalizer of MurmurHash3. Raises UnicodeEncodeError for a lone
    surrogate, which no term has.
    """

"""The twin of `_analysis.pyx` and `_folded_text.pyx`: it uses strings and regular expressions.

It returns the same as the kernels, and reads the same tables of characters, from
`hrag_fast/_characters.py`.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag_fast import MAX_CLUSTER, MAX_FREQUENCY, Folding, LeafTerms, Matches, Token, Variant
from hrag_fast._characters import (
    CJK,
    JOINER,
    MARK,
    OTHER,
    SPACE,
    SUFFIX,
    WORD,
    character_class,
    fold_cluster,
    may_combine,
)

MAX_STEMMED_CHARS = 64
MAX_VARIED_BYTES = 256
# One letter for each class of characters, so that regular expressions can match classes.
_LETTERS = {OTHER: " ", SPACE: " ", WORD: "w", CJK: "c", MARK: "m", JOINER: "j", SUFFIX: "s"}
_WORDS_WITH_MARKS = re.compile("w[wm]*")
_RUNS = re.compile("w+(?:[js]+w+)*s*|c+")
_WORDS = re.compile("w+")
_MASK = (1 << 64) - 1


class _Span(NamedTuple):
    """The start and end of a token in the folded text, and its kind: "word", "joined" or "cjk"."""

    start: int
    end: int
    kind: str


class _Term(NamedTuple):
    """The id of a term, and its start and end in the folded text."""

    id: int
    start: int
    end: int


def fold(text: str, folding: Folding = Folding.UNICODE, *, single_spaces: bool = False) -> str:
    """The twin of `hrag_fast.fold`, which `_folded_text.pyi` documents."""
    folded = "".join(fold_cluster(text[start:end], folding) for start, end in clusters(text))
    return " ".join(folded.split()) if single_spaces else folded


def clusters(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each cluster, in characters, in order and without gaps.

    A cluster is a character with the following characters that may combine with it.
    """
    start = 0
    for index in range(1, len(text)):
        if index - start == MAX_CLUSTER or not may_combine(text[index]):
            yield start, index
            start = index
    if text:
        yield start, len(text)


def term_id(term: str) -> int:
    """Returns the highest 56 bits of FNV-1a with the finalizer of MurmurHash3."""
    value = 0xCBF29CE484222325
    for byte in term.encode():
        value = (value ^ byte) * 0x100000001B3 & _MASK
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & _MASK
    return (value ^ value >> 33) >> 8


def in_utf8(stem: Callable[[str], str]) -> Callable[[bytes], bytes]:
    """Returns a stemmer for words in UTF-8 that returns what `stem` returns for their text."""
    return lambda word: stem(word.decode()).encode()


class TermExtractor:
    """The twin of `hrag_fast.TermExtractor`, which `_analysis.pyi` documents."""

    def __init__(
        self,
        stem: Callable[[bytes], bytes] | None,
        *,
        ascii_only: bool = False,
        folding: Folding = Folding.UNICODE,
        variants: Callable[[str], Sequence[Variant]] | None = None,
    ) -> None:
        self._stem = stem
        self._ascii_only = ascii_only
        self._folding = folding
        self._variants = variants or (lambda text: ())

    def terms(self, text: str) -> NDArray[np.uint64]:
        folded = fold(text, self._folding)
        return np.array([term.id for term in self._terms(folded)], np.uint64)

    def word_ids(self, text: str) -> NDArray[np.uint64]:
        folded = fold(text, self._folding)
        spans = [span for span in _spans(folded) if span.kind != "joined"]
        return np.array(sorted({self._id(folded, span) for span in spans}), np.uint64)

    def leaf_terms(self, texts: Sequence[str]) -> LeafTerms:
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of str, not one str")
        starts, entries, lengths = [0], [], []
        for text in texts:
            ids = self.terms(text).tolist()
            entries += [
                term << 8 | min(n, MAX_FREQUENCY) for term, n in sorted(Counter(ids).items())
            ]
            starts.append(len(entries))
            lengths.append(len(list(_spans(fold(text, self._folding)))))
        return LeafTerms(
            np.array(starts, np.int64), np.array(entries, np.uint64), np.array(lengths, np.uint32)
        )

    def matches(self, text: str, ids: NDArray[np.uint64]) -> Matches:
        characters = [
            (cluster, character)
            for cluster in clusters(text)
            for character in fold_cluster(text[slice(*cluster)], self._folding)
        ]
        folded = "".join(character for _, character in characters)
        sorted_ids = ids.tolist()
        occurrences = []
        for term in self._terms(folded):
            which = bisect_left(sorted_ids, term.id)
            if which < len(sorted_ids) and sorted_ids[which] == term.id:
                (start, _), _ = characters[term.start]
                (_, end), _ = characters[term.end - 1]
                occurrences.append((start, end, which))
        columns = np.array(sorted(occurrences), np.uint32).reshape(-1, 3).T
        return Matches(*(column.copy() for column in columns))

    def tokens(self, text: str) -> list[Token]:
        folded = fold(text, self._folding)
        return [Token(folded[s.start : s.end], s.kind == "word") for s in _spans(folded)]

    def term(self, token: Token) -> str:
        text, is_word = token
        stemmed = is_word and len(text) <= MAX_STEMMED_CHARS
        if self._stem is None or not stemmed or (self._ascii_only and not text.isascii()):
            return text
        return self._stem(text.encode()).decode() or text

    def _id(self, folded: str, span: _Span) -> int:
        return term_id(self.term(Token(folded[span.start : span.end], span.kind == "word")))

    def _terms(self, folded: str) -> Iterator[_Term]:
        """Yields the terms of a folded text, with variants."""
        for span in _spans(folded):
            term = _Term(self._id(folded, span), span.start, span.end)
            yield term
            text = folded[span.start : span.end]
            if span.kind == "cjk" or len(text.encode()) > MAX_VARIED_BYTES:
                continue
            for variant in self._variants(text):
                start, end = span.start + variant.start, span.start + variant.end
                varied = _Term(term_id(self.term(Token(variant.text, True))), start, end)
                if varied.id != term.id:
                    yield varied


def _spans(folded: str) -> Iterator[_Span]:
    """Yields the tokens of a folded text.

    A joined run comes after its words, and a bigram after its first character.
    """
    letters = "".join(_LETTERS[character_class(c)] for c in folded)
    letters = _WORDS_WITH_MARKS.sub(lambda run: "w" * len(run[0]), letters)
    for run in _RUNS.finditer(letters):
        if run[0][0] == "c":
            yield from _cjk_spans(*run.span())
        else:
            yield from _word_spans(letters, *run.span())


def _cjk_spans(start: int, end: int) -> Iterator[_Span]:
    """Yields the characters and bigrams of a run of CJK characters."""
    for index in range(start, end):
        yield _Span(index, index + 1, "cjk")
        if index + 2 <= end:
            yield _Span(index, index + 2, "cjk")


def _word_spans(letters: str, start: int, end: int) -> Iterator[_Span]:
    """Yields the words of a run, then the whole run if it is a joined run."""
    for word in _WORDS.finditer(letters, start, end):
        yield _Span(*word.span(), "word")
    if "j" in letters[start:end] or "s" in letters[start:end]:
        yield _Span(start, end, "joined")

"""An analyzer turns text into terms, in one language and one version of the rules.

Text is folded, so that spellings that mean the same become equal. Then it is cut into words, whole
joined runs (`3.11.7`, `c++`, `well-known`) and, in scripts without spaces, single characters and
bigrams. Words are stemmed by Snowball. A term is identified by its id, a hash of 56 bits.
`hrag_fast.TermExtractor` does this work; this module has the names of analyzers and the rules for
queries.

An analyzer with a given name always produces the same terms. Changed rules get a new version, and
existing collections keep the version with which they were created.

* Version 1: a leaf has the terms of its heading and of its text.
* Version 2: a leaf also has the terms of its document's name (`hrag.passages.document_name`).
* Version 3: words also have variants (`hrag.text.analysis.variants`), digits of all scripts are
  equal, and in Turkish `I` is the capital letter of `ı`.

Versions 1 and 2 find the same terms in a text.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import Stemmer
from numpy.typing import NDArray

from hrag.text.analysis.variants import variants, without_accents
from hrag.text.stop_words import STOP_WORDS
from hrag.values.errors import InvalidArgument
from hrag_fast import (
    Folding,
    LeafTerms,
    Matches,
    TermExtractor,
    TermMatcher,
    Token,
    Variant,
    term_id,
)

MAX_QUERY_TERMS = 256
NO_STEMMER = "simple"  # The language for texts that shall not be stemmed.
DEFAULT_LANGUAGE = "english"
LANGUAGES = (NO_STEMMER, *sorted(Stemmer.algorithms()))
NEWEST_VERSION = 3
# Analyzers of this version and of later versions index the name of a document with each leaf.
_FIRST_VERSION_WITH_NAMES = 2
_FIRST_VERSION_WITH_VARIANTS = 3
_VERSIONS = frozenset(map(str, range(1, NEWEST_VERSION + 1)))
# English words are ASCII. Words with other characters are names or belong to another language, so
# they are not stemmed.
ASCII_LANGUAGES = frozenset({"english"})
_TURKISH = "turkish"


_JOINERS = frozenset("._-/@+#")
_WORD_FACTOR = 1.0  # The highest factor of a token.
# A joined run, such as `well-known`, has half the weight of a word, because the words in it are
# terms too.
_JOINED_FACTOR = 0.5
# A word with accents and its form without them share the weight of a word. Other variants help to
# find a text, and hardly change the order of texts that have the word itself.
_ACCENT_FACTOR = 0.5
_VARIANT_FACTOR = 0.1
# A word of a quoted phrase inside a sentence counts like two words.
_PREFERRED_FACTOR = 2.0
# A word of two CJK characters becomes three or four terms, so each of these terms has a quarter of
# the weight of a word.
_CJK_FACTOR = 0.25


Variants = Callable[[str], Sequence[Variant]]


class QueryTerm(NamedTuple):
    """A term of a query.

    `id` is the hash of `text` that `term_id` returns. If the term is a word, `text` is its stem.
    `factor` is the weight of terms of this kind, relative to the weight of a word.
    """

    id: int
    text: str
    factor: float = 1.0


class Analyzer:
    """Turns text into terms. The function `analyzer` creates objects of this class. Thread-safe.

    If `indexes_names` is True, a leaf is also indexed with the name of its document. `folding` and
    `variants` are those of the extractor.
    """

    def __init__(
        self,
        name: str,
        extractor: TermExtractor,
        stop_words: frozenset[str] = frozenset(),
        *,
        indexes_names: bool = False,
        folding: Folding = Folding.UNICODE,
        variants: Variants | None = None,
    ) -> None:
        self.name = name
        self.indexes_names = indexes_names
        self.folding = folding
        self._extractor = extractor
        self._stop_words = stop_words
        self._variants = variants

    def __repr__(self) -> str:
        return f"Analyzer({self.name!r})"

    def terms(self, text: str) -> NDArray[np.uint64]:
        """Returns the ids of all terms of a text, in order, with repetitions: `uint64[n]`."""
        return self._extractor.terms(text)

    def word_ids(self, text: str) -> NDArray[np.uint64]:
        """Returns the distinct ids of the words and CJK terms in a text, ascending: `uint64[n]`.

        The ids serve to find texts that contain a phrase. Such a text has all words of the phrase
        as terms. But a joined run of the phrase, such as `well-known`, may be only a part of a
        longer joined run in the text, and then it is no term of the text. So the ids of joined runs
        are left out.
        """
        return self._extractor.word_ids(text)

    def leaf_terms(self, texts: Sequence[str]) -> LeafTerms:
        """Returns the terms of each text, and the count of its terms, in the order of `texts`."""
        return self._extractor.leaf_terms(texts)

    def matches(self, text: str, ids: NDArray[np.uint64]) -> Matches:
        """Returns where the terms with these ids occur in a text, in code points of the text.

        `ids` are `uint64`, ascending. Raises ValueError for another dtype, shape or order.
        """
        return self._extractor.matches(text, ids)

    def matcher(self, ids: NDArray[np.uint64], weights: NDArray[np.float32]) -> TermMatcher:
        """Returns an object that finds the terms with these ids in texts, like `matches`.

        `weights` is `float32` and says how much each term counts in the choice of a sentence to
        cite. Raises ValueError for another dtype, shape or order.
        """
        return TermMatcher(self._extractor, ids, weights)

    def without_words_of(self, text: str, other: str) -> str:
        """Returns `text` without the words that `other` contains in any inflection.

        In scripts without spaces between words, a part of the text is left out if all characters
        and bigrams in it are terms of `other`. Each run of white space becomes one space, and white
        space at the ends is removed. Returns "" if no word remains.
        """
        ids = self.word_ids(text)
        new_ids = set(ids.tolist()).difference(self.word_ids(other).tolist())
        if not new_ids:
            return ""
        kept = list(text)
        if len(new_ids) < len(ids):
            is_new = [term in new_ids for term in ids.tolist()]
            columns = (column.tolist() for column in self.matches(text, ids))
            spans = [(is_new[term], start, end) for start, end, term in zip(*columns, strict=True)]
            # The spans of new terms come last, so a character in spans of both kinds is kept.
            for stays, start, end in sorted(spans):
                kept[start:end] = text[start:end] if stays else " " * (end - start)
        return " ".join("".join(kept).split())

    def query_terms(self, text: str, preferred: Sequence[str] = ()) -> tuple[QueryTerm, ...]:
        """Returns the distinct terms of a query in order of their first occurrence.

        The terms of the phrases `preferred`, which are parts of the text, have more weight.
        Stop words are left out, except in a query that consists only of stop words. Returns at most
        the first MAX_QUERY_TERMS terms.
        """
        term_of, stop_words = self._extractor.term, self._stop_words
        factors: dict[str, float] = {}
        stop_factors: dict[str, float] = {}
        for token in self._extractor.tokens(text):
            word, is_word = token
            # Most words consist of ASCII letters or of ASCII digits, and have no variants.
            if is_word and word.isascii() and (word.isalpha() or word.isdigit()):
                kept = stop_factors if word in stop_words else factors
                kept[term_of(token)] = _WORD_FACTOR
                continue
            for part, factor in self._weighted(token):
                is_stop_word = part.is_word and part.text in stop_words
                kept, term = stop_factors if is_stop_word else factors, term_of(part)
                kept[term] = max(factor, kept.get(term, 0.0))
        factors = factors or stop_factors
        for term in {
            term_of(token) for part in preferred for token in self._extractor.tokens(part)
        }:
            if term in factors:
                factors[term] *= _PREFERRED_FACTOR
        terms = list(factors.items())[:MAX_QUERY_TERMS]
        return tuple([QueryTerm(term_id(text), text, factor) for text, factor in terms])

    def _weighted(self, token: Token) -> Iterator[tuple[Token, float]]:
        """Yields a token and its variants, each with its factor."""
        factor = _factor(token)
        if self._variants is None or factor == _CJK_FACTOR:
            yield token, factor
            return
        term = self._extractor.term(token)
        words = [Token(variant.text, is_word=True) for variant in self._variants(token.text)]
        varied = [word for word in words if self._extractor.term(word) != term]
        plain = without_accents(token.text)
        yield token, _ACCENT_FACTOR if any(word.text == plain for word in varied) else factor
        for word in varied:
            yield word, _ACCENT_FACTOR if word.text == plain else _VARIANT_FACTOR


def _factor(token: Token) -> float:
    if token.is_word:
        return _WORD_FACTOR
    return _JOINED_FACTOR if _JOINERS.intersection(token.text) else _CJK_FACTOR


def analyzer_name(language: str) -> str:
    """Returns the name of the newest analyzer of a language, for example `english/2`.

    Raises InvalidArgument for a language that is not in LANGUAGES.
    """
    _check_language(language)
    return f"{language}/{NEWEST_VERSION}"


def upgraded(name: str) -> str:
    """Returns the name of the newest analyzer of the same language as the analyzer `name`.

    If `name` is empty, the language is DEFAULT_LANGUAGE. A collection without an analyzer was
    created before there were lexical indexes.
    """
    return analyzer_name(name.partition("/")[0] or DEFAULT_LANGUAGE)


@cache
def analyzer(name: str) -> Analyzer:
    """Returns the analyzer with this name. Calls with the same name return the same object.

    Raises InvalidArgument if the language or the version in the name is unknown.
    """
    language, _, version = name.partition("/")
    _check_language(language)
    if version not in _VERSIONS:
        raise InvalidArgument(
            f"analyzer is {name!r}; its version must be from 1 to {NEWEST_VERSION}, as in "
            f"{analyzer_name(language)!r}",
            field="analyzer",
        )
    has_variants = int(version) >= _FIRST_VERSION_WITH_VARIANTS
    return Analyzer(
        name,
        _extractor(language, has_variants),
        STOP_WORDS.get(language, frozenset()),
        indexes_names=int(version) >= _FIRST_VERSION_WITH_NAMES,
        folding=_folding(language, has_variants),
        variants=variants if has_variants else None,
    )


def folding_of(name: str) -> Folding:
    """Returns the folding of an analyzer, and `Folding.UNICODE` if `name` is empty."""
    return analyzer(name).folding if name else Folding.UNICODE


def _check_language(language: str) -> None:
    if language not in LANGUAGES:
        raise InvalidArgument(
            f"the language of an analyzer is {language!r}; it must be one of "
            f"{', '.join(LANGUAGES)}",
            field="analyzer",
        )


def _folding(language: str, has_variants: bool) -> Folding:
    if not has_variants:
        return Folding.UNICODE
    return Folding.TURKISH if language == _TURKISH else Folding.UNIFIED


@cache
def _extractor(language: str, has_variants: bool) -> TermExtractor:
    """Returns the extractor that versions of a language share because of its caches."""
    folding = _folding(language, has_variants)
    chosen = variants if has_variants else None
    if language == NO_STEMMER:
        return TermExtractor(None, folding=folding, variants=chosen)
    # The cache of the stemmer gets the size 0, because the extractor caches stems itself.
    stemmer = Stemmer.Stemmer(language, 0)
    ascii_only = language in ASCII_LANGUAGES
    return TermExtractor(stemmer.stemWord, ascii_only=ascii_only, folding=folding, variants=chosen)

"""How does text become the terms of the lexical index?

The same analyzer reads documents and queries. Its name has a language and a version, such as
`english/1`; a collection stores the name that it was made with, so that an index and its
queries always agree. Knows nothing of collections, stores or services.
"""

from hrag.text.analysis.analyzer import (
    DEFAULT_LANGUAGE,
    LANGUAGES,
    MAX_QUERY_TERMS,
    Analyzer,
    QueryTerm,
    analyzer,
    analyzer_name,
)
from hrag.text.analysis.weights import term_weights
from hrag_fast import MAX_FREQUENCY, LeafTerms, Matches, term_id

__all__ = [
    "DEFAULT_LANGUAGE",
    "LANGUAGES",
    "MAX_FREQUENCY",
    "MAX_QUERY_TERMS",
    "Analyzer",
    "LeafTerms",
    "Matches",
    "QueryTerm",
    "analyzer",
    "analyzer_name",
    "term_id",
    "term_weights",
]

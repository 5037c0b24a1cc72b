"""How does text become the terms of the lexical index?

The same analyzer reads documents and queries. Its name consists of a language and a version, for
example `english/3`. A collection stores the name of its analyzer, so that an index and its queries
always agree. The package knows nothing of collections, stores or services.
"""

from hrag.text.analysis.analyzer import (
    DEFAULT_LANGUAGE,
    LANGUAGES,
    MAX_QUERY_TERMS,
    Analyzer,
    QueryTerm,
    analyzer,
    analyzer_name,
    folding_of,
    upgraded,
)
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
    "folding_of",
    "term_id",
    "upgraded",
]

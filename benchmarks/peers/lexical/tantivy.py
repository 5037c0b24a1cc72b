"""The engine tantivy, called through tantivy-py.

Its index has one segment, and terms without positions. Queries are created before the search.
"""

from pathlib import Path

import tantivy

from benchmarks.peers.lexical.engine import LIMIT, RankedLeaves
from benchmarks.peers.lexical.terms import Leaves, Query
from benchmarks.peers.timing import folder_bytes

_FIELD = "terms"
# Postings have term frequencies but no positions, as hrag's postings.
_FREQUENCIES = "freq"
# With this much memory the writer puts all leaves into one segment.
_WRITER_BYTES = 2_000_000_000
# Every score of tantivy contains the factor k1 + 1.
_LUCENE_FACTOR = 2.2


class Tantivy:
    """Searches with tantivy. Implements `Engine`."""

    def __init__(self, folder: Path) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field(_FIELD, tokenizer_name="whitespace", index_option=_FREQUENCIES)
        self._schema = builder.build()
        self._folder = folder

    def index(self, corpus: Path) -> int:
        self._folder.mkdir(parents=True)
        index = tantivy.Index(self._schema, str(self._folder))
        writer = index.writer(_WRITER_BYTES, num_threads=1)
        for terms in Leaves.load(corpus):
            document = tantivy.Document()
            document.add_text(_FIELD, " ".join(map(str, terms)))
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self._searcher = index.searcher()
        if self._searcher.num_segments != 1:
            raise RuntimeError(f"tantivy made {self._searcher.num_segments} segments")
        return folder_bytes(self._folder)

    def prepared(self, query: Query) -> tantivy.Query:
        return tantivy.Query.boolean_query(
            [(tantivy.Occur.Should, self._term_query(number)) for number in query.terms]
        )

    def _term_query(self, number: int) -> tantivy.Query:
        return tantivy.Query.term_query(self._schema, _FIELD, str(number), _FREQUENCIES)

    def search(self, prepared: tantivy.Query) -> tantivy.SearchResult:
        return self._searcher.search(prepared, LIMIT, count=False)

    def ranked_leaves(self, query: Query) -> RankedLeaves:
        hits = self.search(self.prepared(query)).hits
        return [(address.doc, score / _LUCENE_FACTOR) for score, address in hits]

    def close(self) -> None:
        """Does nothing."""

"""tantivy, by tantivy-py: one segment, terms without positions, queries made before the search."""

from pathlib import Path

import tantivy

from benchmarks.peers.lexical.engine import LIMIT, Found
from benchmarks.peers.lexical.terms import Leaves, Query
from benchmarks.peers.timing import folder_bytes

_FIELD = "terms"
_FREQUENCIES = "freq"  # Postings with frequencies, without positions, as hrag's are.
_WRITER_BYTES = 2_000_000_000  # Enough for all leaves in one segment.
_LUCENE_FACTOR = 2.2  # k1 + 1, which every score of tantivy's has.


class Tantivy:
    """See `Engine`."""

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
            [(tantivy.Occur.Should, self._term(each)) for each in query.terms]
        )

    def _term(self, number: int) -> tantivy.Query:
        return tantivy.Query.term_query(self._schema, _FIELD, str(number), _FREQUENCIES)

    def search(self, prepared: tantivy.Query) -> tantivy.SearchResult:
        return self._searcher.search(prepared, LIMIT, count=False)

    def found(self, query: Query) -> Found:
        hits = self.search(self.prepared(query)).hits
        return [(address.doc, score / _LUCENE_FACTOR) for score, address in hits]

    def close(self) -> None:
        """Does nothing."""

"""Finds the documents that wait for summaries, and stores their summaries."""

from collections.abc import Container

from hrag.engine.embedded.write.commits import WriterPart
from hrag.engine.embedded.write.unsummarised import next_unsummarised
from hrag.engine.engine_documents import CollectionHandle, DocumentSummaries, Unsummarised
from hrag.values.errors import CollectionNotFound


class SummaryWriter(WriterPart):
    """Implements the methods of `hrag.engine.Writer` for summaries."""

    def next_unsummarised(
        self,
        embedder: str,
        after: CollectionHandle | None = None,
        excluding: Container[int] = (),
    ) -> Unsummarised | None:
        with self.commits.store.read() as txn:
            return next_unsummarised(txn, embedder, after, excluding)

    def put_summaries(
        self, document: Unsummarised, summaries: DocumentSummaries, tokens: int = 0
    ) -> bool:
        try:
            with self.commits.changes("summaries", summaries.vectors.nbytes) as changes:
                return changes.put_summaries(
                    document.collection, document.version, summaries, tokens
                )
        except CollectionNotFound:
            return False

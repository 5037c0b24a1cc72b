"""The documents whose summaries are not written yet: marks these documents, and finds the next one.

If a document or a whole collection is damaged, the error UnreadableVersion is raised. The field
`version` of the error identifies what is damaged: it is the ordinal of a document, or the negated
id of a collection. When the caller calls `next_unsummarised` again, it includes this integer in the
argument `excluding`, so that the damaged document or collection is skipped.
"""

from collections.abc import Container, Iterator
from contextlib import contextmanager

from hrag.engine.embedded.store.queries import (
    address_of,
    handle_of,
)
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.shared_state import SharedState
from hrag.engine.engine_documents import CollectionHandle, UnreadableVersion, Unsummarised
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree


def next_unsummarised(
    txn: Txn,
    embedder: str,
    after: CollectionHandle | None,
    excluding: Container[int],
) -> Unsummarised | None:
    """Returns a document whose summaries are not written yet; None if no document waits.

    Only considers collections with the embedder `embedder`, except unfinished copies of other
    collections, which get their summaries from these. Begins with the collection whose id
    follows the id of `after`, so that the collections take turns. If `after` is None, begins with
    the lowest id. Skips the documents whose ordinals are in `excluding`, and the collections whose
    negated ids are in `excluding`. Implements `hrag.engine.Writer.next_unsummarised`.
    """
    last = 0 if after is None else after.collection_id
    numbers = _collections_with_unsummarised(txn)
    for number in sorted(numbers, key=lambda number: (number <= last, number)):
        if -number in excluding:
            continue
        with _damage_reported_as(-number):
            collection = handle_of(txn, number)
            spent_tokens = txn.counters.require(number).summary_tokens
            is_copy = txn.collections.require(number).copy_of != 0
        if is_copy or collection.settings.embedder != embedder:
            continue
        for _, ordinal in txn.unsummarised.keys(number):
            if ordinal not in excluding:
                with _damage_reported_as(ordinal):
                    return _read_unsummarised(txn, collection, ordinal, spent_tokens)
    return None


@contextmanager
def _damage_reported_as(version: int) -> Iterator[None]:
    """Raises UnreadableVersion if the `with` block raises DataLoss.

    `version` becomes the field `version` of this error. It is the ordinal of the damaged document,
    or the negated id of the damaged collection.
    """
    try:
        yield
    except DataLoss as error:
        raise UnreadableVersion(error.message, version) from error


def _collections_with_unsummarised(txn: Txn) -> list[int]:
    """Returns the ids of the collections that have documents waiting for summaries, ascending."""
    numbers, number = [], 0
    while key := next(txn.unsummarised.keys(start=(number + 1, 0)), None):
        number, _ = key
        if txn.collections.has(number):
            numbers.append(number)
    return numbers


def _read_unsummarised(
    txn: Txn, collection: CollectionHandle, ordinal: int, spent_tokens: int
) -> Unsummarised:
    """Reads the document with this ordinal, which waits for summaries.

    Raises DataLoss if the document is damaged.
    """
    address = address_of(txn, collection.collection_id, ordinal)
    document = txn.documents.require(address)
    return Unsummarised(
        collection=collection,
        version=ordinal,
        document_id=document.document_id,
        title=document.title,
        parsed=document.parsed(txn.contents.text(address)),
        tree=Tree(bytes(txn.contents.tree(address))),
        spent_tokens=spent_tokens,
    )


class PendingSummaries:
    """Adds and removes documents that wait for summaries, in one write transaction."""

    def __init__(self, txn: Txn, shared: SharedState) -> None:
        self._txn = txn
        self._shared = shared

    def add(self, handle: CollectionHandle, ordinal: int) -> None:
        """Notes that the document with this ordinal waits for summaries."""
        self._txn.unsummarised.add((handle.collection_id, ordinal))
        self._shared.add_to_counters(handle, unsummarised=1)

    def remove(self, handle: CollectionHandle, ordinal: int) -> bool:
        """Notes that the document with this ordinal does not wait for summaries any more.

        Returns False if the document did not wait before this call.
        """
        is_waiting = self._txn.unsummarised.delete((handle.collection_id, ordinal))
        self._shared.add_to_counters(handle, unsummarised=-is_waiting)
        return is_waiting

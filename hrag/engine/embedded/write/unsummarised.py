"""Finds the next document whose summaries are not written yet.

A damaged document, or a damaged collection, is reported with a number that excludes it from the
next search. The number is the document's ordinal, or the negated number of the collection.
"""

from collections.abc import Container, Iterator
from contextlib import contextmanager

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import (
    address_of,
    collection_exists,
    handle_of,
    read_counters,
    read_document,
    required,
)
from hrag.engine.engine_documents import CollectionHandle, UnreadableVersion, Unsummarised
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree


def next_unsummarised(
    store: Store,
    txn: Txn,
    embedder: str,
    after: CollectionHandle | None,
    excluding: Container[int],
) -> Unsummarised | None:
    """Returns a document whose summaries are not written yet, or None.

    Implements `hrag.engine.Writer.next_unsummarised`.
    """
    last = 0 if after is None else after.collection_id
    numbers = _collections_with_unsummarised(store, txn)
    for number in sorted(numbers, key=lambda number: (number <= last, number)):
        if -number in excluding:
            continue
        with _damage_reported_as(-number):
            collection = handle_of(store, txn, number)
            spent_tokens = read_counters(store, txn, number).summary_tokens
        if collection.settings.embedder != embedder:
            continue
        for key, _ in store.scan(txn, "unsummarised", schema.u32(number)):
            ordinal = schema.read_in_collection(key)[1]
            if ordinal not in excluding:
                with _damage_reported_as(ordinal):
                    return _read_unsummarised(store, txn, collection, ordinal, spent_tokens)
    return None


@contextmanager
def _damage_reported_as(version: int) -> Iterator[None]:
    """Raises UnreadableVersion, with this version, instead of DataLoss from inside the block."""
    try:
        yield
    except DataLoss as error:
        raise UnreadableVersion(error.message, version) from error


def _collections_with_unsummarised(store: Store, txn: Txn) -> list[int]:
    """Returns the numbers of the collections that have documents without summaries, ascending."""
    numbers, start = [], b""
    while entry := next(store.scan(txn, "unsummarised", b"", start), None):
        number = schema.read_in_collection(entry[0])[0]
        start = schema.u32(number + 1)
        if collection_exists(store, txn, number):
            numbers.append(number)
    return numbers


def _read_unsummarised(
    store: Store, txn: Txn, collection: CollectionHandle, ordinal: int, spent_tokens: int
) -> Unsummarised:
    address = address_of(store, txn, collection.collection_id, ordinal)
    document = read_document(store, txn, address)
    text, tree = (required(txn.get(address, db=store.db[name])) for name in ("texts", "trees"))
    return Unsummarised(
        collection=collection,
        version=ordinal,
        document_id=document.document_id,
        title=document.title,
        parsed=document.parsed(text),
        tree=Tree(bytes(tree)),
        spent_tokens=spent_tokens,
    )

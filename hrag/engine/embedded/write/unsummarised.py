"""Which document is to be summarised next?

A damaged one, or a damaged collection, is reported under a number that leaves it out of the next
look: the document's ordinal, or the collection's number below zero.
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
    """See `hrag.engine.Writer.next_unsummarised`."""
    last = 0 if after is None else after.collection_id
    numbers = _with_unsummarised(store, txn)
    for number in sorted(numbers, key=lambda number: (number <= last, number)):
        if -number in excluding:
            continue
        with _damage_as(-number):
            collection = handle_of(store, txn, number)
            spent = read_counters(store, txn, number).summary_tokens
        if collection.settings.embedder != embedder:
            continue
        for key, _ in store.scan(txn, "unsummarised", schema.u32(number)):
            ordinal = schema.read_in_collection(key)[1]
            if ordinal not in excluding:
                with _damage_as(ordinal):
                    return _unsummarised(store, txn, collection, ordinal, spent)
    return None


@contextmanager
def _damage_as(version: int) -> Iterator[None]:
    """Raises DataLoss in the block as UnreadableVersion."""
    try:
        yield
    except DataLoss as error:
        raise UnreadableVersion(error.message, version) from error


def _with_unsummarised(store: Store, txn: Txn) -> list[int]:
    """Numbers of collections that have documents without their summaries."""
    numbers, start = [], b""
    while entry := next(store.scan(txn, "unsummarised", b"", start), None):
        number = schema.read_in_collection(entry[0])[0]
        start = schema.u32(number + 1)
        if collection_exists(store, txn, number):
            numbers.append(number)
    return numbers


def _unsummarised(
    store: Store, txn: Txn, collection: CollectionHandle, ordinal: int, spent: int
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
        spent_tokens=spent,
    )

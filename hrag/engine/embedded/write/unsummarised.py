"""Which document is to be summarised next?"""

from collections.abc import Container

from hrag.engine.documents import CollectionHandle, Unsummarised
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
from hrag.tree import Tree


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
        collection = handle_of(store, txn, number)
        if collection.settings.embedder != embedder:
            continue
        for key, _ in store.scan(txn, "unsummarised", schema.u32(number)):
            ordinal = schema.read_in_collection(key)[1]
            if ordinal not in excluding:
                return _unsummarised(store, txn, collection, ordinal)
    return None


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
    store: Store, txn: Txn, collection: CollectionHandle, ordinal: int
) -> Unsummarised:
    number = collection.collection_id
    address = address_of(store, txn, number, ordinal)
    document = read_document(store, txn, address)
    text, tree = (required(txn.get(address, db=store.db[name])) for name in ("texts", "trees"))
    return Unsummarised(
        collection=collection,
        version=ordinal,
        document_id=document.document_id,
        title=document.title,
        parsed=document.parsed(text),
        tree=Tree(bytes(tree)),
        spent_tokens=read_counters(store, txn, number).summary_tokens,
    )

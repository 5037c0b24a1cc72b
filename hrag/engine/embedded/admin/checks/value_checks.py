"""Verifies the checksums of all values except documents' records, texts, trees and vectors.

The module `document_checks` verifies the checksums of these four kinds of values.
"""

from collections.abc import Iterator

import numpy as np

from hrag.engine.embedded.admin.checks.store_walk import Walk
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.metadata_terms import ordinals_of_entries, term_seed
from hrag.engine.embedded.store.owners import collection_owner, document_owner, owner_of


def value_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each entry that does not match its checksum.

    The problem names the document or the collection to which the entry belongs.
    """
    for table in walk.txn.tables():
        if table.name in schema.BY_SLOT:
            continue
        for key in table.damaged():
            owner = owner_of(walk.txn, table.name, key)
            yield f"{owner}: its entry in {table.name} does not match its checksum"


def term_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each entry of a filter term that does not match its checksum.

    The problem names the document, or the collection if the document is unknown.
    """
    for key, value in walk.txn.terms.stored():
        term = bytes(key)
        entry = np.uint64(schema.read_u64(value))
        ordinals, damaged = ordinals_of_entries(np.array([entry]), np.uint64(term_seed(term)))
        if damaged[0]:
            collection = schema.read_u32(term[: schema.COLLECTION_BYTES])
            owner = document_owner(walk.txn, collection, int(ordinals[0]))
            if walk.leaf_count(collection, int(ordinals[0])) is None:
                owner = collection_owner(walk.txn, collection)
            yield f"{owner}: a filter value does not match its checksum"

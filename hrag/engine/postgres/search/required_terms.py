"""Required parts of a query: the leaves whose text has each of them, exactly.

The lexical index gives the leaves that have all words of a part, in any order and form; the
text of each of these is then compared. Without an index every eligible text is compared.
"""

import numpy as np

from hrag.engine.common.labels import Labels, labels_of, leaves_of, ordinals_of
from hrag.engine.postgres.search.document_reader import PostgresDocuments
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.sources.lexical_source import leaves_with_all
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.passages.indexed_text import IndexedLeaf, indexed_leaves
from hrag.passages.tree_text import TreeText
from hrag.text.analysis import analyzer
from hrag.text.analysis.query_syntax import RequiredParts
from hrag.values.collections import CollectionSettings
from hrag.values.deadline import Deadline


def with_required(
    connection: Connection,
    collection: OpenedCollection,
    eligible: EligibleLeaves,
    required: tuple[str, ...],
    deadline: Deadline,
) -> EligibleLeaves:
    """Returns those of the eligible leaves whose heading or text has every part of `required`.

    Raises DeadlineExceeded between two leaves.
    """
    labels = _possible(connection, collection, eligible, required)
    documents = PostgresDocuments(connection, collection)
    owners = ordinals_of(labels)
    ordinals = np.unique(owners).tolist()
    documents.expect(ordinals)
    parts = RequiredParts(required)
    kept = [np.empty(0, np.uint64)]
    for ordinal in ordinals:
        own = labels[owners == ordinal]
        leaves = _leaves(documents.tree_text(ordinal), collection.settings)
        has_all = np.zeros(len(own), np.bool_)
        for place, leaf in enumerate(leaves_of(own).tolist()):
            deadline.check("comparing texts")
            has_all[place] = parts.are_in(leaves[leaf])
        kept.append(own[has_all])
    return EligibleLeaves.only(np.concatenate(kept))


def _leaves(document: TreeText, settings: CollectionSettings) -> list[IndexedLeaf]:
    return indexed_leaves(
        str(document.part(0, len(document.text)), "utf-8"),
        document.outline.title,
        document.outline.sections,
        document.tree,
        settings.tree.embedding_level,
        headings=settings.index_headings,
    )


def _possible(
    connection: Connection,
    collection: OpenedCollection,
    eligible: EligibleLeaves,
    required: tuple[str, ...],
) -> Labels:
    """The eligible leaves with all words of all parts: ascending."""
    words = np.empty(0, np.uint64)
    if collection.settings.analyzer:
        analysis = analyzer(collection.settings.analyzer)
        words = np.unique(np.concatenate([words, *(analysis.word_ids(part) for part in required)]))
    if len(words):
        labels = leaves_with_all(connection, collection, words)
    else:
        labels = _every(connection, collection)
    return labels[eligible.contains(labels)]


def _every(connection: Connection, collection: OpenedCollection) -> Labels:
    """All leaves of the collection."""
    rows = connection.execute(
        "SELECT ordinal, leaf_count FROM hrag.documents WHERE tenant_id = %(tenant_id)s "
        "AND collection_id = %(collection_id)s ORDER BY ordinal",
        collection.key,
        binary=True,
    ).fetchall()
    return np.concatenate([np.empty(0, np.uint64), *(labels_of(*row) for row in rows)])

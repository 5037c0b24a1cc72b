"""Required parts of a query: the leaves whose text has each of them, exactly.

The lexical index gives the leaves that have all words of a part, in any order and form; the
text of each of these is then compared. Without an index every eligible text is compared.
"""

import numpy as np

from hrag.analysis import analyzer
from hrag.analysis.query_syntax import contains
from hrag.deadline import Deadline
from hrag.engine.postgres.search.documents import PostgresDocuments
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.sources.lexical import matches_of
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.engine.stored.labels import Labels, labels_of, leaves_of, ordinals_of
from hrag.passages.indexed_text import lexical_texts
from hrag.passages.tree_text import TreeText
from hrag.types import CollectionSettings


def with_required(
    connection: Connection,
    collection: OpenedCollection,
    eligible: EligibleLeaves,
    required: tuple[str, ...],
    deadline: Deadline,
) -> EligibleLeaves:
    """Returns those of the eligible leaves whose indexed text has every part of `required`.

    Raises DeadlineExceeded between two documents.
    """
    labels = _possible(connection, collection, eligible, required)
    documents = PostgresDocuments(connection, collection)
    owners = ordinals_of(labels)
    ordinals = np.unique(owners).tolist()
    documents.expect(ordinals)
    kept = [np.empty(0, np.uint64)]
    for ordinal in ordinals:
        deadline.check("comparing texts")
        own = labels[owners == ordinal]
        texts = _texts(documents.tree_text(ordinal), collection.settings)
        has_all = [contains(texts[leaf], required) for leaf in leaves_of(own).tolist()]
        kept.append(own[np.array(has_all, np.bool_)])
    return EligibleLeaves.only(np.concatenate(kept))


def _texts(document: TreeText, settings: CollectionSettings) -> list[str]:
    return lexical_texts(
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
        labels = matches_of(connection, collection, words).with_all(len(words))
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

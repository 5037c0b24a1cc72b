"""Finds the leaves that contain each required word and phrase of a query exactly.

First, the lexical index returns the leaves that have all words of the required phrases, in any
order and in any form of the words. Then the heading, the text and the name of each of these leaves
are searched for the exact words and phrases. If the collection has no lexical index, all eligible
leaves are searched.
"""

import numpy as np

from hrag.engine.common.labels import Labels, labels_of, leaves_of, ordinals_of
from hrag.engine.postgres.search.document_reader import PostgresDocuments
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.sources.lexical_source import leaves_with_all
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.passages.indexed_text import IndexedLeaf, indexed_leaves, indexed_name
from hrag.passages.tree_text import TreeText
from hrag.text.analysis import analyzer, folding_of
from hrag.text.analysis.query_syntax import RequiredParts
from hrag.values.collections import CollectionSettings
from hrag.values.deadline import Deadline


def leaves_with_required_parts(
    connection: Connection,
    collection: OpenedCollection,
    eligible: EligibleLeaves,
    required: tuple[str, ...],
    deadline: Deadline,
) -> EligibleLeaves:
    """Returns the eligible leaves that contain all the words and phrases in `required`.

    A leaf contains a word or a phrase if its heading, its text or the name of its document contains
    it. Checks the deadline before each leaf, and raises the errors of `Deadline.check`.
    """
    labels = _leaves_with_words(connection, collection, eligible, required)
    documents = PostgresDocuments(connection, collection)
    owners = ordinals_of(labels)
    ordinals = np.unique(owners).tolist()
    documents.expect(ordinals)
    parts = RequiredParts(required, folding_of(collection.settings.analyzer))
    matching = [np.empty(0, np.uint64)]
    for ordinal in ordinals:
        document_labels = labels[owners == ordinal]
        leaves = _indexed_leaves(documents.tree_text(ordinal), collection.settings)
        has_all = np.zeros(len(document_labels), np.bool_)
        for index, leaf in enumerate(leaves_of(document_labels).tolist()):
            deadline.check("comparing texts")
            has_all[index] = parts.are_in(leaves[leaf].searched_texts())
        matching.append(document_labels[has_all])
    return EligibleLeaves.only(np.concatenate(matching))


def _indexed_leaves(document: TreeText, settings: CollectionSettings) -> list[IndexedLeaf]:
    outline = document.outline
    return indexed_leaves(
        str(document.part(0, len(document.text)), "utf-8"),
        outline.title,
        outline.sections,
        document.tree,
        settings.tree.embedding_level,
        headings=settings.index_headings,
        name=indexed_name(settings, outline.title, outline.name_source, outline.document_id),
    )


def _leaves_with_words(
    connection: Connection,
    collection: OpenedCollection,
    eligible: EligibleLeaves,
    required: tuple[str, ...],
) -> Labels:
    """Returns the labels of the eligible leaves with all words of `required`, ascending.

    If the collection has no lexical index, or if `required` has no words, returns the labels of all
    eligible leaves.
    """
    words = np.empty(0, np.uint64)
    if collection.settings.analyzer:
        analysis = analyzer(collection.settings.analyzer)
        words = np.unique(np.concatenate([words, *(analysis.word_ids(part) for part in required)]))
    if len(words):
        labels = leaves_with_all(connection, collection, words)
    else:
        labels = _all_leaves(connection, collection)
    return labels[eligible.contains(labels)]


def _all_leaves(connection: Connection, collection: OpenedCollection) -> Labels:
    """Returns the labels of all leaves of the collection, in ascending order."""
    rows = connection.execute(
        "SELECT ordinal, leaf_count FROM hrag.documents WHERE tenant_id = %(tenant_id)s "
        "AND collection_id = %(collection_id)s ORDER BY ordinal",
        collection.key,
        binary=True,
    ).fetchall()
    return np.concatenate([np.empty(0, np.uint64), *(labels_of(*row) for row in rows)])

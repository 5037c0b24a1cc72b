"""Checks that a collection's documents are complete and correctly counted.

Compares ids with ordinals, records with texts and trees, vectors with leaves, and counters with the
documents.
"""

from collections.abc import Iterator

import numpy as np

from hrag.engine.common.records import CollectionRecord, DocumentRecord, Usage
from hrag.engine.embedded.admin.checks.store_walk import UNREADABLE, Walk, differences
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.content import ContentPart
from hrag.engine.embedded.store.damaged_documents import OF_DOCUMENTS
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.owners import document_name
from hrag.engine.embedded.store.tenant_usage import stored_bytes
from hrag.values.collections import CollectionSettings
from hrag.values.errors import DataLoss
from hrag.values.tree import NONE, Tree

# For each part of a document, the second and the third word of the message "its text does not match
# its checksum".
_PARTS = {
    ContentPart.TEXT: "text does",
    ContentPart.TREE: "tree does",
    ContentPart.VECTORS: "vectors do",
}
# How much the length of a stored vector may differ from 1. Rounding errors of float32 over
# thousands of dimensions are much smaller.
_UNIT_TOLERANCE = 1e-3


def document_problems(
    walk: Walk, collection: int, record: CollectionRecord, stored: Counters
) -> Iterator[str]:
    """Checks the documents of a collection, and the collection's counters. Yields the problems.

    `stored` are the counters that the store has for the collection. Only the counters that are sums
    over the documents are checked. Adds the documents to the totals in `walk`.
    """
    counted = stored._replace(**dict.fromkeys(OF_DOCUMENTS, 0))
    terms, are_readable = 0, True
    for ordinal, leaf_count, address in _documents(walk, collection):
        try:
            document = DocumentRecord.from_bytes(walk.txn.documents.get_data(address) or b"")
        except UNREADABLE as error:
            are_readable = False
            name = document_name(walk.txn, collection, ordinal)
            location = f"document {name} (ordinal {ordinal})" if name else f"ordinal {ordinal}"
            problems = [f"its record is missing or damaged: {error!r}"]
            problems += _checksum_problems(walk, address)
        else:
            location = f"document {document.document_id} (ordinal {ordinal})"
            counted = counted.plus(document, ordinal, 1)
            terms += len(terms_of(document))
            problems = [
                *_record_problems(walk, collection, ordinal, leaf_count, document, stored),
                *_content_problems(walk, address, document, record.settings, leaf_count),
            ]
        for problem in problems:
            yield f"{location}: {problem}"
    walk.documents += counted.documents
    walk.leaves += counted.leaves
    _add_usage(walk, record, counted)
    if not are_readable:
        walk.uncounted.add(record.tenant_id)
    if walk.uncounted:
        return
    yield from differences(stored, counted)
    yield from _count_problems(walk, collection, counted.documents, terms)


def _documents(walk: Walk, collection: int) -> Iterator[tuple[int, int, bytes]]:
    """Yields the ordinal, the leaf count and the address of each document.

    An address is the slot, the collection id and the ordinal of a document, encoded as bytes. Skips
    documents with a damaged entry in `ordinals`, because `value_problems` reports these entries.
    """
    for (_, ordinal), entry in walk.txn.ordinals.sound_entries(collection):
        yield ordinal, entry.leaf_count, schema.address(entry.slot, collection, ordinal)


def _checksum_problems(walk: Walk, address: bytes) -> list[str]:
    """Returns a problem for each part of a document that does not match its checksum.

    The parts are text, tree and vectors. A part that is not stored is skipped. `address` is the
    document's slot, collection id and ordinal, encoded as bytes.
    """
    contents = walk.txn.contents
    return [
        f"its {part_does} not match its checksum"
        for part, part_does in _PARTS.items()
        if contents.has(address, part) and contents.get_sound(address, part) is None
    ]


def _add_usage(walk: Walk, record: CollectionRecord, counted: Counters) -> None:
    """Adds a collection to the counted usage of its tenant.

    `counted` are the collection's counters. For a summary collection, adds only the bytes, because
    a tenant's usage counts neither summary collections nor summary documents.
    """
    usage = Usage(1, counted.documents) if not record.summarises else Usage()
    usage = usage._replace(stored_bytes=counted.stored_bytes)
    walk.usage[record.tenant_id] = walk.usage.get(record.tenant_id, Usage()).plus(usage)


def _count_problems(walk: Walk, collection: int, documents: int, terms: int) -> Iterator[str]:
    id_count = walk.txn.document_ids.count(collection)
    if id_count != documents:
        yield f"{id_count} document ids for {documents} documents"
    stored_terms = walk.txn.terms.count(collection)
    if stored_terms != terms:
        yield f"{stored_terms} terms are stored, its documents have {terms}"


def _record_problems(
    walk: Walk,
    collection: int,
    ordinal: int,
    leaf_count: int,
    document: DocumentRecord,
    counters: Counters,
) -> Iterator[str]:
    try:
        listed = walk.txn.document_ids.get((collection, document.document_id))
    except DataLoss:
        listed = None
    if listed != ordinal:
        yield "its id is stored with another ordinal, or not at all"
    if document.collection != collection or document.leaf_count != leaf_count:
        yield "its record names another collection or leaf count than its entry in ordinals"
    if document.sequence > counters.sequence:
        yield (
            f"its sequence number {document.sequence} is greater than the collection's last, "
            f"{counters.sequence}"
        )
    if not walk.txn.terms.has_all(terms_of(document), ordinal):
        yield "filters do not find it by all of its values"


def _content_problems(
    walk: Walk,
    address: bytes,
    document: DocumentRecord,
    settings: CollectionSettings,
    leaf_count: int,
) -> Iterator[str]:
    original_problem = walk.txn.originals.problem(address, document.original)
    if original_problem:
        yield original_problem
    damaged = _checksum_problems(walk, address)
    if damaged:
        yield from damaged
        return
    contents = walk.txn.contents
    text, tree, vectors = (contents.get(address, part) for part in _PARTS)
    if text is None or tree is None or vectors is None:
        yield "text, tree or vectors are missing"
        return
    yield from _text_problems(text, document)
    yield from _tree_problems(tree, document, settings)
    yield from _vector_problems(vectors, leaf_count, settings.dimension)
    size_bytes = stored_bytes(document, terms_of(document), len(tree))
    if size_bytes != document.stored_bytes:
        yield f"it takes {size_bytes} bytes, its record says {document.stored_bytes}"


def _text_problems(text: memoryview, document: DocumentRecord) -> Iterator[str]:
    if len(text) != document.text_bytes:
        yield f"text has {len(text)} bytes, its record says {document.text_bytes}"
    try:
        str(text, "utf-8")
    except UnicodeDecodeError as error:
        yield f"text is not UTF-8: {error}"


def _tree_problems(
    value: memoryview, document: DocumentRecord, settings: CollectionSettings
) -> Iterator[str]:
    try:
        tree = Tree(value)
    except ValueError as error:
        yield f"tree is damaged: {error}"
        return
    if tree.counts != document.chunks_per_level:
        yield f"tree has {tree.counts} chunks, its record says {document.chunks_per_level}"
    problems = tree.problems(settings.tree.level_sizes)
    yield from problems
    if not problems:
        yield from _coverage_problems(tree, document)


def _coverage_problems(tree: Tree, document: DocumentRecord) -> Iterator[str]:
    """Yields a problem if the tree does not cover the whole text, or refers to missing sections.

    The caller has checked that the tree itself is intact.
    """
    if int(tree.level(0)["byte_end"][-1]) != document.text_bytes:
        yield "tree does not cover the text"
    sections = np.concatenate([tree.level(level)["section"] for level in range(len(tree.counts))])
    if (sections[sections != NONE] >= len(document.sections)).any():
        yield f"a chunk refers to a missing section; the document has {len(document.sections)}"


def _vector_problems(value: memoryview, leaf_count: int, dimension: int) -> Iterator[str]:
    if len(value) != leaf_count * dimension * 4:
        yield f"{len(value)} bytes of vectors for {leaf_count} leaves of dimension {dimension}"
        return
    if not dimension:
        return
    norms = np.linalg.norm(np.frombuffer(value, "<f4").reshape(leaf_count, dimension), axis=1)
    if not (np.abs(norms - 1) < _UNIT_TOLERANCE).all():
        yield "a vector is not of unit length"

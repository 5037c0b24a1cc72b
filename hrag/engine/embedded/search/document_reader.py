"""Stored documents within a transaction: read on demand, encoded or as values."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hrag.engine.common.fetch import cited_document
from hrag.engine.common.records import DocumentRecord
from hrag.engine.embedded.store.checksums import Blocks
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import address_of, required
from hrag.engine.find import PassageFields
from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.values.tree import ChunkRecord, Tree
from hrag_fast import CitedDocument, PassageEncoder

_CITATION_BYTES = 32 << 20  # Some 10,000 documents; reading one again takes 15 us.
_CITATION_OVERHEAD_BYTES = 1_500  # In memory, added to a multiple of the record's size on disk.
_RECORD_FACTOR = 6
_STORED_BYTES = 1_000  # The objects of a document that was read.
_CHECK_AGAIN_S = 60  # So long a tree or a block of text counts as checked.


@dataclass(slots=True)
class RecentChecks:
    """What of a document was checked a short while ago, so that searches need not check it again.

    Until `until_s` of the monotonic clock. Safe to use from several threads: one in a race
    checks twice.
    """

    until_s: float = 0.0
    metadata_sequence: int = -1
    """That of the views for which the record was compared with what is stored."""
    tree: bool = False
    blocks: bytearray = field(default_factory=bytearray)
    """Of its text, see `Blocks`."""

    @property
    def text(self) -> bool:
        """Whether all blocks of its text were."""
        return bool(self.blocks) and 0 not in self.blocks

    def forget_old(self, now_s: float) -> None:
        """Forgets what was checked too long ago."""
        if now_s >= self.until_s:
            self.tree, self.blocks = False, bytearray()
            self.until_s = now_s + _CHECK_AGAIN_S


@dataclass(frozen=True, slots=True)
class Citation:
    """The part of a document that every passage needs: its outline and its address.

    `checksum` is that of the record which it was made from.
    """

    outline: Outline
    address: bytes
    checksum: bytes
    size_bytes: int  # In memory, estimated.
    checks: RecentChecks = field(default_factory=RecentChecks)
    _cited: dict[PassageFields, CitedDocument] = field(default_factory=dict)

    @classmethod
    def of(cls, packed: memoryview, address: bytes, checksum: bytes) -> "Citation":
        """Returns the citation of the document whose packed record is given."""
        outline = DocumentRecord.from_bytes(packed).outline()
        size_bytes = _CITATION_OVERHEAD_BYTES + _RECORD_FACTOR * len(packed)
        return cls(outline, address, checksum, size_bytes)

    def cited(self, fields: PassageFields) -> CitedDocument:
        """Returns what encoded passages of the document share; made once."""
        found = self._cited.get(fields)
        if found is None:
            found = cited_document(self.outline, fields)
            self._cited[fields] = found
        return found


class _StoredDocument(NamedTuple):
    """A document's tree and text, as LMDB holds them or joined from several values."""

    citation: Citation
    packed_tree: memoryview
    tree: Tree
    text: Blocks

    @property
    def size_bytes(self) -> int:
        """In memory, without the citation; LMDB's pages do not count."""
        joined = 0 if self.text.data.obj is None else len(self.packed_tree) + len(self.text.data)
        return _STORED_BYTES + joined


class CitationCache:
    """Citations by ordinal. An entry is current while its document's record has its checksum.

    Two generations: new and used entries are young. Once the young take half of the bytes
    allowed, they become the old ones, and the old ones before them are dropped. So what is
    in use stays, without a lock: threads in a race read twice or drop too early, no more.
    """

    def __init__(self, max_bytes: int = _CITATION_BYTES) -> None:
        self._half_bytes = max_bytes // 2
        self._young: dict[int, Citation] = {}
        self._young_bytes = 0
        self._old: dict[int, Citation] = {}

    def get(
        self, ordinal: int, is_current: Callable[[Citation], bool], read: Callable[[], Citation]
    ) -> Citation:
        """Returns the entry if it is current, else what `read` returns, which is kept."""
        found = self._young.get(ordinal)
        if found is not None and is_current(found):
            return found
        found = self._old.get(ordinal)
        if found is None or not is_current(found):
            found = read()
        if self._young_bytes + found.size_bytes > self._half_bytes:
            self._old, self._young, self._young_bytes = self._young, {}, 0
        self._young[ordinal] = found
        self._young_bytes += found.size_bytes
        return found


class DocumentReader:
    """Reads one collection's documents that exist in a transaction, by ordinal."""

    def __init__(
        self,
        store: Store,
        txn: Txn,
        collection: int,
        metadata_sequence: int,
        citations: CitationCache,
    ) -> None:
        """`metadata_sequence` is that of the transaction's view, see `View`."""
        self._store = store
        self._txn = txn
        self._collection = collection
        self._metadata_sequence = metadata_sequence
        self._citations = citations
        self._now_s = time.monotonic()
        # Passages often share a document, so what was read of one is kept.
        self._opened: dict[int, tuple[_StoredDocument, TreeText]] = {}

    def tree_text(self, ordinal: int) -> TreeText:
        """Returns the document, the same object each time."""
        return self._open(ordinal)[1]

    def tree(self, ordinal: int) -> Tree:
        """Returns the document's tree and reads nothing else."""
        document = self._read_before(ordinal)
        if document is not None:
            return document.tree
        key = self._key("tree", ordinal)
        found: tuple[float, Tree] | None = self._txn.cache.get(key)
        if found is None or found[0] <= self._now_s:
            packed = self._read(self._address(ordinal), "trees")
            found = (self._now_s + _CHECK_AGAIN_S, Tree(packed))
            joined_bytes = 0 if packed.obj is None else len(packed)
            self._txn.cache.keep(key, found, _STORED_BYTES + joined_bytes)
        return found[1]

    def encoded(
        self,
        ordinal: int,
        encoder: PassageEncoder,
        fields: PassageFields,
        position: TreePosition,
        group: int,
        record: ChunkRecord | None,
        merged: Sequence[TreePosition],
        max_bytes: int,
    ) -> bytes:
        """Returns a group's chunk as an encoded passage, with the span of `record` if given.

        Raises OverflowError for one of more than `max_bytes`.
        """
        stored, document = self._open(ordinal)
        return encoder.passage(
            stored.citation.cited(fields),
            stored.packed_tree,
            document.text,
            *position,
            group,
            record,
            merged,
            max_bytes,
            document.check,
        )

    def _open(self, ordinal: int) -> "tuple[_StoredDocument, TreeText]":
        found = self._opened.get(ordinal)
        if found is None:
            stored = self._read_before(ordinal) or self._stored(ordinal)
            citation = stored.citation
            check = None
            if not citation.checks.text:
                blocks = self._txn.again(stored.text, citation.address, self._store.db["texts"])
                check = blocks.check
            document = TreeText(citation.outline, stored.tree, stored.text.data, check)
            found = self._opened[ordinal] = (stored, document)
        return found

    def _read_before(self, ordinal: int) -> "_StoredDocument | None":
        """The document as a search before this one read it, if that checked it recently."""
        found: _StoredDocument | None = self._txn.cache.get(self._key("document", ordinal))
        if found is None or found.citation.checks.until_s <= self._now_s:
            return None
        return found

    def _key(self, what: str, ordinal: int) -> tuple[str, int, int]:
        return what, self._collection, ordinal

    def _stored(self, ordinal: int) -> "_StoredDocument":
        citation = self._citations.get(ordinal, self._is_current, lambda: self._citation(ordinal))
        checks, address, txn = citation.checks, citation.address, self._txn
        checks.forget_old(self._now_s)
        read_tree = txn.get_again if checks.tree else txn.get
        tree = required(read_tree(address, self._store.db["trees"]))
        checks.tree = True
        text = required(txn.get_blocks(address, self._store.db["texts"], checks.blocks))
        found = _StoredDocument(citation, tree, Tree(tree), text)
        txn.cache.keep(self._key("document", ordinal), found, found.size_bytes)
        return found

    def _is_current(self, citation: Citation) -> bool:
        """Whether the transaction has the record that the citation was made from.

        Views with one `metadata_sequence` have the same metadata, so one comparison is enough.
        """
        checks = citation.checks
        if checks.metadata_sequence == self._metadata_sequence:
            return True
        stored = self._txn.checksum(citation.address, self._store.db["documents"])
        if stored != citation.checksum:
            return False
        checks.metadata_sequence = self._metadata_sequence
        return True

    def _citation(self, ordinal: int) -> Citation:
        address = self._address(ordinal)
        checksum = self._txn.checksum(address, self._store.db["documents"])
        return Citation.of(self._read(address, "documents"), address, checksum)

    def _address(self, ordinal: int) -> bytes:
        return address_of(self._store, self._txn, self._collection, ordinal)

    def _read(self, address: bytes, database: str) -> memoryview:
        return required(self._txn.get(address, db=self._store.db[database]))

"""Reads stored documents in a transaction, as Python values or as passages encoded for a response.

A document is stored as a record (outline and metadata), a tree and a text. Two caches avoid reading
a document again:

* `CitationCache` stores what was read from records. Its entries stay valid when other documents are
  committed.
* The transaction's `CommitCache` stores trees and texts. Its entries are valid only for
  transactions that see the same commit.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from hrag.engine.common.fetch import cited_document
from hrag.engine.common.records import DocumentRecord
from hrag.engine.embedded.store.checksums import BLOCK_BYTES, Blocks
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.tables import required
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.find import PassageFields
from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreeText
from hrag.values.tree import Tree
from hrag_fast import CitedDocument, PassageDocument

# A citation is the part of a document that every passage of the document needs. The cache of
# citations takes at most 32 MiB, which is enough for about 10,000 documents. A citation that is not
# in the cache is read from the document's record, which takes 15 us.
_CITATION_BYTES = 32 << 20
# The memory that a document's citation takes is estimated as `_CITATION_OVERHEAD_BYTES` plus
# `_RECORD_FACTOR` times the size of the document's stored record.
_CITATION_OVERHEAD_BYTES = 1_500
_RECORD_FACTOR = 6
# The Python objects that refer to a document's tree and text take about this many bytes of memory.
_STORED_BYTES = 1_000
# After a tree or a block of text was compared with its checksum, it is not compared again for this
# many seconds.
_CHECK_AGAIN_S = 60


@dataclass(slots=True)
class RecentChecks:
    """Says which stored values of a document were recently compared with their checksums.

    Searches do not verify these values again until the clock reaches `until_s`, in seconds. Safe to
    use from several threads without a lock: at worst, two threads verify the same value.
    """

    until_s: float = 0.0
    metadata_sequence: int = -1
    """The `View.metadata_sequence` for which the citation was last compared with the stored record.

    It is -1 before the first comparison.
    """
    tree: bool = False
    """True if the tree was verified."""
    blocks: bytearray = field(default_factory=bytearray)
    """One byte for each block of the text: 1 if the block was verified, else 0; see `Blocks`."""

    def forget_old(self, now_s: float) -> None:
        """If the time `until_s` has passed, notes that tree and text must be verified again."""
        if now_s >= self.until_s:
            self.tree, self.blocks = False, bytearray()

    def renew(self, now_s: float) -> None:
        """If the time `until_s` has passed, sets it to `_CHECK_AGAIN_S` seconds after `now_s`.

        Must be called after the tree was verified, and after the blocks that were verified before
        cannot be found any more. If the tree is damaged, each search then finds that again.
        """
        if now_s >= self.until_s:
            self.until_s = now_s + _CHECK_AGAIN_S


@dataclass(frozen=True, slots=True)
class CachedCitation:
    """The part of a document that every passage of the document needs.

    `outline` has what passages cite, like title, sections and pages. `address` consists of the
    document's slot (the key under which LMDB stores the document), its collection id and its
    ordinal, encoded as bytes. `checksum` is the checksum of the stored record from which the
    outline was read. `size_bytes` is an estimate of the memory that the citation takes. `checks`
    says which stored values of the document were verified recently.
    """

    outline: Outline
    address: bytes
    checksum: bytes
    size_bytes: int
    checks: RecentChecks = field(default_factory=RecentChecks)
    _cited: dict[PassageFields, CitedDocument] = field(default_factory=dict)

    @classmethod
    def of(cls, packed: memoryview, address: bytes, checksum: bytes) -> "CachedCitation":
        """Returns the citation of a document.

        `packed` are the bytes of the document's stored record, `checksum` is the record's checksum,
        and `address` is the document's slot, collection id and ordinal, encoded as bytes.
        """
        outline = DocumentRecord.from_bytes(packed).outline()
        size_bytes = _CITATION_OVERHEAD_BYTES + _RECORD_FACTOR * len(packed)
        return cls(outline, address, checksum, size_bytes)

    def cited(self, fields: PassageFields) -> CitedDocument:
        """Returns the encoded fields that all passages of the document share.

        `fields` says which fields a passage has. The first call for these fields encodes them.
        Further calls return the cached result.
        """
        document = self._cited.get(fields)
        if document is None:
            document = cited_document(self.outline, fields)
            self._cited[fields] = document
        return document


class _StoredDocument(NamedTuple):
    """A document that was read from the store: its citation, its tree and its text.

    A tree or text that is stored in one LMDB value is not copied: it points into LMDB's pages. A
    tree or text that is stored in several values is a copy.
    """

    citation: CachedCitation
    packed_tree: memoryview
    tree: Tree
    text: Blocks
    encodable: dict[PassageFields, PassageDocument]
    """The document from which passages are encoded, for each set of requested fields."""

    @property
    def size_bytes(self) -> int:
        """The memory that the document takes, in bytes.

        The citation of the document and LMDB's pages are not included.
        """
        joined = 0 if self.text.data.obj is None else len(self.packed_tree) + len(self.text.data)
        return _STORED_BYTES + joined


class CitationCache:
    """A cache of citations. The key of an entry is the ordinal of the document.

    A citation is the part of a document that every passage of the document needs. An entry is
    current as long as the stored record of its document has the entry's checksum.

    The cache consists of two generations of entries. An entry that is added or used is put into the
    young generation. Once the young entries take half of `max_bytes`, they become the old
    generation, and the previous old generation is removed. So entries that are in use stay in the
    cache. No lock is needed: if two threads use the cache at the same time, at worst a citation is
    read twice or removed too early.
    """

    def __init__(
        self, max_bytes: int = _CITATION_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates an empty cache.

        `clock` returns seconds. It measures the time after which stored values are verified again.
        """
        self.clock = clock
        self._half_bytes = max_bytes // 2
        self._young: dict[int, CachedCitation] = {}
        self._young_bytes = 0
        self._old: dict[int, CachedCitation] = {}

    def get(
        self,
        ordinal: int,
        is_current: Callable[[CachedCitation], bool],
        read: Callable[[], CachedCitation],
    ) -> CachedCitation:
        """Returns the citation of the document with this ordinal.

        Returns the cached entry of this ordinal if `is_current` returns True for the entry.
        Otherwise calls `read`, and caches and returns its result.
        """
        citation = self._young.get(ordinal)
        if citation is not None and is_current(citation):
            return citation
        citation = self._old.get(ordinal)
        if citation is None or not is_current(citation):
            citation = read()
        if self._young_bytes + citation.size_bytes > self._half_bytes:
            self._old, self._young, self._young_bytes = self._young, {}, 0
        self._young[ordinal] = citation
        self._young_bytes += citation.size_bytes
        return citation


class EmbeddedDocumentReader:
    """Reads documents of one collection in a transaction. An ordinal identifies a document."""

    def __init__(
        self,
        txn: Txn,
        collection: int,
        metadata_sequence: int,
        citations: CitationCache,
    ) -> None:
        """Creates a reader of the documents that `txn` can read.

        `collection` is the id of the collection. `metadata_sequence` is the `metadata_sequence` of
        the view that shows the same state as `txn`: a sequence number after which no document's
        metadata changed. `citations` is a cache that other readers may share.
        """
        self._txn = txn
        self._collection = collection
        self._metadata_sequence = metadata_sequence
        self._citations = citations
        self._now_s = citations.clock()
        # The documents that were read, by ordinal. They are kept, because several passages of a
        # search often need the same document.
        self._opened: dict[int, _StoredDocument] = {}
        self._texts: dict[int, TreeText] = {}

    def tree_text(self, ordinal: int) -> TreeText:
        """Returns the tree and the text of the document with this ordinal.

        All calls with the same ordinal return the same object.
        """
        text = self._texts.get(ordinal)
        if text is None:
            stored = self._open(ordinal)
            check = partial(self.verify, ordinal)
            text = TreeText(stored.citation.outline, stored.tree, stored.text.data, check)
            self._texts[ordinal] = text
        return text

    def tree(self, ordinal: int) -> Tree:
        """Returns the tree of the document with this ordinal. Does not read its record or text."""
        document = self._read_earlier(ordinal)
        if document is not None:
            return document.tree
        key = ("tree", self._collection, ordinal)
        cached: tuple[float, Tree] | None = self._txn.cache.get(key)
        if cached is None or cached[0] <= self._now_s:
            packed = self._txn.contents.tree(self._address(ordinal))
            cached = (self._now_s + _CHECK_AGAIN_S, Tree(packed))
            joined_bytes = 0 if packed.obj is None else len(packed)
            self._txn.cache.keep(key, cached, _STORED_BYTES + joined_bytes)
        return cached[1]

    def passage_document(self, fields: PassageFields, ordinal: int) -> PassageDocument:
        """Returns the document with this ordinal, from which passages can be encoded.

        Implements `DocumentReader.passage_document`.
        """
        stored = self._open(ordinal)
        document = stored.encodable.get(fields)
        if document is None:
            document = PassageDocument(
                stored.citation.cited(fields),
                stored.packed_tree,
                stored.text.data,
                stored.text.checked,
                BLOCK_BYTES,
            )
            stored.encodable[fields] = document
        return document

    def verify(self, ordinal: int, start: int, end: int) -> None:
        """Verifies a part of a document's text, except blocks that were verified recently.

        Implements `DocumentReader.verify`.
        """
        stored = self._open(ordinal)
        blocks = self._txn.contents.text_blocks_again(stored.text, stored.citation.address)
        blocks.check(start, end)

    def _open(self, ordinal: int) -> "_StoredDocument":
        """Returns the document with this ordinal.

        Reads the document from the store if no search has read it yet.
        """
        stored = self._opened.get(ordinal)
        if stored is None:
            stored = self._read_earlier(ordinal) or self._read_stored(ordinal)
            self._opened[ordinal] = stored
        return stored

    def _read_earlier(self, ordinal: int) -> "_StoredDocument | None":
        """Returns the document with this ordinal if an earlier search has read it.

        The earlier search must have read the store in the state after the same commit as this
        reader. Returns None if no such search has read the document, or if the last verification of
        the document was too long ago.
        """
        key = ("document", self._collection, ordinal)
        stored: _StoredDocument | None = self._txn.cache.get(key)
        if stored is None or stored.citation.checks.until_s <= self._now_s:
            return None
        return stored

    def _read_stored(self, ordinal: int) -> "_StoredDocument":
        citation = self._citations.get(
            ordinal, self._is_current, lambda: self._read_citation(ordinal)
        )
        checks, address, contents = citation.checks, citation.address, self._txn.contents
        checks.forget_old(self._now_s)
        tree = contents.tree_again(address) if checks.tree else contents.tree(address)
        checks.tree = True
        text = contents.text_blocks(address, checks.blocks)
        document = _StoredDocument(citation, tree, Tree(tree), text, {})
        key = ("document", self._collection, ordinal)
        self._txn.cache.keep(key, document, document.size_bytes)
        checks.renew(self._now_s)
        return document

    def _is_current(self, citation: CachedCitation) -> bool:
        """Returns True if the document still has the record from which `citation` was made.

        Compares the checksum of the record that is stored now with the checksum in `citation`. All
        views with the same `metadata_sequence` have the same metadata, so the checksums are
        compared only once for all these views.
        """
        checks = citation.checks
        if checks.metadata_sequence == self._metadata_sequence:
            return True
        stored = self._txn.documents.checksum(citation.address)
        if stored != citation.checksum:
            return False
        checks.metadata_sequence = self._metadata_sequence
        return True

    def _read_citation(self, ordinal: int) -> CachedCitation:
        address = self._address(ordinal)
        checksum = self._txn.documents.checksum(address)
        packed = required(self._txn.documents.get_data(address))
        return CachedCitation.of(packed, address, checksum)

    def _address(self, ordinal: int) -> bytes:
        return address_of(self._txn, self._collection, ordinal)

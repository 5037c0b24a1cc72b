"""The fields and the encoding of the records that only the embedded engine stores, in LMDB.

Records that are read once and then cached are encoded as JSON. Records that every call reads have a
fixed binary format, which is faster to decode.
"""

import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from hrag.engine.common.records import Buffer, DocumentRecord, decoded, encoded
from hrag.values.status import Segment


class Counters(NamedTuple):
    """Running totals of a collection, updated in the transaction of each change.

    * `sequence`: the sequence number of the collection's last change.
    * `sealed_sequence`: segments cover all changes up to this sequence number.
    * `log_start`: a sequence number; the change log contains all changes with sequence numbers
      above `log_start`.
    * `log_entries`: the count of entries in the change log.
    * `sealed_ordinal`: the last ordinal that a segment covers.
    * `tail_leaves`: the count of leaves, without deleted leaves, whose ordinals are above
      `sealed_ordinal`.
    * `unsummarised`: the count of documents whose summaries are not written yet.
    * `summary_tokens`: the count of tokens that a chat model has read and written for summaries.
    * `stored_bytes`: the sum of the sizes of all documents in LMDB's file, in bytes, which the
      function `tenant_usage.stored_bytes` estimates.
    """

    documents: int = 0
    chunks: int = 0
    leaves: int = 0
    tail_leaves: int = 0
    tokens: int = 0
    text_bytes: int = 0
    vector_bytes: int = 0
    sequence: int = 0
    sealed_sequence: int = 0
    sealed_ordinal: int = 0
    log_entries: int = 0
    log_start: int = 0
    unsummarised: int = 0
    summary_tokens: int = 0
    stored_bytes: int = 0

    def to_bytes(self) -> bytes:
        return _COUNTERS.pack(*self)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "Counters":
        return cls._make(_COUNTERS.unpack(value))

    def plus(self, document: DocumentRecord, ordinal: int, sign: int) -> "Counters":
        """Returns the counters after a document is added (`sign` 1) or removed (`sign` -1).

        `ordinal` is the document's ordinal. If it is above `sealed_ordinal`, the document's leaves
        are in the tail.
        """
        leaves = sign * document.leaf_count
        return self._replace(
            documents=self.documents + sign,
            chunks=self.chunks + sign * sum(document.chunks_per_level),
            leaves=self.leaves + leaves,
            tail_leaves=self.tail_leaves + (leaves if ordinal > self.sealed_ordinal else 0),
            tokens=self.tokens + sign * document.token_count,
            text_bytes=self.text_bytes + sign * document.text_bytes,
            vector_bytes=self.vector_bytes + sign * document.vector_bytes,
            stored_bytes=self.stored_bytes + sign * document.stored_bytes,
        )


_COUNTERS = struct.Struct(f"<{len(Counters._fields)}Q")


class Change(NamedTuple):
    """An entry of the change log: the ordinal that a change added, and the ordinal that it removed.

    `added` is 0 if the change added no ordinal, and `removed` is 0 if the change removed none.

    If both are 0, only the metadata of a document changed. The document's leaves did not change,
    but the document may now pass other filters than before.
    """

    added: int = 0
    removed: int = 0

    def to_bytes(self) -> bytes:
        return _CHANGE.pack(*self)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "Change":
        return cls._make(_CHANGE.unpack(value))


_CHANGE = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """The size in bytes of a segment's file, and its SHA-256 in hexadecimal digits."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """The record of a segment in the manifest, the list of a collection's segments.

    The segment contains the leaves of the documents from `first_ordinal` to `last_ordinal` that
    existed when it was built. It has one row for each leaf, `rows` in all. Its index has `items`
    distinct vectors, some of which may belong only to leaves that were deleted before the segment
    was built. A segment with `dimension` 0 has no vectors. The postings contain the terms of
    `analyzer`; without an analyzer, the segment has no postings. `covered_sequence` is the sequence
    number of the last change that the segment covers. `files` maps the name of each file to the
    size and the checksum of the file.
    """

    segment_id: int
    space: str
    embedder: str
    dimension: int
    rows: int
    items: int
    first_ordinal: int
    last_ordinal: int
    covered_sequence: int
    files: Mapping[str, SegmentFile]
    analyzer: str = ""

    def to_bytes(self) -> bytes:
        return encoded(asdict(self))

    @classmethod
    def from_bytes(cls, value: Buffer) -> "SegmentRecord":
        record = cls(**decoded(value))
        files = {name: SegmentFile(**fields) for name, fields in record.files.items()}  # type: ignore[arg-type]
        return replace(record, files=files)

    @property
    def size_bytes(self) -> int:
        """The total size of the segment's files in bytes."""
        return sum(file.size_bytes for file in self.files.values())

    def info(self) -> Segment:
        """Returns what clients learn about the segment.

        This is the segment's id, its count of rows, the total size of its files in bytes, and the
        sequence number of the last change that it covers.
        """
        return Segment(self.segment_id, self.rows, self.size_bytes, self.covered_sequence)

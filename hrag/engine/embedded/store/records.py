"""The values of a store: their fields and their encoding as bytes.

Records that are read once and then cached are JSON; those that every call reads are packed.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import add
from typing import Any, NamedTuple

from hrag import canonical_json
from hrag.tree import PageSpan, Section
from hrag.types import CollectionSettings, DocumentInfo, Segment, SummaryUnit, TreeSettings

Buffer = bytes | memoryview


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _load(value: Buffer) -> Any:
    return json.loads(bytes(value))


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """A collection's owner and what was fixed at its creation.

    `summaries` is the number of its summary collection, and `summarises`, in the record of
    a summary collection, the number of the collection that it belongs to; 0 for none. A
    summary collection cannot be opened by name.
    """

    tenant_id: str
    name: str
    settings: CollectionSettings
    summaries: int = 0
    summarises: int = 0

    def to_bytes(self) -> bytes:
        """The record as JSON."""
        return _dump(asdict(self))

    @classmethod
    def from_bytes(cls, value: Buffer) -> "CollectionRecord":
        """Decodes what `to_bytes` wrote; raises ValueError, KeyError or TypeError."""
        fields = _load(value)
        settings = fields["settings"]
        tree = settings.pop("tree")
        tree["level_sizes"] = tuple(tree["level_sizes"])
        settings["summaries"] = SummaryUnit(settings["summaries"])
        fields["settings"] = CollectionSettings(TreeSettings(**tree), **settings)
        return cls(**fields)


class Counters(NamedTuple):
    """Running totals of a collection, updated in the transaction of each change.

    `sequence` is the tenant's sequence at the collection's last change, `sealed_sequence`
    at the last change that segments cover, `log_start` at the last change whose log entry
    was trimmed. `sealed_ordinal` is the last ordinal that a segment covers, and
    `tail_leaves` counts the living leaves above it. `unsummarised` counts documents whose
    summaries are not written yet, `summary_tokens` the tokens that a chat model has read
    and written for summaries. `stored_bytes` is what all documents take, see
    `tenant_usage.stored_bytes`.
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

    def plus(self, document: "DocumentRecord", ordinal: int, sign: int) -> "Counters":
        """The counters after a document is added (`sign` 1) or removed (`sign` -1)."""
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


class Usage(NamedTuple):
    """What a tenant has stored in all its collections, and the number of its last change.

    Of summary collections and their documents only the bytes count. A tenant's `sequence`
    is kept when nothing else is left, so that its numbers never restart.
    """

    collections: int = 0
    documents: int = 0
    stored_bytes: int = 0
    sequence: int = 0

    def to_bytes(self) -> bytes:
        return _USAGE.pack(*self)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "Usage":
        return cls._make(_USAGE.unpack(value))

    def plus(self, more: "Usage") -> "Usage":
        """The sum, field by field; fields of `more` may be negative."""
        return Usage(*map(add, self, more))


_USAGE = struct.Struct(f"<{len(Usage._fields)}Q")


class Change(NamedTuple):
    """One entry of the change log: the ordinal added and the one removed, 0 for none.

    With neither, a document's metadata changed: its leaves are the same, and filters may
    select others.
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
class DocumentRecord:
    """All that is stored of a document except its text, tree and vectors.

    `metadata_json` is `metadata` as canonical JSON where the caller has it already; it is
    copied into the record, so that large metadata is not encoded again.
    """

    collection: int
    document_id: str
    title: str
    source: str
    mime_type: str
    metadata: Mapping[str, Any]
    content_hash: str
    sections: tuple[Section, ...]
    pages: tuple[PageSpan, ...]
    chunks_per_level: tuple[int, ...]
    leaf_count: int
    token_count: int
    text_bytes: int
    vector_bytes: int
    stored_bytes: int
    sequence: int
    metadata_json: bytes = field(default=b"", repr=False, compare=False)

    def to_bytes(self) -> bytes:
        """The record as JSON, with the metadata last."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        del fields["metadata"], fields["metadata_json"]
        fields["sections"] = [(s.title, s.depth, s.char_start) for s in self.sections]
        fields["pages"] = [(p.number, p.char_start, p.char_end) for p in self.pages]
        metadata = self.metadata_json or canonical_json.encode(self.metadata)
        return b'%b,"metadata":%b}' % (_dump(fields).removesuffix(b"}"), metadata)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "DocumentRecord":
        fields = _load(value)
        fields["sections"] = tuple(Section(*section) for section in fields["sections"])
        fields["pages"] = tuple(PageSpan(*page) for page in fields["pages"])
        fields["chunks_per_level"] = tuple(fields["chunks_per_level"])
        return cls(**fields)

    def info(self) -> DocumentInfo:
        """The fields that clients see."""
        return DocumentInfo(
            document_id=self.document_id,
            title=self.title,
            source=self.source,
            mime_type=self.mime_type,
            metadata=self.metadata,
            chunks_per_level=self.chunks_per_level,
            token_count=self.token_count,
            text_bytes=self.text_bytes,
            page_count=len(self.pages),
            section_count=len(self.sections),
            sequence=self.sequence,
        )


@dataclass(frozen=True, slots=True)
class Summarised:
    """What the leaves of a document in a summary collection are summaries of.

    The first leaf is the summary of the whole document `ordinal`; each other leaf is the
    summary of a range of that document's leaves: `sections`, in order.
    """

    ordinal: int
    sections: tuple[range, ...]

    def to_bytes(self) -> bytes:
        bounds = [bound for section in self.sections for bound in (section.start, section.stop)]
        return struct.pack(f"<Q{len(bounds)}I", self.ordinal, *bounds)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "Summarised":
        ordinal, *bounds = struct.unpack(f"<Q{(len(value) - 8) // 4}I", value)
        return cls(ordinal, tuple(map(range, bounds[::2], bounds[1::2])))


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """Size and checksum of a segment's file, verified when it was written."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A segment as the manifest lists it.

    It holds the leaves of those documents from `first_ordinal` to `last_ordinal` that
    existed when it was built: `rows` leaves. Its index has `items` distinct vectors, some
    of which may belong to leaves that were deleted before; a segment of the dimension 0 has
    no vectors. Its postings have the terms of `analyzer`; without one it has none.
    `covered_sequence` is the tenant's sequence at the last change that it covers.
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
        return _dump(asdict(self))

    @classmethod
    def from_bytes(cls, value: Buffer) -> "SegmentRecord":
        record = cls(**_load(value))
        files = {name: SegmentFile(**fields) for name, fields in record.files.items()}  # type: ignore[arg-type]
        return replace(record, files=files)

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        return sum(file.size_bytes for file in self.files.values())

    def info(self) -> Segment:
        """The fields that clients see."""
        return Segment(self.segment_id, self.rows, self.size_bytes, self.covered_sequence)

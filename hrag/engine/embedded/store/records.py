"""The values of a store: what they hold and how they are written as bytes.

JSON where a record is read once and cached, packed where it is read with every call.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from operator import add
from typing import Any, NamedTuple

from hrag.tree import PageSpan, Section
from hrag.types import CollectionSettings, DocumentInfo, Segment, SummaryUnit, TreeSettings

Buffer = bytes | memoryview


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _load(value: Buffer) -> Any:
    return json.loads(bytes(value))


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """Whose a collection is, and what was fixed at its creation.

    `summaries` is the number of the collection that holds its summaries, and `summarises`
    in that one's record the number of this; 0 for none. The former has no name of its own.
    """

    tenant_id: str
    name: str
    settings: CollectionSettings
    summaries: int = 0
    summarises: int = 0

    def to_bytes(self) -> bytes:
        return _dump(asdict(self))

    @classmethod
    def from_bytes(cls, value: Buffer) -> "CollectionRecord":
        fields = _load(value)
        settings = fields["settings"]
        tree = settings.pop("tree")
        tree["level_sizes"] = tuple(tree["level_sizes"])
        settings["summaries"] = SummaryUnit(settings["summaries"])
        fields["settings"] = CollectionSettings(TreeSettings(**tree), **settings)
        return cls(**fields)


class Counters(NamedTuple):
    """Running totals of a collection, kept in the transaction of each change.

    `log_start` is the last change whose log entry is trimmed; `sealed_ordinal` the last
    ordinal that a segment covers; `tail_leaves` counts living leaves above it.
    `unsummarised` counts documents that wait for their summaries, `summary_tokens` what
    those written so far have cost of a chat model. `stored_bytes` is what all that is kept
    of its documents takes.
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

    def plus(self, head: "DocumentHead", ordinal: int, sign: int) -> "Counters":
        """With one document more (sign 1) or less (sign -1)."""
        leaves = sign * head.leaf_count
        return self._replace(
            documents=self.documents + sign,
            chunks=self.chunks + sign * sum(head.chunks_per_level),
            leaves=self.leaves + leaves,
            tail_leaves=self.tail_leaves + (leaves if ordinal > self.sealed_ordinal else 0),
            tokens=self.tokens + sign * head.token_count,
            text_bytes=self.text_bytes + sign * head.text_bytes,
            vector_bytes=self.vector_bytes + sign * head.vector_bytes,
            stored_bytes=self.stored_bytes + sign * head.stored_bytes,
        )


_COUNTERS = struct.Struct(f"<{len(Counters._fields)}Q")


class Usage(NamedTuple):
    """What a tenant has stored in all its collections.

    Collections that hold summaries, and the documents in them, count by their bytes alone.
    """

    collections: int = 0
    documents: int = 0
    stored_bytes: int = 0

    def to_bytes(self) -> bytes:
        return _USAGE.pack(*self)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "Usage":
        return cls._make(_USAGE.unpack(value))

    def plus(self, more: "Usage") -> "Usage":
        """With what `more` says, which may be negative."""
        return Usage(*map(add, self, more))


_USAGE = struct.Struct(f"<{len(Usage._fields)}Q")


class ChangeKind(IntEnum):
    """What a change did to its collection."""

    PUT = 1
    DELETE = 2
    SEGMENTS = 3


class Change(NamedTuple):
    """One entry of the change log: the ordinal that came and the one that went, or 0."""

    kind: ChangeKind
    added: int = 0
    removed: int = 0

    def to_bytes(self) -> bytes:
        return _CHANGE.pack(*self)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "Change":
        kind, added, removed = _CHANGE.unpack(value)
        return cls(ChangeKind(kind), added, removed)


_CHANGE = struct.Struct("<BQQ")


@dataclass(frozen=True, slots=True)
class DocumentHead:
    """All that is stored of a document beside text, tree and vectors."""

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

    def to_bytes(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["sections"] = [(s.title, s.depth, s.char_start) for s in self.sections]
        fields["pages"] = [(p.number, p.char_start, p.char_end) for p in self.pages]
        return _dump(fields)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "DocumentHead":
        fields = _load(value)
        fields["sections"] = tuple(Section(*section) for section in fields["sections"])
        fields["pages"] = tuple(PageSpan(*page) for page in fields["pages"])
        fields["chunks_per_level"] = tuple(fields["chunks_per_level"])
        return cls(**fields)

    def info(self) -> DocumentInfo:
        """What a client may know of it."""
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
    """Of what the leaves of a document are summaries, which is one of summaries.

    Its first leaf is the summary of the whole document that `ordinal` names, the others
    of ranges of that one's leaves: `sections`, in their order.
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
    """One file of a segment, as verified when it was written."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A segment as the manifest lists it.

    It holds what lived, when it was built, of the collection's ordinals from
    `first_ordinal` to `last_ordinal`: `rows` leaves. Its index has `items` vectors, some
    perhaps of leaves that died before.
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

    def to_bytes(self) -> bytes:
        return _dump(asdict(self))

    @classmethod
    def from_bytes(cls, value: Buffer) -> "SegmentRecord":
        record = cls(**_load(value))
        files = {name: SegmentFile(**fields) for name, fields in record.files.items()}  # type: ignore[arg-type]
        return replace(record, files=files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    def info(self) -> Segment:
        """What a client may know of it."""
        return Segment(self.segment_id, self.rows, self.size_bytes, self.covered_sequence)

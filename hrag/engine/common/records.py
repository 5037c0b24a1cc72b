"""The records that every engine stores of a collection, a document and a tenant.

Records that are read once and then cached are encoded as JSON. Records that every call reads are
packed structs.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import add, attrgetter
from typing import Any, NamedTuple

from hrag.passages.outline import Outline
from hrag.values import canonical_json
from hrag.values.collections import CollectionSettings, SummaryUnit, TreeSettings
from hrag.values.documents import DocumentInfo
from hrag.values.quotas import NO_LIMITS, Quota, TenantUsage
from hrag.values.tree import PageSpan, ParsedText, Section

Buffer = bytes | memoryview
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encoded(value: Any) -> bytes:
    """Returns a record's fields as JSON."""
    return _ENCODER.encode(value).encode()


def decoded(value: Buffer) -> Any:
    """Returns the value that `encoded` encoded."""
    return json.loads(bytes(value))


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """A collection's owner, and the settings that were fixed when it was created.

    `summaries` is the number of the collection's summary collection, 0 if it has none. `summarises`
    is 0, except in the record of a summary collection, where it is the number of the collection
    whose documents are summarised. A summary collection cannot be opened by name.
    """

    tenant_id: str
    name: str
    settings: CollectionSettings
    summaries: int = 0
    summarises: int = 0

    def to_bytes(self) -> bytes:
        """Returns the record as JSON."""
        return encoded(asdict(self))

    @classmethod
    def from_bytes(cls, value: Buffer) -> "CollectionRecord":
        """Decodes the output of `to_bytes`. Raises ValueError, KeyError or TypeError."""
        fields = decoded(value)
        settings = fields["settings"]
        tree = settings.pop("tree")
        tree["level_sizes"] = tuple(tree["level_sizes"])
        settings["summaries"] = SummaryUnit(settings["summaries"])
        fields["settings"] = CollectionSettings(TreeSettings(**tree), **settings)
        return cls(**fields)


class Usage(NamedTuple):
    """The usage of a tenant, summed over its collections, and the sequence of its last change.

    Summary collections and their documents count only with their bytes. A tenant's `sequence` is
    kept even if nothing else is left, so that its sequences never restart.
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
        """Returns the sum of each field. Fields of `more` may be negative."""
        return Usage(*map(add, self, more))

    def info(self, quota: Quota = NO_LIMITS) -> TenantUsage:
        """Returns the usage as clients see it: with the tenant's quota and without `sequence`."""
        return TenantUsage(self.collections, self.documents, self.stored_bytes, quota)


_USAGE = struct.Struct(f"<{len(Usage._fields)}Q")


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """Everything that is stored of a document except its text, tree and vectors.

    `metadata_json` is `metadata` as canonical JSON if the caller already has it, else empty. It is
    copied into the encoded record, so that large metadata is not encoded twice.
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
        """Returns the record as a JSON object, with the metadata last."""
        fields = encoded(self._fields_without_metadata())
        return b'%b,"metadata":%b}' % (fields.removesuffix(b"}"), self._encoded_metadata())

    def to_short_bytes(self) -> bytes:
        """Returns the record as a JSON array of its fields in order, which saves 200 bytes."""
        fields = encoded(list(self._fields_without_metadata().values()))
        return b"%b,%b]" % (fields.removesuffix(b"]"), self._encoded_metadata())

    def _fields_without_metadata(self) -> dict[str, Any]:
        fields = dict(zip(_FIELDS_WITHOUT_METADATA, _values(self), strict=True))
        fields["sections"] = [(s.title, s.depth, s.char_start) for s in self.sections]
        fields["pages"] = [(p.number, p.char_start, p.char_end) for p in self.pages]
        return fields

    def _encoded_metadata(self) -> bytes:
        return self.metadata_json or canonical_json.encode(self.metadata)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "DocumentRecord":
        """Decodes the output of `to_bytes` or `to_short_bytes`.

        Raises ValueError, KeyError or TypeError.
        """
        fields = decoded(value)
        if isinstance(fields, list):
            fields = dict(zip(_FIELDS, fields, strict=True))
        fields["sections"] = tuple(Section(*section) for section in fields["sections"])
        fields["pages"] = tuple(PageSpan(*page) for page in fields["pages"])
        fields["chunks_per_level"] = tuple(fields["chunks_per_level"])
        return cls(**fields)

    def parsed(self, text: Buffer) -> ParsedText:
        """Returns the document's text with its sections and pages. `text` is UTF-8."""
        return ParsedText(str(text, "utf-8"), self.sections, self.pages)

    def outline(self) -> Outline:
        """Returns the fields of the document that passages cite."""
        return Outline.of(
            self.document_id, self.title, self.source, self.metadata, self.sections, self.pages
        )

    def info(self) -> DocumentInfo:
        """Returns the fields that clients see."""
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


_FIELDS_WITHOUT_METADATA = [
    name for name in DocumentRecord.__slots__ if not name.startswith("metadata")
]
_FIELDS = [*_FIELDS_WITHOUT_METADATA, "metadata"]  # The order of `to_short_bytes`.
_values = attrgetter(*_FIELDS_WITHOUT_METADATA)


@dataclass(frozen=True, slots=True)
class Summarised:
    """The parts of a document that the leaves of its document of summaries summarise.

    The first leaf is the summary of the whole document `ordinal`. Each further leaf is the summary
    of a range of that document's leaves; `sections` are these ranges, in order.
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

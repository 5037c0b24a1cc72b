"""The records that every engine stores of a collection, a document and a tenant.

Records that are read once and then cached are encoded as JSON. Records that every call reads have a
fixed binary format, which is faster to decode.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import starmap
from operator import add, attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag.passages.outline import Outline
from hrag.values import canonical_json
from hrag.values.collections import CollectionSettings, SummaryUnit, TreeSettings
from hrag.values.documents import DocumentInfo, Original
from hrag.values.errors import InvalidArgument
from hrag.values.quotas import NO_LIMITS, Quota, TenantUsage
from hrag.values.read_report import PageUnit
from hrag.values.tree import PageSpan, ParsedText, Section

Buffer = bytes | memoryview
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encoded(value: Any) -> bytes:
    """Returns a value as JSON in UTF-8, without white space."""
    return _ENCODER.encode(value).encode()


def decoded(value: Buffer) -> Any:
    """Decodes a value from JSON in UTF-8. Raises ValueError if the bytes are not JSON."""
    return json.loads(bytes(value))


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """A collection's tenant, and the settings that were fixed when the collection was created.

    Only a reindexing changes a setting: it raises the version of the analyzer.

    `summaries` is the id of the collection's summary collection; it is 0 if the documents of the
    collection are not summarised. `summarises` is 0, except in the record of a summary collection:
    there it is the id of the collection with the summarised documents. A summary collection cannot
    be opened by its name.

    While a collection is embedded again, it has a copy, which is another collection. Then
    `copied_to` is the id of the copy, and in the record of the copy, `copy_of` is the id of the
    collection. Otherwise both are 0, and are not encoded. So the record of any other collection has
    the same bytes as before copies were introduced. The setting `keep_originals` is encoded only if
    it is True, for the same reason.
    """

    tenant_id: str
    name: str
    settings: CollectionSettings
    summaries: int = 0
    summarises: int = 0
    copied_to: int = 0
    copy_of: int = 0

    def to_bytes(self) -> bytes:
        """Returns the record as JSON."""
        fields = asdict(self)
        for name in ("copied_to", "copy_of"):
            if not fields[name]:
                del fields[name]
        if not self.settings.keep_originals:
            del fields["settings"]["keep_originals"]
        return encoded(fields)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "CollectionRecord":
        """Decodes the output of `to_bytes`.

        Raises InvalidArgument if a newer version of hrag has written a field that this version does
        not know, and ValueError, KeyError or TypeError if `value` is not an encoded
        CollectionRecord.
        """
        fields = decoded(value)
        settings = fields["settings"]
        unknown = {*settings, *fields} - {*CollectionSettings.__slots__, *cls.__slots__}
        if unknown:
            raise InvalidArgument(
                f"the collection {fields['name']!r} of the tenant {fields['tenant_id']!r} has "
                f"{', '.join(sorted(unknown))}, which a newer version of hrag has written; use "
                "that version"
            )
        tree = settings.pop("tree")
        tree["level_sizes"] = tuple(tree["level_sizes"])
        settings["summaries"] = SummaryUnit(settings["summaries"])
        fields["settings"] = CollectionSettings(TreeSettings(**tree), **settings)
        return cls(**fields)


class Usage(NamedTuple):
    """The usage of a tenant in all its collections, and the sequence number of its last change.

    `collections` and `documents` do not include summary collections and their documents, but
    `stored_bytes` includes them. `sequence` is kept even if the tenant deletes everything, so that
    the tenant's sequence numbers never start again at 1.
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
        """Returns the usage with each field of `more` added to the same field of this object.

        Fields of `more` may be negative.
        """
        return Usage(*map(add, self, more))

    def info(self, quota: Quota = NO_LIMITS) -> TenantUsage:
        """Returns the usage as clients see it: with the tenant's quota and without `sequence`."""
        return TenantUsage(self.collections, self.documents, self.stored_bytes, quota)


_USAGE = struct.Struct(f"<{len(Usage._fields)}Q")


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """Everything that is stored of a document except its text, tree and vectors.

    `metadata_json` is `metadata` as canonical JSON, or empty if the caller has not encoded the
    metadata yet. If `metadata_json` is not empty, it is copied into the encoded record, so that
    large metadata is not encoded twice.

    `pages` and `page_unit` are encoded as one value: the list of the pages or, if the unit is not
    PAGE, an object with the unit and this list. A page is a list of its number and its offsets,
    with a fourth value `true` if it was recognised. So the record of a document whose numbers are
    those of pages, none of them recognised, has the same bytes as before units were introduced.

    `indexed_source` is the source with which the document was ingested, if the source was changed
    later; otherwise None. The name in the lexical index comes from it, because a change of the
    source does not change the index. `source` and `indexed_source` are encoded as one value: a
    text, or a list of both texts.

    `original` describes the stored original, the file from which the document was read; it is None
    if the file is not stored. `mime_type` and `original` are encoded as one value: a text, or a
    list of the MIME type, the size and the SHA-256.
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
    page_unit: PageUnit = PageUnit.PAGE
    indexed_source: str | None = None
    original: Original | None = None

    @property
    def name_source(self) -> str:
        """The source from which the document's name in the lexical index comes."""
        return self.source if self.indexed_source is None else self.indexed_source

    def described_by(
        self, metadata: Mapping[str, Any], metadata_json: bytes, source: str
    ) -> "DocumentRecord":
        """Returns the record with other metadata and another source.

        The name in the lexical index stays the same.
        """
        return replace(
            self,
            metadata=metadata,
            metadata_json=metadata_json,
            source=source,
            indexed_source=None if source == self.name_source else self.name_source,
        )

    def to_bytes(self) -> bytes:
        """Returns the record as a JSON object, in which the metadata is the last field."""
        fields = encoded(self._fields_without_metadata())
        return b'%b,"metadata":%b}' % (fields.removesuffix(b"}"), self._encoded_metadata())

    def to_short_bytes(self) -> bytes:
        """Returns the record as a JSON array of its fields' values, in the order of the fields.

        Without the names of the fields, the record is about 200 bytes shorter than in `to_bytes`.
        """
        fields = encoded(list(self._fields_without_metadata().values()))
        return b"%b,%b]" % (fields.removesuffix(b"]"), self._encoded_metadata())

    def _fields_without_metadata(self) -> dict[str, Any]:
        fields = dict(zip(_FIELDS_WITHOUT_METADATA, _values(self), strict=True))
        fields["sections"] = [(s.title, s.depth, s.char_start) for s in self.sections]
        fields["pages"] = self._encodable_pages()
        if self.indexed_source is not None:
            fields["source"] = (self.source, self.indexed_source)
        if self.original is not None:
            original = self.original
            fields["mime_type"] = (self.mime_type, original.size_bytes, original.sha256)
        return fields

    def _encodable_pages(self) -> Any:
        """Returns the pages, with their unit, in the form that is encoded as JSON."""
        pages = [
            page if page.is_recognised else (page.number, page.char_start, page.char_end)
            for page in self.pages
        ]
        if self.page_unit is PageUnit.PAGE:
            return pages
        return {"unit": self.page_unit, "pages": pages}

    def _encoded_metadata(self) -> bytes:
        return self.metadata_json or canonical_json.encode(self.metadata)

    @classmethod
    def from_bytes(cls, value: Buffer) -> "DocumentRecord":
        """Decodes the output of `to_bytes` or `to_short_bytes`.

        Raises ValueError, KeyError or TypeError if `value` is not an encoded DocumentRecord.
        """
        fields = decoded(value)
        if isinstance(fields, list):
            fields = dict(zip(_FIELDS, fields, strict=True))
        fields["sections"] = tuple(Section(*section) for section in fields["sections"])
        pages = fields["pages"]
        if isinstance(pages, dict):
            fields["page_unit"], pages = PageUnit(pages["unit"]), pages["pages"]
        fields["pages"] = tuple(starmap(PageSpan, pages))
        fields["chunks_per_level"] = tuple(fields["chunks_per_level"])
        if isinstance(fields["source"], list):
            fields["source"], fields["indexed_source"] = fields["source"]
        if isinstance(fields["mime_type"], list):
            fields["mime_type"], *original = fields["mime_type"]
            fields["original"] = Original(*original)
        return cls(**fields)

    def parsed(self, text: Buffer) -> ParsedText:
        """Returns the document's text together with its sections and pages.

        `text` is the document's whole text in UTF-8, which the record does not contain.
        """
        return ParsedText(str(text, "utf-8"), self.sections, self.pages, self.page_unit)

    def outline(self) -> Outline:
        """Returns the fields of the record that a passage cites, such as title and pages."""
        return Outline.of(
            self.document_id,
            self.title,
            self.source,
            self.metadata,
            self.sections,
            self.pages,
            self.page_unit,
            self.name_source,
        )

    def info(self) -> DocumentInfo:
        """Returns the fields of the record that clients see."""
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
            page_unit=self.page_unit,
            recognised_page_count=sum(page.is_recognised for page in self.pages),
            original_bytes=0 if self.original is None else self.original.size_bytes,
        )


# `page_unit` is encoded together with `pages`, `indexed_source` together with `source`, and
# `original` together with `mime_type`.
_FIELDS_WITHOUT_METADATA = [
    name
    for name in DocumentRecord.__slots__
    if not name.startswith("metadata") and name not in ("page_unit", "indexed_source", "original")
]
# The names of the fields in the order in which `to_short_bytes` writes their values.
_FIELDS = [*_FIELDS_WITHOUT_METADATA, "metadata"]
_values = attrgetter(*_FIELDS_WITHOUT_METADATA)


@dataclass(frozen=True, slots=True, eq=False)
class Summarised:
    """Says which text each leaf of a document in a summary collection summarises.

    `ordinal` is the ordinal of the summarised document. The first leaf is the summary of this whole
    document. Each further leaf is the summary of one section. `bounds` has one row for each of
    these sections, in order: the index of the section's first leaf in the summarised document, and
    the index after its last leaf, `uint32[n, 2]`.
    """

    ordinal: int
    bounds: NDArray[np.uint32]

    @classmethod
    def of(cls, ordinal: int, sections: Sequence[range]) -> "Summarised":
        """Returns the record of a document whose sections have these leaves."""
        bounds = [(section.start, section.stop) for section in sections]
        return cls(ordinal, np.array(bounds, np.uint32).reshape(-1, 2))

    @property
    def sections(self) -> tuple[range, ...]:
        """The indexes of the leaves in each section."""
        return tuple(range(start, stop) for start, stop in self.bounds.tolist())

    def to_bytes(self) -> bytes:
        return struct.pack("<Q", self.ordinal) + self.bounds.astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, value: Buffer) -> "Summarised":
        (ordinal,) = struct.unpack_from("<Q", value)
        return cls(ordinal, np.frombuffer(bytes(value[8:]), "<u4").reshape(-1, 2))

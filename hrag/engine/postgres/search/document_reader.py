"""Stored documents within a snapshot: read on demand, several in one statement.

The text of a long document is read in blocks, those that are asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hrag.engine.common.fetch import cited_document
from hrag.engine.common.records import DocumentRecord
from hrag.engine.find import PassageFields
from hrag.engine.postgres.store.arrays import bigints, integers
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.values.errors import DataLoss
from hrag.values.tree import ChunkRecord, Tree
from hrag_fast import CitedDocument, PassageEncoder

_WHOLE_BYTES = 64 << 10  # Texts up to this length are read at once.
_BLOCK_BYTES = 8 << 10
_AROUND_BYTES = 4 << 10  # Sentences that begin or end outside of a chunk.
_AT_ONCE = 32  # Documents in one statement, at most.

_READ = f"""
SELECT ordinal, record, tree, octet_length(body), 0,
  CASE WHEN octet_length(body) <= {_WHOLE_BYTES} THEN body END
FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal = ANY(%(ordinals)s)
"""
DOCUMENT_COLUMNS = """
chunks.ordinal, record, tree, size_bytes, first_byte,
CASE WHEN has_text THEN substring(body FROM first_byte + 1 FOR part_bytes) END
"""
"""What `PostgresDocuments.add` takes, of rows of DOCUMENTS_OF_CHUNKS."""
# BETWEEN and ORDER BY make PostgreSQL use the index of ordinals, whatever it knows of the table.
# For an equal ordinal, that of the documents' ids costs as little where it expects a single
# document of a collection, and leads to all of them.
DOCUMENTS_OF_CHUNKS = f"""
chunks, LATERAL (
  SELECT record, substring(tree FROM 1) AS tree, body, octet_length(body) AS size_bytes
  FROM hrag.documents WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
  AND ordinal BETWEEN chunks.ordinal AND chunks.ordinal ORDER BY ordinal LIMIT 1
) AS document, LATERAL (
  SELECT CASE WHEN has_text AND size_bytes > {_WHOLE_BYTES} THEN
    reverse(substring(tree FROM 1 + 4 * ({{levels}} + 1) + 40 * (index + (
      SELECT coalesce(sum(reverse(substring(tree FROM 1 + 4 * below FOR 4))::integer), 0)
      FROM generate_series(1, {{level}}) AS below
    ))::integer FOR 8))::bigint END AS bounds OFFSET 0
) AS chunk, LATERAL (
  SELECT greatest((bounds & 4294967295)::integer - {_AROUND_BYTES}, 0)
    / {_BLOCK_BYTES} * {_BLOCK_BYTES} AS first_byte OFFSET 0
) AS beginning, LATERAL (
  SELECT coalesce(
    ((bounds >> 32)::integer + {_AROUND_BYTES + _BLOCK_BYTES - 1} - first_byte)
      / {_BLOCK_BYTES} * {_BLOCK_BYTES}, {_WHOLE_BYTES}) AS part_bytes
) AS part
"""
"""The documents of `chunks`, which has the columns `ordinal`, `index` and `has_text`.

Where `has_text` is true, the text around the chunk `index` of `level` is read as `read_ahead` does.
A packed tree begins with the number of levels and that of each one's chunks; each chunk takes
40 bytes and begins with its bounds.
"""
_READ_PARTS = """
SELECT ordinal, start, substring(body FROM start + 1 FOR length)
FROM hrag.documents JOIN unnest(%(ordinals)s, %(starts)s, %(lengths)s)
  AS wanted (ordinal, start, length) USING (ordinal)
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""

_Part = tuple[int, int]
"""A first offset in a text and a number of bytes."""


class LongText:
    """A text of which blocks are read when they are first checked: see `TreeText.check`."""

    def __init__(self, size_bytes: int, read: Callable[[_Part], None]) -> None:
        """`read` reads a part and adds it."""
        self._bytes = bytearray(size_bytes)  # The system gives no memory before it is used.
        self._read = read
        self._present: set[int] = set()

    @property
    def data(self) -> memoryview:
        """The whole text, zeros where it was not read."""
        return memoryview(self._bytes)

    def check(self, start: int, end: int) -> None:
        """Reads what is missing from `start` to `end`, in one go."""
        missing = self.missing(start, end)
        if missing is not None:
            self._read(missing)

    def missing(self, start: int, end: int) -> _Part | None:
        """Returns the part to read so that nothing is missing from `start` to `end`."""
        last = max(min(end, len(self._bytes)) - 1, start)
        blocks = range(start // _BLOCK_BYTES, last // _BLOCK_BYTES + 1)
        absent = [block for block in blocks if block not in self._present]
        if not absent:
            return None
        first = absent[0] * _BLOCK_BYTES
        return first, (absent[-1] + 1) * _BLOCK_BYTES - first

    def add(self, start: int, part: bytes) -> None:
        """Adds what was read from `start` on, which is the beginning of a block."""
        self._bytes[start : start + len(part)] = part
        self._present.update(range(start // _BLOCK_BYTES, -(-(start + len(part)) // _BLOCK_BYTES)))


class _Row(NamedTuple):
    """What `add` was given of a document that nobody has asked for yet."""

    record: bytes
    tree: bytes
    size_bytes: int
    parts: list[tuple[int, bytes]]


class _Stored(NamedTuple):
    """A document, and its text if that is read in blocks."""

    text: TreeText
    long: LongText | None
    cited: dict[PassageFields, CitedDocument]


@dataclass(slots=True, eq=False)
class PostgresDocuments:
    """See `hrag.engine.common.fetch.DocumentReader`."""

    connection: Connection
    collection: OpenedCollection
    _stored: dict[int, _Stored] = field(default_factory=dict)
    _rows: dict[int, _Row] = field(default_factory=dict)
    _expected: list[int] = field(default_factory=list)
    _together: int = _AT_ONCE

    def expect(self, ordinals: Iterable[int], together: int = _AT_ONCE) -> None:
        """Says which documents will be read, in their order; so many are read at once."""
        self._expected = list(dict.fromkeys(ordinals))
        self._together = max(1, min(together, _AT_ONCE))

    def tree_text(self, ordinal: int) -> TreeText:
        """Returns the document, the same object each time."""
        return self._document(ordinal).text

    def tree(self, ordinal: int) -> Tree:
        """Returns the document's tree."""
        return self._document(ordinal).text.tree

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
        """See `hrag.engine.common.fetch.DocumentReader.encoded`."""
        text, _, cited = self._document(ordinal)
        if fields not in cited:
            cited[fields] = cited_document(text.outline, fields)
        return encoder.passage(
            cited[fields],
            memoryview(text.tree.to_bytes()),
            memoryview(text.text),
            *position,
            group,
            record,
            merged,
            max_bytes,
            text.check,
        )

    def add(
        self,
        ordinal: int,
        record: bytes,
        tree: bytes,
        size_bytes: int,
        start: int,
        part: bytes | None,
    ) -> None:
        """Adds a document that another statement has read, with a part of its text if given."""
        if ordinal not in self._stored:
            row = self._rows.setdefault(ordinal, _Row(record, tree, size_bytes, []))
            if part is not None:
                row.parts.append((start, part))

    def read_ahead(self, chunks: Iterable[tuple[int, TreePosition]]) -> None:
        """Reads the texts of chunks, and around them, of documents that are here, in one go."""
        wanted: list[tuple[int, _Part]] = []
        for ordinal, position in chunks:
            if ordinal not in self._stored and ordinal not in self._rows:
                continue
            stored = self._document(ordinal)
            if stored.long is None:
                continue
            record = stored.text.tree.record(*position)
            start = max(record.byte_start - _AROUND_BYTES, 0)
            part = stored.long.missing(start, record.byte_end + _AROUND_BYTES)
            if part is not None:
                wanted.append((ordinal, part))
        if wanted:
            self._read_parts(wanted)

    def _read_parts(self, wanted: Sequence[tuple[int, _Part]]) -> None:
        """Reads parts of texts, each with its document's ordinal."""
        parameters = {
            **self.collection.key,
            "ordinals": bigints([ordinal for ordinal, _ in wanted]),
            "starts": integers([start for _, (start, _) in wanted]),
            "lengths": integers([length for _, (_, length) in wanted]),
        }
        for ordinal, start, part in self.connection.execute(_READ_PARTS, parameters):
            long = self._stored[ordinal].long
            if long is not None:
                long.add(start, part)

    def _document(self, ordinal: int) -> _Stored:
        if ordinal not in self._stored:
            if ordinal not in self._rows:
                self._read([ordinal, *self._next_after(ordinal)])
            self._stored[ordinal] = self._made(ordinal, self._rows.pop(ordinal))
        return self._stored[ordinal]

    def _next_after(self, ordinal: int) -> list[int]:
        """Documents that are expected soon after this one."""
        if ordinal not in self._expected:
            return []
        at = self._expected.index(ordinal)
        soon = self._expected[at + 1 : at + self._together]
        return [each for each in soon if each not in self._stored and each not in self._rows]

    def _read(self, ordinals: list[int]) -> None:
        parameters = {**self.collection.key, "ordinals": ordinals}
        for row in self.connection.execute(_READ, parameters, binary=True):
            self.add(*row)
        lost = [each for each in ordinals if each not in self._rows]
        if lost:
            raise DataLoss(
                f"collection {self.collection.record.name!r}: leaves of the versions {lost} of "
                "documents are stored, but not the documents; `hrag check` says more"
            )

    def _made(self, ordinal: int, row: _Row) -> _Stored:
        outline = DocumentRecord.from_bytes(row.record).outline()
        tree = Tree(row.tree)
        for _, part in row.parts:
            if len(part) == row.size_bytes:
                return _Stored(TreeText(outline, tree, part), None, {})
        long = LongText(row.size_bytes, lambda part: self._read_parts([(ordinal, part)]))
        for start, part in row.parts:
            long.add(start, part)
        return _Stored(TreeText(outline, tree, long.data, long.check), long, {})

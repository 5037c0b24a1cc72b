"""Reads the documents of found leaves in a snapshot, several documents in one statement.

A document is read when it is first needed. The text of a long document is read in blocks, and only
the blocks that are needed are read.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from psycopg import sql

from hrag.engine.common.fetch import cited_document
from hrag.engine.common.records import DocumentRecord
from hrag.engine.find import PassageFields
from hrag.engine.postgres.store.arrays import bigints, integers
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree
from hrag_fast import PassageDocument

# A text with at most this many bytes is read as a whole. A longer text is read in blocks.
_WHOLE_BYTES = 64 << 10
_BLOCK_BYTES = 8 << 10
# This many bytes before and after a chunk are read with it, because sentences may begin or end
# outside of the chunk.
_AROUND_BYTES = 4 << 10
# The statement that finds the best groups reads a chunk's text, with the text around it, only if it
# has at most this many bytes. So the statement never sends much more than a reply may contain. A
# longer text is read later, when it is known that it fits into the reply.
_AHEAD_BYTES = _WHOLE_BYTES
# One statement reads at most this many documents.
_MAX_DOCUMENTS = 32

_READ = f"""
SELECT ordinal, record, tree, octet_length(body), 0,
  CASE WHEN octet_length(body) <= {_WHOLE_BYTES} THEN body END
FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal = ANY(%(ordinals)s)
"""
_FIRST_BYTE = f"""
greatest((bounds & 4294967295)::integer - {_AROUND_BYTES}, 0) / {_BLOCK_BYTES} * {_BLOCK_BYTES}
"""
_PART_BYTES = f"""
coalesce(((bounds >> 32)::integer + {_AROUND_BYTES + _BLOCK_BYTES - 1}) / {_BLOCK_BYTES}
  * {_BLOCK_BYTES} - {_FIRST_BYTE}, {_WHOLE_BYTES})
"""
DOCUMENT_COLUMNS = f"""
chunks.ordinal, record, tree, size_bytes, {_FIRST_BYTE},
CASE WHEN {{has_text}} AND {_PART_BYTES} <= {_AHEAD_BYTES}
  THEN substring(body FROM {_FIRST_BYTE} + 1 FOR {_PART_BYTES}) END
"""
"""The columns of DOCUMENTS_OF_CHUNKS that are the parameters of `PostgresDocuments.add`."""
# BETWEEN and ORDER BY make PostgreSQL always use the index of ordinals. With `ordinal = ...`,
# PostgreSQL may use the index of document ids instead, and would then read all documents of the
# collection. This happens if the table's statistics suggest that each collection has one document,
# because both indexes then have the same estimated cost.
#
# Citus plans the statement in each search, on the coordinator and on the node. So the statement has
# few subqueries: an expression is repeated if a subquery for it would cost more.
DOCUMENTS_OF_CHUNKS = f"""
chunks, LATERAL (
  SELECT record, substring(tree FROM 1) AS tree, body, octet_length(body) AS size_bytes
  FROM hrag.documents WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
  AND ordinal BETWEEN chunks.ordinal AND chunks.ordinal ORDER BY ordinal LIMIT 1
) AS document, LATERAL (
  SELECT CASE WHEN {{has_text}} AND size_bytes > {_WHOLE_BYTES} THEN
    reverse(substring(tree FROM 1 + 4 * ({{levels}} + 1) + 40 * (ancestor + {{chunks_below}})
      FOR 8))::bigint END AS bounds OFFSET 0
) AS chunk
"""
"""A part of a FROM clause, after the subquery `chunks`, that reads the documents of its rows.

`chunks` has the columns `ordinal` and `ancestor`. Where the condition `has_text` is true, the text
of the chunk `ancestor` is read, with the text around it, as `read_ahead` does. An encoded tree
begins with the count of `levels` and the count of chunks at each level. Each chunk takes 40 bytes;
the first 8 bytes are the offsets of its first byte and of the byte after its last one.
`chunks_below` is the result of the function with this name for the level of the chunk.
"""


_CHUNKS_AT_LEVEL = sql.SQL("reverse(substring(tree FROM {} FOR 4))::integer")


def chunks_below(level: int) -> sql.Composed:
    """Returns the SQL expression of the count of chunks below `level` in the encoded tree."""
    offsets = [sql.Literal(1 + 4 * (below + 1)) for below in range(level)]
    counts: list[sql.Composable] = [_CHUNKS_AT_LEVEL.format(offset) for offset in offsets]
    return sql.SQL("({})").format(sql.SQL(" + ").join(counts or [sql.Literal(0)]))


_READ_PARTS = """
SELECT ordinal, start, substring(body FROM start + 1 FOR length)
FROM hrag.documents JOIN unnest(%(ordinals)s, %(starts)s, %(lengths)s)
  AS parts (ordinal, start, length) USING (ordinal)
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""

_Part = tuple[int, int]
"""A part of a text: the offset of its first byte, and the count of its bytes."""


class LongText:
    """The text of a long document; each block of it is read when it is first needed.

    `TreeText` calls `check` before it accesses bytes of the text.
    """

    def __init__(self, size_bytes: int, read: Callable[[_Part], None]) -> None:
        """Creates a text of which nothing is read yet.

        `read` is called with a part of the text: it must read this part and pass it to `add`.
        """
        # The array has the size of the whole text, but blocks that are never read take no memory:
        # the operating system allocates memory only for the pages of the array that are written.
        self._bytes = bytearray(size_bytes)
        self._read = read
        self._present: set[int] = set()

    @property
    def data(self) -> memoryview:
        """The whole text; bytes of blocks that were not read are zero."""
        return memoryview(self._bytes)

    def check(self, start: int, end: int) -> None:
        """Reads the bytes from `start` to `end`, except if all of them were read before.

        One statement reads all blocks from the first to the last block that was not read before.
        """
        missing = self.missing(start, end)
        if missing is not None:
            self._read(missing)

    def missing(self, start: int, end: int) -> _Part | None:
        """Returns the part of the text that must be read to have all bytes from `start` to `end`.

        Returns None if all these bytes were read before.
        """
        last = max(min(end, len(self._bytes)) - 1, start)
        blocks = range(start // _BLOCK_BYTES, last // _BLOCK_BYTES + 1)
        absent = [block for block in blocks if block not in self._present]
        if not absent:
            return None
        first = absent[0] * _BLOCK_BYTES
        return first, (absent[-1] + 1) * _BLOCK_BYTES - first

    def add(self, start: int, part: bytes) -> None:
        """Stores a part of the text that was read.

        `start` is the offset of its first byte, which must be the first byte of a block.
        """
        self._bytes[start : start + len(part)] = part
        self._present.update(range(start // _BLOCK_BYTES, -(-(start + len(part)) // _BLOCK_BYTES)))


class _UnparsedDocument(NamedTuple):
    """The arguments of `PostgresDocuments.add` for a document that was not requested yet."""

    record: bytes
    tree: bytes
    size_bytes: int
    parts: list[tuple[int, bytes]]


class _ParsedDocument(NamedTuple):
    """A decoded document.

    `long` is its text if the text is read in blocks, otherwise None. `encodable` caches the
    document from which passages are encoded, for each set of requested fields.
    """

    text: TreeText
    long: LongText | None
    encodable: dict[PassageFields, PassageDocument]


@dataclass(slots=True, eq=False)
class PostgresDocuments:
    """Reads and caches documents of one collection in one snapshot.

    Implements `hrag.engine.common.fetch.DocumentReader`.
    """

    connection: Connection
    collection: OpenedCollection
    _stored: dict[int, _ParsedDocument] = field(default_factory=dict)
    _rows: dict[int, _UnparsedDocument] = field(default_factory=dict)
    _expected: list[int] = field(default_factory=list)
    _batch_size: int = _MAX_DOCUMENTS

    def expect(self, ordinals: Iterable[int], batch_size: int = _MAX_DOCUMENTS) -> None:
        """Announces the documents that will be needed, in the order in which they will be needed.

        When one of them is needed and was not read yet, one statement reads it together with the
        next documents, up to `batch_size` documents in total.
        """
        self._expected = list(dict.fromkeys(ordinals))
        self._batch_size = max(1, min(batch_size, _MAX_DOCUMENTS))

    def tree_text(self, ordinal: int) -> TreeText:
        """Returns the document's tree and text; all calls for one ordinal return the same object.

        Raises DataLoss if the document is missing.
        """
        return self._document(ordinal).text

    def tree(self, ordinal: int) -> Tree:
        """Returns the document's tree; raises DataLoss if the document is missing."""
        return self._document(ordinal).text.tree

    def passage_document(self, fields: PassageFields, ordinal: int) -> PassageDocument:
        """Returns the document, from which passages can be encoded.

        Implements `hrag.engine.common.fetch.DocumentReader.passage_document`.
        """
        text, _, encodable = self._document(ordinal)
        if fields not in encodable:
            encodable[fields] = PassageDocument(
                cited_document(text.outline, fields), text.tree.to_bytes(), text.text
            )
        return encodable[fields]

    def verify(self, ordinal: int, start: int, end: int) -> None:
        """Reads a part of the document's text, except if it was read before.

        Implements `hrag.engine.common.fetch.DocumentReader.verify`.
        """
        check = self._document(ordinal).text.check
        if check is not None:
            check(start, end)

    def add(
        self,
        ordinal: int,
        record: bytes,
        tree: bytes,
        size_bytes: int,
        start: int,
        part: bytes | None,
    ) -> None:
        """Adds a document that another statement has read, with a part of its text.

        `start` is the offset of the first byte of `part` in the text. `part` is None if no text
        was read.
        """
        if ordinal not in self._stored:
            row = self._rows.setdefault(ordinal, _UnparsedDocument(record, tree, size_bytes, []))
            if part is not None:
                row.parts.append((start, part))

    def read_ahead(self, chunks: Iterable[tuple[int, TreePosition]], max_bytes: int) -> None:
        """Reads the texts of chunks, and the text around them, in one statement.

        Skips a chunk if its document was neither read nor added before. Skips the last chunks if
        the texts of all chunks have more than `max_bytes`, because they do not fit into the reply.
        """
        missing: list[tuple[int, _Part]] = []
        for ordinal, position in chunks:
            if ordinal not in self._stored and ordinal not in self._rows:
                continue
            stored = self._document(ordinal)
            if stored.long is None:
                continue
            record = stored.text.tree.record(*position)
            max_bytes -= record.byte_end - record.byte_start
            if max_bytes < 0:
                break
            start = max(record.byte_start - _AROUND_BYTES, 0)
            part = stored.long.missing(start, record.byte_end + _AROUND_BYTES)
            if part is not None:
                missing.append((ordinal, part))
        if missing:
            self._read_parts(missing)

    def _read_parts(self, parts: Sequence[tuple[int, _Part]]) -> None:
        """Reads parts of texts; `parts` has pairs of a document's ordinal and a part."""
        parameters = {
            **self.collection.key,
            "ordinals": bigints([ordinal for ordinal, _ in parts]),
            "starts": integers([start for _, (start, _) in parts]),
            "lengths": integers([length for _, (_, length) in parts]),
        }
        for ordinal, start, part in self.connection.execute(_READ_PARTS, parameters):
            long = self._stored[ordinal].long
            if long is not None:
                long.add(start, part)

    def _document(self, ordinal: int) -> _ParsedDocument:
        """Returns a document.

        If it was not read yet, reads it together with the next documents that `expect` announced.
        """
        if ordinal not in self._stored:
            if ordinal not in self._rows:
                self._read([ordinal, *self._expected_after(ordinal)])
            self._stored[ordinal] = self._build(ordinal, self._rows.pop(ordinal))
        return self._stored[ordinal]

    def _expected_after(self, ordinal: int) -> list[int]:
        """Returns the ordinals of the documents to read together with the document `ordinal`.

        They are the documents that `expect` announced to be needed next after it, without those
        that were read before.
        """
        if ordinal not in self._expected:
            return []
        index = self._expected.index(ordinal)
        soon = self._expected[index + 1 : index + self._batch_size]
        return [other for other in soon if other not in self._stored and other not in self._rows]

    def _read(self, ordinals: list[int]) -> None:
        parameters = {**self.collection.key, "ordinals": ordinals}
        for row in self.connection.execute(_READ, parameters, binary=True):
            self.add(*row)
        missing = [ordinal for ordinal in ordinals if ordinal not in self._rows]
        if missing:
            raise DataLoss(
                f"collection {self.collection.record.name!r}: the documents with the ordinals "
                f"{missing} are missing, but their leaves are stored; run `hrag check` for details"
            )

    def _build(self, ordinal: int, row: _UnparsedDocument) -> _ParsedDocument:
        outline = DocumentRecord.from_bytes(row.record).outline()
        tree = Tree(row.tree)
        for _, part in row.parts:
            if len(part) == row.size_bytes:
                return _ParsedDocument(TreeText(outline, tree, part), None, {})
        long = LongText(row.size_bytes, lambda part: self._read_parts([(ordinal, part)]))
        for start, part in row.parts:
            long.add(start, part)
        return _ParsedDocument(TreeText(outline, tree, long.data, long.check), long, {})

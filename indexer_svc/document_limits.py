"""The limits of a document's title, source, metadata, id, leaves and vectors.

The limits of the body are in `extract`.
"""

from collections.abc import Mapping
from typing import Any

from hrag.config import MIB
from hrag.engine.common.validation import check_leaf_count
from hrag.values import ids
from hrag.values.documents import Document
from hrag.values.errors import TooLarge
from hrag.values.limits import (
    MAX_METADATA_BYTES,
    MAX_SOURCE_BYTES,
    MAX_TITLE_BYTES,
    check_metadata_values,
)

# The vectors of a document have at most this many bytes, because all its vectors are in memory at
# the same time. This is enough for 32 MiB of plain text (the default of HRAG_MAX_DOCUMENT_BYTES)
# with the default levels and 3,072 dimensions: the vectors of English prose of this size take 0.4
# GiB. The worst text that was measured has rare characters and short sentences; its vectors take
# 1.9 GiB.
MAX_VECTOR_BYTES = 2048 * MIB


def check_limits(document: Document, metadata_json: bytes) -> None:
    """Checks all fields of a document except its body. Raises TooLarge or InvalidArgument.

    `metadata_json` is the metadata in canonical JSON. An empty document id is allowed.
    """
    _check_size("title", document.title.encode(), MAX_TITLE_BYTES)
    check_changeable(document.metadata, metadata_json, document.source)
    if document.document_id:
        ids.check_document_id(document.document_id)


def check_changeable(metadata: Mapping[str, Any], metadata_json: bytes, source: str) -> None:
    """Checks the fields that UpdateMetadata can change: metadata and source. Raises TooLarge."""
    _check_size("source", source.encode(), MAX_SOURCE_BYTES)
    _check_size("metadata", metadata_json, MAX_METADATA_BYTES)
    check_metadata_values(metadata)


def check_leaves(count: int, vector_bytes: int) -> None:
    """Raises TooLarge if a document has too many leaves, or if their vectors have too many bytes.

    `count` is the count of leaves, which the storage engine limits. `vector_bytes` is the size of
    the vectors of all leaves together.
    """
    check_leaf_count(count)
    if vector_bytes > MAX_VECTOR_BYTES:
        raise TooLarge(
            f"document has {count:,} leaves, whose vectors have {vector_bytes:,} bytes in total; "
            f"at most {MAX_VECTOR_BYTES:,} are allowed, so split the document or use larger chunks",
            field="document",
        )


def _check_size(field: str, value: bytes, limit: int) -> None:
    if len(value) > limit:
        problem = f"{field} has {len(value)} bytes; at most {limit} are allowed"
        raise TooLarge(problem, field=field)

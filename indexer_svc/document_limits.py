"""The limits of a document: those that can be checked without its body, and of its leaves."""

from collections.abc import Mapping
from typing import Any

from hrag.config import MIB
from hrag.engine.common.validation import check_leaf_count
from hrag.values import ids
from hrag.values.documents import Document
from hrag.values.errors import TooLarge
from hrag.values.limits import MAX_METADATA_BYTES, MAX_METADATA_VALUES, MAX_TITLE_BYTES

MAX_SOURCE_BYTES = 2048
# All vectors of a document are in memory at once. With the default levels and 3,072 dimensions,
# 32 MiB of plain text, the default of HRAG_MAX_DOCUMENT_BYTES, have 1.9 GiB of them where
# characters are rare and sentences short, the most that was measured; English prose 0.4 GiB.
MAX_VECTOR_BYTES = 2048 * MIB


def check_limits(document: Document, metadata_json: bytes) -> None:
    """Raises TooLarge or InvalidArgument; `metadata_json` is the metadata in canonical JSON.

    An empty id is allowed.
    """
    _check_size("title", document.title.encode(), MAX_TITLE_BYTES)
    check_changeable(document.metadata, metadata_json, document.source)
    if document.document_id:
        ids.check_document_id(document.document_id)


def check_changeable(metadata: Mapping[str, Any], metadata_json: bytes, source: str) -> None:
    """Checks what of a stored document can change. Raises TooLarge."""
    _check_size("source", source.encode(), MAX_SOURCE_BYTES)
    _check_size("metadata", metadata_json, MAX_METADATA_BYTES)
    _check_values(metadata)


def check_leaves(count: int, vector_bytes: int) -> None:
    """Raises TooLarge for more leaves than an engine stores, or for too many bytes of vectors."""
    check_leaf_count(count)
    if vector_bytes > MAX_VECTOR_BYTES:
        raise TooLarge(
            f"document has {count:,} leaves, whose vectors take {vector_bytes:,} bytes; at most "
            f"{MAX_VECTOR_BYTES:,} are allowed, split it or use larger chunks",
            field="document",
        )


def _check_size(field: str, value: bytes, limit: int) -> None:
    if len(value) > limit:
        problem = f"{field} has {len(value)} bytes; at most {limit} are allowed"
        raise TooLarge(problem, field=field)


def _check_values(metadata: Mapping[str, Any]) -> None:
    count = _value_count(metadata)
    if count > MAX_METADATA_VALUES:
        problem = f"metadata has {count:,} values; at most {MAX_METADATA_VALUES:,} are allowed"
        raise TooLarge(problem, field="metadata")


def _value_count(value: Any) -> int:
    """How many values an object or a list holds, at any depth; an object is a value too."""
    if isinstance(value, Mapping):
        return sum(isinstance(each, Mapping) + _value_count(each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return sum(isinstance(each, Mapping) + _value_count(each) for each in value)
    return 1

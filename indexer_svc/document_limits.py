"""The limits of a document that can be checked without its body."""

from collections.abc import Mapping
from typing import Any

from hrag import ids
from hrag.errors import TooLarge
from hrag.types import MAX_METADATA_BYTES, MAX_METADATA_VALUES, MAX_TITLE_BYTES, Document

MAX_SOURCE_BYTES = 2048


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

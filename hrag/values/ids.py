"""Validation of names and ids, and the format of chunk ids.

Names are ASCII, so that different names do not look alike. They contain no character that is a
separator in keys, paths or chunk ids.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from hrag.values.errors import InvalidArgument

MAX_NAME_BYTES = 64
NAME_RULE = (
    f"1 to {MAX_NAME_BYTES} characters out of A-Z a-z 0-9 . _ - and begin with a letter or digit"
)
MAX_DOCUMENT_ID_BYTES = 128

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
DOCUMENT_ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
CHUNK_ID_PATTERN = DOCUMENT_ID_PATTERN + r"#[0-7]\.(0|[1-9][0-9]{0,8})"

_NAME = re.compile(NAME_PATTERN)
_DOCUMENT_ID = re.compile(DOCUMENT_ID_PATTERN)
_CHUNK_ID = re.compile(CHUNK_ID_PATTERN)
# An error message shows at most this many characters of a value, which is enough to recognise the
# value. So a message about an id of 10 KB stays short.
_MAX_QUOTED_CHARS = 80


@dataclass(frozen=True, slots=True)
class ChunkId:
    """The parts of a chunk id: `<document_id>#<level>.<index>`."""

    document_id: str
    level: int
    index: int

    def __str__(self) -> str:
        """Returns the chunk id as one text: `<document_id>#<level>.<index>`."""
        return f"{self.document_id}#{self.level}.{self.index}"


def quoted(value: str) -> str:
    """Returns `value` for an error message: in quotes, escaped to ASCII, and truncated."""
    if len(value) <= _MAX_QUOTED_CHARS:
        return ascii(value)
    return f"{value[:_MAX_QUOTED_CHARS]!a}… ({len(value)} characters)"


def is_name(value: str) -> bool:
    """Returns True if `value` is a valid name of a tenant or a collection."""
    return len(value) <= MAX_NAME_BYTES and _matches_name(value)


@lru_cache(maxsize=1024)
def _matches_name(value: str) -> bool:
    """Returns True if a short text is a valid name. Calls use the same names again and again."""
    return _NAME.fullmatch(value) is not None


def check_tenant_id(value: str) -> str:
    """Returns `value` if it is a valid tenant id. Raises InvalidArgument otherwise."""
    return _check_name(value, "tenant_id")


def check_collection_name(value: str, field: str = "collection") -> str:
    """Returns `value` if it is a valid name of a collection or an alias.

    Otherwise raises InvalidArgument, which names the request field `field`.
    """
    return _check_name(value, field)


def _check_name(value: str, field: str) -> str:
    if not is_name(value):
        raise InvalidArgument(f"{field} is {quoted(value)}; it must be {NAME_RULE}", field=field)
    return value


def is_document_id(value: str) -> bool:
    """Returns True if `value` is a valid document id."""
    return _DOCUMENT_ID.fullmatch(value) is not None


def check_document_id(value: str) -> str:
    """Returns `value` if it is a valid document id. Raises InvalidArgument otherwise."""
    if not is_document_id(value):
        raise InvalidArgument(
            f"document_id is {quoted(value)}; it must be 1 to {MAX_DOCUMENT_ID_BYTES} "
            "characters out of A-Z a-z 0-9 . _ : - and begin with a letter or digit",
            field="document_id",
        )
    return value


def parse_chunk_id(value: str) -> ChunkId:
    """Returns the parts of a chunk id. Raises InvalidArgument if the id is malformed."""
    if _CHUNK_ID.fullmatch(value) is None:
        raise InvalidArgument(
            f"chunk_id is {quoted(value)}; "
            "it must be <document_id>#<level>.<index>, as in guide#2.0",
            field="chunk_id",
        )
    document_id, _, place = value.rpartition("#")
    level, _, index = place.partition(".")
    return ChunkId(document_id, int(level), int(index))

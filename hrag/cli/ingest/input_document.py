"""A document to ingest: its label in messages, and a function that reads it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hrag.values.documents import Document
from hrag.values.errors import InvalidArgument


class Unreadable(Exception):
    """A file cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document that was read; `encoding` is its file's encoding if that was not UTF-8."""

    document: Document
    encoding: str = ""


def sendable(document: Document) -> Document:
    """Returns the document unchanged. Raises Unreadable if the client would refuse to send it."""
    # This module loads gRPC, which is slow to import.
    from hrag.wire.common import document_message  # noqa: PLC0415

    try:
        document_message(document)
    except InvalidArgument as error:
        raise Unreadable(error.message) from None
    return document


@dataclass(frozen=True, slots=True)
class InputDocument:
    """A document to ingest: its label in messages, and a function that reads it.

    `read` raises Unreadable. `size_bytes` is 0 if it is not known.
    """

    label: str
    read: Callable[[], ReadDocument]
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GivenFields:
    """Fields of documents that the user gave; they replace what the files say."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    document_id: str = ""
    encoding: str = ""

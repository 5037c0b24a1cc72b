"""A document to ingest: the label that it is shown by, and how it is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hrag.values.documents import Document
from hrag.values.errors import InvalidArgument


class Unreadable(Exception):
    """A file cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document as it was read; `encoding` is that of its file if it was not UTF-8."""

    document: Document
    encoding: str = ""


def sendable(document: Document) -> Document:
    """Returns the document. Raises Unreadable if the client would refuse it."""
    from hrag.wire.common import document_message  # noqa: PLC0415  # gRPC is slow to import.

    try:
        document_message(document)
    except InvalidArgument as error:
        raise Unreadable(error.message) from None
    return document


@dataclass(frozen=True, slots=True)
class InputDocument:
    """A document to ingest: the label shown for it, and a function that reads it.

    `read` raises Unreadable. `size_bytes` is 0 if it is not known.
    """

    label: str
    read: Callable[[], ReadDocument]
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GivenFields:
    """What the user says of documents, in place of what their files say."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    document_id: str = ""
    encoding: str = ""

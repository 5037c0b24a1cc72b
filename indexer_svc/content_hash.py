"""The hash of a document's fields, by which a document that is sent again is recognised.

Also makes the id of a document that was sent without an id: it is a hash of the document's body.
"""

import hashlib

from hrag.values import canonical_json
from hrag.values.collections import CollectionSettings
from hrag.values.documents import Document
from indexer_svc.mime_types import resolve_mime_type

# This version is part of every content hash. The hash decides whether a document that is sent again
# is UNCHANGED. When a new release parses or cuts documents differently, the version is raised. Then
# documents that were stored by an older release are processed again when they are sent again.
_PIPELINE_VERSION = b"4"


def hash_document(document: Document, metadata_json: bytes | None = None) -> str:
    """Returns a BLAKE2b hash, in hex, of all fields of a document except its id.

    If the stored document with the same id has the same hash, storing the document has the outcome
    UNCHANGED. Two names of the same MIME type give the same hash. A body of UTF-8 bytes has the
    same hash as a body that is the same text. Raises InvalidArgument for an unknown MIME type.
    """
    if metadata_json is None:
        metadata_json = canonical_json.encode(document.metadata)
    digest = hashlib.blake2b(_PIPELINE_VERSION, digest_size=32)
    for part in (document.title, document.source, resolve_mime_type(document)):
        _feed(digest, part.encode())
    _feed(digest, metadata_json)
    _feed_body(digest, document)
    # Options that are not set are left out, so that they do not change the hashes of documents that
    # were stored before the options existed.
    if document.encoding:
        _feed(digest, f"encoding {document.encoding}".encode())
    if document.keep_boilerplate:
        _feed(digest, b"keep_boilerplate")
    return digest.hexdigest()


def original_of(document: Document, settings: CollectionSettings) -> bytes | None:
    """Returns the file to store with a document; None if there is none, or if it is not kept."""
    body = document.body
    return body if settings.keep_originals and isinstance(body, bytes) else None


def stored_hash(content_hash: str, document: Document, settings: CollectionSettings) -> str:
    """Returns the hash with which a document is stored in a collection with these settings.

    A file and its text have the same hash. The hash of a document whose file is stored with it is
    marked, so that a file that is sent after its text is not UNCHANGED.
    """
    is_kept = original_of(document, settings) is not None
    return f"{content_hash}+original" if is_kept else content_hash


def with_unread_pages(content_hash: str) -> str:
    """Returns the hash of a document that is stored with pages that recognition would read."""
    return f"{content_hash}+unread"


def derived_id(document: Document) -> str:
    """Returns the id of a document that was sent without an id: a hash of its body."""
    digest = hashlib.blake2b(digest_size=16)
    _feed_body(digest, document)
    return f"b2-{digest.hexdigest()}"


def _feed_body(digest: "hashlib.blake2b", document: Document) -> None:
    body = document.body
    if isinstance(body, str):
        _feed(digest, _utf8(body))
    elif isinstance(body, bytes):
        _feed(digest, body)
    else:
        for page in body:
            _feed(digest, _utf8(page.text))
            _feed(digest, str(page.number).encode())


def _feed(digest: "hashlib.blake2b", part: bytes) -> None:
    """Adds a value and its length to a hash.

    Because of the lengths, the values "ab" and "c" have another hash than the values "a" and "bc".
    """
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


def _utf8(text: str) -> bytes:
    # With "surrogatepass", a text with a lone surrogate raises no error here. `extract` refuses
    # such a text later, with an error for the client.
    return text.encode("utf-8", "surrogatepass")

"""Builds the calls that read a document's original, or show a page of it.

The original is the file from which the document was read.

A large file is read by several calls. Its SHA-256 tells whether all of them read the same file.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from hrag.client.calls import ClientCall
from hrag.v1 import indexer_pb2, retriever_pb2
from hrag.values.chunks import Span
from hrag.values.documents import OriginalPart
from hrag.values.errors import DataLoss, DocumentChanged, InvalidArgument
from hrag.values.page_images import PageImage
from hrag.wire import common, indexer, retriever

# Reading a file begins again at most this many times, because the document was replaced meanwhile.
_MAX_RESTARTS = 10
_START = "start"


class ReadOriginal(NamedTuple):
    """The parts of an original that were read so far: one after another, from the file's start.

    `restarts` is how often the file was read again from its start, because the document was
    replaced. The parts are joined when all of them are read, so that each byte is copied once.
    """

    parts: tuple[OriginalPart, ...] = ()
    restarts: int = 0

    @property
    def is_whole(self) -> bool:
        """True if the whole file was read."""
        return bool(self.parts) and self.end == self.parts[-1].original.size_bytes

    @property
    def end(self) -> int:
        """The offset after the last byte that was read."""
        return self.parts[-1].end if self.parts else 0

    def longer(self, part: OriginalPart) -> "ReadOriginal":
        """Returns a ReadOriginal with the parts of this one, followed by `part`.

        If `part` belongs to another file, because the document was replaced, returns an empty
        ReadOriginal, so that the file is read again from its start.
        """
        if self.parts and part.original.sha256 != self.parts[-1].original.sha256:
            return self._restarted()
        return ReadOriginal((*self.parts, part), self.restarts)

    def after(self, error: InvalidArgument) -> "ReadOriginal":
        """Returns an empty ReadOriginal if `error` means that the file is shorter now.

        Raises `error` again if it has another cause.
        """
        if not self.end or error.field != _START:
            raise error
        return self._restarted()

    def checked(self) -> OriginalPart:
        """Returns the whole file. Raises DataLoss if it does not match its SHA-256."""
        last = self.parts[-1]
        content = b"".join(part.content for part in self.parts)
        if sha256(content).hexdigest() != last.original.sha256:
            raise DataLoss(
                f"the original of document {last.document_id!r} does not match its SHA-256"
            )
        return replace(last, start=0, content=content)

    def _restarted(self) -> "ReadOriginal":
        return ReadOriginal(restarts=self.restarts + 1)


def get_original(
    tenant_id: str, document_id: str, collection: str, before: ReadOriginal
) -> ClientCall[ReadOriginal]:
    """Builds a call GetOriginal that reads the file after what `before` has read.

    Raises DocumentChanged if the document was replaced too often while its file was read.
    """
    if before.restarts > _MAX_RESTARTS:
        raise DocumentChanged(
            f"document {document_id!r} was replaced {before.restarts} times while its original was "
            f"read; at most {_MAX_RESTARTS} times are allowed"
        )
    call = get_original_part(tenant_id, document_id, collection, before.end, 0)
    return ClientCall(
        call.service, call.method, call.request, lambda response: before.longer(call.read(response))
    )


def get_original_part(
    tenant_id: str, document_id: str, collection: str, start: int, end: int
) -> ClientCall[OriginalPart]:
    """Builds the call GetOriginal, whose result is a part of the file."""
    request = common.built(
        retriever_pb2.GetOriginalRequest,
        tenant_id=tenant_id,
        collection=collection,
        document_id=document_id,
        start=start,
        end=end,
    )
    read = partial(retriever.original_part_from, document_id)
    return ClientCall("retriever", "GetOriginal", request, read)


def get_page_image(
    tenant_id: str,
    document_id: str,
    collection: str,
    page: int,
    dpi: int,
    spans: Sequence[Span],
) -> ClientCall[PageImage]:
    """Builds the call GetPageImage, whose result is an image with the boxes of the spans."""
    request = common.built(
        indexer_pb2.GetPageImageRequest,
        tenant_id=tenant_id,
        collection=collection,
        document_id=document_id,
        page=page,
        dpi=dpi,
        spans=[common.span_message(span) for span in spans],
    )
    return ClientCall("indexer", "GetPageImage", request, indexer.page_image_from)

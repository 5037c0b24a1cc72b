"""A client reads the file of a document in parts. If it is replaced, the client reads it again."""

from collections.abc import Iterator
from hashlib import sha256
from itertools import chain, cycle, repeat
from typing import Any

import pytest

from hrag import errors
from hrag.client.originals import ReadOriginal
from hrag.v1 import retriever_pb2 as rpb
from hrag.values.documents import Original, OriginalPart
from tests.support.servers.fake_services import Fake, run_async, run_sync

BOTH_CLIENTS = pytest.mark.parametrize("run", [run_sync, run_async], ids=["sync", "async"])
LONG, OTHER, SHORT = b"a long file", b"another one", b"short"
PART_BYTES = 4


class _ReplacedFile(Fake):
    """Returns four bytes of the next version of a document's file at each call."""

    def __init__(self, files: Iterator[bytes]) -> None:
        super().__init__()
        self._files = files

    def GetOriginal(self, request: Any, context: Any) -> rpb.GetOriginalResponse:
        file = next(self._files)
        if request.start > len(file):
            raise errors.InvalidArgument("the range must be within the file", field="start")
        return rpb.GetOriginalResponse(
            content=file[request.start : request.start + PART_BYTES],
            start=request.start,
            size_bytes=len(file),
            sha256=self.sha256_of(file),
            mime_type="application/pdf",
            source="folder/report.pdf",
        )

    def sha256_of(self, file: bytes) -> str:
        return sha256(file).hexdigest()


class _DamagedFile(_ReplacedFile):
    def sha256_of(self, file: bytes) -> str:
        return "0" * 64


def _original(client: Any) -> Any:
    return client.get_original("t", "d")


@BOTH_CLIENTS
@pytest.mark.parametrize(
    ("before", "after"),
    [([], LONG), ([LONG] * 2, SHORT), ([SHORT], LONG), ([LONG], SHORT[:3]), ([LONG], OTHER)],
)
def test_a_replaced_file_is_read_again(run: Any, before: list[bytes], after: bytes) -> None:
    part = run(_ReplacedFile(chain(before, repeat(after))), _original)
    assert (part.content, part.start, part.end) == (after, 0, len(after))
    assert (part.document_id, part.source, part.mime_type) == (
        *("d", "folder/report.pdf"),
        "application/pdf",
    )
    assert part.original.sha256 == sha256(after).hexdigest()


class _UnextendableBytes(bytes):
    """Bytes that fail if they are copied to be extended."""

    def __add__(self, other: object) -> bytes:
        raise AssertionError("the parts must be joined once")


def test_the_parts_of_a_file_are_joined_once() -> None:
    content = bytes(range(256)) * 3
    original = Original(len(content), sha256(content).hexdigest())
    read = ReadOriginal()
    for start in range(0, len(content), 100):
        assert (read.end, read.is_whole) == (start, False)
        part = _UnextendableBytes(content[start : start + 100])
        read = read.longer(OriginalPart("d", "s", "text/plain", original, start, part))
    assert read.is_whole
    assert read.checked() == OriginalPart("d", "s", "text/plain", original, 0, content)


@BOTH_CLIENTS
def test_reading_a_file_that_changes_all_the_time_fails(run: Any) -> None:
    with pytest.raises(errors.DocumentChanged, match="replaced 11 times while its original"):
        run(_ReplacedFile(cycle([LONG, OTHER])), _original)


@BOTH_CLIENTS
def test_a_file_that_does_not_match_its_sha256_is_not_returned(run: Any) -> None:
    with pytest.raises(errors.DataLoss, match="'d' does not match its SHA-256"):
        run(_DamagedFile(repeat(LONG)), _original)


@BOTH_CLIENTS
def test_a_part_is_returned_as_it_was_sent(run: Any) -> None:
    part = run(_ReplacedFile(repeat(LONG)), lambda client: client.get_original_part("t", "d", 2))
    assert (part.content, part.start, part.original.size_bytes) == (LONG[2:6], 2, len(LONG))


@BOTH_CLIENTS
@pytest.mark.parametrize(
    "failure",
    [errors.OriginalNotFound("none", field="document_id"), errors.DocumentNotFound("none")],
)
def test_the_error_of_a_missing_file_is_raised(run: Any, failure: errors.HragError) -> None:
    with pytest.raises(type(failure)):
        run(Fake(failure), _original)

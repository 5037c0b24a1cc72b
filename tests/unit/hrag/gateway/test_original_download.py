"""`GET /original` downloads a file, and gives a browser no chance to run anything in it."""

from collections.abc import Iterator
from http.client import IncompleteRead
from typing import Any

import pytest

from hrag import errors
from hrag.v1 import retriever_pb2 as rpb
from tests.support.servers.fake_services import Fake, addresses_of
from tests.support.servers.gateways import Gateway, gateway_to

PAGE = b"<script>alert(1)</script>" * 9
PART_BYTES = 50


class _Files(Fake):
    """Returns 50 bytes of a file at each call; the source of the document `d` is `source`."""

    source = "folder/page.html"
    replaced_at = -1

    def GetOriginal(self, request: Any, context: Any) -> rpb.GetOriginalResponse:
        if request.document_id != "d":
            raise errors.OriginalNotFound("it is not stored", field="document_id")
        assert (request.tenant_id, request.collection) == ("t", "c")
        end = min(request.end or len(PAGE), request.start + PART_BYTES)
        return rpb.GetOriginalResponse(
            content=PAGE[request.start : end],
            start=request.start,
            size_bytes=len(PAGE),
            sha256="b" * 64 if request.start == self.replaced_at else "a" * 64,
            mime_type="text/html",
            source=self.source,
        )


@pytest.fixture(scope="module")
def files() -> _Files:
    return _Files()


@pytest.fixture(scope="module")
def gateway(files: _Files) -> Iterator[Gateway]:
    with addresses_of(files) as addresses, gateway_to(*addresses) as serving:
        yield serving


def _get(
    gateway: Gateway, query: str = "tenant_id=t&collection=c&document_id=d", **headers: str
) -> Any:
    return gateway.send("GET", f"/original?{query}", headers=headers)


def test_a_file_is_downloaded_whole_and_never_shown(gateway: Gateway) -> None:
    reply = _get(gateway)
    assert (reply.status, reply.body) == (200, PAGE)
    wanted = {
        "content-type": "application/octet-stream",
        "content-disposition": "attachment; filename*=UTF-8''page.html",
        "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "content-length": str(len(PAGE)),
        "etag": f'"{"a" * 64}"',
        "accept-ranges": "bytes",
    }
    assert wanted.items() <= reply.headers.items()


SIZE = len(PAGE)


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("Bytes=40-120", 40, 121),
        ("bytes=100-", 100, SIZE),
        ("bytes=100-99999", 100, SIZE),
        ("bytes=-7", SIZE - 7, SIZE),
        ("bytes=-99999", 0, SIZE),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE),
    ],
)
def test_a_range_of_a_file_is_downloaded(
    gateway: Gateway, wanted: str, start: int, end: int
) -> None:
    for headers in ({}, {"if-range": f'"{"a" * 64}"'}):
        reply = _get(gateway, range=wanted, **headers)
        assert (reply.status, reply.body) == (206, PAGE[start:end])
        assert reply.headers["content-range"] == f"bytes {start}-{end - 1}/{SIZE}"
        assert reply.headers["content-length"] == str(end - start)
        assert reply.headers["etag"] == f'"{"a" * 64}"'


@pytest.mark.parametrize(
    "wanted",
    [
        *("bytes=", "bytes=-", "bytes=9-2", "bytes=0-1,5-6", "lines=0-1", "bytes=a-b"),
        *("bytes=1-2x", f"bytes={'9' * 30}-", "bytes=--1", "0-1"),
    ],
)
def test_a_range_that_is_not_one_range_of_bytes_is_ignored(gateway: Gateway, wanted: str) -> None:
    reply = _get(gateway, range=wanted)
    assert (reply.status, reply.body) == (200, PAGE)
    assert "content-range" not in reply.headers


def test_a_range_of_an_earlier_file_is_ignored(gateway: Gateway) -> None:
    reply = _get(gateway, range="bytes=10-19", **{"if-range": '"other"'})
    assert (reply.status, reply.body) == (200, PAGE)


@pytest.mark.parametrize("wanted", [f"bytes={SIZE}-", f"bytes={SIZE + 9}-{SIZE + 20}", "bytes=-0"])
def test_a_range_after_the_end_of_the_file_is_refused(gateway: Gateway, wanted: str) -> None:
    reply = _get(gateway, range=wanted)
    assert (reply.status, reply.field) == (416, "range")
    assert reply.headers["content-range"] == f"bytes */{SIZE}"
    assert str(SIZE) in reply.json["message"]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("", "d"),
        ("https://example.org/a/b.pdf?x=/y", "b.pdf"),
        ("C:\\users\\ann\\c.docx", "c.docx"),
        (
            'a/x"; filename=evil.exe\r\nset-cookie: a=b',
            "x%22%3B%20filename%3Devil.exeset-cookie%3A%20a%3Db",
        ),
        ("文/指南.pdf", "%E6%8C%87%E5%8D%97.pdf"),
        ("folder/", "d"),
        ("x\u202efdp.exe", "xfdp.exe"),
    ],
)
def test_the_name_of_the_download_is_one_header_and_no_path(
    gateway: Gateway, files: _Files, source: str, name: str
) -> None:
    files.source = source
    try:
        reply = _get(gateway)
    finally:
        files.source = _Files.source
    assert reply.headers["content-disposition"] == f"attachment; filename*=UTF-8''{name}"
    assert "set-cookie" not in reply.headers


def test_a_file_that_is_replaced_meanwhile_is_not_taken_as_complete(
    gateway: Gateway, files: _Files
) -> None:
    files.replaced_at = 2 * PART_BYTES
    try:
        with pytest.raises((IncompleteRead, ConnectionError)):
            _get(gateway)
    finally:
        files.replaced_at = -1
    assert _get(gateway).body == PAGE


def test_a_file_that_is_not_stored_is_an_error_in_json(gateway: Gateway) -> None:
    reply = _get(gateway, "tenant_id=t&collection=c&document_id=other")
    assert (reply.status, reply.reason) == (404, "ORIGINAL_NOT_FOUND")
    assert "content-disposition" not in reply.headers


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("tenant_id=t&document_id=d&start=3", "start"),
        ("tenant_id=t&document_id=d&document_id=e", "document_id"),
        ("tenant_id=t&document_id=d&document_id=d", "document_id"),
    ],
)
def test_unknown_and_repeated_parameters_are_refused(
    gateway: Gateway, query: str, field: str
) -> None:
    reply = _get(gateway, query)
    assert (reply.status, reply.field) == (400, field)


def test_only_get_is_allowed(gateway: Gateway) -> None:
    assert gateway.post("/original", {}).status == 405

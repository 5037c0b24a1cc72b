"""Every storage engine keeps these promises about originals, the files that documents come from."""

from dataclasses import replace
from hashlib import sha256
from random import Random

import pytest

from hrag.errors import DocumentNotFound, InvalidArgument, OriginalNotFound
from hrag.types import IngestOutcome
from hrag.values.documents import ByteRange
from hrag.values.reply_limit import ReplyLimit
from hrag.values.tree import PageSpan, ParsedText
from tests.support.documents.fakes import collection_settings, prepared, sentences

KEEPING = replace(collection_settings(), keep_originals=True)
# The embedded engine cuts a file into pieces of this size.
PIECE = 262_120
SIZES = (1, 4096, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 5)


def file_of(size_bytes: int) -> bytes:
    return Random(size_bytes).randbytes(size_bytes)


def document(name: str, content: bytes | None, text: str = "", **fields):
    prepared_document = prepared(name, text or sentences(4))
    content_hash = f"{prepared_document.content_hash}{content and sha256(content).hexdigest()}"
    return replace(prepared_document, original=content, content_hash=content_hash, **fields)


def read(case, name: str, start: int = 0, end: int = 0, **options):
    with case.snapshot() as snapshot:
        return snapshot.original(name, ByteRange(start, end), **options)


def used(case):
    return case.writer.status(case.collection).tenant


@pytest.fixture
def keeping(catalog):
    """An engine with an empty collection that keeps originals."""
    catalog.model.settings = KEEPING
    catalog.create()
    return catalog


def test_an_original_is_returned_whole_and_in_every_part(keeping):
    files = {f"d{size}": file_of(size) for size in SIZES}
    documents = [document(name, content) for name, content in files.items()]
    keeping.writer.put_many([(keeping.collection, one) for one in documents])
    for name, content in files.items():
        size = len(content)
        part = read(keeping, name)
        assert part.content == content, name
        assert (part.original.size_bytes, part.original.sha256) == (
            size,
            sha256(content).hexdigest(),
        )
        assert (part.document_id, part.mime_type) == (name, "text/plain")
        assert part.source == f"https://example.org/{name}"
        assert keeping.writer.document(keeping.collection, name).original_bytes == size
        edges = {edge for edge in (0, 1, PIECE - 1, PIECE, PIECE + 1, size - 1, size) if edge >= 0}
        for start in sorted(edge for edge in edges if edge <= size):
            for end in sorted(edge for edge in edges if edge > start):
                assert read(keeping, name, start, end).content == content[start:end]
        assert read(keeping, name, size).content == b""


def test_a_part_ends_at_the_limit_of_the_reply(keeping):
    content = file_of(50_000)
    keeping.writer.put(keeping.collection, document("d", content))
    part = read(keeping, "d", 100, reply=ReplyLimit(10_000))
    assert part.content == content[100 : part.end]
    assert 9_500 < len(part.content) < 10_000


def test_a_range_outside_the_file_is_refused_with_its_size(keeping):
    keeping.writer.put(keeping.collection, document("d", b"0123456789"))
    for start, end in ((11, 0), (5, 4), (11, 12)):
        with pytest.raises(InvalidArgument, match="which has 10 bytes") as refused:
            read(keeping, "d", start, end)
        assert refused.value.field == "start"
    assert read(keeping, "d", 8, 99).content == b"89"


def test_a_document_without_an_original_is_told_from_a_missing_document(keeping):
    keeping.writer.put(keeping.collection, document("text", None))
    with pytest.raises(OriginalNotFound, match="keep_originals"):
        read(keeping, "text")
    with pytest.raises(DocumentNotFound):
        read(keeping, "missing")


def test_an_original_leaves_with_its_document_and_frees_the_quota(keeping):
    empty = used(keeping)
    keeping.writer.put(keeping.collection, document("d", None))
    without = used(keeping).stored_bytes
    sizes = {}
    for size in (600_000, 300_000, 700_000):
        result = keeping.writer.put(keeping.collection, document("d", file_of(size)))
        assert result.outcome is IngestOutcome.UPDATED
        assert read(keeping, "d").content == file_of(size)
        sizes[size] = used(keeping).stored_bytes - without
        assert size <= sizes[size] < 1.05 * size + 8192
    keeping.writer.put(keeping.collection, document("d", None))
    assert used(keeping).stored_bytes == without
    keeping.writer.put(keeping.collection, document("d", file_of(9)))
    keeping.writer.delete(keeping.collection, "d")
    assert used(keeping) == empty
    with pytest.raises(DocumentNotFound):
        read(keeping, "d")


def test_new_metadata_and_new_summaries_keep_the_original(keeping):
    keeping.writer.put(keeping.collection, document("d", file_of(9_000)))
    before = used(keeping).stored_bytes
    info = keeping.writer.document(keeping.collection, "d")
    keeping.writer.put_metadata(
        keeping.collection, "d", info.sequence, info.metadata, info.source + "x"
    )
    part = read(keeping, "d")
    assert (part.content, part.source) == (file_of(9_000), info.source + "x")
    assert abs(used(keeping).stored_bytes - before) < 300


def test_a_collection_that_keeps_no_originals_refuses_one(catalog):
    catalog.create()
    with pytest.raises(InvalidArgument, match="without keep_originals"):
        catalog.writer.put(catalog.collection, document("d", b"file"))
    assert used(catalog).documents == 0


def test_a_collection_that_keeps_originals_says_so(keeping):
    assert keeping.writer.collection("t", "c").settings == KEEPING


def test_a_document_is_read_with_its_original_and_its_pages(keeping):
    text = ParsedText("One. Two.", (), (PageSpan(1, 0, 4), PageSpan(2, 4, 9)))
    stored = replace(prepared("d", text), original=file_of(9_000))
    keeping.writer.put(keeping.collection, stored)
    info, parsed, content = keeping.writer.document_with_original(keeping.collection, "d")
    assert (info.document_id, parsed, content) == ("d", text, file_of(9_000))
    keeping.writer.put(keeping.collection, document("text", None))
    with pytest.raises(OriginalNotFound):
        keeping.writer.document_with_original(keeping.collection, "text")
    with pytest.raises(DocumentNotFound):
        keeping.writer.document_with_original(keeping.collection, "missing")


def test_an_export_has_the_originals_and_another_store_takes_them(keeping):
    files = {"a": file_of(PIECE + 9), "b": None, "c": file_of(10)}
    for name, content in files.items():
        keeping.writer.put(keeping.collection, document(name, content))
    exported = list(keeping.readers().export("t", "c"))
    assert {item.document_id: item.document.original for item in exported} == files
    other = keeping.another_store()
    other.writer.create_collection("t", "c", KEEPING)
    for item in exported:
        other.writer.put_stored(other.collection, item)
    assert next(iter(other.readers().export("t", "c"))).document.original == files["a"]
    assert read(other, "c").content == files["c"]


def test_a_copy_that_is_embedded_again_has_the_originals(keeping):
    keeping.writer.put(keeping.collection, document("d", file_of(5_000)))
    before = used(keeping)
    settings = replace(KEEPING, embedder="other")
    source, copy = keeping.writer.begin_copy("t", "c", "c-copy", settings)
    documents = keeping.writer.uncopied(source, "", 10, 1 << 20)
    assert keeping.writer.put_copies(source, documents) == 1
    assert keeping.writer.finish_copy(source) is not None
    assert keeping.collection.collection_id == copy.collection_id
    assert read(keeping, "d").content == file_of(5_000)
    assert used(keeping).stored_bytes == before.stored_bytes


def test_an_original_survives_a_restart_and_a_reindex(keeping):
    keeping.fill(document("d", file_of(70_000)), document("e", None, sentences(50)))
    if keeping.reindex is not None:
        keeping.reindex()
    keeping.restart()
    assert read(keeping, "d").content == file_of(70_000)

"""A reader returns the same documents as the writer, from its snapshot, on every engine."""

import pytest

from hrag.errors import DocumentNotFound, InvalidArgument, ReplyTooLarge
from hrag.filters import AnyOf, Exists, Match, NoneOf
from hrag.types import ByteRange
from hrag.values.reply_limit import ReplyLimit
from tests.support.documents.fakes import prepared, sentences

CHINESE = "".join(f"这是第{number}句话。" for number in range(90)) + "😀"
DOCUMENTS = (prepared("zh", CHINESE, seed=1), prepared("en", sentences(9), seed=2))


def test_a_reader_returns_what_the_writer_returns(catalog):
    catalog.create()
    catalog.fill(*DOCUMENTS)
    parts = (None, ByteRange(), ByteRange(0, 5), ByteRange(7, 70), ByteRange(300))
    with catalog.snapshot() as snapshot:
        for name in ("zh", "en"):
            info = catalog.writer.document(catalog.collection, name)
            assert snapshot.document(name) == info
            for part in parts:
                expected = catalog.writer.document_with_text(catalog.collection, name, part)
                assert snapshot.document_with_text(name, part) == expected
        short = ReplyLimit(1_000)
        text, end = snapshot.document_with_text("zh", ByteRange(), short)[1:]
        assert CHINESE.startswith(text)
        assert 0 < end == len(text.encode()) < 1_000
        with pytest.raises(ReplyTooLarge):
            snapshot.document_with_text("zh", None, short)
        with pytest.raises(InvalidArgument, match="text_range"):
            snapshot.document_with_text("en", ByteRange(1 << 20))


def test_a_filter_hides_documents(catalog):
    catalog.create()
    catalog.fill(*DOCUMENTS)
    filters = {
        Match("metadata.seed", (1.0,)): ["zh"],
        NoneOf((Match("metadata.seed", (1.0,)),)): ["en"],
        AnyOf((Match("document_id", ("zh",)), Match("title", ("Title of en",)))): ["zh", "en"],
        Exists("metadata.nothing"): [],
    }
    with catalog.snapshot() as snapshot:
        for filter, expected in filters.items():
            for name in ("zh", "en"):
                if name in expected:
                    assert snapshot.document(name, filter).document_id == name
                    continue
                with pytest.raises(DocumentNotFound):
                    snapshot.document(name, filter)


def test_a_document_that_does_not_exist_is_not_found_by_a_reader(catalog):
    catalog.create()
    catalog.fill(*DOCUMENTS)
    catalog.delete("en")
    with catalog.snapshot() as snapshot:
        for name in ("en", "nobody", "x\x00y"):
            for read in (snapshot.document, snapshot.document_with_text):
                with pytest.raises(DocumentNotFound):
                    read(name)

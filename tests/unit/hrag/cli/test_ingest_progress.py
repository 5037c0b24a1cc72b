"""What an ingest counts, whatever the services answer."""

from collections.abc import Iterator

from hrag.cli.files import Source, Unreadable
from hrag.cli.ingest_progress import ingest_all
from hrag.errors import BlankDocument, ServiceUnavailable
from hrag.types import Document, IngestOutcome, IngestResult


class FakeClient:
    """Stores all but blank documents; breaks after `breaks_after` answers."""

    def __init__(self, breaks_after: int | None = None) -> None:
        self.breaks_after = breaks_after

    def ingest_many(self, tenant_id, documents, *, collection) -> Iterator[object]:
        for number, document in enumerate(documents):
            if number == self.breaks_after:
                raise ServiceUnavailable("gone")
            if not document.body:
                yield BlankDocument("body is blank")
            else:
                yield IngestResult(document.document_id, IngestOutcome.CREATED, 1, (3, 1), 10)


def _source(name: str, body: str = "text") -> Source:
    return Source(name, lambda: Document(body=body, document_id=name))


def _unreadable(name: str) -> Source:
    def read() -> Document:
        raise Unreadable("locked")

    return Source(name, read)


def test_each_failure_is_told_with_its_own_file():
    sources = [_source("a"), _unreadable("b"), _source("c", ""), _source("d")]
    tally = ingest_all(FakeClient(), "t", "default", sources, lambda _: None)
    assert sorted(tally.failures) == [("b", "locked"), ("c", "body is blank")]
    assert tally.document_ids == ["a", "d"]
    assert (tally.tokens, tally.chunks_per_level, tally.answered) == (20, (6, 2), 4)
    assert tally.broken is None


def test_broken_stream_keeps_what_was_answered():
    sources = [_source(name) for name in "abcd"]
    tally = ingest_all(FakeClient(breaks_after=2), "t", "default", sources, lambda _: None)
    assert tally.document_ids == ["a", "b"]
    assert str(tally.broken) == "gone"


def test_progress_is_told_after_every_answer():
    seen = []
    sources = [_source("a"), _source("b", ""), _source("c")]
    ingest_all(FakeClient(), "t", "default", sources, lambda tally: seen.append(tally.answered))
    assert seen == [1, 2, 3]


def test_files_are_read_only_when_they_are_sent():
    read = []

    def lazily(name: str) -> Source:
        return Source(name, lambda: read.append(name) or Document(body="x", document_id=name))

    counts = []
    sources = [lazily(name) for name in "abc"]
    ingest_all(FakeClient(), "t", "default", sources, lambda _: counts.append(len(read)))
    assert counts == [1, 2, 3]


def test_time_stands_still_after_the_end():
    tally = ingest_all(FakeClient(), "t", "default", [_source("a")], lambda _: None)
    assert tally.seconds == tally.seconds
    assert tally.rate(10) == 10 / tally.seconds

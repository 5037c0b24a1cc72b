"""The counts of an ingest for every kind of answer."""

from collections.abc import Iterator

from hrag.cli.files import InputDocument, Unreadable
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


def _document(name: str, body: str = "text") -> InputDocument:
    return InputDocument(name, lambda: Document(body=body, document_id=name))


def _unreadable(name: str) -> InputDocument:
    def read() -> Document:
        raise Unreadable("locked")

    return InputDocument(name, read)


def test_each_failure_is_reported_with_its_file():
    documents = [_document("a"), _unreadable("b"), _document("c", ""), _document("d")]
    progress = ingest_all(FakeClient(), "t", "default", documents, lambda _: None)
    assert sorted(progress.failures) == [("b", "locked"), ("c", "body is blank")]
    assert progress.document_ids == ["a", "d"]
    assert (progress.tokens, progress.chunks_per_level, progress.completed) == (20, (6, 2), 4)
    assert progress.error is None


def test_broken_stream_keeps_the_answers_so_far():
    documents = [_document(name) for name in "abcd"]
    progress = ingest_all(FakeClient(breaks_after=2), "t", "default", documents, lambda _: None)
    assert progress.document_ids == ["a", "b"]
    assert str(progress.error) == "gone"


def test_progress_is_shown_after_every_answer():
    seen = []
    documents = [_document("a"), _document("b", ""), _document("c")]
    ingest_all(
        FakeClient(), "t", "default", documents, lambda progress: seen.append(progress.completed)
    )
    assert seen == [1, 2, 3]


def test_files_are_read_only_when_they_are_sent():
    read = []

    def lazily(name: str) -> InputDocument:
        return InputDocument(
            name, lambda: read.append(name) or Document(body="x", document_id=name)
        )

    counts = []
    documents = [lazily(name) for name in "abc"]
    ingest_all(FakeClient(), "t", "default", documents, lambda _: counts.append(len(read)))
    assert counts == [1, 2, 3]


def test_clock_stops_at_the_end():
    progress = ingest_all(FakeClient(), "t", "default", [_document("a")], lambda _: None)
    assert progress.seconds == progress.seconds
    assert progress.rate(10) == 10 / progress.seconds

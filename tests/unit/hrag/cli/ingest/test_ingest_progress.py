"""The counts of an ingest for every kind of answer."""

from collections.abc import Iterator

from hrag.cli.ingest import ingest_progress
from hrag.cli.ingest.ingest_progress import IngestProgress, ingest_all
from hrag.cli.ingest.input_document import InputDocument, ReadDocument, Unreadable
from hrag.errors import BlankDocument, CollectionNotFound, ServiceUnavailable, TooLarge
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
    return InputDocument(name, lambda: ReadDocument(Document(body, name), "cp1252"), 100)


def _unreadable(name: str) -> InputDocument:
    def read() -> ReadDocument:
        raise Unreadable("locked")

    return InputDocument(name, read, 10)


def _ingested(client, documents, on_outcome=lambda _: None) -> IngestProgress:
    progress = IngestProgress(len(documents), 310, on_outcome)
    ingest_all(client, "t", "default", documents, progress)
    return progress


def test_each_failure_is_reported_with_its_file():
    documents = [_document("a"), _unreadable("b"), _document("c", ""), _document("d")]
    progress = _ingested(FakeClient(), documents)
    assert sorted(progress.failures) == [("b", "locked"), ("c", "body is blank")]
    assert progress.document_ids == ["a", "d"]
    assert (progress.tokens, progress.chunks_per_level, progress.completed) == (20, (6, 2), 4)
    assert progress.error is None
    assert progress.completed_bytes == 310
    assert progress.encodings == [("a", "cp1252"), ("d", "cp1252")]
    assert progress.next_label == ""


def test_every_outcome_is_told_with_its_label_and_encoding():
    told = []
    _ingested(FakeClient(), [_document("a"), _unreadable("b"), _document("c", "")], told.append)
    found = [(each.label, type(each.result).__name__, each.encoding) for each in told]
    assert sorted(found) == [
        ("a", "IngestResult", "cp1252"),
        ("b", "Unreadable", ""),
        ("c", "BlankDocument", "cp1252"),
    ]


def test_broken_stream_keeps_the_answers_so_far():
    documents = [_document(name) for name in "abcd"]
    progress = _ingested(FakeClient(breaks_after=2), documents)
    assert progress.document_ids == ["a", "b"]
    assert str(progress.error) == "gone"


def test_a_collection_that_does_not_exist_ends_the_stream():
    class Missing(FakeClient):
        def ingest_many(self, tenant_id, documents, *, collection) -> Iterator[object]:
            for _ in documents:
                yield CollectionNotFound("no such one")

    progress = _ingested(Missing(), [_document("a"), _document("b")])
    assert (progress.completed, str(progress.error)) == (0, "no such one")


def test_a_document_past_what_grpc_lets_in_fails_alone(monkeypatch):
    class Refusing(FakeClient):
        def ingest_many(self, tenant_id, documents, *, collection) -> Iterator[object]:
            for document in documents:
                if len(document.body) > 4:
                    raise TooLarge("SERVER: Received message larger than max")
                yield IngestResult(document.document_id, IngestOutcome.CREATED, 1, (1,), 1)

    monkeypatch.setattr(ingest_progress, "_ALONE_BYTES", 100)
    large = [
        InputDocument(name, _document(name, "large").read, size_bytes=101) for name in ("b", "c")
    ]
    progress = _ingested(Refusing(), [_document("a"), *large, _document("d")])
    assert (progress.document_ids, progress.error) == (["a", "d"], None)
    assert [label for label, _ in progress.failures] == ["b", "c"]
    progress = _ingested(Refusing(), [_document("a"), _document("b", "large"), _document("d")])
    assert isinstance(progress.error, TooLarge)


def test_an_outcome_is_counted_before_it_is_told():
    seen = []
    documents = [_document("a"), _document("b", ""), _unreadable("c")]
    progress = IngestProgress(on_outcome=lambda _: seen.append(progress.completed))
    ingest_all(FakeClient(), "t", "default", documents, progress)
    assert seen == [1, 2, 3]


def test_files_are_read_only_when_they_are_sent():
    read = []

    def lazily(name: str) -> InputDocument:
        return InputDocument(name, lambda: read.append(name) or ReadDocument(Document("x", name)))

    counts = []
    documents = [lazily(name) for name in "abc"]
    _ingested(FakeClient(), documents, lambda _: counts.append(len(read)))
    assert counts == [1, 2, 3]


def test_clock_stops_at_the_end():
    progress = _ingested(FakeClient(), [_document("a")])
    assert progress.seconds == progress.seconds
    assert progress.rate(10) == 10 / progress.seconds

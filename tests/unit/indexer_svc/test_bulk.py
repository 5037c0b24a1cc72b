"""The documents of one stream share commits and calls of the embedder. Each has its own answer."""

import itertools
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hrag import errors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, IngestOutcome
from indexer_svc import bulk, ingest_pipeline
from indexer_svc.bulk import IngestRequest
from tests.conftest import Engine
from tests.support.documents.fakes import search_leaves, sentences
from tests.support.engines.streams import (
    CREATED,
    SOON_S,
    UNCHANGED,
    UPDATED,
    Service,
    created,
    endless,
    followed_by,
    ingest_request,
    numbered,
    service_of,
    shown,
)
from tests.support.until import until

LEAF = "word " * 31  # This text fits into one leaf.


@pytest.fixture
def service(engine: Engine) -> Iterator[Service]:
    with service_of(engine) as service:
        yield service


# The following tests cover the answers to documents.


def test_each_document_has_an_answer_in_order(service: Service) -> None:
    service.run([Document("Known.", "b")])
    answers = service.run(
        [
            Document("First.", "a"),
            Document("Known.", "b"),
            Document("  ", "c"),
            Document("Bad id.", "d/e"),
            Document("Without id.", ""),
            Document("Last.", "f"),
        ]
    )
    assert answers == [
        ("a", CREATED),
        ("b", UNCHANGED),
        ("c", errors.BlankDocument),
        ("d/e", errors.InvalidArgument),
        ("", CREATED),
        ("f", CREATED),
    ]


def test_a_document_that_cannot_be_read_does_not_disturb_others(service: Service) -> None:
    def unreadable() -> Document:
        raise errors.InvalidArgument("body is missing", field="body")

    stream = [
        ingest_request(Document("One.", "a")),
        IngestRequest("t", "default", "b", unreadable),
        ingest_request(Document("Other.", "c")),
    ]
    outcomes = [
        shown(answer.outcome)
        for answer in itertools.chain.from_iterable(service.load(stream).run())
    ]
    assert outcomes == [CREATED, errors.InvalidArgument, CREATED]


def test_an_empty_stream_ends(service: Service) -> None:
    assert service.run([]) == []


def test_several_collections_share_a_stream(service: Service) -> None:
    document = Document("Text.", "d")
    stream = [
        IngestRequest("one", "default", "d", lambda: document),
        IngestRequest("two", "default", "d", lambda: document),
        IngestRequest("one", "missing", "d", lambda: document),
        IngestRequest("one", "default", "d", lambda: document),
    ]
    outcomes = [
        shown(answer.outcome)
        for answer in itertools.chain.from_iterable(service.load(stream).run())
    ]
    assert outcomes == [CREATED, CREATED, errors.CollectionNotFound, UNCHANGED]


@pytest.mark.parametrize(
    ("texts", "outcomes"),
    [
        (["One.", "Two."], [CREATED, UPDATED]),
        (["One.", "One."], [CREATED, UNCHANGED]),
        (["One.", "Two.", "One."], [CREATED, UPDATED, UPDATED]),
        (["Stored.", "Two.", "Stored."], [UNCHANGED, UPDATED, UPDATED]),
    ],
)
def test_of_documents_with_the_same_id_the_last_one_is_stored(
    service: Service, texts: list[str], outcomes: list[IngestOutcome]
) -> None:
    """No document is committed before all of them are cut.

    So the stored version does not show whether a document is unchanged.
    """
    if texts[0] == "Stored.":
        service.run([Document(texts[0], "d")])
    service.writer.gate.clear()
    documents = followed_by([Document(text, "d") for text in texts], service.writer.gate.set)
    assert [outcome for _, outcome in service.run(documents)] == outcomes
    assert service.text("d") == texts[-1]


def test_an_id_in_a_collection_and_in_its_alias_is_the_same_document(service: Service) -> None:
    service.run([Document("Stored.", "d")])
    service.writer.set_alias("t", "alias", "default")
    service.writer.gate.clear()
    texts = [("default", "Two."), ("alias", "Stored.")]
    requests = [IngestRequest("t", name, "d", partial(Document, text, "d")) for name, text in texts]
    answers = service.load(followed_by(requests, service.writer.gate.set)).run()
    assert [shown(answer.outcome) for answer in itertools.chain(*answers)] == [UPDATED, UPDATED]
    assert service.text("d") == "Stored."


def test_a_version_that_is_committed_during_the_admission_of_the_next_one_is_noticed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.run([Document("Stored.", "d")])
    service.writer.gate.clear()
    admit = service.writer.admit
    stored = service.text("d")

    def admit_slowly(*key: Any) -> Any:
        """Reads the store before the first document is committed.

        Returns after the first document was answered.
        """
        admission = admit(*key)
        if admission.unchanged is not None:
            service.writer.gate.set()
            until(lambda: service.text("d") != stored and answered)
        return admission

    monkeypatch.setattr(service.writer, "admit", admit_slowly)
    answered: list[Any] = []
    for answer in service.answers([Document("Two.", "d"), Document("Stored.", "d")]):
        answered.append(answer)
    assert answered == [("d", UPDATED), ("d", UPDATED)]
    assert service.text("d") == stored


def test_a_document_is_unchanged_if_it_is_sent_again_after_its_commit(service: Service) -> None:
    first, second = Document("One.", "d"), Document("One.", "d")
    answered = threading.Event()

    def documents() -> Iterator[Document]:
        yield first
        assert answered.wait(SOON_S)
        yield second

    answers = service.answers(documents())
    assert next(answers) == ("d", CREATED)
    answered.set()
    assert list(answers) == [("d", UNCHANGED)]
    assert len(service.embedder.calls) == 1


def test_an_unchanged_document_is_neither_extracted_nor_embedded_nor_committed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = numbered(100)
    service.run(documents)
    commits = len(service.writer.commit_groups)
    service.embedder.calls.clear()
    monkeypatch.setattr(ingest_pipeline, "extract", None)
    assert service.run(documents) == [(document.document_id, UNCHANGED) for document in documents]
    assert service.embedder.calls == []
    assert len(service.writer.commit_groups) == commits


# The following tests cover groups of documents.


def test_a_caller_that_waits_for_each_answer_is_served(service: Service) -> None:
    answered = threading.Semaphore(1)

    def documents() -> Iterator[Document]:
        for document in numbered(20):
            assert answered.acquire(timeout=SOON_S)
            yield document

    answers = service.answers(documents())
    for number in range(20):
        assert next(answers) == (f"d{number}", CREATED)
        answered.release()
    assert service.writer.commit_groups == [[f"d{number}"] for number in range(20)]


def test_documents_queue_up_while_a_commit_is_synced(service: Service) -> None:
    documents = numbered(40)
    service.writer.gate.clear()
    assert service.run(followed_by(documents, service.writer.gate.set)) == created(documents)
    assert len(service.writer.commit_groups) <= 4
    assert list(itertools.chain(*service.writer.commit_groups)) == [
        document.document_id for document in documents
    ]


def test_leaves_of_several_documents_are_embedded_together(service: Service) -> None:
    documents = numbered(20)
    service.embedder.gate.clear()
    assert service.run(followed_by(documents, service.embedder.gate.set)) == created(documents)
    assert len(service.embedder.calls) <= 2
    texts = list(itertools.chain(*service.embedder.calls))
    assert texts == [document.body for document in documents]


def test_each_leaf_is_stored_with_the_vector_of_its_text(service: Service, engine: Engine) -> None:
    documents = [Document(sentences(4 * number + 1, number), f"d{number}") for number in range(6)]
    service.embedder.gate.clear()
    service.run(followed_by(documents, service.embedder.gate.set))
    texts = list(itertools.chain(*service.embedder.calls))
    with engine.reader.snapshot("t", "default") as snapshot:
        results = [search_leaves(snapshot, vector, 1) for vector in HashEmbedder(16).embed(texts)]
    assert all(score == pytest.approx(1) for scores in results for score in scores.values())
    leaves = [leaf for scores in results for leaf in scores]
    assert leaves == sorted(set(leaves))
    assert len(leaves) > len(documents)


def _queue_up(service: Service, documents: list[Document], count: int) -> Iterator[Document]:
    """Yields the documents, and makes `count` of them queue up for the embedder.

    The embedder gets the first document alone, and answers once `count` more have been sent.
    """
    service.embedder.gate.clear()
    yield documents[0]
    until(lambda: service.embedder.calls != [])
    yield from documents[1 : count + 1]
    service.embedder.gate.set()
    yield from documents[count + 1 :]


def _largest(groups: list[list[str]]) -> int:
    return max(map(len, groups))


def test_a_group_has_a_bounded_number_of_documents(service: Service) -> None:
    documents = numbered(4 * bulk.GROUP_DOCUMENTS)
    answers = service.run(_queue_up(service, documents, bulk.GROUP_DOCUMENTS))
    assert answers == created(documents)
    assert _largest(service.embedder.calls) == bulk.GROUP_DOCUMENTS
    assert _largest(service.writer.commit_groups) == bulk.GROUP_DOCUMENTS


def test_a_group_has_a_bounded_number_of_leaves(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "GROUP_LEAVES", 10)
    documents = [Document(f"{number} " + LEAF * 3, f"d{number}") for number in range(20)]
    documents.append(Document(LEAF * 30, "long"))
    assert service.run(_queue_up(service, documents, 2)) == created(documents)
    *groups, long = map(len, service.embedder.calls)
    # A group has two or three documents, and each of them has three or four leaves.
    assert max(groups) in (6, 7, 8, 9, 10)
    assert long > 30


def test_a_group_has_a_bounded_number_of_bytes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "GROUP_BYTES", 5000)
    documents = [Document(f"{number} " + "x" * 1000, f"d{number}") for number in range(20)]
    assert service.run(_queue_up(service, documents, 2)) == created(documents)
    assert _largest(service.writer.commit_groups) in (2, 3, 4)


def test_few_documents_are_read_from_a_caller_who_reads_no_answers(service: Service) -> None:
    """While the first stream is blocked, the documents of a second stream are all stored."""
    read: list[Document] = []

    def reading() -> Iterator[Document]:
        for document in endless():
            read.append(document)
            yield document

    answers = service.answers(reading())
    assert next(answers) == ("d0", CREATED)
    until(lambda: len(read) > bulk.GROUP_DOCUMENTS)
    second = [Document(f"Text {n}.", f"e{n}") for n in range(5 * bulk.GROUP_DOCUMENTS)]
    assert service.run(second) == created(second)
    assert len(read) <= 4 * bulk.GROUP_DOCUMENTS + 1
    assert next(answers)[1] is CREATED

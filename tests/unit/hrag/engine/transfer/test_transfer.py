"""A transfer copies missing documents, replaces others only on request, and reports problems."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hrag.config import EngineSettings
from hrag.engine import open_engine
from hrag.engine.engine_documents import DocumentSummaries, StoredDocument, Summary
from hrag.engine.transfer import copier
from hrag.engine.transfer import transfer as module
from hrag.engine.transfer.transfer import transfer, verify
from hrag.engine.transfer.transfer_report import TransferProgress, TransferReport
from hrag.errors import CollectionExists, StorageFull, TooLarge
from hrag.types import SummaryUnit
from tests.support.documents.fakes import collection_settings, prepared, sentences, unit_vectors
from tests.support.documents.random_stores import contents
from tests.support.engines.damage import flip_first
from tests.support.engines.memory_engine import MemoryEngine

SETTINGS = collection_settings(summaries=SummaryUnit.SECTION)
IDS = ("a", "b", "c")


def document(name: str, version: int = 0):
    return prepared(name, sentences(9, version), SETTINGS, version)


def summarised(name: str) -> StoredDocument:
    """Returns a document with one summary of its whole text."""
    prepared_document = document(name)
    whole = (Summary(f"About {name}.", range(len(prepared_document.vectors))),)
    return StoredDocument(prepared_document, DocumentSummaries(whole, unit_vectors(1, 3)))


def filled(engine: MemoryEngine, *names: str) -> MemoryEngine:
    """Creates the collection `c` of the tenant `t` with documents; returns the engine."""
    engine.create_collection("t", "c", SETTINGS)
    for name in names:
        engine.put(engine.open("t", "c"), document(name))
    return engine


@pytest.fixture
def source() -> MemoryEngine:
    """A store with the documents of IDS."""
    return filled(MemoryEngine().writer(), *IDS)


@pytest.fixture
def target() -> MemoryEngine:
    """An empty store."""
    return MemoryEngine().writer()


def transferred(source: Any, target: MemoryEngine, **options: Any) -> TransferReport:
    """Runs a transfer and returns its report."""
    progress = TransferProgress()
    return transfer(source.reader(), target.writer(), target.reader(), progress, **options)


def problems(report: TransferReport) -> list[tuple[str, str]]:
    """Returns the document id and the problem of each difference."""
    assert report.difference_count == len(report.differences)
    assert {difference.tenant_id for difference in report.differences} <= {"t"}
    return [(difference.document_id, difference.problem) for difference in report.differences]


def put(engine: MemoryEngine, stored: StoredDocument) -> None:
    engine.put_stored(engine.open("t", "c"), stored)


def test_a_document_that_differs_is_replaced_only_on_request(source, target):
    transferred(source, target)
    put(target, StoredDocument(document("b", 1)))
    report = transferred(source, target)
    assert problems(report) == [
        ("b", "differs: content_hash, metadata, text, vectors"),
    ]
    assert (report.copied, report.replaced, report.present) == (0, 0, 2)
    report = transferred(source, target, replace=True)
    assert problems(report) == []
    assert (report.copied, report.replaced, report.present) == (0, 1, 2)
    assert contents(target.reader()) == contents(source.reader())


def test_summaries_that_were_added_later_are_copied_with_their_document(source, target):
    """The content hash is the same, so a plain `put` would return UNCHANGED and write nothing."""
    transferred(source, target)
    source.put_summaries(source.next_unsummarised("fake"), summarised("a").summaries)
    assert problems(transferred(source, target)) == [("a", "differs: summaries")]
    report = transferred(source, target, replace=True)
    assert (report.replaced, problems(report)) == (1, [])
    assert contents(target.reader()) == contents(source.reader())


def test_a_document_that_only_the_target_has_is_reported_and_stays(source, target):
    filled(target, "0", "z")
    report = transferred(source, target, replace=True)
    alone = "exists only in the target"
    assert problems(report) == [("0", alone), ("z", alone)]
    assert (report.documents, report.copied) == (3, 3)
    assert {document.document_id for document in target.reader().export("t", "c")} == {
        *IDS,
        "0",
        "z",
    }


def test_collections_that_only_the_target_has_are_ignored(source, target):
    filled(target)
    target.create_collection("other", "c", SETTINGS)
    target.create_collection("t", "mine", SETTINGS)
    assert problems(transferred(source, target)) == []


def test_a_conflict_stops_the_transfer_before_anything_is_written(source, target):
    source.create_collection("a", "first", SETTINGS)
    target.create_collection("t", "c", collection_settings())
    before = contents(target.reader())
    with pytest.raises(CollectionExists, match="t/c summaries is section in the source, but none"):
        transferred(source, target)
    assert contents(target.reader()) == before


def after_copying(
    monkeypatch: pytest.MonkeyPatch, target: MemoryEngine, act: Callable[[], object]
) -> None:
    """Makes a transfer call `act` after it has copied the documents, before it compares them."""
    put_many = target.put_many

    def put_then_act(documents: Any) -> Any:
        results = put_many(documents)
        act()
        return results

    monkeypatch.setattr(target, "put_many", put_then_act)


def test_a_source_that_changes_during_the_transfer_is_reported(source, target, monkeypatch):
    after_copying(monkeypatch, target, lambda: put(source, StoredDocument(document("b", 1))))
    (_, (tenant_wide, problem)) = problems(transferred(source, target))
    assert tenant_wide == ""
    assert problem.startswith("the source has changed meanwhile")


def test_a_tenant_that_vanishes_during_the_transfer_is_reported(source, target, monkeypatch):
    after_copying(monkeypatch, target, lambda: source.delete_collection("t", "c"))
    ((_, problem),) = problems(transferred(source, target))
    assert problem.startswith("the source has changed meanwhile")


def test_a_refused_document_is_reported_with_the_reason_and_the_rest_is_copied(
    source, target, monkeypatch
):
    put_stored = target.put_stored

    def put_or_refuse(collection: Any, stored: StoredDocument) -> Any:
        if stored.document_id in ("b", "s"):
            raise TooLarge("it has too many chunks")
        return put_stored(collection, stored)

    monkeypatch.setattr(target, "put_stored", put_or_refuse)
    put(source, summarised("s"))
    put(source, summarised("s2"))
    report = transferred(source, target)
    reason = "is missing in the target: it has too many chunks"
    assert problems(report) == [("b", reason), ("s", reason)]
    assert (report.copied, report.documents) == (3, 5)


def test_an_error_that_every_document_would_cause_ends_the_transfer(source, target, monkeypatch):
    def fail(*_: object) -> None:
        raise StorageFull("the disk is full")

    monkeypatch.setattr(target, "put_stored", fail)
    put(source, summarised("s"))
    with pytest.raises(StorageFull):
        transferred(source, target)


def test_documents_without_summaries_share_commits_of_a_bounded_size(source, target, monkeypatch):
    sizes: list[int] = []
    put_many = target.put_many

    def put_and_count(documents: Any) -> Any:
        sizes.append(len(documents))
        return put_many(documents)

    monkeypatch.setattr(target, "put_many", put_and_count)
    monkeypatch.setattr(copier, "GROUP_DOCUMENTS", 2)
    transferred(source, target)
    monkeypatch.setattr(copier, "GROUP_BYTES", 1)
    target.delete_collection("t", "c")
    transferred(source, target)
    assert sizes == [2, 1, 1, 1, 1]


def test_only_the_first_differences_are_listed_and_all_are_counted(source, target, monkeypatch):
    monkeypatch.setattr(module, "MAX_DIFFERENCES", 2)
    filled(target)
    report = verify(source.reader(), target.reader(), TransferProgress())
    assert (report.difference_count, len(report.differences)) == (3, 2)


def test_a_verification_writes_nothing(source, target):
    report = verify(source.reader(), target.reader(), TransferProgress())
    assert problems(report) == [("", "is missing in the target")]
    assert list(target.reader().collections()) == []


# Tests of transfers from or to damaged stores.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an embedded store with the documents of IDS."""
    with closing(embedded(tmp_path / "store")) as engine:
        filled(engine.writer(), *IDS)
    return tmp_path / "store"


def embedded(folder: Path) -> Any:
    return open_engine(EngineSettings().model_copy(update={"data_dir": folder}))


@pytest.fixture
def damaged(folder: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The engine of the store `folder`, after one bit of one of its databases was flipped."""
    flip_first(folder, request.param)
    with closing(embedded(folder)) as engine:
        yield engine


DATABASES = ("texts", "trees", "vectors", "documents", "ordinals", "document_ids")


@pytest.mark.parametrize("damaged", DATABASES, indirect=True)
def test_a_damaged_document_is_reported_by_name_and_the_rest_is_copied(damaged, target):
    report = transferred(damaged, target)
    ((name, problem),) = problems(report)
    assert name == "a"
    assert problem.startswith("cannot be read from the source: ")
    assert "is damaged" in problem or "missing" in problem
    assert (report.copied, report.documents) == (2, 3)
    assert {stored.document_id for stored in target.reader().export("t", "c")} == {"b", "c"}


def test_a_damaged_document_of_the_target_is_written_again_by_replacing(source, folder):
    flip_first(folder, "texts")
    with closing(embedded(folder)) as engine:
        parts = source.reader(), engine.writer(), engine.reader()
        ((name, problem),) = problems(transfer(*parts, TransferProgress()))
        assert name == "a"
        assert problem.startswith("cannot be read from the target: ")
        report = transfer(*parts, TransferProgress(), replace=True)
        assert (report.replaced, report.present, problems(report)) == (1, 2, [])
        assert engine.administration().check().problems == ()


def test_a_collection_that_cannot_be_read_to_its_end_is_reported(source, target, monkeypatch):
    """The documents that are read before the damage are copied."""
    from hrag.errors import DataLoss

    def export(reader: Any, tenant_id: str, collection: str) -> Iterator[StoredDocument]:
        """Raises DataLoss after the first document of the source."""
        if reader.engine is source:
            yield StoredDocument(document("a"))
            raise DataLoss("a page is damaged")
        yield from ()

    monkeypatch.setattr("tests.support.engines.memory_engine.MemoryReader.export", export)
    report = transferred(source, target)
    assert ("", "cannot be read: a page is damaged") in problems(report)
    assert list(target.named("t", "c").versions) == ["a"]


def test_a_document_with_equal_content_but_another_title_is_reported(source, target):
    transferred(source, target)
    stored = StoredDocument(replace(document("c"), title="Another"))
    target.delete(target.open("t", "c"), "c")
    put(target, stored)
    assert problems(transferred(source, target)) == [("c", "differs: title")]
    assert problems(transferred(source, target, replace=True)) == []

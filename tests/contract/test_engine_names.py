"""Every storage engine keeps these promises about the names of documents.

The words of a document's name that its title lacks are indexed with each leaf, if the collection
has version 2 of an analyzer or a later version.
"""

from dataclasses import replace
from typing import Any

import pytest

from hrag.engine import PreparedDocument
from hrag.engine.engine_documents import DocumentSummaries, Summary
from hrag.text.analysis import upgraded
from hrag.types import CollectionSettings, Retrieval, SearchMode, SummaryScope, SummaryUnit
from tests.contract.conftest import Case
from tests.support.documents.fakes import (
    collection_settings,
    find,
    matched_leaves,
    prepared,
    query_vector,
    sentences,
    unit_vectors,
)
from tests.support.documents.vocabulary import WORDS, wordy
from tests.support.engines.summary_model import ModelSummaries, summarise

EVERYTHING = 1000
NEW = collection_settings()
OLD = collection_settings(analyzer="english/1")
SUMMARISED = replace(NEW, summaries=SummaryUnit.CHUNK)


def named(
    document_id: str, source: str, title: str = "Minutes", settings: CollectionSettings = NEW
) -> PreparedDocument:
    """Returns a document of one leaf, whose text has no word of its name."""
    document = prepared(document_id, "Nobody was late.", settings)
    return replace(document, source=source, title=title, content_hash=f"{source} {title}")


def filled(case: Case, *documents: PreparedDocument, settings: CollectionSettings = NEW) -> Case:
    case.model.settings = settings
    case.create()
    case.fill(*documents)
    return case


def scores(case: Case, text: str, name: str = "c", **options: Any) -> dict[str, float]:
    """Returns the score of each document of one leaf that a lexical search finds."""
    options = {"mode": SearchMode.STANDARD, "retrieval": Retrieval.LEXICAL} | options
    with case.snapshot(name=name) as snapshot:
        found = find(snapshot, None, EVERYTHING, text=text, **options)
    leaves = matched_leaves(found.passages)
    return {document_id: score for (document_id, _), score in leaves.items()}


def test_a_document_is_found_by_the_words_of_its_file_and_folders(opened):
    case = filled(
        opened,
        named("contracts:acme:lease_2023.pdf", "/srv/work/contracts/acme/lease_2023.pdf"),
        named("7f3a", "https://example.org/manuals/Heat%20pumps.html?page=2"),
        named("folder:sparrows.md", ""),
        named("zebra", ""),
    )
    lease, pumps = {"contracts:acme:lease_2023.pdf"}, {"7f3a"}
    for text in ("acme", "leases", "2023", "contract", "lease_2023"):
        assert scores(case, text).keys() == lease
    assert scores(case, "heat pump").keys() == pumps
    assert scores(case, "folder sparrow").keys() == {"folder:sparrows.md"}
    # Neither extensions nor folders that the document id does not repeat are words of the name.
    # An id without a source is a name only if it ends with an extension.
    for text in ("pdf", "html", "srv", "work", "manuals", "example", "page", "7f3a", "zebra"):
        assert not scores(case, text)


def test_a_word_that_the_title_has_counts_once(opened):
    case = filled(opened, named("a", "", "Annual reports"), named("b", "", "Other"))
    case.writer.create_collection("t", "c2", NEW)
    for document in (named("a", "annual_report.pdf", "Annual reports"), named("b", "", "Other")):
        case.writer.put(case.writer.open("t", "c2"), document)
    assert scores(case, "annual report") == scores(case, "annual report", "c2")


def test_only_words_that_the_title_lacks_are_added(opened):
    first, second = (named(n, s, "Reports") for n, s in (("a", "report_acme"), ("b", "acme")))
    case = filled(opened, first, second)
    by_name = scores(case, "acme")
    assert by_name["a"] == by_name["b"]
    assert scores(case, "report").keys() == {"a", "b"}


def test_a_name_counts_as_much_as_a_title(opened):
    case = filled(opened, named("a", "giraffes.txt", ""), named("b", "", "Giraffes"))
    by_both = scores(case, "giraffe")
    assert by_both["a"] == by_both["b"] > 0


def test_required_parts_may_be_in_the_name(opened):
    case = filled(opened, named("a", "acme annual-report.pdf", "Annual"), named("b", "b.pdf"))
    for required in (("acme",), ("acme annual-report",), ("report", "nobody was"), ("Acme",)):
        assert scores(case, "report", required=required).keys() == {"a"}
    for required in (("annual acme",), ("report nobody",), ("acm",), ("pdf",)):
        assert not scores(case, "report", required=required)


def test_names_are_not_in_a_collection_that_indexes_no_headings(opened):
    settings = replace(NEW, index_headings=False)
    case = filled(opened, named("a", "acme.pdf"), settings=settings)
    assert not scores(case, "acme")
    assert not scores(case, "nobody", required=("acme",))


def test_a_change_of_the_source_changes_the_name_when_the_document_is_ingested_again(opened):
    case = filled(opened, named("a", "acme.pdf"), named("b", "b.pdf"))
    for source in ("giraffes.pdf", "zebras.pdf"):
        info = case.writer.document(case.collection, "a")
        case.writer.put_metadata(case.collection, "a", info.sequence, {}, source)
        assert case.writer.document(case.collection, "a").source == source
        assert scores(case, "acme").keys() == {"a"}
        assert scores(case, "nobody", required=("acme",)).keys() == {"a"}
        assert not scores(case, source.removesuffix("s.pdf"))
    if case.reindex is not None:
        case.reindex()
        assert scores(case, "acme").keys() == {"a"}
    (stored,) = [s for s in case.readers().export("t", "c") if s.document_id == "a"]
    assert (stored.document.source, stored.document.indexed_source) == ("zebras.pdf", "acme.pdf")
    case.writer.put(case.collection, named("a", "zebras.pdf"))
    assert scores(case, "zebra").keys() == {"a"}
    assert not scores(case, "acme")


def test_a_source_that_is_changed_back_leaves_no_trace(opened):
    case = filled(opened, named("a", "acme.pdf"))
    for source in ("giraffes.pdf", "acme.pdf"):
        info = case.writer.document(case.collection, "a")
        case.writer.put_metadata(case.collection, "a", info.sequence, {}, source)
    (stored,) = case.readers().export("t", "c")
    assert stored.document.indexed_source is None


def test_summaries_are_found_by_the_name_of_their_document(opened):
    """The source is changed before one summary is written, and after the other one."""
    opened.model.settings = SUMMARISED
    opened.create()
    documents = [
        replace(prepared(name, sentences(9, n), SUMMARISED, n), source=f"{name}.pdf", title="")
        for n, name in enumerate(("acme", "zebra", "other"))
    ]
    opened.fill(*documents)

    def rename(name: str) -> None:
        sequence = opened.writer.document(opened.collection, name).sequence
        opened.writer.put_metadata(opened.collection, name, sequence, {}, "giraffe.pdf")

    rename("acme")
    summarise(opened.writer, ModelSummaries(opened.model))
    rename("zebra")
    if opened.state in ("sealed", "indexed"):
        opened.index("t", "c")
    for name in ("acme", "zebra"):
        with opened.snapshot(summaries=True) as snapshot:
            options = {"mode": SearchMode.SUMMARY_FIRST, "retrieval": Retrieval.LEXICAL}
            options |= {"top_sections": 1, "summary_scope": SummaryScope.DOCUMENTS}
            result = find(snapshot, None, EVERYTHING, text=name, **options)
        assert {section.document_id for section in result.sections} == {name}


# Tests of collections that were created with version 1.


def test_a_collection_of_the_old_version_does_not_index_names(opened):
    case = filled(opened, named("a", "acme.pdf"), named("b", "b.pdf"), settings=OLD)
    assert case.collection.settings.analyzer == "english/1"
    assert not scores(case, "acme")
    assert not scores(case, "nobody", required=("acme",))
    assert scores(case, "minute").keys() == {"a", "b"}


def grown(case: Case, name: str, settings: CollectionSettings) -> None:
    """Creates a collection, and puts, changes, replaces and deletes documents in it."""
    case.writer.create_collection("t", name, settings)
    handle = case.writer.open("t", name)
    for n in range(8):
        if n == 4 and case.state == "mixed":
            case.index("t", name)
        case.writer.put(handle, wordy(f"d{n}", n, settings, 4 + n))
    if case.state in ("sealed", "indexed"):
        case.index("t", name)
    sequence = case.writer.document(handle, "d2").sequence
    case.writer.put_metadata(handle, "d2", sequence, {}, "elsewhere")
    case.writer.put(handle, wordy("d3", 30, settings))
    case.writer.delete(handle, "d5")


def all_scores(case: Case, name: str) -> list[dict[Any, float]]:
    """Returns the scores of all leaves for some queries, lexical and hybrid ones."""
    found = []
    with case.snapshot(name=name) as snapshot:
        for retrieval in (Retrieval.LEXICAL, Retrieval.HYBRID):
            vector = None if retrieval is Retrieval.LEXICAL else query_vector(1)
            options = {"mode": SearchMode.STANDARD, "retrieval": retrieval}
            for first, second in zip(WORDS[::8], WORDS[7::8], strict=False):
                result = find(snapshot, vector, EVERYTHING, text=f"{first} {second}", **options)
                found.append(matched_leaves(result.passages))
            options["required"] = (WORDS[3],)
            result = find(snapshot, vector, EVERYTHING, text="pump", **options)
            found.append(matched_leaves(result.passages))
    return found


def test_a_reindexed_collection_equals_one_that_was_created_with_the_new_version(opened):
    if opened.reindex is None:
        pytest.skip("the engine cannot be reindexed")
    for name, settings in (("old", OLD), ("new", NEW)):
        grown(opened, name, settings)
    before = all_scores(opened, "old")
    assert before != all_scores(opened, "new")
    stale = opened.writer.open("t", "old")
    opened.reindex()
    handle = opened.writer.open("t", "old")
    assert handle.settings == replace(stale.settings, analyzer=upgraded("english/1"))
    assert all_scores(opened, "old") == all_scores(opened, "new")
    # A document may have been prepared for the old version before the collection was reindexed.
    for name, opened_before in (("old", stale), ("new", opened.writer.open("t", "new"))):
        opened.writer.put(opened_before, wordy("d6", 60, NEW))
        opened.writer.delete(opened_before, "d1")
        if opened.state != "mixed":
            opened.index("t", name)
    assert all_scores(opened, "old") == all_scores(opened, "new")
    opened.reindex()
    assert all_scores(opened, "old") == all_scores(opened, "new")


def test_a_reindexed_collection_is_found_by_other_spellings(opened):
    if opened.reindex is None:
        pytest.skip("the engine cannot be reindexed")
    settings = collection_settings(analyzer="english/2")
    document = prepared("a", "The café shows error E-4711 at 24 V.", settings)
    case = filled(opened, document, settings=settings)
    assert not scores(case, "cafe E4711 24V")
    case.reindex()
    for text in ("cafe", "E4711", "24V", "café"):
        assert scores(case, text).keys() == {"a"}


def test_summaries_that_were_written_for_the_old_version_are_indexed_by_the_new_one(opened):
    if opened.reindex is None:
        pytest.skip("the engine cannot be reindexed")
    settings = replace(OLD, summaries=SummaryUnit.CHUNK)
    opened.model.settings = settings
    opened.create()
    documents = [
        replace(prepared(name, sentences(9, n), settings, n), source=f"{name}.pdf", title="")
        for n, name in enumerate(("acme", "zebra"))
    ]
    opened.fill(documents[0])
    summarise(opened.writer, ModelSummaries(opened.model))
    opened.fill(documents[1])
    waiting = opened.writer.next_unsummarised("fake")
    assert waiting is not None
    opened.reindex()
    leaves = range(len(documents[1].vectors))
    summaries = Summary("The whole.", leaves), Summary("Its only section.", leaves)
    written = DocumentSummaries(summaries, unit_vectors(2, 5))
    assert opened.writer.put_summaries(waiting, written)
    for name in ("acme", "zebra"):
        with opened.snapshot(summaries=True) as snapshot:
            options = {"mode": SearchMode.SUMMARY_FIRST, "retrieval": Retrieval.LEXICAL}
            options |= {"top_sections": 1, "summary_scope": SummaryScope.DOCUMENTS}
            result = find(snapshot, None, EVERYTHING, text=name, **options)
        assert {section.document_id for section in result.sections} == {name}


def test_a_collection_without_an_analyzer_gets_the_newest_one(opened):
    if opened.reindex is None:
        pytest.skip("the engine cannot be reindexed")
    settings = collection_settings(analyzer="")
    case = filled(opened, named("a", "acme.pdf", settings=settings), settings=settings)
    case.reindex()
    assert case.collection.settings.analyzer == upgraded("")
    assert scores(case, "acme").keys() == {"a"}

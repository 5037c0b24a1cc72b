"""A change of metadata is merged into the stored metadata, or refused. Nothing is lost."""

from typing import Any

import pytest

from hrag import errors
from hrag.types import (
    MAX_METADATA_BYTES,
    MAX_METADATA_VALUES,
    IngestOutcome,
    MetadataChange,
    MetadataUpdate,
)
from hrag.values.deadline import NEVER, Deadline
from hrag.values.limits import MAX_SOURCE_BYTES
from indexer_svc.stored_catalog import StoredCatalog
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, sentences

STORED = {"a": 1, "b": {"c": [1, 2]}, "d": None}
SOURCE = "https://example.org/d"


@pytest.fixture
def catalog(engine: Engine) -> StoredCatalog:
    """A catalog in which the tenant `t` has a document `d` in the collection `c`."""
    engine.writer.create_collection("t", "c", collection_settings())
    engine.writer.put(engine.open(), prepared("d", sentences(3), metadata=STORED))
    return StoredCatalog(engine.writer)


def change(catalog: StoredCatalog, deadline: Deadline = NEVER, **fields: Any) -> MetadataUpdate:
    """Changes the metadata of document `d`."""
    return catalog.update_metadata("t", "c", "d", MetadataChange(**fields), deadline)


@pytest.mark.parametrize(
    ("fields", "metadata", "source"),
    [
        ({"metadata": {"a": 2, "e": True}}, {**STORED, "a": 2, "e": True}, SOURCE),
        ({"metadata": {"b": {"x": 1}}}, {**STORED, "b": {"x": 1}}, SOURCE),
        ({"metadata": {"a": None}}, {**STORED, "a": None}, SOURCE),
        ({"metadata": {"b.c": 1}}, {**STORED, "b.c": 1}, SOURCE),
        ({"remove_keys": ("a", "d", "missing")}, {"b": STORED["b"]}, SOURCE),
        ({"metadata": {"e": 1}, "remove_keys": ("b",)}, {"a": 1, "d": None, "e": 1}, SOURCE),
        ({"metadata": {"e": 1}, "replace": True}, {"e": 1}, SOURCE),
        ({"replace": True}, {}, SOURCE),
        ({"source": "s3://b"}, STORED, "s3://b"),
        ({"source": ""}, STORED, ""),
        ({"metadata": {"a": 1.5}, "source": "x"}, {**STORED, "a": 1.5}, "x"),
        ({"metadata": {"a": True}}, {**STORED, "a": True}, SOURCE),
    ],
)
def test_a_change_is_applied_to_the_stored_metadata(
    catalog: StoredCatalog, fields: dict[str, Any], metadata: dict[str, Any], source: str
) -> None:
    before = catalog.document("t", "c", "d")
    updated = change(catalog, **fields)
    assert updated.outcome is IngestOutcome.UPDATED
    assert (updated.document.metadata, updated.document.source) == (metadata, source)
    assert updated.document.sequence == before.sequence + 1
    assert catalog.document("t", "c", "d") == updated.document
    again = change(catalog, **fields)
    assert again == MetadataUpdate(updated.document, IngestOutcome.UNCHANGED)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"a": 1}},
        {"metadata": STORED, "replace": True},
        {"remove_keys": ("missing",)},
        {"source": SOURCE},
    ],
)
def test_a_change_without_effect_leaves_the_document_unchanged(
    catalog: StoredCatalog, fields: dict[str, Any]
) -> None:
    before = catalog.document("t", "c", "d")
    assert change(catalog, **fields) == MetadataUpdate(before, IngestOutcome.UNCHANGED)


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({}, "metadata", "changes nothing"),
        ({"expected_sequence": 7}, "metadata", "changes nothing"),
        ({"replace": True, "remove_keys": ("a", "b")}, "remove_keys", "2 keys.*must be empty"),
        ({"metadata": {"a": 1}, "remove_keys": ("a",)}, "remove_keys", "'a', which metadata sets"),
        ({"metadata": {"x": "x" * MAX_METADATA_BYTES}}, "metadata", f"most {MAX_METADATA_BYTES}"),
        ({"metadata": {"x": [1] * MAX_METADATA_VALUES}}, "metadata", "values; at most 1,024"),
        ({"source": "x" * (MAX_SOURCE_BYTES + 1)}, "source", f"at most {MAX_SOURCE_BYTES}"),
    ],
)
def test_an_invalid_change_is_refused(
    catalog: StoredCatalog, fields: dict[str, Any], field: str, problem: str
) -> None:
    before = catalog.document("t", "c", "d")
    with pytest.raises(errors.InvalidArgument, match=problem) as caught:
        change(catalog, **fields)
    assert caught.value.field == field
    assert catalog.document("t", "c", "d") == before


def test_the_limits_apply_to_the_merged_metadata(catalog: StoredCatalog) -> None:
    half = "x" * (MAX_METADATA_BYTES // 2)
    change(catalog, metadata={"x": half})
    with pytest.raises(errors.TooLarge):
        change(catalog, metadata={"y": half})
    change(catalog, metadata={"y": half}, remove_keys=("x",))


def test_names_are_checked_and_must_exist(catalog: StoredCatalog) -> None:
    new_source = MetadataChange(source="s")
    for key, error, field in (
        (("t", "c", "../d"), errors.InvalidArgument, "document_id"),
        (("t", "c", ""), errors.InvalidArgument, "document_id"),
        (("t", "c/", "d"), errors.InvalidArgument, "collection"),
        (("", "c", "d"), errors.InvalidArgument, "tenant_id"),
        (("t", "c", "missing"), errors.DocumentNotFound, "document_id"),
        (("t", "missing", "d"), errors.CollectionNotFound, "collection"),
        (("other", "c", "d"), errors.CollectionNotFound, "collection"),
    ):
        with pytest.raises(error) as caught:
            catalog.update_metadata(*key, new_source, NEVER)
        assert caught.value.field == field


def test_only_the_expected_version_is_changed(catalog: StoredCatalog) -> None:
    first = catalog.document("t", "c", "d").sequence
    second = change(catalog, metadata={"a": 2}, expected_sequence=first).document.sequence
    with pytest.raises(errors.DocumentChanged, match=f"{first}.*{second}") as caught:
        change(catalog, metadata={"a": 3}, expected_sequence=first)
    assert caught.value.field == "expected_sequence"
    assert catalog.document("t", "c", "d").metadata["a"] == 2


def test_a_change_that_is_stored_at_the_same_time_is_kept(
    catalog: StoredCatalog, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change is stored just before this one.

    If this change names the version that it expects, it is refused.
    """
    store = engine.writer.put_metadata
    first = catalog.document("t", "c", "d").sequence

    def put_after_another_change(*arguments: Any) -> Any:
        monkeypatch.setattr(engine.writer, "put_metadata", store)
        change(catalog, metadata={"other": arguments[2]})
        return store(*arguments)

    for fields in ({}, {"expected_sequence": first + 2}):
        monkeypatch.setattr(engine.writer, "put_metadata", put_after_another_change)
        if fields:
            with pytest.raises(errors.DocumentChanged):
                change(catalog, metadata={"mine": 2}, **fields)
        else:
            change(catalog, metadata={"mine": 1})
    metadata = catalog.document("t", "c", "d").metadata
    assert metadata == {**STORED, "mine": 1, "other": first + 2}


def test_nothing_is_changed_after_the_deadline(catalog: StoredCatalog) -> None:
    with pytest.raises(errors.DeadlineExceeded, match="updating metadata"):
        change(catalog, Deadline.after(-1), metadata={"a": 2})
    assert catalog.document("t", "c", "d").metadata == STORED

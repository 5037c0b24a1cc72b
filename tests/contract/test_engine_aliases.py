"""Every storage engine keeps these promises about aliases of collections."""

import pytest

from hrag.engine.engine_documents import StoredDocument
from hrag.errors import (
    AliasNotFound,
    CollectionExists,
    CollectionHasAliases,
    CollectionNotFound,
    StorageQuotaExceeded,
)
from hrag.types import MAX_ALIASES, Alias, AliasChange, IngestOutcome, TreeSettings
from tests.support.documents.fakes import (
    collection_settings,
    prepared,
    query_vector,
    search_leaves,
    sentences,
)

OLD, NEW = collection_settings(), collection_settings(TreeSettings((64, 200), 0.25, 1), dimension=3)


@pytest.fixture
def pair(catalog):
    """An engine with two collections, which have different settings.

    The collection `old` has the document `o` and the alias `a`. The collection `new` has the
    document `n`.
    """
    for name, settings, document_id in (("old", OLD, "o"), ("new", NEW, "n")):
        catalog.writer.create_collection("t", name, settings)
        document = prepared(document_id, sentences(9), settings)
        catalog.writer.put(catalog.writer.open("t", name), document)
    catalog.writer.set_alias("t", "a", "old")
    return catalog


def documents_in(case, name):
    """Returns the ids of the documents that a search in `name` finds, and the collection's name."""
    with case.snapshot("t", name) as snapshot:
        leaves = search_leaves(snapshot, query_vector(0, snapshot.settings.dimension), 100)
        return {document_id for document_id, _ in leaves}, snapshot.name


def test_an_alias_is_set_switched_and_deleted(pair):
    before = pair.readers().sequence("t")
    assert documents_in(pair, "a") == ({"o"}, "old")
    switched = pair.writer.set_alias("t", "a", "new")
    assert switched == AliasChange(Alias("a", "new"), "old", before + 1)
    assert documents_in(pair, "a") == ({"n"}, "new")
    assert pair.readers().sequence("t") == before + 1
    assert pair.writer.delete_alias("t", "a") == before + 2
    with pytest.raises(CollectionNotFound, match="'a'"):
        pair.snapshot("t", "a").__enter__()
    with pytest.raises(AliasNotFound, match="'a'") as caught:
        pair.writer.delete_alias("t", "a")
    assert caught.value.field == "alias"
    assert documents_in(pair, "old") == ({"o"}, "old")


def test_setting_an_alias_to_its_present_collection_changes_nothing(pair):
    before = pair.readers().sequence("t")
    assert pair.writer.set_alias("t", "a", "old") == AliasChange(Alias("a", "old"), "old", before)
    assert pair.readers().sequence("t") == before


def test_every_call_accepts_an_alias_and_returns_the_name_of_the_collection(pair):
    writer = pair.writer
    collection, handle = writer.collection("t", "a"), writer.open("t", "a")
    assert (collection, handle) == (writer.collection("t", "old"), writer.open("t", "old"))
    assert (collection.name, handle.name) == ("old", "old")
    document = prepared("p", sentences(3, 1), OLD)
    assert writer.admit("t", "a", "p", document.content_hash).collection == handle
    assert writer.put(handle, document).outcome is IngestOutcome.CREATED
    assert writer.count(writer.open("t", "old"), None).documents == 2
    exported = [stored.document.document_id for stored in pair.readers().export("t", "a")]
    assert exported == ["o", "p"]
    assert all(isinstance(stored, StoredDocument) for stored in pair.readers().export("t", "a"))


def test_an_alias_that_is_set_to_an_alias_names_the_collection_itself(pair):
    assert pair.writer.set_alias("t", "b", "a").alias == Alias("b", "old")
    pair.writer.set_alias("t", "a", "new")
    assert documents_in(pair, "b") == ({"o"}, "old")
    assert pair.writer.set_alias("t", "b", "b").previous_collection == "old"


def test_an_open_snapshot_keeps_its_collection_when_the_alias_is_switched(pair):
    with pair.snapshot("t", "a") as snapshot:
        pair.writer.set_alias("t", "a", "new")
        leaves = search_leaves(snapshot, query_vector(0, OLD.dimension), 100)
        assert {document_id for document_id, _ in leaves} == {"o"}
        assert (snapshot.name, snapshot.settings) == ("old", OLD)


def test_aliases_are_listed_by_name_and_do_not_count_as_collections(pair):
    pair.writer.set_alias("t", "z", "new")
    pair.writer.set_alias("t", "B", "new")
    pair.writer.create_collection("t2", "a", OLD)
    listed = pair.writer.aliases("t")
    assert listed == (Alias("B", "new"), Alias("a", "old"), Alias("z", "new"))
    for size in (1, 2, 3):
        names, token = [], None
        while token != "":
            page = pair.writer.collections("t", size, token or "")
            names += [collection.name for collection in page.items]
            token = page.next_page_token
        assert names == ["new", "old"]
    collections = pair.readers().collections()
    names = [(collection.tenant_id, collection.name) for collection in collections]
    assert sorted(names) == [("t", "new"), ("t", "old"), ("t2", "a")]
    assert pair.writer.totals().collections == 3
    assert pair.writer.status(pair.writer.open("t", "a")).tenant.collections == 2
    assert pair.writer.aliases("t2") == pair.writer.aliases("nobody") == ()


def test_a_collection_and_an_alias_cannot_have_the_same_name(pair):
    before = pair.readers().sequence("t")
    with pytest.raises(CollectionExists, match="an alias 'a'") as caught:
        pair.writer.create_collection("t", "a", OLD)
    assert caught.value.field == "name"
    for collection in ("new", "old"):
        with pytest.raises(CollectionExists, match="a collection 'new'") as caught:
            pair.writer.set_alias("t", "new", collection)
        assert caught.value.field == "alias"
    assert pair.readers().sequence("t") == before
    pair.writer.delete_alias("t", "a")
    pair.writer.create_collection("t", "a", OLD)


def test_an_alias_needs_a_collection_of_its_tenant(pair):
    for tenant_id, name in (("t", "missing"), ("t2", "old"), ("nobody", "old")):
        with pytest.raises(CollectionNotFound):
            pair.writer.set_alias(tenant_id, "b", name)
    pair.writer.create_collection("t2", "c", OLD)
    for call in (
        lambda: pair.writer.open("t2", "a"),
        lambda: pair.snapshot("t2", "a").__enter__(),
    ):
        with pytest.raises(CollectionNotFound):
            call()
    with pytest.raises(AliasNotFound):
        pair.writer.delete_alias("t2", "a")
    with pytest.raises(AliasNotFound, match="'old'"):
        pair.writer.delete_alias("t", "old")


def test_a_collection_with_aliases_is_not_deleted(pair):
    pair.writer.set_alias("t", "b", "old")
    for name in ("old", "a"):
        with pytest.raises(CollectionHasAliases, match=r"'old'.*'a', 'b'") as caught:
            pair.writer.delete_collection("t", name)
        assert caught.value.field == "name"
    assert documents_in(pair, "a") == ({"o"}, "old")
    pair.writer.set_alias("t", "a", "new")
    pair.writer.delete_alias("t", "b")
    pair.writer.delete_collection("t", "old")
    assert documents_in(pair, "a") == ({"n"}, "new")


def test_the_count_of_aliases_of_a_tenant_is_bounded(pair):
    for number in range(MAX_ALIASES - 1):
        pair.writer.set_alias("t", f"b{number:03}", "old")
    with pytest.raises(StorageQuotaExceeded, match=f"{MAX_ALIASES} of the {MAX_ALIASES}") as caught:
        pair.writer.set_alias("t", "c", "old")
    assert (caught.value.field, caught.value.tenant_id) == ("aliases", "t")
    pair.writer.set_alias("t", "a", "new")
    pair.writer.delete_alias("t", "b000")
    pair.writer.set_alias("t", "c", "old")
    assert len(pair.writer.aliases("t")) == MAX_ALIASES

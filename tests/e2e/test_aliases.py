"""Settings change without downtime: searches run while an alias is set to a new collection."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hrag.client import Client
from hrag.errors import (
    CollectionExists,
    CollectionHasAliases,
    CollectionNotFound,
    InvalidArgument,
)
from hrag.types import (
    NO_EMBEDDER,
    Alias,
    Document,
    Retrieval,
    SearchMode,
    SearchResult,
    SettingsRequest,
    SummaryUnit,
)

TEXTS = [f"Dogs bark at night {number}. They dig deep holes. " * 40 for number in range(8)]
OLD = SettingsRequest(level_sizes=(64, 128), analyzer="english")
NEW = SettingsRequest(level_sizes=(32, 64, 256), analyzer="simple", summaries=SummaryUnit.NONE)


def documents(version: str) -> list[Document]:
    return [
        Document(text, f"d{number}", metadata={"version": version})
        for number, text in enumerate(TEXTS)
    ]


def versions_of(result: SearchResult) -> set[str]:
    return {passage.chunk.metadata["version"] for passage in result.passages}


class SearchLoop:
    """Repeats searches in a thread.

    `problems` lists errors, and results that do not have exactly one version of the documents.
    `saw` has an event per version, which is set once every search has returned that version.
    """

    def __init__(self, searches: list[Callable[[], SearchResult]]) -> None:
        self.problems: list[Any] = []
        self.saw = {"docs-1": threading.Event(), "docs-2": threading.Event()}
        self._searches = searches
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "SearchLoop":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                versions_by_search = [versions_of(search()) for search in self._searches]
            except Exception as error:
                self.problems.append(error)
                return
            self.problems += [versions for versions in versions_by_search if len(versions) != 1]
            for version, event in self.saw.items():
                if all(versions == {version} for versions in versions_by_search):
                    event.set()


def test_settings_change_while_searches_run(services, tenant: str) -> None:
    client: Client = services.client
    client.create_collection(tenant, "docs-1", OLD)
    list(client.ingest_many(tenant, documents("docs-1"), collection="docs-1"))
    client.set_alias(tenant, "docs", "docs-1")
    search = partial(client.search, tenant, "dogs dig holes", collection="docs", limit=8)
    searches = [
        search,
        partial(search, mode=SearchMode.SENTENCE_WINDOW),
        partial(search, mode=SearchMode.CONTEXT, limit=None, retrieval=Retrieval.LEXICAL),
    ]
    with SearchLoop(searches) as searching:
        assert searching.saw["docs-1"].wait(30)
        client.create_collection(tenant, "docs-2", NEW)
        list(client.ingest_many(tenant, documents("docs-2"), collection="docs-2"))
        counts = [client.count_documents(tenant, collection=f"docs-{n}").documents for n in (1, 2)]
        assert counts == [len(TEXTS)] * 2
        switched = client.set_alias(tenant, "docs", "docs-2")
        after = [search(min_sequence=switched.sequence) for search in searches]
        assert [versions_of(result) for result in after] == [{"docs-2"}] * 3
        assert searching.saw["docs-2"].wait(30)
    assert searching.problems == []
    with pytest.raises(CollectionHasAliases, match="'docs'"):
        client.delete_collection(tenant, "docs-2")
    client.delete_collection(tenant, "docs-1")
    assert client.list_aliases(tenant) == (Alias("docs", "docs-2"),)


def test_both_services_resolve_an_alias(services, tenant: str) -> None:
    client: Client = services.client
    client.create_collection(tenant, "real")
    assert client.set_alias(tenant, "default", "real").previous_collection == ""
    client.ingest(tenant, Document("Dogs bark.", "d"))
    assert client.get_collection(tenant, "default").name == "real"
    assert [collection.name for collection in client.list_collections(tenant).items] == ["real"]
    assert client.get_document(tenant, "d", collection="real").text_bytes == len("Dogs bark.")
    assert client.get_chunk(tenant, "d#0.0").chunk.content == "Dogs bark."
    assert client.get_hierarchy(tenant, "d#0.0").node.chunk.document_id == "d"
    assert client.index_status(tenant).document_count == 1
    sent = [Document("Cats sleep.", "d"), Document("Dogs bark.", "d")]
    assert [result.outcome.name for result in client.ingest_many(tenant, sent)] == ["UPDATED"] * 2
    client.delete_alias(tenant, "default")
    with pytest.raises(CollectionNotFound):
        client.search(tenant, "dogs")
    client.ingest(tenant, Document("Fish swim.", "f"))
    with pytest.raises(CollectionExists, match="a collection 'default'"):
        client.set_alias(tenant, "default", "real")
    for alias, collection in (("", "real"), ("a/b", "real"), ("x" * 65, "real"), ("a", "")):
        with pytest.raises(InvalidArgument) as caught:
            client.set_alias(tenant, alias, collection)
        assert caught.value.field == ("alias" if collection else "collection")


def test_an_alias_may_switch_between_collections_with_and_without_vectors(
    services, tenant: str
) -> None:
    """When an alias changes, the retriever discards what it has cached for the alias."""
    client: Client = services.client
    for name, settings in (("words", SettingsRequest(embedder=NO_EMBEDDER)), ("vectors", OLD)):
        client.create_collection(tenant, name, settings)
        client.ingest(tenant, Document("Dogs bark.", "d", metadata={"in": name}), collection=name)
    expected = {"words": Retrieval.LEXICAL, "vectors": Retrieval.HYBRID}
    for name in ("words", "vectors", "words", "vectors"):
        client.set_alias(tenant, "docs", name)
        for _ in range(2):
            result = client.search(tenant, "dogs bark", collection="docs")
            assert [passage.chunk.metadata for passage in result.passages] == [{"in": name}]
            assert result.retrieval is expected[name]

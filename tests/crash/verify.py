"""Verifies a store through its services after every restart.

First, each document is settled: its stored version must be the acknowledged version, or a version
that was sent later and not acknowledged, and it must be complete. Then searches must find the same
leaves as an exact scan of these documents. After all summaries have been written, searches by
summaries must also find the same.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hrag.client import Client
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.store.environment import open_for_reading
from hrag.errors import OriginalNotFound
from hrag.types import (
    DEFAULT_CANDIDATES,
    MAX_TOP_SECTIONS,
    Aggregation,
    DocumentInfo,
    Passage,
    Retrieval,
    SearchMode,
    SearchResult,
)
from tests.crash.documents import (
    SETTINGS,
    TREE,
    Query,
    Vector,
    check_passage,
    check_section,
    file_of,
    prepared_of,
    random_query,
    text_of,
)
from tests.crash.ledger import CREATED, Collection, Entry
from tests.support.documents.fakes import (
    SCORE_TOLERANCE,
    Leaf,
    ModelCollection,
    find,
    matched_leaves,
    recall,
)
from tests.support.documents.vocabulary import question
from tests.support.engines.memory_engine import MemoryEngine

_LIMIT = 100
_QUERIES = 3
_PAGE_SIZE = 1000
_RETURN_LEVEL = TREE.top_level


def check_beside_services(data_dir: Path) -> None:
    """Fails if a check of the whole store, while the services use it, finds a problem."""
    store = open_for_reading(data_dir)
    try:
        assert check(store).problems == ()
    finally:
        store.close()


def settle(client: Client, tenant_id: str, collections: dict[str, Collection]) -> list[str]:
    """Settles all entries of a tenant by what is stored; returns a text for each problem.

    Problems are lost writes, half writes, and documents that should be deleted.
    """
    listing = client.list_collections(tenant_id, page_size=_PAGE_SIZE)
    listed = {collection.name for collection in listing.items}
    problems = [f"nobody has created {name}" for name in listed - collections.keys()]
    for name, collection in list(collections.items()):
        known = str(collection.existence)
        if not collection.existence.settle(CREATED if name in listed else None):
            problems.append(
                f"{tenant_id}/{name}: is listed: {name in listed}; the ledger has {known}"
            )
        if name in listed:
            problems += _settle_documents(client, collection)
        else:
            del collections[name]
    return problems


def _settle_documents(client: Client, collection: Collection) -> list[str]:
    path = f"{collection.tenant_id}/{collection.name}"
    listing = client.list_documents(
        collection.tenant_id, collection=collection.name, page_size=_PAGE_SIZE
    )
    assert not listing.next_page_token
    stored = {info.document_id: info for info in listing.items}
    unknown = stored.keys() - collection.documents.keys()
    problems = [f"{path}/{name}: nobody has written it" for name in unknown]
    for document_id, entry in collection.documents.items():
        problem = _settle_document(client, collection, document_id, entry, stored.get(document_id))
        if problem:
            problems.append(f"{path}/{document_id}: {problem}")
    return problems


def _settle_document(
    client: Client,
    collection: Collection,
    document_id: str,
    entry: Entry,
    info: DocumentInfo | None,
) -> str:
    version = None if info is None else int(info.metadata["version"])
    revision = 0 if info is None else int(info.metadata.get("revision", 0))
    known = str(entry)
    if not entry.settle(version, revision):
        return f"stored is version {version}, revision {revision}; the ledger has {known}"
    if version is None:
        return ""
    text = client.get_text(collection.tenant_id, document_id, collection=collection.name)
    if text != text_of(collection.tenant_id, document_id, version):
        return f"version {version} has another text, of {len(text)} characters"
    return _original_problem(client, collection, document_id, version)


def _original_problem(
    client: Client, collection: Collection, document_id: str, version: int
) -> str:
    tenant_id, name = collection.tenant_id, collection.name
    try:
        stored = client.get_original(tenant_id, document_id, collection=name).content
    except OriginalNotFound:
        stored = None
    has_it = stored == file_of(tenant_id, document_id, version)
    return "" if has_it else f"version {version} has another original or none: {stored!r}"


class ExactSearch:
    """An exact search of the documents that a collection must have; compares every leaf."""

    def __init__(self, tenant_id: str, versions: Mapping[str, int]) -> None:
        self._tenant_id = tenant_id
        self._versions = versions
        documents = {
            name: prepared_of(tenant_id, name, version) for name, version in versions.items()
        }
        self._model = ModelCollection(SETTINGS, documents)

    def compare(self, client: Client, source: random.Random) -> list[float]:
        """Makes a few random searches by vector; returns the recall of each search.

        Fails if a passage has a wrong text or score.
        """
        queries = [random_query(source) for _ in range(_QUERIES)]
        shares = [self._standard(client, query) for query in queries]
        return [*shares, self._small_to_big(client, queries[0])]

    def _standard(self, client: Client, query: Vector) -> float:
        passages = self._search(client, query, SearchMode.STANDARD).passages
        leaves = matched_leaves(passages)
        assert [passage.score for passage in passages] == sorted(leaves.values(), reverse=True)
        return recall(leaves, self._model, np.array(query), _LIMIT)

    def compare_by_words(self, client: Client, source: random.Random, names: Iterable[str]) -> None:
        """Fails unless a lexical search returns the same scores as the memory engine does.

        `names` are ids of documents. A search for an id must find all leaves of this document, if
        it is stored, and no other leaves.
        """
        for name in names:
            passages = self._search(client, name, SearchMode.STANDARD).passages
            stored = self._model.documents.get(name)
            leaf_count = 0 if stored is None else len(stored.vectors)
            assert matched_leaves(passages).keys() == {(name, leaf) for leaf in range(leaf_count)}
        text = question(source)
        passages = self._search(client, text, SearchMode.STANDARD).passages
        scores = [passage.score for passage in passages]
        assert scores == pytest.approx(self._scores_in_memory(text), abs=SCORE_TOLERANCE), text

    def _scores_in_memory(self, text: str) -> list[float]:
        engine = MemoryEngine()
        writer = engine.writer()
        writer.create_collection("t", "c", SETTINGS)
        for document in self._model.documents.values():
            writer.put(writer.open("t", "c"), document)
        with engine.reader().snapshot("t", "c") as snapshot:
            options = {"mode": SearchMode.STANDARD, "retrieval": Retrieval.LEXICAL}
            passages = find(snapshot, None, _LIMIT, text=text, **options).passages
        return [passage.score for passage in passages]

    def compare_by_summaries(self, client: Client, source: random.Random) -> float:
        """Returns the recall of a search by summaries that searches in all sections.

        It is the share of the chunks with the nearest leaves, as many leaves as are ranked first,
        that the search returned: documents change only the order of these. Fails if a summary is
        not the one of its section's text, or if a score is wrong.
        """
        query = random_query(source)
        result = self._search(client, query, SearchMode.SUMMARY_FIRST, MAX_TOP_SECTIONS, _LIMIT)
        for section in result.sections:
            check_section(self._tenant_id, section, self._versions[section.document_id])
        scores = self._model.scores(np.array(query))
        self._check_document_shares(result.passages, scores)
        groups = self._model.groups(scores, _RETURN_LEVEL, Aggregation.MAX)
        assert len(result.passages) == min(len(groups), _LIMIT)
        returned = {passage.chunk.chunk_id for passage in result.passages}
        assert returned <= groups.keys()
        least = min(sorted(scores.values(), reverse=True)[:_LIMIT], default=0.0)
        best = {name for name, group in groups.items() if group.score > least + SCORE_TOLERANCE}
        return len(best & returned) / len(best) if best else 1.0

    def _check_document_shares(
        self, passages: tuple[Passage, ...], scores: Mapping[Leaf, float]
    ) -> None:
        """Fails unless each score is a cosine plus the share of the document's score.

        The share is the same for all leaves of a document, and not larger than it can be.
        """
        shares: dict[str, float] = {}
        for passage in passages:
            assert passage.score == max(child.score for child in passage.matched_children)
            for child in passage.matched_children:
                ((document_id, leaf), score), *_ = matched_leaves(
                    [replace(passage, matched_children=(child,))]
                ).items()
                cosine = scores[document_id, leaf]
                assert child.dense_score == pytest.approx(cosine, abs=SCORE_TOLERANCE)
                share = shares.setdefault(document_id, score - cosine)
                assert score - cosine == pytest.approx(share, abs=2 * SCORE_TOLERANCE)
        for document_id, share in shares.items():
            cosines = [score for (name, _), score in scores.items() if name == document_id]
            nearest = [max(cosine, 0.0) for cosine in sorted(cosines, reverse=True)[:3]]
            assert share <= 0.25 * (sum(nearest) / len(nearest) + 0.25) + SCORE_TOLERANCE

    def _small_to_big(self, client: Client, query: Vector) -> float:
        return self._recall(self._search(client, query, SearchMode.SMALL_TO_BIG).passages, query)

    def _recall(self, passages: tuple[Passage, ...], query: Vector) -> float:
        """Returns the recall of passages at `_RETURN_LEVEL`; fails if a score is wrong."""
        scores = self._model.scores(np.array(query))
        groups = self._model.groups(scores, _RETURN_LEVEL, Aggregation.MAX)
        best = sorted((group.score for group in groups.values()), reverse=True)[:_LIMIT]
        assert len(passages) == len(best)
        for leaf, score in matched_leaves(passages).items():
            assert abs(score - scores[leaf]) < SCORE_TOLERANCE
        reached = 0
        for passage in passages:
            assert passage.chunk.chunk_id in groups
            assert passage.score == max(child.score for child in passage.matched_children)
            reached += passage.score >= best[-1] - SCORE_TOLERANCE
        return reached / len(best) if best else 1.0

    def _search(
        self,
        client: Client,
        query: Query,
        mode: SearchMode,
        top_sections: int | None = None,
        candidates: int = DEFAULT_CANDIDATES,
    ) -> SearchResult:
        """Searches by vectors only if `query` is a vector, and by words only if it is a text."""
        level = None if mode is SearchMode.STANDARD else _RETURN_LEVEL
        result = client.search(
            self._tenant_id,
            query,
            mode=mode,
            retrieval=Retrieval.LEXICAL if isinstance(query, str) else Retrieval.DENSE,
            limit=_LIMIT,
            return_level=level,
            top_sections=top_sections,
            candidates=candidates,
            keep_overlap=True,
        )
        for passage in result.passages:
            version = check_passage(self._tenant_id, passage, query, mode)
            assert self._versions[passage.chunk.document_id] == version, passage
        return result

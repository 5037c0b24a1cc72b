"""Haystack's retrievers over stores in memory: one merges leaves, one is joined with BM25."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from haystack import Document
from haystack.components.joiners import DocumentJoiner
from haystack.components.preprocessors import HierarchicalDocumentSplitter
from haystack.components.retrievers import (
    AutoMergingRetriever,
    InMemoryBM25Retriever,
    InMemoryEmbeddingRetriever,
)
from haystack.document_stores.in_memory import InMemoryDocumentStore

from benchmarks.peers.peer import LEAF_TOKENS, FoundPassage, Indexed, Query, Text
from benchmarks.peers.timing import folder_bytes, timed
from benchmarks.peers.vectors import Vectors
from hrag.text import tokens

_LEAVES_PER_BLOCK = (4, 2, 1)


class Haystack:
    """The peer of Haystack's AutoMergingRetriever.

    Blocks have as many words as 1,024, 512 and 256 tokens have on average in these documents.
    """

    def __init__(self, folder: Path) -> None:
        """Creates the peer. `save` writes to `folder`."""
        self._folder = folder

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        blocks = _splitter(documents).run(_converted(documents))["documents"]
        return [block.content for block in blocks if not block.meta["__children_ids"]]

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        splitter = _splitter(documents)
        seconds, leaves = timed(lambda: self._build(splitter, documents, vectors))
        return Indexed(leaves, seconds)

    def save(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._leaves.save_to_disk(str(self._folder / "leaves.json"))
        self._parents.save_to_disk(str(self._folder / "parents.json"))

    def stored_bytes(self) -> int:
        return folder_bytes(self._folder)

    def _build(
        self, splitter: HierarchicalDocumentSplitter, documents: Sequence[Text], vectors: Vectors
    ) -> int:
        blocks = splitter.run(_converted(documents))["documents"]
        parents = [block for block in blocks if block.meta["__children_ids"]]
        leaves = [block for block in blocks if not block.meta["__children_ids"]]
        rows = vectors.rows_of([leaf.content for leaf in leaves]).tolist()
        embedded = [replace(leaf, embedding=row) for leaf, row in zip(leaves, rows, strict=True)]
        # The dot product is the default. For unit vectors it equals the cosine.
        self._leaves = InMemoryDocumentStore(embedding_similarity_function="dot_product")
        self._leaves.write_documents(embedded)
        self._parents = InMemoryDocumentStore()
        self._parents.write_documents(parents)
        self._nearest = InMemoryEmbeddingRetriever(self._leaves)
        self._merging = AutoMergingRetriever(self._parents, threshold=0.5)
        return len(leaves)

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        nearest = self._nearest.run(query_embedding=query.numbers, top_k=candidates)
        # A document shorter than a leaf is a root, which the merging retriever refuses.
        leaves = [block for block in nearest["documents"] if block.meta["__parent_id"]]
        roots = [block for block in nearest["documents"] if not block.meta["__parent_id"]]
        merged = self._merging.run(documents=leaves)["documents"] if leaves else []
        return _passages(_by_best_leaf(nearest["documents"], [*merged, *roots])[:limit])

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        pass


class HaystackHybrid(Haystack):
    """The same leaves, found by BM25 and by vectors, joined by reciprocal rank.

    It returns the leaves themselves.
    """

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        by_words = InMemoryBM25Retriever(self._leaves).run(query=query.text, top_k=candidates)
        nearest = self._nearest.run(query_embedding=query.numbers, top_k=candidates)
        joiner = DocumentJoiner(join_mode="reciprocal_rank_fusion")
        joined = joiner.run([by_words["documents"], nearest["documents"]], top_k=limit)
        return _passages(joined["documents"])


def _passages(documents: Sequence[Document]) -> list[FoundPassage]:
    return [FoundPassage(document.meta["document_id"], document.content) for document in documents]


def _by_best_leaf(leaves: Sequence[Document], merged: Sequence[Document]) -> list[Document]:
    """Orders merged blocks, which have no rank, by the rank of the first leaf in each block."""

    def first_rank(block: Document) -> int:
        ranks = (
            rank
            for rank, leaf in enumerate(leaves)
            if leaf.meta["document_id"] == block.meta["document_id"]
            and leaf.content in block.content
        )
        return next(ranks, len(leaves))

    return sorted(merged, key=first_rank)


def _splitter(documents: Sequence[Text]) -> HierarchicalDocumentSplitter:
    """Returns a splitter by words. Haystack separates words at spaces."""
    token_count = sum(len(tokens.encode(document.text)) for document in documents)
    word_count = sum(document.text.count(" ") + 1 for document in documents)
    leaf_words = round(LEAF_TOKENS * word_count / token_count)
    sizes = {leaf_words * leaves for leaves in _LEAVES_PER_BLOCK}
    return HierarchicalDocumentSplitter(block_sizes=sizes, split_overlap=0, split_by="word")


def _converted(documents: Sequence[Text]) -> list[Document]:
    return [
        Document(content=document.text, meta={"document_id": document.document_id})
        for document in documents
    ]

"""Haystack's retrievers over stores in memory: merging leaves, and joined with BM25's."""

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

from benchmarks.peers.peer import LEAF_TOKENS, Found, Indexed, Query, Text
from benchmarks.peers.timing import folder_bytes, timed
from benchmarks.peers.vectors import Vectors
from hrag.text import tokens

_LEAVES_PER_BLOCK = (4, 2, 1)


class Haystack:
    """Blocks of the number of words that is 1,024, 512 and 256 tokens in these documents."""

    def __init__(self, folder: Path) -> None:
        """Saves to `folder`."""
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
        rows = vectors.of([leaf.content for leaf in leaves]).tolist()
        embedded = [replace(leaf, embedding=row) for leaf, row in zip(leaves, rows, strict=True)]
        # The default similarity: the cosine, for unit vectors.
        self._leaves = InMemoryDocumentStore(embedding_similarity_function="dot_product")
        self._leaves.write_documents(embedded)
        self._parents = InMemoryDocumentStore()
        self._parents.write_documents(parents)
        self._nearest = InMemoryEmbeddingRetriever(self._leaves)
        self._merging = AutoMergingRetriever(self._parents, threshold=0.5)
        return len(leaves)

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        nearest = self._nearest.run(query_embedding=query.numbers, top_k=candidates)
        # A document shorter than a leaf is a root, which the merging retriever refuses.
        leaves = [each for each in nearest["documents"] if each.meta["__parent_id"]]
        roots = [each for each in nearest["documents"] if not each.meta["__parent_id"]]
        merged = self._merging.run(documents=leaves)["documents"] if leaves else []
        return _found(_by_best_leaf(nearest["documents"], [*merged, *roots])[:limit])

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        pass


class HaystackHybrid(Haystack):
    """The same leaves, returned themselves: BM25 and vectors, joined by reciprocal rank."""

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        by_words = InMemoryBM25Retriever(self._leaves).run(query=query.text, top_k=candidates)
        nearest = self._nearest.run(query_embedding=query.numbers, top_k=candidates)
        joiner = DocumentJoiner(join_mode="reciprocal_rank_fusion")
        joined = joiner.run([by_words["documents"], nearest["documents"]], top_k=limit)
        return _found(joined["documents"])


def _found(documents: Sequence[Document]) -> list[Found]:
    return [Found(each.meta["document_id"], each.content) for each in documents]


def _by_best_leaf(leaves: Sequence[Document], merged: Sequence[Document]) -> list[Document]:
    """Orders merged blocks, which have no rank, by the rank of the first leaf in each."""

    def place(block: Document) -> int:
        own = (
            place
            for place, leaf in enumerate(leaves)
            if leaf.meta["document_id"] == block.meta["document_id"]
            and leaf.content in block.content
        )
        return next(own, len(leaves))

    return sorted(merged, key=place)


def _splitter(documents: Sequence[Text]) -> HierarchicalDocumentSplitter:
    """Returns a splitter by words, which Haystack separates at spaces."""
    counted = sum(len(tokens.encode(each.text)) for each in documents)
    words = sum(each.text.count(" ") + 1 for each in documents)
    leaf_words = round(LEAF_TOKENS * words / counted)
    sizes = {leaf_words * leaves for leaves in _LEAVES_PER_BLOCK}
    return HierarchicalDocumentSplitter(block_sizes=sizes, split_overlap=0, split_by="word")


def _converted(documents: Sequence[Text]) -> list[Document]:
    return [
        Document(content=each.text, meta={"document_id": each.document_id}) for each in documents
    ]

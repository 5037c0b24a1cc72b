"""LangChain's ParentDocumentRetriever over FAISS's HNSW index, with leaves that are already cut."""

from collections.abc import Sequence
from itertools import islice

import faiss
from langchain_core.documents import Document

from benchmarks.peers import trees
from benchmarks.peers.langchain import ID, LangChain, vector_store
from benchmarks.peers.peer import Query
from benchmarks.peers.scale.corpus import CutText, SeededCorpus
from benchmarks.peers.scale.faiss_index import hnsw
from benchmarks.peers.scale.peer import CANDIDATES, EFS, Library
from benchmarks.peers.timing import timed

# 100 documents have about 10,000 leaves, which FAISS inserts on all cores.
_DOCUMENTS_AT_ONCE = 100


class LangChainLeaves(Library, LangChain):
    """The peer of LangChain.

    `add_embeddings` adds the leaves; parents are added to the docstore.
    """

    efs = EFS

    def index_leaves(self, corpus: SeededCorpus) -> float:
        self._graph = hnsw(faiss.METRIC_L2)
        self._create(vector_store(corpus.query_vectors(), self._graph))
        seconds, _ = timed(lambda: self._add_all(corpus))
        return seconds

    def _add_all(self, corpus: SeededCorpus) -> None:
        documents = iter(corpus)
        while group := list(islice(documents, _DOCUMENTS_AT_ONCE)):
            self._add(group)

    def _add(self, documents: Sequence[CutText]) -> None:
        pairs, metadata, ids = [], [], []
        for document in documents:
            self._docstore.mset(_parents(document))
            leaves = trees.pieces(document.tree, trees.TREE.embedding_level)
            for number, (leaf, row) in enumerate(zip(leaves, document.vectors, strict=True)):
                pairs.append((document.text[leaf.start : leaf.end], row))
                parent = _parent_id(document, leaf.parent)
                metadata.append({ID: document.document_id, self._retriever.id_key: parent})
                ids.append(str(document.first_row + number))
        self._store.add_embeddings(pairs, metadata, ids)

    def set_ef(self, ef: int) -> None:
        self._graph.hnsw.efSearch = ef

    def nearest(self, query: Query) -> list[int]:
        leaves = self._store.similarity_search(query.text, k=CANDIDATES)
        return [int(leaf.id) for leaf in leaves[:10]]


def _parents(document: CutText) -> list[tuple[str, Document]]:
    parents = []
    for number, piece in enumerate(trees.pieces(document.tree, trees.PARENT_LEVEL)):
        metadata = {ID: document.document_id, "start_index": piece.start}
        text = document.text[piece.start : piece.end]
        parent = Document(page_content=text, metadata=metadata)
        parents.append((_parent_id(document, number), parent))
    return parents


def _parent_id(document: CutText, parent: int) -> str:
    return f"{document.document_id}.{parent}"

"""LangChain's retrievers over FAISS: one returns parents, one is an ensemble with BM25."""

import os
from collections.abc import Sequence
from pathlib import Path

import faiss
from langchain_classic.retrievers import EnsembleRetriever, ParentDocumentRetriever
from langchain_classic.storage import InMemoryStore, LocalFileStore, create_kv_docstore
from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.retrievers import BM25Retriever
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_text_splitters import RecursiveCharacterTextSplitter

from benchmarks.peers.peer import LEAF_TOKENS, PARENT_TOKENS, FoundPassage, Indexed, Query, Text
from benchmarks.peers.timing import folder_bytes, timed
from benchmarks.peers.vectors import DIMENSION, Vectors

# The splitter's default separators come first, so that English is cut as by default. Then come the
# separators that its documentation lists for languages without spaces between words.
_SEPARATORS = ["\n\n", "\n", " ", ".", ",", "\u200b", "\uff0c", "\u3001", "\uff0e", "\u3002", ""]
ID = "document_id"


class _StoredVectors(Embeddings):
    """An embedder that looks up vectors by text."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._vectors.rows_of(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        return self._vectors.list_of(text)


class LangChain:
    """The peer of ParentDocumentRetriever: parents of 1,024 tokens are cut into children of 256."""

    def __init__(self, folder: Path) -> None:
        """Creates the peer. `save` writes to `folder`."""
        self._folder = folder
        self._parents = _splitter(PARENT_TOKENS)
        self._children = _splitter(LEAF_TOKENS)

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        return [leaf.page_content for leaf in self._leaves(documents)]

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        self._create(_exact_store(vectors))
        seconds, _ = timed(lambda: self._retriever.add_documents(_converted(documents)))
        return Indexed(self._store.index.ntotal, seconds)

    def _create(self, store: FAISS) -> None:
        """Creates an empty retriever."""
        self._store = store
        self._docstore = InMemoryStore()
        self._retriever = ParentDocumentRetriever(
            vectorstore=self._store,
            docstore=self._docstore,
            child_splitter=self._children,
            parent_splitter=self._parents,
        )

    def save(self) -> None:
        self._store.save_local(str(self._folder / "children"))
        saved = create_kv_docstore(LocalFileStore(self._folder / "parents"))
        saved.mset(list(self._docstore.store.items()))

    def stored_bytes(self) -> int:
        return folder_bytes(self._folder)

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        self._retriever.search_kwargs = {"k": candidates}
        return [
            FoundPassage(parent.metadata[ID], parent.page_content, parent.metadata["start_index"])
            for parent in self._retriever.invoke(query.text)[:limit]
        ]

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        pass

    def _leaves(self, documents: Sequence[Text]) -> list[Document]:
        parents = self._parents.split_documents(_converted(documents))
        return self._children.split_documents(parents)


class LangChainHybrid(LangChain):
    """The same leaves, found by BM25 and by FAISS, fused by reciprocal rank.

    It returns the leaves themselves.
    """

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        seconds, leaves = timed(lambda: self._build(documents, vectors))
        return Indexed(leaves, seconds)

    def _build(self, documents: Sequence[Text], vectors: Vectors) -> int:
        leaves = self._leaves(documents)
        self._store = _exact_store(vectors)
        self._store.add_documents(leaves)
        self._bm25 = BM25Retriever.from_documents(leaves)
        return len(leaves)

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        self._bm25.k = candidates
        nearest = self._store.as_retriever(search_kwargs={"k": candidates})
        ensemble = EnsembleRetriever(retrievers=[self._bm25, nearest], weights=[0.5, 0.5])
        # The start of a leaf is relative to its parent, which is not known here.
        return [
            FoundPassage(leaf.metadata[ID], leaf.page_content)
            for leaf in ensemble.invoke(query.text)[:limit]
        ]


def vector_store(vectors: Vectors, index: faiss.Index) -> FAISS:
    """Returns an empty store over an empty index."""
    return FAISS(_StoredVectors(vectors), index, InMemoryDocstore(), {})


def _exact_store(vectors: Vectors) -> FAISS:
    return vector_store(vectors, faiss.IndexFlatL2(DIMENSION))


def _splitter(size: int) -> RecursiveCharacterTextSplitter:
    return RecursiveCharacterTextSplitter.from_tiktoken_encoder(
        encoding_name="cl100k_base",
        chunk_size=size,
        chunk_overlap=0,
        separators=_SEPARATORS,
        add_start_index=True,
    )


def _converted(documents: Sequence[Text]) -> list[Document]:
    return [
        Document(page_content=document.text, metadata={ID: document.document_id})
        for document in documents
    ]

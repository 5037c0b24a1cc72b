"""LangChain's ParentDocumentRetriever over FAISS and a store in memory."""

import os
from collections.abc import Sequence
from pathlib import Path

import faiss
from langchain_classic.retrievers import ParentDocumentRetriever
from langchain_classic.storage import InMemoryStore, LocalFileStore, create_kv_docstore
from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_text_splitters import RecursiveCharacterTextSplitter

from benchmarks.peers.peer import LEAF_TOKENS, PARENT_TOKENS, Found, Indexed, Query, Text
from benchmarks.peers.timing import folder_bytes, timed
from benchmarks.peers.vectors import DIMENSION, Vectors

# The splitter's default separators, then those that its documentation lists for languages
# without spaces between words, so that English is cut as by default.
_SEPARATORS = ["\n\n", "\n", " ", ".", ",", "\u200b", "\uff0c", "\u3001", "\uff0e", "\u3002", ""]


class _StoredVectors(Embeddings):
    """Looks vectors up by text."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._vectors.of(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        return self._vectors.list_of(text)


class LangChain:
    """Parents of 1,024 tokens, children of 256, cut within their parents."""

    def __init__(self, folder: Path) -> None:
        """Saves to `folder`."""
        self._folder = folder
        self._parents = _splitter(PARENT_TOKENS)
        self._children = _splitter(LEAF_TOKENS)

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        parents = self._parents.split_documents(_converted(documents))
        return [child.page_content for child in self._children.split_documents(parents)]

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        self._store = FAISS(
            _StoredVectors(vectors), faiss.IndexFlatL2(DIMENSION), InMemoryDocstore(), {}
        )
        self._docstore = InMemoryStore()
        self._retriever = ParentDocumentRetriever(
            vectorstore=self._store,
            docstore=self._docstore,
            child_splitter=self._children,
            parent_splitter=self._parents,
        )
        seconds, _ = timed(lambda: self._retriever.add_documents(_converted(documents)))
        return Indexed(self._store.index.ntotal, seconds)

    def save(self) -> None:
        self._store.save_local(str(self._folder / "children"))
        saved = create_kv_docstore(LocalFileStore(self._folder / "parents"))
        saved.mset(list(self._docstore.store.items()))

    def stored_bytes(self) -> int:
        return folder_bytes(self._folder)

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        self._retriever.search_kwargs = {"k": candidates}
        return [
            Found(each.metadata["document_id"], each.page_content, each.metadata["start_index"])
            for each in self._retriever.invoke(query.text)[:limit]
        ]

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        pass


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
        Document(page_content=each.text, metadata={"document_id": each.document_id})
        for each in documents
    ]

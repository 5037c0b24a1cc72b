"""LlamaIndex's retrievers over FAISS: one merges leaves, one is fused with BM25."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import Stemmer
from llama_index.core import Document, Settings, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import HierarchicalNodeParser, get_leaf_nodes
from llama_index.core.retrievers import AutoMergingRetriever, QueryFusionRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index.vector_stores.faiss import FaissVectorStore

from benchmarks.peers.peer import (
    LEAF_TOKENS,
    MIDDLE_TOKENS,
    PARENT_TOKENS,
    FoundPassage,
    Indexed,
    Query,
    Text,
)
from benchmarks.peers.timing import folder_bytes, timed
from benchmarks.peers.vectors import DIMENSION, Vectors
from hrag.text.tokens import encoding

ID = "document_id"
_SIZES = [PARENT_TOKENS, MIDDLE_TOKENS, LEAF_TOKENS]


class _StoredVectors(BaseEmbedding):
    """An embedder that looks up vectors by text."""

    _vectors: Vectors = PrivateAttr()

    def __init__(self, vectors: Vectors, **settings: Any) -> None:
        super().__init__(**settings)
        self._vectors = vectors

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._vectors.rows_of(texts).tolist()
        return rows

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._vectors.list_of(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vectors.list_of(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._vectors.list_of(query)


class LlamaIndex:
    """The peer of AutoMergingRetriever.

    Leaves of 256 tokens are merged into nodes of 512 and of 1,024 if over half of a parent matched.
    """

    def __init__(self, folder: Path) -> None:
        """Creates the peer. `save` writes to `folder`."""
        self._folder = folder
        Settings.tokenizer = encoding().encode_ordinary
        self._parser = HierarchicalNodeParser.from_defaults(chunk_sizes=_SIZES)

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        leaves = get_leaf_nodes(self._nodes(documents))
        return [leaf.get_content(metadata_mode=MetadataMode.EMBED) for leaf in leaves]

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        seconds, leaves = timed(lambda: self._build(documents, vectors))
        return Indexed(leaves, seconds)

    def save(self) -> None:
        self._storage.persist(persist_dir=str(self._folder))

    def stored_bytes(self) -> int:
        return folder_bytes(self._folder)

    def _build(self, documents: Sequence[Text], vectors: Vectors) -> int:
        nodes = self._nodes(documents)
        leaves = get_leaf_nodes(nodes)
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes)
        self._create(docstore, faiss.IndexFlatIP(DIMENSION), leaves, vectors)
        return len(leaves)

    def _create(
        self,
        docstore: SimpleDocumentStore,
        index: faiss.Index,
        leaves: Sequence[BaseNode],
        vectors: Vectors,
    ) -> None:
        """Creates the index.

        The metric of `index` must be the inner product. LlamaIndex puts the highest value first, so
        with distances the worst leaf would come first.
        """
        store = FaissVectorStore(faiss_index=index)
        self._storage = StorageContext.from_defaults(docstore=docstore, vector_store=store)
        embedder = _StoredVectors(vectors, embed_batch_size=2048)
        self._index = VectorStoreIndex(leaves, storage_context=self._storage, embed_model=embedder)

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        nearest = self._index.as_retriever(similarity_top_k=candidates)
        merging = AutoMergingRetriever(nearest, self._storage)
        bundle = QueryBundle(query.text, embedding=query.numbers)
        return _passages(merging.retrieve(bundle)[:limit])

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        pass

    def _nodes(self, documents: Sequence[Text]) -> list[BaseNode]:
        return self._parser.get_nodes_from_documents(list(map(_converted, documents)))


class LlamaIndexHybrid(LlamaIndex):
    """The same leaves, found by BM25 and by FAISS, fused by reciprocal rank.

    It returns the leaves themselves.
    """

    def _build(self, documents: Sequence[Text], vectors: Vectors) -> int:
        count = super()._build(documents, vectors)
        leaves = get_leaf_nodes(list(self._storage.docstore.docs.values()))
        stemmer = Stemmer.Stemmer("english")
        self._bm25 = BM25Retriever.from_defaults(nodes=leaves, stemmer=stemmer, language="english")
        return count

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        # A search of bm25s fails if it asks for more leaves than there are.
        self._bm25.similarity_top_k = min(candidates, len(self._bm25.corpus))
        fusion = QueryFusionRetriever(
            [self._index.as_retriever(similarity_top_k=candidates), self._bm25],
            # The model is never called, because the only query is the question itself.
            llm=MockLLM(),
            num_queries=1,
            mode="reciprocal_rerank",
            similarity_top_k=limit,
            use_async=False,
        )
        return _passages(fusion.retrieve(QueryBundle(query.text, embedding=query.numbers)))


def _passages(nodes: Sequence[NodeWithScore]) -> list[FoundPassage]:
    return [FoundPassage(scored.node.metadata[ID], scored.node.get_content()) for scored in nodes]


def _converted(document: Text) -> Document:
    """Returns a document whose id is neither embedded nor counted as tokens."""
    return Document(
        text=document.text,
        metadata={ID: document.document_id},
        excluded_embed_metadata_keys=[ID],
        excluded_llm_metadata_keys=[ID],
    )

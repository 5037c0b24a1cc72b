"""LlamaIndex's AutoMergingRetriever over FAISS's HNSW index, with nodes that are already cut."""

from itertools import pairwise

import faiss
from llama_index.core.schema import NodeRelationship, QueryBundle, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from benchmarks.peers import trees
from benchmarks.peers.llama_index import ID, LlamaIndex
from benchmarks.peers.peer import Query
from benchmarks.peers.scale.corpus import CutText, SeededCorpus
from benchmarks.peers.scale.faiss_index import hnsw
from benchmarks.peers.scale.peer import CANDIDATES, EFS, Library
from benchmarks.peers.timing import timed

_ROW = "row"


class LlamaIndexLeaves(Library, LlamaIndex):
    """The peer of LlamaIndex.

    All nodes are in the docstore; leaves with embeddings are in the index.
    """

    efs = EFS

    def index_leaves(self, corpus: SeededCorpus) -> float:
        self._graph = hnsw(faiss.METRIC_INNER_PRODUCT)
        self._create(SimpleDocumentStore(), self._graph, [], corpus.query_vectors())
        seconds, _ = timed(lambda: self._add_all(corpus))
        return seconds

    def _add_all(self, corpus: SeededCorpus) -> None:
        for document in corpus:
            levels = nodes_of(document)
            leaves, *above = levels
            for nodes in above:
                self._storage.docstore.add_documents(nodes)
            for number, (leaf, row) in enumerate(
                zip(leaves, document.vectors.tolist(), strict=True)
            ):
                leaf.embedding = row
                leaf.metadata[_ROW] = document.first_row + number
            self._index.insert_nodes(leaves)

    def set_ef(self, ef: int) -> None:
        self._graph.hnsw.efSearch = ef

    def nearest(self, query: Query) -> list[int]:
        bundle = QueryBundle(query.text, embedding=query.numbers)
        leaves = self._index.as_retriever(similarity_top_k=CANDIDATES).retrieve(bundle)
        return [leaf.node.metadata[_ROW] for leaf in leaves[:10]]


def nodes_of(document: CutText) -> list[list[TextNode]]:
    """Returns the nodes of each level, from leaves to parents.

    Their relationships are those that LlamaIndex's parser creates.
    """
    first, last = trees.TREE.embedding_level, trees.PARENT_LEVEL
    cut = [
        trees.pieces(document.tree, level, min(level + 1, last)) for level in range(first, last + 1)
    ]
    levels = [
        [
            TextNode(
                id_=f"{document.document_id}.{level}.{number}",
                text=document.text[piece.start : piece.end],
                metadata={ID: document.document_id},
                excluded_embed_metadata_keys=[ID, _ROW],
                excluded_llm_metadata_keys=[ID, _ROW],
            )
            for number, piece in enumerate(pieces)
        ]
        for level, pieces in enumerate(cut, first)
    ]
    for (pieces, _), (nodes, parents) in zip(pairwise(cut), pairwise(levels), strict=True):
        for piece, node in zip(pieces, nodes, strict=True):
            _relate(node, parents[piece.parent])
    return levels


def _relate(node: TextNode, parent: TextNode) -> None:
    children = parent.relationships.setdefault(NodeRelationship.CHILD, [])
    children.append(node.as_related_node_info())
    node.relationships[NodeRelationship.PARENT] = parent.as_related_node_info()

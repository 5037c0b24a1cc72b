"""Compares lexical and hybrid search with dense search, and measures the lexical index's size.

Every document has different words, as frequent as in English (`benchmarks.zipf`). All leaves are in
one segment. A question consists of some consecutive words of a document. Its vector is near another
leaf. So nothing is embedded, and the two sources find different leaves, which is the most work for
their fusion. Searches are through gRPC with default settings: 200 candidates of each source.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import Report, interleaved, interleaved_ms, ratio, seconds
from hrag.cli.processes import RETRIEVER
from hrag.client.calls import channel_options
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.sources.lexical_source import LexicalSource, lexical_query
from hrag.text.analysis import analyzer
from hrag.types import DEFAULT_CANDIDATES, DEFAULT_LIMIT, Retrieval, SearchQuery
from hrag.v1 import retriever_pb2 as pb
from hrag.wire.retriever import search_request
from tests.support.servers.processes import started

LEAVES = 100_000
FULL_LEAVES = 1_000_000
LEAVES_EACH = 100
DIMENSION = 384
SEED = 103
QUERIES = 500
ROUNDS = 1000
MAX_HYBRID_RATIO = 2.0
MAX_SIZE_RATIO = 0.45
METHOD = "/hrag.v1.RetrieverService/Search"
RETRIEVALS = (Retrieval.DENSE, Retrieval.HYBRID, Retrieval.LEXICAL)

pytestmark = pytest.mark.timeout(3600)


@dataclass(frozen=True, slots=True)
class Filled:
    """A store with one segment, and its queries.

    The text of a query comes from one leaf, and its vector is near another leaf.
    """

    folder: Path
    planned: int
    # The count of leaves: a few more than planned, because documents are stored whole.
    leaves: int
    texts: list[str]
    vectors: list[list[float]]

    def __str__(self) -> str:
        return f"{self.leaves:,} x {DIMENSION}"

    def requests(self, retrieval: Retrieval) -> list[bytes]:
        """Returns the encoded requests of all queries."""
        searches = [
            SearchQuery(corpus.TENANT, text, corpus.COLLECTION, vector=vector, retrieval=retrieval)
            for text, vector in zip(self.texts, self.vectors, strict=True)
        ]
        return [search_request(search).SerializeToString() for search in searches]


@pytest.fixture(scope="module", params=[LEAVES, pytest.param(FULL_LEAVES, marks=pytest.mark.full)])
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    planned: int = request.param
    with TemporaryDirectory() as name:
        folder = Path(name) / "store"
        vectors = corpus.fill(
            folder, planned, LEAVES_EACH, DIMENSION, SEED, sealed=True, varied=True
        )
        yield Filled(
            folder,
            planned,
            len(vectors),
            corpus.questions(planned, LEAVES_EACH, SEED, QUERIES),
            corpus.queries_near(vectors, QUERIES, SEED + 2).tolist(),
        )


def test_hybrid_beside_dense_search(filled: Filled, report: Report) -> None:
    """Times round trips of a raw channel. Encoding and decoding of messages is not timed."""
    settings = {"HRAG_EMBEDDER": f"hash:{DIMENSION}", "HRAG_LOG_LEVEL": "info"}
    requests = {retrieval: filled.requests(retrieval) for retrieval in RETRIEVALS}
    with started(RETRIEVER, filled.folder, settings) as retriever:
        retriever.wait_until_serving()
        address = retriever.address
        with grpc.insecure_channel(address, channel_options(address)) as channel:
            send = channel.unary_unary(METHOD)
            for retrieval, encoded in requests.items():
                check(pb.SearchResponse.FromString(send(encoded[0], timeout=60)), retrieval)

            def search(retrieval: Retrieval, number: int) -> float:
                # The searches of a round have different queries. An equal query would find its data
                # in the processor's caches.
                query = number + RETRIEVALS.index(retrieval) * QUERIES // len(RETRIEVALS)
                request = requests[retrieval][query % QUERIES]
                return seconds(lambda: send(request, timeout=60))

            measures = [partial(search, retrieval) for retrieval in RETRIEVALS]
            interleaved(measures, QUERIES)  # This is the warm-up.
            took = interleaved(measures, ROUNDS) * 1e3
    report.parameters(seed=SEED, leaves=filled.leaves, dimension=DIMENSION)
    key, description = f"hybrid.{filled.planned}", f"search through gRPC, {filled}, text and vector"
    for column, retrieval in enumerate(RETRIEVALS):
        report.percentiles(f"{key}.{retrieval}", took[:, column], f"{description}, {retrieval}")
    hybrid = RETRIEVALS.index(Retrieval.HYBRID)
    figure = ratio(took, hybrid, RETRIEVALS.index(Retrieval.DENSE))
    description = f"{description}, hybrid, ratio to dense, p50"
    report.at_most(f"{key}.ratio_to_dense", figure, description, "x", MAX_HYBRID_RATIO)
    assert report.missed == []


def check(response: pb.SearchResponse, retrieval: Retrieval) -> None:
    """Asserts that the search had this retrieval and returned DEFAULT_LIMIT passages."""
    assert pb.Retrieval.Name(response.retrieval) == f"RETRIEVAL_{retrieval.name}"
    assert not response.fallback
    assert len(response.passages) == DEFAULT_LIMIT


def test_lexical_source_alone(filled: Filled, report: Report) -> None:
    """Times the way from a question's terms to candidates, in one thread. There is no target."""
    source, english = LexicalSource(), analyzer(corpus.ANALYZER)
    terms = [english.query_terms(text) for text in filled.texts]
    with corpus.view(filled.folder) as view:
        eligible = EligibleRows(view)

        def search(number: int) -> int:
            query = lexical_query(terms[number % QUERIES], view)
            return len(source.candidates(query, eligible, DEFAULT_CANDIDATES))

        assert any(map(search, range(QUERIES)))
        took = interleaved_ms([search], 0, ROUNDS)[:, 0]
    report.parameters(seed=SEED, leaves=filled.leaves)
    mean_terms = np.mean([len(query_terms) for query_terms in terms])
    description = (
        f"lexical source in process, {filled.leaves:,} leaves, {mean_terms:.1f} terms a query"
    )
    report.percentiles(f"lexical.source.{filled.planned}", took, description)


def test_size_of_the_lexical_index(filled: Filled, report: Report) -> None:
    """Compares the size of the index with the text. The index also contains the headings."""
    size_bytes = corpus.lexical_bytes(filled.folder, filled.leaves)
    with corpus.engine(filled.folder) as engine:
        text_bytes = engine.writer().totals().text_bytes
    report.parameters(seed=SEED, leaves=filled.leaves)
    description = f"lexical index on disk, ratio to text, {filled.leaves:,} leaves"
    key = f"lexical.size.{filled.planned}.ratio_to_text"
    report.at_most(key, size_bytes / text_bytes, description, "x", MAX_SIZE_RATIO)
    assert report.missed == []

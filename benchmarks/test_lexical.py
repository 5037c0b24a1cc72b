"""Search by words and by both sources, compared with dense search; and the size of the index.

Every document has words of its own, as frequent as in English (`benchmarks.zipf`), all in one
segment. A question is some consecutive words of a document, and comes with a vector near some
other leaf: nothing is embedded, and both sources find different leaves, which is most work for
their fusion. Through gRPC with default settings: 200 candidates of each source.
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
    """A store with one segment, and its queries: texts, and vectors that belong to others."""

    folder: Path
    planned: int
    leaves: int  # A few more than planned, since documents are whole.
    texts: list[str]
    vectors: list[list[float]]

    def __str__(self) -> str:
        return f"{self.leaves:,} x {DIMENSION}"

    def requests(self, retrieval: Retrieval) -> list[bytes]:
        """Returns the encoded requests."""
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
    """The round trip of a raw channel; messages are encoded and decoded outside of it."""
    settings = {"HRAG_EMBEDDER": f"hash:{DIMENSION}", "HRAG_LOG_LEVEL": "info"}
    requests = {each: filled.requests(each) for each in RETRIEVALS}
    with started(RETRIEVER, filled.folder, settings) as retriever:
        retriever.wait_until_serving()
        address = retriever.address
        with grpc.insecure_channel(address, channel_options(address)) as channel:
            send = channel.unary_unary(METHOD)
            for retrieval, own in requests.items():
                check(pb.SearchResponse.FromString(send(own[0], timeout=60)), retrieval)

            def search(retrieval: Retrieval, number: int) -> float:
                # No two of a round have the same query: the second would meet warm caches.
                place = number + RETRIEVALS.index(retrieval) * QUERIES // len(RETRIEVALS)
                request = requests[retrieval][place % QUERIES]
                return seconds(lambda: send(request, timeout=60))

            measures = [partial(search, each) for each in RETRIEVALS]
            interleaved(measures, QUERIES)  # The warm-up.
            took = interleaved(measures, ROUNDS) * 1e3
    report.parameters(seed=SEED, leaves=filled.leaves, dimension=DIMENSION)
    key, what = f"hybrid.{filled.planned}", f"search through gRPC, {filled}, text and vector"
    for place, retrieval in enumerate(RETRIEVALS):
        report.percentiles(f"{key}.{retrieval}", took[:, place], f"{what}, {retrieval}")
    of = RETRIEVALS.index(Retrieval.HYBRID)
    figure = ratio(took, of, RETRIEVALS.index(Retrieval.DENSE))
    what = f"{what}, hybrid, ratio to dense, p50"
    report.at_most(f"{key}.ratio_to_dense", figure, what, "x", MAX_HYBRID_RATIO)
    assert report.missed == []


def check(response: pb.SearchResponse, retrieval: Retrieval) -> None:
    """Asserts that a search did what its figure says."""
    assert pb.Retrieval.Name(response.retrieval) == f"RETRIEVAL_{retrieval.name}"
    assert not response.fallback
    assert len(response.passages) == DEFAULT_LIMIT


def test_lexical_source_alone(filled: Filled, report: Report) -> None:
    """Reported: from the terms of a question to candidates, in one thread."""
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
    each = np.mean([len(own) for own in terms])
    what = f"lexical source in process, {filled.leaves:,} leaves, {each:.1f} terms a query"
    report.percentiles(f"lexical.source.{filled.planned}", took, what)


def test_size_of_the_lexical_index(filled: Filled, report: Report) -> None:
    """Headings are indexed too, which are not in the text."""
    size_bytes = corpus.lexical_bytes(filled.folder, filled.leaves)
    with corpus.engine(filled.folder) as engine:
        text_bytes = engine.writer().totals().text_bytes
    report.parameters(seed=SEED, leaves=filled.leaves)
    what = f"lexical index on disk, ratio to text, {filled.leaves:,} leaves"
    key = f"lexical.size.{filled.planned}.ratio_to_text"
    report.at_most(key, size_bytes / text_bytes, what, "x", MAX_SIZE_RATIO)
    assert report.missed == []

"""hrag's services through gRPC, with one and with two workers, searched by h2load."""

from pathlib import Path
from typing import ClassVar

from benchmarks.corpus import COLLECTION, TENANT
from benchmarks.load.body import framed
from benchmarks.peers.peer import Query
from benchmarks.peers.scale.hrag_itself import OverGrpcLeaves
from benchmarks.peers.scale.peer import CANDIDATES, LIMIT
from benchmarks.peers.servers.senders import Sender, h2load_sender, require_h2load
from benchmarks.peers.servers.server import CALLERS_EACH, DIMENSION
from hrag.types import SearchQuery
from hrag.wire.retriever import search_request

_METHOD = "hrag.v1.RetrieverService/Search"
_HEADERS = ("content-type: application/grpc", "te: trailers")


class OneWorker(OverGrpcLeaves):
    """Both services. The retriever has one process."""

    settings: ClassVar = {"HRAG_EMBEDDER": f"hash:{DIMENSION}", "HRAG_WORKERS": "1"}
    graph = "M 16, ef_construction 200"

    def __init__(self, folder: Path) -> None:
        require_h2load()
        super().__init__(folder)

    def sender(self, query: Query, folder: Path, seconds: int, per_second: float) -> Sender:
        del per_second
        passages = self.search(query, CANDIDATES, LIMIT)
        search = SearchQuery(TENANT, query.numbers, COLLECTION, limit=LIMIT, candidates=CANDIDATES)
        return h2load_sender(
            f"http://{self._addresses[1]}/{_METHOD}",
            _HEADERS,
            framed(search_request(search).SerializeToString()),
            folder=folder,
            callers=CALLERS_EACH,
            seconds=seconds,
            reply_bytes=sum(len(passage.text) for passage in passages),
        )


class TwoWorkers(OneWorker):
    """The same with two processes of the retriever, which listen on the same port."""

    settings: ClassVar = {**OneWorker.settings, "HRAG_WORKERS": "2"}

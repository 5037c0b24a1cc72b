"""A call is checked, admitted, counted and answered with few function calls of Python."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hrag.v1 import retriever_pb2 as pb
from hrag.v1 import retriever_pb2_grpc
from tests.support.servers.credentials import TENANT
from tests.support.servers.servers import connected

_CALLS = 20
# Each function call of Python takes about 0.1 us, and its thread holds the interpreter lock
# meanwhile. A search of half a millisecond must not spend more than a few per cent around itself.
_MAX_FUNCTION_CALLS = 100
_COUNTED = ("hrag.", "prometheus_client.")


class _Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    """Answers each search with an empty response."""

    def Search(self, request: pb.SearchRequest, context: Any) -> bytes:
        return b""


@contextmanager
def _counted_function_calls() -> Iterator[Counter[str]]:
    """Counts the function calls of threads that start in the block, by the function's name.

    Only functions of hrag and of prometheus_client are counted.
    """
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_globals["__name__"].startswith(_COUNTED):
            counts[frame.f_code.co_qualname] += 1

    before = threading.getprofile()
    threading.setprofile(count)
    try:
        yield counts
    finally:
        threading.setprofile(before)


def test_few_functions_are_called_around_a_search() -> None:
    with _counted_function_calls() as counts, connected(_Retriever()) as channel:
        search = retriever_pb2_grpc.RetrieverServiceStub(channel).Search
        search(pb.SearchRequest(tenant_id=TENANT), timeout=60)
        before = counts.total()
        for _ in range(_CALLS):
            search(pb.SearchRequest(tenant_id=TENANT), timeout=60)
        function_calls = (counts.total() - before) / _CALLS
    assert 20 < function_calls < _MAX_FUNCTION_CALLS, counts.most_common()

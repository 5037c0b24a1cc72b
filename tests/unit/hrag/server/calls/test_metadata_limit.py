"""A call with too many metadata pairs is rejected before anything reads the pairs."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import pytest

from hrag.observe import metrics
from hrag.server.calls.metadata_limit import MetadataLimiter
from hrag.values.limits import MAX_CALL_METADATA_PAIRS
from tests.support.methods import servicer_of
from tests.support.servers.servers import RETRIEVER, connected

_SEARCH = "/hrag.v1.RetrieverService/Search"
_PAIR = ("a", "b")


class _UnreadablePairs(tuple[tuple[str, str], ...]):
    """Metadata that only tells how many pairs it has."""

    __slots__ = ()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        raise AssertionError("the pairs were read")

    def __getitem__(self, _index: Any) -> NoReturn:
        raise AssertionError("the pairs were read")


def _call(pairs: int) -> Any:
    metadata = _UnreadablePairs([_PAIR] * pairs)
    return SimpleNamespace(method=_SEARCH, invocation_metadata=metadata)


def test_only_a_call_with_few_pairs_reaches_the_next_interceptor() -> None:
    limits: Any = SimpleNamespace(rates=None)
    limiter = MetadataLimiter(limits)
    assert limiter.intercept_service(lambda _: "next", _call(MAX_CALL_METADATA_PAIRS)) == "next"
    for pairs in (MAX_CALL_METADATA_PAIRS + 1, 100 * MAX_CALL_METADATA_PAIRS):
        handler = limiter.intercept_service(lambda _: "next", _call(pairs))
        assert isinstance(handler, grpc.RpcMethodHandler)


def _rejections(method: str) -> float:
    labels = {"method": method, "code": "INVALID_ARGUMENT"}
    return metrics.INSTRUMENTS.get_sample_value("hrag_calls_total", labels) or 0.0


@pytest.mark.parametrize(
    ("method", "label"), [(_SEARCH, "Search"), ("/hrag.v1.NoService/NoMethod", "unknown")]
)
def test_a_rejection_names_the_numbers_and_is_counted(method: str, label: str) -> None:
    """A name that a caller chose must not become a label of a metric."""
    before = _rejections(label)
    with connected(servicer_of(RETRIEVER)) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method)(b"", metadata=[_PAIR] * 150, timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    # grpcio adds the pair `user-agent`.
    assert "151 metadata pairs; 128 are allowed" in caught.value.details()
    assert _rejections(label) == before + 1

"""The fuzzer detects failures, and a seed determines its messages."""

import random
import threading
from collections import Counter
from typing import Any

import grpc
import pytest

from hrag.errors import DocumentChanged
from hrag.v1 import retriever_pb2 as pb
from hrag.v1 import retriever_pb2_grpc
from tests.fuzz.calls import CALLS, DEADLINE_S, Caller, promised
from tests.fuzz.messages import Messages, parts, readable
from tests.fuzz.world import NAMES, SECRET, seeds
from tests.support.servers.servers import connected

_SEARCH = "/hrag.v1.RetrieverService/Search"
_CODE = grpc.StatusCode


class Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    """A retriever that fails in the way that the text of a search names."""

    def Search(self, request: pb.SearchRequest, context: Any) -> pb.SearchResponse:
        if "fault" in request.text:
            raise RuntimeError("a fault")
        if "changed" in request.text:
            raise DocumentChanged("it is another version")
        if "slow" in request.text:
            # The call lasts until its caller leaves.
            ended = threading.Event()
            context.add_callback(ended.set)
            ended.wait(DEADLINE_S)
        summary = SECRET if "secret" in request.text else ""
        return pb.SearchResponse(sections=[pb.ChosenSection(summary=summary)])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("well", ""),
        ("fault", "ended with INTERNAL"),
        ("changed", "ended with ABORTED"),
        ("slow", "had not ended after "),
        ("secret", f"revealed {SECRET}"),
    ],
)
def test_failures_are_detected_and_minimised(text: str, problem: str) -> None:
    deadline_s, shrinking_s = (0.3, 3.0) if text == "slow" else (DEADLINE_S, DEADLINE_S)
    request = pb.SearchRequest(tenant_id="some", text=text, limit=3)
    with connected(Retriever()) as channel:
        caller = Caller(channel, _SEARCH, "key", deadline_s, shrinking_s)
        outcome = caller.send((request.SerializeToString(),))
        assert caller.problem(outcome).startswith(problem)
        assert bool(caller.problem(outcome)) == bool(problem)
        smallest = caller.smallest(outcome) if problem else outcome
    assert caller.problem(smallest).startswith(problem)
    if text in ("fault", "changed", "secret"):
        assert readable(caller.method.input_type, smallest.sent[0]) == pb.SearchRequest(text=text)


def test_the_promised_codes_of_each_method_are_read_from_the_protos() -> None:
    assert _CODE.NOT_FOUND in promised(CALLS[_SEARCH])
    assert _CODE.NOT_FOUND in promised(CALLS["/hrag.v1.RetrieverService/Answer"])
    assert _CODE.NOT_FOUND not in promised(CALLS["/hrag.v1.IndexerService/CreateCollection"])
    assert _CODE.ALREADY_EXISTS in promised(CALLS["/hrag.v1.IndexerService/CreateCollection"])
    assert all(_CODE.INTERNAL not in promised(method) for method in CALLS.values())


@pytest.mark.parametrize("path", CALLS)
def test_messages_are_valid_and_invalid_and_the_same_for_the_same_seed(path: str) -> None:
    kind = CALLS[path].input_type
    messages = Messages(kind, seeds()[kind], NAMES)
    first, second = (
        [messages.message(draw) for _ in range(300)] for draw in map(random.Random, (7, 7))
    )
    assert first == second
    read = Counter(readable(kind, raw) is not None for raw in first)
    assert min(read[True], read[False]) > 15


def test_filters_and_metadata_have_every_kind_and_are_sometimes_too_deep() -> None:
    kinds: set[str | None] = set()
    read, too_deep = 0, 0
    for path in (_SEARCH, "/hrag.v1.IndexerService/IngestDocument"):
        kind = CALLS[path].input_type
        messages, draw = Messages(kind, seeds()[kind], NAMES), random.Random(1)
        for raw in (messages.message(draw) for _ in range(1500)):
            message = readable(kind, raw)
            read += message is not None
            too_deep += b"\x0a\x02\x0a\x00" in raw and message is None
            kinds |= {
                part.WhichOneof("kind")
                for part in (parts(message) if message else ())
                if "kind" in part.DESCRIPTOR.oneofs_by_name
            }
    assert {"all_of", "any_of", "none_of", "match", "range", "exists"} <= kinds
    values = ("null_value", "number_value", "string_value", "bool_value")
    assert {*values, "struct_value", "list_value"} <= kinds
    assert too_deep > 10
    assert read > 1500

"""Reflection answers only who has a credential, and no request to it breaks the service."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2 as pb
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from hrag.cli.processes import INDEXER
from tests.attacks.observed import health_s, memory_bytes
from tests.attacks.world import REFLECTION
from tests.support.servers.credentials import new_key
from tests.support.servers.processes import FAST, Process, started

pytestmark = pytest.mark.attacks

_MIB = 1 << 20
_NO_TYPE = pb.ExtensionRequest(containing_type="no.Type", extension_number=-1)
_NO_EXTENSION = pb.ExtensionRequest(
    containing_type="google.protobuf.MethodOptions", extension_number=2**31 - 1
)
_MISUSES = [
    pb.ServerReflectionRequest(),
    pb.ServerReflectionRequest(host="\0" * 1000, list_services="\0"),
    pb.ServerReflectionRequest(file_by_filename=""),
    pb.ServerReflectionRequest(file_by_filename="../../etc/passwd"),
    pb.ServerReflectionRequest(file_by_filename="\U0010ffff" * 1000),
    pb.ServerReflectionRequest(file_containing_symbol="."),
    pb.ServerReflectionRequest(file_containing_symbol="a." * 50_000),
    pb.ServerReflectionRequest(file_containing_symbol="hrag.v1\0.IndexerService"),
    pb.ServerReflectionRequest(file_containing_extension=_NO_TYPE),
    pb.ServerReflectionRequest(file_containing_extension=_NO_EXTENSION),
    pb.ServerReflectionRequest(all_extension_numbers_of_type=""),
    pb.ServerReflectionRequest(all_extension_numbers_of_type="x" * 100_000),
]


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def key(key_file: Path) -> str:
    return new_key(key_file)


@pytest.fixture(scope="module")
def indexer(
    key: str,
    key_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
    _no_settings_from_outside: None,
) -> Iterator[Process]:
    settings = {**FAST, "HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(key_file)}
    with started(INDEXER, tmp_path_factory.mktemp("reflection") / "store", settings) as process:
        process.wait_until_serving()
        yield process


def _ask(
    indexer: Process, key: str, requests: list[pb.ServerReflectionRequest]
) -> list[pb.ServerReflectionResponse]:
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    with grpc.insecure_channel(indexer.address) as channel:
        info = ServerReflectionStub(channel).ServerReflectionInfo
        return list(info(iter(requests), metadata=metadata, timeout=60))


def test_reflection_needs_a_credential(indexer: Process) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        _ask(indexer, "", [pb.ServerReflectionRequest(list_services="")])
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_misused_reflection_answers_with_an_error_and_the_stream_goes_on(
    indexer: Process, key: str
) -> None:
    last = pb.ServerReflectionRequest(list_services="")
    *answers, listed = _ask(indexer, key, [*_MISUSES, last])
    assert len(answers) == len(_MISUSES)
    for request, answer in zip(_MISUSES, answers, strict=True):
        assert answer.HasField("error_response") or request.host
    assert "hrag.v1.IndexerService" in {
        service.name for service in listed.list_services_response.service
    }
    assert "internal_error" not in indexer.log


def test_bytes_that_are_no_reflection_request_end_only_their_stream(
    indexer: Process, key: str
) -> None:
    for raw in (b"\xff" * 100, b"\x1a\xff\xff\xff\xff\x0f", b"\x1a\x01\xff"):
        with grpc.insecure_channel(indexer.address) as channel:
            metadata = (("authorization", f"Bearer {key}"),)
            call = channel.stream_stream(REFLECTION)(iter([raw]), metadata=metadata, timeout=60)
            with pytest.raises(grpc.RpcError) as end:
                list(call)
        assert end.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert health_s(indexer) < 10


def test_many_and_large_requests_for_descriptions_need_little_memory(
    indexer: Process, key: str
) -> None:
    """The description of all messages is large. Its replies wait for the client one at a time."""
    before = memory_bytes(indexer)
    symbol = pb.ServerReflectionRequest(file_containing_symbol="hrag.v1.IndexerService")
    large = pb.ServerReflectionRequest(file_containing_symbol="x" * (2 * _MIB))
    assert len(_ask(indexer, key, [symbol] * 300)) == 300
    assert len(_ask(indexer, key, [large] * 30)) == 30
    assert memory_bytes(indexer) - before < 100 * _MIB

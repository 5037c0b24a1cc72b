"""GetServerInfo says the caller's role, and shows figures of the whole store to admins only."""

from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from hrag.server.auth import Role
from hrag.types import EmbeddedReaderStatus, Limits, ReaderStatus, ServerInfo
from hrag.v1 import retriever_pb2 as pb
from hrag.v1 import retriever_pb2_grpc
from retriever_svc.servicer import RetrieverServicer
from tests.support.servers import credentials
from tests.support.servers.servers import connected

LIMITS = Limits(*range(len(fields(Limits))))
EMBEDDED = ReaderStatus(1.5, EmbeddedReaderStatus(9, 7, 2, 100, 200, 1))


def servicer_of(reader: ReaderStatus) -> RetrieverServicer:
    info = ServerInfo("1", "hash/8", 2, 5, 50, LIMITS, reader, "")
    unused = cast("Any", None)
    return RetrieverServicer(unused, unused, unused, lambda: info)


def call(channel: grpc.Channel, key: str | None = None) -> pb.GetServerInfoResponse:
    metadata = () if key is None else (("authorization", f"Bearer {key}"),)
    stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
    return stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=60, metadata=metadata)


def shown(response: pb.GetServerInfoResponse) -> tuple[int, int] | None:
    """Returns the two sequences of the store in a response, or None if they are left out."""
    if not response.HasField("reader"):
        return None
    embedded = response.reader.embedded
    assert (response.reader.lag_s, embedded.loaded_bytes) == (1.5, 100)
    return embedded.sequence, embedded.applied_sequence


@pytest.mark.parametrize(
    ("role", "expected"), [(Role.READ, None), (Role.WRITE, None), (Role.ADMIN, (9, 7))]
)
def test_figures_of_all_tenants_are_shown_to_admins_only(
    tmp_path: Path, role: Role, expected: tuple[int, int] | None
) -> None:
    path = tmp_path / "keys.json"
    key = credentials.new_key(path, role=role)
    settings = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": path}
    with connected(servicer_of(EMBEDDED), **settings) as channel:
        response = call(channel, key)
    assert (response.role, shown(response)) == (role, expected)


def test_a_thread_does_not_keep_the_role_of_its_previous_caller(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    admin = credentials.new_key(path, role=Role.ADMIN)
    reader = credentials.new_key(path)
    settings = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": path, "HRAG_THREADS": 1}
    with connected(servicer_of(EMBEDDED), **settings) as channel:
        responses = [call(channel, key) for key in (admin, reader, admin, reader)]
    assert [shown(response) for response in responses] == [(9, 7), None, (9, 7), None]
    assert [response.role for response in responses] == ["admin", "read", "admin", "read"]


def test_without_authentication_every_caller_is_an_admin() -> None:
    with connected(servicer_of(EMBEDDED)) as channel:
        response = call(channel)
    assert (response.role, shown(response)) == ("admin", (9, 7))


def test_an_engine_without_figures_of_the_store_shows_none() -> None:
    with connected(servicer_of(ReaderStatus(0.0))) as channel:
        assert not call(channel).reader.HasField("embedded")

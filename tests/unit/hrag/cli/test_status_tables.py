"""`hrag status` divides no word of its tables on a terminal, and prints whole lines in a pipe."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from hrag.cli import status
from hrag.cli.app import app
from hrag.types import (
    Collection,
    CollectionSettings,
    EmbeddedIndexStatus,
    IndexStatus,
    SummaryUnit,
    TreeSettings,
)
from hrag.values.quotas import Quota, TenantUsage
from hrag.values.status import EmbeddedReaderStatus, Limits, ReaderStatus, ServerInfo

_EMBEDDER = "openai/text-embedding-3-small"
_LIMITS = Limits(**dict.fromkeys(Limits.__slots__, 0))
_READER = ReaderStatus(0.0, EmbeddedReaderStatus(9, 9, 2, 10**9, 4 * 10**9, 0))
_USAGE = TenantUsage(2, 1_000_000, 10**12, Quota(max_documents=2_000_000, max_bytes=2 * 10**12))


class _Client:
    """A client of two services with two large collections."""

    def __init__(self, *, is_embedded: bool) -> None:
        self.embedded = EmbeddedIndexStatus(123_456, 9_876, ()) if is_embedded else None

    def index_status(self, tenant: str, *, collection: str) -> IndexStatus:
        sizes = (123_456, 1_000_000, 40_000_000, 31_000_000, 7_130_000_000, 32 * 10**9, 6 * 10**10)
        return IndexStatus(*sizes, 5, 6, 7_000_000, _USAGE, self.embedded)

    def server_info(self) -> ServerInfo:
        return ServerInfo("1.0.0", _EMBEDDER, 2, 10, 100, _LIMITS, _READER, "")


def _collections(*_: object) -> Iterator[Collection]:
    settings = CollectionSettings(TreeSettings(), _EMBEDDER, 1536, analyzer="english/2")
    yield Collection("acme", "handbook", settings)
    summaries = SummaryUnit.SECTION
    with_summaries = CollectionSettings(TreeSettings(), _EMBEDDER, 1536, summaries=summaries)
    yield Collection("acme", "contracts", with_summaries)


@pytest.fixture(params=[True, False], ids=["embedded", "postgres"])
def client(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> _Client:
    client = _Client(is_embedded=request.param)

    @contextmanager
    def connect(*_: object) -> Iterator[_Client]:
        yield client

    monkeypatch.setattr(status, "connect", connect)
    monkeypatch.setattr(status, "all_collections", _collections)
    return client


def _on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width)
    monkeypatch.setattr(status, "output", lambda: console)
    assert CliRunner().invoke(app, ["status"]).exit_code == 0
    return console.file.getvalue().splitlines()


def test_a_terminal_of_80_columns_divides_no_word(client, monkeypatch):
    wide, lines = _on_terminal(monkeypatch, 300), _on_terminal(monkeypatch, 80)
    assert max(map(cell_len, lines)) <= 80
    assert set(" ".join(lines).split()) == set(" ".join(wide).split())
    assert {_EMBEDDER, "7,130,000,000", "english/2", "2048"} <= set(" ".join(lines).split())
    assert ("segments" in " ".join(lines)) == (client.embedded is not None)


def test_a_pipe_gets_tables_with_tabs_and_sentences_on_one_line(client):
    first, *rest = CliRunner().invoke(app, ["status"]).stdout.splitlines()
    assert first.split("\t") == ["collection", "documents", "leaves", "tokens", "text", "vectors"]
    rows = [line.split("\t") for line in rest]
    assert rows[0] == ["handbook", "1000000", "31000000", "7130000000", "32.0 GB", "60.0 GB"]
    sealed = ["123456", "9876", "0"] if client.embedded else []
    assert ["handbook", "123456", *sealed] in rows
    levels = "256, 512, 1024, 2048"
    assert ["handbook", "1536", levels, _EMBEDDER, "english/2"] in rows
    assert ["contracts", "section", "5", "6", "7000000"] in rows
    assert ["handbook", "section", "5", "6", "7000000"] not in rows
    assert rest[-3].startswith("total: 2 collections, 1,000,000 of 2,000,000 documents")
    assert rest[-2].endswith("10 passages from 100 candidates by default")
    assert rest[-1].startswith("collections in memory: 2")

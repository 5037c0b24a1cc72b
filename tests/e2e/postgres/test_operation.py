"""Logs, metrics, status and commands show operators that the store is in PostgreSQL."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hrag.cli.processes import free_addresses
from hrag.types import Document
from tests.support.servers.forked import HRAG, ran
from tests.support.servers.metrics_page import Scrape
from tests.support.servers.postgres_server import PASSWORD
from tests.support.servers.processes import FAST, Running, running
from tests.support.servers.stores import settings_of

pytestmark = pytest.mark.postgres

_METRICS = ("HRAG_INDEXER_METRICS_ADDRESS", "HRAG_RETRIEVER_METRICS_ADDRESS")
_OF_THE_EMBEDDED_ENGINE = ("segment", "tail", "disk", "file_bytes", "applied", "budget", "loaded")


class Operated(NamedTuple):
    """Services, and the metrics of indexer and retriever after a document has been stored."""

    services: Running
    indexed: Scrape
    retrieved: Scrape


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory, _engine: None) -> Iterator[Operated]:
    """Services with metrics, and with a document of the tenant `default`."""
    addresses = dict(zip(_METRICS, free_addresses(2), strict=True))
    folder = tmp_path_factory.mktemp("operated")
    with running(folder / "store", {**FAST, **addresses}) as both:
        both.client.ingest("default", Document("Cats sleep.", "a"))
        yield Operated(both, *map(Scrape, addresses.values()))


def _hrag(services: Running, *arguments: str) -> subprocess.CompletedProcess[str]:
    addresses = {
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
    }
    shown = {"NO_COLOR": "1", "COLUMNS": "200"}
    environment = {**os.environ, **settings_of(services.data_dir), **addresses, **shown}
    return ran(*HRAG, *arguments, environment=environment)


def test_the_log_names_engine_and_database_but_no_password(operated: Operated) -> None:
    for process in (operated.services.indexer, operated.services.retriever):
        (line,) = [line for line in process.log.splitlines() if "store_opened" in line]
        assert "engine=postgres" in line
        assert all(part in line for part in ("host=127.0.0.1", "port=", "dbname=", "user=postgres"))
        assert PASSWORD not in process.log


def test_services_create_no_data_directory(operated: Operated) -> None:
    assert not operated.services.data_dir.exists()


def test_status_shows_documents_and_lag_but_no_segments(operated: Operated) -> None:
    done = _hrag(operated.services, "status")
    assert done.returncode == 0, done.stderr
    assert "no lag" in done.stdout
    assert "1 collection, 1 document" in done.stdout
    assert not any(word in done.stdout for word in ("tail", "segment", "sealed", "in memory"))
    assert operated.services.client.index_status("default").embedded is None


def test_metrics_of_the_embedded_engine_are_missing(operated: Operated) -> None:
    assert operated.indexed.value("hrag_store_documents") == 1
    assert operated.retrieved.value("hrag_reader_lag_seconds") == 0
    for scrape in (operated.indexed, operated.retrieved):
        ours = {name for name in scrape.series if name.startswith(("hrag_store", "hrag_reader"))}
        assert not [name for name in ours if any(w in name for w in _OF_THE_EMBEDDED_ENGINE)]


def test_check_reads_the_database_while_services_run(operated: Operated) -> None:
    done = _hrag(operated.services, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(operated.services.data_dir) not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "means"),
    [
        (("backup", "copy"), "pg_dump"),
        (("restore", "copy"), "pg_restore"),
        (("vacuum",), "VACUUM"),
        (("check", "--repair"), "backup"),
    ],
)
def test_commands_that_the_database_replaces_are_refused_with_its_tool(
    operated: Operated, arguments: tuple[str, ...], means: str
) -> None:
    done = _hrag(operated.services, *arguments)
    assert done.returncode != 0, done.stdout
    warning, audited, error = done.stderr.splitlines()
    assert warning.startswith("warning: HRAG_DATA_DIR, HRAG_DISK_RESERVE_BYTES have no effect")
    assert "dbname=" in audited
    assert str(operated.services.data_dir) not in audited
    assert error.startswith("error: hrag cannot do this for a store in PostgreSQL: ")
    assert means in error


def test_reindex_changes_nothing_if_all_analyzers_are_the_newest(operated: Operated) -> None:
    done = _hrag(operated.services, "reindex")
    assert done.returncode == 0, done.stderr
    assert "reindexed 0 collections" in done.stdout


def test_hrag_serve_needs_no_data_directory(tmp_path: Path, data_dir: Path) -> None:
    settings = {**os.environ, **FAST, **settings_of(data_dir)}
    del settings["HRAG_DATA_DIR"]
    indexer, retriever = free_addresses(2)
    command = [sys.executable, *HRAG, "serve"]
    command += ["--indexer-address", indexer, "--retriever-address", retriever]
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, cwd=tmp_path) as serve:
        assert serve.stdout is not None
        assert any(b"Ctrl-C" in line for line in serve.stdout)
        serve.terminate()
        serve.communicate(timeout=60)
    assert serve.returncode == 0
    assert list(tmp_path.iterdir()) == []

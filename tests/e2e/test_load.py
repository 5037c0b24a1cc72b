"""The tools for load tests work with running services: generator, h2load and ghz's settings."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format

from benchmarks.load import h2load
from hrag.v1 import retriever_pb2

ROOT = Path(__file__).resolve().parent.parent.parent
KIT = ROOT / "benchmarks" / "load"
SMALL = ("--tenants", "3", "--documents", "5", "--words", "60")


def _load(services, command, *options):
    addresses = ("--indexer", services.indexer.address, "--retriever", services.retriever.address)
    return _ran([sys.executable, "-m", "benchmarks.load", command, *addresses, *SMALL, *options])


def _ran(command):
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def filled(services):
    done = _load(services, "fill")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 tenants with 5 documents each are stored\n"
    return services


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_generator_runs_a_mixed_load_of_many_tenants(filled, processes):
    options = ("--rate", "50", "--duration-s", "2", "--write-share", "0.3")
    done = _load(filled, "run", *options, "--processes", processes)
    assert done.returncode == 0, done.stderr
    searches, writes = done.stdout.split("-- searches")[1].split("-- writes")
    counts = [int(re.search(r"(\d+) calls: OK (\d+)\n", part)[2]) for part in (searches, writes)]
    assert sum(counts) == 100
    assert min(counts) >= 15
    assert "p99.99" in searches
    assert "goodput" in writes
    info = filled.client.get_document("load-00000", "document-000000")
    assert info.document_id == "document-000000"


@pytest.mark.slow
def test_failed_calls_are_counted_by_status(filled):
    options = ("--rate", "20", "--duration-s", "1", "--limit", "1001")
    done = _load(filled, "run", *options)
    assert done.returncode == 0, done.stderr
    assert "20 calls: INVALID_ARGUMENT 20" in done.stdout
    assert "goodput 0.0 calls/s" in done.stdout


@pytest.mark.slow
def test_h2load_gets_replies(filled):
    if not h2load.is_installed():
        pytest.skip(h2load.MISSING)
    env = {**os.environ, "PYTHON": sys.executable}
    for seconds in (1, 4, 16):  # A slow machine needs longer for so many calls.
        options = (f"--duration={seconds}", "--warm-up-time=0")
        command = [KIT / "h2load.sh", filled.retriever.address, *options]
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        run = h2load.parse(done.stdout)
        assert f" {run.calls} succeeded" in done.stdout
        if run.calls > 20:
            break
    assert run.calls > 20
    # gRPC errors have HTTP status 200 too, but contain no passages.
    assert run.data_bytes > 100 * run.calls


def test_the_settings_of_ghz_name_an_existing_method_and_request():
    settings = json.loads((KIT / "ghz.json").read_text("utf-8"))
    assert (ROOT / settings["proto"]).is_file()
    service, _, method = settings["call"].rpartition(".")
    descriptor = retriever_pb2.DESCRIPTOR.services_by_name[service.rpartition(".")[2]]
    assert descriptor.full_name == service
    assert descriptor.methods_by_name[method].input_type is retriever_pb2.SearchRequest.DESCRIPTOR
    request = json_format.ParseDict(settings["data"], retriever_pb2.SearchRequest())
    assert request.tenant_id == "load-00000"

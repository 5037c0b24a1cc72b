"""A client without hrag's .proto files works by server reflection."""

import json
import subprocess
import sys
from pathlib import Path

BUF = Path(sys.executable).with_name("buf")


def curl(address, *arguments):
    """Calls a method by `buf curl` without .proto files; returns the output."""
    *options, method = arguments
    command = [BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *options]
    command.append(f"http://{address}{method}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_methods_of_services_are_listed(services):
    methods = curl(services.retriever.address, "--list-methods", "")
    assert "hrag.v1.RetrieverService/Search" in methods
    assert "hrag.v1.IndexerService/IngestDocument" in curl(
        services.indexer.address, "--list-methods", ""
    )


def test_documents_are_ingested_and_searched(services, tenant):
    document = {"document_id": "pets", "text": "Cats sleep. Dogs bark.", "metadata": {"n": 1}}
    ingest = json.dumps({"tenant_id": tenant, "document": document})
    method = "/hrag.v1.IndexerService/IngestDocument"
    done = json.loads(curl(services.indexer.address, "--data", ingest, method))
    assert done["outcome"] == "INGEST_OUTCOME_CREATED"
    search = json.dumps({"tenant_id": tenant, "text": "what do dogs do?", "limit": 3})
    method = "/hrag.v1.RetrieverService/Search"
    result = json.loads(curl(services.retriever.address, "--data", search, method))
    chunk = result["passages"][0]["chunk"]
    assert (chunk["content"], chunk["metadata"]) == ("Cats sleep. Dogs bark.", {"n": 1})

"""The baseline: a bare grpcio server that calls `knn_query` and sends a fixed reply.

    python -m benchmarks.baseline_server FOLDER ADDRESS K REPLY_BYTES THREADS PROCESSES

The server accepts hrag's requests, so that both servers decode the same message. It searches the
index of the store's only segment with hnswlib. It has no transaction, climb, texts, checks or logs.
So its time is the lowest possible time of a search through Python's gRPC. The server prints an
empty line when it is ready, and stops when standard input ends.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks import corpus
from hrag.v1 import retriever_pb2 as pb

METHOD = "/baseline/Search"


def main(arguments: Sequence[str]) -> None:
    """Serves until standard input ends."""
    folder, address, *numbers = arguments
    k, reply_bytes, threads, processes = map(int, numbers)
    with ExitStack() as stopping:
        for _ in range(processes - 1):
            stopping.enter_context(_spawn(*arguments[:-1]))
        server = _create_server(Path(folder), k, b"\0" * reply_bytes, threads)
        server.add_insecure_port(address)
        server.start()
        print(flush=True)
        sys.stdin.read()
        server.stop(0)


def _spawn(*arguments: str) -> "subprocess.Popen[bytes]":
    """Starts one more process at the same address; returns when that process serves."""
    command = [sys.executable, "-m", "benchmarks.baseline_server", *arguments, "1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process


def _create_server(folder: Path, k: int, reply: bytes, threads: int) -> grpc.Server:
    index = corpus.raw_index(folder)

    def search(request: pb.SearchRequest, _context: Any) -> bytes:
        index.knn_query(np.array(request.vector.values, np.float32), k=k, num_threads=1)
        return reply

    handler = grpc.unary_unary_rpc_method_handler(search, pb.SearchRequest.FromString)
    server = grpc.server(ThreadPoolExecutor(threads), options=[("grpc.so_reuseport", 1)])
    _, service, method = METHOD.split("/")
    server.add_registered_method_handlers(service, {method: handler})
    return server


if __name__ == "__main__":
    main(sys.argv[1:])

"""Runs the retriever: `python -m retriever_svc`, settings from the environment.

With HRAG_WORKERS over 1 it supervises that many processes, which serve. It starts them as
`python -m retriever_svc --worker ADDRESS`, an internal option: such a process shares its
port, takes a worker's part of the memory and stops when standard input ends.
"""

import sys
from functools import partial

from hrag.config import RetrieverSettings
from hrag.server.serving.service_process import run
from hrag.server.serving.workers import worker_address
from retriever_svc.app import serve, serve_as_worker

if __name__ == "__main__":
    address = worker_address(sys.argv[1:])
    run(
        "retriever",
        RetrieverSettings,
        serve if address is None else partial(serve_as_worker, address),
    )

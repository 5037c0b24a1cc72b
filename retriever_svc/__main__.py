"""Runs the retriever: `python -m retriever_svc`. Settings come from the environment.

If HRAG_WORKERS is above 1, this process is a supervisor. It starts that many worker processes,
and these serve the calls. It starts each one as `python -m retriever_svc --worker ADDRESS`, which
is an internal option. All workers listen on the same port. A worker uses its share of the memory
and stops when its standard input ends.
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

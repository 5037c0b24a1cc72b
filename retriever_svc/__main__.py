"""Runs the retriever: `python -m retriever_svc`. Settings come from the environment.

If HRAG_WORKERS is above 1, this process is a supervisor. The supervisor starts HRAG_WORKERS worker
processes, and the workers serve the calls. It starts each worker with the command
`python -m retriever_svc --worker ADDRESS`; `--worker` is an internal option. All workers listen on
the same port. Each worker uses an equal share of the memory that the settings allow. A worker stops
when its standard input ends.
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

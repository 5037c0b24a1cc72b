"""Runs the indexer as `python -m indexer_svc`, with settings from the environment."""

from hrag.config import IndexerSettings
from hrag.server.serving.service_process import run
from indexer_svc.app import serve

if __name__ == "__main__":
    run("indexer", IndexerSettings, serve)

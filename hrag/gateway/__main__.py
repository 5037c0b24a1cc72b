"""Runs the gateway: `python -m hrag.gateway`, with settings from the environment."""

from hrag.config import GatewaySettings
from hrag.gateway.app import serve
from hrag.server.serving.service_process import run

if __name__ == "__main__":
    run("gateway", GatewaySettings, serve)

"""Runs the gateway: `python -m hrag.gateway`, with settings from the environment."""

import sys

from hrag.config import GatewaySettings
from hrag.gateway.app import serve
from hrag.server.serving.service_process import run

# The switch interval of Python's interpreter lock. If a thread converts a large document, the event
# loop waits about this long for the lock. Python's default interval is 5 ms.
_SWITCH_S = 0.0002

if __name__ == "__main__":
    sys.setswitchinterval(_SWITCH_S)
    run("gateway", GatewaySettings, serve)

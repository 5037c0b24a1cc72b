"""Runs `hrag mcp` as a process, and connects the client of the official SDK to it."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from tests.support.servers.processes import Running
from tests.support.until import PATIENCE_S

_COMMAND = ["-c", "from hrag.cli import main; main()", "mcp"]


def arguments(services: Running, *options: str) -> list[str]:
    return [*_COMMAND, "--retriever", services.retriever.address, *options]


def stdio(services: Running, *options: str) -> StdioServerParameters:
    words = arguments(services, *options)
    return StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))


@contextmanager
def mcp_process(services: Running, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *arguments(services, *options)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def http(services: Running, *options: str) -> Iterator[str]:
    """Runs a server over HTTP; yields its URL.

    Fails if the server writes to standard output or does not stop cleanly.
    """
    with mcp_process(services, "--http", "127.0.0.1:0", *options) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        yield re.findall(r"http://\S+", process.stderr.readline())[0]
        process.terminate()
        assert process.wait(timeout=PATIENCE_S) == 0
        assert process.stdout.read() == ""


@asynccontextmanager
async def agent(
    transport: str, services: Running, *options: str, mode: str = "auto"
) -> AsyncIterator[Client]:
    if transport == "stdio":
        async with Client(stdio(services, *options), mode=mode) as client:
            yield client
        return
    with http(services, *options) as url:
        async with Client(url, mode=mode) as client:
            yield client


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text

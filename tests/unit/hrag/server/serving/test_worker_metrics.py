"""The metrics of all workers are served together, even if one worker exits meanwhile."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from hrag.server.serving import worker_metrics
from hrag.server.serving.worker_metrics import WorkerMetrics

_PAGE = b'# TYPE a gauge\na{method="x"} 1.0\n'


def _reply(page: bytes, length: int = 0) -> bytes:
    """Returns an HTTP reply with this page, whose Content-Length is `length`.

    If `length` is 0, Content-Length is the real length of the page.
    """
    return b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (length or len(page), page)


@contextmanager
def _worker_that_replies(reply: bytes) -> Iterator[int]:
    """Runs a fake worker that sends `reply` to one request and ends; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(60)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Len",
        _reply(_PAGE, 4000),
        _reply(_PAGE[:-8]),
        _reply(b'a{method="x'),
        _reply(b"\xff"),
    ],
)
def test_the_metrics_of_other_workers_stay_if_one_worker_exits_during_a_scrape(
    reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_metrics, "_TIMEOUT_S", 60.0)  # A busy machine is slow.
    with ExitStack() as workers:
        ports = [
            workers.enter_context(_worker_that_replies(data)) for data in (_reply(_PAGE), reply)
        ]
        families = {family.name: family for family in WorkerMetrics(ports).collect()}
    assert [sample.labels for sample in families["a"].samples] == [{"method": "x", "worker": "0"}]
    assert "hrag_workers" in families

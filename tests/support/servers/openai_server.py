"""A local server with OpenAI's protocol, and faults on demand.

`POST /v1/embeddings` returns vectors that are computed from hashes of the texts. Their Euclidean
length is 3. They are returned as floats or as base64, as the request demands.
`POST /v1/chat/completions` streams the same text for every prompt, or the text that `script`
computes from the prompt. Each fault changes one of the next replies, in the order in which the
faults were injected. Later replies are correct again.
"""

import base64
import json
import math
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import MSG_PEEK
from threading import Event, Lock, Thread
from typing import Any, Self, TypeAlias

import numpy as np

from hrag.models.embedding.hashing import HashEmbedder
from tests.support.until import PATIENCE_S

DEFAULT_DIMENSION = 32
_EMBEDDINGS = "/v1/embeddings"
_CHAT = "/v1/chat/completions"
_POLL_S = 0.02
HEADER_PAUSE_S = 0.1

# The pieces of the text that a chat reply streams by default.
SAID = ("Dogs ", "bark", " [1].")
PROMPT_TOKENS, COMPLETION_TOKENS = 12, 3


Streamed: TypeAlias = bytes | float | Event | None
"""What a stream sends or waits for, see `Reply.events`."""


@dataclass(frozen=True)
class Reply:
    """A reply of the server to `request`. `data` becomes the body unless `body` is set.

    If `events` is set, the events are streamed instead: bytes are sent unchanged, a float is a
    pause in seconds, an Event is a pause until it is set, and None ends the connection. Before the
    events, `slow_headers` headers are sent one by one, each followed by a pause of
    `HEADER_PAUSE_S`.
    """

    data: list[dict[str, Any]]
    events: tuple[Streamed, ...] | None = None
    slow_headers: int = 0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    delay_s: float = 0.0
    hang_up: bool = False
    request: dict[str, Any] = field(default_factory=dict)


Fault = Callable[[Reply], Reply]


def refuse(
    status: int, code: str | None = None, retry_after: str | None = None, words: str = "no"
) -> Fault:
    """Answers with this status and an error in OpenAI's format; `words` is its message."""
    body = json.dumps({"error": {"message": words, "code": code, "type": None}}).encode()
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return lambda reply: replace(reply, status=status, body=body, headers=headers)


def page(status: int, charset: str) -> Fault:
    """Answers an HTML page with this charset, as a proxy does."""
    headers = {"Content-Type": f"text/html; charset={charset}"}
    return lambda reply: replace(
        reply, status=status, body=b"<html>\xff\xff", headers=headers, events=None
    )


def slow(delay_s: float) -> Fault:
    """Answers correctly, but only after `delay_s` seconds."""
    return lambda reply: replace(reply, delay_s=delay_s)


def held(may_answer: Event) -> Fault:
    """Answers correctly, but only after the test has set `may_answer`."""

    def hold(reply: Reply) -> Reply:
        return replace(reply, hang_up=not may_answer.wait(PATIENCE_S))

    return hold


def hang_up(reply: Reply) -> Reply:
    """Closes the connection without a reply."""
    return replace(reply, hang_up=True)


def body(content: bytes) -> Fault:
    """Answers 200 with `content`."""
    return lambda reply: replace(reply, body=content)


def without_last(reply: Reply) -> Reply:
    """Omits the last vector, or the last score of a reranker."""
    return replace(reply, data=reply.data[:-1])


def shuffled(reply: Reply) -> Reply:
    """Answers with the vectors in reverse order, each with its correct index."""
    return replace(reply, data=reply.data[::-1])


def indexes(*values: Any) -> Fault:
    """Answers with `values` as the indexes of the vectors."""
    return lambda reply: replace(
        reply,
        data=[item | {"index": value} for item, value in zip(reply.data, values, strict=True)],
    )


def last_vector(embedding: Any) -> Fault:
    """Answers with `embedding` as the vector of the last text."""
    return lambda reply: replace(
        reply, data=[*reply.data[:-1], reply.data[-1] | {"embedding": embedding}]
    )


def says(*pieces: str, finish: str | None = "stop", usage: bool = True) -> Fault:
    """Streams the text `pieces`. If `finish` is None, the stream has no finish reason."""
    return lambda reply: replace(reply, events=_events(pieces, finish, usage))


def events(*sent: Streamed) -> Fault:
    """Streams `sent`, which has the form of `Reply.events`."""
    return lambda reply: replace(reply, events=sent)


def before_event(index: int, sent: Streamed) -> Fault:
    """Streams correctly, but with `sent` inserted before the event with this index."""

    def spoil(reply: Reply) -> Reply:
        correct = reply.events or ()
        return replace(reply, events=(*correct[:index], sent, *correct[index:]))

    return spoil


def event(value: Any) -> bytes:
    """Returns one event of a stream, with `value` as JSON."""
    return f"data: {json.dumps(value)}\n\n".encode()


def piece(content: Any, finish: Any = None) -> bytes:
    """Returns an event that adds `content` to the text."""
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return event({"object": "chat.completion.chunk", "choices": [choice], "usage": None})


def _events(pieces: Sequence[str], finish: str | None, usage: bool) -> tuple[bytes, ...]:
    sent = [piece(text) for text in pieces]
    if finish is not None:
        end = {"index": 0, "delta": {}, "finish_reason": finish}
        sent.append(event({"choices": [end]}))
    if usage:
        counted = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
        sent.append(event({"choices": [], "usage": counted}))
    return (*sent, b"data: [DONE]\n\n")


class OpenAIServer:
    """The server, which listens at a free loopback port inside a `with` block."""

    paths: tuple[str, ...] = (_EMBEDDINGS, _CHAT)

    def __init__(self, dimension: int = DEFAULT_DIMENSION, *, base64_known: bool = True) -> None:
        """Opens the port. Vectors are always floats if `base64_known` is false, as of some servers.

        `script` returns the text of a chat reply for a prompt; tests may replace it.
        """
        self.script: Callable[[str], str] = lambda _: "".join(SAID)
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        # This is the count of streams whose client left before the stream had ended.
        self.streams_left = 0
        self.dimension = dimension
        self._base64_known = base64_known
        self._faults: deque[Fault] = deque()
        self._lock = Lock()
        self._closing = Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def base_url(self) -> str:
        return f"http://{self.address}/v1"

    @property
    def calls(self) -> int:
        """The count of requests so far, including rejected ones."""
        return len(self.requests)

    @property
    def texts(self) -> list[str]:
        """All texts that were sent to be embedded, in order of arrival."""
        return [text for request in self.requests for text in request["input"]]

    def inject(self, fault: Fault, times: int = 1) -> None:
        """Applies `fault` to the next `times` replies that have no fault yet."""
        self._faults.extend([fault] * times)

    def forget_faults(self) -> None:
        """Removes the faults that have not been applied."""
        self._faults.clear()

    def answer(self, request: dict[str, Any], authorization: str | None) -> Reply:
        """Records the request and returns the reply."""
        with self._lock:
            self.requests.append(request)
            self.authorizations.append(authorization)
            fault = self._faults.popleft() if self._faults else None
        reply = replace(self._correct_reply(request), request=request)
        return reply if fault is None else fault(reply)

    def content(self, reply: Reply) -> bytes:
        """Returns the body of a reply that is not streamed."""
        if reply.body is not None:
            return reply.body
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        whole = {"object": "list", "model": "test", "data": reply.data, "usage": usage}
        return json.dumps(whole).encode()

    def record_left_stream(self) -> None:
        """Counts a stream whose client has left before its end."""
        with self._lock:
            self.streams_left += 1

    def wait(self, delay_s: float) -> None:
        """Waits for `delay_s` seconds, or until the server closes."""
        self._closing.wait(delay_s)

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def _correct_reply(self, request: dict[str, Any]) -> Reply:
        if "messages" in request:
            text = self.script(request["messages"][-1]["content"])
            pieces = SAID if text == "".join(SAID) else (text,)
            return Reply([], events=_events(pieces, "stop", usage=True))
        return Reply(self._data(request))

    def _data(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        dimension = request.get("dimensions") or self.dimension
        rows = vectors_of(request["input"], dimension) * np.float32(3)
        as_base64 = self._base64_known and request.get("encoding_format") == "base64"
        return [
            {
                "object": "embedding",
                "index": index,
                "embedding": in_base64(row) if as_base64 else row.tolist(),
            }
            for index, row in enumerate(rows)
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(_Handler):
            owner = server

        return Handler

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: OpenAIServer
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes. With Nagle's algorithm, the second write could wait 40 ms.
    disable_nagle_algorithm = True

    def handle(self) -> None:
        # A client that has given up has closed its connection, which is no error of the server.
        with suppress(ConnectionError):
            super().handle()

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path not in self.owner.paths:
            self.send_error(404)
            return
        reply = self.owner.answer(json.loads(content), self.headers["Authorization"])
        self.owner.wait(reply.delay_s)
        if reply.hang_up:
            self.close_connection = True
            return
        if reply.events is None or reply.body is not None:
            self._send(reply)
        else:
            self._stream(reply, reply.events)

    def _stream(self, reply: Reply, events: Sequence[Streamed]) -> None:
        try:
            self.send_response(reply.status)
            for _ in range(reply.slow_headers):
                self.send_header("X-Slow", "yes")
                self.flush_headers()
                self._pause(HEADER_PAUSE_S)
            self._send_headers({"Content-Type": "text/event-stream"} | reply.headers)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in events:
                if event is None:
                    self.close_connection = True
                    return
                if isinstance(event, bytes):
                    self._send_http_chunk(event)
                else:
                    self._pause(event)
            self._send_http_chunk(b"")
        except ConnectionError:
            self.close_connection = True
            self.owner.record_left_stream()

    def _send_http_chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def _pause(self, pause: float | Event) -> None:
        """Waits for `pause` seconds, or until it is set, but ends when the server closes.

        Raises ConnectionResetError if the client disconnects.
        """
        end = math.inf if isinstance(pause, Event) else time.monotonic() + pause
        while (left_s := end - time.monotonic()) > 0:
            if isinstance(pause, Event) and pause.is_set():
                return
            self.owner.wait(min(left_s, _POLL_S))
            if self.owner.is_closing:
                self.close_connection = True
                return
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, MSG_PEEK):
                raise ConnectionResetError

    def _send(self, reply: Reply) -> None:
        content = self.owner.content(reply)
        try:
            self.send_response(reply.status)
            self._send_headers({"Content-Type": "application/json"} | reply.headers)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except ConnectionError:
            # The client did not wait for a slow reply.
            self.close_connection = True

    def _send_headers(self, headers: dict[str, str]) -> None:
        for name, value in headers.items():
            self.send_header(name, value)

    def log_message(self, *args: object) -> None:
        """Logs nothing, because tests read `requests` instead."""


def vectors_of(texts: Sequence[str], dimension: int = DEFAULT_DIMENSION) -> np.ndarray:
    """Returns the unit vectors that an embedder must return for this server's replies."""
    return HashEmbedder(dimension).embed(texts)


def in_base64(row: np.ndarray) -> str:
    """Returns `row` as base64 of little-endian float32."""
    return base64.b64encode(row.astype("<f4").tobytes()).decode()

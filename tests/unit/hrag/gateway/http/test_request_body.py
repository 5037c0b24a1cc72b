"""Request bodies are decompressed part by part, as they arrive."""

import asyncio
import gzip
from collections.abc import Iterator

import pytest
from starlette.requests import Request

from hrag.errors import InvalidArgument
from hrag.gateway.http.request_body import body_parts

_REMAINING_PARTS = 100


async def _decompressed(arriving: Iterator[bytes]) -> bytes:
    async def receive() -> dict[str, object]:
        part = next(arriving, b"")
        return {"type": "http.request", "body": part, "more_body": bool(part)}

    headers = [(b"content-encoding", b"gzip")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    return b"".join([part async for part in body_parts(request)])


@pytest.mark.parametrize("same_part", [True, False])
def test_nothing_is_read_after_the_end_of_gzip_data(same_part: bool) -> None:
    """Otherwise data after the end would stay in memory until the body ends."""
    compressed = gzip.compress(b"{}")
    first_parts = (compressed + b"x",) if same_part else (compressed, b"x")
    arriving = iter((*first_parts, *[b"x"] * _REMAINING_PARTS))
    with pytest.raises(InvalidArgument, match="data after the end of its gzip"):
        asyncio.run(_decompressed(arriving))
    assert len(list(arriving)) == _REMAINING_PARTS


def test_gzip_data_may_arrive_in_parts_of_any_size() -> None:
    content = b"ants dig, bees fly " * 20_000
    compressed = gzip.compress(content)
    for size in (1, 7, len(compressed)):
        starts = range(0, len(compressed), size)
        parts = (compressed[start : start + size] for start in starts)
        assert asyncio.run(_decompressed(parts)) == content

"""A client sends its first request after the server has admitted the stream."""

import asyncio

import pytest

from hrag.wire.stream_admission import REQUEST_ID, is_admitted


class Stream:
    """A call whose initial metadata and status the test sets."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata
        self.status: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def initial_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def code(self) -> str:
        return await asyncio.shield(self.status)

    def done(self) -> bool:
        return self.status.done()


async def test_a_request_id_in_the_initial_metadata_admits_the_stream_at_once():
    assert await is_admitted(Stream(("server", "proxy"), (REQUEST_ID, "17")))


@pytest.mark.parametrize("metadata", [(), (("server", "proxy"),)])
async def test_a_stream_that_ends_without_a_request_id_is_refused(metadata):
    stream = Stream(*metadata)
    decision = asyncio.ensure_future(is_admitted(stream))
    await asyncio.sleep(0)  # The decision waits for the status before the status arrives.
    stream.status.set_result("PERMISSION_DENIED")
    assert not await decision


async def test_a_stream_whose_proxy_removes_the_request_id_is_admitted_after_a_while():
    assert await is_admitted(Stream())

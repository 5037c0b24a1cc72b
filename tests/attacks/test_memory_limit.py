"""Services whose container has little memory survive attacks, and serve others meanwhile.

The services run in a control group whose limit is what they use at rest and some room. Only if no
process of the group can get more memory, the kernel kills one: it must be a parser.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest

from hrag.errors import HragError
from hrag.types import Document
from tests.attacks.http2 import Connection, ReferenceSender
from tests.attacks.memory_group import MemoryGroup, memory_group
from tests.attacks.observed import health_s, repeated, seconds
from tests.attacks.world import ATTACKER, SEARCH, VICTIM, Guarded, guarded_services
from tests.support.documents.bombs import inflating_page
from tests.support.until import until

pytestmark = pytest.mark.attacks

MIB = 1 << 20
_ROOM_BYTES = 1024 * MIB
_MAX_HEALTH_S = 5.0
# A search in a small collection takes milliseconds when the service works again.
_MAX_SEARCH_S = 1.0
_ATTACK_S = 4.0
# Less than a parser may use: HRAG_PARSER_MEMORY_BYTES is 512 MiB.
_LITTLE_ROOM_BYTES = 100 * MIB


@pytest.fixture(scope="module")
def group() -> Iterator[MemoryGroup]:
    with memory_group() as group:
        yield group


@pytest.fixture(scope="module")
def guarded(
    group: MemoryGroup,
    tmp_path_factory: pytest.TempPathFactory,
    _no_settings_from_outside: None,
) -> Iterator[Guarded]:
    """Services in the group, without a limit yet."""
    with guarded_services(tmp_path_factory.mktemp("limited"), group.start) as guarded:
        guarded.search()
        yield guarded


@pytest.fixture(autouse=True)
def _all_survive(group: MemoryGroup, guarded: Guarded) -> Iterator[None]:
    yield
    assert guarded.services.indexer.is_running
    assert guarded.services.retriever.is_running
    group.limit(1 << 40)


def test_references_to_headers_do_not_end_a_service_with_a_gigabyte_of_room(
    group: MemoryGroup, guarded: Guarded
) -> None:
    group.limit(group.used_bytes + _ROOM_BYTES)
    retriever = guarded.services.retriever
    connect = partial(Connection, retriever.address, acknowledges=False)
    until_s = time.monotonic() + _ATTACK_S
    with closing(ReferenceSender(connect, SEARCH)) as sender, repeated(sender, 1):
        while time.monotonic() < until_s:
            assert health_s(retriever) < _MAX_HEALTH_S
    until(lambda: seconds(guarded.search) < _MAX_SEARCH_S)
    assert group.killed == 0


def test_large_texts_are_ingested_with_a_gigabyte_of_room(
    group: MemoryGroup, guarded: Guarded
) -> None:
    group.limit(group.used_bytes + _ROOM_BYTES)
    text = "The keeper wrote down every ship that passed the northern rocks. " * 30_000
    with guarded.attacker() as client, ThreadPoolExecutor(4) as threads:
        results = list(
            threads.map(
                lambda number: client.ingest(
                    ATTACKER, Document(f"{number} {text}", f"large{number}")
                ),
                range(4),
            )
        )
    assert len(results) == 4
    assert group.killed == 0


def test_the_kernel_kills_a_parser_and_no_service_if_memory_runs_out(
    group: MemoryGroup, guarded: Guarded
) -> None:
    group.limit(group.used_bytes + _LITTLE_ROOM_BYTES)
    with guarded.attacker() as client, pytest.raises(HragError, match="parser end"):
        client.ingest(ATTACKER, Document(inflating_page()))
    assert group.killed > 0
    guarded.victim.ingest(VICTIM, Document("# A small text\n\nThat is read.", "small"))
    guarded.search()

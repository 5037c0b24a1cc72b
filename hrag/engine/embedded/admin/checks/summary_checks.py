"""Does each summary belong to leaves that exist, and is every missing one pending?"""

from collections.abc import Iterator, Sequence

from hrag.engine.common.records import Summarised
from hrag.engine.embedded.admin.checks.store_walk import Walk
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.lmdb_records import Counters


def waiting_problems(walk: Walk, number: int, counters: Counters) -> Iterator[str]:
    """Yields the problems of documents that wait for summaries: they live, and are counted."""
    ordinals = walk.numbers("unsummarised", number)
    if len(ordinals) != counters.unsummarised:
        yield f"{len(ordinals)} documents wait for summaries, not {counters.unsummarised}"
    for ordinal in ordinals:
        if walk.leaf_count(number, ordinal) is None:
            yield f"ordinal {ordinal} waits for summaries and does not live"


def summary_problems(walk: Walk, number: int, summarised_number: int) -> Iterator[str]:
    """Yields the problems of the summary collection `number`.

    Each of its documents belongs to a living document of the summarised collection, and to
    leaves which that document has.
    """
    documents = 0
    for key, value in walk.entries("summarised", schema.u32(number)):
        documents += 1
        ordinal = schema.read_in_collection(key)[1]
        summarised = Summarised.from_bytes(value)
        summary_count = walk.leaf_count(number, ordinal)
        leaf_count = walk.leaf_count(summarised_number, summarised.ordinal)
        if summary_count is None or leaf_count is None:
            yield f"ordinal {ordinal} or what it summarises does not live"
        elif summary_count != 1 + len(summarised.sections):
            sections = len(summarised.sections)
            yield f"ordinal {ordinal} has {summary_count} summaries of {sections} sections"
        elif not _are_ranges_within(summarised.sections, leaf_count):
            yield f"ordinal {ordinal} summarises leaves that are not there, or twice"
    counted = walk.count("ordinals", number)
    if counted != documents:
        yield f"{counted} documents of summaries, {documents} entries say of what"


def _are_ranges_within(ranges: Sequence[range], count: int) -> bool:
    """True if the ranges are not empty, in order, disjoint and end at most at `count`."""
    bounds = [bound for each in ranges for bound in (each.start, each.stop)]
    return all(ranges) and bounds == sorted(bounds) and all(0 <= bound <= count for bound in bounds)

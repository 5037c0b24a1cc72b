"""Checks that summaries belong to existing leaves, and that pending documents are counted."""

from collections.abc import Iterator, Sequence

from hrag.engine.embedded.admin.checks.store_walk import Walk
from hrag.engine.embedded.store.lmdb_records import Counters


def waiting_problems(walk: Walk, number: int, counters: Counters) -> Iterator[str]:
    """Yields the problems of the documents that wait for summaries.

    These documents must exist, and the counter must have their number.
    """
    ordinals = [ordinal for _, ordinal in walk.txn.unsummarised.keys(number)]
    if len(ordinals) != counters.unsummarised:
        yield f"{len(ordinals)} documents wait for summaries, counters say {counters.unsummarised}"
    for ordinal in ordinals:
        if walk.leaf_count(number, ordinal) is None:
            yield f"ordinal {ordinal} waits for summaries, but does not exist"


def summary_problems(walk: Walk, number: int, summarised_number: int) -> Iterator[str]:
    """Yields the problems of the summary collection `number`.

    Each of its documents must belong to a living document of the summarised collection, and to
    leaves that this document has.
    """
    documents = 0
    for (_, ordinal), summarised in walk.txn.summarised.entries(number):
        documents += 1
        summary_count = walk.leaf_count(number, ordinal)
        leaf_count = walk.leaf_count(summarised_number, summarised.ordinal)
        if summary_count is None or leaf_count is None:
            yield f"ordinal {ordinal} or the ordinal that it summarises does not exist"
        elif summary_count != 1 + len(summarised.sections):
            sections = len(summarised.sections)
            yield f"ordinal {ordinal} has {summary_count} summaries of {sections} sections"
        elif not _are_ranges_within(summarised.sections, leaf_count):
            yield f"ordinal {ordinal} summarises leaves that do not exist, or leaves twice"
    counted = walk.txn.ordinals.count(number)
    if counted != documents:
        yield f"{counted} documents of summaries, but {documents} entries in summarised"


def _are_ranges_within(ranges: Sequence[range], count: int) -> bool:
    """Returns True if the ranges are in order, disjoint, not empty and within 0 to `count`."""
    bounds = [bound for leaves in ranges for bound in (leaves.start, leaves.stop)]
    return all(ranges) and bounds == sorted(bounds) and all(0 <= bound <= count for bound in bounds)

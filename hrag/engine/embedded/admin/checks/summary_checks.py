"""Checks that summaries refer to existing leaves, and that unsummarised documents are counted."""

from collections.abc import Iterator, Sequence

from hrag.engine.embedded.admin.checks.store_walk import Walk
from hrag.engine.embedded.store.lmdb_records import Counters


def waiting_problems(walk: Walk, collection: int, counters: Counters) -> Iterator[str]:
    """Checks the entries of the documents whose summaries are not written yet. Yields the problems.

    These documents must exist, and the collection's counter `unsummarised` must be their count.
    """
    ordinals = [ordinal for _, ordinal in walk.txn.unsummarised.keys(collection)]
    if len(ordinals) != counters.unsummarised:
        yield (
            f"{len(ordinals)} documents wait for summaries, but the counters say "
            f"{counters.unsummarised}"
        )
    for ordinal in ordinals:
        if walk.leaf_count(collection, ordinal) is None:
            yield f"ordinal {ordinal} waits for summaries, but does not exist"


def summary_problems(walk: Walk, collection: int, summarised_collection: int) -> Iterator[str]:
    """Checks the summary collection `collection`. Yields the problems.

    Each document of `collection` contains the summaries of one document of `summarised_collection`.
    This document must exist. The database `summarised` says which leaves of the document each
    section consists of, and these leaves must exist.
    """
    documents = 0
    for (_, ordinal), summarised in walk.txn.summarised.entries(collection):
        documents += 1
        summary_count = walk.leaf_count(collection, ordinal)
        leaf_count = walk.leaf_count(summarised_collection, summarised.ordinal)
        if summary_count is None or leaf_count is None:
            yield f"ordinal {ordinal} or the ordinal that it summarises does not exist"
        elif summary_count != 1 + len(summarised.sections):
            sections = len(summarised.sections)
            yield (
                f"ordinal {ordinal} has {summary_count} summaries; it must have {1 + sections}, "
                f"because it has {sections} sections"
            )
        elif not _are_ranges_within(summarised.sections, leaf_count):
            yield f"ordinal {ordinal} summarises leaves that do not exist, or the same leaf twice"
    counted = walk.txn.ordinals.count(collection)
    if counted != documents:
        yield f"it has {counted} documents, but {documents} entries in summarised"


def _are_ranges_within(ranges: Sequence[range], count: int) -> bool:
    """Returns True if the ranges are in order, disjoint, not empty and within 0 to `count`."""
    bounds = [bound for leaves in ranges for bound in (leaves.start, leaves.stop)]
    return all(ranges) and bounds == sorted(bounds) and all(0 <= bound <= count for bound in bounds)

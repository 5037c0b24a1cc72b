"""How much a store holds in all, for monitoring.

Reads the counters of every collection, which takes about 3 us each: 30 ms for ten thousand
collections. A damaged entry is left out, so that the sums go on without what it says.
"""

from hrag.engine.embedded.store import disk, schema
from hrag.engine.embedded.store.change_log import commit_cursor
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.queries import all_segments
from hrag.values.status import EmbeddedStoreTotals, StoreTotals

_NONE = Counters()


def measure(store: Store) -> StoreTotals:
    """Sums over all collections in one snapshot; the sizes on disk are those of now.

    Raises StoreUnavailable if the store is no longer in its place.
    """
    store.require_place()
    with store.read() as txn:
        sequence = commit_cursor(store, txn)
        counters = {
            schema.read_u32(key): Counters.from_bytes(value)
            for key, value in txn.sound_entries(store.db["counters"])
        }
        names = [
            schema.read_name(value) for _, value in txn.sound_entries(store.db["collection_names"])
        ]
        named = [counters.pop(number, _NONE) for number, is_alias in names if not is_alias]
        segment_bytes = [record.size_bytes for _, record in all_segments(store, txn)]
    of_summaries = list(counters.values())
    tails = [each.tail_leaves for each in (*named, *of_summaries)]
    return StoreTotals(
        collections=len(named),
        documents=sum(each.documents for each in named),
        leaves=sum(each.leaves for each in named),
        summaries=sum(each.leaves for each in of_summaries),
        unsummarised_documents=sum(each.unsummarised for each in named),
        text_bytes=sum(each.text_bytes for each in named),
        vector_bytes=sum(each.vector_bytes for each in (*named, *of_summaries)),
        embedded=EmbeddedStoreTotals(
            sequence=sequence,
            tail_leaves=sum(tails),
            largest_tail_leaves=max(tails, default=0),
            segments=len(segment_bytes),
            segment_bytes=sum(segment_bytes),
            file_bytes=store.used_bytes,
            disk_free_bytes=disk.free_bytes(store.directory),
        ),
    )

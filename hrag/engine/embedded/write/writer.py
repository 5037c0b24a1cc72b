"""The writer of the embedded engine. It commits one or several documents per LMDB transaction.

A document is visible completely or not at all. The counters of its collection, its entry in the
change log and the tenant's sequence number are written in the same transaction. A document that is
replaced gets a new ordinal. An index may still contain the labels of the old version. But a label
contains an ordinal, and no document has the ordinal of the old version any more, so searches do not
return these labels. The writer knows nothing of segments, except which ordinals they cover.
"""

from hrag.engine.embedded.store.change_log import MAX_LOG_ENTRIES
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.collections import CollectionWriter
from hrag.engine.embedded.write.commits import Commits, IndexMaintenance
from hrag.engine.embedded.write.copies import CopyWriter
from hrag.engine.embedded.write.document_writer import DocumentWriter
from hrag.engine.embedded.write.summary_writer import SummaryWriter
from hrag.engine.embedded.write.writer_queries import WriterQueries
from hrag.values.quotas import QuotaOf, unlimited


class EmbeddedWriter(CollectionWriter, DocumentWriter, CopyWriter, WriterQueries, SummaryWriter):
    """Implements `hrag.engine.Writer`. Each base class implements the methods for one subject.

    All base classes share one `Commits` object. Without `maintenance`, no segments are built, and
    writes never wait for maintenance. The change log of a collection has at most `max_log_entries`
    entries. `quota_of` returns the quota of a tenant.
    """

    def __init__(
        self,
        store: Store,
        maintenance: IndexMaintenance | None = None,
        max_log_entries: int = MAX_LOG_ENTRIES,
        quota_of: QuotaOf = unlimited,
    ) -> None:
        super().__init__(Commits(store, maintenance, max_log_entries, quota_of))

"""Upgrades a store of the schema version before this one, which has no terms of formats.

The upgrade is one transaction, so a process that is killed meanwhile leaves the store as it was.
"""

from hrag.engine.common.filter_terms import format_term
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.transactions import Txn

UPGRADED_VERSION = 9


def upgrade(txn: Txn) -> None:
    """Adds the term of its format to each document, and stores this version of the schema.

    A document whose record is damaged gets no term: `hrag check` reports it anyway.
    """
    for collection in list(txn.collections.keys()):
        for (_, ordinal), entry in txn.ordinals.sound_entries(collection):
            document = txn.documents.get_sound(schema.address(entry.slot, collection, ordinal))
            if document is not None and document.mime_type:
                term = schema.u32(collection) + format_term(document.mime_type)
                txn.terms.add(term, ordinal)
    txn.put_number(schema.SCHEMA, schema.SCHEMA_VERSION)

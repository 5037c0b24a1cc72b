"""Finds the name of the document or collection to which a damaged entry belongs.

Error messages contain this name. To find the name, this module reads other entries. These entries
may be damaged, too, so no function here raises an error for a damaged entry.
"""

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.transactions import Txn

_BY_ORDINAL = ("ordinals", "tombstones", "summarised")
_NAMED = {"collection_names": "collection", "tenants": "tenant"}


def owner_of(txn: Txn, database: str, key: bytes) -> str:
    """Returns the name of the document, collection or tenant to which an entry belongs.

    An example is `document 'a' of collection 't/docs'`. If the entry belongs to none of them,
    returns "the store". `key` is the entry's encoded key. `database` is the name of the entry's
    database, or "trees", "texts", "vectors" or "originals" for a document's tree, text, vectors or
    original.
    """
    if database in schema.BY_SLOT:
        return document_owner(txn, *schema.read_in_collection(key[schema.SLOT_BYTES :]))
    if database in _BY_ORDINAL:
        return document_owner(txn, *schema.read_in_collection(key))
    name = key.decode("utf-8", "replace").replace("\0", "/")
    if database in _NAMED:
        return f"{_NAMED[database]} {name!r}"
    if database not in ("collections", *schema.BY_COLLECTION):
        return "the store"
    owner = collection_owner(txn, schema.read_u32(key[: schema.COLLECTION_BYTES]))
    if database == "document_ids":
        name = key[schema.COLLECTION_BYTES :].decode("utf-8", "replace")
        return f"document {name!r} of {owner}"
    return owner


def document_owner(txn: Txn, collection: int, ordinal: int) -> str:
    """Returns a text that names a document and its collection, for messages.

    The text contains the document's id, or the ordinal if no id is stored for that ordinal.
    """
    name = document_name(txn, collection, ordinal)
    document = f"document {name!r}" if name else f"ordinal {ordinal}"
    return f"{document} of {collection_owner(txn, collection)}"


def document_name(txn: Txn, collection: int, ordinal: int) -> str:
    """Returns the id of the document with this ordinal; "" if no document has this ordinal.

    Reads the ids of the collection one after another, which takes 1 us for each id.
    """
    packed = schema.u64(ordinal)
    for key, value in txn.document_ids.stored(collection):
        if value[: len(packed)] == packed:
            return str(key[schema.COLLECTION_BYTES :], "utf-8", "replace")
    return ""


def collection_owner(txn: Txn, collection: int) -> str:
    """Returns a text that names the collection with this id by its tenant and name, for messages.

    For a summary collection, the text names the collection whose summaries it contains. If no name
    is found, the text contains the id.
    """
    record = txn.collections.get_sound(collection)
    if record is not None:
        kind = "the summaries of collection" if record.summarises else "collection"
        return f"{kind} {f'{record.tenant_id}/{record.name}'!r}"
    for key, value in txn.collection_names.stored():
        if value[: schema.COLLECTION_BYTES] == schema.u32(collection):
            return f"collection {str(key, 'utf-8', 'replace').replace(chr(0), '/')!r}"
    return f"collection {collection}"

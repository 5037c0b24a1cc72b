"""Changes a document's metadata and source.

An update reads the stored values, applies the change, checks the new values and stores them. The
writer stores the new values only if nobody has changed the document since it was read; otherwise
the update starts again (optimistic concurrency control). So no change of another caller is lost,
although no lock is held between reading and storing.
"""

from hrag.engine import CollectionHandle, Writer
from hrag.engine.common.validation import document_changed
from hrag.values import canonical_json
from hrag.values.deadline import Deadline
from hrag.values.documents import IngestOutcome, MetadataChange, MetadataUpdate
from hrag.values.errors import DocumentChanged, InvalidArgument
from hrag.values.ids import quoted
from indexer_svc.document_limits import check_changeable


def check_change(change: MetadataChange) -> None:
    """Raises InvalidArgument if a change has no effect, or both sets and removes the same key."""
    if not (change.metadata or change.remove_keys or change.replace or change.source is not None):
        raise InvalidArgument(
            "the request changes nothing; set metadata, remove_keys, replace or source",
            field="metadata",
        )
    if change.replace and change.remove_keys:
        raise InvalidArgument(
            f"remove_keys has {len(change.remove_keys)} keys; with replace it must be empty, "
            "because replace already removes all stored keys",
            field="remove_keys",
        )
    for key in change.remove_keys:
        if key in change.metadata:
            raise InvalidArgument(
                f"remove_keys has {quoted(key)}, which metadata sets too; use a key in only one of "
                "the two fields",
                field="remove_keys",
            )


def update_metadata(
    writer: Writer,
    collection: CollectionHandle,
    document_id: str,
    change: MetadataChange,
    deadline: Deadline,
) -> MetadataUpdate:
    """Applies a change that `check_change` has checked to the stored document.

    Raises DocumentNotFound. Raises DocumentChanged if the stored version is not the one that
    `change.expected_sequence` names. Raises TooLarge if the new values exceed a limit. Also raises
    the errors of `Writer.put_metadata`.
    """
    while True:
        deadline.check("updating metadata")
        info = writer.document(collection, document_id)
        if change.expected_sequence not in (0, info.sequence):
            raise document_changed(document_id, change.expected_sequence, info.sequence)
        metadata, source = change.applied_to(info)
        metadata_json = canonical_json.encode(metadata)
        check_changeable(metadata, metadata_json, source)
        if source == info.source and metadata_json == canonical_json.encode(info.metadata):
            return MetadataUpdate(info, IngestOutcome.UNCHANGED)
        try:
            changed = writer.put_metadata(collection, document_id, info.sequence, metadata, source)
        except DocumentChanged:
            # Another caller has written the document since it was read. The next iteration reads
            # the new version and checks it against `expected_sequence`.
            continue
        return MetadataUpdate(changed, IngestOutcome.UPDATED)

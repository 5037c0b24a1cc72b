"""The progress of a transfer while it runs, and its report when it has ended."""

from dataclasses import dataclass

from hrag.engine.transfer.transfer_catalog import Difference

MAX_DIFFERENCES = 1000
"""A TransferReport lists at most this many differences; its `difference_count` counts all."""


class TransferProgress:
    """The progress of a transfer. The transfer's thread sets the fields; any thread may read them.

    `step` is `copying` or `comparing`. `collection` is the current collection as `tenant/name`. In
    the current step, `done` of `total` documents have been read. Three fields count documents of
    the source:

    * `copied`: documents that the target did not have before.
    * `replaced`: documents that have replaced another version in the target.
    * `present`: documents that the target already had with the same content.
    """

    def __init__(self) -> None:
        self.step = ""
        self.collection = ""
        self.total = 0
        self.done = 0
        self.copied = 0
        self.replaced = 0
        self.present = 0

    def begin(self, step: str, total: int) -> None:
        """Sets the fields for the beginning of a step that will read `total` documents."""
        self.step, self.total, self.done = step, total, 0


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The result of a transfer: what was copied and compared.

    `differences` are the first MAX_DIFFERENCES differences, and `difference_count` is the count of
    all differences. Source and target are equal if `difference_count` is 0. `collections` and
    `documents` are the counts of collections and documents of the source that were compared. Three
    fields count documents of the source:

    * `copied`: documents that the target did not have before.
    * `replaced`: documents that have replaced another version in the target.
    * `present`: documents that the target already had with the same content.
    """

    collections: int
    documents: int
    copied: int
    replaced: int
    present: int
    difference_count: int
    differences: tuple[Difference, ...]

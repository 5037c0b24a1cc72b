"""The progress of a transfer while it runs, and its report when it has ended."""

from dataclasses import dataclass

from hrag.engine.transfer.transfer_catalog import Difference

MAX_DIFFERENCES = 1000
"""A report lists at most this many differences. `difference_count` counts all differences."""


class TransferProgress:
    """The progress of a transfer, which the transfer's thread writes and any thread may read.

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
        """Notes that a step begins, in which `total` documents will be read."""
        self.step, self.total, self.done = step, total, 0


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The result of a transfer: what was copied and compared.

    `differences` are the first MAX_DIFFERENCES differences, and `difference_count` is the count of
    all differences. Source and target are equal if `difference_count` is 0. `collections` and
    `documents` are the counts of collections and documents of the source that were compared. Three
    fields count documents of the source: `copied` those that the target did not have before,
    `replaced` those that have replaced another version, and `present` those that the target
    already had with the same content.
    """

    collections: int
    documents: int
    copied: int
    replaced: int
    present: int
    difference_count: int
    differences: tuple[Difference, ...]

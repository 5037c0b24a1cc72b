"""The progress of a transfer while it runs, and its report when it has ended."""

from dataclasses import dataclass

from hrag.engine.transfer.transfer_catalog import Difference

MAX_DIFFERENCES = 1000
"""The number of differences that a report names. It counts all of them."""


class TransferProgress:
    """The progress of a transfer. The transfer's thread writes it; any thread may read it.

    `step` is `copying` or `comparing`, `collection` is `tenant/name`. In this step, `done` of
    `total` documents were read. `copied`, `replaced` and `present` count documents of the source:
    those that the target did not have, those that replaced another version, and those that the
    target already had with the same content.
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
        """Starts a step with `total` documents."""
        self.step, self.total, self.done = step, total, 0


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The result of a transfer: what was copied and compared.

    `differences` are the first MAX_DIFFERENCES differences, and `difference_count` counts all of
    them. `documents` is the number of compared documents, in `collections` collections. `replaced`
    and `present` count documents that the target had before. Source and target are equal if
    `difference_count` is 0.
    """

    collections: int
    documents: int
    copied: int
    replaced: int
    present: int
    difference_count: int
    differences: tuple[Difference, ...]

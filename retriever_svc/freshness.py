"""Read your own writes: a search may wait for a change of its tenant."""

import time

from hrag.deadline import Deadline
from hrag.engine import Reader
from hrag.errors import SequenceNotReached

MAX_WAIT_S = 30.0  # A call without a deadline must not keep its thread for ever.
_POLL_S = 0.002


def wait_for_sequence(reader: Reader, tenant_id: str, sequence: int, deadline: Deadline) -> None:
    """Returns once the tenant's changes have come to `sequence`; at once if it is 0.

    Raises SequenceNotReached shortly before `deadline` ends, Cancelled when the caller goes.
    """
    while sequence and (committed := reader.sequence(tenant_id)) < sequence:
        if deadline.remaining_s <= _POLL_S:
            raise SequenceNotReached(
                f"min_sequence is {sequence}; the tenant's last change is {committed}",
                field="min_sequence",
            )
        deadline.check("waiting for min_sequence")
        time.sleep(_POLL_S)

"""Read-your-writes: a search can wait until an earlier write of its tenant is visible."""

from hrag.engine import Reader
from hrag.server.admission.suspension import Suspended, has_time_to_wait
from hrag.values.deadline import Deadline
from hrag.values.errors import SequenceNotReached


def require_sequence(reader: Reader, tenant_id: str, sequence: int, deadline: Deadline) -> None:
    """Returns without an error if the tenant's changes up to `sequence` are visible.

    If `sequence` is 0, no change is required. If the changes are not visible yet, raises Suspended.
    The server then runs the call again once the changes are visible. If only little time is left
    before `deadline`, raises SequenceNotReached instead of Suspended. Raises Cancelled if the
    client has cancelled the call.
    """
    if not sequence:
        return
    committed = reader.sequence(tenant_id)
    if committed >= sequence:
        return
    if not has_time_to_wait(deadline):
        raise SequenceNotReached(
            f"min_sequence is {sequence}; the tenant's last sequence number is {committed}, and "
            "the deadline leaves no time to wait; try again later or with a longer deadline",
            field="min_sequence",
        )
    deadline.check("waiting for min_sequence")
    raise Suspended(lambda: reader.sequence(tenant_id) >= sequence, deadline)

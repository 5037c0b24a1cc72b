"""Read-your-writes: a search can wait until a change of its tenant is visible."""

from hrag.engine import Reader
from hrag.server.admission.suspension import Suspended, has_time_to_wait
from hrag.values.deadline import Deadline
from hrag.values.errors import SequenceNotReached


def require_sequence(reader: Reader, tenant_id: str, sequence: int, deadline: Deadline) -> None:
    """Returns if the tenant's last change has at least the sequence number `sequence`.

    Also returns if `sequence` is 0. Otherwise raises one of three errors. Suspended is raised while
    there is time to wait: the call then runs again once a change has this sequence number.
    SequenceNotReached is raised shortly before `deadline` passes, and Cancelled if the caller has
    left.
    """
    if not sequence:
        return
    committed = reader.sequence(tenant_id)
    if committed >= sequence:
        return
    if not has_time_to_wait(deadline):
        raise SequenceNotReached(
            f"min_sequence is {sequence}; the tenant's last sequence number is {committed}",
            field="min_sequence",
        )
    deadline.check("waiting for min_sequence")
    raise Suspended(lambda: reader.sequence(tenant_id) >= sequence, deadline)

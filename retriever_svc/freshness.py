"""Read your own writes: a search may wait for a change of its tenant."""

from hrag.engine import Reader
from hrag.server.admission.suspension import Suspended, has_time_to_wait
from hrag.values.deadline import Deadline
from hrag.values.errors import SequenceNotReached


def require_sequence(reader: Reader, tenant_id: str, sequence: int, deadline: Deadline) -> None:
    """Returns if the tenant's changes have come to `sequence`; at once if it is 0.

    Raises Suspended until they have, SequenceNotReached shortly before `deadline` ends, and
    Cancelled when the caller goes.
    """
    if not sequence:
        return
    committed = reader.sequence(tenant_id)
    if committed >= sequence:
        return
    if not has_time_to_wait(deadline):
        raise SequenceNotReached(
            f"min_sequence is {sequence}; the tenant's last change is {committed}",
            field="min_sequence",
        )
    deadline.check("waiting for min_sequence")
    raise Suspended(lambda: reader.sequence(tenant_id) >= sequence, deadline)

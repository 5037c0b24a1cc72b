"""The lanes of calls. A lane says in which kind of thread a call runs, and when it starts."""

from enum import Enum, auto


class Lane(Enum):
    """The kind of thread in which a call runs, and when it starts to run.

    - POOL: in a thread of the pool, when its message has arrived.
    - DEDICATED: in a dedicated thread, when its message has arrived. This lane is for calls that
      mostly wait, for example for an answer that a model writes.
    - INLINE: in gRPC's event thread, when its message has arrived. This lane is for calls that take
      almost no time, for example health checks.
    - STREAM: in a dedicated thread, when its headers have arrived. This lane is for streams of
      requests.
    - REJECTED: in gRPC's event thread, when its headers have arrived. This lane is for calls that
      are refused.
    """

    POOL = auto()
    DEDICATED = auto()
    INLINE = auto()
    STREAM = auto()
    REJECTED = auto()

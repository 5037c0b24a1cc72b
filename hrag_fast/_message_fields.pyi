"""Types and documentation of the compiled functions that write and read small messages."""

import numpy as np
from numpy.typing import NDArray

def encode_fields(
    values: tuple[int | str | bytes | tuple[int | str | bytes | None, ...] | None, ...],
) -> bytes:
    """Returns an encoded protobuf message. The element `n` of `values` is the field `n` + 1.

    * An int, also one of numpy, is the value of a field of type uint32, uint64, bool or enum. 0 is
      left out.
    * A str is the value of a field of type string. An empty one is left out.
    * Bytes are an encoded message. It is written even if it is empty.
    * A tuple has the values of a repeated field, in order.
    * None is a field that is not set.

    The result has the bytes that protobuf writes for the same values.

    Raises TypeError for another type, OverflowError for a number below 0 or above 64 bits, and
    UnicodeEncodeError for a text with a lone surrogate.
    """

def split_vector(
    message: bytes, field: int, refused: int
) -> tuple[bytes, NDArray[np.float32]] | None:
    """Returns an encoded message without the field `field`, and the vector that this field has.

    The field must be a message whose field 1 has packed floats, at least one. The vector is a new
    array, float32[n]. The other bytes of the message are returned as they are: protobuf reads the
    same fields in them, and the same errors.

    Returns None if the message is not encoded in this form, for example if it has the field
    `field` twice, or if it has the field `refused`. The GIL is kept. The time is linear in the
    bytes of the message.
    """

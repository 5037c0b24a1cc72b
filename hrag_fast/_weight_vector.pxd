# cython: language_level=3
"""The vectors among the weights of a model: biases, gains and similar numbers."""


cdef inline const float* weight_vector(
    weights, str name, Py_ssize_t size, list kept
) except NULL:
    """Returns the address of the `size` numbers of a vector, and appends the vector to `kept`.

    The address is valid as long as `kept` exists. Raises TypeError or ValueError for another type
    or size.
    """
    if weights[name] is None:
        raise TypeError(f"{name} is None")
    cdef const float[::1] values = weights[name]
    if values.shape[0] != size:
        raise ValueError(f"{name} has {values.shape[0]} numbers, not {size}")
    kept.append(values)
    return &values[0]

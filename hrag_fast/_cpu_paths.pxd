# cython: language_level=3
"""The paths by which kernels multiply integers: one for each kind of processor, slowest first."""

cdef extern from "_cpu_paths.h" namespace "hrag" nogil:
    bint has_path(int path)


cdef inline tuple path_names():
    return ("plain", "avx2", "avx512_vnni")


cdef inline tuple available_paths():
    """Returns the names of the paths that this processor can run, slowest first."""
    return tuple([name for number, name in enumerate(path_names()) if has_path(number)])


cdef inline int path_of(name) except -1:
    """Returns the number of a path, or of the fastest one if `name` is None."""
    paths = available_paths()
    if name is None:
        name = paths[len(paths) - 1]
    if name not in paths:
        raise ValueError(f"path={name!r}: this processor has {', '.join(paths)}")
    return path_names().index(name)

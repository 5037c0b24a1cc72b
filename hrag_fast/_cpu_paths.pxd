# cython: language_level=3
"""The paths: versions of the products of integers, one for each kind of processor."""

cdef extern from "_cpu_paths.h" namespace "hrag" nogil:
    bint has_path(int path)


cdef inline tuple path_names():
    return ("plain", "avx2", "avx512_vnni")


cdef inline tuple available_paths():
    """Returns the names of the paths that this processor can run, slowest first."""
    return tuple([name for number, name in enumerate(path_names()) if has_path(number)])


cdef inline int path_of(name) except -1:
    """Returns the index of a path in `path_names()`; if `name` is None, of the fastest path.

    Raises ValueError for a path that this processor cannot run.
    """
    paths = available_paths()
    if name is None:
        name = paths[len(paths) - 1]
    if name not in paths:
        raise ValueError(f"path={name!r}: this processor has {', '.join(paths)}")
    return path_names().index(name)

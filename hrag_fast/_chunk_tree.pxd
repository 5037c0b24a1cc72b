# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Reads the chunks of a document's tree in place, in the binary form of hrag.values.tree.

A tree consists of the count of levels, the count of chunks of each level, and the chunks.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef packed struct Record:  # The fields of hrag.values.tree.CHUNK.
    uint32_t byte_start
    uint32_t byte_end
    uint32_t char_start
    uint32_t char_end
    uint32_t token_start
    uint32_t token_count
    uint32_t parent
    uint32_t first_child
    uint32_t child_count
    uint32_t section


cdef struct Level:  # The chunks of one level of a tree, which are read in place.
    const Record* first
    size_t count


cdef inline Level level_of(const uint8_t[::1] tree, size_t level) except *:
    """Finds a level in a tree.

    Raises ValueError if the tree does not have exactly the length that its counts require, and
    IndexError if there is no such level.
    """
    cdef Level result
    cdef uint32_t levels = 0, count
    cdef size_t i, base, size = tree.shape[0]
    if size >= sizeof(uint32_t):
        memcpy(&levels, &tree[0], sizeof(uint32_t))
    base = sizeof(uint32_t) * (<size_t>levels + 1)
    if base > size:
        raise ValueError(f"the tree has {size} bytes, which are too few for its {levels} levels")
    if level >= levels:
        raise IndexError(f"level is {level}; it must be below {levels}, the number of levels")
    for i in range(levels):
        memcpy(&count, &tree[(i + 1) * sizeof(uint32_t)], sizeof(uint32_t))
        if i == level:
            result.first = <const Record*>(&tree[0] + base)
            result.count = count
        base += count * sizeof(Record)
    if base != size:
        raise ValueError(f"the tree has {size} bytes; its {levels} levels take {base}")
    return result


cdef inline Record chunk_of(const uint8_t[::1] tree, size_t level, size_t index) except *:
    """Returns a chunk of a tree. Raises IndexError if there is no such chunk."""
    cdef Level chunks = level_of(tree, level)
    if index >= chunks.count:
        raise IndexError(
            f"index is {index}; it must be below {chunks.count}, the number of chunks on the level"
        )
    return chunks.first[index]


cdef inline uint64_t token_end(const Record* span) noexcept:
    return <uint64_t>span.token_start + span.token_count

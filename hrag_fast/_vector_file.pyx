# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`VectorFile`: the vectors of an HNSW index, which stay in its file.

The operating system caches what is read, for all processes together, and frees it when memory is
short. A file is not mapped: if a mapped file is truncated, a read ends the process with SIGBUS. So
each vector is read into memory of the search and verified by its checksum, at every read. The
checksums are computed when the graph is loaded, from bytes that have been verified. They are hashes
with keys that are drawn for each graph, so a changed vector cannot be made to fit.

A vector that is not cached is requested from the disk before any of them is waited for. So a search
waits about as long for many vectors as for one.
"""

import os

import numpy as np

from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "<fcntl.h>" nogil:
    int F_DUPFD_CLOEXEC
    int fcntl(int descriptor, int command, int argument)

cdef extern from "<unistd.h>" nogil:
    int close(int descriptor)

cdef extern from "_vector_file.h" namespace "hrag" nogil:
    int read_at(int descriptor, void* out, size_t size, uint64_t offset)
    bint read_cached(int descriptor, void* out, size_t size, uint64_t offset)
    void begin_reading(int descriptor, size_t size, uint64_t offset)
    uint64_t keyed_hash(const float* row, const uint32_t* keys, size_t half)


cdef class VectorFile:
    """Reads the vectors of a file. The checksum of each vector must be remembered first.

    A vector is read into 2 * `half` numbers, of which the caller sets the last one to 0: the
    dimension may be odd.

    The file stays open as long as this object exists, so it may be removed meanwhile.
    """

    def __cinit__(
        self, int descriptor, size_t count, size_t dimension, uint64_t first_offset, uint64_t step
    ):
        self.descriptor = -1
        self.dimension, self.first_offset, self.step = dimension, first_offset, step
        self.half = (dimension + 1) // 2
        self.keys = np.frombuffer(bytearray(os.urandom(8 * self.half)), np.uint32)
        self.checksums = np.empty(count, np.uint64)
        self.descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        if self.descriptor < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        if self.descriptor >= 0:
            close(self.descriptor)

    @property
    def size_bytes(self):
        """The memory of the checksums, in bytes."""
        return self.checksums.nbytes

    cdef int read(self, size_t row, float* out) noexcept nogil:
        """Reads a vector without verifying it. Returns a result of `read_at`."""
        return read_at(
            self.descriptor, out, self.dimension * sizeof(float), self.first_offset + row * self.step
        )

    cdef void begin_to_read(self, size_t row) noexcept nogil:
        begin_reading(
            self.descriptor, self.dimension * sizeof(float), self.first_offset + row * self.step
        )

    cdef void remember(self, size_t row, const float* vector) noexcept nogil:
        """Stores the checksum of a vector."""
        self.checksums[row] = keyed_hash(vector, &self.keys[0], self.half)

    cdef bint is_intact(self, size_t row, const float* vector) noexcept nogil:
        """Returns True if a vector is the one that was remembered."""
        return self.checksums[row] == keyed_hash(vector, &self.keys[0], self.half)

    cdef bint read_cached(self, size_t row, float* out) noexcept nogil:
        """Reads a vector if that needs no access to the disk. Returns True if it is intact.

        If it returns False, the operating system begins to read the vector from the disk.
        """
        cdef size_t size = self.dimension * sizeof(float)
        cdef uint64_t offset = self.first_offset + row * self.step
        if read_cached(self.descriptor, out, size, offset) and self.is_intact(row, out):
            return True
        begin_reading(self.descriptor, size, offset)
        return False

    cdef bint read_intact(self, size_t row, float* out, int* result) noexcept nogil:
        """Reads a vector; waits for the disk. Returns True if it is intact.

        `result` becomes the result of `read_at`.
        """
        result[0] = self.read(row, out)
        return result[0] == READ and self.is_intact(row, out)

# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`GraphFile`: reads the file of an HNSW index, block by block, into the arrays of a `Graph`.

The file has hnswlib's format: a header; for each element its links at level 0, its vector and its
item; then the links above level 0. Links, items and codes of the vectors are kept in memory, and
vectors too unless they stay in the file. Blocks may end anywhere, so only a part of the file is in
memory at a time.

Everything is checked: no number in the file can make a search read outside of the arrays.

To make codes, the mean of many vectors is subtracted from each vector; then its numbers are rounded
to 8 bits, with a separate scale for each vector. The mean is needed before the first vector is
rounded. So vectors that stay in the file are read for it first. What these reads returned has not
been verified yet, so the same vectors must follow in the blocks.
"""

import os

import numpy as np

from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from libcpp.vector cimport vector

from hrag_fast._vector_file cimport FILE_ENDS, READ, VectorFile

cdef extern from "_graph_file.h" namespace "hrag" nogil:
    cdef enum:
        MAX_CODE
        CACHE_LINE

    float rounded(const float* values, size_t count, int32_t most_code, int16_t* out)
    void add(const float* values, size_t count, float* sums)
    void subtract(const float* values, const float* others, size_t count, float* out)
    void narrow(const int16_t* values, size_t count, int8_t* out)

cdef enum:
    MAX_LEVEL = 64  # Random levels of hnswlib are far below this.
    MAX_ELEMENTS = 0x7FFFFFFF  # Internal ids have 31 bits.
    MEAN_OF = 1024  # The mean of this many vectors is near the mean of all vectors of a model.


cdef class GraphFile:
    """The content of an index file. Raises ValueError if it is not an index of inner products."""

    def __cinit__(self, blocks, size_t size_bytes, descriptor, bint with_codes):
        """Reads the file, whose content are the `blocks` in this order, `size_bytes` together.

        If `descriptor` is not None, it is that of the same file, and vectors stay in the file.
        """
        if size_bytes < sizeof(Header):
            raise ValueError(f"{size_bytes} bytes are too few for an index")
        if descriptor is not None and not with_codes:
            raise ValueError("vectors that stay in the file cannot be compared to follow links")
        self.size_bytes = size_bytes
        for block in blocks:
            self._take(block, descriptor, with_codes)
        if self.read_bytes != size_bytes:
            raise ValueError(f"the index has {self.read_bytes} bytes instead of {size_bytes}")
        self._finish(with_codes)

    def _take(self, const uint8_t[::1] block, descriptor, bint with_codes):
        cdef size_t size = block.shape[0], at = 0
        if size > self.size_bytes - self.read_bytes:
            raise ValueError(f"the index has more than {self.size_bytes} bytes")
        if not size:
            return
        if self.read_bytes < sizeof(Header):
            at = self.append(&block[0], size, sizeof(Header))
            if self.partial.size() == sizeof(Header):
                memcpy(&self.header, self.partial.data(), sizeof(Header))
                self.partial.clear()
                self._begin(descriptor, with_codes)
        self.read_bytes += size
        if at < size:
            with nogil:
                self.take_rest(&block[at], size - at)

    def _begin(self, descriptor, bint with_codes):
        """Allocates the arrays. The header has just been read."""
        self._check_header()
        cdef Header* header = &self.header
        cdef size_t elements_end = sizeof(Header) + header.count * header.element_bytes
        self.dimension = (header.label_offset - header.data_offset) // sizeof(float)
        self.links_bytes = header.data_offset
        self.level_bytes = (header.max_links + 1) * sizeof(uint32_t)
        self.links = np.empty(header.count * self.links_bytes, np.uint8)
        self.upper = np.empty(self.size_bytes - elements_end, np.uint8)
        self.items = np.empty(header.count, np.uint32)
        self.internal_ids = np.full(header.count, header.count, np.uint32)
        if with_codes:
            self._begin_codes()
        self.vectors = np.empty(
            header.count * self.dimension if descriptor is None else 0, np.float32
        )
        if descriptor is not None:
            self.row.resize(self.dimension + 1)  # A row may be padded with a zero.
            self.stored = VectorFile(
                descriptor,
                header.count,
                self.dimension,
                sizeof(Header) + header.data_offset,
                header.element_bytes,
            )
            self._sample_stored()

    def _check_header(self):
        cdef Header* header = &self.header
        cdef size_t rest = self.size_bytes - sizeof(Header)
        if (
            header.level0_offset != 0
            or not 0 < header.max_links <= COUNT_MASK
            or not 0 < header.max_links0 <= COUNT_MASK
            or header.data_offset != (header.max_links0 + 1) * sizeof(uint32_t)
            or not header.data_offset < header.label_offset <= rest
            or (header.label_offset - header.data_offset) % sizeof(float)
            or header.element_bytes != header.label_offset + sizeof(uint64_t)
            or not 0 <= header.max_level <= MAX_LEVEL
            or not 0 < header.count <= min(rest // header.element_bytes, MAX_ELEMENTS)
            or header.entry_point >= header.count
        ):
            raise ValueError(
                "the file does not begin with the header of an index of inner products"
            )

    def _begin_codes(self):
        cdef uint8_t[::1] memory
        self.row_bytes = (self.dimension + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
        self.codes_memory = memory = np.empty(
            (self.header.count + 1) * self.row_bytes, np.uint8
        )
        self.codes = <int8_t*>&memory[-<size_t>&memory[0] % CACHE_LINE]
        self.scales = np.empty(self.header.count, np.float32)
        self.mean.resize(self.dimension)
        self.sampled.resize(self.dimension)
        self.centred.resize(self.dimension)
        self.wide.resize(self.row_bytes)  # All values are zeros; the last ones stay so.

    def _sample_stored(self):
        """Computes the mean from vectors in the file."""
        cdef size_t i, count = self.sample_count()
        cdef int result = READ
        with nogil:
            for i in range(count):
                self.stored.begin_to_read(self.sample_row(i))
            for i in range(count):
                result = self.stored.read(self.sample_row(i), self.row.data())
                if result != READ:
                    break
                add(self.row.data(), self.dimension, self.mean.data())
            for i in range(self.dimension):
                self.mean[i] /= count
        if result == FILE_ENDS:
            raise ValueError("the file became shorter while it was read")
        if result != READ:
            raise OSError(result, os.strerror(result))

    cdef size_t append(self, const uint8_t* data, size_t size, size_t whole) except? 0 nogil:
        """Appends bytes to `partial` until it has `whole` bytes. Returns how many."""
        cdef size_t count = min(size, whole - self.partial.size())
        self.partial.insert(self.partial.end(), data, data + count)
        return count

    cdef int take_rest(self, const uint8_t* data, size_t size) except -1 nogil:
        """Takes the next bytes after the header: elements, then links above level 0."""
        cdef size_t at = 0, element_bytes = self.header.element_bytes
        while at < size and self.read_elements < self.header.count:
            if self.partial.empty() and size - at >= element_bytes:
                self.take_element(data + at)
                at += element_bytes
            else:
                at += self.append(data + at, size - at, element_bytes)
                if self.partial.size() == element_bytes:
                    self.take_element(self.partial.data())
                    self.partial.clear()
        if at < size:
            memcpy(&self.upper[self.upper_bytes], data + at, size - at)
            self.upper_bytes += size - at
        return 0

    cdef int take_element(self, const uint8_t* element) except -1 nogil:
        cdef size_t internal_id = self.read_elements
        cdef uint64_t item
        cdef float* row = self.row.data()
        self.read_elements += 1
        memcpy(&self.links[internal_id * self.links_bytes], element, self.links_bytes)
        memcpy(&item, element + self.header.label_offset, sizeof(item))
        if item < self.header.count and self.internal_ids[item] == self.header.count:
            self.items[internal_id] = <uint32_t>item
            self.internal_ids[item] = <uint32_t>internal_id
            self.numbered_items += 1
        if self.vectors.shape[0]:
            row = &self.vectors[internal_id * self.dimension]
        memcpy(row, element + self.header.data_offset, self.dimension * sizeof(float))
        if self.vectors.shape[0]:
            return 0
        self.stored.remember(internal_id, row)
        self.encode(internal_id, row)
        if internal_id == self.sample_row(self.next_sample):
            add(row, self.dimension, self.sampled.data())
            self.next_sample += 1
        return 0

    cdef size_t sample_count(self) noexcept nogil:
        return min(self.header.count, <size_t>MEAN_OF)

    cdef size_t sample_row(self, size_t sample) noexcept nogil:
        """Returns the internal id of a vector of the mean. They are at equal distances."""
        return sample * self.header.count // self.sample_count()

    cdef void encode(self, size_t internal_id, const float* vector) noexcept nogil:
        """Subtracts the mean from a vector, and rounds the result to codes."""
        subtract(vector, self.mean.data(), self.dimension, self.centred.data())
        self.scales[internal_id] = rounded(
            self.centred.data(), self.dimension, MAX_CODE, self.wide.data()
        )
        narrow(self.wide.data(), self.row_bytes, self.codes + internal_id * self.row_bytes)

    def _finish(self, bint with_codes):
        """Checks all links and items, and makes the codes of vectors that are in memory."""
        cdef bint valid
        cdef size_t i
        self.upper_offsets = self._read_upper_offsets()
        if self.numbered_items != self.header.count:
            raise ValueError(
                f"the {self.header.count} items of the index must be numbered from 0 to "
                f"{self.header.count - 1}, each number once"
            )
        with nogil:
            valid = self.links_are_valid()
        if not valid:
            raise ValueError(
                "the links of the index are damaged: a list of links has a wrong length, or a link "
                "leads to no element"
            )
        if self.stored is not None:
            self._check_sample()
        elif with_codes:
            with nogil:
                for i in range(self.sample_count()):
                    add(
                        &self.vectors[self.sample_row(i) * self.dimension],
                        self.dimension,
                        self.mean.data(),
                    )
                for i in range(self.dimension):
                    self.mean[i] /= self.sample_count()
                for i in range(self.header.count):
                    self.encode(i, &self.vectors[i * self.dimension])

    def _check_sample(self):
        """Raises ValueError if the mean was computed from other vectors than those in the blocks."""
        cdef size_t i
        for i in range(self.dimension):
            self.sampled[i] /= self.sample_count()
        if memcmp(self.sampled.data(), self.mean.data(), self.dimension * sizeof(float)):
            raise ValueError("the vectors of the file changed while it was read")

    def _read_upper_offsets(self):
        """Returns where each element's links above level 0 begin in `upper`; 0 if it has none."""
        offsets = np.zeros(self.header.count, np.uint64)
        cdef uint64_t[::1] out = offsets
        cdef size_t size = self.upper.shape[0], at = 0, i = 0
        cdef uint32_t length
        with nogil:
            while i < self.header.count and at + sizeof(uint32_t) <= size:
                memcpy(&length, &self.upper[at], sizeof(uint32_t))
                at += sizeof(uint32_t)
                if length:
                    out[i] = at
                    at += length
                i += 1
        if i != self.header.count or at != size:
            end = self.size_bytes - size + at
            raise ValueError(
                f"the index has {self.size_bytes} bytes, but its links end at byte {end}"
            )
        return offsets

    cdef bint links_are_valid(self) noexcept nogil:
        cdef size_t i, level, levels
        cdef uint32_t length
        for i in range(self.header.count):
            if not self.list_is_valid(&self.links[i * self.links_bytes], self.header.max_links0, 0):
                return False
            levels = 0
            if self.upper_offsets[i]:
                length = self.upper_size(i)
                if length % self.level_bytes:
                    return False
                levels = length // self.level_bytes
            if i == self.header.entry_point and levels < <size_t>self.header.max_level:
                return False
            for level in range(levels):
                if not self.list_is_valid(
                    &self.upper[self.upper_offsets[i] + level * self.level_bytes],
                    self.header.max_links,
                    level + 1,
                ):
                    return False
        return True

    cdef bint list_is_valid(
        self, const uint8_t* first, size_t max_count, size_t level
    ) noexcept nogil:
        """Returns True if a list is not too long and each link leads to an element of `level`."""
        cdef const uint32_t* links = <const uint32_t*>first
        cdef size_t count = links[0] & COUNT_MASK
        cdef size_t i
        if count > max_count:
            return False
        for i in range(1, count + 1):
            if links[i] >= self.header.count:
                return False
            if level:
                if not self.upper_offsets[links[i]]:
                    return False
                if self.upper_size(links[i]) < level * self.level_bytes:
                    return False
        return True

    cdef uint32_t upper_size(self, size_t internal_id) noexcept nogil:
        """Returns the size in bytes of an element's links above level 0, which must exist."""
        cdef uint32_t length
        cdef size_t at = self.upper_offsets[internal_id] - sizeof(uint32_t)
        memcpy(&length, &self.upper[at], sizeof(uint32_t))
        return length

    @property
    def memory_bytes(self):
        """The memory of all arrays, in bytes."""
        arrays = [self.links, self.upper, self.upper_offsets, self.items, self.internal_ids]
        arrays.append(self.vectors)
        if self.codes != NULL:
            arrays += [self.codes_memory, self.scales]
        stored = 0 if self.stored is None else self.stored.size_bytes
        return stored + sum([array.nbytes for array in arrays])

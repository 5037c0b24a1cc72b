// The loops of the BERT encoder: products with a 4-bit matrix, and the arithmetic between them.
//
// A 4-bit matrix has one scale for 32 consecutive codes of a column (a block, as in ggml's Q4_0).
// Rows of floats are rounded to int8 in the same blocks. The inner product of a block is a sum of
// int32 that cannot overflow, so every path computes the same integers. Floats are added,
// multiplied and divided in the order that is written here, without fused multiply-adds (the
// module is compiled with -ffp-contract=off). So a text's vector has the same bits on every
// processor.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "_cpu_paths.h"
#include "_lanes.h"

#ifdef HRAG_X86
#include <immintrin.h>
#endif

namespace hrag {

enum {
    PANEL = 16,              // The count of columns that are stored together.
    BLOCK = 32,              // The count of numbers with one scale.
    HALF = BLOCK / 2,        // The high codes of bytes are those of the second half of a block.
    QUAD = 4,                // The count of consecutive codes of a column that are neighbours.
    PAIRS = HALF / QUAD,     // The count of quads in a half.
    Q4_BYTES = 2 + HALF,     // A block in a file: a float16 scale, then two codes a byte.
    Q4_ZERO = 8,             // The code that stands for 0.
    MAX_INT8 = 127,
};

// A block of a panel: the scales and codes of PANEL columns. A byte has two codes from 0 to 15: the
// low one is of the first half of the block, the high one of the second. Q4_ZERO stands for 0.
struct alignas(64) PanelBlock {
    float scales[PANEL];
    uint8_t codes[PAIRS][PANEL][QUAD];
};

// Sixteen floats that begin at a cache line.
struct alignas(64) Line {
    float values[LANES];
};

// Rows of floats, rounded to int8 in blocks.
struct RoundedRows {
    int8_t* codes;    // int8[rows, depth]
    float* scales;    // float[rows, depth / BLOCK]: the value of the code 1
    int32_t* lifts;   // int32[rows, depth / BLOCK]: -Q4_ZERO times the sum of the codes
    size_t depth;

    size_t blocks() const { return depth / BLOCK; }
};

// A product of rounded rows with a matrix, plus biases.
struct Q4Product {
    RoundedRows rows;
    size_t row_count;
    const PanelBlock* panels;  // PanelBlock[columns / PANEL, depth / BLOCK]
    const float* biases;
    size_t columns;  // A multiple of PANEL.
    float* out;      // float[row_count, columns]
    int path;

    const PanelBlock* panel(size_t column) const { return panels + column / PANEL * rows.blocks(); }
};

template <int ROWS>
struct Q4PlainBlock {
    static void run(const Q4Product& p, size_t row, size_t column) {
        const size_t blocks = p.rows.blocks();
        const PanelBlock* panel = p.panel(column);
        for (int r = 0; r < ROWS; r++) {
            const int8_t* codes = p.rows.codes + (row + r) * p.rows.depth;
            float* out = p.out + (row + r) * p.columns + column;
            for (int i = 0; i < PANEL; i++) out[i] = p.biases[column + i];
            for (size_t b = 0; b < blocks; b++) {
                int32_t sums[PANEL];
                const float scale = p.rows.scales[(row + r) * blocks + b];
                for (int i = 0; i < PANEL; i++) sums[i] = p.rows.lifts[(row + r) * blocks + b];
                for (int pair = 0; pair < PAIRS; pair++)
                    for (int i = 0; i < PANEL; i++)
                        for (int j = 0; j < QUAD; j++) {
                            const uint8_t both = panel[b].codes[pair][i][j];
                            const int8_t* code = codes + b * BLOCK + pair * QUAD + j;
                            sums[i] += (both & 15) * code[0] + (both >> 4) * code[HALF];
                        }
                for (int i = 0; i < PANEL; i++)
                    out[i] += static_cast<float>(sums[i]) * (panel[b].scales[i] * scale);
            }
        }
    }
};

// Multiplies all rows with one panel, in blocks of ROWS rows; the last rows are in smaller blocks.
template <template <int> class Block, int ROWS>
struct Q4Blocks {
    static void run(const Q4Product& p, size_t row, size_t column) {
        for (; row + ROWS <= p.row_count; row += ROWS) Block<ROWS>::run(p, row, column);
        Q4Blocks<Block, ROWS / 2>::run(p, row, column);
    }
};

template <template <int> class Block>
struct Q4Blocks<Block, 0> {
    static void run(const Q4Product&, size_t, size_t) {}
};

template <template <int> class Block, int ROWS>
static void q4_products(const Q4Product& p) {
    for (size_t column = 0; column < p.columns; column += PANEL)
        Q4Blocks<Block, ROWS>::run(p, 0, column);
}

#ifdef HRAG_X86

static inline int32_t quad_at(const int8_t* codes) {
    int32_t quad;
    memcpy(&quad, codes, sizeof quad);
    return quad;
}

// The sums of a block fit int16: each is a sum of 16 products, which are at most 15 * 127, and
// 16 * 15 * 127 = 30,480.
template <int ROWS>
struct Q4Avx2Block {
    HRAG_AVX2 static void run(const Q4Product& p, size_t row, size_t column) {
        const size_t blocks = p.rows.blocks();
        const PanelBlock* panel = p.panel(column);
        const int8_t* codes = p.rows.codes + row * p.rows.depth;
        const __m256i ones = _mm256_set1_epi16(1), low_bits = _mm256_set1_epi8(15);
        __m256 low[ROWS], high[ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            low[r] = _mm256_loadu_ps(p.biases + column);
            high[r] = _mm256_loadu_ps(p.biases + column + PANEL / 2);
        }
        for (size_t b = 0; b < blocks; b++) {
            __m256i low_sums[ROWS], high_sums[ROWS];
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) low_sums[r] = high_sums[r] = _mm256_setzero_si256();
// If GCC unrolled this loop, it would compute all products first, and store them.
#pragma GCC unroll 1
            for (int pair = 0; pair < PAIRS; pair++) {
                const __m256i* half = reinterpret_cast<const __m256i*>(panel[b].codes[pair]);
                __m256i first = _mm256_loadu_si256(half), second = _mm256_loadu_si256(half + 1);
#pragma GCC unroll 2
                for (int part = 0; part < 2; part++) {
                    const __m256i first_codes = _mm256_and_si256(first, low_bits);
                    const __m256i second_codes = _mm256_and_si256(second, low_bits);
#pragma GCC unroll 8
                    for (int r = 0; r < ROWS; r++) {
                        const __m256i quad = _mm256_set1_epi32(quad_at(
                            codes + r * p.rows.depth + b * BLOCK + part * HALF + pair * QUAD));
                        low_sums[r] = _mm256_add_epi16(low_sums[r],
                                                       _mm256_maddubs_epi16(first_codes, quad));
                        high_sums[r] = _mm256_add_epi16(high_sums[r],
                                                        _mm256_maddubs_epi16(second_codes, quad));
                    }
                    first = _mm256_srli_epi16(first, 4);
                    second = _mm256_srli_epi16(second, 4);
                }
            }
            const __m256 first_scales = _mm256_loadu_ps(panel[b].scales);
            const __m256 second_scales = _mm256_loadu_ps(panel[b].scales + PANEL / 2);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                const size_t at = (row + r) * blocks + b;
                const __m256i lift = _mm256_set1_epi32(p.rows.lifts[at]);
                const __m256 scale = _mm256_set1_ps(p.rows.scales[at]);
                const __m256 a = _mm256_cvtepi32_ps(
                    _mm256_add_epi32(_mm256_madd_epi16(low_sums[r], ones), lift));
                const __m256 c = _mm256_cvtepi32_ps(
                    _mm256_add_epi32(_mm256_madd_epi16(high_sums[r], ones), lift));
                low[r] =
                    _mm256_add_ps(low[r], _mm256_mul_ps(a, _mm256_mul_ps(first_scales, scale)));
                high[r] =
                    _mm256_add_ps(high[r], _mm256_mul_ps(c, _mm256_mul_ps(second_scales, scale)));
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            float* out = p.out + (row + r) * p.columns + column;
            _mm256_storeu_ps(out, low[r]);
            _mm256_storeu_ps(out + PANEL / 2, high[r]);
        }
    }
};

template <int ROWS>
struct Q4VnniBlock {
    HRAG_AVX512_VNNI static void run(const Q4Product& p, size_t row, size_t column) {
        const size_t blocks = p.rows.blocks();
        const PanelBlock* panel = p.panel(column);
        const int8_t* codes = p.rows.codes + row * p.rows.depth;
        const float* scales = p.rows.scales + row * blocks;
        const int32_t* lifts = p.rows.lifts + row * blocks;
        const __m512i low_bits = _mm512_set1_epi8(15);
        __m512 out[ROWS];
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) out[r] = _mm512_loadu_ps(p.biases + column);
        for (size_t b = 0; b < blocks; b++) {
            __m512i sums[ROWS];
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++) sums[r] = _mm512_set1_epi32(lifts[r * blocks + b]);
#pragma GCC unroll 4
            for (int pair = 0; pair < PAIRS; pair++) {
                const __m512i both = _mm512_loadu_si512(panel[b].codes[pair]);
                const __m512i weights = _mm512_and_si512(both, low_bits);
                const __m512i high_weights =
                    _mm512_and_si512(_mm512_srli_epi16(both, 4), low_bits);
#pragma GCC unroll 12
                for (int r = 0; r < ROWS; r++) {
                    const int8_t* quads = codes + r * p.rows.depth + b * BLOCK + pair * QUAD;
                    sums[r] = _mm512_dpbusd_epi32(sums[r], weights,
                                                  _mm512_set1_epi32(quad_at(quads)));
                    sums[r] = _mm512_dpbusd_epi32(sums[r], high_weights,
                                                  _mm512_set1_epi32(quad_at(quads + HALF)));
                }
            }
            const __m512 column_scales = _mm512_loadu_ps(panel[b].scales);
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++) {
                const __m512 scale =
                    _mm512_mul_ps(column_scales, _mm512_set1_ps(scales[r * blocks + b]));
                out[r] = _mm512_add_ps(out[r], _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), scale));
            }
        }
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++)
            _mm512_storeu_ps(p.out + (row + r) * p.columns + column, out[r]);
    }
};

#endif  // HRAG_X86

static void run_q4_product(const Q4Product& product) {
#ifdef HRAG_X86
    if (product.path == AVX512_VNNI) return q4_products<Q4VnniBlock, 12>(product);
    if (product.path == AVX2) return q4_products<Q4Avx2Block, 4>(product);
#endif
    q4_products<Q4PlainBlock, 1>(product);
}

// 1.5 * 2**23 and its bits. If it is added to a float, the sum's lowest bits are the rounded float.
static const float SHIFT = 12582912.0f;
static const int32_t SHIFT_BITS = 0x4B400000;

typedef int32_t IntLanes __attribute__((vector_size(64), aligned(4), may_alias));

static inline const Lanes& lanes_at(const float* values) {
    return *reinterpret_cast<const Lanes*>(values);
}

static inline Lanes& lanes_at(float* values) { return *reinterpret_cast<Lanes*>(values); }

// Rounds a row to int8, half to even, in blocks. The largest magnitude of a block becomes 127. All
// codes and the scale of a block are 0 if all magnitudes are below SMALLEST, or if a magnitude is
// above LARGEST or not finite.
HRAG_CPU_CLONES
static void round_row(const float* values, size_t row, const RoundedRows& out) {
    const float SMALLEST = 1e-30f, LARGEST = 3e38f;
    const IntLanes magnitude = IntLanes{} + 0x7FFFFFFF;
    for (size_t b = 0; b < out.blocks(); b++) {
        const Lanes low = lanes_at(values + b * BLOCK), high = lanes_at(values + b * BLOCK + LANES);
        const IntLanes low_bits = reinterpret_cast<IntLanes>(low) & magnitude;
        const IntLanes high_bits = reinterpret_cast<IntLanes>(high) & magnitude;
        const IntLanes larger = low_bits > high_bits ? low_bits : high_bits;
        int32_t most_bits = 0;
        for (int i = 0; i < LANES; i++) most_bits = larger[i] > most_bits ? larger[i] : most_bits;
        float most;
        memcpy(&most, &most_bits, sizeof most);
        const float scale = most >= SMALLEST && most <= LARGEST ? most / MAX_INT8 : 0;
        const float factor = scale > 0 ? 1 / scale : 0;
        int8_t* codes = out.codes + row * out.depth + b * BLOCK;
        int32_t sum = 0;
        for (int i = 0; i < BLOCK; i++) {
            const float shifted = (factor > 0 ? values[b * BLOCK + i] * factor : 0) + SHIFT;
            int32_t bits;
            memcpy(&bits, &shifted, sizeof bits);
            const int32_t code = bits - SHIFT_BITS;
            codes[i] = static_cast<int8_t>(code);
            sum += code;
        }
        out.scales[row * out.blocks() + b] = scale;
        out.lifts[row * out.blocks() + b] = -Q4_ZERO * sum;
    }
}

// Returns e**x for x from -87 to 0, with a relative error below 2e-7. Smaller x give about e**-87.
static inline __attribute__((always_inline)) void exp_of(Lanes& x) {
    const float LOG2_E = 1.44269504088896341f;
    const Lanes least = Lanes{} - 87.0f;
    x = x < least ? least : x;
    const Lanes shifted = x * LOG2_E + SHIFT;
    const Lanes power = shifted - SHIFT;
    // ln 2 is split into two floats; the product of `power` with the first float is exact.
    const Lanes rest = (x - power * 0.693359375f) - power * -2.12194440e-4f;
    Lanes series = Lanes{} + 1.9875691500e-4f;
    series = series * rest + 1.3981999507e-3f;
    series = series * rest + 8.3334519073e-3f;
    series = series * rest + 4.1665795894e-2f;
    series = series * rest + 1.6666665459e-1f;
    series = series * rest + 5.0000001201e-1f;
    series = series * (rest * rest) + rest + 1.0f;
    const IntLanes exponent = (reinterpret_cast<IntLanes>(shifted) - SHIFT_BITS) << 23;
    x = reinterpret_cast<Lanes>(reinterpret_cast<IntLanes>(series) + exponent);
}

// Replaces each value by its GELU, x (1 + erf(x / sqrt(2))) / 2. erf is computed as the ratio of
// two polynomials (Eigen's approximation), with an error below 1e-6. The count is a multiple of
// LANES.
HRAG_CPU_CLONES
static void gelu(float* values, size_t count) {
    const Lanes most = Lanes{} + 4.0f, least = Lanes{} - 4.0f;
    for (size_t i = 0; i < count; i += LANES) {
        const Lanes value = lanes_at(values + i);
        Lanes x = value * 0.70710678118654752440f;
        x = x > most ? most : x;
        x = x < least ? least : x;
        const Lanes square = x * x;
        Lanes over = Lanes{} - 2.72614225801306e-10f;
        over = over * square + 2.77068142495902e-08f;
        over = over * square - 2.10102402082508e-06f;
        over = over * square - 5.69250639462346e-05f;
        over = over * square - 7.34990630326855e-04f;
        over = over * square - 2.95459980854025e-03f;
        over = over * square - 1.60960333262415e-02f;
        Lanes under = Lanes{} - 1.45660718464996e-05f;
        under = under * square - 2.13374055278905e-04f;
        under = under * square - 1.68282697438203e-03f;
        under = under * square - 7.37332916720468e-03f;
        under = under * square - 1.42647390514189e-02f;
        lanes_at(values + i) = value * 0.5f * (1.0f + x * over / under);
    }
}

// values = layer_norm(values + more)
static void add_and_norm(float* values, const float* more, size_t count, float epsilon,
                         const float* gains, const float* biases) {
    add(more, count, values);
    standardize(values, count, epsilon);
    amplify(values, count, gains, biases, 1, values);
}

enum { HEAD = 32, HEAD_LANES = HEAD / LANES, QUERIES = 4 };

static inline size_t padded(size_t count) { return (count + LANES - 1) / LANES * LANES; }

// The keys and values of one head, and room for the scores of QUERIES tokens.
struct HeadRows {
    float* keys;    // float[HEAD, padded(count)]: keys as columns, divided by sqrt(HEAD)
    float* values;  // float[count, HEAD]
    float* scores;  // float[QUERIES, padded(count)]
    size_t count;
};

// Copies the keys and values of one head out of the rows of a product. `stride` is the count of
// floats of a row.
static void gather_head(const float* keys, const float* values, size_t stride, HeadRows& head) {
    const float factor = 0.17677669529663688f;  // 1 / sqrt(HEAD)
    const size_t width = padded(head.count);
    memset(head.keys, 0, HEAD * width * sizeof *head.keys);
    for (size_t t = 0; t < head.count; t++) {
        for (int i = 0; i < HEAD; i++) head.keys[i * width + t] = keys[t * stride + i] * factor;
        memcpy(head.values + t * HEAD, values + t * stride, HEAD * sizeof *values);
    }
}

// Computes the attention of COUNT consecutive tokens in one head: the mean of all values, weighted
// by the softmax of the products of the tokens' queries with all keys.
template <int COUNT>
static inline __attribute__((always_inline)) void attend_some(const float* queries, size_t stride,
                                                              const HeadRows& head, float* out,
                                                              size_t out_stride) {
    const size_t width = padded(head.count);
    const float LEAST = -1e30f;
    for (size_t s = 0; s < width; s += LANES) {
        Lanes sums[COUNT] = {};
        for (int i = 0; i < HEAD; i++) {
            const Lanes keys = lanes_at(head.keys + i * width + s);
            for (int r = 0; r < COUNT; r++) sums[r] += keys * queries[r * stride + i];
        }
        for (int r = 0; r < COUNT; r++) lanes_at(head.scores + r * width + s) = sums[r];
    }
    float totals[COUNT];
    for (int r = 0; r < COUNT; r++) {
        float* scores = head.scores + r * width;
        for (size_t s = head.count; s < width; s++) scores[s] = LEAST;
        Lanes most = Lanes{} + LEAST, total = {};
        for (size_t s = 0; s < width; s += LANES) {
            const Lanes score = lanes_at(scores + s);
            most = score > most ? score : most;
        }
        float largest_score = LEAST;
        for (int i = 0; i < LANES; i++)
            largest_score = most[i] > largest_score ? most[i] : largest_score;
        for (size_t s = 0; s < width; s += LANES) {
            Lanes weight = lanes_at(scores + s) - largest_score;
            exp_of(weight);
            total += weight;
            lanes_at(scores + s) = weight;
        }
        totals[r] = sum_of(total);
    }
    Lanes sums[COUNT][HEAD_LANES] = {};
    for (size_t s = 0; s < head.count; s++)
        for (int i = 0; i < HEAD_LANES; i++) {
            const Lanes value = lanes_at(head.values + s * HEAD + i * LANES);
            for (int r = 0; r < COUNT; r++) sums[r][i] += value * head.scores[r * width + s];
        }
    for (int r = 0; r < COUNT; r++)
        for (int i = 0; i < HEAD_LANES; i++)
            lanes_at(out + r * out_stride + i * LANES) = sums[r][i] / totals[r];
}

// Computes the attention of all tokens of a text in one head.
HRAG_CPU_CLONES
static void attend(const float* queries, size_t stride, const HeadRows& head, float* out,
                   size_t out_stride) {
    size_t t = 0;
    for (; t + QUERIES <= head.count; t += QUERIES)
        attend_some<QUERIES>(queries + t * stride, stride, head, out + t * out_stride, out_stride);
    for (; t < head.count; t++)
        attend_some<1>(queries + t * stride, stride, head, out + t * out_stride, out_stride);
}

// Returns the float32 of a float16 that is finite.
static inline float float_of_half(uint16_t half) {
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7FFF) << 13;
    float value;
    memcpy(&value, &magnitude, sizeof value);
    value *= 5.192296858534828e33f;  // 2**112: the difference of the exponents' zeros
    return half & 0x8000 ? -value : value;
}

// out = a row of a table in the form of a file. `blocks` is the count of blocks of the row.
static void read_q4_row(const uint8_t* bytes, size_t blocks, float* out) {
    for (size_t b = 0; b < blocks; b++, bytes += Q4_BYTES, out += BLOCK) {
        uint16_t half;
        memcpy(&half, bytes, sizeof half);
        const float scale = float_of_half(half);
        for (int i = 0; i < HALF; i++) {
            out[i] = static_cast<float>((bytes[2 + i] & 15) - Q4_ZERO) * scale;
            out[i + HALF] = static_cast<float>((bytes[2 + i] >> 4) - Q4_ZERO) * scale;
        }
    }
}

// Copies a block of column `column` from the form of a file to a panel.
static void pack_q4_block(const uint8_t* bytes, size_t column, PanelBlock* block) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    block->scales[column] = float_of_half(half);
    // Also in the file, a byte has the codes of two numbers whose distance is HALF.
    for (int i = 0; i < HALF; i++)
        block->codes[i / QUAD][column][i % QUAD] = bytes[2 + i];
}

}  // namespace hrag

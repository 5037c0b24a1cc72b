// Arithmetic of rows of floats that gives the same bits on every processor.
//
// Floats are added, multiplied and divided in the order that is written here. The modules that use
// this file are compiled with -ffp-contract=off, so no two operations are fused.

#pragma once

#include <cmath>
#include <cstddef>

#include "_cpu_paths.h"

namespace hrag {

// Floats are summed in 16 lanes, which every processor adds in the same order.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
enum { LANES = 16 };

static inline float sum_of(const Lanes& lanes) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
    return sum;
}

// Scales values to mean 0 and variance 1. The count is a multiple of LANES.
HRAG_CPU_CLONES
static void standardize(float* values, size_t count, float epsilon) {
    Lanes sums = {0}, squares = {0};
    Lanes* lanes = reinterpret_cast<Lanes*>(values);
    const size_t blocks = count / LANES;
    for (size_t i = 0; i < blocks; i++) sums += lanes[i];
    const float mean = sum_of(sums) / count;
    for (size_t i = 0; i < blocks; i++) {
        lanes[i] -= mean;
        squares += lanes[i] * lanes[i];
    }
    const float factor = 1 / std::sqrt(sum_of(squares) / count + epsilon);
    for (size_t i = 0; i < blocks; i++) lanes[i] *= factor;
}

// out = values * gains + biases * times. `times` is the count of vectors whose sum is `values`.
HRAG_CPU_CLONES
static void amplify(const float* values, size_t count, const float* gains, const float* biases,
                    float times, float* out) {
    for (size_t i = 0; i < count; i++) out[i] = values[i] * gains[i] + biases[i] * times;
}

HRAG_CPU_CLONES
static void add(const float* values, size_t count, float* sums) {
    for (size_t i = 0; i < count; i++) sums[i] += values[i];
}

}  // namespace hrag

// The loops that make the codes of a graph's vectors. The module that uses them is compiled with
// -ffp-contract=off, so the codes are the same on every processor.

#pragma once

#include <cstddef>
#include <cstdint>

#include "_codes.h"
#include "_cpu_paths.h"

namespace hrag {

// sums += values
HRAG_CPU_CLONES
static void add(const float* values, size_t count, float* sums) {
    for (size_t i = 0; i < count; i++) sums[i] += values[i];
}

// out = values - others
HRAG_CPU_CLONES
static void subtract(const float* values, const float* others, size_t count, float* out) {
    for (size_t i = 0; i < count; i++) out[i] = values[i] - others[i];
}

HRAG_CPU_CLONES
static void narrow(const int16_t* values, size_t count, int8_t* out) {
    for (size_t i = 0; i < count; i++) out[i] = static_cast<int8_t>(values[i]);
}

}  // namespace hrag

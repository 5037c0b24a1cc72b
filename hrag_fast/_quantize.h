// Rounds floats to integers. The modules that use it are compiled with -ffp-contract=off: so the
// integers are the same on every processor, however the loops are compiled.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "_cpu_paths.h"

namespace hrag {

// The largest magnitude. Floats that are not negative have the order of their bits.
HRAG_CPU_CLONES
static float largest(const float* values, size_t count) {
    int32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        bits &= 0x7FFFFFFF;
        most = bits > most ? bits : most;
    }
    float value;
    memcpy(&value, &most, sizeof value);
    return value;
}

// Rounds to integers, half to even. Adding 1.5 * 2**23 leaves the integer in the lowest bits.
HRAG_CPU_CLONES
static void quantize(const float* values, size_t count, float factor, int16_t* out) {
    const float shift = 12582912.0f;
    int32_t base;
    memcpy(&base, &shift, sizeof base);
    for (size_t i = 0; i < count; i++) {
        const float shifted = values[i] * factor + shift;
        int32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        out[i] = static_cast<int16_t>(bits - base);
    }
}

// Rounds so that the largest magnitude becomes `most_code`; returns the unit of the integers.
// Values that are all below SMALLEST, or one of which is no number, become zeros.
static float rounded(const float* values, size_t count, int32_t most_code, int16_t* out) {
    const float SMALLEST = 1e-30f, LARGEST = 3e38f;
    float most = largest(values, count);
    if (!(most >= SMALLEST && most <= LARGEST)) {
        memset(out, 0, count * sizeof *out);
        return 0;
    }
    quantize(values, count, most_code / most, out);
    return most / most_code;
}

}  // namespace hrag

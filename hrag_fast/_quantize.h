// Rounds floats to integers. The modules that use this file are compiled with -ffp-contract=off. So
// the integers are the same on every processor, however the loops are compiled.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "_cpu_paths.h"

namespace hrag {

// Returns the largest magnitude of the values. Magnitudes are compared as integers, because the
// bits of floats that are not negative have the same order as the floats.
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

// Rounds values * factor to integers, half to even. After 1.5 * 2**23 is added, the lowest bits of
// the float are the integer.
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

// Rounds values to integers, scaled so that the largest magnitude becomes `most_code`. Returns the
// value that the integer 1 stands for. All integers and the result are 0 if all magnitudes are
// below SMALLEST, or if a magnitude is above LARGEST or not finite.
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

// The loops of the graph: inner products of float vectors, and of codes of 8 bits.
//
// Products of codes are sums of int32 that cannot overflow, so every path gives the same result.
// Floats are added in the order that is written here, and without fused multiply-adds (the module
// is compiled with -ffp-contract=off). So a search has the same result on every processor.

#pragma once

#include <cstddef>
#include <cstdint>

#include "_codes.h"
#include "_cpu_paths.h"

namespace hrag {

typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));

HRAG_CPU_CLONES
static float inner_product(const float* a, const float* b, size_t count) {
    Lanes even = {0}, odd = {0};  // Two independent sums hide the latency of additions.
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        even += *(const Lanes*)(a + i) * *(const Lanes*)(b + i);
        odd += *(const Lanes*)(a + i + 16) * *(const Lanes*)(b + i + 16);
    }
    for (; i + 16 <= count; i += 16) even += *(const Lanes*)(a + i) * *(const Lanes*)(b + i);
    even += odd;
    float sum = 0;
    for (int lane = 0; lane < 16; lane++) sum += even[lane];
    for (; i < count; i++) sum += a[i] * b[i];
    return sum;
}

// This loop is compiled once for each path. GCC turns it into pmaddwd or vpdpwssd, which multiply
// pairs of int16 and add both products to an int32.
static inline __attribute__((always_inline)) int32_t sum_of_products(
    const int16_t* query, const int8_t* codes, size_t lines) {
    int32_t sum = 0;
    for (size_t i = 0; i < lines * CACHE_LINE; i++) sum += query[i] * codes[i];
    return sum;
}

#ifdef HRAG_X86
HRAG_AVX2
static int32_t avx2_product(const int16_t* query, const int8_t* codes, size_t lines) {
    return sum_of_products(query, codes, lines);
}

HRAG_AVX512_VNNI
static int32_t vnni_product(const int16_t* query, const int8_t* codes, size_t lines) {
    return sum_of_products(query, codes, lines);
}
#endif

static inline int32_t code_product(int path, const int16_t* query, const int8_t* codes,
                                   size_t lines) {
#ifdef HRAG_X86
    if (path == AVX512_VNNI) return vnni_product(query, codes, lines);
    if (path == AVX2) return avx2_product(query, codes, lines);
#endif
    return sum_of_products(query, codes, lines);
}

static inline void prefetch(const void* at) { __builtin_prefetch(at); }

// Prefetches a whole vector into the second-level cache, which can receive more lines at the same
// time than the first-level cache.
static inline void prefetch_whole(const void* at, size_t size) {
    const char* line = static_cast<const char*>(at);
    for (size_t i = 0; i < size; i += CACHE_LINE) __builtin_prefetch(line + i, 0, 2);
}

}  // namespace hrag

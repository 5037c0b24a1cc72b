// Some loops are compiled several times, for different kinds of processors. Each of these versions
// is called a path. This file names the paths, and says which of them this processor can run.

#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define HRAG_X86 1
#endif

// GCC compiles a loop once for each kind of processor; the loader chooses the best one.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define HRAG_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HRAG_CPU_CLONES
#endif

#define HRAG_AVX2 __attribute__((target("avx2")))
#define HRAG_AVX512_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))

namespace hrag {

// For products of integers, the caller chooses the path, so that tests can run every path.
enum Path { PLAIN, AVX2, AVX512_VNNI };

// Returns true if this processor has the instructions of a path.
static inline bool has_path(int path) {
#ifdef HRAG_X86
    __builtin_cpu_init();
    if (path == AVX2) return __builtin_cpu_supports("avx2");
    if (path == AVX512_VNNI)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vnni");
#endif
    return path == PLAIN;
}

}  // namespace hrag

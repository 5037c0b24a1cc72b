// Reads the rows of a file, and computes the checksums by which a changed row is recognised.

#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "_cpu_paths.h"

namespace hrag {

// The bytes of floats, read as integers.
typedef uint32_t Word __attribute__((may_alias));

// Reads `size` bytes at an offset of a file. Returns 0, or -1 if the file ends before the last byte,
// or the number of the error that the operating system reports. The file may be truncated,
// overwritten or removed at any time: none of this ends the process.
static int read_at(int descriptor, void* out, size_t size, uint64_t offset) {
    char* at = static_cast<char*>(out);
    while (size) {
        ssize_t count = pread(descriptor, at, size, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno;
        if (count == 0) return -1;
        at += count;
        offset += count;
        size -= count;
    }
    return 0;
}

// Reads bytes like `read_at`, but only if this does not wait for the disk. Returns true if all
// bytes were read. Also returns false if the file system cannot tell whether it would wait.
static bool read_cached(int descriptor, void* out, size_t size, uint64_t offset) {
#ifdef RWF_NOWAIT
    struct iovec whole = {out, size};
    ssize_t count = preadv2(descriptor, &whole, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    return count == static_cast<ssize_t>(size);
#else
    return false;
#endif
}

// Lets the operating system begin to read bytes of a file, and does not wait for them.
static void begin_reading(int descriptor, size_t size, uint64_t offset) {
    posix_fadvise(descriptor, static_cast<off_t>(offset), static_cast<off_t>(size),
                  POSIX_FADV_WILLNEED);
}

// The hash NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: Fast and Secure Message
// Authentication", CRYPTO 1999) of 2 * half words, with as many keys. If the keys are random, two
// different rows have the same hash with a probability of at most 2**-32, whatever the rows are.
HRAG_CPU_CLONES
static uint64_t keyed_hash(const float* row, const uint32_t* keys, size_t half) {
    const Word* words = reinterpret_cast<const Word*>(row);
    uint64_t sum = 0;
    for (size_t i = 0; i < half; i++) {
        const uint32_t a = words[i] + keys[i], b = words[half + i] + keys[half + i];
        sum += static_cast<uint64_t>(a) * b;
    }
    return sum;
}

}  // namespace hrag

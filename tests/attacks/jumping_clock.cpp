// Lets the wall clock of a process jump, for tests. Monotonic clocks are left as they are.
//
// The library is loaded with LD_PRELOAD. It adds the number in the file `JUMPING_CLOCK` to the time
// of day, in seconds: a 64-bit integer, which a test may change at any time. Child processes do not
// load the library.

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

namespace {

const volatile int64_t *jump_s = nullptr;

__attribute__((constructor)) void begin() {
    const char *path = getenv("JUMPING_CLOCK");
    unsetenv("LD_PRELOAD");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) abort();
    void *map = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) abort();
    jump_s = static_cast<const int64_t *>(map);
}

int real_time(clockid_t clock, timespec *now) {
    static auto real = reinterpret_cast<int (*)(clockid_t, timespec *)>(
        dlsym(RTLD_NEXT, "clock_gettime"));
    return real(clock, now);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec *now) noexcept {
    int result = real_time(clock, now);
    if (!result && clock == CLOCK_REALTIME && jump_s) now->tv_sec += *jump_s;
    return result;
}

int gettimeofday(timeval *now, void *) noexcept {
    timespec time;
    int result = clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return result;
}

time_t time(time_t *result) noexcept {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

}  // extern "C"

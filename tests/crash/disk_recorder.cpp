// Records all changes of files and folders below one folder, for tests of power loss.
//
// The library is loaded with LD_PRELOAD. It replaces the functions of libc that change files. Each
// replacement calls the real function and appends an event to the record, `DISK_RECORD_FILE`, if
// the file is below `DISK_RECORD_ROOT`. A lock makes the order of events the order of the changes,
// also for several processes. Child processes do not load the library.
//
// A sync has two events: what was written before SYNC_BEGIN is durable at SYNC_END. A write to a
// file that was opened with O_DSYNC is durable at the event THROUGH, which follows it. Functions that
// change files in a way that the record cannot describe leave the event UNKNOWN. Pages that a process
// changes in a writable shared map are not recorded: MAPPED says which files have such a map.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>

namespace {

enum Kind : uint32_t {
    CREATE = 1, MKDIR, RENAME, UNLINK, RMDIR, LINK, WRITE, SIZE, SYNC_BEGIN, SYNC_END, THROUGH,
    MAPPED, ANONYMOUS, UNKNOWN,
};

struct Event {
    uint32_t kind;
    uint32_t name_bytes, other_name_bytes;
    uint32_t data_bytes;
    uint64_t folder, other_folder;
    uint64_t inode;
    uint64_t number;  // The offset of a write, a size, or the token of a sync.
};

struct Watched {
    std::atomic<bool> is_set;
    dev_t device;
    ino_t inode;
};

constexpr int MAX_FILES = 1 << 16;
constexpr int RECORD_FD = 700;

Watched watched_files[MAX_FILES];
char root[PATH_MAX];  // Without a constructor, which could run after `begin`.
int record_fd = -1;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
std::atomic<uint64_t> next_token{1};

template <typename F>
F real(F, const char *name) {
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) (*[] { static auto f = real(&::name, #name); return f; }())

__attribute__((constructor)) void begin() {
    const char *folder = getenv("DISK_RECORD_ROOT"), *file = getenv("DISK_RECORD_FILE");
    unsetenv("LD_PRELOAD");
    if (!folder || !file) return;
    snprintf(root, sizeof root, "%s", folder);
    int fd = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CLOEXEC);
    record_fd = fcntl(fd, F_DUPFD_CLOEXEC, RECORD_FD);
    syscall(SYS_close, fd);
    if (record_fd < 0) abort();
}

class Locked {
  public:
    Locked() {
        pthread_mutex_lock(&mutex);
        while (flock(record_fd, LOCK_EX) && errno == EINTR) {}
    }
    ~Locked() {
        int error = errno;
        flock(record_fd, LOCK_UN);
        pthread_mutex_unlock(&mutex);
        errno = error;
    }
};

void append(Event event, const char *name = "", const char *other = "", const iovec *data = nullptr,
            int count = 0) {
    event.name_bytes = strlen(name);
    event.other_name_bytes = strlen(other);
    std::string bytes(reinterpret_cast<const char *>(&event), sizeof event);
    bytes += name;
    bytes += other;
    uint64_t left = event.data_bytes;
    for (int i = 0; i < count && left; i++) {
        uint64_t part = data[i].iov_len < left ? data[i].iov_len : left;
        bytes.append(static_cast<const char *>(data[i].iov_base), part);
        left -= part;
    }
    int error = errno;
    if (syscall(SYS_write, record_fd, bytes.data(), bytes.size()) != (long)bytes.size()) abort();
    errno = error;
}

void append_unknown(const char *function) {
    Event event{};
    event.kind = UNKNOWN;
    append(event, function);
}

bool is_below_root(const std::string &path) {
    size_t length = strlen(root);
    return path.compare(0, length, root) == 0 && (path.size() == length || path[length] == '/');
}

std::string path_of(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path);
    return length < 0 ? "" : std::string(path, length);
}

// A name in a folder: the last part of a path, and the inode of the folder that contains it.
struct Place {
    bool is_watched = false;
    ino_t folder = 0;
    std::string name;

    Place(int at, const char *path) {
        if (record_fd < 0 || !path) return;
        int error = errno;
        std::string text(path);
        while (text.size() > 1 && text.back() == '/') text.pop_back();
        size_t slash = text.rfind('/');
        std::string parent = slash == std::string::npos ? "." : text.substr(0, slash + 1);
        name = slash == std::string::npos ? text : text.substr(slash + 1);
        int fd = syscall(SYS_openat, at, parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
            struct stat status;
            is_watched = is_below_root(path_of(fd)) && !fstat(fd, &status);
            if (is_watched) folder = status.st_ino;
            syscall(SYS_close, fd);
        }
        errno = error;
    }
};

Event event_at(Kind kind, const Place &place, ino_t inode = 0) {
    Event event{};
    event.kind = kind;
    event.folder = place.folder;
    event.inode = inode;
    return event;
}

Event event_of(Kind kind, ino_t inode, uint64_t number) {
    Event event{};
    event.kind = kind;
    event.inode = inode;
    event.number = number;
    return event;
}

// Remembers `fd` if its file is below the root. Returns its inode, or 0.
ino_t watch(int fd) {
    if (record_fd < 0 || fd < 0 || fd >= MAX_FILES) return 0;
    struct stat status;
    watched_files[fd].is_set = false;
    if (!is_below_root(path_of(fd)) || fstat(fd, &status)) return 0;
    watched_files[fd].device = status.st_dev;
    watched_files[fd].inode = status.st_ino;
    watched_files[fd].is_set = true;
    return status.st_ino;
}

// Returns the inode of the file of `fd` if it is watched, or 0.
ino_t watched(int fd) {
    if (record_fd < 0 || fd < 0 || fd >= MAX_FILES || !watched_files[fd].is_set) return 0;
    struct stat status;
    int error = errno;
    bool is_same = !fstat(fd, &status) && status.st_dev == watched_files[fd].device &&
                   status.st_ino == watched_files[fd].inode;
    errno = error;
    return is_same ? status.st_ino : 0;
}

bool exists(int at, const char *path) {
    struct stat status;
    int error = errno;
    bool found = !fstatat(at, path, &status, 0);
    errno = error;
    return found;
}

// Calls `open`, which opens `path` with `flags`, and records a new or a truncated file.
template <typename Open>
int opened(int at, const char *path, int flags, Open open) {
    if (record_fd < 0) return open();
    if (!(flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE) {
        int fd = open();
        watch(fd);
        return fd;
    }
    Place place(at, path);
    Locked locked;
    bool is_new = (flags & O_CREAT) && !exists(at, path);
    int fd = open();
    ino_t inode = watch(fd);
    if (!inode) return fd;
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        append(event_of(ANONYMOUS, inode, 0));
    } else if (is_new) {
        append(event_at(CREATE, place, inode), place.name.c_str());
    } else if (flags & O_TRUNC) {
        append(event_of(SIZE, inode, 0));
    }
    return fd;
}

int flags_of(const char *mode) {
    int flags = strchr(mode, '+') ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
    return flags | (mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT : 0);
}

template <typename Open>
FILE *opened_file(const char *path, const char *mode, Open open) {
    FILE *file = nullptr;
    opened(AT_FDCWD, path, flags_of(mode), [&] {
        file = open();
        return file ? fileno(file) : -1;
    });
    return file;
}

void append_write(int fd, ino_t inode, uint64_t offset, const iovec *parts, int count,
                  ssize_t written) {
    Event event = event_of(WRITE, inode, offset);
    event.data_bytes = written;
    append(event, "", "", parts, count);
    if (fcntl(fd, F_GETFL) & O_DSYNC) append(event_of(THROUGH, inode, 0));
}

// Calls `write`, which writes `parts` at `offset`, or at the position of the file if it is -1.
template <typename Write>
ssize_t written(int fd, const iovec *parts, int count, off_t offset, Write write) {
    ino_t inode = watched(fd);
    if (!inode) return write();
    Locked locked;
    if (fcntl(fd, F_GETFL) & O_APPEND) {
        struct stat status;
        fstat(fd, &status);
        offset = status.st_size;
    } else if (offset < 0) {
        offset = lseek(fd, 0, SEEK_CUR);
    }
    ssize_t result = write();
    if (result > 0) append_write(fd, inode, offset, parts, count, result);
    return result;
}

template <typename Sync>
int synced(int fd, Sync sync) {
    ino_t inode = watched(fd);
    if (!inode) return sync();
    uint64_t token = (uint64_t(getpid()) << 32) | next_token++;
    {
        Locked locked;
        append(event_of(SYNC_BEGIN, inode, token));
    }
    int result = sync();
    if (result) return result;
    Locked locked;
    append(event_of(SYNC_END, inode, token));
    return result;
}

// Calls `resize`, which may change the size of the file, and records the size if it did.
template <typename Resize>
int resized(int fd, Resize resize) {
    ino_t inode = watched(fd);
    if (!inode) return resize();
    Locked locked;
    struct stat before, after;
    fstat(fd, &before);
    int result = resize();
    fstat(fd, &after);
    if (before.st_size != after.st_size) append(event_of(SIZE, inode, after.st_size));
    return result;
}

template <typename Remove>
int removed(Kind kind, int at, const char *path, Remove remove) {
    Place place(at, path);
    if (!place.is_watched) return remove();
    Locked locked;
    int result = remove();
    if (!result) append(event_at(kind, place), place.name.c_str());
    return result;
}

template <typename Rename>
int renamed(int at, const char *path, int other_at, const char *other_path, Rename rename) {
    Place place(at, path), other(other_at, other_path);
    if (!place.is_watched && !other.is_watched) return rename();
    Locked locked;
    int result = rename();
    if (result) return result;
    if (!place.is_watched || !other.is_watched) {
        append_unknown("a rename across the border of the folder");
    } else {
        Event event = event_at(RENAME, place);
        event.other_folder = other.folder;
        append(event, place.name.c_str(), other.name.c_str());
    }
    return result;
}

template <typename Make>
int made_folder(int at, const char *path, Make make) {
    Place place(at, path);
    if (!place.is_watched) return make();
    Locked locked;
    int result = make();
    struct stat status;
    if (!result && !fstatat(at, path, &status, 0)) {
        append(event_at(MKDIR, place, status.st_ino), place.name.c_str());
    }
    return result;
}

template <typename Link>
int linked(int at, const char *path, int other_at, const char *other_path, Link link) {
    Place other(other_at, other_path);
    if (!other.is_watched) return link();
    Locked locked;
    int result = link();
    struct stat status;
    if (!result && !fstatat(at, path, &status, 0)) {
        append(event_at(LINK, other, status.st_ino), other.name.c_str());
    }
    return result;
}

void *mapped(void *address, size_t size, int protection, int flags, int fd, off_t offset,
             void *(*map)(void *, size_t, int, int, int, off_t)) {
    void *result = map(address, size, protection, flags, fd, offset);
    bool is_shared = (flags & MAP_SHARED) && (protection & PROT_WRITE) && !(flags & MAP_ANONYMOUS);
    if (result == MAP_FAILED || !is_shared) return result;
    if (ino_t inode = watched(fd)) {
        Locked locked;
        append(event_of(MAPPED, inode, 0));
    }
    return result;
}

// Calls `change`, whose changes of `fd` the record cannot describe.
template <typename Change>
auto unknown(int fd, const char *function, Change change) {
    if (watched(fd)) {
        Locked locked;
        append_unknown(function);
    }
    return change();
}

mode_t mode_from(int flags, va_list arguments) {
    bool has_mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    return has_mode ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

#define OPEN(name)                                                                       \
    int name(const char *path, int flags, ...) {                                         \
        va_list arguments;                                                               \
        va_start(arguments, flags);                                                      \
        mode_t mode = mode_from(flags, arguments);                                       \
        va_end(arguments);                                                               \
        return opened(AT_FDCWD, path, flags, [&] { return REAL(name)(path, flags, mode); }); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                        \
    int name(int at, const char *path, int flags, ...) {                                    \
        va_list arguments;                                                                  \
        va_start(arguments, flags);                                                         \
        mode_t mode = mode_from(flags, arguments);                                          \
        va_end(arguments);                                                                  \
        return opened(at, path, flags, [&] { return REAL(name)(at, path, flags, mode); });  \
    }
OPENAT(openat)
OPENAT(openat64)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

FILE *fopen(const char *path, const char *mode) {
    return opened_file(path, mode, [&] { return REAL(fopen)(path, mode); });
}
FILE *fopen64(const char *path, const char *mode) {
    return opened_file(path, mode, [&] { return REAL(fopen64)(path, mode); });
}

int close(int fd) {
    if (fd >= 0 && fd < MAX_FILES) watched_files[fd].is_set = false;
    return REAL(close)(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
    iovec part{const_cast<void *>(data), size};
    return written(fd, &part, 1, -1, [&] { return REAL(write)(fd, data, size); });
}
ssize_t writev(int fd, const iovec *parts, int count) {
    return written(fd, parts, count, -1, [&] { return REAL(writev)(fd, parts, count); });
}
#define PWRITE(name)                                                                           \
    ssize_t name(int fd, const void *data, size_t size, off_t offset) {                        \
        iovec part{const_cast<void *>(data), size};                                            \
        return written(fd, &part, 1, offset, [&] { return REAL(name)(fd, data, size, offset); }); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)
#define PWRITEV(name)                                                                             \
    ssize_t name(int fd, const iovec *parts, int count, off_t offset) {                           \
        return written(fd, parts, count, offset,                                                  \
                       [&] { return REAL(name)(fd, parts, count, offset); });                     \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

int fsync(int fd) { return synced(fd, [&] { return REAL(fsync)(fd); }); }
int fdatasync(int fd) { return synced(fd, [&] { return REAL(fdatasync)(fd); }); }

#define FTRUNCATE(name)                                                      \
    int name(int fd, off_t size) noexcept {                                  \
        return resized(fd, [&] { return REAL(name)(fd, size); });            \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)
#define FALLOCATE(name)                                                              \
    int name(int fd, off_t offset, off_t size) {                                     \
        return resized(fd, [&] { return REAL(name)(fd, offset, size); });            \
    }
FALLOCATE(posix_fallocate)
FALLOCATE(posix_fallocate64)
int fallocate(int fd, int mode, off_t offset, off_t size) {
    return unknown(fd, "fallocate", [&] { return REAL(fallocate)(fd, mode, offset, size); });
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) noexcept {
    return unknown(to, "sendfile", [&] { return REAL(sendfile)(to, from, offset, size); });
}
ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *end, size_t size, unsigned flags) {
    return unknown(to, "copy_file_range",
                   [&] { return REAL(copy_file_range)(from, start, to, end, size, flags); });
}

int unlink(const char *path) noexcept {
    return removed(UNLINK, AT_FDCWD, path, [&] { return REAL(unlink)(path); });
}
int unlinkat(int at, const char *path, int flags) noexcept {
    return removed(flags & AT_REMOVEDIR ? RMDIR : UNLINK, at, path,
                   [&] { return REAL(unlinkat)(at, path, flags); });
}
int rmdir(const char *path) noexcept {
    return removed(RMDIR, AT_FDCWD, path, [&] { return REAL(rmdir)(path); });
}
int rename(const char *path, const char *other) noexcept {
    return renamed(AT_FDCWD, path, AT_FDCWD, other, [&] { return REAL(rename)(path, other); });
}
int renameat(int at, const char *path, int other_at, const char *other) noexcept {
    return renamed(at, path, other_at, other,
                   [&] { return REAL(renameat)(at, path, other_at, other); });
}
int mkdir(const char *path, mode_t mode) noexcept {
    return made_folder(AT_FDCWD, path, [&] { return REAL(mkdir)(path, mode); });
}
int mkdirat(int at, const char *path, mode_t mode) noexcept {
    return made_folder(at, path, [&] { return REAL(mkdirat)(at, path, mode); });
}
int link(const char *path, const char *other) noexcept {
    return linked(AT_FDCWD, path, AT_FDCWD, other, [&] { return REAL(link)(path, other); });
}
int linkat(int at, const char *path, int other_at, const char *other, int flags) noexcept {
    return linked(at, path, other_at, other,
                  [&] { return REAL(linkat)(at, path, other_at, other, flags); });
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
    return mapped(address, size, protection, flags, fd, offset, REAL(mmap));
}
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
    return mapped(address, size, protection, flags, fd, offset, REAL(mmap64));
}

}  // extern "C"

/* Faults below a process: preloaded with LD_PRELOAD, it makes calls of the C library fail, as a failing or full disk
 * would. The table's library opens its files itself, so that there is no other place at which to fail it.
 *
 * FAULTS names a file of rules, which is read at every call, so that a test can change it at any time. A rule is a line:
 *
 *     CALL ERROR PER_MILLE PATH [THREAD]
 *
 * CALL is open, read, write, sync, truncate or rename. ERROR is EIO, ENOSPC, or SHORT, with which a write takes only the
 * first half of its bytes. PER_MILLE of the calls fail whose file's path contains PATH, in threads whose name begins with
 * THREAD.
 *
 * FAULTS_LOG names a file to which each directory that is made, and each file or directory that is synced, is appended.
 * FAULTS_CLOCK is added to the wall clock, in seconds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SHORT (-1)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The helpers make system calls themselves: through the C library they would come back to this file. */
static ssize_t read_file(const char *path, char *buffer, size_t size) {
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    ssize_t count = syscall(SYS_read, fd, buffer, size - 1);
    syscall(SYS_close, fd);
    if (count >= 0) buffer[count] = 0;
    return count;
}

static void note(const char *what, const char *path) {
    const char *log = getenv("FAULTS_LOG");
    if (!log) return;
    char line[PATH_MAX + 16];
    int length = snprintf(line, sizeof line, "%s %s\n", what, path);
    int fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    syscall(SYS_write, fd, line, length);
    syscall(SYS_close, fd);
}

static const char *path_of(int fd, char *buffer) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlink, link, buffer, PATH_MAX - 1);
    buffer[length < 0 ? 0 : length] = 0;
    return buffer;
}

static unsigned random_below(unsigned bound) {
    static __thread unsigned long state;
    if (!state) state = (unsigned long)&state ^ syscall(SYS_gettid) * 0x9e3779b97f4a7c15ul ^ time(NULL);
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % bound;
}

/* 0, or the error with which the call is to fail. */
static int fault(const char *call, const char *path) {
    const char *rules = getenv("FAULTS");
    if (!rules || path[0] != '/') return 0;
    int saved = errno, found = 0;
    char text[4096];
    char *rest = text;
    if (read_file(rules, text, sizeof text) <= 0) rest = NULL;
    for (char *line; !found && rest && (line = strsep(&rest, "\n"));) {
        char name[16], error[16], part[256], thread[32] = "", own[32] = "";
        unsigned per_mille;
        if (sscanf(line, "%15s %15s %u %255s %31s", name, error, &per_mille, part, thread) < 4) continue;
        if (strcmp(name, call) || !strstr(path, part) || random_below(1000) >= per_mille) continue;
        prctl(PR_GET_NAME, own);
        if (strncmp(own, thread, strlen(thread))) continue;
        found = !strcmp(error, "SHORT") ? SHORT : !strcmp(error, "ENOSPC") ? ENOSPC : EIO;
    }
    errno = saved;
    return found;
}

static int fails(int error) {
    if (error > 0) errno = error;
    return error > 0;
}

#define OPENS(name)                                                         \
    int name(const char *path, int flags, ...) {                            \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                       \
        if (fails(fault("open", path))) return -1;                          \
        return NEXT(name)(path, flags, mode);                               \
    }
OPENS(open)
OPENS(open64)

#define ON_FD(call, name, result, params, ...)                              \
    result name params {                                                    \
        char path[PATH_MAX];                                                \
        if (fails(fault(call, path_of(fd, path)))) return -1;               \
        return NEXT(name)(__VA_ARGS__);                                     \
    }
ON_FD("read", read, ssize_t, (int fd, void *buffer, size_t size), fd, buffer, size)
ON_FD("read", pread, ssize_t, (int fd, void *buffer, size_t size, off_t at), fd, buffer, size, at)
ON_FD("read", pread64, ssize_t, (int fd, void *buffer, size_t size, off64_t at), fd, buffer, size, at)
ON_FD("write", writev, ssize_t, (int fd, const struct iovec *parts, int count), fd, parts, count)
ON_FD("truncate", ftruncate, int, (int fd, off_t length), fd, length)
ON_FD("truncate", ftruncate64, int, (int fd, off64_t length), fd, length)

#define WRITES(name, params, ...)                                           \
    ssize_t name params {                                                   \
        char path[PATH_MAX];                                                \
        int error = fault("write", path_of(fd, path));                      \
        if (fails(error)) return -1;                                        \
        if (error == SHORT && size > 1) size /= 2;                          \
        return NEXT(name)(__VA_ARGS__);                                     \
    }
WRITES(write, (int fd, const void *bytes, size_t size), fd, bytes, size)
WRITES(pwrite, (int fd, const void *bytes, size_t size, off_t at), fd, bytes, size, at)
WRITES(pwrite64, (int fd, const void *bytes, size_t size, off64_t at), fd, bytes, size, at)

#define SYNCS(name)                                                         \
    int name(int fd) {                                                      \
        char path[PATH_MAX];                                                \
        if (fails(fault("sync", path_of(fd, path)))) return -1;             \
        note("sync", path);                                                 \
        return NEXT(name)(fd);                                              \
    }
SYNCS(fsync)
SYNCS(fdatasync)

int rename(const char *from, const char *to) {
    if (fails(fault("rename", to))) return -1;
    return NEXT(rename)(from, to);
}

int mkdir(const char *path, mode_t mode) {
    int made = NEXT(mkdir)(path, mode);
    if (made == 0) note("mkdir", path);
    return made;
}

static long clock_offset(void) {
    const char *offset = getenv("FAULTS_CLOCK");
    return offset ? atol(offset) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += clock_offset();
    return result;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

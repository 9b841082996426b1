/*
 * crash_shim.c - a library put before the C library of a program under test (LD_PRELOAD): it counts
 * what the program does to the files of one folder and, before the n-th of these operations, ends
 * the program as a kill or a power loss would. The programs themselves have no switch for it.
 *
 * Settings, from the environment of the child alone:
 *   CRASH_ROOT    the folder
 *   CRASH_AT      n; 0: only count
 *   CRASH_POWER   0 drop, 1 keep names, 2 keep data, 3 tear: a power loss; absent: a kill
 *   CRASH_SEED    of what is torn
 * CRASH_FORGET  part of the path of files whose syncs have no effect; of folders: "folder:PART"
 *   CRASH_COUNT   a file that gets the number of operations when the program ends by itself
 *
 * Invariant: at a power loss a file holds what it held at its last sync, and of later writes what
 * the kind of loss says; a name is there if its folder was synced after it was made. (POSIX; file
 * systems that promise more are not counted on.) What was in the folder at the start is on the
 * storage. No real sync is made: a killed process loses nothing of the system's cache.
 */
#include "crash_model.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHIM __attribute__((visibility("default")))

/* How a system call gets 64 bits, and the call that takes a length of as many. */
#if defined(__i386__)
#define OFFSET(bytes) (long)(bytes), (long)((bytes) >> 32)
#define SYS_CUT SYS_ftruncate64
#else
#define OFFSET(bytes) (bytes)
#define SYS_CUT SYS_ftruncate
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[CRASH_PATH_BYTES];
static size_t root_length;
static long crash_at;
static long n_operations;
static int power = -1;
static const char *forget;
static const char *count_file;
static bool is_ready;

static bool is_inside(const char *path)
{
    return root_length > 0 && strncmp(path, root, root_length) == 0 &&
           (path[root_length] == '/' || path[root_length] == '\0');
}

/* The path an open file has; "" if it is not in the folder or not a file or folder. */
static bool path_of(int fd, char out_path[CRASH_PATH_BYTES], struct stat64 *out_about)
{
    char link[64];
    if (!is_ready || fstat64(fd, out_about) != 0 ||
        (!S_ISREG(out_about->st_mode) && !S_ISDIR(out_about->st_mode))) {
        return false;
    }
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out_path, CRASH_PATH_BYTES - 1);
    if (n <= 0) {
        return false;
    }
    out_path[n] = '\0';
    return is_inside(out_path);
}

static bool is_scratch(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, "-shm") == 0; /* SQLite makes it anew */
}

/* The folder becomes what a power loss leaves of it. A file beside it says that this is going on:
 * whoever looks at the folder, or ends the program, has to wait. */
static void lose_power(void)
{
    char mark[CRASH_PATH_BYTES + sizeof CRASH_LOSING];
    (void)snprintf(mark, sizeof mark, "%s%s", root, CRASH_LOSING);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CREAT, 0600);
    crash_model_lose(root, (crash_loss)power);
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)syscall(SYS_unlinkat, AT_FDCWD, mark, 0);
}

/* Counts an operation; at the n-th the program ends here. With the lock held. */
static void count(void)
{
    n_operations++;
    if (n_operations != crash_at) {
        return;
    }
    if (power >= 0) {
        lose_power();
    }
    (void)kill(getpid(), SIGKILL);
    for (;;) {
        (void)pause();
    }
}

static bool enter_fd(int fd, char path[CRASH_PATH_BYTES], struct stat64 *about)
{
    if (!path_of(fd, path, about) || is_scratch(path)) {
        return false;
    }
    (void)pthread_mutex_lock(&lock);
    count();
    return true;
}

static bool enter_path(const char *path, char full[CRASH_PATH_BYTES])
{
    if (!is_ready) {
        return false;
    }
    if (path[0] == '/') {
        (void)snprintf(full, CRASH_PATH_BYTES, "%s", path);
    } else {
        char here[CRASH_PATH_BYTES / 2];
        if (getcwd(here, sizeof here) == NULL) {
            return false;
        }
        (void)snprintf(full, CRASH_PATH_BYTES, "%s/%.400s", here, path);
    }
    if (!is_inside(full) || is_scratch(full)) {
        return false;
    }
    (void)pthread_mutex_lock(&lock);
    return true;
}

static void leave(void)
{
    int kept = errno;
    (void)pthread_mutex_unlock(&lock);
    errno = kept;
}

/* --- what is put before the C library's --- */

static int open_file(const char *path, int flags, mode_t mode)
{
    char full[CRASH_PATH_BYTES];
    if ((flags & (O_CREAT | O_TRUNC)) == 0 || !enter_path(path, full)) {
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    }
    struct stat64 about;
    bool is_there = stat64(full, &about) == 0;
    if (!is_there || (flags & O_TRUNC) != 0) {
        count();
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && fstat64(fd, &about) == 0) {
        if (!is_there) {
            crash_model_create(full, about.st_ino);
        } else if ((flags & O_TRUNC) != 0) {
            crash_model_cut(about.st_ino, 0);
        }
    }
    leave();
    return fd;
}

#define OPEN_FUNCTION(name, more)                                                                  \
    SHIM int name(const char *path, int flags, ...);                                               \
    SHIM int name(const char *path, int flags, ...)                                                \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = (flags & O_CREAT) != 0 ? (mode_t)va_arg(arguments, unsigned) : 0;            \
        va_end(arguments);                                                                         \
        return open_file(path, flags | (more), mode);                                              \
    }
OPEN_FUNCTION(open, 0)
OPEN_FUNCTION(open64, O_LARGEFILE)

static ssize_t write_at(int fd, const void *data, size_t n, off64_t offset)
{
    char path[CRASH_PATH_BYTES];
    struct stat64 about;
    if (!enter_fd(fd, path, &about)) {
        return syscall(SYS_pwrite64, fd, data, n, OFFSET(offset));
    }
    ssize_t done = syscall(SYS_pwrite64, fd, data, n, OFFSET(offset));
    if (done > 0) {
        crash_model_write(about.st_ino, offset, data, (size_t)done);
    }
    leave();
    return done;
}

SHIM ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
    return write_at(fd, data, n, offset);
}

SHIM ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset)
{
    return write_at(fd, data, n, offset);
}

SHIM ssize_t write(int fd, const void *data, size_t n)
{
    char path[CRASH_PATH_BYTES];
    struct stat64 about;
    if (!enter_fd(fd, path, &about)) {
        return syscall(SYS_write, fd, data, n);
    }
    off64_t offset = lseek64(fd, 0, SEEK_CUR);
    ssize_t done = syscall(SYS_write, fd, data, n);
    if (done > 0) {
        crash_model_write(about.st_ino, offset, data, (size_t)done);
    }
    leave();
    return done;
}

static int cut(int fd, off64_t length)
{
    char path[CRASH_PATH_BYTES];
    struct stat64 about;
    if (!enter_fd(fd, path, &about)) {
        return (int)syscall(SYS_CUT, fd, OFFSET(length));
    }
    int code = (int)syscall(SYS_CUT, fd, OFFSET(length));
    if (code == 0) {
        crash_model_cut(about.st_ino, length);
    }
    leave();
    return code;
}

SHIM int ftruncate(int fd, off_t length)
{
    return cut(fd, length);
}

SHIM int ftruncate64(int fd, off64_t length)
{
    return cut(fd, length);
}

static int sync_file(int fd, long number)
{
    char path[CRASH_PATH_BYTES];
    struct stat64 about;
    if (!enter_fd(fd, path, &about)) {
        return (int)syscall(number, fd);
    }
    bool is_folder = S_ISDIR(about.st_mode);
    bool is_of_folders = forget != NULL && strncmp(forget, "folder:", 7) == 0;
    bool is_forgotten = forget != NULL && is_of_folders == is_folder &&
                        strstr(path, is_of_folders ? forget + 7 : forget) != NULL;
    if (is_folder && !is_forgotten) {
        crash_model_sync_folder(path);
    } else if (!is_forgotten) {
        crash_model_sync(about.st_ino);
    }
    leave();
    return 0;
}

SHIM int fsync(int fd)
{
    return sync_file(fd, SYS_fsync);
}

SHIM int fdatasync(int fd)
{
    return sync_file(fd, SYS_fdatasync);
}

SHIM int rename(const char *from, const char *to)
{
    char full_from[CRASH_PATH_BYTES];
    char full_to[CRASH_PATH_BYTES];
    if (!enter_path(from, full_from)) {
        return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    }
    count();
    leave();
    bool is_to_inside = enter_path(to, full_to);
    int code = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (is_to_inside) {
        if (code == 0) {
            crash_model_rename(full_from, full_to);
        }
        leave();
    }
    return code;
}

static int remove_name(const char *path, int flags)
{
    char full[CRASH_PATH_BYTES];
    struct stat64 about;
    if (!enter_path(path, full)) {
        return (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
    }
    if (lstat64(full, &about) == 0) {
        count();
    }
    int code = (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
    if (code == 0) {
        crash_model_unlink(full);
    }
    leave();
    return code;
}

SHIM int unlink(const char *path)
{
    return remove_name(path, 0);
}

SHIM int rmdir(const char *path)
{
    return remove_name(path, AT_REMOVEDIR);
}

SHIM int unlinkat(int folder_fd, const char *name, int flags)
{
    char path[CRASH_PATH_BYTES];
    struct stat64 about;
    if (name[0] == '/' || !path_of(folder_fd, path, &about)) {
        return (int)syscall(SYS_unlinkat, folder_fd, name, flags);
    }
    size_t n = strlen(path);
    (void)snprintf(path + n, sizeof path - n, "/%s", name);
    return remove_name(path, flags);
}

SHIM int mkdir(const char *path, mode_t mode)
{
    char full[CRASH_PATH_BYTES];
    struct stat64 about;
    if (!enter_path(path, full)) {
        return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    }
    if (lstat64(full, &about) != 0) {
        count();
    }
    int code = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (code == 0) {
        crash_model_make_folder(full);
    }
    leave();
    return code;
}

/* --- beginning and end --- */

static const char *setting(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

__attribute__((constructor)) static void begin(void)
{
    const char *folder = setting("CRASH_ROOT");
    const char *at = setting("CRASH_AT");
    const char *loss = setting("CRASH_POWER");
    const char *seed = setting("CRASH_SEED");
    if (folder == NULL || realpath(folder, root) == NULL) {
        return;
    }
    root_length = strlen(root);
    crash_at = at != NULL ? strtol(at, NULL, 10) : 0;
    power = loss != NULL ? (int)strtol(loss, NULL, 10) : -1;
    forget = setting("CRASH_FORGET");
    count_file = setting("CRASH_COUNT");
    if (power >= 0) {
        crash_model_begin(root, seed != NULL ? strtoull(seed, NULL, 10) : 1);
    }
    is_ready = true;
}

__attribute__((destructor)) static void end(void)
{
    if (!is_ready) {
        return;
    }
    is_ready = false;
    FILE *file = count_file != NULL ? fopen(count_file, "w") : NULL;
    if (file != NULL) {
        (void)fprintf(file, "%ld\n", n_operations);
        (void)fclose(file);
    }
}

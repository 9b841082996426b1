/*
 * platform_posix.c - what Linux, Android and Apple's systems do alike.
 */
#include <mem/platform.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Not in POSIX; Linux and the BSDs name them so. */
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

uint64_t dunlin__sys_page_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (uint64_t)bytes : 4096;
}

void *dunlin__sys_reserve(uint64_t bytes)
{
    void *memory =
        mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int dunlin__sys_commit(void *first, uint64_t bytes)
{
    return mprotect(first, (size_t)bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
}

void dunlin__sys_release(void *first, uint64_t bytes)
{
    (void)munmap(first, (size_t)bytes);
}

void dunlin__sys_reason(int code, char *out_text, size_t n_bytes)
{
    if (strerror_r(code, out_text, n_bytes) != 0) {
        (void)snprintf(out_text, n_bytes, "error %d", code);
    }
}

int dunlin__sys_open(const char *path, int flags, unsigned mode)
{
    return open(path, flags | O_CLOEXEC, (mode_t)mode);
}

int dunlin__sys_duplicate(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int dunlin__sys_sync_folder(const char *folder)
{
    const int fd = dunlin__sys_open(folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return errno;
    }
    const int code = fsync(fd) == 0 ? 0 : errno;
    (void)close(fd);
    return code;
}

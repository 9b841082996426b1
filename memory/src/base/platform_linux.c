/*
 * platform_linux.c - Linux and Android.
 */
#define _GNU_SOURCE /* O_DIRECT, O_TMPFILE; NOLINT(bugprone-reserved-identifier) */

#include <mem/platform.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define TMPFS_MAGIC 0x01021994
#define RAMFS_MAGIC 0x858458f6

int dunlin__sys_give_back(void *first, uint64_t bytes)
{
    const bool is_back = madvise(first, (size_t)bytes, MADV_DONTNEED) == 0 &&
                         mprotect(first, (size_t)bytes, PROT_NONE) == 0;
    return is_back ? 0 : errno;
}

void dunlin__sys_prefer_huge(void *first, uint64_t bytes)
{
    /* Without huge pages in the kernel it fails and nothing is lost. */
    (void)madvise(first, (size_t)bytes, MADV_HUGEPAGE);
}

void dunlin__heap_give_back(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

bool dunlin__sys_has_int8_dot(void)
{
#ifdef __aarch64__
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return false;
#endif
}

int dunlin__sys_socket(int family, int type, int protocol)
{
    return socket(family, type | SOCK_CLOEXEC, protocol);
}

int dunlin__sys_sync(int fd)
{
    return fsync(fd) == 0 ? 0 : errno;
}

int dunlin__sys_sync_data(int fd)
{
    return fdatasync(fd) == 0 ? 0 : errno;
}

int dunlin__sys_preallocate(int fd, uint64_t bytes)
{
    return bytes == 0 ? 0 : posix_fallocate(fd, 0, (off_t)bytes);
}

int dunlin__sys_open_scratch(const char *folder, const char *path, bool is_direct)
{
    const int flags = is_direct ? O_RDWR | O_DIRECT : O_RDWR;
    const int fd = dunlin__sys_open(folder, O_TMPFILE | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return fd;
    }
    const int made = dunlin__sys_open(path, O_CREAT | O_EXCL | flags, 0600);
    if (made >= 0) {
        (void)unlink(path);
    } else if (errno == EINVAL) { /* some file systems make the file before they refuse the flag */
        (void)unlink(path);
        errno = EINVAL;
    }
    return made;
}

void dunlin__sys_drop_cached(int fd, uint64_t offset, uint64_t bytes)
{
    (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}

bool dunlin__sys_is_in_memory(const char *folder)
{
    struct statfs info;
    return statfs(folder, &info) == 0 &&
           ((unsigned long)info.f_type == TMPFS_MAGIC || (unsigned long)info.f_type == RAMFS_MAGIC);
}

/*
 * platform_apple.c - macOS and iOS.
 */
#include <mem/platform.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc/malloc.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <unistd.h>

/* MADV_FREE and MADV_DONTNEED may keep the pages counted as ours; a new mapping over them does
 * not. */
int dunlin__sys_give_back(void *first, uint64_t bytes)
{
    const void *memory = mmap(first, (size_t)bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANON | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return memory == MAP_FAILED ? errno : 0;
}

void dunlin__sys_prefer_huge(void *first, uint64_t bytes)
{
    (void)first;
    (void)bytes;
}

void dunlin__heap_give_back(void)
{
    (void)malloc_zone_pressure_relief(NULL, 0);
}

/* The flag that does it at once is not there; between the two calls a child may inherit it. */
bool dunlin__sys_has_int8_dot(void)
{
    int has = 0;
    size_t bytes = sizeof has;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &bytes, NULL, 0) == 0 && has != 0;
}

int dunlin__sys_socket(int family, int type, int protocol)
{
    const int fd = socket(family, type, protocol);
    if (fd >= 0) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return fd;
}

/* fsync() leaves the bytes in the drive's cache (fsync(2) of macOS); file systems of other makes
 * may not know the call that does not. */
int dunlin__sys_sync(int fd)
{
    if (fcntl(fd, F_FULLFSYNC) == 0) {
        return 0;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

int dunlin__sys_sync_data(int fd)
{
    return dunlin__sys_sync(fd);
}

int dunlin__sys_preallocate(int fd, uint64_t bytes)
{
    fstore_t wish = {.fst_flags = F_ALLOCATECONTIG | F_ALLOCATEALL,
                     .fst_posmode = F_PEOFPOSMODE,
                     .fst_length = (off_t)bytes};
    if (bytes == 0) {
        return 0;
    }
    if (fcntl(fd, F_PREALLOCATE, &wish) != 0) {
        wish.fst_flags = F_ALLOCATEALL;
        if (fcntl(fd, F_PREALLOCATE, &wish) != 0) {
            return errno;
        }
    }
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
}

int dunlin__sys_open_scratch(const char *folder, const char *path, bool is_direct)
{
    (void)folder;
    const int fd = dunlin__sys_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        return -1;
    }
    (void)unlink(path);
    if (is_direct && fcntl(fd, F_NOCACHE, 1) != 0) {
        (void)close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

void dunlin__sys_drop_cached(int fd, uint64_t offset, uint64_t bytes)
{
    (void)fd;
    (void)offset;
    (void)bytes;
}

bool dunlin__sys_is_in_memory(const char *folder)
{
    (void)folder;
    return false;
}

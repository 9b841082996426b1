/*
 * platform_windows.c - Windows, over the descriptors of its C library.
 */
#include <mem/platform.h>

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <malloc.h>
#include <string.h>
#include <sys/stat.h>
#include <windows.h>

#define DOT_PRODUCTS 43 /* PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE of newer headers */

static int code_of(DWORD error)
{
    switch (error) {
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
        return ENOSPC;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_COMMITMENT_LIMIT:
        return ENOMEM;
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
        return ENOENT;
    case ERROR_ACCESS_DENIED:
        return EACCES;
    default:
        return EIO;
    }
}

uint64_t dunlin__sys_page_bytes(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}

void *dunlin__sys_reserve(uint64_t bytes)
{
    void *memory = VirtualAlloc(NULL, (SIZE_T)bytes, MEM_RESERVE, PAGE_NOACCESS);
    if (memory == NULL) {
        errno = ENOMEM;
    }
    return memory;
}

int dunlin__sys_commit(void *first, uint64_t bytes)
{
    const void *memory = VirtualAlloc(first, (SIZE_T)bytes, MEM_COMMIT, PAGE_READWRITE);
    return memory == NULL ? code_of(GetLastError()) : 0;
}

int dunlin__sys_give_back(void *first, uint64_t bytes)
{
    return VirtualFree(first, (SIZE_T)bytes, MEM_DECOMMIT) ? 0 : code_of(GetLastError());
}

/* A reserved range can be released as a whole alone: of a part the memory goes, the addresses stay
 * until the process ends. */
void dunlin__sys_release(void *first, uint64_t bytes)
{
    MEMORY_BASIC_INFORMATION info;
    if (VirtualQuery(first, &info, sizeof info) == sizeof info && info.AllocationBase == first &&
        info.RegionSize <= bytes) {
        (void)VirtualFree(first, 0, MEM_RELEASE);
    } else {
        (void)VirtualFree(first, (SIZE_T)bytes, MEM_DECOMMIT);
    }
}

void dunlin__sys_prefer_huge(void *first, uint64_t bytes)
{
    (void)first;
    (void)bytes;
}

bool dunlin__sys_has_int8_dot(void)
{
    return IsProcessorFeaturePresent(DOT_PRODUCTS) != 0;
}

void dunlin__heap_give_back(void)
{
    (void)_heapmin();
}

void dunlin__sys_reason(int code, char *out_text, size_t n_bytes)
{
    if (strerror_s(out_text, n_bytes, code) != 0 && n_bytes > 0) {
        out_text[0] = '\0';
    }
}

int dunlin__sys_open(const char *path, int flags, unsigned mode)
{
    (void)mode;
    return _open(path, flags | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
}

int dunlin__sys_duplicate(int fd)
{
    return _dup(fd);
}

/* A socket is no descriptor there: libcurl makes its own. */
int dunlin__sys_socket(int family, int type, int protocol)
{
    (void)family;
    (void)type;
    (void)protocol;
    errno = ENOSYS;
    return -1;
}

int dunlin__sys_sync(int fd)
{
    return _commit(fd) == 0 ? 0 : errno;
}

int dunlin__sys_sync_data(int fd)
{
    return dunlin__sys_sync(fd);
}

/* NTFS journals its names; a folder has no descriptor to be synced by. */
int dunlin__sys_sync_folder(const char *folder)
{
    return GetFileAttributesA(folder) != INVALID_FILE_ATTRIBUTES ? 0 : code_of(GetLastError());
}

int dunlin__sys_preallocate(int fd, uint64_t bytes)
{
    return bytes == 0 ? 0 : _chsize_s(fd, (long long)bytes);
}

int dunlin__sys_open_scratch(const char *folder, const char *path, bool is_direct)
{
    (void)folder;
    const DWORD flags = FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE |
                        (is_direct ? FILE_FLAG_NO_BUFFERING | FILE_FLAG_WRITE_THROUGH : 0u);
    HANDLE file =
        CreateFileA(path, GENERIC_READ | GENERIC_WRITE | DELETE, 0, NULL, CREATE_NEW, flags, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        errno = code_of(GetLastError());
        return -1;
    }
    const int fd = _open_osfhandle((intptr_t)file, _O_RDWR | _O_BINARY);
    if (fd < 0) {
        (void)CloseHandle(file);
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

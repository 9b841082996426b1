/*
 * test_platform.c - what the planner and the files ask of the operating system.
 */
#include <mem/platform.h>

#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_PAGES 8

static char folder[64];

static void make_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/var/tmp/dunlin-platform-XXXXXX");
    cr_assert_not_null(mkdtemp(folder), "%s", strerror(errno));
}

static void remove_folder(void)
{
    cr_expect_eq(rmdir(folder), 0, "something is left in %s", folder);
}

TestSuite(platform, .init = make_folder, .fini = remove_folder);

static void expect_resident(unsigned char *first, uint64_t bytes, size_t n_expected)
{
    unsigned char pages[N_PAGES];
    size_t n = 0;
    const int result = mincore(first, (size_t)bytes, pages);
#ifdef DUNLIN_EMULATED
    /* qemu answers for pages that may be read alone. */
    if (result != 0) {
        return;
    }
#endif
    cr_assert_eq(result, 0, "%s", strerror(errno));
    for (size_t i = 0; i < N_PAGES; i++) {
        n += pages[i] & 1u;
    }
    cr_expect_eq(n, n_expected, "%zu of %d pages are in memory, %zu should be", n, N_PAGES,
                 n_expected);
}

Test(platform, pages_are_taken_and_given_back)
{
    const uint64_t page = dunlin__sys_page_bytes();
    const uint64_t bytes = N_PAGES * page;
    cr_assert_eq(page & (page - 1), 0, "a power of two");
    unsigned char *range = dunlin__sys_reserve(bytes);
    cr_assert_not_null(range);
    expect_resident(range, bytes, 0);
    cr_assert_eq(dunlin__sys_commit(range, bytes), 0);
    memset(range, 7, (size_t)bytes);
    expect_resident(range, bytes, N_PAGES);
    cr_assert_eq(dunlin__sys_give_back(range + 4 * page, 4 * page), 0);
    expect_resident(range, bytes, 4);
    cr_expect_eq(range[4 * page - 1], 7, "what stays is as it was");
    cr_assert_eq(dunlin__sys_commit(range + 4 * page, page), 0);
    cr_expect_eq(range[4 * page], 0, "pages come back as zeros");
    dunlin__sys_prefer_huge(range, bytes);
    dunlin__sys_release(range, bytes);
}

Test(platform, too_many_addresses_are_refused)
{
    errno = 0;
    cr_expect_null(dunlin__sys_reserve(UINT64_MAX / 2 - dunlin__sys_page_bytes() + 1));
    cr_expect_neq(errno, 0);
}

Test(platform, no_child_inherits_a_file)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/file", folder);
    const int fd = dunlin__sys_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    cr_assert_geq(fd, 0, "%s", strerror(errno));
    cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    struct stat info;
    cr_assert_eq(fstat(fd, &info), 0);
    cr_expect_eq(info.st_mode & 0777u, 0600);
    cr_expect_lt(dunlin__sys_open(path, O_RDWR | O_CREAT | O_EXCL, 0600), 0);
    cr_expect_eq(errno, EEXIST);
    (void)close(fd);
    (void)unlink(path);
    const int connection = dunlin__sys_socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_geq(connection, 0, "%s", strerror(errno));
    cr_expect(fcntl(connection, F_GETFD) & FD_CLOEXEC);
    (void)close(connection);
}

Test(platform, syncs_tell_what_failed)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/file", folder);
    const int fd = dunlin__sys_open(path, O_RDWR | O_CREAT, 0600);
    cr_assert_geq(fd, 0);
    cr_expect_eq(dunlin__sys_sync(fd), 0);
    cr_expect_eq(dunlin__sys_sync_data(fd), 0);
    cr_expect_eq(dunlin__sys_sync_folder(folder), 0);
    (void)close(fd);
    cr_expect_eq(dunlin__sys_sync(fd), EBADF);
    cr_expect_eq(dunlin__sys_sync_data(fd), EBADF);
    cr_expect_eq(dunlin__sys_sync_folder(path), ENOTDIR);
    (void)unlink(path);
    cr_expect_eq(dunlin__sys_sync_folder(path), ENOENT);
}

Test(platform, reserved_bytes_have_their_place)
{
    char path[128];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/file", folder);
    const int fd = dunlin__sys_open(path, O_RDWR | O_CREAT, 0600);
    cr_assert_geq(fd, 0);
    cr_expect_eq(dunlin__sys_preallocate(fd, 0), 0);
    cr_assert_eq(dunlin__sys_preallocate(fd, 1u << 20), 0);
    cr_assert_eq(fstat(fd, &info), 0);
    cr_expect_eq(info.st_size, 1 << 20);
    cr_expect_geq((long long)info.st_blocks * 512, 1 << 20);
    const struct rlimit limit = {.rlim_cur = 1u << 20, .rlim_max = RLIM_INFINITY};
    (void)signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_neq(dunlin__sys_preallocate(fd, 1u << 21), 0, "beyond what a file may have");
    (void)close(fd);
    (void)unlink(path);
}

Test(platform, a_scratch_file_has_no_name)
{
    char path[128];
    char text[4] = "";
    (void)snprintf(path, sizeof path, "%s/file", folder);
    const int fd = dunlin__sys_open_scratch(folder, path, false);
    cr_assert_geq(fd, 0, "%s", strerror(errno));
    cr_expect_neq(access(path, F_OK), 0);
    cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(pwrite(fd, "abc", 3, 4096), 3);
    cr_expect_eq(dunlin__sys_sync_data(fd), 0);
    dunlin__sys_drop_cached(fd, 4096, 3);
    cr_expect_eq(pread(fd, text, 3, 4096), 3);
    cr_expect_str_eq(text, "abc");
    (void)close(fd);
    const int direct = dunlin__sys_open_scratch(folder, path, true);
    cr_expect(direct >= 0 || errno == EINVAL, "%s", strerror(errno));
    if (direct >= 0) {
        (void)close(direct);
    }
    cr_expect_lt(dunlin__sys_open_scratch("/nowhere/at/all", "/nowhere/at/all/file", false), 0);
}

Test(platform, a_folder_in_memory_is_known)
{
    cr_expect_not(dunlin__sys_is_in_memory("/proc"));
    cr_expect_not(dunlin__sys_is_in_memory("/nowhere/at/all"));
    dunlin__heap_give_back();
}

/*
 * test_files.c - the files of a round: writes that the system does in parts.
 */
#include "client/fake_server.h"
#include "store/files.h"

#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_BYTES 1000
#define OFFSET 600
#define N_BYTES 800 /* the system takes the first half, up to the limit */

/* In a child, since the limit on file sizes is the process's: 42 if the write fails as it should.
 */
static int write_past_the_limit(const char *path)
{
    const struct rlimit limit = {.rlim_cur = LIMIT_BYTES, .rlim_max = LIMIT_BYTES};
    uint8_t bytes[N_BYTES];
    dunlin_error error = {0};
    int fd = -1;
    memset(bytes, 7, sizeof bytes);
    (void)signal(SIGXFSZ, SIG_IGN);
    if (dunlin__file_open(path, &fd, &error) != DUNLIN_OK || setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 1;
    }
    const dunlin_status status = dunlin__file_write(fd, bytes, sizeof bytes, OFFSET, &error);
    (void)close(fd);
    return status == DUNLIN_OK ? 2 : 42;
}

/* What comes after a part goes behind it: never over what lies before. */
Test(files, a_write_in_parts_goes_on_where_it_stopped)
{
    char folder[64];
    char path[DUNLIN_FILE_PATH_BYTES];
    uint8_t found[OFFSET];
    int status = 0;
    int fd = -1;
    fake_folder_make(folder);
    cr_assert_eq(dunlin__file_path(folder, "part", path, NULL), DUNLIN_OK);
    pid_t child = fork();
    if (child == 0) {
        _exit(write_past_the_limit(path));
    }
    (void)waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status));
    cr_expect_eq(WEXITSTATUS(status), 42, "%d", WEXITSTATUS(status));
    cr_assert_eq(dunlin__file_open(path, &fd, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__file_read(fd, found, sizeof found, 0, NULL), DUNLIN_OK);
    for (size_t i = 0; i < sizeof found; i++) {
        cr_assert_eq(found[i], 0, "byte %zu is %u", i, found[i]);
    }
    cr_expect_eq(lseek(fd, 0, SEEK_END), LIMIT_BYTES);
    (void)close(fd);
    fake_folder_remove(folder);
}

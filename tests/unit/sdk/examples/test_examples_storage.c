/*
 * test_examples_storage.c - the example store on its storage: who may read it, what removal leaves,
 * storage that is full, held, damaged or of another version.
 */
#include "client/storage.h"
#include "examples_bench.h"

#include <criterion/criterion.h>

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_in_files(const examples_bench *b, uint8_t value)
{
    static const char *const NAMES[] = {"examples.db", "examples.db-wal"};
    static char bytes[1 << 21];
    char pattern[64];
    bool is_found = false;
    memset(pattern, value, sizeof pattern);
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", b->folder, NAMES[i]);
        int fd = open(path, O_RDONLY);
        ssize_t n = fd < 0 ? 0 : read(fd, bytes, sizeof bytes);
        (void)close(fd);
        for (ssize_t k = 0; !is_found && k + (ssize_t)sizeof pattern <= n; k++) {
            is_found = memcmp(bytes + k, pattern, sizeof pattern) == 0;
        }
    }
    return is_found;
}

Test(examples_storage, private_and_removed_for_good)
{
    examples_bench b;
    char inner[128];
    char path[160];
    struct stat about;
    bench_make(&b);
    (void)snprintf(inner, sizeof inner, "%s/inner", b.folder);
    (void)umask(0);
    b.options.folder = inner;
    bench_open(&b);
    cr_assert_eq(stat(inner, &about), 0);
    cr_expect_eq(about.st_mode & 0777, 0700);
    (void)snprintf(path, sizeof path, "%s/examples.db", inner);
    cr_assert_eq(stat(path, &about), 0);
    cr_expect_eq(about.st_mode & 0777, 0600);
    (void)strcpy(b.folder, inner);
    int64_t id = bench_add(&b, 0xA7, 9000, 0);
    (void)bench_add(&b, 0xB7, 40000, 0);
    cr_expect(is_in_files(&b, 0xA7));
    cr_assert_eq(dunlin_examples_remove(b.examples, &id, 1, NULL), DUNLIN_OK);
    cr_expect_not(is_in_files(&b, 0xA7));
    cr_expect(is_in_files(&b, 0xB7));
    uint64_t before = bench_stats(&b).file_bytes;
    cr_assert_eq(dunlin_examples_clear(b.examples, "other", NULL), DUNLIN_OK);
    cr_expect_eq(bench_stats(&b).n_examples, 1);
    cr_assert_eq(dunlin_examples_clear(b.examples, NULL, NULL), DUNLIN_OK);
    cr_expect_not(is_in_files(&b, 0xB7));
    cr_expect_lt(bench_stats(&b).file_bytes, before / 2);
    (void)bench_add(&b, 1, 1, 0); /* it can be used again */
    *strrchr(b.folder, '/') = '\0';
    bench_remove(&b);
}

Test(examples_storage, other_schemas_and_damage_are_left_alone)
{
    examples_bench b;
    char labels[256];
    bench_make(&b);
    bench_open(&b);
    (void)bench_add(&b, 1, 1, 0);
    storage_run_sql(b.folder, "examples.db", "PRAGMA user_version = 99");
    bench_expect_not_opened(&b, DUNLIN_VERSION);
    storage_run_sql(b.folder, "examples.db", "PRAGMA user_version = 2");
    bench_open(&b);
    bench_labels(&b, "one", "t", 0, labels);
    cr_expect_str_eq(labels, "1");
    dunlin_examples_close(b.examples);
    b.examples = NULL;
    storage_overwrite(b.folder, "examples.db", 0, 100);
    bench_expect_not_opened(&b, DUNLIN_DATA);
    bench_remove(&b);
}

Test(examples_storage, totals_that_lie_are_told)
{
    examples_bench b;
    int64_t id = 0;
    bench_make(&b);
    bench_open(&b);
    storage_run_sql(b.folder, "examples.db", "UPDATE totals SET n_examples = 1000000");
    cr_expect_eq(bench_try(&b, NULL, 1, 1, 0, &id), DUNLIN_DATA);
    bench_remove(&b);
}

/* In a child, since the limit on file sizes is the process's. */
static int fill_without_room(examples_bench *b)
{
    struct rlimit limit = {.rlim_cur = 200000, .rlim_max = RLIM_INFINITY};
    static uint8_t data[20000];
    dunlin_example example = {.data = data, .n_bytes = sizeof data, .label = 7};
    (void)signal(SIGXFSZ, SIG_IGN);
    bench_open(b);
    dunlin_status status = setrlimit(RLIMIT_FSIZE, &limit) == 0 ? DUNLIN_OK : DUNLIN_INTERNAL;
    int64_t n = 0;
    while (status == DUNLIN_OK && n < 1000) {
        status = dunlin_examples_add(b->examples, &example, 1, NULL, NULL);
        n += status == DUNLIN_OK;
    }
    if (status != DUNLIN_SPACE || bench_stats(b).n_examples != n + 1) {
        return 1;
    }
    status = DUNLIN_OK;
    for (int i = 0; status == DUNLIN_OK && i < 1000; i++) {
        char client[32];
        (void)snprintf(client, sizeof client, "client-%d", i);
        status = bench_choose(b, client, "t");
    }
    limit.rlim_cur = RLIM_INFINITY;
    if (status != DUNLIN_SPACE || setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 2;
    }
    return bench_choose(b, "one", "t") == DUNLIN_OK &&
                   dunlin_examples_add(b->examples, &example, 1, NULL, NULL) == DUNLIN_OK
               ? 42
               : 3;
}

Test(examples_storage, no_room_is_told_and_nothing_is_half_written)
{
    examples_bench b;
    int status = 0;
    bench_make(&b);
    bench_open(&b);
    (void)bench_add(&b, 9, 1, 1);
    dunlin_examples_close(b.examples);
    b.examples = NULL;
    pid_t child = fork();
    if (child == 0) {
        _exit(fill_without_room(&b));
    }
    (void)waitpid(child, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%d", WEXITSTATUS(status));
    bench_open(&b);
    storage_run_sql(b.folder, "examples.db", "PRAGMA integrity_check");
    cr_expect_gt(bench_stats(&b).n_examples, 2);
    bench_remove(&b);
}

/* Another process holds it; the busy wait is 5 s, so the test takes that long once. */
Test(examples_storage, held_by_another_process_is_locked)
{
    examples_bench b;
    int64_t id = 0;
    sqlite3 *other = NULL;
    char path[128];
    bench_make(&b);
    bench_open(&b);
    (void)snprintf(path, sizeof path, "%s/examples.db", b.folder);
    cr_assert_eq(sqlite3_open(path, &other), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    cr_expect_eq(bench_try(&b, NULL, 1, 1, 0, &id), DUNLIN_LOCKED);
    cr_assert_eq(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_close(other), SQLITE_OK);
    (void)bench_add(&b, 1, 1, 0);
    bench_remove(&b);
}

/*
 * examples_bench.c - what the tests of the example store share.
 */
#include "examples_bench.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

static const dunlin_examples_rule ALL = DUNLIN_EXAMPLES_RULE_INIT;
static int n_assignments;

static int64_t bench_wall_ms(void *ctx)
{
    return ((const examples_bench *)ctx)->now_ms;
}

void bench_make(examples_bench *bench)
{
    *bench = (examples_bench){.now_ms = BENCH_NOW_MS};
    fake_folder_make(bench->folder);
    bench->options = (dunlin_examples_options)DUNLIN_EXAMPLES_OPTIONS_INIT;
    bench->options.folder = bench->folder;
    bench->options.rules = &ALL;
    bench->options.n_rules = 1;
    bench->options.wall_ms_fn = bench_wall_ms;
    bench->options.wall_ctx = bench;
}

void bench_open(examples_bench *bench)
{
    dunlin_error error = {0};
    cr_assert_eq(dunlin_examples_open(&bench->options, &bench->examples, &error), DUNLIN_OK, "%s",
                 error.text);
}

void bench_reopen(examples_bench *bench)
{
    dunlin_examples_close(bench->examples);
    bench_open(bench);
}

void bench_remove(examples_bench *bench)
{
    dunlin_examples_close(bench->examples);
    fake_folder_remove(bench->folder);
}

dunlin_status bench_try(examples_bench *bench, const char *collection, uint8_t value,
                        size_t n_bytes, int64_t time_ms, int64_t *out_id)
{
    static uint8_t data[1 << 16];
    dunlin_error error = {0};
    cr_assert_leq(n_bytes, sizeof data);
    memset(data, value, n_bytes);
    dunlin_example example = {.collection = collection,
                              .data = data,
                              .n_bytes = n_bytes,
                              .label = value,
                              .time_ms = time_ms};
    dunlin_status status = dunlin_examples_add(bench->examples, &example, 1, out_id, &error);
    cr_expect_eq(error.status, status, "%s", error.text);
    return status;
}

int64_t bench_add(examples_bench *bench, uint8_t value, size_t n_bytes, int64_t time_ms)
{
    int64_t id = 0;
    cr_assert_eq(bench_try(bench, NULL, value, n_bytes, time_ms, &id), DUNLIN_OK);
    return id;
}

void bench_labels(examples_bench *bench, const char *client, const char *task, int64_t max_examples,
                  char out_labels[256])
{
    char assignment[32];
    dunlin__examples_parts n = {0};
    size_t length = 0;
    dunlin_error error = {0};
    (void)snprintf(assignment, sizeof assignment, "assignment-%d", ++n_assignments);
    out_labels[0] = '\0';
    cr_assert_eq(dunlin__examples_choose(bench->examples, client, assignment, task, max_examples,
                                         &n, &error),
                 DUNLIN_OK, "%s", error.text);
    for (int64_t i = 0; i < n.n_chosen; i++) {
        uint8_t data[64];
        dunlin_example_buffer buffer = {.data = data, .capacity = sizeof data};
        cr_assert_eq(dunlin_examples_read(bench->examples, client, i, &buffer, &error), DUNLIN_OK,
                     "%s", error.text);
        cr_expect_eq(data[buffer.n_bytes - 1], buffer.label);
        length += (size_t)snprintf(out_labels + length, 256 - length, "%s%d", i == 0 ? "" : ",",
                                   (int)buffer.label);
    }
}

dunlin_examples_stats bench_stats(examples_bench *bench)
{
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    cr_assert_eq(dunlin_examples_get_stats(bench->examples, &stats, NULL), DUNLIN_OK);
    return stats;
}

dunlin_status bench_choose(examples_bench *bench, const char *client, const char *task)
{
    dunlin__examples_parts n = {0};
    dunlin_error error = {0};
    dunlin_status status =
        dunlin__examples_choose(bench->examples, client, "a", task, 0, &n, &error);
    cr_expect_eq(error.status, status);
    return status;
}

void bench_expect_not_opened(examples_bench *b, dunlin_status wanted)
{
    dunlin_error error = {0};
    dunlin_examples_close(b->examples);
    b->examples = NULL;
    cr_expect_eq(dunlin_examples_open(&b->options, &b->examples, &error), wanted, "%s", error.text);
    cr_expect_eq(error.status, wanted);
    cr_expect_null(b->examples);
}

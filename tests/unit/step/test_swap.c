/*
 * test_swap.c - steps that write tensors out to a file: the same bits, no file is left, and what
 * happens when the disk is full or fails.
 */
#include "step/context/context.h"
#include "step/step_support.h"

#include <dunlin/trainer_experimental.h>

#include <criterion/criterion.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH 8

/* LeNet-5's images are large beside its weights. */
static dunlin_model *make_model(void)
{
    const dunlin_zoo_options sizes = {
        .struct_size = sizeof(dunlin_zoo_options), .image = 28, .classes = 10};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("lenet5", &sizes, NULL, &model, NULL), DUNLIN_OK);
    return model;
}

/* Options whose plan swaps: the least budget. */
static dunlin_trainer_options swapping(const dunlin_model *model, dunlin_policy policy)
{
    dunlin_trainer_options options = test_options(BATCH);
    options.swap_dir = "/var/tmp";
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    options.policy = policy;
    options.baselines = dunlin_baselines_published();
    options.budget_bytes = 1;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_BUDGET);
    options.budget_bytes = error.needed_bytes;
    return options;
}

/* Not TMPDIR, which may lie in memory. */
static char *make_folder(const char *name)
{
    char *path = malloc(128);
    cr_assert_not_null(path);
    (void)snprintf(path, 128, "/var/tmp/dunlin-swap-%ld-%s", (long)getpid(), name);
    cr_assert_eq(mkdir(path, 0700), 0, "%s", path);
    return path;
}

static int count_files(const char *folder)
{
    DIR *at = opendir(folder);
    cr_assert_not_null(at);
    int n = 0;
    for (const struct dirent *entry = readdir(at); entry != NULL; entry = readdir(at)) {
        n += entry->d_name[0] != '.';
    }
    (void)closedir(at);
    return n;
}

static dunlin_status take_step(dunlin_trainer *trainer, const dunlin_model *model, int64_t step)
{
    test_source source;
    int64_t indices[BATCH];
    test_source_init(&source, model, 64, DUNLIN_U8);
    for (int64_t i = 0; i < BATCH; i++) {
        indices[i] = (step * BATCH + i) % 64;
    }
    return dunlin_trainer_step(trainer, &source.source, indices, BATCH, NULL);
}

static bool has_same_weights(const dunlin_trainer *a, const dunlin_trainer *b)
{
    int64_t n = 0;
    float *one = test_weights(a, &n);
    float *other = test_weights(b, NULL);
    const bool is_same = test_same_bits(one, other, n);
    free(one);
    free(other);
    return is_same;
}

Test(swap, bytes_are_counted_and_nothing_is_left)
{
    dunlin_model *model = make_model();
    char *folder = make_folder("swaps");
    dunlin_trainer_options options = swapping(model, DUNLIN_POLICY_VDNN);
    options.swap_dir = folder;
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer_options pool = test_options(BATCH);
    pool.policy = DUNLIN_POLICY_POOL;
    dunlin_trainer *plain = test_create(model, &pool);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    for (int64_t i = 0; i < 3; i++) {
        cr_assert_eq(take_step(trainer, model, i), DUNLIN_OK);
        cr_assert_eq(take_step(plain, model, i), DUNLIN_OK);
        cr_expect_eq(count_files(folder), 0);
    }
    cr_expect(has_same_weights(trainer, plain));
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    cr_expect_gt(report.n_swapped, 0);
    cr_expect_gt(report.swap_ms, 0.0);
    cr_expect_eq(report.swap_out_bytes, report.swap_in_bytes);
    cr_expect_eq(report.swapped_out_bytes, 3 * report.swap_out_bytes);
    cr_expect_eq(report.swapped_in_bytes, 3 * report.swap_in_bytes);
    cr_expect_gt(report.swapped_out_ms, 0.0);
    cr_expect_eq(report.peak_bytes, report.planned_bytes);
    cr_expect_leq(report.peak_bytes, options.budget_bytes);
    cr_expect(strcmp(report.swap_way, "direct") == 0 || strcmp(report.swap_way, "flushed") == 0);
    cr_assert_eq(dunlin_trainer_get_report(plain, &report), DUNLIN_OK);
    cr_expect_eq(report.n_swapped, 0);
    cr_expect_str_empty(report.swap_way);
    dunlin_trainer_destroy(plain);
    dunlin_trainer_destroy(trainer);
    cr_expect_eq(rmdir(folder), 0);
    free(folder);
    dunlin_model_destroy(model);
}

/* Without direct I/O: through the cache, flushed. */
Test(swap, a_file_of_either_kind_gives_back_what_it_took)
{
    enum { N = 20011, ROOM = 3 * DUNLIN_SWAP_BLOCK };
    static unsigned char bytes[N], expected[N], buffer[ROOM + 64];
    char *folder = make_folder("file");
    for (int kind = 0; kind < 2; kind++) {
        dunlin_swap_file file;
        dunlin_error error = {.status = DUNLIN_OK};
        cr_assert_eq(dunlin__swap_open(folder, 16 * DUNLIN_SWAP_BLOCK, &file, &error), DUNLIN_OK,
                     "%s", error.text);
        if (kind == 1) { /* the same file, opened as where direct I/O is refused */
            char path[64];
            (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file.fd);
            FILE *again = fopen(path, "r+e");
            if (again == NULL) {
                dunlin__swap_close(&file);
                continue;
            }
            cr_assert_neq(dup2(fileno(again), file.fd), -1);
            (void)fclose(again);
            file.is_direct = false;
        }
        for (int skew = 0; skew < 3; skew++) {
            for (int i = 0; i < N; i++) {
                expected[i] = bytes[i] = (unsigned char)(i * 7 + skew + kind);
            }
            dunlin_swap_piece piece = {.offset = (uint64_t)skew * 5 * DUNLIN_SWAP_BLOCK,
                                       .bytes = bytes,
                                       .n = N,
                                       .buffer = buffer + 21 * (size_t)skew,
                                       .buffer_bytes = ROOM};
            cr_assert_eq(dunlin__swap_write(&file, &piece, &error), DUNLIN_OK, "%s", error.text);
            memset(bytes, 0xee, N);
            cr_assert_eq(dunlin__swap_read(&file, &piece, &error), DUNLIN_OK, "%s", error.text);
            cr_expect_eq(memcmp(bytes, expected, N), 0, "kind %d, skew %d", kind, skew);
        }
        cr_expect_eq(file.out_bytes, 3 * N);
        cr_expect_eq(count_files(folder), 0);
        dunlin__swap_close(&file);
    }
    cr_expect_eq(rmdir(folder), 0);
    free(folder);
}

Test(swap, folders_that_will_not_do)
{
    dunlin_model *model = make_model();
    dunlin_trainer_options options = swapping(model, DUNLIN_POLICY_VDNN);
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_trainer *trainer = NULL;
    options.swap_dir = "/nowhere/at/all";
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_IO);
    cr_expect_not_null(strstr(error.text, "/nowhere/at/all"), "%s", error.text);
    cr_expect_null(trainer);
    /* Planning alone needs no folder. */
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_OK);
    if (access("/dev/shm", W_OK) == 0) {
        options.swap_dir = "/dev/shm";
        const dunlin_status status = dunlin_trainer_create(model, &options, &trainer, &error);
        cr_expect_eq(status, DUNLIN_UNSUPPORTED, "%s", error.text);
        cr_expect_not_null(strstr(error.text, "in memory"), "%s", error.text);
    }
    options.swap_dir = NULL;
    options.least_budget_bytes = 1;
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_UNSUPPORTED);
    options.least_budget_bytes = 0;
    options.swap_read_mb_per_s = -1.0;
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "swap_read_mb_per_s"), "%s", error.text);
    dunlin_model_destroy(model);
}

/* Files may grow to so many bytes; for what is written above that there is no room. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

Test(swap, a_full_disk_loses_nothing)
{
    dunlin_model *model = make_model();
    char *folder = make_folder("full");
    dunlin_trainer_options options = swapping(model, DUNLIN_POLICY_VDNN);
    options.swap_dir = folder;
    dunlin_error error = {.status = DUNLIN_OK};
    (void)signal(SIGXFSZ, SIG_IGN);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer *other = test_create(model, &options);
    cr_assert_eq(take_step(trainer, model, 0), DUNLIN_OK);
    cr_assert_eq(take_step(other, model, 0), DUNLIN_OK);
    limit_files(0);
    const dunlin_status full = take_step(trainer, model, 1);
    dunlin_trainer *none = NULL;
    const dunlin_status none_status = dunlin_trainer_create(model, &options, &none, &error);
    limit_files(RLIM_INFINITY);
    cr_expect_eq(none_status, DUNLIN_SPACE, "%s", error.text);
    cr_expect_eq(full, DUNLIN_SPACE, "%s", dunlin_trainer_last_error(trainer)->text);
    cr_expect_not_null(strstr(dunlin_trainer_last_error(trainer)->text, "written out"));
    cr_expect(has_same_weights(trainer, other), "the weights have changed");
    cr_expect_eq(count_files(folder), 0);
    cr_assert_eq(take_step(trainer, model, 1), DUNLIN_OK);
    cr_assert_eq(take_step(other, model, 1), DUNLIN_OK);
    cr_expect(has_same_weights(trainer, other));
    dunlin_trainer_destroy(other);
    dunlin_trainer_destroy(trainer);
    cr_expect_eq(rmdir(folder), 0);
    free(folder);
    dunlin_model_destroy(model);
}

/* Cuts the file before the first tensor is read back. */
static void cut_file(void *ctx, const dunlin_step_op *op, int64_t first, int64_t n, bool is_done)
{
    const dunlin_trainer *trainer = ctx;
    (void)first;
    (void)n;
    if (!is_done && strcmp(op->kernel->name, "swap_in") == 0) {
        cr_assert_eq(ftruncate(trainer->swap->file.fd, 0), 0);
    }
}

Test(swap, what_cannot_be_read_back_is_told)
{
    dunlin_model *model = make_model();
    const dunlin_trainer_options options = swapping(model, DUNLIN_POLICY_VDNN);
    char *path = test_temp_path("lost.ckpt");
    dunlin_trainer *trainer = test_create(model, &options);
    cr_assert_eq(take_step(trainer, model, 0), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    const dunlin_step_watch watch = {.op_fn = cut_file, .ctx = trainer};
    trainer->watch = &watch;
    cr_expect_eq(take_step(trainer, model, 1), DUNLIN_IO);
    cr_expect_not_null(strstr(dunlin_trainer_last_error(trainer)->text, "read back"));
    trainer->watch = NULL;
    cr_expect_eq(take_step(trainer, model, 1), DUNLIN_STATE);
    cr_assert_eq(dunlin_trainer_load_checkpoint(trainer, path), DUNLIN_OK);
    cr_expect_eq(take_step(trainer, model, 1), DUNLIN_OK);
    dunlin_trainer *other = test_create(model, &options);
    cr_assert_eq(take_step(other, model, 0), DUNLIN_OK);
    cr_assert_eq(take_step(other, model, 1), DUNLIN_OK);
    cr_expect(has_same_weights(trainer, other));
    dunlin_trainer_destroy(other);
    dunlin_trainer_destroy(trainer);
    (void)remove(path);
    free(path);
    dunlin_model_destroy(model);
}

Test(swap, a_device_is_measured)
{
    double write = 0.0;
    double read = 0.0;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_expect_eq(dunlin_swap_measure("/var/tmp", &write, &read, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect(write > 0.1 && read > 0.1, "%g and %g", write, read);
    cr_expect_eq(dunlin_swap_measure("/nowhere", &write, &read, &error), DUNLIN_IO);
}

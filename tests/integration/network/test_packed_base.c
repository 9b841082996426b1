/*
 * test_packed_base.c - models that go down packed, from the real server over TLS: the bytes that go
 * over the wire, deltas, cuts, packed bytes that are no good, and that the base is the same for
 * all.
 */
#include "site.h"

#include <dunlin/app_model.h>

#include <criterion/criterion.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N_WEIGHTS 400000
#define N_VALUES (N_WEIGHTS + 3)
#define MODEL_BYTES (4u * N_VALUES)
#define PACKED_BYTES (N_WEIGHTS + N_WEIGHTS / 512 * 4)
#define OTHERS 8000 /* bytes of manifests and calls of a round, at most */
#define TASK(keys)                                                                                 \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 40, \"cohort\": 1, "              \
    "\"deadline_s\": 36000, \"seed\": 3, "                                                         \
    "\"tensors\": [{\"name\": \"weights\", \"shape\": [400, 1000]}, "                              \
    "{\"name\": \"mean\", \"shape\": [3], \"rule\": \"statistic\"}]" keys "}"
#define DOWN TASK(", \"compress\": {\"down\": \"int8\"}")
#define BOTH TASK(", \"compress\": {\"down\": \"int8\", \"up\": \"int8+rotate\"}")

static site where;
static site_device device;
static dunlin_weights_reader base;
static float first[N_VALUES];  /* of each base that the learner was given */
static float update[N_VALUES]; /* that it makes */

/* ---- a learner whose steps look like those of a network ---- */

static dunlin_status load(void *self, const dunlin_task *task, const dunlin_weights_reader *given)
{
    (void)self;
    (void)task;
    base = *given;
    cr_assert_eq(base.n_tensors, 2);
    cr_assert_eq(base.read_fn(base.ctx, 0, 0, N_WEIGHTS, first), DUNLIN_OK);
    return base.read_fn(base.ctx, 1, 0, 3, first + N_WEIGHTS);
}

static dunlin_status fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    (void)self;
    (void)max_ms;
    out_report->is_done = true;
    out_report->n_examples = 10;
    out_report->n_steps = 1;
    return DUNLIN_OK;
}

static dunlin_status read_fresh(void *ctx, int32_t index, int64_t from, int64_t n, float *out)
{
    dunlin_status status = base.read_fn(base.ctx, index, from, n, out);
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        out[i] += update[(index == 1 ? N_WEIGHTS : 0) + from + i];
    }
    return status;
}

static dunlin_status save(void *self, dunlin_weights_reader *out)
{
    *out = (dunlin_weights_reader){
        .ctx = self, .tensors = base.tensors, .n_tensors = base.n_tensors, .read_fn = read_fresh};
    return DUNLIN_OK;
}

static void unload(void *self)
{
    (void)self;
}

static const dunlin_learner_ops SMALL_STEPS = {.struct_size = sizeof(dunlin_learner_ops),
                                               .load = load,
                                               .fit = fit,
                                               .evaluate = fit,
                                               .save = save,
                                               .unload = unload};

static void choose_update(float scale)
{
    for (int i = 0; i < N_VALUES; i++) {
        const uint32_t mixed = (uint32_t)(i + 1) * 2654435761U;
        update[i] = scale * ((float)(mixed >> 16) / 32768.0F - 1.0F);
    }
}

/* ---- rounds ---- */

static void open_device(const char *name, dunlin_model_keeping keeping)
{
    site_device_make(&device, &where, name);
    device.plug.ops = &SMALL_STEPS;
    device.options.model_keeping = keeping;
    site_device_open(&device);
}

/* Rounds, with the waits between them skipped, until one ends well. */
static dunlin_round_report run_through(void)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 1000 && report.outcome != DUNLIN_OUTCOME_ACCEPTED; i++) {
        report = (dunlin_round_report)DUNLIN_ROUND_REPORT_INIT;
        const dunlin_status status = dunlin_client_run_round(device.client, &report);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_CLOSED || status == DUNLIN_DIGEST,
                  "%s: %s", dunlin_status_name(status),
                  dunlin_client_last_error(device.client)->text);
        site_device_rest(&device);
        const struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL); /* the server folds the round before */
    }
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s: %s",
                 dunlin_outcome_name(report.outcome),
                 dunlin_client_last_error(device.client)->text);
    return report;
}

/* One round; the bytes that came down. */
static uint64_t bytes_down(void)
{
    const uint64_t before = site_count(&where).bytes_down;
    (void)run_through();
    site_listen(&where, NULL); /* the server's last counts are in once its connections are closed */
    site_device_close(&device);
    const uint64_t after = site_count(&where).bytes_down;
    site_device_open(&device);
    return after - before;
}

static double norm_of(const float *values, const float *less)
{
    double sum = 0.0;
    for (int i = 0; i < N_WEIGHTS; i++) {
        const double difference = (double)values[i] - (double)less[i];
        sum += difference * difference;
    }
    return sum;
}

static void end(void)
{
    site_device_close(&device);
    site_close(&where);
}

/* ---- the tests ---- */

Test(packed_base, a_round_takes_a_quarter_and_a_delta_less, .timeout = 600)
{
    static float model[N_VALUES];
    static const float zeros[N_VALUES];
    site_open(&where, DOWN);
    site_listen(&where, NULL);
    open_device("keeps", DUNLIN_MODEL_KEEPING_ROUNDS);
    choose_update(0.1F);
    uint64_t n_bytes = bytes_down(); /* zeros: a scale a block */
    cr_expect_lt(n_bytes, PACKED_BYTES + OTHERS, "%llu", (unsigned long long)n_bytes);
    choose_update(0.0004F);
    n_bytes = bytes_down(); /* all new: no delta is worth it */
    cr_expect_lt(n_bytes, PACKED_BYTES + OTHERS, "%llu", (unsigned long long)n_bytes);
    cr_expect_gt(n_bytes, PACKED_BYTES * 9 / 10, "%llu", (unsigned long long)n_bytes);
    site_wait_round(&where, 3);
    site_read_model(&where, 2, "weights", N_VALUES, model);
    const double error = norm_of(first, model);
    cr_expect_gt(error, 0.0);
    cr_expect_lt(error, 1e-4 * norm_of(model, zeros));
    cr_expect_arr_eq(first + N_WEIGHTS, model + N_WEIGHTS, 3 * sizeof(float)); /* a statistic */
    n_bytes = bytes_down();
    cr_expect_lt(n_bytes, PACKED_BYTES / 2 + OTHERS, "%llu", (unsigned long long)n_bytes);
    cr_expect_gt(n_bytes, OTHERS);
    /* The model that the app has is what the learner was given. */
    dunlin_app_model *kept = NULL;
    dunlin_error error_of = {0};
    static float ours[N_WEIGHTS];
    cr_assert_eq(dunlin_app_model_open(device.client, &kept, &error_of), DUNLIN_OK, "%s",
                 error_of.text);
    cr_assert_eq(dunlin_app_model_get_tensor(kept, "weights", ours, N_WEIGHTS, &error_of),
                 DUNLIN_OK, "%s", error_of.text);
    cr_expect_arr_eq(ours, first, sizeof ours);
    dunlin_app_model_close(kept);
    end();
}

Test(packed_base, who_keeps_no_model_gets_no_delta, .timeout = 600)
{
    site_open(&where, BOTH);
    site_listen(&where, NULL);
    open_device("forgets", DUNLIN_MODEL_KEEPING_NONE);
    choose_update(0.1F);
    (void)bytes_down();
    choose_update(0.0004F);
    for (int i = 0; i < 2; i++) {
        const uint64_t n_bytes = bytes_down();
        cr_expect_lt(n_bytes, PACKED_BYTES + OTHERS, "%llu", (unsigned long long)n_bytes);
        cr_expect_gt(n_bytes, PACKED_BYTES * 9 / 10, "%llu", (unsigned long long)n_bytes);
    }
    end();
}

/* What was got before a cut is not sent again, of packed bytes and of a delta. */
Test(packed_base, a_cut_costs_what_was_on_its_way, .timeout = 600)
{
    static const char script[] = "object-get every:2 drop-reply 60000\n";
    site_open(&where, DOWN);
    site_listen(&where, NULL);
    open_device("cut", DUNLIN_MODEL_KEEPING_ROUNDS);
    choose_update(0.1F);
    (void)bytes_down();
    choose_update(0.0004F);
    for (int i = 0; i < 2; i++) { /* whole, then a delta */
        site_device_close(&device);
        site_listen(&where, script);
        site_device_open(&device);
        const uint64_t before = site_count(&where).bytes_down;
        const dunlin_round_report report = run_through();
        site_listen(&where, NULL);
        const uint64_t n_bytes = site_count(&where).bytes_down - before;
        cr_expect_gt(site_count(&where).n_faults, 0);
        cr_expect_lt(n_bytes, (i == 0 ? PACKED_BYTES : PACKED_BYTES / 2) * 5 / 4 + 10 * OTHERS,
                     "%llu", (unsigned long long)n_bytes);
        cr_expect_eq(report.round, (uint64_t)i + 2);
    }
    end();
}

/* Overwrites bytes of a file of the server's state; the hashes that it gave out stay. */
static void spoil(const char *name, off_t at)
{
    char path[256];
    static const uint8_t junk[8] = {0xde, 0xad, 0xbe, 0xef, 0xde, 0xad, 0xbe, 0xef};
    (void)snprintf(path, sizeof path, "%s/state/down/%s", where.folder, name);
    const int fd = open(path, O_WRONLY);
    cr_assert_geq(fd, 0, "%s", path);
    cr_assert_eq(pwrite(fd, junk, sizeof junk, at), (ssize_t)sizeof junk);
    (void)close(fd);
}

/* A delta that is gone from the server: the base comes whole. And packed bytes that are gone: it
 * comes as float32. Each in the round that it was for. */
Test(packed_base, what_cannot_be_fetched_comes_another_way, .timeout = 600)
{
    static const char *const gone[] = {"delta.manifest", "packed.manifest"};
    static const uint64_t least[] = {PACKED_BYTES * 9 / 10, MODEL_BYTES};
    char path[256];
    site_open(&where, DOWN);
    site_listen(&where, NULL);
    open_device("other", DUNLIN_MODEL_KEEPING_ROUNDS);
    choose_update(0.1F);
    (void)bytes_down();
    choose_update(0.0004F);
    (void)bytes_down();
    for (unsigned i = 0; i < 2; i++) {
        site_wait_round(&where, i + 3);
        (void)snprintf(path, sizeof path, "%s/state/down/%06u.%s", where.folder, i + 3, gone[i]);
        cr_assert_eq(unlink(path), 0, "%s", path);
        const uint64_t n_bytes = bytes_down();
        cr_expect_gt(n_bytes, least[i], "%s: %llu", gone[i], (unsigned long long)n_bytes);
    }
    end();
}

/* A base that is not what the packed bytes decode to, as of a device with other arithmetic: the
 * float32 of the base's own manifest is fetched, and no value is used that it does not have. */
Test(packed_base, a_kept_base_that_is_damaged_costs_bytes_alone, .timeout = 600)
{
    char path[256];
    char command[400];
    site_open(&where, DOWN);
    site_listen(&where, NULL);
    open_device("damaged", DUNLIN_MODEL_KEEPING_ROUNDS);
    choose_update(0.1F);
    (void)bytes_down();
    choose_update(0.0004F);
    (void)bytes_down();
    /* Bytes of the packed base that the device keeps. */
    (void)snprintf(command, sizeof command, "find %s -name '*.packed' | head -1", device.store);
    FILE *found = popen(command, "r"); /* NOLINT: a test's own folder */
    cr_assert_not_null(found);
    cr_assert_not_null(fgets(path, sizeof path, found));
    (void)pclose(found);
    path[strcspn(path, "\n")] = '\0';
    const int fd = open(path, O_WRONLY);
    cr_assert_geq(fd, 0, "%s", path);
    cr_assert_eq(pwrite(fd, "damaged!", 8, 5000), 8);
    (void)close(fd);
    const uint64_t n_bytes = bytes_down();
    cr_expect_gt(n_bytes, PACKED_BYTES * 9 / 10, "%llu", (unsigned long long)n_bytes);
    cr_expect_lt(n_bytes, MODEL_BYTES, "%llu", (unsigned long long)n_bytes);
    /* And the next one is a delta again. */
    cr_expect_lt(bytes_down(), PACKED_BYTES / 2 + OTHERS);
    end();
}

/* Spoiled on the server: the hash of the chunk tells, and the device asks again. */
Test(packed_base, a_chunk_that_is_not_its_own_is_not_used, .timeout = 600)
{
    site_open(&where, DOWN);
    site_listen(&where, NULL);
    open_device("chunk", DUNLIN_MODEL_KEEPING_NONE);
    choose_update(0.1F);
    (void)bytes_down();
    site_wait_round(&where, 2);
    spoil("000002.packed", 300000);
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    dunlin_status status = DUNLIN_OK;
    for (int i = 0; i < 1000 && status != DUNLIN_DIGEST; i++) {
        status = dunlin_client_run_round(device.client, &report);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_DIGEST, "%s", dunlin_status_name(status));
        cr_assert_neq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
        site_device_rest(&device);
    }
    cr_expect_eq(status, DUNLIN_DIGEST);
    end();
}

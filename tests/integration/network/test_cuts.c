/*
 * test_cuts.c - a model of 20 MB over a connection that is cut at random bytes: how much is sent
 * twice, and that both sides count the same bytes.
 */
#include "site.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MODEL_BYTES 20000000u
#define CHUNK_BYTES (256u * 1024u)
#define N_CHUNKS ((MODEL_BYTES + CHUNK_BYTES - 1) / CHUNK_BYTES)
#define N_CUTS 50
#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 1000, \"cohort\": 1, "            \
    "\"over_select\": 50, \"deadline_s\": 36000, "                                                 \
    "\"tensors\": [{\"name\": \"weights\", \"shape\": [5000000]}]}"

static site where;

/* A learner whose update has no two equal chunks, which would go up once. */
static dunlin_weights_reader base;

static dunlin_status load(void *self, const dunlin_task *task, const dunlin_weights_reader *given)
{
    (void)self;
    (void)task;
    base = *given;
    return DUNLIN_OK;
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

static dunlin_status read_fresh(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    (void)ctx;
    dunlin_status status = base.read_fn(base.ctx, index, first, n, out);
    for (int64_t i = 0; i < n; i++) {
        out[i] += (float)(((uint64_t)(first + i) * 2654435761u >> 8) & 0xFFFF);
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

static const dunlin_learner_ops SCATTER = {.struct_size = sizeof(dunlin_learner_ops),
                                           .load = load,
                                           .fit = fit,
                                           .evaluate = fit,
                                           .save = save,
                                           .unload = unload};

/* Rounds, with the waits between them skipped, until one ends well; totals over all of them. */
static dunlin_round_report run_through(site_device *device)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 400 && report.outcome != DUNLIN_OUTCOME_ACCEPTED; i++) {
        dunlin_status status = dunlin_client_run_round(device->client, &report);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_CLOSED, "%s", dunlin_status_name(status));
        site_device_rest(device);
        const struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL); /* the server folds the round before */
    }
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s: %s",
                 dunlin_outcome_name(report.outcome),
                 dunlin_client_last_error(device->client)->text);
    return report;
}

/* A round under a script; the bytes that the server counts and the client reports. */
static void run_under(const char *script, dunlin_round_report *out_report, site_counts *out_counts)
{
    static site_device device;
    site_listen(&where, script);
    site_device_make(&device, &where, "store");
    device.plug.ops = &SCATTER;
    site_device_open(&device);
    site_counts before = site_count(&where);
    *out_report = run_through(&device);
    site_listen(&where, NULL); /* the server's last counts are in once its connections are closed */
    site_counts after = site_count(&where);
    *out_counts = (site_counts){.bytes_up = after.bytes_up - before.bytes_up,
                                .bytes_down = after.bytes_down - before.bytes_down,
                                .n_faults = after.n_faults - before.n_faults};
    site_device_close(&device);
    fake_folder_remove(device.store);
}

Test(cuts, both_sides_count_the_same, .timeout = 3600)
{
    dunlin_round_report plain;
    dunlin_round_report cut;
    site_counts served;
    char script[128];
    site_open(&where, TASK);
    run_under(NULL, &plain, &served);
    /* The enrolment's bodies belong to the first round. */
    cr_expect_eq(plain.body_bytes_received, served.bytes_down);
    cr_expect_eq(plain.body_bytes_sent, served.bytes_up);

    /* What was received stays, to the byte: the numbers of two rounds differ by ids and counters.
     */
    (void)snprintf(script, sizeof script, "seed 5\nobject-get 2-%d drop-reply random\n",
                   N_CUTS + 1);
    run_under(script, &cut, &served);
    int64_t repeated = (int64_t)(cut.body_bytes_received - plain.body_bytes_received);
    (void)fprintf(stderr, "download: %d cuts repeat %lld bytes\n", N_CUTS, (long long)repeated);
    cr_expect_eq(served.n_faults, N_CUTS);
    cr_expect_lt(repeated, CHUNK_BYTES / 4, "all cuts together");
    /* What the server sent and a cut swallowed. */
    cr_expect_geq(served.bytes_down, cut.body_bytes_received);
    cr_expect_lt(served.bytes_down - cut.body_bytes_received, (uint64_t)N_CUTS * CHUNK_BYTES);

    /* What was on its way when a chunk was cut is sent again: less than the chunk. */
    (void)snprintf(script, sizeof script, "seed 6\nchunk-put 1-%d drop-request random\n", N_CUTS);
    run_under(script, &cut, &served);
    repeated = (int64_t)(served.bytes_up - plain.body_bytes_sent);
    int64_t resent = (int64_t)(cut.body_bytes_sent - plain.body_bytes_sent);
    (void)fprintf(stderr, "upload: %d cuts repeat %lld bytes as the server counts, %lld as sent\n",
                  N_CUTS, (long long)repeated, (long long)resent);
    cr_expect_eq(served.n_faults, N_CUTS);
    cr_expect_lt(repeated, CHUNK_BYTES / 4, "all cuts together");
    cr_expect_geq(cut.body_bytes_sent, served.bytes_up, "sent is never less than received");
    cr_expect_lt(resent, (int64_t)N_CUTS * CHUNK_BYTES);
    site_close(&where);
}

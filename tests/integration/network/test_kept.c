/*
 * test_kept.c - what stays on the device from round to round, over TLS: personal tensors and
 * SCAFFOLD's control variates, against computations in double that share nothing with the library;
 * kills, lateness, damage, withdrawal.
 */
#include "site.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_W 70000 /* two chunks */
#define N_HEAD 12
#define N_MEAN 3
#define N_VALUES (N_W + N_HEAD + N_MEAN)
#define N_STEPS 5
#define LR 0.05
#define TENSORS                                                                                    \
    "\"tensors\": [{\"name\": \"w\", \"shape\": [70000]}, "                                        \
    "{\"name\": \"head\", \"shape\": [3, 4], \"rule\": \"local\"}, "                               \
    "{\"name\": \"mean\", \"shape\": [3], \"rule\": \"statistic\"}]"
#define TASK(keys)                                                                                 \
    "{\"population\": \"phones\", \"task\": \"t\", \"rounds\": 50, " keys ", " TENSORS "}"

static site where;

/* Each device has the loss a / 2 * |w - target|^2, elements with targets of their own; its head
 * counts its rounds, its mean is its number. Plain steps, in float. */
typedef struct quadratic {
    float number;
    float y[N_VALUES];
    float correction[N_W];
    bool has_correction;
    float lr;
    int64_t n_loads;
    int n_steps;
    dunlin_weights_tensor tensors[3];
    float head_at_load;
} quadratic;

static double curvature(double number)
{
    return 0.5 + 0.25 * number;
}

static double target(double number, int64_t i)
{
    return number - 1.0 + 0.125 * (double)(i % 7);
}

static dunlin_status load(void *self, const dunlin_task *task, const dunlin_weights_reader *base)
{
    quadratic *q = self;
    float *out[] = {q->y, q->y + N_W, q->y + N_W + N_HEAD};
    cr_assert_eq(base->n_tensors, 3);
    for (int32_t i = 0; i < 3; i++) {
        q->tensors[i] = base->tensors[i];
        cr_assert_eq(base->read_fn(base->ctx, i, 0, base->tensors[i].n_elements, out[i]),
                     DUNLIN_OK);
    }
    q->has_correction = task->correction != NULL;
    if (q->has_correction) {
        float others[N_HEAD];
        cr_assert_eq(task->correction->read_fn(task->correction->ctx, 0, 0, N_W, q->correction),
                     DUNLIN_OK);
        cr_assert_eq(task->correction->read_fn(task->correction->ctx, 1, 0, N_HEAD, others),
                     DUNLIN_OK);
        cr_assert_float_eq(others[5], 0.0F, 0, "a personal tensor has no variate");
    }
    q->lr = task->lr;
    q->n_steps = 0;
    q->n_loads++;
    q->head_at_load = q->y[N_W];
    return DUNLIN_OK;
}

static dunlin_status fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    quadratic *q = self;
    (void)max_ms;
    for (int64_t i = 0; i < N_W; i++) {
        float gradient =
            (float)curvature((double)q->number) * (q->y[i] - (float)target((double)q->number, i));
        q->y[i] -= q->lr * (gradient + (q->has_correction ? q->correction[i] : 0.0F));
    }
    q->n_steps++;
    bool is_done = q->n_steps == N_STEPS;
    for (int i = 0; is_done && i < N_HEAD; i++) {
        q->y[N_W + i] += 1.0F;
    }
    for (int i = 0; is_done && i < N_MEAN; i++) {
        q->y[N_W + N_HEAD + i] = q->number;
    }
    out_report->is_done = is_done;
    out_report->n_examples = 10 + 30 * (int64_t)q->number;
    out_report->n_steps = q->n_steps;
    return DUNLIN_OK;
}

static dunlin_status evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    const quadratic *q = self;
    (void)max_ms;
    out_report->is_done = true;
    out_report->n_examples = 10;
    out_report->loss = (double)q->head_at_load;
    return DUNLIN_OK;
}

static dunlin_status read_fresh(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    static const int64_t FIRST[] = {0, N_W, N_W + N_HEAD};
    memcpy(out, ((const quadratic *)ctx)->y + FIRST[index] + first, (size_t)n * sizeof(float));
    return DUNLIN_OK;
}

static dunlin_status save(void *self, dunlin_weights_reader *out)
{
    quadratic *q = self;
    *out = (dunlin_weights_reader){
        .ctx = q, .tensors = q->tensors, .n_tensors = 3, .read_fn = read_fresh};
    return DUNLIN_OK;
}

static void unload(void *self)
{
    (void)self;
}

static const dunlin_learner_ops QUADRATIC = {.struct_size = sizeof(dunlin_learner_ops),
                                             .load = load,
                                             .fit = fit,
                                             .evaluate = evaluate,
                                             .save = save,
                                             .unload = unload};

typedef struct member {
    site_device device;
    quadratic q;
    char token[32];
} member;

static member members[3];

static void member_open(int number)
{
    static char names[3][16];
    member *m = &members[number];
    memset(m, 0, sizeof *m);
    (void)snprintf(names[number], sizeof names[number], "store-%d", number);
    site_device_make(&m->device, &where, names[number]);
    m->q.number = (float)number;
    m->device.plug = (dunlin_learner){.ops = &QUADRATIC, .self = &m->q};
    (void)snprintf(m->token, sizeof m->token, "index:%d", number);
    m->device.options.enrolment_token = m->token;
    site_device_open(&m->device);
}

static dunlin_outcome member_run(int number)
{
    member *m = &members[number];
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 50; i++) {
        dunlin_status status = dunlin_client_run_round(m->device.client, &report);
        cr_assert_eq(status, DUNLIN_OK, "%s", dunlin_client_last_error(m->device.client)->text);
        site_device_rest(&m->device);
        if (report.outcome != DUNLIN_OUTCOME_NOT_SELECTED) {
            break;
        }
    }
    return report.outcome;
}

/* Steps to the phase, and stands still there. */
static void member_step_to(int number, dunlin_phase phase)
{
    member *m = &members[number];
    bool is_ended = false;
    while (m->device.client->journal.phase < phase) {
        int64_t wait_ms = 0;
        cr_assert_eq(dunlin_client_step(m->device.client, 0, &wait_ms, &is_ended, NULL), DUNLIN_OK,
                     "%s", dunlin_client_last_error(m->device.client)->text);
        cr_assert_not(is_ended);
    }
}

/* Files of what is kept; both slots' while a round is on its way. */
static int count_kept(int number)
{
    int n = 0;
    DIR *store = opendir(members[number].device.store);
    cr_assert_not_null(store);
    for (const struct dirent *entry = readdir(store); entry != NULL; entry = readdir(store)) {
        if (strncmp(entry->d_name, "kept-", 5) == 0) {
            char path[512];
            (void)snprintf(path, sizeof path, "%s/%s", members[number].device.store, entry->d_name);
            n += fake_folder_count(path);
        }
    }
    (void)closedir(store);
    return n;
}

/* ---- SCAFFOLD, in double ---- */

static double x[N_W];
static double c[N_W];
static double own[3][N_W];

/* Algorithm 1 of Karimireddy et al. 2020 with option II, global rate 1, all three taking part. */
static void scaffold_round(const bool *takes_part, int n_taking)
{
    static double dx[N_W];
    static double dc[N_W];
    memset(dx, 0, sizeof dx);
    memset(dc, 0, sizeof dc);
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; takes_part[k] && i < N_W; i++) {
            double y = x[i];
            for (int step = 0; step < N_STEPS; step++) {
                y -= LR * (curvature(k) * (y - target(k, i)) + c[i] - own[k][i]);
            }
            double fresh = own[k][i] - c[i] + (x[i] - y) / (N_STEPS * LR);
            dx[i] += (y - x[i]) / n_taking;
            dc[i] += (fresh - own[k][i]) / 3;
            own[k][i] = fresh;
        }
    }
    for (int64_t i = 0; i < N_W; i++) {
        x[i] += dx[i];
        c[i] += dc[i];
    }
}

static void expect_scaffold(uint64_t round)
{
    static float model[N_VALUES];
    static float control[N_W];
    site_read_model(&where, round, "weights", N_VALUES, model);
    site_read_model(&where, round, "control", N_W, control);
    for (int64_t i = 0; i < N_W; i++) {
        cr_assert_float_eq((double)model[i], x[i], 2e-6, "round %d, value %lld: %.9g, not %.9g",
                           (int)round, (long long)i, (double)model[i], x[i]);
        cr_assert_float_eq((double)control[i], c[i], 2e-5, "round %d, variate %lld: %.9g, not %.9g",
                           (int)round, (long long)i, (double)control[i], c[i]);
    }
}

#define SCAFFOLD(cohort)                                                                           \
    TASK("\"cohort\": " cohort ", \"clients\": 3, \"algorithm\": \"scaffold\", "                   \
         "\"plan\": {\"lr\": 0.05}")

static void open_scaffold(const char *task)
{
    memset(x, 0, sizeof x);
    memset(c, 0, sizeof c);
    memset(own, 0, sizeof own);
    site_open(&where, task);
    site_listen(&where, NULL);
    for (int k = 0; k < 3; k++) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        member_open(k);
        if (k < 2) { /* the barrier */
            cr_assert_eq(dunlin_client_run_round(members[k].device.client, &report), DUNLIN_OK);
            site_device_rest(&members[k].device);
        }
    }
}

static void close_all(int n)
{
    for (int k = 0; k < n; k++) {
        site_device_close(&members[k].device);
    }
    site_close(&where);
}

Test(kept, scaffold_is_its_algorithm, .timeout = 3600)
{
    static const bool ALL[] = {true, true, true};
    open_scaffold(SCAFFOLD("3"));
    for (uint64_t round = 1; round <= 4; round++) {
        for (int k = 2; k >= 0; k--) {
            cr_assert_eq(member_run(k), DUNLIN_OUTCOME_ACCEPTED);
        }
        site_wait_round(&where, round + 1);
        scaffold_round(ALL, 3);
        expect_scaffold(round + 1);
    }
    cr_expect_gt(fabs(c[3]), 0.01, "the variates have come to something");
    close_all(3);
}

/* Killed when the update is up and the commit is not: the journal still names the old variate. If
 * the commit then counts, the new one holds; if the round has closed without it, the old one. */
Test(kept, a_variate_counts_with_its_commit, .timeout = 3600)
{
    static const bool ALL[] = {true, true, true};
    static const bool TWO[] = {true, true, false};
    open_scaffold(TASK("\"cohort\": 3, \"clients\": 3, \"deadline_s\": 20, "
                       "\"algorithm\": \"scaffold\", \"plan\": {\"lr\": 0.05}"));
    for (uint64_t round = 1; round <= 2; round++) {
        member_step_to(2, DUNLIN_PHASE_COMMIT);
        int32_t before = members[2].device.client->journal.kept;
        site_device_close(&members[2].device);
        cr_expect_eq(count_kept(2), round == 1 ? 2 : 4, "the new one waits beside the old one");
        site_device_open(&members[2].device);
        cr_expect_eq(members[2].device.client->journal.kept, before);
        cr_expect_neq(members[2].device.client->journal.kept_pending, before);
        for (int k = 0; k < 3; k++) {
            cr_assert_eq(member_run(k), DUNLIN_OUTCOME_ACCEPTED);
        }
        cr_expect_neq(members[2].device.client->journal.kept, before);
        cr_expect_eq(count_kept(2), 2);
        site_wait_round(&where, round + 1);
        scaffold_round(ALL, 3);
        expect_scaffold(round + 1);
    }
    member_step_to(2, DUNLIN_PHASE_COMMIT);
    int32_t before = members[2].device.client->journal.kept;
    site_device_close(&members[2].device);
    cr_assert_eq(member_run(0), DUNLIN_OUTCOME_ACCEPTED);
    cr_assert_eq(member_run(1), DUNLIN_OUTCOME_ACCEPTED);
    members[2].device.skipped_ms += 21000; /* its own clock says it is over */
    site_device_open(&members[2].device);
    cr_assert_eq(member_run(2), DUNLIN_OUTCOME_LATE);
    cr_expect_eq(members[2].device.client->journal.kept, before);
    cr_expect_eq(count_kept(2), 2);
    site_wait_round(&where, 4);
    scaffold_round(TWO, 2);
    expect_scaffold(4);
    for (int k = 0; k < 3; k++) {
        cr_assert_eq(member_run(k), DUNLIN_OUTCOME_ACCEPTED);
    }
    site_wait_round(&where, 5);
    scaffold_round(ALL, 3); /* from the old variate */
    expect_scaffold(5);
    close_all(3);
}

Test(kept, scaffolds_streams_count_for_the_budget, .timeout = 3600)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    open_scaffold(SCAFFOLD("3"));
    site_device_close(&members[2].device);
    members[2].device.options.max_upload_bytes = N_W * 6; /* enough for an update alone */
    site_device_open(&members[2].device);
    cr_assert_eq(dunlin_client_run_round(members[2].device.client, &report), DUNLIN_OK);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_DECLINED);
    close_all(3);
}

/* ---- personal tensors ---- */

#define PERSONAL                                                                                   \
    TASK("\"cohort\": 1, \"over_select\": 9, \"deadline_s\": 3600, \"evaluate_every\": 4")

static void open_personal(void)
{
    site_open(&where, PERSONAL);
    site_listen(&where, NULL);
    member_open(0);
    member_open(1);
}

static void close_personal(void)
{
    site_device_close(&members[0].device);
    site_device_close(&members[1].device);
    site_close(&where);
}

static void expect_head(float wanted, const char *when)
{
    cr_assert_eq(member_run(1), DUNLIN_OUTCOME_ACCEPTED, "%s", when);
    cr_expect_float_eq(members[1].q.head_at_load, wanted, 0, "%s: %g", when,
                       (double)members[1].q.head_at_load);
}

Test(kept, personal_tensors_stay_on_the_device, .timeout = 3600)
{
    static float model[N_VALUES];
    open_personal();
    for (uint64_t round = 1; round <= 3; round++) {
        expect_head((float)(round - 1), "a round after another");
        site_wait_round(&where, round + 1);
        site_read_model(&where, round + 1, "weights", N_VALUES, model);
        cr_expect_float_eq(model[N_W + 3], 0.0F, 0, "the server's stays as it was");
        cr_expect_float_eq(model[N_W + N_HEAD + 2], 1.0F, 0, "what follows it is in its place");
        cr_expect_float_eq(model[5], members[1].q.y[5], 1e-6);
    }
    cr_expect_eq(count_kept(1), 2);
    site_device_close(&members[1].device);
    site_device_open(&members[1].device);
    expect_head(3.0F, "an evaluation, after a restart");
    site_wait_round(&where, 5);
    expect_head(3.0F, "the round after it");
    cr_assert_eq(dunlin_client_forget(members[1].device.client), DUNLIN_OK);
    cr_expect_eq(count_kept(1), 0, "forgotten");
    site_device_close(&members[1].device);
    site_device_open(&members[1].device);
    site_wait_round(&where, 6);
    expect_head(0.0F, "a new device");
    close_personal();
}

/* A round that is given up leaves what was learnt before, whatever has been written; what is
 * damaged is not believed. */
Test(kept, what_does_not_count_or_is_damaged_is_not_taken, .timeout = 3600)
{
    open_personal();
    expect_head(0.0F, "the first");
    site_wait_round(&where, 2);
    member_step_to(1, DUNLIN_PHASE_COMMIT);
    cr_expect_eq(count_kept(1), 4);
    int64_t wait_ms = 0;
    bool is_ended = false;
    dunlin_client_stop(members[1].device.client);
    while (!is_ended) {
        cr_assert_eq(dunlin_client_step(members[1].device.client, 0, &wait_ms, &is_ended, NULL),
                     DUNLIN_OK);
    }
    cr_expect_eq(count_kept(1), 2);
    cr_assert_eq(member_run(0), DUNLIN_OUTCOME_ACCEPTED);
    site_wait_round(&where, 3);
    site_device_rest(&members[1].device);
    member_step_to(1, DUNLIN_PHASE_COMMIT);
    cr_expect_float_eq(members[1].q.head_at_load, 1.0F, 0, "after one that was given up");
    site_device_rest(&members[0].device);
    cr_assert_eq(member_run(0), DUNLIN_OUTCOME_ACCEPTED);
    site_wait_round(&where, 4);
    cr_assert_eq(member_run(1), DUNLIN_OUTCOME_LATE, "the server says so to the commit");
    expect_head(1.0F, "after one that came too late"); /* an evaluation */
    site_wait_round(&where, 5);
    site_device_close(&members[1].device);
    char command[256];
    (void)snprintf(command, sizeof command,
                   "for f in %s/kept-*/*.bin; do printf X | dd of=$f bs=1 seek=20 conv=notrunc "
                   "2>/dev/null; done",
                   members[1].device.store);
    cr_assert_eq(system(command), 0);
    site_device_open(&members[1].device);
    expect_head(0.0F, "what is kept has a wrong byte");
    close_personal();
}

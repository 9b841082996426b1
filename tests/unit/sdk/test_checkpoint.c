/*
 * test_checkpoint.c - checkpoints of training within a round: resumed after a kill at every slice,
 * when they are written and what they cost, and those that cannot be written or read.
 */
#include "client/fake_server.h"
#include "round/checkpoint.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static fake_world w;

/* As if the process were gone: destroy would keep the training once more. */
static void kill_client(void)
{
    w.client->options.checkpoint_ms = -1;
    fake_world_close(&w);
}

static void begin(int n_slices, int64_t slice_ms, int64_t checkpoint_ms)
{
    fake_world_make(&w);
    w.server.deadline_ms = 7LL * 24 * 3600 * 1000;
    w.plug = fake_learner_make_keeping(&w.learner);
    w.learner.clock = &w.server;
    w.learner.n_slices = n_slices;
    w.learner.slice_ms = slice_ms;
    w.options.checkpoint_ms = checkpoint_ms;
    fake_world_open(&w);
}

static void end(void)
{
    kill_client();
    cr_assert_str_eq(w.server.complaint, "");
    cr_assert_eq(w.learner.n_loads, w.learner.n_unloads);
    cr_assert_leq(fake_folder_count(w.folder), 3, "files are left behind");
    fake_folder_remove(w.folder);
}

/* Steps to the end of the round, or so many; true if it has ended. */
static bool step_on(int n_steps, dunlin_round_report *out_report)
{
    bool is_ended = false;
    for (int i = 0; i < n_steps && !is_ended; i++) {
        int64_t wait_ms = 0;
        dunlin_status status = dunlin_client_step(w.client, 0, &wait_ms, &is_ended, out_report);
        cr_assert_eq(status, DUNLIN_OK, "%s", dunlin_client_last_error(w.client)->text);
        w.server.now_ms += wait_ms;
    }
    return is_ended;
}

/* Steps until so many slices of the round were made. */
static void learn_slices(int n_slices)
{
    while (w.learner.n_fits < n_slices) {
        cr_assert_not(step_on(1, NULL));
    }
}

static void finish_round(void)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    cr_assert(step_on(100000, &report));
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s",
                 dunlin_outcome_name(report.outcome));
    cr_assert_eq(w.server.n_contributions, 1);
    cr_assert_eq(report.n_steps, w.learner.n_slices);
    for (int64_t i = 0; i < FAKE_VALUES; i += 97) {
        cr_assert_float_eq(w.server.update[i], fake_learner_update(&w.learner, &w.server, i), 1e-6);
    }
}

Test(checkpoint, a_kill_behind_each_slice_costs_no_slice)
{
    for (int n = 1; n < 8; n++) {
        begin(8, 10, 1);
        learn_slices(n);
        kill_client();
        fake_world_open(&w);
        finish_round();
        cr_expect_eq(w.learner.n_fits, 8, "%d slices, killed after %d", w.learner.n_fits, n);
        cr_expect_eq(w.learner.n_restores, 1);
        cr_expect_eq(w.learner.task.n_examples, 40, "the examples it was begun with");
        end();
    }
}

Test(checkpoint, kills_behind_every_slice)
{
    begin(8, 10, 1);
    for (int n = 1; n < 8; n++) {
        learn_slices(n);
        kill_client();
        fake_world_open(&w);
    }
    finish_round();
    cr_expect_eq(w.learner.n_fits, 8);
    cr_expect_eq(w.learner.n_restores, 7);
    end();
}

/* A handle that is given back in good order keeps what it has, whatever the pace. */
Test(checkpoint, destroy_keeps_the_training)
{
    begin(8, 10, 0);
    learn_slices(3);
    cr_expect_eq(w.learner.n_checkpoints, 0);
    fake_world_close(&w);
    cr_expect_eq(w.learner.n_checkpoints, 1);
    fake_world_open(&w);
    finish_round();
    cr_expect_eq(w.learner.n_fits, 8);
    end();
}

static const dunlin_learner_ops *plain_ops;

/* The third call is in progress when the pause comes: it ends between two steps. */
static dunlin_status fit_until_paused(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    dunlin_status status = plain_ops->fit(self, max_ms, out_report);
    if (status == DUNLIN_OK && w.learner.n_fits == 3) {
        dunlin_client_pause(w.client);
        return DUNLIN_STOPPED;
    }
    return status;
}

Test(checkpoint, a_pause_within_a_slice_keeps_the_training)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    begin(8, 10, 0);
    fake_world_close(&w);
    plain_ops = w.plug.ops;
    dunlin_learner_ops pausing = *plain_ops;
    pausing.fit = fit_until_paused;
    w.plug.ops = &pausing;
    fake_world_open(&w);
    cr_assert(step_on(100000, &report));
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_PAUSED);
    cr_expect_eq(w.learner.n_checkpoints, 1);
    kill_client();
    w.plug.ops = plain_ops;
    fake_world_open(&w);
    finish_round();
    cr_expect_eq(w.learner.n_fits, 8);
    cr_expect_eq(w.learner.n_restores, 1);
    end();
}

static bool has_power;

static bool tell_power(void *ctx, dunlin_conditions *out)
{
    (void)ctx;
    out->is_charging = has_power;
    out->is_unmetered = true;
    out->is_idle = true;
    out->n_examples = 40;
    return true;
}

/* Kept once when the conditions fail, so that a kill while the round waits for them costs nothing.
 */
Test(checkpoint, a_suspended_round_keeps_the_training)
{
    begin(8, 10, 0);
    fake_world_close(&w);
    w.options.require_charging = true;
    w.options.conditions_fn = tell_power;
    has_power = true;
    fake_world_open(&w);
    learn_slices(3);
    cr_expect_eq(w.learner.n_checkpoints, 0);
    has_power = false;
    cr_assert_not(step_on(3, NULL));
    cr_expect_eq(w.learner.n_checkpoints, 1);
    kill_client();
    has_power = true;
    fake_world_open(&w);
    finish_round();
    cr_expect_eq(w.learner.n_fits, 8);
    cr_expect_eq(w.learner.n_restores, 1);
    end();
}

Test(checkpoint, not_wanted_or_not_known)
{
    for (int k = 0; k < 2; k++) {
        begin(8, 100000, k == 0 ? -1 : 0);
        dunlin_learner_ops older = *w.plug.ops;
        if (k == 1) { /* the table of an application built before checkpoints were there */
            fake_world_close(&w);
            older.struct_size = offsetof(dunlin_learner_ops, checkpoint);
            w.plug.ops = &older;
            fake_world_open(&w);
        }
        learn_slices(5);
        fake_world_close(&w);
        fake_world_open(&w);
        finish_round();
        cr_expect_eq(w.learner.n_checkpoints, 0);
        cr_expect_eq(w.learner.n_fits, 5 + 8);
        end();
    }
}

Test(checkpoint, one_that_cannot_be_taken_up_begins_anew)
{
    for (int k = 0; k < 3; k++) {
        begin(8, 10, 1);
        learn_slices(5);
        char path[DUNLIN_FILE_PATH_BYTES + 32];
        (void)snprintf(path, sizeof path, "%s/learner.checkpoint.%d", w.client->round->folder,
                       (int)w.client->journal.checkpoint);
        kill_client();
        if (k == 0) {
            cr_assert_eq(unlink(path), 0);
        } else if (k == 1) {
            cr_assert_eq(truncate(path, 0), 0);
        } else {
            w.learner.restore_status = DUNLIN_DIGEST;
        }
        fake_world_open(&w);
        finish_round();
        cr_expect_eq(w.learner.n_restores, 0);
        cr_expect_eq(w.learner.n_fits, 5 + 8);
        end();
    }
}

Test(checkpoint, one_that_cannot_be_made_ends_no_round)
{
    begin(8, 10, 1);
    w.learner.checkpoint_status = DUNLIN_SPACE;
    learn_slices(5);
    cr_expect_eq(w.client->journal.checkpoint, 0);
    cr_expect_eq(fake_folder_count(w.client->round->folder), 2, "what was half made is gone");
    w.learner.checkpoint_status = DUNLIN_OK;
    learn_slices(6);
    cr_expect_eq(w.client->journal.checkpoint, 1);
    w.learner.checkpoint_status = DUNLIN_IO;
    learn_slices(7);
    cr_expect_eq(w.client->journal.checkpoint, 1, "the older one stays");
    kill_client();
    fake_world_open(&w);
    finish_round();
    cr_expect_eq(w.learner.n_fits, 7 + 2);
    end();
}

/* A file of an earlier round, back after a power loss, is nobody's. */
Test(checkpoint, that_of_another_round_is_not_taken)
{
    begin(8, 10, 1);
    learn_slices(5);
    char path[DUNLIN_FILE_PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/learner.checkpoint.1", w.client->round->folder);
    finish_round();
    w.server.round++;
    w.server.now_ms += 10LL * 24 * 3600 * 1000;
    w.learner.n_fits = 0;
    w.options.checkpoint_ms = -1;
    kill_client();
    fake_world_open(&w);
    learn_slices(1);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    (void)fputs("5\n", file);
    (void)fclose(file);
    kill_client();
    fake_world_open(&w);
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    cr_assert(step_on(1000, &report));
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.n_restores, 0);
    cr_expect_eq(w.learner.n_fits, 1 + 8);
    end();
}

/* Ten hours of training with checkpoints that take from nothing to ten minutes: at most a fiftieth
 * of the time; a tenth where that would leave more than a minute unkept; never more often than each
 * ten seconds, and as often as that allows. */
Test(checkpoint, the_pace_follows_from_the_cost)
{
    static const struct {
        int64_t cost_ms;
        int64_t apart_ms;
        int64_t share;
    } CASES[] = {{0, 10000, 50},      {1, 10000, 50},       {40, 10000, 50},   {300, 15000, 50},
                 {600, 30000, 50},    {3000, 50000, 10},    {4900, 50000, 10}, {6000, 60000, 10},
                 {60000, 600000, 10}, {600000, 6000000, 10}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const int64_t cost_ms = CASES[i].cost_ms;
        const int64_t total_ms = 36000000;
        dunlin__checkpoint_pace pace = {.expected_ms = dunlin__checkpoint_guess(4000000, -1)};
        int64_t n = 0;
        int64_t longest_ms = 0;
        while (pace.learnt_ms < total_ms) {
            pace.learnt_ms += 500;
            int64_t since_ms = pace.learnt_ms - pace.learnt_at_last_ms;
            if (dunlin__checkpoint_is_due(&pace, 0)) {
                dunlin__checkpoint_count(&pace, cost_ms);
                n++;
                /* What the first one took beyond its guess is paid off before the second. */
                longest_ms = n > 2 && since_ms > longest_ms ? since_ms : longest_ms;
                /* The first one's cost is a guess; from the second on the share holds. */
                cr_assert(n == 1 || pace.spent_ms * CASES[i].share <= pace.learnt_ms,
                          "%lld ms of checkpoints in %lld", (long long)pace.spent_ms,
                          (long long)pace.learnt_ms);
            }
        }
        cr_expect_leq(n, total_ms / CASES[i].apart_ms + 1, "cost %lld: %lld", (long long)cost_ms,
                      (long long)n);
        cr_expect_geq(n, total_ms / CASES[i].apart_ms - 3, "cost %lld: %lld", (long long)cost_ms,
                      (long long)n);
        cr_expect(cost_ms > 4900 || longest_ms + cost_ms < 60000,
                  "cost %lld: %lld ms of training could be lost", (long long)cost_ms,
                  (long long)longest_ms);
    }
    dunlin__checkpoint_pace fixed = {.learnt_ms = 500, .expected_ms = 1000000};
    cr_expect(dunlin__checkpoint_is_due(&fixed, 500));
    cr_expect_not(dunlin__checkpoint_is_due(&fixed, 501));
    cr_expect_not(dunlin__checkpoint_is_due(&fixed, -1));
}

/* What the first one costs is measured where a guess would put it off: a model like ResNet-18's is
 * then kept after ten seconds on storage of 500 MB/s, not after minutes. */
Test(checkpoint, the_first_ones_cost_is_measured)
{
    const uint64_t resnet_bytes = 44700000;
    dunlin__checkpoint_pace slow = {.learnt_ms = 49999,
                                    .expected_ms = dunlin__checkpoint_guess(resnet_bytes, -1)};
    dunlin__checkpoint_pace fast = {.learnt_ms = 14000, .spent_ms = 4};
    fast.expected_ms = dunlin__checkpoint_guess(resnet_bytes, 4);
    cr_expect_not(dunlin__checkpoint_is_due(&slow, 0));
    cr_expect(dunlin__checkpoint_is_due(&fast, 0), "%lld ms", (long long)fast.expected_ms);
    /* Through a client, on the storage there is: the folder is as it was, the time is noted. */
    begin(8, 10, 0);
    learn_slices(1);
    char folder[DUNLIN_FILE_PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s", w.client->round->folder);
    int n_files = fake_folder_count(folder);
    w.client->round->pace.expected_ms = -1;
    dunlin__checkpoint_begin(w.client, resnet_bytes);
    cr_expect_eq(fake_folder_count(folder), n_files);
    /* The fake clock stands still: the least there is, a millisecond for each piece. */
    cr_expect_eq(w.client->round->pace.expected_ms, dunlin__checkpoint_guess(resnet_bytes, 0));
    /* Where it cannot be written it is taken to be slow, and nothing else comes of it. */
    cr_assert_str_empty(w.client->error.text);
    (void)snprintf(w.client->round->folder, sizeof w.client->round->folder, "none/there");
    dunlin__checkpoint_begin(w.client, resnet_bytes);
    cr_expect_eq(w.client->round->pace.expected_ms, dunlin__checkpoint_guess(resnet_bytes, -1));
    cr_expect_str_empty(w.client->error.text);
    (void)snprintf(w.client->round->folder, sizeof w.client->round->folder, "%s", folder);
    finish_round();
    end();
}

/* The same through the client, whose clock the learner moves. */
Test(checkpoint, a_long_round_spends_a_fiftieth)
{
    begin(20000, 500, 0);
    w.learner.checkpoint_takes_ms = 700;
    finish_round();
    cr_expect_leq((double)w.learner.n_checkpoints * 700.0, 0.02 * 20000 * 500);
    cr_expect_geq(w.learner.n_checkpoints, 280);
    end();
}

Test(checkpoint, the_report_says_what_they_took)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    begin(8, 10, 1);
    w.learner.checkpoint_takes_ms = 700;
    cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK);
    cr_expect_eq(report.n_checkpoints, 7);
    cr_expect_eq(report.checkpoint_ms, 7 * 700);
    cr_expect_eq(report.learn_ms, 8 * 10);
    end();
}

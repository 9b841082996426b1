/*
 * test_packed.c - updates in fewer bytes: what a device sends of its update, by each kind, within
 * the bound, and what it keeps for the next one.
 */
#include "client/in_world.h"

#include <wire/compress.h>

#include <math.h>

#define PACKED_TEST(name) WORLD_TEST(packed, name)
#define N_AVERAGED 70012 /* "mean", of 3, is a statistic */

static void want(dunlin_v1_values_t values, uint32_t bits, dunlin_v1_selection_t selection,
                 uint32_t kept_ppm, bool is_rotated)
{
    dunlin__training_plan *plan = &w.server.plan;
    plan->update_encoding = DUNLIN_V1_ENCODING_PACKED;
    plan->has_packing = true;
    plan->packing = (dunlin__packing){.version = DUNLIN_PACK_VERSION,
                                      .values = values,
                                      .bits = bits,
                                      .selection = selection,
                                      .kept_ppm = kept_ppm,
                                      .is_rotated = is_rotated,
                                      .block_values = 1024,
                                      .round = w.server.round};
    if (is_rotated || selection == DUNLIN_V1_SELECTION_RANDOM) {
        plan->packing.seed.size = DUNLIN_PACK_SEED_BYTES;
        memset(plan->packing.seed.bytes, 7, DUNLIN_PACK_SEED_BYTES);
    }
    w.server.required_feature = DUNLIN_V1_FEATURE_ENCODING_PACKED;
}

static double made(int64_t i)
{
    return (double)fake_learner_update(&w.learner, &w.server, i);
}

/* Length of what came less what was made, by the length of that. */
static double relative_error(void)
{
    double error = 0.0;
    double sum = 0.0;
    for (int64_t i = 0; i < N_AVERAGED; i++) {
        const double difference = (double)w.server.update[i] - made(i);
        error += difference * difference;
        sum += made(i) * made(i);
    }
    return sqrt(error / sum);
}

static void expect_statistics(void)
{
    for (int64_t i = N_AVERAGED; i < FAKE_VALUES; i++) {
        cr_expect_float_eq((double)w.server.update[i], made(i), 0.0, "value %lld", (long long)i);
    }
}

PACKED_TEST(each_kind_comes_as_close_as_its_bits_let_it)
{
    const struct {
        dunlin_v1_values_t values;
        uint32_t bits;
        bool is_rotated;
        double error;     /* at most, of the length */
        uint64_t n_bytes; /* at most */
    } kinds[] = {{DUNLIN_V1_VALUES_F16, 0, false, 1e-3, 141000},
                 {DUNLIN_V1_VALUES_BF16, 0, false, 8e-3, 141000},
                 {DUNLIN_V1_VALUES_LEVELS, 8, false, 0.01, 71000},
                 {DUNLIN_V1_VALUES_LEVELS, 4, true, 0.3, 36500},
                 {DUNLIN_V1_VALUES_SIGN, 0, true, 0.8, 9800}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        want(kinds[k].values, kinds[k].bits, DUNLIN_V1_SELECTION_ALL, 0, kinds[k].is_rotated);
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect_leq(relative_error(), kinds[k].error, "kind %zu: %g", k, relative_error());
        cr_expect(k < 3 || relative_error() > 0.0); /* the step is a round number to the others */
        cr_expect_leq(w.server.update_bytes, kinds[k].n_bytes, "kind %zu: %llu bytes", k,
                      (unsigned long long)w.server.update_bytes);
        cr_expect_eq(w.server.commit.encoding, DUNLIN_V1_ENCODING_PACKED);
        expect_statistics();
        w.server.now_ms += 5000;
        w.server.round++;
    }
    expect_no_files();
}

PACKED_TEST(the_decoded_norm_is_within_the_bound)
{
    for (int i = 0; i < 6; i++) {
        want(i % 2 == 0 ? DUNLIN_V1_VALUES_SIGN : DUNLIN_V1_VALUES_LEVELS, i % 2 == 0 ? 0 : 3,
             DUNLIN_V1_SELECTION_ALL, 0, true);
        w.server.plan.clip_norm = ldexpf(2.0F, -2 * i);
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect(dunlin__norm_is_within(w.server.packed_square, w.server.plan.clip_norm),
                  "%.17g above %g", sqrt(w.server.packed_square), (double)w.server.plan.clip_norm);
        cr_expect_gt(sqrt(w.server.packed_square), 0.5 * (double)w.server.plan.clip_norm);
        w.server.now_ms += 5000;
        w.server.round++;
    }
}

/* The step is the same each round, so two of them are what is made by then: what came is that less
 * what is left. */
PACKED_TEST(what_is_left_out_goes_with_the_next_update)
{
    static double came[FAKE_VALUES];
    memset(came, 0, sizeof came);
    for (int round = 1; round <= 3; round++) {
        want(DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_LARGEST, 300000, false);
        w.server.plan.feedback_rounds = 5;
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        int64_t n_sent = 0;
        for (int64_t i = 0; i < N_AVERAGED; i++) {
            came[i] += (double)w.server.update[i];
            n_sent += w.server.update[i] != 0.0F ? 1 : 0;
        }
        cr_expect_eq(n_sent, N_AVERAGED * 3 / 10);
        w.server.now_ms += 5000;
        w.server.round++;
    }
    /* All of the largest have gone in each round or wait; nothing that came is more than was made,
     * and each entry is either sent up to date or waits whole. */
    int64_t n_even = 0;
    for (int64_t i = 0; i < N_AVERAGED; i++) {
        cr_assert_leq(came[i], 3.0 * made(i) * (1.0 + 1e-6), "value %lld", (long long)i);
        const double steps = came[i] / made(i);
        cr_assert_lt(fabs(steps - round(steps)), 1e-3, "value %lld: %g steps", (long long)i, steps);
        n_even += steps > 1.5 ? 1 : 0;
    }
    cr_expect_gt(n_even, 0);
    fake_world_close(&w);
    fake_world_open(&w); /* it is on the storage */
    want(DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_LARGEST, 1000000, false);
    w.server.plan.feedback_rounds = 5;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    for (int64_t i = 0; i < N_AVERAGED; i++) {
        came[i] += (double)w.server.update[i];
        cr_assert_float_eq(came[i], 4.0 * made(i), 1e-5 * made(i), "value %lld", (long long)i);
    }
}

static void contribute_and_wait(uint32_t feedback_rounds, uint64_t n_rounds)
{
    want(DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_LARGEST, 100000, false);
    w.server.plan.feedback_rounds = feedback_rounds;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    w.server.now_ms += 5000;
    w.server.round += n_rounds;
    want(DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_LARGEST, 1000000, false);
    w.server.plan.feedback_rounds = feedback_rounds;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

PACKED_TEST(what_is_left_is_dropped_when_it_is_old)
{
    contribute_and_wait(3, 4);
    cr_expect_lt(relative_error(), 1e-6); /* one step */
    w.server.now_ms += 5000;
    w.server.round++;
    contribute_and_wait(3, 3);
    cr_expect_gt(relative_error(), 0.5); /* most entries bring two */
}

PACKED_TEST(nothing_is_left_when_it_is_not_asked_for)
{
    contribute_and_wait(0, 1);
    cr_expect_lt(relative_error(), 1e-6);
    expect_no_files();
}

/* A choice that is enlarged for its mean, and rounding to few levels, would leave more than there
 * was, and more each round: the gain of a tensor sees to it that they do not. */
PACKED_TEST(what_is_left_is_never_more_than_there_was)
{
    static const struct {
        dunlin_v1_values_t values;
        uint32_t bits;
        dunlin_v1_selection_t selection;
    } kinds[] = {{DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_RANDOM},
                 {DUNLIN_V1_VALUES_LEVELS, 2, DUNLIN_V1_SELECTION_RANDOM},
                 {DUNLIN_V1_VALUES_LEVELS, 2, DUNLIN_V1_SELECTION_LARGEST},
                 {DUNLIN_V1_VALUES_SIGN, 0, DUNLIN_V1_SELECTION_LARGEST}};
    static double left[N_AVERAGED];
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        memset(left, 0, sizeof left);
        for (int round = 1; round <= 6; round++) {
            double there = 0.0;
            double remains = 0.0;
            want(kinds[k].values, kinds[k].bits, kinds[k].selection, 100000, false);
            w.server.plan.feedback_rounds = 5;
            (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
            for (int64_t i = 0; i < N_AVERAGED; i++) {
                const double whole = made(i) + left[i];
                left[i] = whole - (double)w.server.update[i];
                there += whole * whole;
                remains += left[i] * left[i];
            }
            cr_assert_lt(remains, there, "kind %zu, round %d: %g of %g", k, round, remains, there);
            w.server.now_ms += 5000;
            w.server.round++;
        }
        w.server.round += 10; /* what this kind has left is too old for the next */
    }
}

/* The norm of [first, last) of what was decoded. */
static double decoded_norm(int64_t first, int64_t last)
{
    double sum = 0.0;
    for (int64_t i = first; i < last; i++) {
        sum += (double)w.server.update[i] * (double)w.server.update[i];
    }
    return sqrt(sum);
}

/* Both gains at once: the bound holds for what was decoded, of the whole or of each tensor. */
PACKED_TEST(a_bound_holds_with_what_was_left_out)
{
    for (int round = 0; round < 8; round++) {
        const bool is_random = round % 2 == 0;
        want(is_random ? DUNLIN_V1_VALUES_F32 : DUNLIN_V1_VALUES_LEVELS, is_random ? 0 : 2,
             is_random ? DUNLIN_V1_SELECTION_RANDOM : DUNLIN_V1_SELECTION_LARGEST, 100000, false);
        w.server.plan.feedback_rounds = 5;
        w.server.plan.clip_norm = ldexpf(3.0F, -round);
        w.server.plan.clips_layers = round >= 4;
        w.server.assignment_feature = round >= 4 ? DUNLIN_V1_FEATURE_CLIP_ORDERS : 0;
        const double each = (double)w.server.plan.clip_norm / sqrt(2.0);
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect(dunlin__norm_is_within(w.server.packed_square, w.server.plan.clip_norm),
                  "round %d: %.17g above %g", round, sqrt(w.server.packed_square),
                  (double)w.server.plan.clip_norm);
        cr_expect_gt(w.server.packed_square, 0.0);
        cr_expect(round < 4 ||
                  (decoded_norm(0, 70000) <= each && decoded_norm(70000, N_AVERAGED) <= each));
        w.server.now_ms += 5000;
        w.server.round++;
    }
}

/* What a refused update left out was not sent, and neither was the rest. */
PACKED_TEST(an_update_that_is_refused_leaves_nothing)
{
    want(DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_LARGEST, 100000, false);
    w.server.plan.feedback_rounds = 5;
    w.server.outcome = DUNLIN_V1_COMMIT_OUTCOME_REFUSED;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_REFUSED);
    w.server.outcome = DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED;
    w.server.now_ms += 5000;
    w.server.round++;
    want(DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_LARGEST, 1000000, false);
    w.server.plan.feedback_rounds = 5;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_lt(relative_error(), 1e-6);
}

/* What is kept of a rounded choice of a clipped update is what was clipped less what was decoded:
 * neither what the bound took away nor what was sent. */
PACKED_TEST(what_is_left_is_clipped_less_decoded)
{
    static double left[N_AVERAGED];
    double norm = 0.0;
    for (int64_t i = 0; i < N_AVERAGED; i++) {
        norm += made(i) * made(i);
    }
    want(DUNLIN_V1_VALUES_LEVELS, 4, DUNLIN_V1_SELECTION_LARGEST, 300000, false);
    w.server.plan.feedback_rounds = 5;
    w.server.plan.clip_norm = (float)(sqrt(norm) / 4.0);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    int64_t n_rounded = 0;
    for (int64_t i = 0; i < N_AVERAGED; i++) {
        const double sent = (double)w.server.update[i];
        left[i] = made(i) / 4.0 - sent;
        n_rounded += sent > 0.0 && fabs(left[i]) > 1e-3 * made(i) ? 1 : 0;
    }
    cr_expect_gt(n_rounded, N_AVERAGED / 20);
    w.server.now_ms += 5000;
    w.server.round++;
    want(DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_LARGEST, 1000000, false);
    w.server.plan.feedback_rounds = 5;
    w.server.plan.clip_norm = 0.0F;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    for (int64_t i = 0; i < N_AVERAGED; i++) {
        cr_assert_float_eq((double)w.server.update[i], made(i) + left[i], 1e-5 * made(i),
                           "value %lld", (long long)i);
    }
}

/* One round, cut at an exchange: as often as needed until it is accepted. */
static void run_cut(int at)
{
    w.server.spoil = at % 2 == 0 ? FAKE_LOST_REPLY : FAKE_LOST_REQUEST;
    w.server.spoil_exchange = at;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 4 && report.outcome != DUNLIN_OUTCOME_ACCEPTED; i++) {
        report = (dunlin_round_report)DUNLIN_ROUND_REPORT_INIT;
        const dunlin_status status = dunlin_client_run_round(w.client, &report);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_CLOSED, "%s", dunlin_status_name(status));
        w.server.now_ms += 5000;
    }
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "cut at exchange %d", at);
    w.server.spoil = FAKE_FINE;
    w.server.now_ms += 5000;
    w.server.round++;
}

/* A cut at any exchange sends the same bytes again: the server compares manifests. */
PACKED_TEST(a_cut_at_any_exchange_sends_the_same_bytes)
{
    for (int at = 0; at < 14; at++) {
        want(DUNLIN_V1_VALUES_LEVELS, 4, DUNLIN_V1_SELECTION_ALL, 0, true);
        run_cut(at);
    }
}

/* The same with feedback: what came in all, and what is left, is what was made, once. */
PACKED_TEST(a_cut_loses_and_doubles_nothing_of_what_is_left)
{
    static double came[N_AVERAGED];
    const int n_rounds = 15;
    memset(came, 0, sizeof came);
    for (int at = 0; at < n_rounds; at++) {
        /* A rounded part, largest or at random, with each cut; at last all that is left. */
        if (at == n_rounds - 1) {
            want(DUNLIN_V1_VALUES_F32, 0, DUNLIN_V1_SELECTION_LARGEST, 1000000, false);
        } else if (at % 4 < 2) {
            want(DUNLIN_V1_VALUES_LEVELS, 4, DUNLIN_V1_SELECTION_LARGEST, 100000, false);
        } else {
            want(DUNLIN_V1_VALUES_F16, 0, DUNLIN_V1_SELECTION_RANDOM, 100000, false);
        }
        w.server.plan.feedback_rounds = 5;
        run_cut(at);
        for (int64_t i = 0; i < N_AVERAGED; i++) {
            came[i] += (double)w.server.update[i];
        }
    }
    for (int64_t i = 0; i < N_AVERAGED; i++) {
        cr_assert_float_eq(came[i], n_rounds * made(i), 1e-4 * made(i), "value %lld: %g of %g",
                           (long long)i, came[i], n_rounds * made(i));
    }
}

PACKED_TEST(an_app_that_sends_float32_alone_says_so)
{
    w.options.sends_plain = true;
    fake_world_close(&w);
    fake_world_open(&w);
    want(DUNLIN_V1_VALUES_F16, 0, DUNLIN_V1_SELECTION_ALL, 0, false);
    (void)run(DUNLIN_UNSUPPORTED, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "float32 alone"));
    cr_expect_eq(w.server.n_contributions, 0);
}

PACKED_TEST(a_packed_update_has_a_limit_too)
{
    w.options.max_upload_bytes = 30000;
    fake_world_close(&w);
    fake_world_open(&w);
    w.server.upload_bytes = 20000; /* the offer says less than it becomes */
    want(DUNLIN_V1_VALUES_LEVELS, 8, DUNLIN_V1_SELECTION_ALL, 0, false);
    (void)run(DUNLIN_LIMIT, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "the packed update has"));
    w.server.now_ms += 20000000;
    w.server.round++;
    want(DUNLIN_V1_VALUES_SIGN, 0, DUNLIN_V1_SELECTION_ALL, 0, true);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

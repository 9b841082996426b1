/*
 * test_clip.c - the bound of an update: over averaged tensors alone, in both forms, by tensors, and
 * what the commit says of it.
 */
#include "client/in_world.h"

#include <math.h>

#define CLIP_TEST(name) WORLD_TEST(clip, name)
#define N_WEIGHTS 70000
#define N_AVERAGED 70012 /* "mean", of 3, is a statistic */

/* The norm of [first, last) of what was sent, as differences from the base. */
static double sent_norm(int64_t first, int64_t last)
{
    const bool is_whole = w.server.plan.update_form == DUNLIN_V1_UPDATE_FORM_WEIGHTS;
    double sum = 0.0;
    for (int64_t i = first; i < last; i++) {
        const double from = is_whole ? (double)w.server.values[i] : 0.0;
        const double value = (double)w.server.update[i] - from;
        sum += value * value;
    }
    return sqrt(sum);
}

/* The same of what the learner made of it. */
static double made_norm(int64_t first, int64_t last)
{
    double sum = 0.0;
    for (int64_t i = first; i < last; i++) {
        const double value = (double)fake_learner_update(&w.learner, &w.server, i);
        sum += value * value;
    }
    return sqrt(sum);
}

/* Statistics come as they were made, whatever the bound. */
static void expect_statistics(void)
{
    for (int64_t i = N_AVERAGED; i < FAKE_VALUES; i++) {
        cr_expect_float_eq(w.server.update[i], fake_learner_update(&w.learner, &w.server, i), 1e-6F,
                           "value %lld", (long long)i);
    }
}

CLIP_TEST(averaged_tensors_alone_are_scaled_to_the_bound)
{
    const double factor = 2.0 / made_norm(0, N_AVERAGED);
    w.server.plan.clip_norm = 2.0F;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    const double norm = sent_norm(0, N_AVERAGED);
    cr_expect(norm <= 2.0 && norm > 2.0 - 1e-5, "%.17g", norm);
    for (int64_t i = 0; i < N_AVERAGED; i++) {
        const double wanted = factor * (double)fake_learner_update(&w.learner, &w.server, i);
        cr_assert_float_eq((double)w.server.update[i], wanted, 2e-6 * fabs(wanted), "value %lld",
                           (long long)i);
    }
    expect_statistics();
    cr_expect_eq(w.server.commit.within_clip, DUNLIN_V1_WITHIN_CLIP_UNSPECIFIED);
}

CLIP_TEST(what_is_within_the_bound_keeps_its_bits)
{
    w.server.plan.clip_norm = (float)(made_norm(0, N_AVERAGED) * 1.001);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    for (int64_t i = 0; i < FAKE_VALUES; i++) {
        const float wanted = fake_learner_update(&w.learner, &w.server, i);
        cr_assert_float_eq(w.server.update[i], wanted, 0.0F, "value %lld", (long long)i);
    }
}

CLIP_TEST(whole_weights_are_held_to_the_bound_of_their_difference)
{
    w.server.plan.update_form = DUNLIN_V1_UPDATE_FORM_WEIGHTS;
    for (int i = 0; i < 5; i++) {
        w.server.plan.clip_norm = ldexpf(1.0F, -4 * i);
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect(sent_norm(0, N_AVERAGED) <= (double)w.server.plan.clip_norm, "2^%d: %.17g",
                  -4 * i, sent_norm(0, N_AVERAGED));
        w.server.now_ms += 5000;
        w.server.round++;
    }
    cr_expect_gt(sent_norm(N_AVERAGED, FAKE_VALUES), (double)w.server.plan.clip_norm);
}

CLIP_TEST(tensors_are_bounded_one_by_one_if_the_plan_says_so)
{
    const double small = made_norm(N_WEIGHTS, N_AVERAGED); /* "bias" needs no scaling */
    w.server.plan.clip_norm = (float)(2.0 * small);
    const double each = (double)w.server.plan.clip_norm / sqrt(2.0);
    cr_assert_gt(made_norm(0, N_WEIGHTS), each); /* "weights" does */
    w.server.plan.clips_layers = true;
    w.server.required_feature = DUNLIN_V1_FEATURE_CLIP_ORDERS;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_float_eq(sent_norm(0, N_WEIGHTS), each, 1e-5);
    cr_expect_leq(sent_norm(0, N_WEIGHTS), each);
    cr_expect_float_eq(sent_norm(N_WEIGHTS, N_AVERAGED), small, 1e-6);
    expect_statistics();
}

/* The bit is of the norm before it is clipped, and a resumed round says the same. */
CLIP_TEST(the_commit_says_whether_it_was_within)
{
    const double norm = made_norm(0, N_AVERAGED);
    w.server.plan.reports_clip = true;
    w.server.required_feature = DUNLIN_V1_FEATURE_CLIP_ORDERS;
    w.server.plan.clip_norm = (float)(norm * 1.01);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.within_clip, DUNLIN_V1_WITHIN_CLIP_YES);
    w.server.now_ms += 5000;
    w.server.round++;
    w.server.plan.clip_norm = (float)(norm * 0.99);
    w.server.spoil_call = DUNLIN_CALL_COMMIT;
    w.server.spoil = FAKE_LOST_REQUEST;
    w.server.spoil_times = -1;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    int64_t wait_ms = 0;
    bool is_ended = false;
    for (int i = 0; i < 50 && w.server.n_calls[DUNLIN_CALL_COMMIT] < 2; i++) {
        const dunlin_status status = dunlin_client_step(w.client, 1, &wait_ms, &is_ended, &report);
        cr_assert_neq(status, DUNLIN_ARGUMENT);
    }
    fake_world_close(&w); /* killed while it commits */
    w.server.spoil = FAKE_FINE;
    fake_world_open(&w);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.within_clip, DUNLIN_V1_WITHIN_CLIP_NO);
}

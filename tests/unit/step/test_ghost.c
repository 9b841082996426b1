/*
 * test_ghost.c - ghost statistics: a step in slices is the average of exact steps on each slice;
 * one slice is the exact step; without batch norm nothing changes; and everything says which it is.
 */
#include "net/net.h"
#include "random.h"
#include "step/context/context.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 7
#define SLICE 3 /* 3, 3 and 1 */
/* Of how far the step moves the weights. */
#define MAX_ERROR 1e-4

/* One step on examples [first, first + n): weights and statistics. */
static float *step_on(const dunlin_model *model, const dunlin_trainer_options *options,
                      int64_t first, int64_t n, int64_t *out_n)
{
    int64_t indices[64];
    test_source source;
    test_source_init(&source, model, 64, DUNLIN_F32);
    for (int64_t i = 0; i < n; i++) {
        indices[i] = first + i;
    }
    dunlin_trainer *trainer = test_create(model, options);
    if (n > 0) {
        cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, n, NULL), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
    }
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

/* Dropout's mask goes by the position in the batch, which slices by themselves do not have. */
static void drop_nothing(dunlin_model *model)
{
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        if (model->net.nodes[i].kind == DUNLIN_OP_DROPOUT) {
            model->net.nodes[i].u.dropout.ratio = 0.0F;
        }
    }
}

/* A layer's bias that comes to `value` by itself or in sums. */
static bool is_bias_of(const dunlin_net *net, uint32_t value, size_t param)
{
    const uint32_t producer = net->values[value].producer;
    if (producer == DUNLIN_NET_NONE) {
        return false;
    }
    const dunlin_net_node *node = &net->nodes[producer];
    if (node->kind == DUNLIN_OP_ADD) {
        return is_bias_of(net, node->inputs[0], param) || is_bias_of(net, node->inputs[1], param);
    }
    return (node->kind == DUNLIN_OP_CONV || node->kind == DUNLIN_OP_CONV_TRANSPOSED) &&
           node->n_params == 2 && node->params[1] == param;
}

/* What a batch norm takes away again: its gradient is nothing but rounding. */
static bool is_taken_away(const dunlin_net *net, size_t param)
{
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_BATCH_NORM &&
            is_bias_of(net, net->nodes[i].inputs[0], param)) {
            return true;
        }
    }
    return false;
}

/*
 * Of plain gradient descent: weights are linear in the gradient, and running statistics in those of
 * the slice, so a step with ghosts is the average of exact steps, by their examples. Returns how
 * far it is from that, as a share of the step.
 */
static double distance_from_average(const dunlin_model *model, bool no_fuse, int64_t batch,
                                    int64_t slice)
{
    dunlin_trainer_options options = test_options(batch);
    options.momentum = 0.0F;
    options.no_fuse = no_fuse;
    int64_t n_weights = 0;
    float *before = step_on(model, &options, 0, 0, &n_weights);
    double *average = calloc((size_t)n_weights, sizeof *average);
    cr_assert_not_null(average);
    for (int64_t first = 0; first < batch; first += slice) {
        const int64_t n = batch - first < slice ? batch - first : slice;
        float *own = step_on(model, &options, first, n, &n_weights);
        for (int64_t k = 0; k < n_weights; k++) {
            average[k] += (double)n / (double)batch * (double)own[k];
        }
        free(own);
    }
    options.ghost_statistics = true;
    options.micro_batch = slice;
    float *ghost = step_on(model, &options, 0, batch, &n_weights);
    double error = 0.0;
    double moved = 0.0;
    int64_t k = 0;
    for (size_t i = 0; i < model->net.n_params; i++) {
        int64_t n = 0;
        cr_assert_eq(dunlin_shape_count(&model->net.params[i].shape, &n), DUNLIN_OK);
        for (const int64_t end = k + n; k < end; k++) {
            const double from = is_taken_away(&model->net, i) ? (double)ghost[k] : average[k];
            error += ((double)ghost[k] - from) * ((double)ghost[k] - from);
            moved +=
                ((double)ghost[k] - (double)before[k]) * ((double)ghost[k] - (double)before[k]);
        }
    }
    cr_assert_eq(k, n_weights);
    free(ghost);
    free(average);
    free(before);
    return sqrt(error / moved);
}

Test(ghost, a_step_is_the_average_of_its_slices)
{
    dunlin_model *model = test_small_model(true);
    for (int64_t slice = 1; slice <= BATCH; slice++) {
        for (int no_fuse = 0; no_fuse < 2; no_fuse++) {
            cr_expect_lt(distance_from_average(model, no_fuse != 0, BATCH, slice), MAX_ERROR,
                         "slices of %d, %s", (int)slice, no_fuse != 0 ? "unfused" : "fused");
        }
    }
    dunlin_model_destroy(model);
}

/* In slices of 5, 5 and 3. */
Test(ghost, so_it_is_of_random_nets, .timeout = 900)
{
    uint64_t rng = test_seed(20250901);
    const uint64_t seed = rng;
    for (int i = 0; i < test_cases(30); i++) {
        dunlin_model *model = test_random_model(&rng, true);
        drop_nothing(model);
        const double error = distance_from_average(model, i % 3 == 0, 13, 5);
        cr_expect_lt(error, 10.0 * MAX_ERROR, "seed %llu, net %d: %g", (unsigned long long)seed, i,
                     error);
        dunlin_model_destroy(model);
    }
}

static dunlin_trainer_report estimate(const dunlin_model *model,
                                      const dunlin_trainer_options *options)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin_trainer_estimate(model, options, &report, &error), DUNLIN_OK, "%s",
                 error.text);
    return report;
}

static void expect_same_steps(const dunlin_model *model, const dunlin_trainer_options *a,
                              const dunlin_trainer_options *b, const char *what)
{
    int64_t n = 0;
    float *one = test_train(model, a, 3, &n);
    float *other = test_train(model, b, 3, &n);
    cr_expect(test_same_bits(one, other, n), "%s", what);
    free(one);
    free(other);
}

Test(ghost, a_single_slice_is_the_exact_step, .timeout = 900)
{
    uint64_t rng = test_seed(20250902);
    for (int i = 0; i < 12; i++) {
        dunlin_model *model = test_random_model(&rng, true);
        dunlin_trainer_options exact = test_options(6);
        exact.no_fuse = i % 3 == 0;
        dunlin_trainer_options ghost = exact;
        ghost.ghost_statistics = true;
        ghost.micro_batch = i % 2 == 0 ? 6 : 100;
        expect_same_steps(model, &exact, &ghost, "one slice");
        cr_expect_not(estimate(model, &ghost).is_ghost);
        dunlin_model_destroy(model);
    }
}

/* No batch norm, or none that takes statistics: the same plan, and it says so. */
Test(ghost, without_batch_norm_nothing_changes)
{
    for (int has_frozen = 0; has_frozen < 2; has_frozen++) {
        dunlin_model *model = test_small_model(has_frozen != 0);
        dunlin_trainer_options plain = test_options(8);
        plain.freeze_batch_norm = has_frozen != 0;
        plain.micro_batch = 5;
        plain.budget_bytes = estimate(model, &plain).least_budget_bytes + 4096;
        dunlin_trainer_options ghost = plain;
        ghost.ghost_statistics = true;
        const dunlin_trainer_report a = estimate(model, &plain);
        const dunlin_trainer_report b = estimate(model, &ghost);
        cr_expect(b.n_ghost_norms == 0 && !b.is_ghost);
        cr_expect(b.n_slices > 1 && b.micro_batch < 5, "an upper limit, no more");
        cr_expect(a.planned_bytes == b.planned_bytes && a.micro_batch == b.micro_batch &&
                  a.n_slices == b.n_slices && a.n_ops == b.n_ops);
        expect_same_steps(model, &plain, &ghost, "no batch norm");
        dunlin_model_destroy(model);
    }
}

/* Slices need ghosts, and the message says so. */
Test(ghost, slices_of_batch_norm_need_them)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(BATCH);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error;
    options.policy = DUNLIN_POLICY_MICROBATCH;
    options.micro_batch = 2;
    cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "ghost statistics"), "%s", error.text);
    cr_expect_not_null(strstr(error.text, "body.bn1"), "%s", error.text);
    options.micro_batch = 0;
    options.budget_bytes = 1;
    cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_BUDGET);
    cr_expect_not_null(strstr(error.text, "ghost statistics"), "%s", error.text);
    const uint64_t exact_least = error.needed_bytes;
    options.ghost_statistics = true;
    cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_BUDGET);
    cr_expect_lt(error.needed_bytes, exact_least);
    options.budget_bytes = error.needed_bytes;
    report = estimate(model, &options);
    cr_expect(report.is_ghost && report.n_slices == BATCH && report.n_ghost_norms == 1);
    dunlin_model_destroy(model);
}

/* A slice that is set is that of every policy at every budget, as it is part of what is computed.
 */
Test(ghost, every_policy_takes_the_slice_that_is_set, .timeout = 900)
{
    dunlin_model *model = test_small_model(true);
    for (int no_fuse = 0; no_fuse < 2; no_fuse++) {
        dunlin_trainer_options first = test_options(BATCH);
        first.ghost_statistics = true;
        first.micro_batch = SLICE;
        first.no_fuse = no_fuse != 0;
        first.policy = DUNLIN_POLICY_POOL;
        dunlin_trainer_options options = first;
        for (int p = DUNLIN_POLICY_AUTO; p <= DUNLIN_POLICY_MELON; p++) {
            options.policy = (dunlin_policy)p;
            options.baselines = dunlin_baselines_published();
            if (p == DUNLIN_POLICY_NONE && no_fuse == 0) {
                continue; /* it never fuses */
            }
            for (int is_least = 0; is_least < 2; is_least++) {
                options.budget_bytes = 0;
                options.n_threads = 1 + is_least;
                dunlin_trainer_report report = estimate(model, &options);
                options.budget_bytes = is_least != 0 ? report.least_budget_bytes : 0;
                report = estimate(model, &options);
                cr_expect(report.is_ghost && report.micro_batch == SLICE && report.n_slices == 3,
                          "policy %d: %lld slices of %lld", p, (long long)report.n_slices,
                          (long long)report.micro_batch);
                cr_expect_leq(report.floor_bytes, report.least_budget_bytes);
                expect_same_steps(model, &first, &options, "a policy");
            }
        }
    }
    dunlin_model_destroy(model);
}

/* Any batch fits where slices do; a batch below the slice has what it takes itself. */
Test(ghost, any_batch_fits)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(BATCH);
    options.ghost_statistics = true;
    options.micro_batch = SLICE;
    options.budget_bytes = estimate(model, &options).least_budget_bytes + 1024; /* tables vary */
    options.max_ratio = (double)INFINITY;
    int64_t batch = 0;
    bool is_unbounded = false;
    dunlin_error error;
    cr_assert_eq(dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect(is_unbounded, "%lld", (long long)batch);
    options.ghost_statistics = false;
    options.micro_batch = 0;
    options.policy = DUNLIN_POLICY_POOL;
    cr_assert_eq(dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_not(is_unbounded);
    dunlin_model_destroy(model);
}

/* Statistics of slices do not last: both kinds of trainers take each other's state. */
Test(ghost, weights_go_from_one_to_the_other)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(BATCH);
    char *path = test_temp_path("ghost.ckpt");
    dunlin_trainer *exact = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_save_checkpoint(exact, path), DUNLIN_OK);
    options.ghost_statistics = true;
    options.micro_batch = SLICE;
    dunlin_trainer *ghost = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_load_checkpoint(ghost, path), DUNLIN_OK);
    int64_t n = 0;
    float *a = test_weights(exact, &n);
    float *b = test_weights(ghost, &n);
    cr_expect(test_same_bits(a, b, n));
    free(a);
    free(b);
    free(path);
    dunlin_trainer_destroy(exact);
    dunlin_trainer_destroy(ghost);
    dunlin_model_destroy(model);
}

/* --- batches of one --- */

typedef struct warnings {
    int n;
    char text[512];
} warnings;

static void note_warning(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    warnings *seen = ctx;
    cr_expect_str_eq(subsystem, "trainer");
    if (level == DUNLIN_LOG_WARNING) {
        seen->n++;
        (void)snprintf(seen->text, sizeof seen->text, "%s", text);
    }
}

Test(ghost, a_batch_of_one_is_warned_of_once)
{
    for (int way = 0; way < 4; way++) {
        dunlin_model *model = test_small_model(way != 3);
        warnings seen = {.n = 0};
        dunlin_trainer_options options = test_options(way == 1 ? 1 : 8);
        options.freeze_batch_norm = way == 2;
        options.log =
            (dunlin_log){.ctx = &seen, .write_fn = note_warning, .level = DUNLIN_LOG_WARNING};
        dunlin_trainer *trainer = test_create(model, &options);
        test_source source;
        test_source_init(&source, model, 9, DUNLIN_U8); /* 8 and 1; or 9 of 1 */
        const dunlin_fit_options fit = {.struct_size = sizeof fit, .epochs = 2};
        cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK);
        cr_expect_eq(seen.n, way < 2 ? 1 : 0, "way %d: %d warnings", way, seen.n);
        cr_expect(way >= 2 || strstr(seen.text, "body.") != NULL, "%s", seen.text);
        dunlin_trainer_destroy(trainer);
        dunlin_model_destroy(model);
    }
}

/* Whole steps and a rest, in one call and in several, and steps given by their examples. */
Test(ghost, moved_bytes_are_those_of_the_steps_done)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, 19, DUNLIN_U8);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    dunlin_fit_cursor cursor = {0};
    uint64_t whole = 0;
    uint64_t rest = 0;
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    cr_expect_eq(report.moved_bytes, 0);
    fit.epochs = 2;
    fit.max_steps = 1;
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, &cursor, NULL), DUNLIN_OK);
    }
    cr_assert(cursor.is_done);
    cr_assert_eq(dunlin_trainer_operand_bytes(trainer, 8, &whole), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_operand_bytes(trainer, 3, &rest), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    cr_expect_eq(report.moved_bytes, 4 * whole + 2 * rest);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* More slices of the same batch go through the weights more often, and never through less. */
Test(ghost, operand_bytes_follow_the_plan)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(8);
    uint64_t whole = 0;
    uint64_t half = 0;
    uint64_t sliced = 0;
    options.policy = DUNLIN_POLICY_NONE;
    dunlin_trainer *trainer = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_operand_bytes(trainer, 8, &whole), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_operand_bytes(trainer, 4, &half), DUNLIN_OK);
    cr_expect_gt(whole, half);
    cr_expect_lt(whole, 2 * half);
    cr_expect_eq(dunlin_trainer_operand_bytes(trainer, 0, &half), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_operand_bytes(trainer, 9, &half), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_operand_bytes(trainer, 8, NULL), DUNLIN_ARGUMENT);
    dunlin_trainer_destroy(trainer);
    options.policy = DUNLIN_POLICY_MICROBATCH;
    options.micro_batch = 2;
    options.no_fuse = true; /* as NONE is */
    trainer = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_operand_bytes(trainer, 8, &sliced), DUNLIN_OK);
    cr_expect_gt(sliced, whole);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

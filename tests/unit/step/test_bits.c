/*
 * test_bits.c - weights do not depend on how a step is cut, placed or shared out among threads.
 */
#include "random.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>

#define N_STEPS 3
/* Of the weights' norm, after N_STEPS steps. Most nets stay below 1e-7; a batch norm over few and
 * nearly equal values makes more of each rounding: as much as of one in each weight, many times, as
 * a layer has many. */
#define MAX_FUSED_ERROR 1e-4
#define MAX_FUSED_NUDGES 64

/* What a variant's weights must equal, and how it was made. */
typedef struct witness {
    const dunlin_model *model;
    const float *weights;
    int64_t n;
    uint64_t seed;
    int net_index;
} witness;

static void expect_same(const witness *w, const dunlin_trainer_options *options, const char *what,
                        int64_t number)
{
    int64_t n = 0;
    float *weights = test_train(w->model, options, N_STEPS, &n);
    cr_assert_eq(n, w->n);
    cr_expect(test_same_bits(weights, w->weights, n), "seed %llu, net %d: %s %lld changes bits",
              (unsigned long long)w->seed, w->net_index, what, (long long)number);
    free(weights);
}

static void check_threads_and_policies(const witness *w, const dunlin_trainer_options *base)
{
    for (int32_t n_threads = 2; n_threads <= 4; n_threads *= 2) {
        dunlin_trainer_options options = *base;
        options.n_threads = n_threads;
        expect_same(w, &options, "threads", n_threads);
    }
    dunlin_trainer_options options = *base;
    if (base->no_fuse) {
        options.policy = DUNLIN_POLICY_NONE; /* never fuses */
        options.no_fuse = w->net_index % 2 == 0;
        expect_same(w, &options, "policy none", 0);
        options.no_fuse = true;
    }
    options.policy = DUNLIN_POLICY_POOL;
    expect_same(w, &options, "policy pool", 0);
}

static void check_slices(const witness *w, const dunlin_trainer_options *base)
{
    static const int64_t slices[] = {1, 2, 3, 5};
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
        dunlin_trainer_options options = *base;
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = slices[i];
        options.n_threads = 1 + (int32_t)(i % 2);
        expect_same(w, &options, "slices of", slices[i]);
    }
}

/* Budgets from the least one that works to more than enough. */
static void check_budgets(const witness *w, const dunlin_trainer_options *base)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(w->model, base, &report, NULL), DUNLIN_OK);
    const uint64_t least = report.least_budget_bytes;
    const uint64_t most = report.planned_bytes > least ? report.planned_bytes : least;
    for (uint64_t i = 0; i < 4; i++) {
        dunlin_trainer_options options = *base;
        options.budget_bytes = least + (most - least) * i / 3;
        expect_same(w, &options, "a budget of", (int64_t)options.budget_bytes);
    }
}

#define NUDGE_OF_ZERO 1e-8F

/*
 * Each weight a rounding up or down, by turns; `first` 1 begins with down. A zero goes as far as a
 * normalised value of size 1 is rounded: the channel of a constant has a variance of 0, so with a
 * shift of 0 it lies on the kink of its ReLU, and which side a fused multiply-add leaves it on is
 * rounding alone (SSE2 has none and leaves it there).
 */
static void nudge(dunlin_trainer *trainer, int64_t first)
{
    const int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE);
    float *weights = malloc((size_t)n * sizeof *weights);
    cr_assert_not_null(weights);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                 DUNLIN_OK);
    for (int64_t i = 0; i < n; i++) {
        const float sign = (i + first) % 2 == 0 ? 1.0F : -1.0F;
        weights[i] = weights[i] == 0.0F ? sign * NUDGE_OF_ZERO : nextafterf(weights[i], 8 * sign);
    }
    cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                 DUNLIN_OK);
    free(weights);
}

/* As test_train(), from weights that are each a rounding away. */
static float *train_nudged(const dunlin_model *model, const dunlin_trainer_options *options,
                           int64_t first, int64_t *out_n)
{
    test_source source;
    const int64_t batch = options->batch;
    test_source_init(&source, model, batch * N_STEPS, DUNLIN_U8);
    dunlin_trainer *trainer = test_create(model, options);
    nudge(trainer, first);
    for (int64_t step = 0; step < N_STEPS; step++) {
        int64_t indices[64];
        const int64_t n = step + 1 == N_STEPS && batch > 1 ? batch - 1 : batch;
        for (int64_t i = 0; i < n; i++) {
            indices[i] = step * batch + i;
        }
        cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, n, NULL), DUNLIN_OK);
    }
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double error = 0.0;
    double norm = 0.0;
    for (int64_t k = 0; k < n; k++) {
        const double difference = (double)a[k] - (double)b[k];
        error += difference * difference;
        norm += (double)a[k] * (double)a[k];
    }
    return sqrt(error / norm);
}

/* Fusing changes the rounding, and nothing else. */
static void check_close(const witness *w, const dunlin_trainer_options *options)
{
    int64_t n = 0;
    dunlin_trainer_options unfused = *options;
    unfused.no_fuse = true;
    float *others = test_train(w->model, &unfused, N_STEPS, &n);
    const double error = distance(others, w->weights, n);
    if (error > MAX_FUSED_ERROR) {
        double of_rounding = 0.0;
        for (int64_t first = 0; first < 2; first++) {
            float *nudged = train_nudged(w->model, &unfused, first, &n);
            of_rounding = fmax(of_rounding, distance(others, nudged, n));
            free(nudged);
        }
        cr_expect_leq(error, MAX_FUSED_NUDGES * of_rounding,
                      "seed %llu, net %d: fused weights are %g of their norm away from unfused "
                      "ones, and those of weights a rounding away %g",
                      (unsigned long long)w->seed, w->net_index, error, of_rounding);
    }
    free(others);
}

static void check_net(witness *w, const dunlin_trainer_options *options, bool has_batch_norm)
{
    float *weights = test_train(w->model, options, N_STEPS, &w->n);
    for (int64_t k = 0; k < w->n; k++) {
        cr_assert(isfinite(weights[k]), "seed %llu, net %d", (unsigned long long)w->seed,
                  w->net_index);
    }
    w->weights = weights;
    check_threads_and_policies(w, options);
    check_budgets(w, options);
    if (!has_batch_norm) {
        check_slices(w, options);
    }
    if (!options->no_fuse) {
        check_close(w, options);
    }
    free(weights);
}

static void check_random_nets(int n_nets, bool has_batch_norm, uint64_t seed)
{
    uint64_t rng = test_seed(seed);
    const uint64_t first_seed = rng;
    for (int i = 0; i < n_nets; i++) {
        dunlin_model *model = test_random_model(&rng, has_batch_norm);
        dunlin_trainer_options options = test_options(3 + (int64_t)test_random_below(&rng, 5));
        options.is_nesterov = test_random_below(&rng, 4) == 0;
        witness w = {.model = model, .seed = first_seed, .net_index = i};
        check_net(&w, &options, has_batch_norm);
        if (i % 3 == 0) {
            options.no_fuse = true;
            check_net(&w, &options, has_batch_norm);
        } else if (i % 3 == 1 && has_batch_norm) {
            options.freeze_batch_norm = true; /* nothing waits for the batch then */
            check_net(&w, &options, false);
        }
        dunlin_model_destroy(model);
    }
}

Test(bits, random_nets_without_batch_norm, .timeout = 900)
{
    check_random_nets(test_cases(30), false, 20240601);
}

Test(bits, random_nets_with_batch_norm, .timeout = 900)
{
    check_random_nets(test_cases(15), true, 20240602);
}

Test(bits, lenet5_in_slices_and_threads)
{
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    const dunlin_trainer_options options = test_options(8);
    witness w = {.model = model};
    float *weights = test_train(model, &options, N_STEPS, &w.n);
    w.weights = weights;
    check_threads_and_policies(&w, &options);
    check_slices(&w, &options);
    check_budgets(&w, &options);
    free(weights);
    dunlin_model_destroy(model);
}

Test(bits, another_seed_gives_other_weights)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(4);
    int64_t n = 0;
    float *one = test_train(model, &options, 1, &n);
    options.seed++;
    float *other = test_train(model, &options, 1, &n);
    cr_expect_not(test_same_bits(one, other, n));
    free(one);
    free(other);
    dunlin_model_destroy(model);
}

Test(bits, evaluation_does_not_depend_on_the_budget)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(16);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    float logits[2][40 * 4];
    dunlin_metrics metrics[2];
    for (int i = 0; i < 2; i++) {
        test_source source;
        test_source_init(&source, model, 40, DUNLIN_F32);
        options.budget_bytes = i == 0 ? 0 : report.least_budget_bytes;
        dunlin_trainer *trainer = test_create(model, &options);
        cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, 40, logits[i]), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 40, &metrics[i]),
                     DUNLIN_OK);
        dunlin_trainer_destroy(trainer);
    }
    cr_expect(test_same_bits(logits[0], logits[1], 40 * 4));
    cr_expect(metrics[0].loss == metrics[1].loss && metrics[0].accuracy == metrics[1].accuracy);
    cr_expect_eq(metrics[0].n_examples, 40);
    dunlin_model_destroy(model);
}

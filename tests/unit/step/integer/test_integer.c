/*
 * test_integer.c - a step in integers: against a model in plain C that knows nothing of it, and
 * with the same bits however it is cut, placed, shared out among threads, and on every instruction
 * set.
 */
#include "integer_support.h"
#include "niti_model.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

/* A batch as the trainer has it: the source's floats, scaled. */
static void read_batch(test_source *source, int64_t first, int64_t n, float *x, int32_t *labels)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t index = first + i;
        float *at = x + i * source->n_elements;
        cr_assert_eq(source->source.read_fn(source->source.ctx, &index, 1, at, labels + i),
                     DUNLIN_OK);
        for (int64_t k = 0; k < source->n_elements; k++) {
            at[k] = at[k] * source->source.scale;
        }
    }
}

/* The model's growth, as an option. */
static int32_t growth_of(const niti_net *net)
{
    return net->growth == 0 ? DUNLIN_WEIGHT_GROWTH_NONE : (int32_t)net->growth;
}

/* Steps of the trainer and of the model, with the weights compared after each. How often a range
 * was doubled. */
static int64_t check_steps(const dunlin_model *model, niti_net *net, int64_t batch, int n_steps,
                           const char *grad_bits)
{
    dunlin_trainer_options options = integer_options(batch);
    test_source source;
    float *x = malloc((size_t)(batch * net->n_in) * sizeof *x);
    int32_t labels[64];
    int64_t indices[64];
    int64_t n_weights = 0;
    cr_assert_not_null(x);
    cr_assert_leq(batch, 64);
    options.precision = net->has_16_bits ? "niti16" : options.precision;
    options.grad_bits = grad_bits;
    options.grad_bits_steps = 2;
    options.weight_growth = growth_of(net);
    dunlin_trainer *trainer = test_create(model, &options);
    test_source_init(&source, model, batch * n_steps, DUNLIN_F32);
    float *weights = test_weights(trainer, &n_weights);
    float *expected = malloc((size_t)n_weights * sizeof *expected);
    cr_assert_not_null(expected);
    niti_import(net, weights);
    for (int step = 0; step < n_steps; step++) {
        const int64_t n = step == 1 && batch > 1 ? batch - 1 : batch; /* one is shorter */
        const char bits =
            grad_bits[step / 2 * 2 < (int)strlen(grad_bits) ? step / 2 * 2
                                                            : (int)strlen(grad_bits) - 1];
        read_batch(&source, step * batch, n, x, labels);
        for (int64_t i = 0; i < n; i++) {
            indices[i] = step * batch + i;
        }
        niti_step(net, x, labels, n, bits - '0');
        cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, n, NULL), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
        free(weights);
        weights = test_weights(trainer, &n_weights);
        niti_export(net, expected);
        cr_assert(test_same_bits(weights, expected, n_weights), "step %d", step);
    }
    free(weights);
    free(expected);
    free(x);
    dunlin_trainer_destroy(trainer);
    const int64_t n_grown = niti_n_grown(net);
    niti_free(net);
    return n_grown;
}

static void begin_small(niti_net *net, bool has_16_bits)
{
    niti_begin(net, 2, 9, 9);
    net->has_16_bits = has_16_bits;
    niti_conv(net, 5, 3, 1);
    niti_relu(net);
    niti_pool(net);
    niti_conv(net, 6, 3, 0);
    niti_relu(net);
    niti_dense(net, 4);
}

Test(integer, a_whole_step_is_that_of_the_model)
{
    dunlin_model *model = test_small_model(false);
    niti_net net;
    begin_small(&net, false);
    (void)check_steps(model, &net, 6, 8, "5,3,1,0"); /* 0: by one at most, and not all of these */
    dunlin_model_destroy(model);
}

/* Of both kinds of weights; so long that updates of less than one unit come, too. */
Test(integer, weights_that_grow_are_those_of_the_model)
{
    static const int64_t growths[] = {16, 64, 65536};
    dunlin_model *model = test_small_model(false);
    int64_t n_before = 0;
    for (size_t i = 0; i < 2 * sizeof growths / sizeof growths[0]; i++) {
        niti_net net;
        begin_small(&net, i % 2 == 1);
        net.growth = growths[i / 2];
        const int64_t n_grown = check_steps(model, &net, 6, 30, "7,5,2");
        cr_expect_gt(n_grown, i % 2 == 0 ? 0 : -1, "%lld: nothing grows",
                     (long long)growths[i / 2]);
        cr_expect_geq(n_grown, i % 2 == 0 ? n_before : 0, "fewer grow sooner");
        n_before = i % 2 == 0 ? n_grown : n_before;
    }
    dunlin_model_destroy(model);
}

/* Updates of one bit and less of what is multiplied, too. */
Test(integer, a_step_of_weights_in_16_bits_is_that_of_the_model)
{
    static const char *const bits[] = {"5,4,3", "1", "0", "7"};
    dunlin_model *model = test_small_model(false);
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        niti_net net;
        begin_small(&net, true);
        (void)check_steps(model, &net, 6, 8, bits[i]);
    }
    dunlin_model_destroy(model);
}

/* The update reads sums of 64 bits. */
static void check_wide(const dunlin_model *model, bool has_16_bits)
{
    niti_net net;
    niti_begin(&net, 1, 64, 64);
    net.has_16_bits = has_16_bits;
    niti_conv(&net, 2, 3, 1);
    niti_relu(&net);
    niti_pool(&net);
    niti_dense(&net, 3);
    (void)check_steps(model, &net, 40, 2, "4");
}

Test(integer, more_examples_than_a_calibration_takes)
{
    dunlin_model *model = test_dense_model(20, 5);
    niti_net net;
    niti_begin(&net, 20, 1, 1);
    niti_dense(&net, 16);
    niti_relu(&net);
    niti_dense(&net, 5);
    (void)check_steps(model, &net, 48, 6, "5");
    dunlin_model_destroy(model);
}

/* 40 images of 64 x 64 pixels: 163,840 products in an element of the first gradient, 31 bits hold
 * 133,144 of the largest ones. */
Test(integer, gradients_that_31_bits_do_not_hold)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {1, 64, 64}};
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value end = dunlin_builder_input(builder, "x", &shape);
    end = dunlin_builder_conv(builder, "conv", end, 2, 3, &padded);
    end = dunlin_builder_max_pool(builder, dunlin_builder_relu(builder, end), 2, 2, 0);
    end = dunlin_builder_dense(builder, "fc", dunlin_builder_flatten(builder, end), 3);
    dunlin_model *model = integer_finish(builder, end);
    check_wide(model, false);
    check_wide(model, true);
    dunlin_model_destroy(model);
}

/* --- bits --- */

typedef struct witness {
    const dunlin_model *model;
    const float *weights;
    int64_t n;
} witness;

static void expect_same(const witness *w, const dunlin_trainer_options *options, const char *what,
                        int64_t number)
{
    int64_t n = 0;
    float *weights = test_train(w->model, options, 4, &n);
    cr_assert_eq(n, w->n);
    cr_expect(test_same_bits(weights, w->weights, n), "%s %lld changes bits", what,
              (long long)number);
    free(weights);
}

static void check_cuts(const witness *w, const dunlin_trainer_options *base)
{
    for (int64_t slice = 1; slice <= 3; slice++) {
        dunlin_trainer_options options = *base;
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = slice;
        options.n_threads = 1 + (int32_t)slice % 2;
        expect_same(w, &options, "slices of", slice);
    }
    dunlin_trainer_options options = *base;
    options.policy = DUNLIN_POLICY_NONE;
    options.n_threads = 3;
    expect_same(w, &options, "no policy, threads", 3);
    options = *base;
    options.least_budget_bytes = 1;
    expect_same(w, &options, "updates at the end", 1);
}

static void check_budgets(const witness *w, const dunlin_trainer_options *base)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin_trainer_estimate(w->model, base, &report, &error), DUNLIN_OK, "%s",
                 error.text);
    const uint64_t least = report.least_budget_bytes;
    for (uint64_t i = 0; i < 4; i++) {
        dunlin_trainer_options options = *base;
        options.budget_bytes = least + (report.planned_bytes - least) * i / 3;
        expect_same(w, &options, "a budget of", (int64_t)options.budget_bytes);
    }
}

static void check_sets(const witness *w, const dunlin_trainer_options *base)
{
    static const char *const sets[] = {"sse2",         "avx2",        "avx2-vnni", "avx2+vnni",
                                       "avx512",       "avx512-vnni", "neon",      "neon-dotprod",
                                       "neon+dotprod", "generic"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        dunlin_trainer_options options = *base;
        dunlin_trainer *trainer = NULL;
        options.isa = sets[i];
        if (dunlin_trainer_create(w->model, &options, &trainer, NULL) == DUNLIN_OK) {
            dunlin_trainer_destroy(trainer);
            expect_same(w, &options, sets[i], 0);
        }
    }
}

static void check_bits(dunlin_model *model, const char *precision, int32_t growth)
{
    dunlin_trainer_options options = integer_options(7);
    options.precision = precision;
    options.weight_growth = growth;
    options.grad_bits = growth != 0 ? "7" : NULL;
    witness w = {.model = model};
    float *weights = test_train(model, &options, 4, &w.n);
    w.weights = weights;
    check_cuts(&w, &options);
    check_budgets(&w, &options);
    check_sets(&w, &options);
    free(weights);
    dunlin_model_destroy(model);
}

Test(integer, bits_of_a_chain)
{
    check_bits(test_small_model(false), "niti", 0);
}

Test(integer, bits_of_every_operator)
{
    check_bits(integer_branched_model(), "niti", 0);
}

/* Without a policy nothing is folded: masks are ops of their own. */
Test(integer, bits_of_folded_activations)
{
    check_bits(integer_folded_model(), "niti", 0);
}

Test(integer, bits_of_weights_in_16_bits)
{
    check_bits(integer_branched_model(), "niti16", 0);
}

/* Weights that grow at nearly every step. */
Test(integer, bits_of_weights_that_grow)
{
    check_bits(integer_branched_model(), "niti", 65536);
    check_bits(integer_branched_model(), "niti16", 65536);
}

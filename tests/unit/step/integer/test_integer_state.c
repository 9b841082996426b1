/*
 * test_integer_state.c - what a trainer in integers keeps and hands over, what it refuses, and what
 * its memory is.
 */
#include "integer_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void expect_refusal(const dunlin_model *model, const dunlin_trainer_options *options,
                           dunlin_status status, const char *text)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_expect_eq(dunlin_trainer_create(model, options, &trainer, &error), status, "%s", text);
    cr_expect(strstr(error.text, text) != NULL, "\"%s\" is not in \"%s\"", text, error.text);
    cr_expect_null(trainer);
}

/* How often a trainer's parameters have grown. */
static int64_t n_grown(const dunlin_trainer *trainer)
{
    int64_t n = 0;
    for (int32_t i = 0; i < dunlin_trainer_n_scales(trainer); i++) {
        dunlin_scale_info info = DUNLIN_SCALE_INFO_INIT;
        cr_assert_eq(dunlin_trainer_scale(trainer, i, &info), DUNLIN_OK);
        n += info.kind == DUNLIN_SCALE_PARAMETER ? info.n_raised : 0;
    }
    return n;
}

/* Whose weights grow often. */
static dunlin_trainer_options growing_options(const char *precision)
{
    dunlin_trainer_options options = integer_options(8);
    options.precision = precision;
    options.grad_bits = "7";
    options.weight_growth = 65536;
    return options;
}

static void check_checkpoint(const char *precision)
{
    dunlin_model *model = integer_branched_model();
    dunlin_trainer_options options = growing_options(precision);
    char *path = test_temp_path("integer.ckpt");
    dunlin_trainer *from = test_create(model, &options);
    dunlin_trainer *to = test_create(model, &options);
    test_fit_epochs(from, model, 2);
    cr_assert_eq(dunlin_trainer_save_checkpoint(from, path), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_load_checkpoint(to, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(to)->text);
    cr_expect_eq(dunlin_trainer_n_steps(to), dunlin_trainer_n_steps(from));
    test_expect_same_weights(from, to, true);
    cr_expect_gt(n_grown(from), 0, "nothing has grown");
    cr_expect_eq(n_grown(to), n_grown(from));
    test_fit_epochs(from, model, 2);
    test_fit_epochs(to, model, 2);
    test_expect_same_weights(from, to, true);
    /* Not into float32, and not from it. */
    dunlin_trainer_options floats = integer_options(8);
    floats.precision = NULL;
    dunlin_trainer *other = test_create(model, &floats);
    cr_expect_eq(dunlin_trainer_load_checkpoint(other, path), DUNLIN_MISMATCH);
    cr_assert_eq(dunlin_trainer_save_checkpoint(other, path), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_load_checkpoint(to, path), DUNLIN_MISMATCH);
    /* Nor with weights of other bits. */
    floats.precision = strcmp(precision, "niti") == 0 ? "niti16" : "niti";
    dunlin_trainer_destroy(other);
    other = test_create(model, &floats);
    cr_assert_eq(dunlin_trainer_save_checkpoint(other, path), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_load_checkpoint(to, path), DUNLIN_MISMATCH);
    test_expect_same_weights(from, to, true);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(other);
    dunlin_trainer_destroy(from);
    dunlin_trainer_destroy(to);
    dunlin_model_destroy(model);
}

Test(integer_state, goes_on_from_a_checkpoint_to_the_bit)
{
    check_checkpoint("niti");
    check_checkpoint("niti16");
}

/* A larger exponent costs the lowest bits: of `fine` values, eight more stay. */
static void check_weights(const char *precision, float fine)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = integer_options(8);
    options.precision = precision;
    int64_t n = 0;
    dunlin_trainer *from = test_create(model, &options);
    dunlin_trainer *to = test_create(model, &options);
    test_fit_epochs(from, model, 1);
    float *weights = test_weights(from, &n);
    for (int64_t first = 0; first < n; first += 7) {
        const int64_t n_piece = n - first < 7 ? n - first : 7;
        cr_assert_eq(dunlin_trainer_set_weights(to, DUNLIN_WEIGHTS_TRAINABLE, first, n_piece,
                                                weights + first),
                     DUNLIN_OK);
    }
    test_expect_same_weights(from, to, true);
    /* Larger ones raise the exponent: nothing is clipped, each is within half a unit. */
    float largest = 0.0F;
    for (int64_t i = 0; i < n; i++) {
        weights[i] = weights[i] * 3.3F;
        largest = fabsf(weights[i]) > largest ? fabsf(weights[i]) : largest;
    }
    for (int64_t first = 0; first < n; first += 11) {
        const int64_t n_piece = n - first < 11 ? n - first : 11;
        cr_assert_eq(dunlin_trainer_set_weights(to, DUNLIN_WEIGHTS_TRAINABLE, first, n_piece,
                                                weights + first),
                     DUNLIN_OK);
    }
    float *taken = test_weights(to, &n);
    for (int64_t i = 0; i < n; i++) {
        cr_expect_leq(fabsf(taken[i] - weights[i]), largest / fine, "element %lld", (long long)i);
    }
    weights[0] = NAN;
    cr_expect_eq(dunlin_trainer_set_weights(to, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                 DUNLIN_NUMERIC);
    free(taken);
    free(weights);
    dunlin_trainer_destroy(from);
    dunlin_trainer_destroy(to);
    dunlin_model_destroy(model);
}

Test(integer_state, weights_go_out_and_in_exactly)
{
    check_weights("niti", 64.0F);
    check_weights("niti16", 64.0F * 256.0F);
}

/* What is less than half of what is multiplied is kept, and adds up: a step of one bit of a weight
 * of 16 leaves the byte that is multiplied as it was, and is in the weight. */
Test(integer_state, sixteen_bits_keep_what_eight_lose)
{
    static const char *const names[] = {"niti", "niti16"};
    dunlin_model *model = test_dense_model(20, 5);
    int64_t n_between[2] = {0, 0};
    for (size_t k = 0; k < 2; k++) {
        dunlin_trainer_options options = integer_options(8);
        int64_t n = 0;
        options.precision = names[k];
        options.grad_bits = "1";
        dunlin_trainer *trainer = test_create(model, &options);
        test_fit_epochs(trainer, model, 1);
        float *weights = test_weights(trainer, &n);
        dunlin_parameter_info info;
        dunlin_scale_info scale = DUNLIN_SCALE_INFO_INIT;
        cr_assert_eq(dunlin_trainer_parameter(trainer, 0, &info), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_scale(trainer, 0, &scale), DUNLIN_OK);
        for (int64_t i = 0; i < info.n_elements; i++) {
            const float q = ldexpf(weights[i], -scale.exponent);
            n_between[k] += q != floorf(q) ? 1 : 0;
        }
        free(weights);
        dunlin_trainer_destroy(trainer);
    }
    cr_expect_eq(n_between[0], 0, "int8 has only whole numbers");
    cr_expect_gt(n_between[1], 100, "%lld weights of 320 lie between them",
                 (long long)n_between[1]);
    dunlin_model_destroy(model);
}

/* Updates keep their size when a range is doubled; weights that come from outside begin anew. */
Test(integer_state, growth_is_an_option_and_ends_with_new_weights)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = growing_options("niti");
    int64_t n = 0;
    dunlin_trainer *trainer = test_create(model, &options);
    test_fit_epochs(trainer, model, 2);
    const int64_t n_before = n_grown(trainer);
    cr_expect_gt(n_before, 0);
    cr_assert_eq(dunlin_trainer_set_weight_growth(trainer, DUNLIN_WEIGHT_GROWTH_NONE), DUNLIN_OK);
    test_fit_epochs(trainer, model, 2);
    cr_expect_eq(n_grown(trainer), n_before, "it was switched off");
    cr_assert_eq(dunlin_trainer_set_weight_growth(trainer, 65536), DUNLIN_OK);
    test_fit_epochs(trainer, model, 2);
    cr_expect_gt(n_grown(trainer), n_before);
    float *weights = test_weights(trainer, &n);
    cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                 DUNLIN_OK);
    cr_expect_eq(n_grown(trainer), 0);
    dunlin_trainer *fresh = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_set_weights(fresh, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                 DUNLIN_OK);
    test_expect_same_weights(trainer, fresh, true);
    free(weights);
    dunlin_trainer_destroy(fresh);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* Frozen weights keep their exponent, and with it every bit. */
Test(integer_state, frozen_weights_do_not_grow)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = growing_options("niti");
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_parameter_info info;
    cr_assert_eq(dunlin_trainer_parameter(trainer, 0, &info), DUNLIN_OK);
    options.frozen_prefixes = info.name;
    dunlin_trainer *other = test_create(model, &options);
    test_fit_epochs(other, model, 4);
    dunlin_scale_info scale = DUNLIN_SCALE_INFO_INIT;
    cr_assert_eq(dunlin_trainer_scale(other, 0, &scale), DUNLIN_OK);
    cr_expect_eq(scale.n_raised, 0);
    cr_expect_gt(n_grown(other), 0);
    dunlin_trainer_destroy(other);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(integer_state, an_evaluation_before_training_changes_no_bit_of_it)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = integer_options(8);
    dunlin_trainer *quiet = test_create(model, &options);
    dunlin_trainer *curious = test_create(model, &options);
    dunlin_metrics metrics[2];
    float logits[3 * 4];
    test_source source;
    test_source_init(&source, model, 40, DUNLIN_U8);
    cr_assert_eq(dunlin_trainer_evaluate(curious, &source.source, 5, 20, &metrics[0]), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_evaluate(curious, &source.source, 5, 20, &metrics[1]), DUNLIN_OK);
    cr_expect(metrics[0].loss > 0.0 && metrics[0].loss == metrics[1].loss);
    cr_assert_eq(dunlin_trainer_predict(curious, &source.source, 0, 3, logits), DUNLIN_OK);
    cr_expect(logits[0] != logits[1] || logits[1] != logits[2]);
    test_fit_epochs(quiet, model, 2);
    test_fit_epochs(curious, model, 2);
    test_expect_same_weights(quiet, curious, true);
    dunlin_trainer_destroy(quiet);
    dunlin_trainer_destroy(curious);
    dunlin_model_destroy(model);
}

Test(integer_state, learns)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = integer_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_metrics before;
    dunlin_metrics after;
    test_source source;
    test_source_init(&source, model, 40, DUNLIN_U8);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 40, &before), DUNLIN_OK);
    test_fit_epochs(trainer, model, 8);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 40, &after), DUNLIN_OK);
    cr_expect_lt(after.loss, 0.8 * before.loss, "%g, then %g", before.loss, after.loss);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* --- refusals --- */

Test(integer_state, refuses_by_name)
{
    dunlin_model *model = test_small_model(false);
    dunlin_model *normed = test_small_model(true);
    const dunlin_trainer_options base = integer_options(4);
    dunlin_trainer_options options = base;
    options.precision = "int4";
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED, "precision \"int4\" is not in this build");
    expect_refusal(normed, &base, DUNLIN_UNSUPPORTED, "batch_norm 'body.bn1");
    options = base;
    options.loss = DUNLIN_LOSS_MSE;
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED, "precision niti has cross-entropy");
    options = base;
    options.lr = 0.1F;
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "option lr is set");
    options = base;
    options.momentum = 0.9F;
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "option momentum is set");
    options = base;
    options.clip_norm = 1.0F;
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "option clip_norm is set");
    options.precision = "fp32";
    options.grad_bits = "5";
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "grad_bits goes with precision niti");
    dunlin_model_destroy(model);
    dunlin_model_destroy(normed);
}

/* Each cause with its first node and how many there are. */
Test(integer_state, tells_every_cause_of_a_network_that_it_has_not)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {2, 8, 8}};
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    const dunlin_trainer_options options = integer_options(4);
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value end = dunlin_builder_input(builder, "x", &shape);
    for (int i = 0; i < 2; i++) {
        end = dunlin_builder_conv(builder, i == 0 ? "one" : "two", end, 4, 3, &padded);
        end = dunlin_builder_silu(builder, end);
    }
    end = dunlin_builder_batch_norm(builder, "bn", end);
    end = dunlin_builder_dense(builder, "fc", dunlin_builder_flatten(builder, end), 3);
    dunlin_model *model = integer_finish(builder, end);
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED, "(2 of them): there is no such operator");
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED, "(1 of them): there is no such operator");
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED, "unary 'silu");
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED, "; batch_norm 'bn'");
    dunlin_model_destroy(model);
}

Test(integer_state, refuses_bits_that_are_none)
{
    static const char *const texts[] = {"", "-0", "8", "5,", ",5", "5;4", "5,x", "-1", "5 ,4"};
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = integer_options(4);
    options.grad_bits_steps = 10;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        options.grad_bits = texts[i];
        expect_refusal(model, &options, DUNLIN_ARGUMENT, "option grad_bits is");
    }
    options.grad_bits = "5,4";
    options.grad_bits_steps = 0;
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "option grad_bits_steps is 0");
    options.grad_bits_steps = 3;
    dunlin_trainer *trainer = test_create(model, &options);
    cr_expect_eq(dunlin_trainer_set_grad_bits(trainer, "9", 1), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_set_grad_bits(trainer, "3,2,1", 7), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_set_lr(trainer, 0.1F), DUNLIN_UNSUPPORTED);
    cr_expect(dunlin_trainer_lr(trainer) == 0.0F);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(integer_state, refuses_growth_that_is_none)
{
    static const int32_t numbers[] = {1, -2, 65537, INT32_MIN, INT32_MAX};
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = integer_options(4);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        options.weight_growth = numbers[i];
        expect_refusal(model, &options, DUNLIN_ARGUMENT, "option weight_growth is");
    }
    options.weight_growth = 2;
    dunlin_trainer *trainer = test_create(model, &options);
    cr_expect_eq(dunlin_trainer_set_weight_growth(trainer, 1), DUNLIN_ARGUMENT);
    test_expect_text(trainer, "option weight_growth is 1;");
    cr_expect_eq(dunlin_trainer_set_weight_growth(trainer, 0), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    options.precision = "octo";
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "goes with precision niti, not octo");
    options.precision = NULL;
    options.weight_growth = DUNLIN_WEIGHT_GROWTH_NONE;
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "goes with precision niti, not fp32");
    dunlin_model_destroy(model);
}

static float one(void *ctx, int64_t index)
{
    (void)ctx;
    (void)index;
    return 1.0F;
}

/* A source of one number alone, in all its elements. */
typedef struct endless {
    float value;
    int64_t n_elements;
} endless;

static dunlin_status read_endless(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  int32_t *out_y)
{
    const endless *of = ctx;
    (void)indices;
    for (int64_t i = 0; i < n * of->n_elements; i++) {
        ((float *)out_x)[i] = i == 0 ? of->value : 0.25F;
    }
    memset(out_y, 0, (size_t)n * sizeof *out_y);
    return DUNLIN_OK;
}

/* In the first batch, which calibrates, and after one. */
Test(integer_state, nothing_changes_when_an_input_is_not_finite)
{
    static const float values[] = {INFINITY, -INFINITY, NAN};
    static const int64_t indices[] = {0, 1, 2, 3};
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = integer_options(4);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer *fresh = test_create(model, &options);
    test_source good;
    test_source_init(&good, model, 4, DUNLIN_F32);
    endless of = {.n_elements = good.n_elements};
    dunlin_source bad = good.source;
    bad.read_fn = read_endless;
    bad.ctx = &of;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            of.value = values[i];
            cr_expect_eq(dunlin_trainer_step(trainer, &bad, indices, 4, NULL), DUNLIN_NUMERIC);
            test_expect_same_weights(trainer, fresh, true);
        }
        cr_assert_eq(dunlin_trainer_step(trainer, &good.source, indices, 4, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_step(fresh, &good.source, indices, 4, NULL), DUNLIN_OK);
        test_expect_same_weights(trainer, fresh, true);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_destroy(fresh);
    dunlin_model_destroy(model);
}

Test(integer_state, nothing_changes_when_a_source_is_refused)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = integer_options(4);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer *fresh = test_create(model, &options);
    const int64_t indices[] = {0, 1, 2, 3};
    test_source source;
    test_source_init(&source, model, 4, DUNLIN_F32);
    source.nan_index = 2;
    cr_expect_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL), DUNLIN_NUMERIC);
    test_expect_text(trainer, "example 2");
    source.nan_index = -1;
    source.source.weight_fn = one;
    cr_expect_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL),
                 DUNLIN_UNSUPPORTED);
    source.source.weight_fn = NULL;
    test_expect_same_weights(trainer, fresh, true);
    cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_step(fresh, &source.source, indices, 4, NULL), DUNLIN_OK);
    test_expect_same_weights(trainer, fresh, true);
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_destroy(fresh);
    dunlin_model_destroy(model);
}

/* --- memory --- */

static uint64_t moving_bytes(const dunlin_model *model, const char *precision)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    options.batch = 32;
    options.precision = precision;
    options.policy = DUNLIN_POLICY_POOL;
    dunlin_trainer *trainer = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    return report.by_class.input + report.by_class.activations + report.by_class.gradients +
           report.by_class.saved;
}

/* A quarter of what floats take, and little more: neither keeps an activation that only a max-pool
 * reads, and places of maxima are bits here. */
Test(integer_state, takes_fewer_bytes_than_floats)
{
    dunlin_model *models[2] = {NULL, integer_plain_model()};
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &models[0], NULL), DUNLIN_OK);
    for (size_t i = 0; i < 2; i++) {
        const uint64_t integers = moving_bytes(models[i], "niti");
        const uint64_t floats = moving_bytes(models[i], NULL);
        cr_expect_leq(10 * integers, 3 * floats,
                      "network %zu: %llu bytes of activations and errors, not %llu", i,
                      (unsigned long long)integers, (unsigned long long)floats);
        dunlin_model_destroy(models[i]);
    }
}

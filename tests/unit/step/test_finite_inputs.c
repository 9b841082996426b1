/*
 * test_finite_inputs.c - statistics and inputs that are not finite change nothing, and are named.
 */
#include "step/step_support.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>

typedef struct spike {
    int64_t example, element;
    float value;
    int64_t n_elements;
} spike;

static dunlin_status read_spiked(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    const spike *of = ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < of->n_elements; k++) {
            const bool is_spike = indices[i] == of->example && k == of->element;
            x[i * of->n_elements + k] =
                is_spike ? of->value : (float)((indices[i] * 7 + k * 3) % 11) / 11.0F;
        }
        out_y[i] = 0;
    }
    return DUNLIN_OK;
}

static dunlin_source spiked_source(const dunlin_model *model, spike *of)
{
    const dunlin_shape shape = dunlin_model_input_shape(model);
    cr_assert_eq(dunlin_shape_count(&shape, &of->n_elements), DUNLIN_OK);
    return (dunlin_source){.struct_size = sizeof(dunlin_source),
                           .ctx = of,
                           .read_fn = read_spiked,
                           .n_examples = 8,
                           .dtype = DUNLIN_F32,
                           .scale = 1.0F};
}

static void check_spike(const dunlin_model *model, const dunlin_trainer_options *options,
                        float value, const char *text, const char *second_text)
{
    spike of = {.example = 5, .element = 2, .value = value};
    const dunlin_source source = spiked_source(model, &of);
    dunlin_trainer *trainer = test_create(model, options);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    cr_expect_eq(dunlin_trainer_fit(trainer, &source, NULL, NULL, NULL), DUNLIN_NUMERIC);
    test_expect_text(trainer, text);
    test_expect_text(trainer, second_text);
    float *after = test_weights(trainer, NULL);
    cr_expect(test_same_bits(before, after, n));
    of.value = 0.5F;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source, NULL, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    free(before);
    free(after);
    dunlin_trainer_destroy(trainer);
}

Test(finite, statistics_that_overflow_change_nothing)
{
    dunlin_model *model = test_small_model(true);
    for (int k = 0; k < 4; k++) {
        dunlin_trainer_options options = test_options(8);
        options.no_fuse = k % 2 == 1;
        if (k >= 2) {
            options.ghost_statistics = true;
            options.micro_batch = 4;
        }
        check_spike(model, &options, 1e20F, "running_", "example 5");
        check_spike(model, &options, -1e25F, "running_", "example 5");
    }
    dunlin_model_destroy(model);
}

Test(finite, an_input_is_named_by_example_and_element)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_trainer_options options = test_options(8);
    check_spike(model, &options, NAN, "element 2 of example 5", "nan");
    check_spike(model, &options, -INFINITY, "element 2 of example 5", "inf");
    spike of = {.example = 6, .element = 1, .value = INFINITY};
    dunlin_source source = spiked_source(model, &of);
    dunlin_trainer *trainer = test_create(model, &options);
    float logits[8 * 64];
    cr_expect_eq(dunlin_trainer_evaluate(trainer, &source, 0, 8, NULL), DUNLIN_NUMERIC);
    test_expect_text(trainer, "element 1 of example 6");
    cr_expect_eq(dunlin_trainer_predict(trainer, &source, 0, 8, logits), DUNLIN_NUMERIC);
    test_expect_text(trainer, "element 1 of example 6");
    of.value = 3e38F;
    source.scale = 100.0F;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source, NULL, NULL, NULL), DUNLIN_NUMERIC);
    test_expect_text(trainer, "of example 6 is not finite once scale");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

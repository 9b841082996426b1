/*
 * step_support.c - the made-up source, small networks, short trainings.
 */
#include "step_support.h"

#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    test_source *source = ctx;
    source->n_calls++;
    for (int64_t i = 0; i < n; i++) {
        if (source->fail_at_read >= 0 && source->n_read >= source->fail_at_read) {
            return DUNLIN_IO;
        }
        source->n_read++;
        uint64_t rng = (uint64_t)indices[i] * 977 + 13;
        const int32_t label = (int32_t)(test_random_u64(&rng) % (uint64_t)source->n_classes);
        out_y[i] = indices[i] == 0 && source->bad_label >= 0 ? source->bad_label : label;
        for (int64_t k = 0; k < source->n_elements; k++) {
            const int64_t bump = k * source->n_classes / source->n_elements == label ? 120 : 0;
            uint8_t level = (uint8_t)(test_random_u64(&rng) % 100 + (uint64_t)bump);
            if (source->vocabulary > 0) {
                level = (uint8_t)(level % source->vocabulary);
            }
            if (source->source.dtype == DUNLIN_U8) {
                ((uint8_t *)out_x)[i * source->n_elements + k] = level;
            } else {
                ((float *)out_x)[i * source->n_elements + k] =
                    indices[i] == source->nan_index && k == 0 ? NAN : (float)level;
            }
        }
    }
    return DUNLIN_OK;
}

void test_source_init(test_source *source, const dunlin_model *model, int64_t n_examples,
                      dunlin_dtype dtype)
{
    const dunlin_shape shape = dunlin_model_input_shape(model);
    *source = (test_source){.n_classes = (int32_t)dunlin_model_n_outputs(model),
                            .vocabulary = dunlin_model_vocabulary(model),
                            .fail_at_read = -1,
                            .nan_index = -1,
                            .bad_label = -1};
    cr_assert_eq(dunlin_shape_count(&shape, &source->n_elements), DUNLIN_OK);
    source->source = (dunlin_source){.struct_size = sizeof(dunlin_source),
                                     .ctx = source,
                                     .read_fn = read_examples,
                                     .n_examples = n_examples,
                                     .dtype = dtype,
                                     .scale = source->vocabulary > 0 ? 1.0F : 1.0F / 128.0F};
}

static dunlin_model *finish(dunlin_builder *builder, dunlin_value end)
{
    dunlin_model *model = NULL;
    dunlin_error error;
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

dunlin_model *test_small_model(bool has_batch_norm)
{
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    const dunlin_shape shape = {.n_dims = 3, .dims = {2, 9, 9}};
    const dunlin_conv_options padded = {.struct_size = sizeof(dunlin_conv_options), .padding = 1};
    dunlin_value end = dunlin_builder_input(builder, "x", &shape);
    end = dunlin_builder_conv(builder, "body.conv1", end, 5, 3, &padded);
    if (has_batch_norm) {
        end = dunlin_builder_batch_norm(builder, "body.bn1", end);
    }
    end = dunlin_builder_relu(builder, end);
    end = dunlin_builder_max_pool(builder, end, 2, 2, 0);
    end = dunlin_builder_conv(builder, "body.conv2", end, 6, 3, NULL);
    end = dunlin_builder_relu(builder, end);
    end = dunlin_builder_flatten(builder, end);
    end = dunlin_builder_dense(builder, "head", end, 4);
    return finish(builder, end);
}

dunlin_model *test_dense_model(int64_t n_features, int32_t n_classes)
{
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    const dunlin_shape shape = {.n_dims = 1, .dims = {n_features}};
    dunlin_value end = dunlin_builder_input(builder, "x", &shape);
    end = dunlin_builder_dense(builder, "fc1", end, 16);
    end = dunlin_builder_relu(builder, end);
    end = dunlin_builder_dense(builder, "fc2", end, n_classes);
    return finish(builder, end);
}

dunlin_trainer_options test_options(int64_t batch)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = batch;
    options.lr = 0.05F;
    options.momentum = 0.9F;
    options.weight_decay = 1e-4F;
    options.seed = 7;
    return options;
}

dunlin_trainer *test_create(const dunlin_model *model, const dunlin_trainer_options *options)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    const dunlin_status status = dunlin_trainer_create(model, options, &trainer, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", dunlin_status_name(status), error.text);
    return trainer;
}

float *test_weights(const dunlin_trainer *trainer, int64_t *out_n)
{
    const int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
    float *weights = malloc((size_t)n * sizeof *weights);
    cr_assert_not_null(weights);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, weights), DUNLIN_OK);
    if (out_n != NULL) {
        *out_n = n;
    }
    return weights;
}

float *test_train(const dunlin_model *model, const dunlin_trainer_options *options, int n_steps,
                  int64_t *out_n)
{
    test_source source;
    const int64_t batch = options->batch;
    test_source_init(&source, model, batch * n_steps, DUNLIN_U8);
    dunlin_trainer *trainer = test_create(model, options);
    int64_t indices[64];
    cr_assert_leq(batch, 64);
    for (int step = 0; step < n_steps; step++) {
        for (int64_t i = 0; i < batch; i++) {
            indices[i] = step * batch + i;
        }
        const int64_t n = step + 1 == n_steps && batch > 1 ? batch - 1 : batch;
        const dunlin_status status = dunlin_trainer_step(trainer, &source.source, indices, n, NULL);
        cr_assert_eq(status, DUNLIN_OK, "%s", dunlin_trainer_last_error(trainer)->text);
    }
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

bool test_same_bits(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

char *test_temp_path(const char *name)
{
    const char *folder = getenv("TMPDIR");
    const size_t room = 512;
    char *path = malloc(room);
    cr_assert_not_null(path);
    (void)snprintf(path, room, "%s/dunlin-step-%ld-%s", folder != NULL ? folder : "/tmp",
                   (long)getpid(), name);
    return path;
}

void test_fit_epochs(dunlin_trainer *trainer, const dunlin_model *model, int64_t n_epochs)
{
    test_source source;
    test_source_init(&source, model, 40, DUNLIN_U8);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = n_epochs;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
}

void test_expect_same_weights(const dunlin_trainer *a, const dunlin_trainer *b, bool is_same)
{
    int64_t n = 0;
    float *one = test_weights(a, &n);
    float *other = test_weights(b, NULL);
    cr_expect_eq(test_same_bits(one, other, n), is_same);
    free(one);
    free(other);
}

void test_expect_text(const dunlin_trainer *trainer, const char *text)
{
    const char *got = dunlin_trainer_last_error(trainer)->text;
    cr_expect_not_null(strstr(got, text), "\"%s\" lacks \"%s\"", got, text);
}

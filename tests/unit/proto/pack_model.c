/*
 * pack_model.c - a few tensors through a packer and an unpacker, in memory.
 */
#include "pack_model.h"

#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

pack_model pack_model_random(uint64_t *state)
{
    static const size_t sizes[] = {1, 3, 64, 65, 255, 1000, 1025, 4096, 8192, 8193, 20000};
    pack_model model = {.n_tensors = 1 + test_random_below(state, PACK_MAX_TENSORS)};
    for (size_t t = 0; t < model.n_tensors; t++) {
        model.n_values[t] = sizes[test_random_below(state, sizeof(sizes) / sizeof(sizes[0]))];
        model.n_values[t] = (test_random_below(state, 10) == 0) ? 0 : model.n_values[t];
        model.rules[t] =
            (test_random_below(state, 4) == 0) ? DUNLIN_V1_RULE_STATISTIC : DUNLIN_V1_RULE_AVERAGE;
        model.n_all += model.n_values[t];
    }
    model.values = calloc(model.n_all + 1, sizeof(float));
    const double scale = pow(10.0, test_random_range(-6.0, 1.0, state));
    for (size_t i = 0; i < model.n_all; i++) {
        double value = scale * pack_normal(state);
        model.values[i] = (test_random_below(state, 20) == 0) ? 0.0f : (float)value;
    }
    return model;
}

pack_model pack_model_normal(size_t n, uint64_t *state)
{
    pack_model model = {.n_tensors = 1, .n_all = n};
    model.n_values[0] = n;
    model.rules[0] = DUNLIN_V1_RULE_AVERAGE;
    model.values = calloc(n + 1, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        model.values[i] = (float)pack_normal(state);
    }
    return model;
}

void pack_model_free(pack_model *model)
{
    free(model->values);
}

dunlin__pack_options pack_options(const dunlin__packing *packing, const pack_model *model,
                                  uint64_t draws)
{
    dunlin__pack_options options = {.packing = *packing};
    memcpy(options.draws, &draws, sizeof(draws));
    if (packing->selection != DUNLIN_V1_SELECTION_LARGEST) {
        return options;
    }
    dunlin__pack_chooser chooser;
    size_t n_average = 0;
    for (size_t t = 0; t < model->n_tensors; t++) {
        n_average += (model->rules[t] == DUNLIN_V1_RULE_AVERAGE) ? model->n_values[t] : 0;
    }
    dunlin__pack_chooser_begin(&chooser, dunlin__packing_kept(packing, n_average));
    for (unsigned pass = 0; pass < DUNLIN_PACK_CHOICE_PASSES; pass++) {
        const float *values = model->values;
        for (size_t t = 0; t < model->n_tensors; values += model->n_values[t++]) {
            if (model->rules[t] == DUNLIN_V1_RULE_AVERAGE) {
                dunlin__pack_chooser_add(&chooser, values, model->n_values[t]);
            }
        }
        dunlin__pack_chooser_end_pass(&chooser, &options.choice);
    }
    return options;
}

static dunlin_status keep_bytes(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    pack_result *result = ctx;
    (void)error;
    cr_assert(n_bytes > 0 && n_bytes <= 65536);
    if (result->n_bytes + n_bytes > result->capacity) {
        result->capacity = 2 * (result->n_bytes + n_bytes);
        result->bytes = realloc(result->bytes, result->capacity);
    }
    memcpy(result->bytes + result->n_bytes, data, n_bytes);
    result->n_bytes += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status keep_values(void *ctx, const float *values, size_t n, dunlin_error *error)
{
    pack_result *result = ctx;
    (void)error;
    memcpy(result->mirrored + result->n_mirrored, values, n * sizeof(float));
    result->n_mirrored += n;
    return DUNLIN_OK;
}

static void pack_tensor(dunlin__tensor_packer *packer, const pack_model *model, size_t t,
                        const float *values, size_t piece, float gain, uint64_t *state)
{
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin__tensor_packer_tensor(packer, (uint32_t)t, model->rules[t],
                                              model->n_values[t], gain, &error),
                 DUNLIN_OK, "%s", error.text);
    for (size_t at = 0; at < model->n_values[t];) {
        size_t n = (piece > 0) ? piece : 1 + (size_t)test_random_below(state, 9000);
        n = (n < model->n_values[t] - at) ? n : model->n_values[t] - at;
        cr_assert_eq(dunlin__tensor_packer_values(packer, values + at, n, &error), DUNLIN_OK, "%s",
                     error.text);
        at += n;
    }
}

pack_result pack_all_of(const dunlin__pack_options *options, const pack_model *model, float gain,
                        size_t piece, bool is_measured)
{
    pack_result result = {.n_bytes = 0};
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__pack_options with = *options;
    dunlin__tensor_packer *packer = NULL;
    uint64_t state = 99;
    const float *values = model->values;
    result.mirrored = calloc(model->n_all + 1, sizeof(float));
    if (!is_measured) {
        with.sink = (dunlin__pack_sink){.ctx = &result, .write_fn = keep_bytes};
        with.mirror = (dunlin__pack_mirror){.ctx = &result, .values_fn = keep_values};
    }
    cr_assert_eq(dunlin__tensor_packer_open(&with, NULL, &packer, &error), DUNLIN_OK, "%s",
                 error.text);
    for (size_t t = 0; t < model->n_tensors; values += model->n_values[t++]) {
        pack_tensor(packer, model, t, values, piece, gain, &state);
        cr_assert_eq(
            dunlin__tensor_packer_tensor_end(packer, &result.stored[t], &result.squares[t], &error),
            DUNLIN_OK, "%s", error.text);
    }
    result.square = dunlin__tensor_packer_square(packer);
    if (is_measured) {
        result.n_bytes = (size_t)dunlin__tensor_packer_bytes(packer);
    }
    cr_assert_eq(dunlin__tensor_packer_bytes(packer), result.n_bytes);
    dunlin__tensor_packer_close(packer);
    return result;
}

void pack_result_free(pack_result *result)
{
    free(result->bytes);
    free(result->mirrored);
}

typedef struct reading {
    const uint8_t *bytes;
    size_t n_left;
} reading;

static dunlin_status give_bytes(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    reading *from = ctx;
    (void)error;
    cr_assert(n_bytes > 0 && n_bytes <= 65536);
    cr_assert_leq(n_bytes, from->n_left);
    memcpy(buffer, from->bytes, n_bytes);
    from->bytes += n_bytes;
    from->n_left -= n_bytes;
    return DUNLIN_OK;
}

static dunlin_status read_tensor(dunlin__tensor_unpacker *unpacker, const pack_model *model,
                                 size_t t, uint64_t stored, float *out_values, dunlin_error *error)
{
    size_t n = 0;
    size_t at = 0;
    const float *values = NULL;
    dunlin_status status = dunlin__tensor_unpacker_tensor(unpacker, (uint32_t)t, model->rules[t],
                                                          model->n_values[t], stored, error);
    while (status == DUNLIN_OK) {
        status = dunlin__tensor_unpacker_next(unpacker, &values, &n, error);
        if (status == DUNLIN_OK && n == 0) {
            cr_assert_eq(at, model->n_values[t]);
            break;
        }
        cr_assert(n <= DUNLIN_PACK_BLOCK_MAX && n <= model->n_values[t] - at);
        if (n > 0) {
            memcpy(out_values + at, values, n * sizeof(float));
        }
        at += n;
    }
    return status;
}

dunlin_status pack_read(const dunlin__packing *packing, const pack_model *model,
                        const pack_result *packed, float *out_values, double *out_square,
                        dunlin_error *error)
{
    reading from = {.bytes = packed->bytes, .n_left = packed->n_bytes};
    const dunlin__unpack_source source = {.ctx = &from, .read_fn = give_bytes};
    dunlin__tensor_unpacker *unpacker = NULL;
    dunlin_status status = dunlin__tensor_unpacker_open(packing, &source, NULL, &unpacker, error);
    for (size_t t = 0; status == DUNLIN_OK && t < model->n_tensors; t++) {
        if (packed->stored[t] > from.n_left) {
            status = DUNLIN_MISMATCH; /* what a manifest would not allow */
            error->status = status;
            error->text[0] = '-';
            break;
        }
        status = read_tensor(unpacker, model, t, packed->stored[t], out_values, error);
        out_values += model->n_values[t];
    }
    if (status == DUNLIN_OK && out_square != NULL) {
        *out_square = dunlin__tensor_unpacker_square(unpacker);
    }
    dunlin__tensor_unpacker_close(unpacker);
    return status;
}

/*
 * random.c - "random": inputs of any shape, drawn when they are read; and labels.
 *
 * Invariant: an example follows from (seed, split, index) alone, in whole numbers up to the last
 * step, so it has the same bits on every machine.
 */
#include "data/common/data.h"
#include "data/common/draw.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define DEFAULT_CLASSES 10
#define DEFAULT_SIDE 28
#define DEFAULT_TRAIN 1024
#define DEFAULT_TEST 256

enum { PURPOSE_INPUT = 0x52414E44, PURPOSE_LABEL };

/*
 * Close to a standard normal draw: the sum of twelve uniform ones has deviation 1, and a mean that
 * is taken away. Whole numbers are summed, so nothing is rounded before the end.
 */
static float draw_normal(dunlin_draw *draw)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < 3; i++) {
        const uint64_t bits = dunlin__draw_u64(draw);
        sum += (int64_t)(bits & 0xFFFF) + (int64_t)(bits >> 16 & 0xFFFF) +
               (int64_t)(bits >> 32 & 0xFFFF) + (int64_t)(bits >> 48);
    }
    return (float)(sum - 6 * 65535) / 65536.0F;
}

static dunlin_status make_random(const dunlin_dataset *set, int64_t index, void *out,
                                 char *out_text)
{
    (void)out_text;
    int64_t n_elements = 0;
    DUNLIN_TRY(dunlin_shape_count(&set->own_shape, &n_elements));
    dunlin_draw draw = dunlin__draw_begin(set->made_seed, PURPOSE_INPUT, (uint64_t)index);
    uint8_t *to = out;
    for (int64_t i = 0; i < n_elements; i++) {
        if (set->own_dtype == DUNLIN_I32) {
            const int32_t token = (int32_t)dunlin__draw_below(&draw, (uint64_t)set->vocabulary);
            memcpy(to + (size_t)i * sizeof token, &token, sizeof token);
        } else {
            const float value = draw_normal(&draw);
            memcpy(to + (size_t)i * sizeof value, &value, sizeof value);
        }
    }
    return DUNLIN_OK;
}

static const dunlin_data_maker maker = {.make_fn = make_random};

dunlin_status dunlin__data_load_random(dunlin_dataset *set, const dunlin_data_request *request,
                                       dunlin_error *error)
{
    const dunlin_dataset_options *options = &request->options;
    const bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    int64_t n = is_train ? DEFAULT_TRAIN : DEFAULT_TEST;
    n = options->max_examples > 0 ? options->max_examples : n;
    set->title = "random numbers";
    set->is_synthetic = true;
    set->n_classes = options->classes > 0 ? options->classes : DEFAULT_CLASSES;
    set->vocabulary = options->vocabulary;
    set->own_dtype = options->vocabulary > 0 ? DUNLIN_I32 : DUNLIN_F32;
    set->own_shape = options->shape;
    set->made_seed = dunlin__draw_mix(options->seed) + (is_train ? 0 : 1);
    set->maker = &maker;
    if (options->shape.n_dims == 0) {
        set->own_shape = (dunlin_shape){.n_dims = 3, .dims = {1, DEFAULT_SIDE, DEFAULT_SIDE}};
    }
    if (set->n_classes > DUNLIN_DATA_MAX_CLASSES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "random: %" PRId32 " classes: the limit is %d", set->n_classes,
                            DUNLIN_DATA_MAX_CLASSES);
    }
    DUNLIN_TRY(dunlin__data_alloc_labels(set, n, error));
    dunlin_draw draw = dunlin__draw_begin(set->made_seed, PURPOSE_LABEL, 0);
    for (int64_t i = 0; i < n; i++) {
        set->labels[i] = (uint16_t)dunlin__draw_below(&draw, (uint64_t)set->n_classes);
    }
    return DUNLIN_OK;
}

/*
 * tokens.c - the synthetic set for networks that read tokens: sequences that lean towards the words
 * of their class.
 *
 * Invariant: an example follows from (seed, split, index) alone. Each class has a few words of its
 * own, drawn from the seed and the same for both splits; about one token in four is one of them,
 * the others are any.
 */
#include "data/common/data.h"
#include "data/common/draw.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define N_TRAIN 12000
#define N_TEST 3000
#define MAX_CLASSES 10
#define OWN_WORDS 8
#define MAX_SEQUENCE 65536

enum { PURPOSE_WORDS = 0x544F4B, PURPOSE_TOKENS_TRAIN, PURPOSE_TOKENS_TEST };

static void draw_example(const dunlin_dataset *set, uint64_t seed, uint64_t purpose, int64_t index)
{
    dunlin_draw draw = dunlin__draw_begin(seed, purpose, (uint64_t)index);
    const uint64_t label = dunlin__draw_below(&draw, (uint64_t)set->n_classes);
    set->labels[index] = (uint16_t)label;
    uint8_t *out = set->pixels + (size_t)index * (size_t)set->sequence * sizeof(int32_t);
    for (int64_t i = 0; i < set->sequence; i++) {
        int32_t token = (int32_t)dunlin__draw_below(&draw, (uint64_t)set->vocabulary);
        if (dunlin__draw_below(&draw, 4) == 0) {
            const uint64_t word = label * OWN_WORDS + dunlin__draw_below(&draw, OWN_WORDS);
            dunlin_draw own = dunlin__draw_begin(seed, PURPOSE_WORDS, word);
            token = (int32_t)dunlin__draw_below(&own, (uint64_t)set->vocabulary);
        }
        memcpy(out + (size_t)i * sizeof token, &token, sizeof token);
    }
}

dunlin_status dunlin__data_load_tokens(dunlin_dataset *set, const dunlin_data_request *request,
                                       dunlin_error *error)
{
    const dunlin_dataset_options *options = &request->options;
    const bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    if (options->sequence < 1 || options->sequence > MAX_SEQUENCE || options->vocabulary < 2 ||
        options->image != 0 || options->channels != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "synthetic tokens need a sequence of 1 to %d (it is %" PRId32
                            "), a vocabulary of 2 or more (%" PRId32 ") and no image size",
                            MAX_SEQUENCE, options->sequence, options->vocabulary);
    }
    set->title = "synthetic token sequences";
    set->is_synthetic = true;
    set->sequence = options->sequence;
    set->vocabulary = options->vocabulary;
    set->n_classes = options->vocabulary < MAX_CLASSES ? options->vocabulary : MAX_CLASSES;
    if (options->classes > 0 && options->classes < set->n_classes) {
        set->n_classes = options->classes;
    }
    /* Stored as one row of bytes: nothing resizes it. */
    dunlin__data_set_shape(set, 1, 1, options->sequence * (int32_t)sizeof(int32_t));
    const int64_t n = dunlin__data_limit(request, is_train ? N_TRAIN : N_TEST);
    DUNLIN_TRY(dunlin__data_alloc(set, n, false, error));
    for (int64_t i = 0; i < n; i++) {
        draw_example(set, options->seed, is_train ? PURPOSE_TOKENS_TRAIN : PURPOSE_TOKENS_TEST, i);
    }
    return DUNLIN_OK;
}

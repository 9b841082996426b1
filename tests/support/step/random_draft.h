/*
 * random_draft.h - a random network under construction, as the files that draw its layers share it.
 */
#ifndef DUNLIN_TESTS_RANDOM_DRAFT_H
#define DUNLIN_TESTS_RANDOM_DRAFT_H

#include "random.h"

#include <dunlin/model.h>

/* Of one of the numbers from low to high. */
static inline int32_t between(uint64_t *rng, int32_t low, int32_t high)
{
    return low + (int32_t)test_random_below(rng, (uint64_t)high - (uint64_t)low + 1);
}

/* The network under construction, with the shape of its end: the builder keeps
 * shapes to itself. */
typedef struct draft {
    dunlin_builder *builder;
    uint64_t *rng;
    bool has_batch_norm, is_signal;
    int n_layers;
    dunlin_value end;
    int32_t channels, size;
    char name[32];
} draft;

/* "KIND0" and on; valid until the next call. */
const char *random_name(draft *d, const char *kind);

/* A smooth function, or one with kinks, of whatever the end is: `width` channels or columns. */
void random_function(draft *d, int32_t width);

/* Tokens or features, encoder layers in several forms, one row out of all of them; `has_second`: an
 * output too of what the first layer makes. */
dunlin_model *random_token_model(uint64_t *rng, bool has_second);

/* The model with these n outputs, or the test fails. */
dunlin_model *random_finish(dunlin_builder *builder, const dunlin_value *ends, int32_t n);

#endif

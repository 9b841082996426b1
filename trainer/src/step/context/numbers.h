/*
 * numbers.h - the options that say in which numbers a network is trained.
 */
#ifndef DUNLIN_STEP_NUMBERS_H
#define DUNLIN_STEP_NUMBERS_H

#include "graph/build.h"

#define DUNLIN_GRAD_BITS_MAX_STAGES 16

/* The bits of the largest update, stage after stage. */
typedef struct dunlin_grad_bits {
    int32_t stages[DUNLIN_GRAD_BITS_MAX_STAGES];
    int32_t n;       /* 0 in float32 */
    int64_t n_steps; /* of each but the last */
} dunlin_grad_bits;

/* Bits of the step after `step` ones: nothing is kept between two steps. 0 in float32. */
int32_t dunlin__grad_bits_at(const dunlin_grad_bits *bits, int64_t step);

/* The precision of the options (NULL: float32) and its bits; UNSUPPORTED for one that this build
 * has not, ARGUMENT for an option that it makes meaningless. */
DUNLIN_NODISCARD dunlin_status dunlin__numbers_take(const dunlin_trainer_options *options,
                                                    const dunlin_precision **out_precision,
                                                    dunlin_grad_bits *out_bits,
                                                    dunlin_error *error);
/* "5,4,3" for so many steps each, or NULL for the precision's own; ARGUMENT, also in float32.
 * `*out` changes as a whole or not at all. */
DUNLIN_NODISCARD dunlin_status dunlin__grad_bits_set(const dunlin_precision *precision,
                                                     const char *text, int64_t n_steps,
                                                     dunlin_grad_bits *out, dunlin_error *error);
/* Of the options: 0 for the precision's own, -1 for none, and 0 alone in float32; ARGUMENT. `*out`:
 * 0 for none. */
DUNLIN_NODISCARD dunlin_status dunlin__weight_growth_set(const dunlin_precision *precision,
                                                         int32_t growth, int32_t *out,
                                                         dunlin_error *error);
/* UNSUPPORTED in integers, which have no rate. */
DUNLIN_NODISCARD dunlin_status dunlin__numbers_want_rate(const dunlin_precision *precision,
                                                         dunlin_error *error);

#endif

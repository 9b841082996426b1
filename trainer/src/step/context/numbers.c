/*
 * numbers.c - precision and bits of the update: taken from the options, and what they exclude.
 *
 * Invariant: with a precision no option is set that has no meaning in integers.
 */
#include "numbers.h"

#include "integer/precision.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int32_t dunlin__grad_bits_at(const dunlin_grad_bits *bits, int64_t step)
{
    if (bits->n < 2) {
        return bits->stages[0];
    }
    const int64_t stage = step / bits->n_steps;
    return bits->stages[stage < bits->n - 1 ? stage : bits->n - 1];
}

static dunlin_status fail_bits(const char *text, dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                        "option grad_bits is \"%.40s\"; it must be up to %d whole numbers from %d "
                        "to %d, with commas",
                        text, DUNLIN_GRAD_BITS_MAX_STAGES, DUNLIN_GRAD_BITS_LEAST,
                        DUNLIN_GRAD_BITS_MOST);
}

/* "5,4,3" */
static dunlin_status parse_bits(const char *text, dunlin_grad_bits *out, dunlin_error *error)
{
    const char *at = text;
    for (bool has_more = true; has_more;) {
        char *end = NULL;
        const bool is_digit = at[0] >= '0' && at[0] <= '9';
        const long number = is_digit ? strtol(at, &end, 10) : 0;
        if (!is_digit || number < DUNLIN_GRAD_BITS_LEAST || number > DUNLIN_GRAD_BITS_MOST ||
            (*end != ',' && *end != '\0') || out->n == DUNLIN_GRAD_BITS_MAX_STAGES) {
            return fail_bits(text, error);
        }
        out->stages[out->n++] = (int32_t)number;
        has_more = *end == ',';
        at = end + 1;
    }
    return DUNLIN_OK;
}

/* An option that has no meaning in integers, and that is set; NULL: none is. */
static const char *set_in_vain(const dunlin_trainer_options *options)
{
    const dunlin_trainer_options unset = DUNLIN_TRAINER_OPTIONS_INIT;
    const dunlin_schedule *schedule = options->schedule;
    const struct {
        const char *name;
        bool is_set;
    } rows[] = {
        {"lr", options->lr < unset.lr || options->lr > unset.lr},
        {"schedule", schedule != NULL && (schedule->kind != DUNLIN_SCHEDULE_CONSTANT ||
                                          schedule->warmup_steps > 0)},
        {"optimizer", options->optimizer != DUNLIN_OPTIMIZER_SGD},
        {"momentum", options->momentum != 0.0F},
        {"weight_decay", options->weight_decay != 0.0F},
        {"clip_value", options->clip_value != 0.0F},
        {"clip_norm", options->clip_norm != 0.0F},
        {"label_smoothing", options->label_smoothing != 0.0F},
        {"class_weights", options->class_weights != NULL},
        {"groups", options->n_groups != 0},
        {"no_norm_decay", options->no_norm_decay},
        {"gradient_fn", options->gradient_fn != NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_set) {
            return rows[i].name;
        }
    }
    return NULL;
}

dunlin_status dunlin__grad_bits_set(const dunlin_precision *precision, const char *text,
                                    int64_t n_steps, dunlin_grad_bits *out, dunlin_error *error)
{
    dunlin_grad_bits bits = {.n_steps = n_steps};
    if (!dunlin__precision_is_whole(precision)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option grad_bits goes with precision niti, not %s, which has a "
                            "learning rate",
                            dunlin__precision_name(precision));
    }
    if (text == NULL) {
        bits.stages[0] = precision->grad_bits;
        bits.n = 1;
    } else {
        DUNLIN_TRY(parse_bits(text, &bits, error));
    }
    if (n_steps < 0 || (bits.n > 1 && n_steps < 1)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option grad_bits_steps is %" PRId64
                            "; it must be 1 or more with several grad_bits",
                            n_steps);
    }
    *out = bits;
    return DUNLIN_OK;
}

dunlin_status dunlin__weight_growth_set(const dunlin_precision *precision, int32_t growth,
                                        int32_t *out, dunlin_error *error)
{
    const bool is_whole = dunlin__precision_is_whole(precision);
    if (!is_whole && growth != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option weight_growth is %" PRId32
                            ", and goes with precision niti, not %s",
                            growth, dunlin__precision_name(precision));
    }
    const bool is_in_range =
        growth >= DUNLIN_WEIGHT_GROWTH_LEAST && growth <= DUNLIN_WEIGHT_GROWTH_MOST;
    if (growth != 0 && growth != DUNLIN_WEIGHT_GROWTH_NONE && !is_in_range) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option weight_growth is %" PRId32 "; it must be %d to %d, %d for none "
                            "or 0",
                            growth, DUNLIN_WEIGHT_GROWTH_LEAST, DUNLIN_WEIGHT_GROWTH_MOST,
                            DUNLIN_WEIGHT_GROWTH_NONE);
    }
    *out = !is_whole || growth == DUNLIN_WEIGHT_GROWTH_NONE ? 0
           : growth == 0                                    ? precision->weight_growth
                                                            : growth;
    return DUNLIN_OK;
}

dunlin_status dunlin__numbers_take(const dunlin_trainer_options *options,
                                   const dunlin_precision **out_precision,
                                   dunlin_grad_bits *out_bits, dunlin_error *error)
{
    *out_bits = (dunlin_grad_bits){.n = 0};
    DUNLIN_TRY(dunlin__precision_find(options->precision, out_precision, error));
    const dunlin_precision *precision = *out_precision;
    const bool is_whole = dunlin__precision_is_whole(precision);
    if (precision != NULL && !is_whole && options->ghost_statistics) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option ghost_statistics is set, and precision %s has statistics of "
                            "the whole batch alone",
                            precision->name);
    }
    if (!is_whole && options->grad_bits == NULL && options->grad_bits_steps == 0) {
        return DUNLIN_OK;
    }
    const char *vain = is_whole ? set_in_vain(options) : NULL;
    if (vain != NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option %s is set, and has no meaning in precision %s: the rate is "
                            "grad_bits",
                            vain, precision->name);
    }
    return dunlin__grad_bits_set(precision, options->grad_bits, options->grad_bits_steps, out_bits,
                                 error);
}

dunlin_status dunlin__numbers_want_rate(const dunlin_precision *precision, dunlin_error *error)
{
    return !dunlin__precision_is_whole(precision)
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                              "precision %s has no learning rate: its updates have grad_bits bits",
                              precision->name);
}

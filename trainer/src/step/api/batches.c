/*
 * batches.c - how a fit cuts the examples of an epoch into steps.
 *
 * Invariant: the size of a step follows from where it begins, so a fit that is resumed elsewhere
 * takes the same steps.
 */
#include "batches.h"

#include <dunlin/trainer_advanced.h>
#include <mem/checked.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* The struct's first version; `batch` and `remainder` came later. */
#define FIRST_OPTIONS_BYTES offsetof(dunlin_fit_options, batch)

static dunlin_status take_options(const dunlin_fit_options *from, dunlin_fit_options *out,
                                  dunlin_error *error)
{
    *out = (dunlin_fit_options){.struct_size = sizeof *out};
    if (from != NULL) {
        if (from->struct_size < FIRST_OPTIONS_BYTES) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                                "struct_size of the fit options is %zu; it must be at least %zu",
                                (size_t)from->struct_size, FIRST_OPTIONS_BYTES);
        }
        DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_fit_options, from, out, error));
    }
    out->epochs = out->epochs == 0 ? 1 : out->epochs;
    if (out->epochs < 0 || out->max_steps < 0 || out->max_ms < 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "epochs (%" PRId64 "), max_steps (%" PRId64 ") and max_ms (%" PRId64
                            ") must not be negative",
                            out->epochs, out->max_steps, out->max_ms);
    }
    if (out->remainder < DUNLIN_REMAINDER_KEEP || out->remainder > DUNLIN_REMAINDER_JOIN) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "remainder %d is none of keep, drop and join", (int)out->remainder);
    }
    if (out->drop_last && out->remainder == DUNLIN_REMAINDER_JOIN) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "drop_last and remainder join contradict each other");
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__batches_init(int64_t n_examples, int64_t trainer_batch,
                                   const dunlin_fit_options *from, dunlin_fit_options *out_options,
                                   dunlin_batches *out, dunlin_error *error)
{
    DUNLIN_TRY(take_options(from, out_options, error));
    const int64_t batch = out_options->batch == 0 ? trainer_batch : out_options->batch;
    if (batch < 1 || batch > trainer_batch) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "a fit in batches of %" PRId64
                            " is asked for; the trainer takes 1 to %" PRId64,
                            batch, trainer_batch);
    }
    const bool is_dropping =
        out_options->drop_last || out_options->remainder == DUNLIN_REMAINDER_DROP;
    *out = (dunlin_batches){.n_epoch = is_dropping ? n_examples / batch * batch : n_examples,
                            .batch = batch,
                            .epochs = out_options->epochs,
                            .max_steps = out_options->max_steps,
                            .is_joining = out_options->remainder == DUNLIN_REMAINDER_JOIN};
    if (out->n_epoch == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "drop_last leaves nothing of %" PRId64
                            " examples in batches of %" PRId64,
                            n_examples, batch);
    }
    const int64_t most = dunlin_joined_batch(n_examples, batch);
    if (out->is_joining && most > trainer_batch) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "the last batch of %" PRId64 " examples would be %" PRId64
                            " with what is left over; the trainer takes up to %" PRId64,
                            n_examples, most, trainer_batch);
    }
    return DUNLIN_OK;
}

int64_t dunlin_joined_batch(int64_t n_examples, int64_t batch)
{
    if (batch < 1 || n_examples < batch) {
        return batch;
    }
    const int64_t rest = n_examples % batch;
    return rest < batch - rest ? batch + rest : batch;
}

int64_t dunlin__batches_size(const dunlin_batches *batches, int64_t position)
{
    const int64_t left = batches->n_epoch - position;
    const int64_t batch = batches->batch;
    const int64_t over = left - batch;
    if (over <= 0 || (batches->is_joining && over < batch - over)) {
        return left;
    }
    return batch;
}

int64_t dunlin_epoch_steps(int64_t n_examples, int64_t batch, dunlin_remainder remainder)
{
    const int64_t whole = n_examples / batch;
    const int64_t rest = n_examples % batch;
    const bool is_joined = remainder == DUNLIN_REMAINDER_JOIN && whole > 0 && rest < batch - rest;
    return whole + (rest > 0 && !is_joined && remainder != DUNLIN_REMAINDER_DROP ? 1 : 0);
}

/* Steps over the last n examples of an epoch, of which nothing is left out. */
static int64_t count_steps(const dunlin_batches *batches, int64_t n)
{
    return dunlin_epoch_steps(n, batches->batch,
                              batches->is_joining ? DUNLIN_REMAINDER_JOIN : DUNLIN_REMAINDER_KEEP);
}

bool dunlin__batches_advance(const dunlin_batches *batches, dunlin_fit_cursor *cursor, int64_t n)
{
    cursor->position += n;
    if (cursor->position >= batches->n_epoch) {
        cursor->position = 0;
        cursor->epoch++;
    }
    cursor->is_done = cursor->epoch >= batches->epochs;
    return !cursor->is_done;
}

int64_t dunlin__batches_total(const dunlin_batches *batches, const dunlin_fit_cursor *cursor)
{
    const int64_t batch = batches->batch;
    const int64_t n_epochs = batches->epochs - cursor->epoch;
    const int64_t epoch_steps = count_steps(batches, batches->n_epoch);
    const int64_t n_first = batches->n_epoch - cursor->position;
    const int64_t first_steps = count_steps(batches, n_first);
    int64_t total = 0;
    if (n_epochs < 1) {
        return 0;
    }
    if (!dunlin__mul_i64(n_epochs - 1, batches->n_epoch, &total) || total > INT64_MAX - n_first) {
        total = INT64_MAX - n_first;
    }
    total += n_first;
    const int64_t limit = batches->max_steps;
    if (limit == 0) {
        return total;
    }
    int64_t limited = limit < first_steps ? limit * batch : n_first;
    const int64_t more_steps = limit > first_steps ? limit - first_steps : 0;
    int64_t more = 0;
    const int64_t n_last = more_steps % epoch_steps * batch;
    if (!dunlin__mul_i64(more_steps / epoch_steps, batches->n_epoch, &more) ||
        more > INT64_MAX - n_last - limited) {
        return total;
    }
    limited += more + n_last;
    return limited < total ? limited : total;
}

/*
 * cursor.c - the progress of a run: kept in checkpoints, and the learning rate that follows from
 * it.
 */
#include "run.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A run's place is kept in the checkpoint, so that a resumed run ends with the same weights.
 * Numbers have a fixed width: the property, which counts against the budget, is set before the
 * first step and does not grow.
 */
#define CURSOR_FORMAT "%011" PRId64 " %011" PRId64 " %011" PRId64 " %011" PRId64 " %s"

/* What was kept from training, and the seed that drew it; of a run without --validation nothing is
 * kept. */
#define SPLIT_FORMAT "%011" PRId64 " %020" PRIu64
#define SPLIT_BYTES 48

static void write_split(const train_flags *flags, int64_t n_validation, char out[SPLIT_BYTES])
{
    (void)snprintf(out, SPLIT_BYTES, SPLIT_FORMAT, n_validation,
                   n_validation > 0 ? flags->held_out.seed : 0);
}

/* The same examples are kept from training as in the run so far: others were trained on. */
static int check_split(const train_flags *flags, const dunlin_trainer *trainer,
                       int64_t n_validation)
{
    char ours[SPLIT_BYTES];
    const char *text = dunlin_trainer_property(trainer, "train.split");
    write_split(flags, n_validation, ours);
    char *rest = NULL;
    const int64_t n = text == NULL ? 0 : strtoll(text, &rest, 10);
    const uint64_t seed = text == NULL ? 0 : strtoull(rest, NULL, 10);
    if (text == NULL ? n_validation == 0 : strcmp(text, ours) == 0) {
        return EXIT_OK;
    }
    return program_refuse(&train_program, DUNLIN_MISMATCH,
                          "--resume %s: the run kept %" PRId64 " examples for validation (seed "
                          "%" PRIu64 "), this one %" PRId64 " (seed %" PRIu64
                          "): examples that were trained on say nothing",
                          flags->resume, n, seed, n_validation, flags->seed);
}

int train_read_cursor(const train_flags *flags, dunlin_trainer *trainer, int64_t n_train,
                      int64_t n_validation, dunlin_fit_cursor *out_cursor)
{
    const char *text = dunlin_trainer_property(trainer, "train.cursor");
    if (text == NULL) {
        return EXIT_OK;
    }
    char *rest = NULL;
    int64_t n = strtoll(text, &rest, 10);
    int64_t batch = strtoll(rest, &rest, 10);
    dunlin_fit_cursor cursor = {.epoch = strtoll(rest, &rest, 10)};
    cursor.position = strtoll(rest, &rest, 10);
    const char *dataset = rest[0] == ' ' ? rest + 1 : rest;
    if (strcmp(dataset, flags->choice.name) == 0 &&
        check_split(flags, trainer, n_validation) != EXIT_OK) {
        return EXIT_FAILED;
    }
    bool is_same = strcmp(dataset, flags->choice.name) == 0 && n == n_train &&
                   batch == flags->batch && cursor.epoch >= 0 && cursor.position >= 0 &&
                   cursor.position <= n_train;
    if (is_same) {
        *out_cursor = cursor;
    } else {
        printf("the checkpoint is of another run (%s, %" PRId64 " examples, batch %" PRId64
               "): its weights are kept, the epochs begin anew\n",
               dataset, n, batch);
    }
    return EXIT_OK;
}

dunlin_status train_write_cursor(const train_flags *flags, dunlin_trainer *trainer, int64_t n_train,
                                 int64_t n_validation, const dunlin_fit_cursor *cursor)
{
    char text[128];
    if (n_validation > 0 || dunlin_trainer_property(trainer, "train.split") != NULL) {
        char split[SPLIT_BYTES];
        write_split(flags, n_validation, split);
        const dunlin_status status = dunlin_trainer_set_property(trainer, "train.split", split);
        if (status != DUNLIN_OK) {
            return status;
        }
    }
    (void)snprintf(text, sizeof text, CURSOR_FORMAT, n_train, flags->batch, cursor->epoch,
                   cursor->position, flags->choice.name);
    return dunlin_trainer_set_property(trainer, "train.cursor", text);
}

/* Examples of so many steps from a place in an epoch on; 0: too many to count. */
static int64_t examples_of(const train_flags *flags, const train_length *run, int64_t n_train,
                           int64_t position, int64_t n_steps)
{
    const int64_t epoch_examples = flags->drop_last ? run->epoch_steps * flags->batch : n_train;
    const int64_t first = position / flags->batch;
    int64_t n = 0;
    if (__builtin_mul_overflow((first + n_steps) / run->epoch_steps, epoch_examples, &n) ||
        __builtin_add_overflow(n, (first + n_steps) % run->epoch_steps * flags->batch, &n)) {
        return 0;
    }
    return n - position;
}

int64_t train_epoch_steps(const train_flags *flags, int64_t n_train)
{
    return (n_train + (flags->drop_last ? 0 : flags->batch - 1)) / flags->batch;
}

train_length train_find_length(const train_flags *flags, int64_t n_train,
                               const dunlin_fit_cursor *cursor)
{
    train_length found = {.epoch_steps = train_epoch_steps(flags, n_train)};
    bool is_by_steps = flags->has_steps && !flags->has_epochs;
    int64_t epochs_steps = 0;
    if (__builtin_mul_overflow(found.epoch_steps, flags->epochs, &epochs_steps)) {
        epochs_steps = INT64_MAX;
    }
    found.decay_steps = is_by_steps ? flags->steps : epochs_steps;
    found.run_steps = found.decay_steps;
    if (flags->has_steps && flags->steps < found.run_steps) {
        found.run_steps = flags->steps;
    }
    found.left_steps = found.run_steps;
    if (!is_by_steps && found.epoch_steps > 0) {
        const int64_t done = cursor->epoch * found.epoch_steps + cursor->position / flags->batch;
        const int64_t left = done < epochs_steps ? epochs_steps - done : 0;
        found.left_steps = left < found.run_steps ? left : found.run_steps;
    }
    if (found.epoch_steps > 0 && found.left_steps < INT64_MAX / 2) {
        found.left_examples =
            examples_of(flags, &found, n_train, cursor->position, found.left_steps);
    }
    return found;
}

/*
 * The rate of a step follows from its place in the whole run, so a run that is resumed goes on as
 * it would have; counted from the start of this run where --steps alone says how long it is, or
 * where a checkpoint of another run was resumed.
 */
dunlin_status train_set_schedule(const train_flags *flags, dunlin_trainer *trainer,
                                 const train_length *run, const dunlin_fit_cursor *cursor)
{
    int64_t done = cursor->epoch * run->epoch_steps + cursor->position / flags->batch;
    if (flags->has_steps && !flags->has_epochs) {
        done = 0;
    }
    if (train_is_integer(flags)) {
        return train_set_bits(flags, trainer, run->decay_steps);
    }
    int64_t n_steps = dunlin_trainer_n_steps(trainer);
    const dunlin_schedule schedule = {
        .struct_size = sizeof schedule,
        .kind = flags->schedule_value,
        .warmup_steps = flags->warmup_steps,
        .period_steps = flags->period_steps > 0 ? flags->period_steps : run->epoch_steps,
        .total_steps = run->decay_steps,
        .gamma = flags->gamma,
        .min_lr = flags->min_lr,
        .first_step = n_steps > done ? n_steps - done : 0,
    };
    return dunlin_trainer_set_schedule(trainer, &schedule);
}

/*
 * split.c - --validation: some of the training examples, drawn by the seed, are not trained on but
 * evaluated beside the test split.
 *
 * Invariant: which examples are drawn depends on the data set, their number and the seed alone, so
 * a run that is resumed draws the same ones. Both parts stay in the data set's order.
 */
#include "train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int train_check_validation(train_flags *flags)
{
    if (flags->validation == NULL) {
        return EXIT_OK;
    }
    if (flags->is_plan_only || flags->is_max_batch || flags->is_what_fits) {
        return program_misuse(&train_program, "--validation goes with a run, not with --plan-only, "
                                              "--max-batch or --what-fits");
    }
    char *rest = NULL;
    errno = 0;
    const bool is_begun = flags->validation[0] >= '0' && flags->validation[0] <= '9';
    const double number = strtod(flags->validation, &rest);
    const bool is_number = is_begun && errno == 0 &&
                           strspn(flags->validation, "0123456789.%") == strlen(flags->validation);
    if (is_number && strcmp(rest, "%") == 0 && number > 0.0 && number < 100.0) {
        flags->validation_share = number / 100.0;
        return EXIT_OK;
    }
    flags->n_validation = is_begun ? strtoll(flags->validation, &rest, 10) : 0;
    return is_number && *rest == '\0' && flags->n_validation >= 1
               ? EXIT_OK
               : program_misuse(&train_program,
                                "--validation %s: expected a share between 0%% and 100%%, as 10%%, "
                                "or a number of examples from 1",
                                flags->validation);
}

/* Of a splitmix64 generator: Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014. */
static uint64_t next_random(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15U;
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31);
}

/* The `n_drawn` of n examples that are drawn go after the others, both in ascending order: each
 * example is drawn with the share of what is still wanted among those left. */
static void draw(uint64_t seed, int64_t n, int64_t n_drawn, int64_t *out_indices)
{
    uint64_t state = seed;
    int64_t n_kept = 0;
    int64_t n_wanted = n_drawn;
    for (int64_t i = 0; i < n; i++) {
        const double place = (double)(next_random(&state) >> 11) / 9007199254740992.0;
        const bool is_drawn = place * (double)(n - i) < (double)n_wanted;
        if (is_drawn) {
            out_indices[n - n_wanted] = i;
            n_wanted--;
        } else {
            out_indices[n_kept++] = i;
        }
    }
}

int train_split_open(const train_flags *flags, const dunlin_dataset *dataset, train_split *out)
{
    const int64_t n = dunlin_dataset_n_examples(dataset);
    *out = (train_split){.n_train = n};
    dunlin_dataset_source(dataset, &out->train);
    if (flags->validation == NULL) {
        return EXIT_OK;
    }
    const int64_t share = (int64_t)(flags->validation_share * (double)n + 0.5);
    const int64_t n_drawn = flags->n_validation > 0 ? flags->n_validation : share;
    if (n_drawn < 1 || n_drawn >= n) {
        return program_refuse(&train_program, DUNLIN_DATA,
                              "--validation %s: %" PRId64 " of %" PRId64
                              " examples leave none to train on, or none to evaluate",
                              flags->validation, n_drawn, n);
    }
    out->indices = malloc((size_t)n * sizeof *out->indices);
    if (out->indices == NULL) {
        return program_refuse(&train_program, DUNLIN_MEMORY,
                              "no memory for the indices of %" PRId64 " examples", n);
    }
    draw(flags->seed, n, n_drawn, out->indices);
    out->n_train = n - n_drawn;
    out->n_validation = n_drawn;
    const dunlin_status train_status =
        dunlin_dataset_subset(dataset, out->indices, out->n_train, &out->train_view, &out->train);
    const dunlin_status status =
        dunlin_dataset_subset(dataset, out->indices + out->n_train, out->n_validation,
                              &out->validation_view, &out->validation);
    return train_status == DUNLIN_OK && status == DUNLIN_OK
               ? EXIT_OK
               : program_refuse(&train_program, DUNLIN_INTERNAL,
                                "the data set cannot be split into %" PRId64 " and %" PRId64
                                " examples",
                                out->n_train, out->n_validation);
}

void train_split_close(train_split *split)
{
    free(split->indices);
    split->indices = NULL;
}

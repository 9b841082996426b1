/*
 * split.c - --validation: some of the training examples, drawn by the seed, are not trained on but
 * evaluated beside the test split.
 */
#include "train.h"

#include <dunlin/tools.h>

#include <inttypes.h>
#include <stdlib.h>

int train_check_validation(train_flags *flags)
{
    if (flags->validation == NULL) {
        return EXIT_OK;
    }
    if (flags->is_plan_only || flags->is_max_batch || flags->is_what_fits) {
        return program_misuse(&train_program, "--validation goes with a run, not with --plan-only, "
                                              "--max-batch or --what-fits");
    }
    flags->held_out = (dunlin_validation)DUNLIN_VALIDATION_INIT;
    flags->held_out.seed = flags->seed;
    return dunlin_tools_parse_validation(flags->validation, &flags->held_out, NULL)
               ? EXIT_OK
               : program_misuse(&train_program,
                                "--validation %s: expected a share between 0%% and 100%%, as 10%%, "
                                "or a number of examples from 1; :writers and :seed=S may follow",
                                flags->validation);
}

int train_split_open(const train_flags *flags, const dunlin_dataset *dataset, train_split *out)
{
    const int64_t n = dunlin_dataset_n_examples(dataset);
    *out = (train_split){.n_train = n};
    dunlin_dataset_source(dataset, &out->train);
    if (flags->validation == NULL) {
        return EXIT_OK;
    }
    const dunlin_validation *how = &flags->held_out;
    const int64_t share = (int64_t)(how->share * (double)n + 0.5);
    const int64_t n_drawn = how->n_examples > 0 ? how->n_examples : share;
    if (!how->by_client && (n_drawn < 1 || n_drawn >= n)) {
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
    dunlin_error error = {0};
    if (dunlin_dataset_hold_out(dataset, how, out->indices, &out->n_train, &error) != DUNLIN_OK) {
        return program_refuse(&train_program, error.status, "--validation %s: %s",
                              flags->validation, error.text);
    }
    out->n_validation = n - out->n_train;
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

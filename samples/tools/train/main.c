/*
 * main.c - dunlin-train: trains one model within a byte budget, or only plans it.
 */
#include "common/process.h"
#include "common/progress.h"
#include "object.h"
#include "train.h"

#include <dunlin/pixels.h>
#include <dunlin/trainer_advanced.h>

#include <string.h>

/* --plan-only: the estimate; with --plan-dump a trainer is made, since the drawing is of its plan.
 */
static int plan_only(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    const int index_status = train_plan_index(flags, model, result);
    if (index_status != EXIT_OK) {
        return index_status;
    }
    dunlin_trainer_options options = train_options(flags);
    options.costs = result->costs;
    dunlin_error error = {0};
    progress line;
    progress_begin(&line, "planning", NULL);
    const dunlin_status status = dunlin_trainer_estimate(model, &options, &result->report, &error);
    progress_end(&line);
    if (status != DUNLIN_OK) {
        return train_fail(&error);
    }
    train_print_plan(flags, result);
    if (flags->plan_dump == NULL) {
        return EXIT_OK;
    }
    dunlin_trainer *trainer = NULL;
    if (dunlin_trainer_create(model, &options, &trainer, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    int exit_status = train_dump_plan(flags, trainer, result);
    dunlin_trainer_destroy(trainer);
    return exit_status;
}

/* What was asked for, of a model that could be opened. */
static int answer(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    if (flags->is_max_batch) {
        return train_max_batch(flags, model, result);
    }
    if (flags->is_what_fits) {
        return train_what_fits(flags, model, result);
    }
    return flags->is_plan_only ? plan_only(flags, model, result) : train_run(flags, model, result);
}

/* The result of everything but --list, whose JSON is its own. */
static int open_and_answer(const train_flags *flags, train_result *result, bool *out_is_told)
{
    dunlin_model *model = NULL;
    dunlin_costs *costs = NULL;
    int exit_status = train_open_model(flags, &model);
    if (exit_status != EXIT_OK) {
        return exit_status;
    }
    if (flags->is_list) {
        exit_status = train_list(flags, model);
        *out_is_told = exit_status == EXIT_OK;
        dunlin_model_destroy(model);
        return exit_status;
    }
    const dunlin_shape shape = dunlin_model_input_shape(model);
    result->image = shape.n_dims == 3 ? shape.dims[1] : 0;
    result->n_params = dunlin_model_n_trainable_elements(model);
    result->n_outputs = dunlin_model_n_outputs(model);
    train_name_scores(model, result);
    result->n_labels = dunlin_model_n_labels(model);
    result->predicts_tokens = dunlin_model_vocabulary(model) > 0 && shape.n_dims == 1 &&
                              result->n_labels == shape.dims[0] && result->n_labels > 1;
    exit_status = train_fit_tops(flags, result->n_outputs);
    if (exit_status == EXIT_OK) {
        exit_status = train_open_costs(flags, model, &costs, &result->costs_name);
    }
    result->costs = costs;
    if (exit_status == EXIT_OK) {
        exit_status = answer(flags, model, result);
    }
    result->costs = NULL;
    dunlin_costs_free(costs);
    dunlin_model_destroy(model);
    return exit_status == EXIT_OK && result->is_log_lost ? EXIT_FAILED : exit_status;
}

int main(int argc, char **argv)
{
    train_flags flags;
    train_result result = {.report = DUNLIN_TRAINER_REPORT_INIT};
    bool is_told = false; /* there is nothing more to write */
    process_give_back_large();
    const args_result parsed = train_parse(argc, argv, &flags);
    int exit_status = parsed.exit_status;
    if (!parsed.is_done) {
        if (flags.json != NULL && strcmp(flags.json, "-") == 0) {
            progress_forbid();
        }
        exit_status = open_and_answer(&flags, &result, &is_told);
    } else {
        is_told = exit_status == EXIT_OK;
    }
    exit_status = is_told ? exit_status : train_write_json(&flags, &result, exit_status);
    json_decref(result.scales);
    return exit_status;
}

/*
 * main.c - dunlin-train: trains one model within a byte budget, or only plans it.
 */
#include "train.h"

/* --plan-only: the estimate; with --plan-dump a trainer is made, since the drawing is of its plan.
 */
static int plan_only(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_trainer_options options = train_options(flags);
    options.costs = result->costs;
    dunlin_error error = {0};
    if (dunlin_trainer_estimate(model, &options, &result->report, &error) != DUNLIN_OK) {
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

int main(int argc, char **argv)
{
    train_flags flags;
    args_result parsed = train_parse(argc, argv, &flags);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    dunlin_model *model = NULL;
    int exit_status = train_open_model(&flags, &model);
    if (exit_status != EXIT_OK) {
        return exit_status;
    }
    if (flags.is_list) {
        exit_status = train_list(&flags, model);
        dunlin_model_destroy(model);
        return exit_status;
    }
    train_result result = {.report = DUNLIN_TRAINER_REPORT_INIT};
    dunlin_shape shape = dunlin_model_input_shape(model);
    result.image = shape.n_dims == 3 ? shape.dims[1] : 0;
    result.n_params = dunlin_model_n_trainable_elements(model);
    result.n_outputs = dunlin_model_n_outputs(model);
    dunlin_costs *costs = NULL;
    exit_status = train_open_costs(&flags, model, &costs, &result.costs_name);
    result.costs = costs;
    if (exit_status != EXIT_OK) {
        dunlin_model_destroy(model);
        return exit_status;
    }
    if (flags.is_max_batch) {
        exit_status = train_max_batch(&flags, model, &result);
    } else if (flags.is_what_fits) {
        exit_status = train_what_fits(&flags, model, &result);
    } else if (flags.is_plan_only) {
        exit_status = plan_only(&flags, model, &result);
    } else {
        exit_status = train_run(&flags, model, &result);
    }
    dunlin_costs_free(costs);
    dunlin_model_destroy(model);
    if (exit_status == EXIT_OK || result.refusal[0] != '\0') {
        const int json_status = train_write_json(&flags, &result);
        exit_status = exit_status == EXIT_OK ? json_status : exit_status;
    }
    return exit_status == EXIT_OK && result.is_log_lost ? EXIT_FAILED : exit_status;
}

/*
 * main.c - dunlin-train: trains one model within a byte budget, or only plans it.
 */
#include "train.h"

#include <inttypes.h>
#include <stdio.h>

/* --plan-only: the estimate; with --plan-dump a trainer is made, since the drawing is of its plan.
 */
static int plan_only(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_trainer_options options = train_options(flags);
    dunlin_error error = {0};
    if (dunlin_trainer_estimate(model, &options, &result->report, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    train_print_plan(flags, &result->report);
    if (flags->plan_dump == NULL) {
        return EXIT_OK;
    }
    dunlin_trainer *trainer = NULL;
    if (dunlin_trainer_create(model, &options, &trainer, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    int exit_status = train_dump_plan(flags, trainer);
    dunlin_trainer_destroy(trainer);
    return exit_status;
}

static int max_batch(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_trainer_options options = train_options(flags);
    dunlin_error error = {0};
    bool is_unbounded = false;
    int64_t batch = 0;
    if (dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    result->has_max_batch = true;
    result->max_batch = is_unbounded ? 0 : batch;
    if (!is_unbounded) {
        options.batch = batch;
    }
    if (dunlin_trainer_estimate(model, &options, &result->report, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    if (is_unbounded) {
        printf("largest batch: unbounded\n");
    } else {
        printf("largest batch: %" PRId64 "\n", batch);
    }
    train_print_plan(flags, &result->report);
    return EXIT_OK;
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
    train_result result = {.report = DUNLIN_TRAINER_REPORT_INIT};
    dunlin_shape shape = dunlin_model_input_shape(model);
    result.image = shape.n_dims == 3 ? shape.dims[1] : 0;
    result.n_params = dunlin_model_n_trainable_elements(model);
    result.n_outputs = dunlin_model_n_outputs(model);
    if (flags.is_max_batch) {
        exit_status = max_batch(&flags, model, &result);
    } else if (flags.is_plan_only) {
        exit_status = plan_only(&flags, model, &result);
    } else {
        exit_status = train_run(&flags, model, &result);
    }
    dunlin_model_destroy(model);
    if (exit_status == EXIT_OK) {
        exit_status = train_write_json(&flags, &result);
    }
    return exit_status;
}

/*
 * 01_train_local.c - train a network on this device within a byte budget.
 *
 * Teaches when memory is taken and given back: estimate (nothing is kept), create (all memory is
 * taken), fit and evaluate (no allocation), destroy. The data set is synthetic: handwriting-like
 * glyphs, drawn by the library of tools. Usage: sample-01_train_local [BUDGET_BYTES]
 *
 * Expected output (figures depend on the machine's instruction set):
 *   a step on 32 examples takes 2094532 bytes, in slices of 32; the least budget is 1029988
 *   test accuracy before 9.6 %, after 88.6 %; peak 2094532 of 2097152 bytes
 */
#include <dunlin/dataset.h>
#include <dunlin/tools.h>
#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const dunlin_error *error)
{
    fprintf(stderr, "01_train_local: %s\n", error->text);
    return 1;
}

/* Trains for one epoch; evaluates before and after. */
static int train(dunlin_trainer *trainer, const dunlin_dataset *train_set,
                 const dunlin_dataset *test_set)
{
    /* A source hands examples to the trainer by index; data sets come with one. */
    dunlin_source train_source;
    dunlin_source test_source;
    dunlin_dataset_source(train_set, &train_source);
    dunlin_dataset_source(test_set, &test_source);

    dunlin_metrics before;
    dunlin_metrics after;
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 1;
    int64_t n_test = test_source.n_examples;
    if (dunlin_trainer_evaluate(trainer, &test_source, 0, n_test, &before) != DUNLIN_OK ||
        dunlin_trainer_fit(trainer, &train_source, &fit, NULL, NULL) != DUNLIN_OK ||
        dunlin_trainer_evaluate(trainer, &test_source, 0, n_test, &after) != DUNLIN_OK) {
        return fail(dunlin_trainer_last_error(trainer));
    }
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    if (dunlin_trainer_get_report(trainer, &report) != DUNLIN_OK) {
        return fail(dunlin_trainer_last_error(trainer));
    }
    printf("test accuracy before %.1f %%, after %.1f %%; peak %" PRIu64 " of %" PRIu64 " bytes\n",
           100.0 * before.accuracy, 100.0 * after.accuracy, report.peak_bytes, report.budget_bytes);
    return after.accuracy > before.accuracy && report.peak_bytes <= report.budget_bytes ? 0 : 1;
}

int main(int argc, char **argv)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 32;
    options.lr = 0.01F;
    options.momentum = 0.9F;
    options.budget_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 2097152;

    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_dataset *train_set = NULL;
    dunlin_dataset *test_set = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_trainer_report plan = DUNLIN_TRAINER_REPORT_INIT;
    int exit_status = 1;
    dunlin_dataset_options data = DUNLIN_DATASET_OPTIONS_INIT;
    data.n_writers = 120; /* of the 240 there usually are: this is a short lesson */
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK ||
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &data, NULL, &train_set,
                                  &error) != DUNLIN_OK ||
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &test_set,
                                  &error) != DUNLIN_OK ||
        dunlin_trainer_estimate(model, &options, &plan, &error) != DUNLIN_OK) {
        /* A budget that cannot work is refused here, and the text names the least that does. */
        exit_status = fail(&error);
    } else {
        printf("a step on %" PRId64 " examples takes %" PRIu64 " bytes, in slices of %" PRId64
               "; the least budget is %" PRIu64 "\n",
               plan.batch, plan.planned_bytes, plan.micro_batch, plan.least_budget_bytes);
        exit_status = dunlin_trainer_create(model, &options, &trainer, &error) == DUNLIN_OK
                          ? train(trainer, train_set, test_set)
                          : fail(&error);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_dataset_close(test_set);
    dunlin_dataset_close(train_set);
    dunlin_model_destroy(model);
    return exit_status;
}

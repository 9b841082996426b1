/*
 * budget_support.c - trainers whose bytes a counter of the test knows.
 */
#include "budget_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

dunlin_trainer *budget_create_counted(const dunlin_model *model, dunlin_trainer_options *options,
                                      dunlin_alloc_counter *counter)
{
    dunlin_alloc_counter_init(counter, NULL);
    options->alloc = counter->hooks;
    return test_create(model, options);
}

void budget_run_steps(dunlin_trainer *trainer, const dunlin_model *model, int64_t batch)
{
    test_source source;
    test_source_init(&source, model, 3 * batch, DUNLIN_F32);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 2 * batch, NULL), DUNLIN_OK);
}

dunlin_trainer_report budget_report_of(const dunlin_trainer *trainer)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    return report;
}

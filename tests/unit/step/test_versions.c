/*
 * test_versions.c - apps that were compiled with yesterday's or tomorrow's header of the trainer.
 */
#include <dunlin/dataset.h>
#include <dunlin/model.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stddef.h>
#include <string.h>

/* Tomorrow's structs have a member more. */
typedef struct newer_options {
    dunlin_trainer_options now;
    uint64_t wish;
} newer_options;

typedef struct newer_report {
    dunlin_trainer_report now;
    uint64_t more;
} newer_report;

typedef struct newer_fit {
    dunlin_fit_options now;
    uint64_t wish;
} newer_fit;

static dunlin_model *make_model(void)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

Test(versions, a_newer_app_is_served_as_long_as_it_asks_for_nothing_new)
{
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    newer_options options = {.now = DUNLIN_TRAINER_OPTIONS_INIT};
    options.now.struct_size = sizeof options;
    options.now.batch = 4;
    cr_assert_eq(dunlin_trainer_create(model, &options.now, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    newer_report report;
    memset(&report, 0xAA, sizeof report);
    report.now.struct_size = sizeof report;
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report.now), DUNLIN_OK);
    cr_expect_eq(report.now.batch, 4);
    cr_expect_eq(report.now.struct_size, sizeof report);
    cr_expect_eq(report.more, 0, "what the library does not know is zero");
    dunlin_trainer_destroy(trainer);

    options.wish = 1;
    trainer = NULL;
    cr_expect_eq(dunlin_trainer_create(model, &options.now, &trainer, &error), DUNLIN_VERSION);
    cr_expect_null(trainer);
    cr_expect_not_null(strstr(error.text, "dunlin_trainer_options"), "%s", error.text);
    dunlin_model_destroy(model);
}

Test(versions, an_older_app_gets_as_much_as_it_has_room_for)
{
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 4;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK);
    dunlin_trainer_report report;
    memset(&report, 0xAA, sizeof report);
    report.struct_size = offsetof(dunlin_trainer_report, peak_bytes);
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    cr_expect_gt(report.planned_bytes, 0);
    cr_expect_eq(report.peak_bytes, 0xAAAAAAAAAAAAAAAAu, "beyond its end nothing is written");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(versions, a_size_that_is_none_names_the_struct_and_its_init)
{
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = NULL;
    dunlin_dataset *data = NULL;
    dunlin_error error = {0};
    dunlin_trainer_options options = {.batch = 4};
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_TRAINER_OPTIONS_INIT"), "%s", error.text);
    dunlin_dataset_options nothing = {.struct_size = 0};
    cr_expect_eq(
        dunlin_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, &nothing, NULL, &data, &error),
        DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_DATASET_OPTIONS_INIT"), "%s", error.text);
    dunlin_model_destroy(model);
}

Test(versions, a_fit_of_a_newer_app)
{
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = NULL;
    dunlin_dataset *data = NULL;
    dunlin_source source;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 4;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &data, NULL),
                 DUNLIN_OK);
    dunlin_dataset_source(data, &source);
    newer_fit fit = {.now = DUNLIN_FIT_OPTIONS_INIT};
    fit.now.struct_size = sizeof fit;
    fit.now.max_steps = 1;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source, &fit.now, NULL, NULL), DUNLIN_OK);
    fit.wish = 7;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source, &fit.now, NULL, NULL), DUNLIN_VERSION);
    cr_expect_eq(dunlin_trainer_n_steps(trainer), 1, "nothing was trained");
    dunlin_trainer_destroy(trainer);
    dunlin_dataset_close(data);
    dunlin_model_destroy(model);
}

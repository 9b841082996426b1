/*
 * test_versions.c - apps that were compiled with yesterday's or tomorrow's header of the trainer.
 */
#include <dunlin/dataset.h>
#include <dunlin/model.h>
#include <dunlin/tools.h>
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
    cr_expect_eq(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, &nothing, NULL,
                                           &data, &error),
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
    cr_assert_eq(
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &data, NULL),
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

/* A source of tomorrow's app; the library may not call what it does not know. */
typedef struct newer_source {
    dunlin_source now;
    void (*more_fn)(void *ctx);
} newer_source;

static void never_called(void *ctx)
{
    (void)ctx;
}

Test(versions, a_source_of_a_newer_and_of_an_older_app)
{
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = NULL;
    dunlin_dataset *data = NULL;
    const int64_t indices[4] = {0, 1, 2, 3};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 4;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_OK);
    cr_assert_eq(
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &data, NULL),
        DUNLIN_OK);
    newer_source source;
    memset(&source, 0xAA, sizeof source);
    dunlin_dataset_fill_source(data, &source.now, sizeof source);
    cr_expect_eq(source.now.struct_size, sizeof source);
    cr_expect_null(source.more_fn, "what the library does not know is zero");
    cr_expect_eq(dunlin_trainer_step(trainer, &source.now, indices, 4, NULL), DUNLIN_OK);
    source.more_fn = never_called;
    cr_expect_eq(dunlin_trainer_step(trainer, &source.now, indices, 4, NULL), DUNLIN_VERSION);
    cr_expect_not_null(strstr(dunlin_trainer_last_error(trainer)->text, "dunlin_source"));
    cr_expect_eq(dunlin_trainer_n_steps(trainer), 1, "nothing was trained");

    dunlin_source older;
    memset(&older, 0xAA, sizeof older);
    dunlin_dataset_fill_source(data, &older, offsetof(dunlin_source, weight_fn));
    cr_expect_eq(older.struct_size, offsetof(dunlin_source, weight_fn));
    cr_expect_eq((uint64_t)older.n_targets, 0xAAAAAAAAAAAAAAAAu,
                 "beyond its end nothing is written");
    cr_expect_eq(dunlin_trainer_step(trainer, &older, indices, 4, NULL), DUNLIN_OK);
    older.struct_size = 0;
    cr_expect_eq(dunlin_trainer_step(trainer, &older, indices, 4, NULL), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(dunlin_trainer_last_error(trainer)->text, "DUNLIN_SOURCE_INIT"));
    dunlin_trainer_destroy(trainer);
    dunlin_dataset_close(data);
    dunlin_model_destroy(model);
}

typedef struct newer_zoo {
    dunlin_zoo_options now;
    int32_t wish;
} newer_zoo;

typedef struct newer_conv {
    dunlin_conv_options now;
    int64_t wish;
} newer_conv;

/* The status that a network ends with whose one convolution has these options. */
static dunlin_status finish_conv(const dunlin_conv_options *options, dunlin_error *error)
{
    const dunlin_shape image = {.n_dims = 3, .dims = {1, 8, 8}};
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "image", &image);
    x = dunlin_builder_conv(builder, "conv", x, 4, 3, options);
    x = dunlin_builder_dense(builder, "dense", dunlin_builder_flatten(builder, x), 10);
    const dunlin_status status = dunlin_builder_finish(builder, x, &model, error);
    dunlin_model_destroy(model);
    return status;
}

Test(versions, options_of_networks)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    newer_zoo zoo = {.now = DUNLIN_ZOO_OPTIONS_INIT};
    zoo.now.struct_size = sizeof zoo;
    zoo.now.classes = 7;
    cr_assert_eq(dunlin_model_from_zoo("lenet5", &zoo.now, NULL, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_eq(dunlin_model_n_outputs(model), 7);
    dunlin_model_destroy(model);
    zoo.wish = 1;
    cr_expect_eq(dunlin_model_from_zoo("lenet5", &zoo.now, NULL, &model, &error), DUNLIN_VERSION);
    cr_expect_null(model);
    const dunlin_zoo_options sizeless = {.classes = 7};
    cr_expect_eq(dunlin_model_from_zoo("lenet5", &sizeless, NULL, &model, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_ZOO_OPTIONS_INIT"), "%s", error.text);

    newer_conv conv = {.now = DUNLIN_CONV_OPTIONS_INIT};
    conv.now.struct_size = sizeof conv;
    conv.now.padding = 1;
    cr_expect_eq(finish_conv(&conv.now, &error), DUNLIN_OK, "%s", error.text);
    conv.wish = 1;
    cr_expect_eq(finish_conv(&conv.now, &error), DUNLIN_VERSION);
    cr_expect_not_null(strstr(error.text, "dunlin_conv_options"), "%s", error.text);
    const dunlin_conv_options none = {.padding = 1};
    cr_expect_eq(finish_conv(&none, &error), DUNLIN_ARGUMENT);
}

Test(versions, a_schedule_of_a_newer_and_of_an_older_app)
{
    struct {
        dunlin_schedule now;
        double wish;
    } newer = {.now = DUNLIN_SCHEDULE_INIT};
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 4;
    options.lr = 0.5F;
    options.schedule = &newer.now;
    newer.now.struct_size = sizeof newer;
    newer.now.warmup_steps = 1;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_float_eq(dunlin_trainer_lr(trainer), 0.25, 1e-6);
    newer.now.struct_size = offsetof(dunlin_schedule, warmup_steps);
    cr_expect_eq(dunlin_trainer_set_schedule(trainer, &newer.now), DUNLIN_OK);
    cr_expect_float_eq(dunlin_trainer_lr(trainer), 0.5, 1e-6, "an older app knows no warm-up");
    newer.now.struct_size = sizeof newer;
    newer.wish = 1.0;
    cr_expect_eq(dunlin_trainer_set_schedule(trainer, &newer.now), DUNLIN_VERSION);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

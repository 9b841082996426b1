/*
 * test_parameters.c - lists of parameters: the use of each, and whether it is trained.
 */
#include "step/step_support.h"

#include <dunlin/parameters.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#define MAX_ENTRIES 512

typedef struct entries {
    dunlin_parameter_entry at[MAX_ENTRIES];
    int32_t n;
} entries;

static void take(void *ctx, const dunlin_parameter_entry *entry)
{
    entries *list = ctx;
    cr_assert_lt(list->n, MAX_ENTRIES);
    cr_assert_eq(entry->struct_size, sizeof *entry);
    list->at[list->n++] = *entry;
}

static const dunlin_parameter_entry *find(const entries *list, const char *name)
{
    for (int32_t i = 0; i < list->n; i++) {
        if (strcmp(list->at[i].name, name) == 0) {
            return &list->at[i];
        }
    }
    cr_assert_fail("%s is not listed", name);
    return NULL;
}

static dunlin_model *zoo(const char *name, const dunlin_zoo_options *options)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_from_zoo(name, options, NULL, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

static void list_model(const dunlin_model *model, const dunlin_trainer_options *options,
                       entries *out)
{
    dunlin_error error = {0};
    out->n = 0;
    cr_assert_eq(dunlin_model_list_parameters(model, options, take, out, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(out->n, dunlin_model_n_parameters(model));
    for (int32_t i = 0; i < out->n; i++) {
        dunlin_parameter_info info;
        cr_assert_eq(dunlin_model_parameter(model, i, &info), DUNLIN_OK);
        cr_expect_str_eq(out->at[i].name, info.name);
        cr_expect_eq(out->at[i].n_elements, info.n_elements);
        cr_assert_eq(out->at[i].shape.n_dims, info.shape.n_dims);
        for (int32_t d = 0; d < info.shape.n_dims; d++) {
            cr_expect_eq(out->at[i].shape.dims[d], info.shape.dims[d]);
        }
        cr_expect_eq(out->at[i].use == DUNLIN_USE_STATISTIC,
                     info.role == DUNLIN_PARAMETER_STATISTIC, "%s", info.name);
        cr_expect(out->at[i].use != DUNLIN_USE_STATISTIC || !out->at[i].is_trained);
    }
}

typedef struct expected_use {
    const char *name;
    dunlin_parameter_use use;
} expected_use;

static void expect_uses(const char *network, const dunlin_zoo_options *options,
                        const expected_use *expected, size_t n)
{
    static entries list;
    dunlin_model *model = zoo(network, options);
    list_model(model, NULL, &list);
    for (size_t i = 0; i < n; i++) {
        const dunlin_parameter_entry *entry = find(&list, expected[i].name);
        cr_expect_eq(entry->use, expected[i].use, "%s of %s is listed as %s", expected[i].name,
                     network, dunlin_parameter_use_name(entry->use));
        cr_expect_eq(entry->is_trained, expected[i].use != DUNLIN_USE_STATISTIC, "%s",
                     expected[i].name);
    }
    dunlin_model_destroy(model);
}

Test(parameters, uses_are_those_of_the_layers)
{
    static const expected_use resnet[] = {
        {"conv1.weight", DUNLIN_USE_WEIGHT},
        {"bn1.weight", DUNLIN_USE_NORM_SCALE},
        {"bn1.bias", DUNLIN_USE_NORM_SHIFT},
        {"bn1.running_mean", DUNLIN_USE_STATISTIC},
        {"bn1.running_var", DUNLIN_USE_STATISTIC},
        {"fc.weight", DUNLIN_USE_WEIGHT},
        {"fc.bias", DUNLIN_USE_BIAS},
    };
    const dunlin_zoo_options small = {
        .struct_size = sizeof(dunlin_zoo_options), .image = 32, .classes = 10};
    expect_uses("resnet18", &small, resnet, sizeof resnet / sizeof resnet[0]);
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    const dunlin_shape tokens = {.n_dims = 1, .dims = {4}};
    const dunlin_shape positions = {.n_dims = 2, .dims = {4, 6}};
    const dunlin_shape vector = {.n_dims = 1, .dims = {6}};
    dunlin_value x = dunlin_builder_input(builder, "x", &tokens);
    x = dunlin_builder_embedding(builder, "words", x, 9, 6);
    x = dunlin_builder_add_parameter(builder, "positions", x, &positions);
    x = dunlin_builder_add_parameter(builder, "shift", x, &vector);
    x = dunlin_builder_layer_norm(builder, "norm", x);
    x = dunlin_builder_mean(builder, x, 0);
    x = dunlin_builder_dense(builder, "head", x, 3);
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, &error), DUNLIN_OK, "%s", error.text);
    static entries list;
    list_model(model, NULL, &list);
    cr_expect_eq(find(&list, "words.weight")->use, DUNLIN_USE_TABLE);
    cr_expect_eq(find(&list, "positions")->use, DUNLIN_USE_POSITION);
    cr_expect_eq(find(&list, "shift")->use, DUNLIN_USE_BIAS);
    cr_expect_eq(find(&list, "norm.weight")->use, DUNLIN_USE_NORM_SCALE);
    cr_expect_eq(find(&list, "norm.bias")->use, DUNLIN_USE_NORM_SHIFT);
    cr_expect_eq(find(&list, "head.weight")->use, DUNLIN_USE_WEIGHT);
    dunlin_model_destroy(model);
}

Test(parameters, every_use_has_a_name_of_its_own)
{
    for (int i = 0; i < DUNLIN_N_USES; i++) {
        cr_assert_not_null(dunlin_parameter_use_name((dunlin_parameter_use)i));
        for (int k = 0; k < i; k++) {
            cr_expect_str_neq(dunlin_parameter_use_name((dunlin_parameter_use)i),
                              dunlin_parameter_use_name((dunlin_parameter_use)k));
        }
    }
    cr_expect_null(dunlin_parameter_use_name(DUNLIN_N_USES));
}

/* What the list says before and after creation is what a step does. */
Test(parameters, the_list_says_what_a_step_changes)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(8);
    static entries before, after;
    list_model(model, NULL, &before);
    char prefix[300];
    snprintf(prefix, sizeof prefix, "%s", before.at[0].name);
    options.frozen_prefixes = prefix;
    list_model(model, &options, &before);
    cr_assert_not(before.at[0].is_trained);
    dunlin_trainer *trainer = test_create(model, &options);
    after.n = 0;
    cr_assert_eq(dunlin_trainer_list_parameters(trainer, take, &after), DUNLIN_OK);
    cr_assert_eq(after.n, before.n);
    test_source source;
    test_source_init(&source, model, 8, DUNLIN_U8);
    static float old[1 << 16], new[1 << 16];
    const int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
    cr_assert_leq(n, 1 << 16);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, old), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, new), DUNLIN_OK);
    int64_t at = 0;
    for (int32_t i = 0; i < after.n; i++) {
        cr_expect_eq(after.at[i].is_trained, before.at[i].is_trained);
        cr_expect_eq(after.at[i].use, before.at[i].use);
        const size_t bytes = (size_t)after.at[i].n_elements * sizeof(float);
        const bool has_changed = memcmp(old + at, new + at, bytes) != 0;
        if (after.at[i].use != DUNLIN_USE_STATISTIC) {
            cr_expect_eq(has_changed, after.at[i].is_trained, "%s", after.at[i].name);
        }
        at += after.at[i].n_elements;
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(parameters, refusals_name_what_is_missing)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(8);
    dunlin_error error = {0};
    static entries list;
    options.frozen_prefixes = "nowhere.";
    cr_expect_eq(dunlin_model_list_parameters(model, &options, take, &list, &error),
                 DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "nowhere."), "%s", error.text);
    cr_expect_eq(dunlin_model_list_parameters(NULL, NULL, take, &list, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_model_list_parameters(model, NULL, NULL, &list, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(list.n, 0);
    dunlin_model_destroy(model);
}

/*
 * test_groups.c - which parameters are trained, and the rates and decays of groups: what options do
 * to a step, what they are refused for, what checkpoints take. Numbers against PyTorch are golden.
 */
#include "step/step_support.h"

#include <dunlin/parameters.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_STEPS 3
#define MAX_ENTRIES 64

typedef struct entries {
    dunlin_parameter_entry at[MAX_ENTRIES];
    char groups[MAX_ENTRIES][32];
    int32_t n;
} entries;

static void take(void *ctx, const dunlin_parameter_entry *entry)
{
    entries *list = ctx;
    cr_assert_lt(list->n, MAX_ENTRIES);
    (void)snprintf(list->groups[list->n], sizeof list->groups[0], "%s", entry->group_name);
    list->at[list->n++] = *entry;
}

static void list_model(const dunlin_model *model, const dunlin_trainer_options *options,
                       entries *out)
{
    dunlin_error error = {0};
    out->n = 0;
    cr_assert_eq(dunlin_model_list_parameters(model, options, take, out, &error), DUNLIN_OK, "%s",
                 error.text);
}

/* The trained ones, one letter each: what they are used for. */
static void trained_uses(const dunlin_model *model, const dunlin_trainer_options *options,
                         char *out)
{
    static entries list;
    list_model(model, options, &list);
    size_t n = 0;
    for (int32_t i = 0; i < list.n; i++) {
        if (list.at[i].is_trained) {
            out[n++] = "uwbsntpf"[list.at[i].use];
        }
    }
    out[n] = '\0';
}

/* Which parameters three steps change: 1 for each changed one, statistics included. */
static void changed(const dunlin_model *model, const dunlin_trainer_options *options, char *out)
{
    dunlin_trainer *trainer = test_create(model, options);
    test_source source;
    test_source_init(&source, model, 8 * N_STEPS, DUNLIN_U8);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    float *after = test_weights(trainer, &n);
    int64_t at = 0;
    const int32_t n_params = dunlin_model_n_parameters(model);
    for (int32_t i = 0; i < n_params; i++) {
        dunlin_parameter_info info;
        cr_assert_eq(dunlin_model_parameter(model, i, &info), DUNLIN_OK);
        const size_t bytes = (size_t)info.n_elements * sizeof(float);
        out[i] = memcmp(before + at, after + at, bytes) != 0 ? '1' : '0';
        at += info.n_elements;
    }
    out[n_params] = '\0';
    free(before);
    free(after);
    dunlin_trainer_destroy(trainer);
}

static dunlin_trainer_options group_options(const dunlin_parameter_group *groups, int32_t n)
{
    dunlin_trainer_options options = test_options(8);
    options.lr = 0.05F;
    options.momentum = 0.9F;
    options.weight_decay = 0.1F;
    options.groups = groups;
    options.n_groups = n;
    return options;
}

/* The small model: body.conv, body.bn (of four), ..., head. */
Test(groups, only_what_is_asked_for_is_trained)
{
    dunlin_model *model = test_small_model(true);
    static entries list;
    list_model(model, NULL, &list);
    dunlin_trainer_options options = group_options(NULL, 0);
    char got[MAX_ENTRIES + 1];
    char expected[MAX_ENTRIES + 1];
    for (int way = 0; way < 4; way++) {
        options.trained = way == 0   ? DUNLIN_TRAINED_HEAD
                          : way == 1 ? DUNLIN_TRAINED_BIASES_AND_NORMS
                                     : DUNLIN_TRAINED_ALL;
        options.trained_prefixes = way >= 2 ? "head" : NULL;
        options.frozen_prefixes = way == 3 ? "head.b" : NULL;
        for (int32_t i = 0; i < list.n; i++) {
            const dunlin_parameter_entry *entry = &list.at[i];
            const bool is_head = strncmp(entry->name, "head", 4) == 0;
            const bool moves = way != 1 ? is_head && (way < 3 || entry->use != DUNLIN_USE_BIAS)
                                        : entry->use != DUNLIN_USE_WEIGHT;
            expected[i] = moves ? '1' : '0';
        }
        expected[list.n] = '\0';
        changed(model, &options, got);
        cr_expect_str_eq(got, expected, "way %d: %s, not %s", way, got, expected);
    }
    dunlin_model_destroy(model);
}

/* What is not trained has no gradient and no state of the optimiser. */
Test(groups, what_is_fixed_costs_nothing)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = group_options(NULL, 0);
    options.momentum = 0.0F;
    options.optimizer = DUNLIN_OPTIMIZER_ADAM;
    dunlin_trainer_report all = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_report head = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &all, NULL), DUNLIN_OK);
    options.trained = DUNLIN_TRAINED_HEAD;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &head, NULL), DUNLIN_OK);
    static entries list;
    list_model(model, &options, &list);
    uint64_t least = 0; /* two means of each, and at most 63 bytes after each for alignment */
    uint64_t most = 0;
    for (int32_t i = 0; i < list.n; i++) {
        const uint64_t bytes = (uint64_t)list.at[i].n_elements * sizeof(float);
        least += list.at[i].is_trained ? 2 * bytes : 0;
        most += list.at[i].is_trained ? 2 * (bytes + 63) : 0;
    }
    cr_expect_geq(head.by_class.optimizer, least);
    cr_expect_leq(head.by_class.optimizer, most);
    cr_expect_lt(head.by_class.optimizer, all.by_class.optimizer);
    cr_expect_lt(head.n_ops, all.n_ops);
    cr_expect_lt(head.least_budget_bytes, all.least_budget_bytes);
    dunlin_model_destroy(model);
}

static dunlin_parameter_group group_of(const char *name, const char *patterns, uint32_t uses,
                                       float lr_factor, float decay_factor)
{
    dunlin_parameter_group group = DUNLIN_PARAMETER_GROUP_INIT;
    group.name = name;
    group.patterns = patterns;
    group.uses = uses;
    group.lr_factor = lr_factor;
    group.decay_factor = decay_factor;
    return group;
}

Test(groups, the_first_that_has_a_parameter_has_it)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_parameter_group groups[] = {
        group_of("last", "he?d.w*,nothing", 0, 10.0F, 0.5F),
        group_of(NULL, NULL, DUNLIN_USE_BIT(DUNLIN_USE_BIAS), 2.0F, 0.25F),
        group_of("rest", "*", 0, 0.5F, 1.0F),
    };
    dunlin_trainer_options options = group_options(groups, 3);
    options.no_norm_decay = true;
    static entries before, after;
    list_model(model, &options, &before);
    dunlin_trainer *trainer = test_create(model, &options);
    after.n = 0;
    cr_assert_eq(dunlin_trainer_list_parameters(trainer, take, &after), DUNLIN_OK);
    cr_assert_eq(after.n, before.n);
    for (int32_t i = 0; i < before.n; i++) {
        const dunlin_parameter_entry *entry = &before.at[i];
        const int32_t group = strcmp(entry->name, "head.weight") == 0 ? 0
                              : entry->use == DUNLIN_USE_BIAS         ? 1
                                                                      : 2;
        static const float rates[] = {10.0F, 2.0F, 0.5F};
        if (!entry->is_trained) {
            cr_expect_eq(entry->group, -1);
            cr_expect_eq(entry->lr_factor, 0.0F);
            continue;
        }
        cr_expect_eq(entry->group, group, "%s is in group %d", entry->name, (int)entry->group);
        cr_expect_eq(entry->lr_factor, rates[group]);
        const bool is_weight = entry->use == DUNLIN_USE_WEIGHT;
        const float decay = group == 0 ? 0.5F : is_weight ? 1.0F : 0.0F;
        cr_expect_eq(entry->decay_factor, decay, "%s", entry->name);
        cr_expect_str_eq(before.groups[i], group == 0 ? "last" : group == 1 ? "group 2" : "rest");
        cr_expect_str_eq(after.groups[i], before.groups[i]);
        cr_expect_eq(after.at[i].group, entry->group);
        cr_expect_eq(after.at[i].lr_factor, entry->lr_factor);
        cr_expect_eq(after.at[i].decay_factor, entry->decay_factor);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static void expect_bits(const dunlin_model *model, const dunlin_trainer_options *options,
                        const float *expected, const char *what)
{
    int64_t n = 0;
    float *weights = test_train(model, options, N_STEPS, &n);
    cr_expect(test_same_bits(weights, expected, n), "%s changes bits", what);
    free(weights);
}

/* Groups hold for every plan, thread number and optimiser, and those of factor 1 change nothing. */
Test(groups, every_plan_gives_the_same_bits)
{
    const dunlin_parameter_group groups[] = {
        group_of("head", "head.*", 0, 3.0F, 0.0F),
        group_of("biases", NULL, DUNLIN_USE_BIT(DUNLIN_USE_BIAS), 0.25F, 2.0F),
    };
    const dunlin_parameter_group ones[] = {group_of(NULL, "*", 0, 1.0F, 1.0F)};
    dunlin_model *model = test_small_model(true);
    for (int k = 0; k < 4; k++) {
        dunlin_trainer_options base = group_options(groups, 2);
        base.optimizer = k < 2 ? DUNLIN_OPTIMIZER_SGD : DUNLIN_OPTIMIZER_ADAMW;
        base.momentum = k < 2 ? 0.9F : 0.0F;
        base.clip_norm = k % 2 == 0 ? 0.0F : 0.5F;
        base.no_norm_decay = k % 2 == 1;
        int64_t n = 0;
        float *expected = test_train(model, &base, N_STEPS, &n);
        dunlin_trainer_options options = base;
        options.n_threads = 3;
        expect_bits(model, &options, expected, "three threads");
        options = base;
        options.policy = DUNLIN_POLICY_POOL;
        expect_bits(model, &options, expected, "the pool");
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        cr_assert_eq(dunlin_trainer_estimate(model, &base, &report, NULL), DUNLIN_OK);
        options = base;
        options.budget_bytes = report.least_budget_bytes;
        expect_bits(model, &options, expected, "the least budget");
        options = base;
        options.least_budget_bytes = 1;
        expect_bits(model, &options, expected, "updates at the end");
        options = base;
        options.groups = NULL;
        options.n_groups = 0;
        float *plain = test_train(model, &options, N_STEPS, &n);
        cr_expect_not(test_same_bits(plain, expected, n), "the groups do nothing");
        options.groups = ones;
        options.n_groups = 1;
        expect_bits(model, &options, plain, "a group with factors of 1");
        free(plain);
        free(expected);
    }
    dunlin_model_destroy(model);
}

static void expect_refusal(const dunlin_model *model, const dunlin_trainer_options *options,
                           dunlin_status status, const char *text)
{
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    cr_expect_eq(dunlin_trainer_create(model, options, &trainer, &error), status, "%s: %s", text,
                 error.text);
    cr_expect_null(trainer);
    cr_expect_not_null(strstr(error.text, text), "\"%s\" lacks \"%s\"", error.text, text);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_expect_eq(dunlin_trainer_estimate(model, options, &report, NULL), status, "%s", text);
}

Test(groups, refusals_name_the_option)
{
    dunlin_model *model = test_small_model(true);
    dunlin_parameter_group group = group_of("g", "head.*", 0, 1.0F, 1.0F);
    dunlin_trainer_options options = group_options(NULL, 0);
    options.frozen_prefixes = "body,head";
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "is trained");
    options.frozen_prefixes = "head";
    options.trained = DUNLIN_TRAINED_HEAD;
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "is trained");
    options = group_options(NULL, 0);
    options.trained_prefixes = "";
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "is trained");
    options.trained_prefixes = "head,haed";
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "trained prefix \"haed\"");
    dunlin_parameter_group still = group_of("still", "*", 0, 0.0F, 1.0F);
    options = group_options(&still, 1);
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "lr_factor 0");
    options = group_options(NULL, 0);
    options.trained = (dunlin_trained)7;
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "option trained is 7");
    options = group_options(NULL, 1);
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "option groups");
    options = group_options(&group, DUNLIN_MAX_GROUPS + 1);
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "n_groups is 65");
    options = group_options(&group, 1);
    group.patterns = "haed.*";
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "group \"g\" has no parameter");
    group.patterns = "head.*";
    group.uses = DUNLIN_USE_BIT(DUNLIN_USE_TABLE);
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "group \"g\" has no parameter");
    group.uses = DUNLIN_USE_BIT(DUNLIN_N_USES);
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "uses of \"g\"");
    group = group_of("g", "head.*", 0, -1.0F, 1.0F);
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "lr_factor of \"g\" is -1");
    group = group_of("g", "head.*", 0, 1.0F, INFINITY);
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "decay_factor of \"g\" is inf");
    group = (dunlin_parameter_group){.struct_size = 1};
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "option groups");
    dunlin_model_destroy(model);
}

static dunlin_model *without_head(bool has_parameters)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &(dunlin_shape){1, {4}});
    if (has_parameters) {
        x = dunlin_builder_layer_norm(builder, "norm",
                                      dunlin_builder_dense(builder, "dense", x, 3));
    } else {
        x = dunlin_builder_tanh(builder, x);
    }
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, NULL), DUNLIN_OK);
    return model;
}

Test(groups, networks_that_cannot_be_trained_so)
{
    dunlin_trainer_options options = group_options(NULL, 0);
    dunlin_model *model = without_head(false);
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "0 parameters");
    dunlin_model_destroy(model);
    model = without_head(true);
    options.trained = DUNLIN_TRAINED_HEAD;
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED, "head");
    char uses[MAX_ENTRIES + 1];
    options.trained = DUNLIN_TRAINED_BIASES_AND_NORMS;
    trained_uses(model, &options, uses);
    cr_expect_str_eq(uses, "bsn");
    dunlin_model_destroy(model);
}

/* Rates and decays are the trainer's own; other trained parameters have other state. */
Test(groups, checkpoints_hold_state_and_no_rates)
{
    const dunlin_parameter_group groups[] = {group_of(NULL, "head.*", 0, 3.0F, 0.0F)};
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = group_options(groups, 1);
    test_source source;
    test_source_init(&source, model, 16, DUNLIN_U8);
    char *path = test_temp_path("groups.ckpt");
    dunlin_trainer *trainer = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
    int64_t n = 0;
    float *expected = test_weights(trainer, &n);
    dunlin_trainer_destroy(trainer);
    for (int way = 0; way < 3; way++) {
        options = group_options(way == 0 ? groups : NULL, way == 0 ? 1 : 0);
        options.trained = way == 2 ? DUNLIN_TRAINED_HEAD : DUNLIN_TRAINED_ALL;
        trainer = test_create(model, &options);
        const dunlin_status status = dunlin_trainer_load_checkpoint(trainer, path);
        cr_expect_eq(status, way == 2 ? DUNLIN_MISMATCH : DUNLIN_OK);
        if (status == DUNLIN_OK) {
            cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
            float *weights = test_weights(trainer, &n);
            cr_expect_eq(test_same_bits(weights, expected, n), way == 0);
            free(weights);
        }
        dunlin_trainer_destroy(trainer);
    }
    free(expected);
    (void)unlink(path);
    free(path);
    dunlin_model_destroy(model);
}

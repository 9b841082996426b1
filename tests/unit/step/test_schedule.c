/*
 * test_schedule.c - what is carried from step to step: learning rates, and the optimisers' state in
 * checkpoints and over resets; options that are refused.
 */
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *error_of(const dunlin_trainer *trainer)
{
    return dunlin_trainer_last_error(trainer)->text;
}

static void expect_text(const dunlin_trainer *trainer, const char *text)
{
    cr_expect_not_null(strstr(error_of(trainer), text), "\"%s\" lacks \"%s\"", error_of(trainer),
                       text);
}

Test(schedule, a_schedule_is_followed_and_goes_on)
{
    dunlin_model *model = test_dense_model(6, 3);
    dunlin_trainer_options options = test_options(4);
    options.lr = 0.5F;
    dunlin_schedule schedule = DUNLIN_SCHEDULE_INIT;
    schedule.kind = DUNLIN_SCHEDULE_LINEAR;
    schedule.warmup_steps = 1;
    schedule.total_steps = 6;
    schedule.min_lr = 0.1;
    options.schedule = &schedule;
    const float rates[] = {0.25F, 0.5F, 0.42F, 0.34F, 0.26F, 0.18F, 0.1F, 0.1F};
    char *path = test_temp_path("schedule");
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, 4, DUNLIN_U8);
    for (int step = 0; step < 8; step++) {
        cr_expect_float_eq(dunlin_trainer_lr(trainer), rates[step], 1e-6, "step %d", step);
        cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
        if (step == 2) {
            cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
        }
    }
    dunlin_trainer *other = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_load_checkpoint(other, path), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_n_steps(other), 3);
    cr_expect_float_eq(dunlin_trainer_lr(other), rates[3], 1e-6);
    /* One that begins here. */
    schedule.first_step = 3;
    cr_expect_float_eq(dunlin_trainer_lr(other), rates[3], 1e-6, "it was copied");
    cr_expect_eq(dunlin_trainer_set_schedule(other, &schedule), DUNLIN_OK);
    cr_expect_float_eq(dunlin_trainer_lr(other), rates[0], 1e-6);
    cr_expect_eq(dunlin_trainer_set_lr(other, 1.0F), DUNLIN_OK);
    cr_expect_float_eq(dunlin_trainer_lr(other), 0.5F, 1e-6);
    dunlin_trainer_reset_optimizer(other);
    cr_expect_eq(dunlin_trainer_n_steps(other), 0);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(other);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(schedule, wrong_schedules)
{
    static const struct {
        const char *text;
        dunlin_schedule schedule;
    } cases[] = {
        {"schedule.kind", {.kind = (dunlin_schedule_kind)9}},
        {"schedule.warmup_steps", {.warmup_steps = -1}},
        {"schedule.first_step", {.first_step = -(INT64_C(1) << 60) - 1}},
        {"schedule.period_steps", {.kind = DUNLIN_SCHEDULE_STEP, .gamma = 0.5, .period_steps = -1}},
        {"schedule.gamma", {.kind = DUNLIN_SCHEDULE_STEP}},
        {"schedule.gamma", {.kind = DUNLIN_SCHEDULE_EXPONENTIAL, .gamma = 1.5}},
        {"schedule.total_steps", {.kind = DUNLIN_SCHEDULE_COSINE}},
        {"schedule.total_steps",
         {.kind = DUNLIN_SCHEDULE_LINEAR, .total_steps = 5, .warmup_steps = 5}},
        {"schedule.min_lr",
         {.kind = DUNLIN_SCHEDULE_COSINE, .total_steps = 5, .min_lr = (double)NAN}},
    };
    dunlin_model *model = test_dense_model(6, 3);
    const dunlin_trainer_options options = test_options(4);
    dunlin_trainer *trainer = test_create(model, &options);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_schedule schedule = cases[i].schedule;
        schedule.struct_size = sizeof schedule;
        cr_expect_eq(dunlin_trainer_set_schedule(trainer, &schedule), DUNLIN_ARGUMENT);
        expect_text(trainer, cases[i].text);
    }
    const dunlin_schedule sizeless = {.kind = DUNLIN_SCHEDULE_CONSTANT};
    cr_expect_eq(dunlin_trainer_set_schedule(trainer, &sizeless), DUNLIN_ARGUMENT);
    expect_text(trainer, "DUNLIN_SCHEDULE_INIT");
    cr_expect_eq(dunlin_trainer_set_schedule(trainer, NULL), DUNLIN_ARGUMENT);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(schedule, wrong_options)
{
    const size_t size = sizeof(dunlin_trainer_options);
    const dunlin_schedule without_gamma = {.struct_size = sizeof without_gamma,
                                           .kind = DUNLIN_SCHEDULE_STEP};
    const struct {
        const char *text;
        dunlin_trainer_options options;
    } cases[] = {
        {"option loss", {.loss = (dunlin_loss)7}},
        {"label_smoothing", {.label_smoothing = 1.0F}},
        {"label_smoothing", {.label_smoothing = 0.1F, .loss = DUNLIN_LOSS_MSE}},
        {"option optimizer", {.optimizer = (dunlin_optimizer)-1}},
        {"momentum", {.optimizer = DUNLIN_OPTIMIZER_ADAM, .momentum = 0.9F}},
        {"is_nesterov", {.optimizer = DUNLIN_OPTIMIZER_ADAMW, .is_nesterov = true}},
        {"beta1", {.beta1 = 1.0}},
        {"beta2", {.beta2 = -0.5}},
        {"eps", {.eps = -1e-8}},
        {"clip_value", {.clip_value = -1.0F}},
        {"clip_norm", {.clip_norm = INFINITY}},
        {"schedule.gamma", {.schedule = &without_gamma}},
    };
    dunlin_model *model = test_dense_model(6, 3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_trainer_options options = cases[i].options;
        options.struct_size = size;
        dunlin_trainer *trainer = NULL;
        dunlin_error error = {.status = DUNLIN_OK};
        cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_ARGUMENT,
                     "%s", cases[i].text);
        cr_expect_not_null(strstr(error.text, cases[i].text), "\"%s\" lacks \"%s\"", error.text,
                           cases[i].text);
    }
    dunlin_model_destroy(model);
}

/* --- state of the optimiser --- */

static dunlin_trainer_options optimizer_options(dunlin_optimizer optimizer)
{
    dunlin_trainer_options options = test_options(8);
    options.optimizer = optimizer;
    options.momentum = optimizer == DUNLIN_OPTIMIZER_SGD ? 0.9F : 0.0F;
    options.lr = 0.002F;
    return options;
}

static void fit_more(dunlin_trainer *trainer, const dunlin_model *model)
{
    test_source source;
    test_source_init(&source, model, 24, DUNLIN_U8);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK, "%s",
                 error_of(trainer));
}

static void expect_equal(const dunlin_trainer *a, const dunlin_trainer *b)
{
    int64_t n = 0;
    float *one = test_weights(a, &n);
    float *other = test_weights(b, NULL);
    cr_expect(test_same_bits(one, other, n));
    free(one);
    free(other);
}

Test(schedule, adam_resumes_bit_for_bit)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = optimizer_options(DUNLIN_OPTIMIZER_ADAM);
    options.clip_norm = 0.5F;
    char *path = test_temp_path("adam");
    dunlin_trainer *whole = test_create(model, &options);
    fit_more(whole, model);
    cr_assert_eq(dunlin_trainer_save_checkpoint(whole, path), DUNLIN_OK);
    fit_more(whole, model);
    dunlin_trainer *resumed = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_load_checkpoint(resumed, path), DUNLIN_OK, "%s", error_of(resumed));
    fit_more(resumed, model);
    expect_equal(whole, resumed);
    dunlin_trainer_destroy(resumed);
    /* Another optimiser's state is not its own. */
    const dunlin_optimizer others[] = {DUNLIN_OPTIMIZER_SGD, DUNLIN_OPTIMIZER_ADAMW};
    for (int i = 0; i < 2; i++) {
        const dunlin_trainer_options other = optimizer_options(others[i]);
        resumed = test_create(model, &other);
        cr_expect_eq(dunlin_trainer_load_checkpoint(resumed, path), DUNLIN_MISMATCH);
        expect_text(resumed, "optimiser");
        dunlin_trainer_destroy(resumed);
    }
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(whole);
    dunlin_model_destroy(model);
}

Test(schedule, a_reset_optimizer_is_a_fresh_one)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = optimizer_options(DUNLIN_OPTIMIZER_ADAMW);
    dunlin_trainer *fresh = test_create(model, &options);
    dunlin_trainer *used = test_create(model, &options);
    int64_t n = 0;
    float *first = test_weights(fresh, &n);
    fit_more(used, model);
    cr_assert_eq(dunlin_trainer_set_weights(used, DUNLIN_WEIGHTS_ALL, 0, n, first), DUNLIN_OK);
    dunlin_trainer_reset_optimizer(used);
    fit_more(used, model);
    fit_more(fresh, model);
    expect_equal(fresh, used);
    free(first);
    dunlin_trainer_destroy(used);
    dunlin_trainer_destroy(fresh);
    dunlin_model_destroy(model);
}

/* CRC-32 as in zip files, bit by bit. */
static uint32_t crc_of(const unsigned char *bytes, size_t n)
{
    uint32_t crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < n * 8; i++) {
        const uint32_t bit = (uint32_t)(bytes[i / 8] >> (i % 8)) & 1U;
        crc = ((crc ^ bit) & 1U) != 0 ? (crc >> 1) ^ 0xEDB88320U : crc >> 1;
    }
    return ~crc;
}

/* Sets a checkpoint's version, and its checksum right again. */
static void set_version(const char *path, unsigned char version)
{
    enum { ROOM = 65536 };
    static unsigned char bytes[ROOM];
    FILE *in = fopen(path, "rb");
    cr_assert_not_null(in);
    const size_t n = fread(bytes, 1, ROOM, in);
    (void)fclose(in);
    cr_assert(n > 64 && n < ROOM);
    cr_assert_eq(bytes[8], 2);
    bytes[8] = version;
    const uint32_t crc = crc_of(bytes, n - 4);
    for (int i = 0; i < 4; i++) {
        bytes[n - 4 + (size_t)i] = (unsigned char)(crc >> (8 * i));
    }
    FILE *out = fopen(path, "wb");
    cr_assert_not_null(out);
    cr_assert_eq(fwrite(bytes, 1, n, out), n);
    cr_assert_eq(fclose(out), 0);
}

Test(schedule, older_checkpoints_are_read_and_newer_ones_refused)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_trainer_options options = test_options(8);
    char *path = test_temp_path("old");
    dunlin_trainer *trainer = test_create(model, &options);
    fit_more(trainer, model);
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    set_version(path, 1);
    dunlin_trainer *other = test_create(model, &options);
    cr_expect_eq(dunlin_trainer_load_checkpoint(other, path), DUNLIN_OK, "%s", error_of(other));
    expect_equal(trainer, other);
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    set_version(path, 6);
    cr_expect_eq(dunlin_trainer_load_checkpoint(other, path), DUNLIN_VERSION);
    expect_text(other, "format version 6");
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(other);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* INIT has a rate; a rate of zero is one of zero, at creation and later. */
Test(schedule, a_rate_of_zero_is_zero)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    cr_expect_float_eq(options.lr, 0.01, 1e-9);
    options.batch = 8;
    test_source source;
    test_source_init(&source, model, 16, DUNLIN_U8);
    for (int way = 0; way < 3; way++) {
        options.lr = way == 1 ? 0.0F : 0.01F;
        dunlin_trainer *trainer = test_create(model, &options);
        if (way == 2) {
            cr_assert_eq(dunlin_trainer_set_lr(trainer, 0.0F), DUNLIN_OK);
        }
        cr_expect_float_eq(dunlin_trainer_lr(trainer), way == 0 ? 0.01 : 0.0, 1e-9);
        int64_t n = 0;
        float *before = test_weights(trainer, &n);
        cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
        float *after = test_weights(trainer, &n);
        cr_expect_eq(test_same_bits(before, after, n), way != 0, "way %d", way);
        free(before);
        free(after);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/*
 * test_bytes.c - checkpoints and models as bytes: those of the files, and no other.
 */
#include "step/step_support.h"

#include <dunlin/bytes.h>
#include <dunlin/model.h>
#include <dunlin/predictor.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dunlin_buffer read_file(const char *path)
{
    unsigned char block[4096];
    dunlin_buffer bytes = {0};
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    for (size_t n = fread(block, 1, sizeof block, file); n > 0;
         n = fread(block, 1, sizeof block, file)) {
        cr_assert_eq(dunlin_buffer_add(&bytes, block, n), DUNLIN_OK);
    }
    (void)fclose(file);
    return bytes;
}

static void expect_file(const dunlin_buffer *bytes, const char *path)
{
    dunlin_buffer file = read_file(path);
    cr_expect_eq(bytes->n, file.n);
    cr_expect(bytes->n == file.n && memcmp(bytes->at, file.at, file.n) == 0, "%s", path);
    dunlin_buffer_free(&file);
    (void)unlink(path);
}

/* A trainer that has learned a little. */
static dunlin_trainer *trained(const dunlin_model *model, int64_t n_epochs)
{
    dunlin_trainer_options options = test_options(8);
    options.momentum = 0.9F;
    dunlin_trainer *trainer = test_create(model, &options);
    test_fit_epochs(trainer, model, n_epochs);
    return trainer;
}

Test(bytes, are_those_of_the_files)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer *trainer = trained(model, 1);
    char *path = test_temp_path("bytes.file");
    dunlin_buffer bytes = {0};
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_write_checkpoint(trainer, dunlin_buffer_add, &bytes), DUNLIN_OK);
    expect_file(&bytes, path);
    dunlin_buffer_free(&bytes);
    cr_assert_eq(dunlin_trainer_export_onnx(trainer, path), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_write_onnx(trainer, dunlin_buffer_add, &bytes), DUNLIN_OK);
    expect_file(&bytes, path);
    dunlin_buffer_free(&bytes);
    cr_expect_null(bytes.at);
    free(path);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(bytes, a_checkpoint_in_memory_is_taken_over)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer *trainer = trained(model, 1);
    dunlin_trainer *other = trained(model, 2);
    dunlin_buffer bytes = {0};
    cr_assert_eq(dunlin_trainer_write_checkpoint(trainer, dunlin_buffer_add, &bytes), DUNLIN_OK);
    test_expect_same_weights(trainer, other, false);
    cr_assert_eq(dunlin_trainer_read_checkpoint(other, bytes.at, bytes.n), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(other)->text);
    test_expect_same_weights(trainer, other, true);
    /* With the optimiser's state: both learn the same from here on. */
    test_fit_epochs(trainer, model, 1);
    test_fit_epochs(other, model, 1);
    test_expect_same_weights(trainer, other, true);
    dunlin_buffer_free(&bytes);
    dunlin_trainer_destroy(other);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(bytes, a_model_in_memory_predicts_as_its_trainer_does)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer *trainer = trained(model, 1);
    dunlin_buffer bytes = {0};
    dunlin_model *read = NULL;
    dunlin_predictor *predictor = NULL;
    dunlin_error error = {0};
    test_source source;
    float expected[16 * 16];
    float outputs[16 * 16];
    test_source_init(&source, model, 16, DUNLIN_U8);
    cr_assert_leq(dunlin_model_n_outputs(model), 16);
    cr_assert_eq(dunlin_trainer_write_onnx(trainer, dunlin_buffer_add, &bytes), DUNLIN_OK);
    cr_assert_eq(dunlin_model_open_memory(bytes.at, bytes.n, NULL, NULL, &read, &error), DUNLIN_OK,
                 "%s", error.text);
    cr_assert_eq(dunlin_predictor_create(read, NULL, &predictor, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin_model_destroy(read);
    dunlin_buffer_free(&bytes); /* the weights are in */
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, 16, expected), DUNLIN_OK);
    cr_assert_eq(dunlin_predictor_predict(predictor, &source.source, 0, 16, outputs, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect(test_same_bits(expected, outputs, 16 * dunlin_model_n_outputs(model)));
    dunlin_predictor_destroy(predictor);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(bytes, damage_changes_nothing)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer *trainer = trained(model, 1);
    dunlin_trainer *same = trained(model, 1);
    dunlin_buffer bytes = {0};
    cr_assert_eq(dunlin_trainer_write_checkpoint(trainer, dunlin_buffer_add, &bytes), DUNLIN_OK);
    test_fit_epochs(trainer, model, 1);
    test_fit_epochs(same, model, 1);
    for (size_t n = 0; n < bytes.n; n += 1 + bytes.n / 40) {
        unsigned char *cut = malloc(n + 1); /* its end is the heap's, which sanitizers watch */
        cr_assert_not_null(cut);
        memcpy(cut, bytes.at, n);
        cr_expect_neq(dunlin_trainer_read_checkpoint(trainer, cut, n), DUNLIN_OK, "%zu bytes", n);
        free(cut);
        ((unsigned char *)bytes.at)[n] ^= 0x10;
        cr_expect_neq(dunlin_trainer_read_checkpoint(trainer, bytes.at, bytes.n), DUNLIN_OK,
                      "byte %zu is another", n);
        ((unsigned char *)bytes.at)[n] ^= 0x10;
    }
    cr_expect_eq(dunlin_trainer_read_checkpoint(trainer, NULL, 0), DUNLIN_ARGUMENT);
    test_expect_same_weights(trainer, same, true);
    cr_expect_eq(dunlin_trainer_read_checkpoint(trainer, bytes.at, bytes.n), DUNLIN_OK);
    dunlin_buffer_free(&bytes);
    dunlin_trainer_destroy(same);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static dunlin_status take_a_few(void *ctx, const void *bytes, size_t n)
{
    size_t *left = ctx;
    (void)bytes;
    *left = n > *left ? 0 : *left - n;
    return *left > 0 ? DUNLIN_OK : DUNLIN_SPACE;
}

Test(bytes, a_function_that_fails_is_named)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer *trainer = trained(model, 1);
    for (size_t most = 1; most < 2000; most += 499) {
        size_t left = most;
        cr_expect_eq(dunlin_trainer_write_checkpoint(trainer, take_a_few, &left), DUNLIN_CALLBACK);
        test_expect_text(trainer, "SPACE");
        left = most;
        cr_expect_eq(dunlin_trainer_write_onnx(trainer, take_a_few, &left), DUNLIN_CALLBACK);
        test_expect_text(trainer, "SPACE");
    }
    cr_expect_eq(dunlin_trainer_write_checkpoint(trainer, NULL, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_write_onnx(trainer, NULL, NULL), DUNLIN_ARGUMENT);
    test_fit_epochs(trainer, model, 1); /* it goes on */
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

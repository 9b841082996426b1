/*
 * test_onnx_several.c - a file with several inputs and outputs, against PyTorch in float64
 * (tests/golden/onnx_several.py): losses step by step, the border of what is written.
 */
#include "net_support.h"

#include <dunlin/arrays.h>
#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(onnx_several, .timeout = 300);

#define N 8
#define STEPS 6
#define IMAGE (2 * 8 * 8)
#define IDS 4

typedef struct several_file {
    float images[2][N][IMAGE];
    float extra[N][2];
    int32_t words[N][IDS];
    int32_t labels[N];
    float numbers[N][2];
    dunlin_source_input inputs[4];
    dunlin_source_answer answers[2];
    dunlin_arrays_view view;
    dunlin_source source;
} several_file;

static several_file file;

static void fill_waves(float *out, int n_each, double a)
{
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < n_each; k++) {
            out[i * n_each + k] = (float)sin(0.9 * i + 0.37 * k + a);
        }
    }
}

static void open_file_data(void)
{
    dunlin_error error = {0};
    fill_waves(file.images[0][0], IMAGE, 0.1);
    fill_waves(file.images[1][0], IMAGE, 1.3);
    fill_waves(file.extra[0], 2, 2.0);
    fill_waves(file.numbers[0], 2, 0.7);
    for (int i = 0; i < N; i++) {
        file.labels[i] = i % 3;
        for (int k = 0; k < IDS; k++) {
            file.words[i][k] = (i * 3 + k * 2) % 7;
        }
    }
    file.inputs[0] = (dunlin_source_input){
        .name = "left", .values = file.images[0], .n_elements = IMAGE, .dtype = DUNLIN_F32};
    file.inputs[1] = (dunlin_source_input){
        .name = "right", .values = file.images[1], .n_elements = IMAGE, .dtype = DUNLIN_F32};
    file.inputs[2] = (dunlin_source_input){
        .name = "extra", .values = file.extra, .n_elements = 2, .dtype = DUNLIN_F32};
    file.inputs[3] = (dunlin_source_input){
        .name = "word", .values = file.words, .n_elements = IDS, .dtype = DUNLIN_I32};
    file.answers[0] = (dunlin_source_answer){.name = "label", .values = file.labels};
    file.answers[1] =
        (dunlin_source_answer){.name = "number", .values = file.numbers, .n_targets = 2};
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = N;
    arrays.inputs = file.inputs;
    arrays.n_inputs = 4;
    arrays.answers = file.answers;
    arrays.n_answers = 2;
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &file.view, &file.source, &error), DUNLIN_OK,
                 "%s", error.text);
}

static dunlin_model *open_several(const char *path)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    sizes.outputs = "label,number";
    cr_assert_eq(dunlin_model_open_sized(path, &sizes, NULL, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

static dunlin_trainer *train_several(const dunlin_model *model)
{
    dunlin_output_loss losses[2] = {DUNLIN_OUTPUT_LOSS_INIT, DUNLIN_OUTPUT_LOSS_INIT};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    losses[0].name = "label";
    losses[1].name = "number";
    losses[1].loss = DUNLIN_LOSS_MSE;
    losses[1].weight = 0.25F;
    options.batch = 4;
    options.lr = 0.05F;
    options.outputs = losses;
    options.n_outputs = 2;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    return trainer;
}

Test(onnx_several, trains_as_pytorch_does)
{
    char path[512];
    char losses_path[512];
    open_file_data();
    dunlin_model *model = open_several(net_onnx_path("several.onnx", path));
    dunlin_trainer *trainer = train_several(model);
    FILE *in = fopen(net_onnx_path("several.losses", losses_path), "r");
    cr_assert_not_null(in);
    cr_assert_eq(dunlin_model_n_parameters(model), 9); /* one convolution, whoever reads it */
    for (int step = 0; step < STEPS; step++) {
        double wanted[3];
        dunlin_metrics found[3];
        int64_t indices[4];
        cr_assert_eq(fscanf(in, "%lf %lf %lf", &wanted[0], &wanted[1], &wanted[2]), 3);
        for (int i = 0; i < 4; i++) {
            indices[i] = step % 2 * 4 + i;
        }
        cr_assert_eq(dunlin_trainer_step(trainer, &file.source, indices, 4, &found[0]), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
        for (int32_t k = 0; k < 2; k++) {
            cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, k, &found[k + 1]), DUNLIN_OK);
        }
        for (int k = 0; k < 3; k++) {
            cr_expect_float_eq(found[k].loss, wanted[k], 2e-6, "step %d, %d: %.9g, not %.9g", step,
                               k, found[k].loss, wanted[k]);
        }
    }
    (void)fclose(in);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* The same inputs and outputs, in the same order; and what it computes. */
Test(onnx_several, what_is_written_is_read_again)
{
    char path[512];
    char written[512];
    float logits[2][N * 3];
    float numbers[2][N * 2];
    open_file_data();
    dunlin_model *model = open_several(net_onnx_path("several.onnx", path));
    dunlin_trainer *trainer = train_several(model);
    net_temp_path("several_again.onnx", written);
    cr_assert_eq(dunlin_trainer_export_onnx(trainer, written), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    dunlin_model *again = open_several(written);
    net_expect_equal(&model->net, &again->net);
    for (int32_t i = 0; i < 4; i++) {
        dunlin_model_input inputs[2] = {DUNLIN_MODEL_INPUT_INIT, DUNLIN_MODEL_INPUT_INIT};
        cr_assert_eq(dunlin_model_get_input(model, i, &inputs[0]), DUNLIN_OK);
        cr_assert_eq(dunlin_model_get_input(again, i, &inputs[1]), DUNLIN_OK);
        cr_expect_str_eq(inputs[0].name, inputs[1].name);
        cr_expect_str_eq(inputs[0].name, file.inputs[i].name);
    }
    dunlin_trainer *second = train_several(again);
    dunlin_trainer *both[2] = {trainer, second};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(dunlin_trainer_predict(both[i], &file.source, 0, N, logits[i]), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_predict_output(both[i], &file.source, 1, 0, N, numbers[i]),
                     DUNLIN_OK);
    }
    cr_expect(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
    cr_expect(memcmp(numbers[0], numbers[1], sizeof numbers[0]) == 0);
    double sum = 0.0;
    for (int k = 0; k < 3; k++) {
        sum += (double)logits[0][k];
    }
    cr_expect_float_eq(sum, 1.0, 1e-6, "predictions go through the softmax");
    (void)unlink(written);
    dunlin_trainer_destroy(second);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(again);
    dunlin_model_destroy(model);
}

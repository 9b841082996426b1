/*
 * test_outputs_bad.c - several outputs: losses, answers, arrays and outputs that do not fit.
 */
#include "step/outputs.h"
#include "step/step_support.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(outputs_bad, .timeout = 300);

static outputs_data data;
static dunlin_output_loss all_losses[3];

static void expect_options_refused(const dunlin_model *model, const dunlin_trainer_options *options,
                                   dunlin_status status, const char *text)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_trainer_create(model, options, &trainer, &error), status, "%s: %s", text,
                 error.text);
    cr_expect(strstr(error.text, text) != NULL, "%s: %s", text, error.text);
}

Test(outputs_bad, bad_losses_are_refused)
{
    dunlin_model *model = outputs_model(false, 3);
    dunlin_trainer_options options = outputs_options(all_losses);
    all_losses[1].name = "valu";
    expect_options_refused(model, &options, DUNLIN_ARGUMENT,
                           "\"valu\" is none of the model's 3 outputs");
    all_losses[1].name = NULL;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "is none of");
    all_losses[1].name = "class";
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "named twice");
    all_losses[1].name = "value";
    all_losses[1].weight = -1.0F;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "\"value\": weight is -1");
    all_losses[1].weight = NAN;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "\"value\": weight is");
    all_losses[1].weight = 1.0F;
    all_losses[1].label_smoothing = 0.5F;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "label_smoothing is 0.5");
    all_losses[1].label_smoothing = 0.0F;
    all_losses[2].loss = (dunlin_loss)17;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "loss is 17");
    outputs_losses(all_losses, 0.0F, 0.0F, 0.0F);
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "weights of all 3 outputs are 0");
    options = outputs_options(all_losses);
    options.n_outputs = 0;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "n_outputs is 0");
    options.n_outputs = -1;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "n_outputs is -1");
    options = outputs_options(all_losses);
    all_losses[0].loss = DUNLIN_LOSS_MSE;
    all_losses[0].label_smoothing = 0.0F;
    options.has_ignore_label = true;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "has_ignore_label");
    options.has_ignore_label = false;
    options = outputs_options(all_losses);
    all_losses[0].struct_size = 0;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "dunlin_output_loss");
    options = test_options(8);
    options.precision = "int8";
    options.lr = 0.01F;
    options.momentum = 0.0F;
    options.weight_decay = 0.0F;
    dunlin_trainer *trainer = NULL;
    cr_expect_neq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_OK);
    dunlin_model_destroy(model);
}

static void expect_refused(dunlin_trainer *trainer, const dunlin_source *source,
                           dunlin_status status, const char *text)
{
    const int64_t indices[3] = {0, 1, 2};
    cr_expect_eq(dunlin_trainer_step(trainer, source, indices, 3, NULL), status, "%s: %s", text,
                 dunlin_trainer_last_error(trainer)->text);
    test_expect_text(trainer, text);
}

Test(outputs_bad, answers_that_do_not_fit_are_refused)
{
    outputs_open(&data, false);
    dunlin_model *model = outputs_model(false, 3);
    const dunlin_trainer_options options = outputs_options(all_losses);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_source source = data.source;
    source.n_answers = 2;
    expect_refused(trainer, &source, DUNLIN_MISMATCH,
                   "the source has answers for 2 outputs; the model has 3");
    source = data.source;
    data.answers[1].name = "tags";
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "answer 1 of the source is called \"tags\"");
    data.answers[1].name = NULL;
    data.answers[1].n_targets = 4;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "output \"value\": the source has 4 targets");
    data.answers[1].n_targets = 0;
    expect_refused(trainer, &source, DUNLIN_ARGUMENT,
                   "output \"value\": the source has no targets");
    data.answers[1].n_targets = OUTPUTS_VALUES;
    data.answers[0].n_targets = OUTPUTS_CLASSES;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "the loss is over labels");
    data.answers[0].n_targets = 0;
    data.answers[0].n_labels = 2;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "output \"class\": the source has 2 labels");
    data.answers[0].n_labels = 0;
    source.answers = NULL;
    source.n_answers = 0;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "one answer for all outputs");
    source = data.source;
    source.read_arrays_fn = NULL;
    expect_refused(trainer, &source, DUNLIN_ARGUMENT, "no read_fn");
    data.labels[1] = OUTPUTS_CLASSES;
    expect_refused(trainer, &data.source, DUNLIN_DATA, "label 7 of example 1");
    data.labels[1] = 0;
    data.values[2][1] = NAN;
    expect_refused(trainer, &data.source, DUNLIN_DATA, "target 1 of example 2");
    data.values[2][1] = 0.0F;
    data.tags[0][4] = 1.5F;
    expect_refused(trainer, &data.source, DUNLIN_DATA, "target 4 of example 0 is 1.5");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static void expect_arrays_refused(const dunlin_arrays *arrays, dunlin_status status,
                                  const char *text)
{
    dunlin_arrays_view view;
    dunlin_source source;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_source_from_arrays(arrays, &view, &source, &error), status, "%s", text);
    cr_expect(strstr(error.text, text) != NULL, "%s: %s", text, error.text);
}

Test(outputs_bad, bad_arrays_of_answers_are_refused)
{
    outputs_open(&data, false);
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = OUTPUTS_N;
    arrays.inputs = &data.input;
    arrays.n_inputs = 1;
    arrays.answers = data.answers;
    expect_arrays_refused(&arrays, DUNLIN_LIMIT, "0 answers: the limits are 1 and 16");
    arrays.n_answers = 3;
    arrays.labels = data.labels;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "answers go with inputs");
    arrays.labels = NULL;
    data.answers[1].values = NULL;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "answer 1");
    data.answers[1].values = data.values;
    data.answers[1].n_targets = INT64_MAX;
    expect_arrays_refused(&arrays, DUNLIN_OVERFLOW, "address space");
    data.answers[1].n_targets = -1;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "-1 targets");
}

Test(outputs_bad, the_builder_refuses_outputs_that_cannot_be)
{
    const dunlin_shape row = {1, {3}};
    dunlin_builder *b = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    const char *const empty[2] = {"", NULL};
    for (int form = 0; form < 5; form++) {
        cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
        const dunlin_value x = dunlin_builder_input(b, "x", &row);
        const dunlin_value y = dunlin_builder_dense(b, "fc", x, 4);
        const dunlin_value two[2] = {y, form == 1 ? 99 : y};
        const int32_t n = form == 2 ? 0 : form == 3 ? DUNLIN_MODEL_MAX_OUTPUTS + 1 : 2;
        const dunlin_status status =
            dunlin_builder_finish_outputs(b, two, form == 4 ? empty : NULL, n, &model, &error);
        cr_expect_eq(status, form == 0 ? DUNLIN_MODEL : DUNLIN_ARGUMENT, "%d: %s", form,
                     error.text);
        cr_expect_null(model);
    }
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    cr_expect_eq(dunlin_builder_finish_outputs(b, NULL, NULL, 1, &model, &error), DUNLIN_ARGUMENT);
}

/*
 * test_finite.c - nothing that is not finite becomes state: updates, outputs, files; and what a
 * torn trainer still does. Statistics and inputs are in test_finite_inputs.c.
 */
#include "step/step_support.h"

#include <dunlin/bytes.h>
#include <dunlin/pixels.h>
#include <dunlin/several.h>
#include <dunlin/trainer_advanced.h>
#include <dunlin/trainer_experimental.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(finite, .timeout = 900);

/* Sets all gradients of one parameter, or of each, to a value. */
typedef struct gradient_setter {
    int32_t param; /* -1: each */
    float value;
    float slot_value; /* put into the first slot, if there is one; 0: left alone */
} gradient_setter;

static void set_gradient(void *ctx, int32_t param_index, int64_t n, const float *weights,
                         float *gradient, float *const *slots)
{
    const gradient_setter *setter = ctx;
    (void)weights;
    for (int64_t i = 0; i < n; i++) {
        const bool is_meant = setter->param < 0 || setter->param == param_index;
        gradient[i] = is_meant ? setter->value : 1e-3F;
    }
    if (setter->slot_value != 0.0F && slots[0] != NULL) {
        slots[0][n - 1] = setter->slot_value;
    }
}

static dunlin_status take_step(dunlin_trainer *trainer, const dunlin_model *model)
{
    test_source source;
    test_source_init(&source, model, 4, DUNLIN_U8);
    const int64_t indices[] = {0, 1, 2, 3};
    return dunlin_trainer_step(trainer, &source.source, indices, 4, NULL);
}

/* Optimisers, and what a step stores and multiplies in. */
static const struct way {
    dunlin_optimizer optimizer;
    float momentum;
    bool is_nesterov;
    dunlin_storage storage;
    const char *precision;
} ways[] = {
    {DUNLIN_OPTIMIZER_SGD, 0.0F, false, DUNLIN_STORAGE_EXACT, NULL},
    {DUNLIN_OPTIMIZER_SGD, 0.9F, false, DUNLIN_STORAGE_EXACT, NULL},
    {DUNLIN_OPTIMIZER_SGD, 0.9F, true, DUNLIN_STORAGE_EXACT, NULL},
    {DUNLIN_OPTIMIZER_ADAM, 0.0F, false, DUNLIN_STORAGE_EXACT, NULL},
    {DUNLIN_OPTIMIZER_ADAMW, 0.0F, false, DUNLIN_STORAGE_EXACT, NULL},
    {DUNLIN_OPTIMIZER_SGD, 0.9F, false, DUNLIN_STORAGE_BF16, NULL},
    {DUNLIN_OPTIMIZER_ADAM, 0.0F, false, DUNLIN_STORAGE_INT8, NULL},
    {DUNLIN_OPTIMIZER_SGD, 0.9F, true, DUNLIN_STORAGE_EXACT, "adaptive-int8"},
    {DUNLIN_OPTIMIZER_SGD, 0.0F, false, DUNLIN_STORAGE_EXACT, "adaptive-fixed"},
    {DUNLIN_OPTIMIZER_ADAM, 0.0F, false, DUNLIN_STORAGE_EXACT, "octo"},
    {DUNLIN_OPTIMIZER_ADAMW, 0.0F, false, DUNLIN_STORAGE_EXACT, "wageubn"},
    {DUNLIN_OPTIMIZER_SGD, 0.9F, false, DUNLIN_STORAGE_EXACT, "mls"},
};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

static dunlin_trainer_options options_of(int way, gradient_setter *setter)
{
    dunlin_trainer_options options = test_options(4);
    options.optimizer = ways[way].optimizer;
    options.momentum = ways[way].momentum;
    options.is_nesterov = ways[way].is_nesterov;
    options.storage = ways[way].storage;
    options.precision = ways[way].precision;
    options.lr = 0.1F;
    options.gradient_fn = set_gradient;
    options.gradient_ctx = setter;
    return options;
}

static char *read_file(const char *path, size_t *out_n)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    *out_n = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*out_n + 1);
    cr_assert_eq(fread(bytes, 1, *out_n, file), *out_n);
    (void)fclose(file);
    return bytes;
}

typedef dunlin_status (*write_fn)(dunlin_trainer *trainer, const char *path);

/* A good file is there; writing fails so, and the file is the same to the byte. */
static void expect_file_stays(dunlin_trainer *good, dunlin_trainer *bad, write_fn write,
                              dunlin_status status)
{
    char *path = test_temp_path("finite.file");
    char part[4096];
    (void)snprintf(part, sizeof part, "%s.part", path);
    cr_assert_eq(write(good, path), DUNLIN_OK);
    size_t n = 0;
    size_t n_after = 0;
    char *before = read_file(path, &n);
    cr_expect_eq(write(bad, path), status);
    char *after = read_file(path, &n_after);
    cr_expect(n == n_after && memcmp(before, after, n) == 0, "the file has changed");
    cr_expect_neq(access(part, F_OK), 0, "a part is left behind");
    free(before);
    free(after);
    (void)unlink(path);
    free(path);
}

/* The same of what came after these: files in memory, outputs, counts, experiments. */
static void expect_torn_for_later_calls(dunlin_trainer *trainer, const dunlin_source *source)
{
    float values[4 * 64];
    int64_t counts[64 * 64];
    dunlin_buffer file = {.at = NULL};
    dunlin_answer_counts wanted = DUNLIN_ANSWER_COUNTS_INIT;
    wanted.confusion = counts;
    wanted.n_classes = 4;
    cr_expect_eq(dunlin_trainer_predict_output(trainer, source, 0, 0, 4, values), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_confusion(trainer, source, 0, 4, 4, counts, NULL), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_count_answers(trainer, source, 0, 4, &wanted, NULL), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_write_checkpoint(trainer, dunlin_buffer_add, &file), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_write_onnx(trainer, dunlin_buffer_add, &file), DUNLIN_STATE);
    cr_expect_eq(file.n, 0);
    dunlin_buffer_free(&file);
    cr_expect_eq(dunlin_trainer_set_grad_bits(trainer, "5", 1), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_set_budget_at(trainer, 100, 50.0, 1 << 20), DUNLIN_STATE);
}

/* What a torn trainer refuses, and that its values can be read. */
static void expect_torn(dunlin_trainer *trainer, const dunlin_model *model)
{
    test_source source;
    test_source_init(&source, model, 4, DUNLIN_U8);
    const dunlin_schedule schedule = {
        .struct_size = sizeof schedule, .kind = DUNLIN_SCHEDULE_STEP, .gamma = 0.5};
    float logits[4 * 64];
    cr_assert_leq(dunlin_model_n_outputs(model), 64);
    cr_expect_eq(take_step(trainer, model), DUNLIN_STATE);
    test_expect_text(trainer, "set every weight");
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 4, NULL), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_predict(trainer, &source.source, 0, 4, logits), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_set_lr(trainer, 0.1F), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_set_schedule(trainer, &schedule), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_set_property(trainer, "a", "b"), DUNLIN_STATE);
    cr_expect_eq(dunlin_trainer_copy_weights_to_slot(trainer, 0), DUNLIN_STATE);
    expect_torn_for_later_calls(trainer, &source.source);
    dunlin_trainer_reset_optimizer(trainer);
    cr_expect_eq(dunlin_trainer_last_error(trainer)->status, DUNLIN_STATE);
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    for (int64_t i = 0; i < n; i++) {
        cr_assert(isfinite(weights[i]), "weight %lld", (long long)i);
    }
    free(weights);
}

/* Elements [first, first + n) of all weights that belong to a parameter. */
static int64_t first_of(const dunlin_trainer *trainer, int32_t param, dunlin_parameter_info *info)
{
    int64_t first = 0;
    for (int32_t i = 0; i <= param; i++) {
        cr_assert_eq(dunlin_trainer_parameter(trainer, i, info), DUNLIN_OK);
        first += i < param ? info->n_elements : 0;
    }
    return first;
}

/* One parameter's gradient is wrong: it stays as it was to the bit, and is named. */
static void check_param(const dunlin_model *model, int way, int32_t param, float value)
{
    gradient_setter setter = {.param = -1, .value = 1e-3F};
    const dunlin_trainer_options options = options_of(way, &setter);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer *good = test_create(model, &options);
    cr_assert_eq(take_step(trainer, model), DUNLIN_OK);
    dunlin_parameter_info info;
    const int64_t first = first_of(trainer, param, &info);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    setter = (gradient_setter){.param = param, .value = value};
    cr_expect_eq(take_step(trainer, model), DUNLIN_NUMERIC);
    test_expect_text(trainer, info.name);
    test_expect_text(trainer, isfinite(value) ? "the update of" : "the gradient of");
    float *after = test_weights(trainer, NULL);
    cr_expect(test_same_bits(before + first, after + first, info.n_elements), "%s was written",
              info.name);
    setter.value = 1e-3F;
    if (test_same_bits(before, after, n)) {
        cr_expect_eq(dunlin_trainer_n_steps(trainer), 1);
        cr_expect_eq(take_step(trainer, model), DUNLIN_OK);
    } else {
        expect_torn(trainer, model);
        expect_file_stays(good, trainer, dunlin_trainer_save_checkpoint, DUNLIN_STATE);
        expect_file_stays(good, trainer, dunlin_trainer_export_onnx, DUNLIN_STATE);
    }
    free(before);
    free(after);
    dunlin_trainer_destroy(good);
    dunlin_trainer_destroy(trainer);
}

Test(finite, a_parameter_is_written_whole_and_finite_or_not_at_all)
{
    dunlin_model *model = test_small_model(true);
    gradient_setter none = {.param = -1};
    const dunlin_trainer_options options = options_of(0, &none);
    dunlin_trainer *trainer = test_create(model, &options);
    int n_checked = 0;
    for (int32_t p = 0; p < dunlin_trainer_n_parameters(trainer); p++) {
        dunlin_parameter_info info;
        cr_assert_eq(dunlin_trainer_parameter(trainer, p, &info), DUNLIN_OK);
        for (int way = 0; way < N_WAYS && info.role != DUNLIN_PARAMETER_STATISTIC; way++) {
            check_param(model, way, p, NAN);
            check_param(model, way, p, -INFINITY);
            if (ways[way].optimizer != DUNLIN_OPTIMIZER_SGD) {
                check_param(model, way, p, 1e30F); /* its square */
            }
            n_checked++;
        }
    }
    cr_expect_geq(n_checked, 4 * N_WAYS);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* All overflow: the first does, so nothing is written, and a sane rate goes on. */
Test(finite, what_has_written_nothing_goes_on)
{
    dunlin_model *model = test_small_model(true);
    for (int way = 0; way < N_WAYS; way++) {
        gradient_setter setter = {.param = -1, .value = 10.0F};
        dunlin_trainer_options options = options_of(way, &setter);
        options.lr = 3e38F;
        const bool is_adam = options.optimizer != DUNLIN_OPTIMIZER_SGD;
        setter.value = is_adam ? 1e30F : 10.0F;
        dunlin_trainer *trainer = test_create(model, &options);
        options.lr = 0.1F;
        dunlin_trainer *other = test_create(model, &options);
        int64_t n = 0;
        float *before = test_weights(trainer, &n);
        cr_expect_eq(take_step(trainer, model), DUNLIN_NUMERIC);
        float *after = test_weights(trainer, NULL);
        cr_expect(test_same_bits(before, after, n));
        free(after);
        setter.value = 0.5F;
        cr_expect_eq(dunlin_trainer_set_lr(trainer, 0.1F), DUNLIN_OK);
        cr_expect_eq(take_step(trainer, model), DUNLIN_OK);
        cr_expect_eq(take_step(other, model), DUNLIN_OK);
        after = test_weights(trainer, NULL);
        float *expected = test_weights(other, NULL);
        cr_expect(test_same_bits(expected, after, n), "way %d: the failed step has left something",
                  way);
        free(before);
        free(after);
        free(expected);
        dunlin_trainer_destroy(other);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/* A trainer that was torn by the first parameter, whose update comes late. */
static dunlin_trainer *make_torn(const dunlin_model *model, const dunlin_trainer_options *options,
                                 gradient_setter *setter)
{
    dunlin_trainer *trainer = test_create(model, options);
    *setter = (gradient_setter){.param = -1, .value = 0.25F};
    cr_assert_eq(take_step(trainer, model), DUNLIN_OK);
    *setter = (gradient_setter){.param = 0, .value = NAN};
    cr_assert_eq(take_step(trainer, model), DUNLIN_NUMERIC);
    cr_assert_eq(take_step(trainer, model), DUNLIN_STATE);
    *setter = (gradient_setter){.param = -1, .value = 0.25F};
    return trainer;
}

static void expect_whole(dunlin_trainer *trainer, dunlin_trainer *like, const dunlin_model *model)
{
    cr_expect_eq(dunlin_trainer_n_steps(trainer), dunlin_trainer_n_steps(like));
    cr_assert_eq(take_step(trainer, model), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    cr_assert_eq(take_step(like, model), DUNLIN_OK);
    int64_t n = 0;
    float *one = test_weights(trainer, &n);
    float *other = test_weights(like, NULL);
    cr_expect(test_same_bits(one, other, n));
    free(one);
    free(other);
}

static void set_pieces(dunlin_trainer *trainer, const dunlin_model *model, const float *values,
                       int64_t n)
{
    for (int64_t first = 0; first < n; first += 7) {
        const int64_t n_piece = n - first < 7 ? n - first : 7;
        cr_expect_eq(take_step(trainer, model), DUNLIN_STATE);
        cr_assert_eq(
            dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, first, n_piece, values + first),
            DUNLIN_OK);
    }
}

static void set_by_name(dunlin_trainer *trainer, const dunlin_model *model, const float *values)
{
    for (int32_t p = dunlin_trainer_n_parameters(trainer) - 1; p >= 0; p--) {
        dunlin_parameter_info info;
        const int64_t first = first_of(trainer, p, &info);
        cr_expect_eq(take_step(trainer, model), DUNLIN_STATE);
        cr_assert_eq(
            dunlin_trainer_set_parameter(trainer, info.name, values + first, info.n_elements),
            DUNLIN_OK);
    }
}

Test(finite, every_weight_or_a_checkpoint_makes_it_whole)
{
    dunlin_model *model = test_small_model(true);
    for (int way = 0; way < N_WAYS; way++) {
        gradient_setter setter;
        const dunlin_trainer_options options = options_of(way, &setter);
        dunlin_trainer *like = test_create(model, &options);
        int64_t n = 0;
        float *values = test_weights(like, &n);
        dunlin_trainer *torn = make_torn(model, &options, &setter);
        set_by_name(torn, model, values);
        expect_whole(torn, like, model);
        char *path = test_temp_path("finite.checkpoint");
        cr_assert_eq(dunlin_trainer_save_checkpoint(like, path), DUNLIN_OK);
        dunlin_trainer *other = make_torn(model, &options, &setter);
        cr_assert_eq(dunlin_trainer_load_checkpoint(other, path), DUNLIN_OK);
        expect_whole(other, like, model);
        (void)unlink(path);
        free(path);
        free(values);
        dunlin_trainer_destroy(other);
        dunlin_trainer_destroy(torn);
        dunlin_trainer_destroy(like);
    }
    dunlin_model_destroy(model);
}

Test(finite, weights_may_be_set_in_pieces)
{
    dunlin_model *model = test_small_model(true);
    gradient_setter setter;
    const dunlin_trainer_options options = options_of(1, &setter);
    dunlin_trainer *like = test_create(model, &options);
    int64_t n = 0;
    float *values = test_weights(like, &n);
    dunlin_trainer *torn = make_torn(model, &options, &setter);
    set_pieces(torn, model, values, n);
    expect_whole(torn, like, model);
    free(values);
    dunlin_trainer_destroy(torn);
    dunlin_trainer_destroy(like);
    dunlin_model_destroy(model);
}

/* With the global norm all gradients are known before the first is taken. */
Test(finite, the_global_norm_looks_first)
{
    dunlin_model *model = test_small_model(true);
    for (int way = 0; way < N_WAYS; way++) {
        gradient_setter setter = {.param = 0, .value = INFINITY};
        dunlin_trainer_options options = options_of(way, &setter);
        options.clip_norm = 1.0F;
        options.clip_value = way % 2 == 0 ? 0.0F : 0.5F; /* hides nothing */
        dunlin_trainer *trainer = test_create(model, &options);
        int64_t n = 0;
        float *before = test_weights(trainer, &n);
        cr_expect_eq(take_step(trainer, model), DUNLIN_NUMERIC);
        test_expect_text(trainer, "the gradient of");
        float *after = test_weights(trainer, NULL);
        cr_expect(test_same_bits(before, after, n));
        setter.value = 1.0F;
        cr_expect_eq(take_step(trainer, model), DUNLIN_OK);
        free(before);
        free(after);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/* --- outputs --- */

/* An overflow is named by the first op whose output it is, in slices and with layers run again as
 * well, and changes nothing. */
static void check_overflow(const dunlin_model *model, dunlin_trainer_options options, int32_t param,
                           const char *text)
{
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_parameter_info info;
    const int64_t first = first_of(trainer, param, &info);
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    for (int64_t i = 0; i < info.n_elements; i++) {
        weights[first + i] = 3e38F;
    }
    cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, weights), DUNLIN_OK);
    cr_expect_eq(take_step(trainer, model), DUNLIN_NUMERIC);
    test_expect_text(trainer, text);
    test_expect_text(trainer, "the largest input of the batch");
    float *after = test_weights(trainer, NULL);
    cr_expect(test_same_bits(weights, after, n));
    free(weights);
    free(after);
    dunlin_trainer_destroy(trainer);
}

Test(finite, an_overflow_names_the_first_output)
{
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value end = dunlin_builder_input(builder, "x", &(dunlin_shape){1, {12}});
    static const char *const names[] = {"a", "b", "c", "d"};
    static const char *const texts[] = {"the output of 'a'", "the output of 'b'",
                                        "the output of 'c'", "the output of 'd'"};
    for (int i = 0; i < 4; i++) {
        end = dunlin_builder_dense(builder, names[i], end, 24);
    }
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, NULL), DUNLIN_OK);
    for (int i = 0; i < 4; i++) {
        dunlin_trainer_options options = test_options(8);
        check_overflow(model, options, 2 * i, texts[i]);
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = 3;
        check_overflow(model, options, 2 * i, texts[i]);
        options.policy = DUNLIN_POLICY_SUBLINEAR;
        options.baselines = dunlin_baselines_published();
        options.micro_batch = 0;
        check_overflow(model, options, 2 * i, texts[i]);
    }
    dunlin_model_destroy(model);
}

/* --- files --- */

/* What a hook leaves in its slots is the application's, and not looked at in a step. */
Test(finite, a_checkpoint_that_could_not_be_read_is_not_written)
{
    dunlin_model *model = test_small_model(true);
    gradient_setter setter = {.param = -1, .value = 0.5F};
    dunlin_trainer_options options = options_of(1, &setter);
    options.n_gradient_slots = 1;
    dunlin_trainer *good = test_create(model, &options);
    dunlin_trainer *bad = test_create(model, &options);
    setter.slot_value = INFINITY;
    cr_assert_eq(take_step(bad, model), DUNLIN_OK);
    expect_file_stays(good, bad, dunlin_trainer_save_checkpoint, DUNLIN_NUMERIC);
    test_expect_text(bad, "is not finite");
    dunlin_trainer_destroy(good);
    dunlin_trainer_destroy(bad);
    dunlin_model_destroy(model);
}

/*
 * evaluate.c - the trainer at the server: first weights, accuracy on a test set, the ONNX file.
 *
 * Invariant: weights pass between file and trainer in blocks, in the order of the tensor table,
 * which is the model's own order of parameters.
 */
#include "evaluate.h"

#include "evaluate_plan.h"

#include <dunlin/dataset.h>
#include <dunlin/tools.h>
#include <dunlin/trainer.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64
#define PIECE_EXAMPLES (8 * BATCH)
#define BLOCK_VALUES (DUNLIN_WIRE_BLOCK_BYTES / sizeof(float))

struct dunlin__evaluator {
    dunlin_alloc alloc;
    dunlin_trainer *trainer;
    dunlin_dataset *test_set; /* NULL: none was asked for */
    dunlin_source source;
    int64_t n_examples;
    uint64_t n_values;
    float *block;
    bool *is_variance; /* of each parameter; the layout's too */
    int32_t n_parameters;
    bool is_whole; /* the test set is one piece */
    atomic_bool is_stopped;
};

static dunlin_status open_model(const dunlin__server_task *task, const dunlin_alloc *alloc,
                                dunlin_model **out_model, dunlin_error *error)
{
    size_t n = strlen(task->model);
    if (n > 5 && strcmp(task->model + n - 5, ".onnx") == 0) {
        return dunlin_model_open(task->model, alloc, out_model, error);
    }
    dunlin_zoo_options zoo = {.struct_size = sizeof(dunlin_zoo_options),
                              .image = (int32_t)task->image,
                              .channels = (int32_t)task->channels,
                              .classes = (int32_t)task->classes,
                              .sequence = (int32_t)task->sequence,
                              .vocabulary = (int32_t)task->vocabulary};
    return dunlin_model_from_zoo(task->model, &zoo, alloc, out_model, error);
}

static dunlin_status fill_layout(const dunlin_model *model, const dunlin_alloc *alloc,
                                 dunlin__layout *layout, dunlin_error *error)
{
    int32_t n_parameters = dunlin_model_n_parameters(model);
    if (n_parameters < 1 || n_parameters > (int32_t)DUNLIN_WIRE_TENSORS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "evaluate", 0,
                            "the model has %" PRId32 " parameters; from 1 to %u work", n_parameters,
                            DUNLIN_WIRE_TENSORS);
    }
    layout->tensors = dunlin__alloc_zeroed(alloc, (size_t)n_parameters, sizeof *layout->tensors);
    if (layout->tensors == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "evaluate", 0, "%" PRId32 " tensors",
                            n_parameters);
    }
    layout->n_tensors = (uint32_t)n_parameters;
    for (int32_t i = 0; i < n_parameters; i++) {
        dunlin_parameter_info info;
        DUNLIN_TRY(dunlin_model_parameter(model, i, &info));
        dunlin_v1_rule_t rule = info.role == DUNLIN_PARAMETER_STATISTIC ? DUNLIN_V1_RULE_STATISTIC
                                                                        : DUNLIN_V1_RULE_AVERAGE;
        DUNLIN_TRY(
            dunlin__tensor_entry_make(info.name, &info.shape, rule, &layout->tensors[i], error));
    }
    return dunlin__layout_check(layout, error);
}

static dunlin_status open_test_set(dunlin__evaluator *evaluator, const dunlin_model *model,
                                   const dunlin__server_task *task,
                                   const dunlin_server_options *options, dunlin_error *error)
{
    if (options->test_set == NULL) {
        return DUNLIN_OK;
    }
    const char *folder = options->data_folder;
    if (folder == NULL) {
        folder = getenv("DUNLIN_DATA"); /* NOLINT(concurrency-mt-unsafe): before any thread */
    }
    dunlin_shape shape = dunlin_model_input_shape(model);
    dunlin_dataset_options wanted = DUNLIN_DATASET_OPTIONS_INIT;
    wanted.max_examples = (int64_t)task->test_examples;
    wanted.seed = options->has_seed ? options->seed : task->seed;
    wanted.image = shape.n_dims == 3 ? (int32_t)shape.dims[1] : 0;
    wanted.channels = shape.n_dims == 3 && shape.dims[0] == 3 ? 3 : 0;
    wanted.shape = shape;
    wanted.vocabulary = (int32_t)dunlin_model_vocabulary(model);
    wanted.classes = (int32_t)dunlin_model_n_outputs(model);
    dunlin_validation held_out = DUNLIN_VALIDATION_INIT;
    held_out.seed = wanted.seed;
    dunlin_split split = DUNLIN_SPLIT_TEST;
    if (options->validation != NULL) {
        split = DUNLIN_SPLIT_VALIDATION;
        wanted.validation = &held_out;
        if (!dunlin_tools_parse_validation(options->validation, &held_out, &wanted.max_examples)) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "evaluate", 0,
                                "--validation %.60s: expected a share between 0%% and 100%%, as "
                                "10%%, or a number of examples from 1; :writers, :seed=S and "
                                ":first=M may follow",
                                options->validation);
        }
    }
    DUNLIN_TRY(dunlin_tools_dataset_open(options->test_set, folder, split, &wanted,
                                         &evaluator->alloc, &evaluator->test_set, error));
    dunlin_shape found = dunlin_dataset_shape(evaluator->test_set);
    int64_t n_wanted = 0;
    int64_t n_found = 0;
    if (dunlin_shape_count(&shape, &n_wanted) != DUNLIN_OK ||
        dunlin_shape_count(&found, &n_found) != DUNLIN_OK || n_wanted != n_found ||
        dunlin_dataset_n_classes(evaluator->test_set) > dunlin_model_n_outputs(model)) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "evaluate", 0,
                            "--test-set %.60s: its examples or classes do not fit model %.80s",
                            options->test_set, task->model);
    }
    dunlin_dataset_source(evaluator->test_set, &evaluator->source);
    evaluator->n_examples = dunlin_dataset_n_examples(evaluator->test_set);
    evaluator->is_whole = task->plan.orders.ignores_label;
    return DUNLIN_OK;
}

static dunlin_status set_up(dunlin__evaluator *evaluator, const dunlin_model *model,
                            const dunlin__server_task *task, const dunlin_server_options *options,
                            dunlin__layout *layout, dunlin_error *error)
{
    DUNLIN_TRY(fill_layout(model, &evaluator->alloc, layout, error));
    evaluator->n_parameters = dunlin_model_n_parameters(model);
    DUNLIN_TRY(
        dunlin__evaluator_find_variances(model, &evaluator->alloc, &evaluator->is_variance, error));
    layout->is_variance = evaluator->is_variance;
    DUNLIN_TRY(dunlin__evaluator_check_plan(model, task, error));
    DUNLIN_TRY(open_test_set(evaluator, model, task, options, error));
    evaluator->block = dunlin__alloc_array(&evaluator->alloc, BLOCK_VALUES, sizeof(float));
    if (evaluator->block == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "evaluate", 0, "a block of %u bytes",
                            DUNLIN_WIRE_BLOCK_BYTES);
    }
    dunlin_trainer_options wanted = DUNLIN_TRAINER_OPTIONS_INIT;
    wanted.batch = BATCH;
    wanted.n_threads = options->n_threads;
    wanted.has_ignore_label = task->plan.orders.ignores_label;
    wanted.ignore_label = task->plan.orders.ignored_label;
    wanted.seed = options->has_seed ? options->seed : task->seed;
    DUNLIN_TRY(dunlin_trainer_create(model, &wanted, &evaluator->trainer, error));
    evaluator->n_values =
        (uint64_t)dunlin_trainer_n_weights(evaluator->trainer, DUNLIN_WEIGHTS_ALL);
    if (evaluator->n_values != layout->n_values) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "evaluate", 0,
                            "the trainer has %" PRIu64 " values, the model %" PRIu64,
                            evaluator->n_values, layout->n_values);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__evaluator_open(const dunlin__server_task *task,
                                     const dunlin_server_options *options,
                                     const dunlin_alloc *alloc, dunlin__layout *out_layout,
                                     dunlin__evaluator **out_evaluator, dunlin_error *error)
{
    dunlin_model *model = NULL;
    DUNLIN_TRY(open_model(task, alloc, &model, error));
    dunlin__evaluator *evaluator = dunlin__alloc_zeroed(alloc, 1, sizeof *evaluator);
    dunlin_status status = DUNLIN_OK;
    if (evaluator == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "evaluate", 0, "%zu bytes", sizeof *evaluator);
    } else {
        evaluator->alloc = *alloc;
        status = set_up(evaluator, model, task, options, out_layout, error);
    }
    dunlin_model_destroy(model);
    if (status != DUNLIN_OK) {
        dunlin__free_array(alloc, out_layout->tensors, out_layout->n_tensors,
                           sizeof *out_layout->tensors);
        out_layout->tensors = NULL;
        out_layout->n_tensors = 0;
        out_layout->is_variance = NULL;
        dunlin__evaluator_close(evaluator);
        return status;
    }
    *out_evaluator = evaluator;
    return DUNLIN_OK;
}

void dunlin__evaluator_close(dunlin__evaluator *evaluator)
{
    if (evaluator == NULL) {
        return;
    }
    dunlin_trainer_destroy(evaluator->trainer);
    dunlin_dataset_close(evaluator->test_set);
    dunlin_alloc alloc = evaluator->alloc;
    dunlin__free_array(&alloc, evaluator->block, BLOCK_VALUES, sizeof(float));
    dunlin__free_array(&alloc, evaluator->is_variance, (size_t)evaluator->n_parameters,
                       sizeof *evaluator->is_variance);
    dunlin__free_array(&alloc, evaluator, 1, sizeof *evaluator);
}

/* The trainer's own words about a failure. */
static dunlin_status pass_on(const dunlin__evaluator *evaluator, dunlin_status status,
                             dunlin_error *error)
{
    const dunlin_error *detail = dunlin_trainer_last_error(evaluator->trainer);
    if (detail != NULL && detail->status == status && error != NULL) {
        *error = *detail;
        return status;
    }
    return dunlin__fail(error, status, "evaluate", 0, "%s", dunlin_status_text(status));
}

static dunlin_status initial_values(void *ctx, uint64_t first, size_t n, float *out_values,
                                    dunlin_error *error)
{
    dunlin__evaluator *evaluator = ctx;
    dunlin_status status = dunlin_trainer_get_weights(evaluator->trainer, DUNLIN_WEIGHTS_ALL,
                                                      (int64_t)first, (int64_t)n, out_values);
    return status == DUNLIN_OK ? DUNLIN_OK : pass_on(evaluator, status, error);
}

dunlin__values dunlin__evaluator_initial(dunlin__evaluator *evaluator)
{
    return (dunlin__values){.ctx = evaluator, .values_fn = initial_values};
}

bool dunlin__evaluator_has_test_set(const dunlin__evaluator *evaluator)
{
    return evaluator != NULL && evaluator->test_set != NULL;
}

dunlin_status dunlin__evaluator_load(dunlin__evaluator *evaluator, const dunlin__values *values,
                                     dunlin_error *error)
{
    dunlin_status status = DUNLIN_OK;
    for (uint64_t first = 0; status == DUNLIN_OK && first < evaluator->n_values;
         first += BLOCK_VALUES) {
        uint64_t left = evaluator->n_values - first;
        size_t n = left < BLOCK_VALUES ? (size_t)left : BLOCK_VALUES;
        status = values->values_fn(values->ctx, first, n, evaluator->block, error);
        if (status == DUNLIN_OK) {
            status = dunlin_trainer_set_weights(evaluator->trainer, DUNLIN_WEIGHTS_ALL,
                                                (int64_t)first, (int64_t)n, evaluator->block);
            status = status == DUNLIN_OK ? status : pass_on(evaluator, status, error);
        }
    }
    return status;
}

static dunlin_status load_file(dunlin__evaluator *evaluator, const char *path, dunlin_error *error)
{
    dunlin__weights_file file;
    DUNLIN_TRY(dunlin__weights_file_open(path, evaluator->n_values, &file, error));
    const dunlin__values values = dunlin__weights_file_values(&file);
    const dunlin_status status = dunlin__evaluator_load(evaluator, &values, error);
    dunlin__weights_file_close(&file);
    return status;
}

size_t dunlin__evaluator_n_pieces(const dunlin__evaluator *evaluator)
{
    if (!dunlin__evaluator_has_test_set(evaluator)) {
        return 0;
    }
    /* In a piece none of whose labels counts there is nothing to judge. */
    return evaluator->is_whole
               ? 1
               : ((size_t)evaluator->n_examples + PIECE_EXAMPLES - 1) / PIECE_EXAMPLES;
}

/* Right answers are whole numbers, but where shares of outputs are told. */
static double count_right(const dunlin_metrics *metrics)
{
    const double right = metrics->accuracy * (double)metrics->n_counted;
    return fabs(right - round(right)) < 1e-6 ? round(right) : right;
}

dunlin_status dunlin__evaluator_judge(dunlin__evaluator *evaluator, size_t piece,
                                      dunlin__figures *out_figures, dunlin_error *error)
{
    const int64_t each = evaluator->is_whole ? evaluator->n_examples : PIECE_EXAMPLES;
    const int64_t first = (int64_t)piece * each;
    const int64_t left = evaluator->n_examples - first;
    dunlin_metrics metrics = {0};
    if (atomic_load(&evaluator->is_stopped)) {
        return dunlin__fail(error, DUNLIN_STOPPED, "evaluate", 0, "stopped on request at piece %zu",
                            piece);
    }
    const dunlin_status status = dunlin_trainer_evaluate(
        evaluator->trainer, &evaluator->source, first, left < each ? left : each, &metrics);
    if (status != DUNLIN_OK) {
        return pass_on(evaluator, status, error);
    }
    *out_figures = (dunlin__figures){.right = count_right(&metrics),
                                     .n_counted = (double)metrics.n_counted,
                                     .loss = metrics.loss * metrics.weight,
                                     .weight = metrics.weight};
    return DUNLIN_OK;
}

void dunlin__figures_join(const dunlin__figures *pieces, size_t n, double *out_accuracy,
                          double *out_loss)
{
    dunlin__figures sum = {0};
    for (size_t i = 0; i < n; i++) {
        sum.right += pieces[i].right;
        sum.n_counted += pieces[i].n_counted;
        sum.loss += pieces[i].loss;
        sum.weight += pieces[i].weight;
    }
    *out_accuracy = sum.n_counted > 0.0 ? sum.right / sum.n_counted : 0.0;
    *out_loss = sum.weight > 0.0 ? sum.loss / sum.weight : 0.0;
}

/* All pieces, one after the other. */
static dunlin_status judge_all(dunlin__evaluator *evaluator, double *out_accuracy, double *out_loss,
                               dunlin_error *error)
{
    const size_t n = dunlin__evaluator_n_pieces(evaluator);
    dunlin__figures *pieces = dunlin__alloc_zeroed(&evaluator->alloc, n, sizeof *pieces);
    dunlin_status status = DUNLIN_OK;
    if (pieces == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "evaluate", 0, "%zu pieces of the test set", n);
    }
    for (size_t i = 0; i < n && status == DUNLIN_OK; i++) {
        status = dunlin__evaluator_judge(evaluator, i, &pieces[i], error);
    }
    if (status == DUNLIN_OK) {
        dunlin__figures_join(pieces, n, out_accuracy, out_loss);
    }
    dunlin__free_array(&evaluator->alloc, pieces, n, sizeof *pieces);
    return status;
}

dunlin_status dunlin__evaluator_run(dunlin__evaluator *evaluator, const char *weights_path,
                                    double *out_accuracy, double *out_loss, dunlin_error *error)
{
    DUNLIN_TRY(load_file(evaluator, weights_path, error));
    return judge_all(evaluator, out_accuracy, out_loss, error);
}

static dunlin_status export_loaded(dunlin__evaluator *evaluator, const char *onnx_path,
                                   dunlin_error *error)
{
    dunlin_status status = dunlin_trainer_export_onnx(evaluator->trainer, onnx_path);
    return status == DUNLIN_OK ? DUNLIN_OK : pass_on(evaluator, status, error);
}

dunlin_status dunlin__evaluator_export(dunlin__evaluator *evaluator, const char *weights_path,
                                       const char *onnx_path, dunlin_error *error)
{
    DUNLIN_TRY(load_file(evaluator, weights_path, error));
    return export_loaded(evaluator, onnx_path, error);
}

dunlin_status dunlin__evaluator_export_values(dunlin__evaluator *evaluator,
                                              const dunlin__values *values, const char *onnx_path,
                                              dunlin_error *error)
{
    DUNLIN_TRY(dunlin__evaluator_load(evaluator, values, error));
    return export_loaded(evaluator, onnx_path, error);
}

void dunlin__evaluator_stop(dunlin__evaluator *evaluator)
{
    if (evaluator != NULL) {
        atomic_store(&evaluator->is_stopped, true);
        dunlin_trainer_stop(evaluator->trainer);
    }
}

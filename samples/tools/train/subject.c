/*
 * subject.c - what is trained on what: the model of --model and a data set in the shape it takes.
 */
#include "train.h"

#include <dunlin/pixels.h>
#include <dunlin/tools.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int train_fail(const dunlin_error *error)
{
    return program_refuse(&train_program, error->status, "%s",
                          error->text[0] != '\0' ? error->text : dunlin_status_text(error->status));
}

static bool is_file(const char *model)
{
    size_t n = strlen(model);
    return n >= 5 && strcmp(model + n - 5, ".onnx") == 0;
}

#define MAX_LISTED 20 /* issues on a screen */

/* "RoiAlign: the operator is not supported (12 nodes, first 'up1')" */
static void print_issue(void *ctx, const dunlin_model_issue *issue)
{
    int *n_listed = ctx;
    if (++*n_listed > MAX_LISTED) {
        return;
    }
    fprintf(stderr, "  %s%s%s: %s", issue->op, issue->attribute[0] == '\0' ? "" : ", ",
            issue->attribute, issue->reason);
    if (issue->n_nodes > 1) {
        fprintf(stderr, " (%" PRId32 " nodes, first '%s')", issue->n_nodes, issue->node);
    } else if (issue->node[0] != '\0') {
        fprintf(stderr, " (node '%s')", issue->node);
    }
    fprintf(stderr, "%s%s\n", issue->way_out[0] == '\0' ? "" : "; ", issue->way_out);
}

/* An error of a file names the file. */
static int fail_file(const train_flags *flags, const dunlin_error *error)
{
    const char *text = error->text;
    return strstr(text, flags->model) != NULL
               ? train_fail(error)
               : program_refuse(&train_program, error->status, "%s: %s", flags->model, text);
}

/* What a file may leave open. */
static dunlin_model_sizes sizes_of(const train_flags *flags)
{
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    sizes.height = (int32_t)flags->image;
    sizes.width = (int32_t)flags->image;
    sizes.length = (int32_t)flags->length;
    sizes.outputs = flags->outputs.n > 0 ? flags->outputs.names : NULL;
    return sizes;
}

/* All that stands in the way, one line each, and then the error. */
static int tell_issues(const train_flags *flags, const dunlin_error *error)
{
    dunlin_error check_error = {0};
    int32_t n_issues = 0;
    int n_listed = 0;
    const dunlin_model_sizes sizes = sizes_of(flags);
    dunlin_status status = dunlin_model_check_sized(flags->model, &sizes, NULL, print_issue,
                                                    &n_listed, &n_issues, &check_error);
    if (status != DUNLIN_OK || n_issues == 0) {
        return fail_file(flags, error);
    }
    if (n_listed > MAX_LISTED) {
        fprintf(stderr, "  ... and %d more\n", n_listed - MAX_LISTED);
    }
    return program_refuse(&train_program, DUNLIN_UNSUPPORTED,
                          "%s cannot be trained: %" PRId32 " %s, listed above", flags->model,
                          n_issues, n_issues == 1 ? "issue" : "issues");
}

static int open_file(const train_flags *flags, dunlin_model **out_model)
{
    dunlin_error error = {0};
    const dunlin_model_sizes sizes = sizes_of(flags);
    dunlin_status status = dunlin_model_open_sized(flags->model, &sizes, NULL, out_model, &error);
    if (status == DUNLIN_UNSUPPORTED) {
        return tell_issues(flags, &error);
    }
    if (status != DUNLIN_OK) {
        return fail_file(flags, &error);
    }
    const char *warning = dunlin_model_warning(*out_model);
    if (warning != NULL) {
        fprintf(stderr, "warning: %s: %s\n", flags->model, warning);
    }
    if (flags->classes != 0 && flags->classes != dunlin_model_n_outputs(*out_model)) {
        dunlin_model *headed = NULL;
        status =
            dunlin_model_replace_head(*out_model, (int32_t)flags->classes, NULL, &headed, &error);
        dunlin_model_destroy(*out_model);
        *out_model = headed;
        return status == DUNLIN_OK ? EXIT_OK : fail_file(flags, &error);
    }
    return EXIT_OK;
}

int train_open_model(const train_flags *flags, dunlin_model **out_model)
{
    *out_model = NULL;
    int exit_status = EXIT_OK;
    if (is_file(flags->model)) {
        exit_status = open_file(flags, out_model);
    } else {
        dunlin_error error = {0};
        dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options),
                                      .image = (int32_t)flags->image,
                                      .classes = (int32_t)flags->classes,
                                      .sequence = (int32_t)flags->length};
        data_fill_zoo(&flags->choice, flags->model, &options);
        dunlin_status status =
            dunlin_model_from_zoo(flags->model, &options, NULL, out_model, &error);
        exit_status = status == DUNLIN_OK ? EXIT_OK : train_fail(&error);
    }
    if (exit_status != EXIT_OK) {
        return exit_status;
    }
    dunlin_shape shape = dunlin_model_input_shape(*out_model);
    if (flags->image != 0 && (shape.n_dims != 3 || shape.dims[1] != flags->image)) {
        exit_status = program_refuse(&train_program, DUNLIN_MISMATCH,
                                     "--image %" PRId64 ": %s takes images of another "
                                     "size, and its own only",
                                     flags->image, flags->model);
        dunlin_model_destroy(*out_model);
        *out_model = NULL;
    }
    return exit_status;
}

int train_open_data(const train_flags *flags, const dunlin_model *model, dunlin_split split,
                    dunlin_dataset **out_dataset)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    const char *name = NULL;
    const char *wrong = data_fit(&flags->choice, model, flags->model, &name, &options);
    if (wrong != NULL) {
        return program_refuse(&train_program, DUNLIN_MISMATCH, "%s", wrong);
    }
    if (train_has_pipeline(flags) && data_is_folder(&flags->choice)) {
        /* Pictures of any size: what goes into the pipeline is as large as --resize says. */
        options.shape.dims[1] = flags->resize > 0 ? flags->resize : options.shape.dims[1];
        options.shape.dims[2] = flags->resize > 0 ? flags->resize : options.shape.dims[2];
        const dunlin_shape taken = dunlin_model_input_shape(model);
        options.decode_bytes = train_plan_ahead(flags, &options.shape, &taken).decode_bytes;
    } else if (train_has_pipeline(flags) && strcmp(name, "random") != 0 &&
               options.shape.n_dims != 1 && options.shape.n_dims != 2) {
        options.image = 0;
        options.shape.n_dims = 0;
    }
    options.seed = flags->seed;
    options.index_bytes = flags->data_budget_bytes;
    if (split == DUNLIN_SPLIT_TRAIN) {
        options.max_examples = flags->max_examples;
        options.n_writers = flags->n_writers;
    }
    dunlin_error error = {0};
    progress line;
    data_begin_reading(&flags->choice, &line);
    const dunlin_status opened = dunlin_tools_dataset_open(name, flags->choice.folder, split,
                                                           &options, NULL, out_dataset, &error);
    progress_end(&line);
    if (opened != DUNLIN_OK) {
        return train_fail(&error);
    }
    if (dunlin_dataset_n_labels(*out_dataset) != dunlin_model_n_labels(model)) {
        const int status = program_refuse(
            &train_program, DUNLIN_MISMATCH,
            "%s has %" PRId64 " labels an example, the model %" PRId64 " rows of outputs",
            dunlin_dataset_title(*out_dataset), dunlin_dataset_n_labels(*out_dataset),
            dunlin_model_n_labels(model));
        dunlin_dataset_close(*out_dataset);
        *out_dataset = NULL;
        return status;
    }
    if (dunlin_dataset_n_classes(*out_dataset) > dunlin_model_n_outputs(model)) {
        int status =
            program_refuse(&train_program, DUNLIN_MISMATCH,
                           "%s has %" PRId32 " classes, the model %" PRId64 " outputs",
                           dunlin_dataset_title(*out_dataset),
                           dunlin_dataset_n_classes(*out_dataset), dunlin_model_n_outputs(model));
        dunlin_dataset_close(*out_dataset);
        *out_dataset = NULL;
        return status;
    }
    return EXIT_OK;
}

void train_tell_index(const dunlin_dataset *train, train_result *result)
{
    result->data_index_bytes = dunlin_dataset_index_bytes(train);
    if (result->data_index_bytes != 0) {
        printf("index of the folder: %" PRIu64 " bytes for %" PRId64 " files\n",
               result->data_index_bytes, dunlin_dataset_n_examples(train));
    }
}

int train_plan_index(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_dataset *train = NULL;
    if (!data_is_folder(&flags->choice)) {
        return EXIT_OK;
    }
    const int exit_status = train_open_data(flags, model, DUNLIN_SPLIT_TRAIN, &train);
    if (exit_status == EXIT_OK) {
        train_tell_index(train, result);
    }
    dunlin_dataset_close(train);
    return exit_status;
}

int train_open_costs(const train_flags *flags, const dunlin_model *model, dunlin_costs **out_costs,
                     const char **out_name)
{
    dunlin_error error = {0};
    *out_costs = NULL;
    *out_name = "roofline";
    if (flags->costs == NULL) {
        return EXIT_OK;
    }
    dunlin_status status = DUNLIN_OK;
    if (access(flags->costs, F_OK) == 0) {
        *out_name = flags->costs;
        status = dunlin_costs_load(flags->costs, NULL, out_costs, &error);
    } else {
        const dunlin_trainer_options options = train_options(flags);
        *out_name = "measured";
        printf("measuring costs for %s\n", flags->costs);
        (void)fflush(stdout);
        progress line;
        progress_begin(&line, "measuring", NULL);
        status = dunlin_costs_measure(model, &options, out_costs, &error);
        progress_end(&line);
        if (status == DUNLIN_OK) {
            status = dunlin_costs_save(*out_costs, flags->costs, &error);
        }
    }
    if (status != DUNLIN_OK) {
        dunlin_costs_free(*out_costs);
        *out_costs = NULL;
        return train_fail(&error);
    }
    return EXIT_OK;
}

/* Labels are read where targets will lie, and spread from the last to the first. */
static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    const train_targets *targets = ctx;
    const int32_t width = targets->n_outputs;
    const dunlin_source *labels = &targets->labels;
    dunlin_status status =
        labels->read_fn(labels->ctx, indices, n, out_x, (int32_t *)(void *)out_targets);
    for (int64_t i = n - 1; i >= 0 && status == DUNLIN_OK; i--) {
        int32_t label = 0;
        memcpy(&label, out_targets + i, sizeof label);
        for (int32_t c = 0; c < width; c++) {
            out_targets[i * width + c] = c == label ? 1.0F : 0.0F;
        }
    }
    return status;
}

static void begin_step(void *ctx, int64_t step)
{
    const train_targets *targets = ctx;
    if (targets->labels.step_fn != NULL) {
        targets->labels.step_fn(targets->labels.ctx, step);
    }
}

static void hint(void *ctx, int64_t step, const int64_t *indices, int64_t n)
{
    const train_targets *targets = ctx;
    if (targets->labels.hint_fn != NULL) {
        targets->labels.hint_fn(targets->labels.ctx, step, indices, n);
    }
}

static const char *last_error(void *ctx)
{
    const train_targets *targets = ctx;
    return targets->labels.error_fn == NULL ? "" : targets->labels.error_fn(targets->labels.ctx);
}

void train_source(const train_flags *flags, const dunlin_source *labels, int64_t n_outputs,
                  train_targets *targets, dunlin_source *out_source)
{
    *out_source = *labels;
    const dunlin_loss loss = train_loss(flags);
    if (loss == DUNLIN_LOSS_CROSS_ENTROPY || loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY ||
        labels->read_targets_fn != NULL) {
        return; /* labels, or targets of examples that are mixed */
    }
    *targets = (train_targets){.labels = *labels, .n_outputs = (int32_t)n_outputs};
    out_source->ctx = targets;
    out_source->read_targets_fn = read_targets;
    out_source->n_targets = n_outputs;
    out_source->step_fn = begin_step;
    out_source->hint_fn = hint;
    out_source->error_fn = last_error;
}

static void print_warning(void *ctx, dunlin_log_level level, const char *subsystem,
                          const char *text)
{
    (void)ctx;
    (void)level;
    (void)subsystem;
    progress_clear_any();
    (void)fprintf(stderr, "%s: %s\n", train_program.name, text);
}

dunlin_trainer_options train_options(const train_flags *flags)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.budget_bytes = flags->budget_bytes;
    options.least_budget_bytes = flags->least_budget_bytes;
    options.batch = flags->batch;
    options.micro_batch = flags->micro_batch;
    options.policy = flags->policy_value;
    options.baselines = dunlin_baselines_published();
    options.n_threads = (int32_t)flags->n_threads;
    options.precision = flags->precision;
    options.weight_growth = train_growth(flags);
    if (!train_is_integer(flags)) {
        options.lr = (float)flags->lr;
        options.momentum = (float)flags->momentum;
    }
    options.weight_decay = (float)flags->weight_decay;
    options.is_nesterov = flags->is_nesterov;
    options.loss = train_loss(flags);
    options.label_smoothing = (float)flags->label_smoothing;
    options.has_ignore_label = flags->has_ignore_label;
    options.ignore_label = (int32_t)flags->ignore_label;
    options.optimizer = flags->optimizer_value;
    options.beta1 = flags->beta1;
    options.beta2 = flags->beta2;
    options.eps = flags->eps;
    options.clip_value = (float)flags->clip_value;
    options.clip_norm = (float)flags->clip_norm;
    options.freeze_batch_norm = flags->freeze_batch_norm;
    options.ghost_statistics = flags->is_ghost;
    options.no_fuse = flags->no_fuse;
    options.storage = flags->storage_value;
    options.seed = flags->seed;
    train_choose_parameters(flags, &options);
    train_choose_outputs(flags, &options);
    options.isa = flags->isa;
    options.cache_dir = flags->cache;
    options.swap_dir = flags->swap_dir;
    options.swap_write_mb_per_s = flags->swap_write_mb_per_s;
    options.swap_read_mb_per_s = flags->swap_read_mb_per_s;
    options.log = (dunlin_log){.write_fn = print_warning, .level = DUNLIN_LOG_WARNING};
    return options;
}

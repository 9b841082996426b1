/*
 * probe.c - trains an ONNX file on raw examples and tells every loss: the side of ours in steps.py.
 *
 * probe MODEL.onnx FOLDER LOSS BATCH STEPS RATE MOMENTUM: FOLDER/examples.f32 has the inputs of
 * whole batches, one example after another, FOLDER/answers the labels (int32, LOSS cross-entropy)
 * or targets (float32, LOSS mse or bce). Step t takes examples t * BATCH and on, from the first
 * again when they are used up. Prints the loss of each step; writes FOLDER/outputs.f32, what the
 * trained network predicts for all examples, and FOLDER/trained.onnx.
 */
#include <dunlin/pixels.h>
#include <dunlin/trainer.h>
#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024
#define MAX_BATCH 64

typedef struct job {
    dunlin_model *model;
    dunlin_trainer *trainer;
    float *examples;
    void *answers; /* labels or targets */
    float *outputs;
    int64_t n_examples, n_inputs, n_outputs;
    dunlin_loss loss;
} job;

static int64_t count(const dunlin_shape *shape)
{
    int64_t n = 1;
    for (int32_t d = 0; d < shape->n_dims; d++) {
        n *= shape->dims[d];
    }
    return n;
}

static int fail(const char *what, const dunlin_error *error)
{
    (void)fprintf(stderr, "probe: %s: %s\n", what,
                  error->text[0] != '\0' ? error->text : dunlin_status_text(error->status));
    return 1;
}

/* All of a file; NULL (told) if it cannot be read or is empty. */
static void *read_file(const char *folder, const char *name, size_t *out_bytes)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    long size = -1;
    void *bytes = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0) {
        bytes = malloc((size_t)size);
        rewind(file);
        if (bytes != NULL && fread(bytes, 1, (size_t)size, file) != (size_t)size) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (bytes == NULL) {
        (void)fprintf(stderr, "probe: cannot read %s\n", path);
    }
    *out_bytes = bytes != NULL ? (size_t)size : 0;
    return bytes;
}

static void copy_examples(const job *all, const int64_t *indices, int64_t n, void *out_x)
{
    const size_t bytes = (size_t)all->n_inputs * sizeof(float);
    for (int64_t i = 0; i < n; i++) {
        (void)memcpy((char *)out_x + (size_t)i * bytes, all->examples + indices[i] * all->n_inputs,
                     bytes);
    }
}

static dunlin_status read_labels(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    const job *all = ctx;
    copy_examples(all, indices, n, out_x);
    for (int64_t i = 0; i < n; i++) {
        out_y[i] = ((const int32_t *)all->answers)[indices[i]];
    }
    return DUNLIN_OK;
}

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    const job *all = ctx;
    copy_examples(all, indices, n, out_x);
    for (int64_t i = 0; i < n; i++) {
        (void)memcpy(out_targets + i * all->n_outputs,
                     (const float *)all->answers + indices[i] * all->n_outputs,
                     (size_t)all->n_outputs * sizeof(float));
    }
    return DUNLIN_OK;
}

static dunlin_source source_of(job *all)
{
    dunlin_source source = DUNLIN_SOURCE_INIT;
    source.ctx = all;
    source.n_examples = all->n_examples;
    source.dtype = DUNLIN_F32;
    if (all->loss == DUNLIN_LOSS_CROSS_ENTROPY) {
        source.read_fn = read_labels;
    } else {
        source.read_targets_fn = read_targets;
        source.n_targets = all->n_outputs;
    }
    return source;
}

/* The files of the folder, as many examples as both of them have. */
static int open_data(job *all, const char *folder)
{
    const dunlin_shape shape = dunlin_model_input_shape(all->model);
    size_t n_bytes = 0;
    size_t n_answer_bytes = 0;
    all->n_inputs = count(&shape);
    all->n_outputs = dunlin_model_n_outputs(all->model) * dunlin_model_n_labels(all->model);
    all->examples = read_file(folder, "examples.f32", &n_bytes);
    all->answers = read_file(folder, "answers", &n_answer_bytes);
    if (all->examples == NULL || all->answers == NULL) {
        return 1;
    }
    all->n_examples = (int64_t)(n_bytes / sizeof(float)) / all->n_inputs;
    const int64_t answers = all->loss == DUNLIN_LOSS_CROSS_ENTROPY ? 1 : all->n_outputs;
    if (n_bytes != (size_t)(all->n_examples * all->n_inputs) * sizeof(float) ||
        n_answer_bytes != (size_t)(all->n_examples * answers) * sizeof(float)) {
        (void)fprintf(stderr,
                      "probe: %zu bytes of examples and %zu of answers are not examples of "
                      "%" PRId64 " numbers with %" PRId64 "\n",
                      n_bytes, n_answer_bytes, all->n_inputs, answers);
        return 1;
    }
    all->outputs = malloc((size_t)(all->n_examples * all->n_outputs) * sizeof(float));
    return all->outputs == NULL;
}

static int train(job *all, int64_t batch, int64_t n_steps)
{
    const dunlin_source source = source_of(all);
    for (int64_t step = 0; step < n_steps; step++) {
        int64_t indices[MAX_BATCH];
        dunlin_metrics metrics;
        for (int64_t i = 0; i < batch; i++) {
            indices[i] = (step * batch + i) % all->n_examples;
        }
        if (dunlin_trainer_step(all->trainer, &source, indices, batch, &metrics) != DUNLIN_OK) {
            return fail("a step", dunlin_trainer_last_error(all->trainer));
        }
        (void)printf("%.17g\n", metrics.loss);
    }
    if (dunlin_trainer_predict(all->trainer, &source, 0, all->n_examples, all->outputs) !=
        DUNLIN_OK) {
        return fail("the prediction", dunlin_trainer_last_error(all->trainer));
    }
    return 0;
}

static int write_results(const job *all, const char *folder)
{
    char path[PATH_BYTES];
    const size_t n = (size_t)(all->n_examples * all->n_outputs);
    (void)snprintf(path, sizeof path, "%s/outputs.f32", folder);
    FILE *file = fopen(path, "wb");
    bool is_written = file != NULL && fwrite(all->outputs, sizeof(float), n, file) == n;
    is_written = file != NULL && fclose(file) == 0 && is_written;
    if (!is_written) {
        (void)fprintf(stderr, "probe: cannot write %s\n", path);
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/trained.onnx", folder);
    return dunlin_trainer_export_onnx(all->trainer, path) == DUNLIN_OK
               ? 0
               : fail(path, dunlin_trainer_last_error(all->trainer));
}

static int run(job *all, char **argv)
{
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = strtoll(argv[4], NULL, 10);
    options.lr = strtof(argv[6], NULL);
    options.momentum = strtof(argv[7], NULL);
    options.loss = strcmp(argv[3], "mse") == 0   ? DUNLIN_LOSS_MSE
                   : strcmp(argv[3], "bce") == 0 ? DUNLIN_LOSS_BCE
                                                 : DUNLIN_LOSS_CROSS_ENTROPY;
    all->loss = options.loss;
    if (options.batch < 1 || options.batch > MAX_BATCH) {
        (void)fprintf(stderr, "probe: batch %s is not in 1 to %d\n", argv[4], MAX_BATCH);
        return 2;
    }
    if (dunlin_model_open(argv[1], NULL, &all->model, &error) != DUNLIN_OK) {
        return fail(argv[1], &error);
    }
    if (open_data(all, argv[2]) != 0) {
        return 1;
    }
    if (dunlin_trainer_create(all->model, &options, &all->trainer, &error) != DUNLIN_OK) {
        return fail(argv[1], &error);
    }
    const int status = train(all, options.batch, strtoll(argv[5], NULL, 10));
    return status != 0 ? status : write_results(all, argv[2]);
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        (void)fprintf(stderr,
                      "usage: probe MODEL.onnx FOLDER cross-entropy|mse|bce BATCH STEPS RATE "
                      "MOMENTUM\n");
        return 2;
    }
    job all = {0};
    const int status = run(&all, argv);
    dunlin_trainer_destroy(all.trainer);
    dunlin_model_destroy(all.model);
    free(all.examples);
    free(all.answers);
    free(all.outputs);
    return status;
}

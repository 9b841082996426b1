/*
 * test_app_model.c - the built-in learner's federated model for the app, from the real server over
 * TLS: what is handed out in each phase of a run and at its end, predictions, the ONNX file, other
 * threads.
 */
#include "qdq_check.h"
#include "site.h"

#include <dunlin/app_model.h>
#include <dunlin/arrays.h>
#include <dunlin/builtin.h>
#include <dunlin/predictor.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define N_IMAGES 24
#define N_PIXELS 784
#define N_CLASSES 10
#define MOST_VALUES 100000
#define TASK(keys)                                                                                 \
    "{\"population\": \"phones\", \"task\": \"digits\", \"rounds\": 2, \"cohort\": 1, "            \
    "\"model\": \"lenet5\", \"seed\": 5, \"plan\": {\"lr\": 0.05, \"batch\": 8}" keys "}"

static site where;
static site_device device;
static float pixels[N_IMAGES * N_PIXELS];
static int32_t labels[N_IMAGES];
static dunlin_arrays_view view;
static dunlin_source images = DUNLIN_SOURCE_INIT;
static dunlin_model *network;
static dunlin_trainer_pool *pool;
static dunlin_builtin *builtin;
static dunlin_error error;

#define MUST(call) cr_assert_eq((call), DUNLIN_OK, "%s", error.text)

static void make_images(void)
{
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    for (int i = 0; i < N_IMAGES * N_PIXELS; i++) { /* one of four quarters is bright */
        const int quarter = i % 28 / 14 + i % N_PIXELS / 392 * 2;
        labels[i / N_PIXELS] = i / N_PIXELS % 4;
        pixels[i] = quarter == i / N_PIXELS % 4 ? 1.0F : 0.01F * (float)(i % 31);
    }
    arrays.x = pixels;
    arrays.dtype = DUNLIN_F32;
    arrays.shape = (dunlin_shape){3, {1, 28, 28}};
    arrays.n = N_IMAGES;
    arrays.labels = labels;
    MUST(dunlin_source_from_arrays(&arrays, &view, &images, &error));
}

static void begin(const char *task)
{
    dunlin_trainer_options training = DUNLIN_TRAINER_OPTIONS_INIT;
    make_images();
    site_open(&where, task);
    site_listen(&where, NULL);
    MUST(dunlin_model_from_zoo("lenet5", NULL, NULL, &network, &error));
    MUST(dunlin_trainer_pool_create(network, &training, 1, &pool, &error));
    site_device_make(&device, &where, "store");
    MUST(dunlin_builtin_create(pool, &images, NULL, &builtin, &device.plug, &error));
    site_device_open(&device);
}

static void end(void)
{
    site_device_close(&device);
    dunlin_builtin_destroy(builtin);
    dunlin_trainer_pool_destroy(pool);
    dunlin_model_destroy(network);
    site_close(&where);
}

/* Calls until something other than a wait comes of it. */
static dunlin_round_report run(dunlin_outcome wanted)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 200; i++) {
        const dunlin_status status = dunlin_client_run_round(device.client, &report);
        cr_assert_eq(status, DUNLIN_OK, "%s", dunlin_client_last_error(device.client)->text);
        if (report.outcome != DUNLIN_OUTCOME_NOT_SELECTED) {
            break;
        }
        site_device_rest(&device);
        const struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL); /* the server folds, and settles the end */
    }
    cr_assert_eq(report.outcome, wanted, "%s", dunlin_outcome_name(report.outcome));
    site_device_rest(&device);
    return report;
}

static dunlin_app_model_info open_model(dunlin_app_model **out_model)
{
    dunlin_app_model_info info = DUNLIN_APP_MODEL_INFO_INIT;
    MUST(dunlin_app_model_open(device.client, out_model, &error));
    MUST(dunlin_app_model_get_info(*out_model, &info));
    cr_expect_str_eq(info.task, "digits");
    return info;
}

/* Is every tensor the server's model before a round, but for the device's own? Their number. */
static int compare(const dunlin_app_model *model, uint64_t round)
{
    static float server[MOST_VALUES];
    static float ours[MOST_VALUES];
    dunlin_weights_reader reader;
    int64_t n = 0;
    int n_other = 0;
    MUST(dunlin_app_model_get_reader(model, &reader));
    for (int32_t i = 0; i < reader.n_tensors; i++) {
        n += reader.tensors[i].n_elements;
    }
    cr_assert_leq(n, MOST_VALUES);
    site_read_model(&where, round, "weights", (uint64_t)n, server);
    n = 0;
    for (int32_t i = 0; i < reader.n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &reader.tensors[i];
        const size_t n_bytes = (size_t)tensor->n_elements * sizeof(float);
        MUST(reader.read_fn(reader.ctx, i, 0, tensor->n_elements, ours));
        const bool is_same = memcmp(ours, server + n, n_bytes) == 0;
        cr_assert(is_same || tensor->aggregation == DUNLIN_AGGREGATE_LOCAL, "%s", tensor->name);
        n_other += is_same ? 0 : 1;
        n += tensor->n_elements;
    }
    return n_other;
}

/* The outputs of a trainer that was given the same tensors by their names. */
static void predict_otherwise(const dunlin_app_model *model, float out[N_IMAGES * N_CLASSES])
{
    static float values[MOST_VALUES];
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer *trainer = NULL;
    dunlin_weights_reader reader;
    MUST(dunlin_trainer_create(network, &options, &trainer, &error));
    MUST(dunlin_app_model_get_reader(model, &reader));
    for (int32_t i = 0; i < reader.n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &reader.tensors[i];
        MUST(dunlin_app_model_get_tensor(model, tensor->name, values, tensor->n_elements, &error));
        MUST(dunlin_trainer_set_parameter(trainer, tensor->name, values, tensor->n_elements));
    }
    MUST(dunlin_trainer_predict(trainer, &images, 0, N_IMAGES, out));
    dunlin_trainer_destroy(trainer);
}

static void predict(dunlin_predictor *predictor, float out[N_IMAGES * N_CLASSES])
{
    MUST(dunlin_predictor_predict(predictor, &images, 0, N_IMAGES, out, &error));
}

Test(app_model, of_each_round_and_of_the_end, .timeout = 600)
{
    dunlin_app_model *model = NULL;
    begin(TASK(""));
    cr_expect_eq(dunlin_app_model_open(device.client, &model, &error), DUNLIN_STATE);
    cr_expect_not_null(strstr(error.text, "no federated model yet"), "%s", error.text);
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    const uint64_t n_before = device.memory.now_bytes;
    dunlin_app_model_info first = open_model(&model);
    cr_expect_lt(device.memory.now_bytes - n_before, 8192, "no more than a table of 10 tensors");
    cr_expect_gt(first.n_bytes, 100000);
    cr_expect_eq(first.round, 0);
    cr_expect_not(first.is_final);
    cr_expect_eq(compare(model, 1), 0);
    dunlin_app_model_close(model);
    site_wait_round(&where, 2);
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    dunlin_app_model_info second = open_model(&model);
    cr_expect_eq(second.round, 1);
    cr_expect_eq(compare(model, 2), 0);
    cr_expect_neq(memcmp(first.sha256, second.sha256, sizeof first.sha256), 0);
    dunlin_app_model_close(model);
    site_wait_round(&where, 3);
    const int64_t before_ms = device.skipped_ms;
    dunlin_round_report report = run(DUNLIN_OUTCOME_RUN_OVER);
    cr_expect_eq(report.round, 2);
    cr_expect_geq(device.skipped_ms - before_ms, 3600000, "the long window");
    site_device_close(&device); /* the app starts again */
    site_device_open(&device);
    dunlin_app_model_info last = open_model(&model);
    cr_expect_eq(last.round, 2);
    cr_expect(last.is_final);
    cr_expect_eq(compare(model, 3), 0);
    dunlin_app_model_close(model);
    /* Asked again, the client has it already. */
    const uint64_t n_bytes = site_count(&where).bytes_down;
    (void)run(DUNLIN_OUTCOME_RUN_OVER);
    cr_expect_lt(site_count(&where).bytes_down - n_bytes, 5000);
    end();
}

Test(app_model, predicts_as_a_trainer_with_the_same_weights, .timeout = 600)
{
    static float outputs[4][N_IMAGES * N_CLASSES];
    dunlin_app_model *model = NULL;
    dunlin_predictor *predictor = NULL;
    dunlin_predictor_options options = DUNLIN_PREDICTOR_OPTIONS_INIT;
    options.batch = 8;
    begin(TASK(""));
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    (void)open_model(&model);
    MUST(dunlin_app_model_create_predictor(model, network, &options, &predictor, &error));
    predict(predictor, outputs[0]);
    predict_otherwise(model, outputs[1]);
    cr_expect_eq(memcmp(outputs[0], outputs[1], sizeof outputs[0]), 0);
    dunlin_app_model_close(model);
    site_wait_round(&where, 2);
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    (void)open_model(&model);
    MUST(dunlin_app_model_fill_predictor(model, network, predictor, &error));
    predict(predictor, outputs[2]);
    predict_otherwise(model, outputs[3]);
    cr_expect_eq(memcmp(outputs[2], outputs[3], sizeof outputs[2]), 0);
    cr_expect_neq(memcmp(outputs[0], outputs[2], sizeof outputs[0]), 0, "nothing was learnt");
    dunlin_predictor_destroy(predictor);
    dunlin_app_model_close(model);
    end();
}

Test(app_model, has_the_devices_own_layers, .timeout = 600)
{
    static float outputs[2][N_IMAGES * N_CLASSES];
    dunlin_app_model *model = NULL;
    dunlin_predictor *predictor = NULL;
    begin(TASK(", \"local\": \"classifier.5\""));
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(open_model(&model).n_own, 2);
    cr_expect_eq(compare(model, 1), 2, "the head is the device's own");
    dunlin_app_model_close(model);
    site_wait_round(&where, 2);
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    site_wait_round(&where, 3);
    (void)run(DUNLIN_OUTCOME_RUN_OVER);
    cr_expect_eq(open_model(&model).n_own, 2);
    cr_expect_eq(compare(model, 3), 2);
    MUST(dunlin_app_model_create_predictor(model, network, NULL, &predictor, &error));
    predict(predictor, outputs[0]);
    predict_otherwise(model, outputs[1]);
    cr_expect_eq(memcmp(outputs[0], outputs[1], sizeof outputs[0]), 0);
    dunlin_predictor_destroy(predictor);
    dunlin_app_model_close(model);
    end();
}

Test(app_model, becomes_an_onnx_file_whole_or_not_at_all, .timeout = 600)
{
    static float outputs[2][N_IMAGES * N_CLASSES];
    char path[128];
    char nowhere[128];
    struct stat about;
    struct stat after;
    dunlin_app_model *model = NULL;
    dunlin_model *read = NULL;
    dunlin_model *other = NULL;
    dunlin_predictor *predictor = NULL;
    begin(TASK(""));
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    (void)open_model(&model);
    (void)snprintf(path, sizeof path, "%s/app.onnx", where.folder);
    (void)snprintf(nowhere, sizeof nowhere, "%s/nowhere/app.onnx", where.folder);
    MUST(dunlin_app_model_export_onnx(model, network, path, &error));
    MUST(dunlin_model_open(path, NULL, &read, &error));
    MUST(dunlin_predictor_create(read, NULL, &predictor, &error));
    predict(predictor, outputs[0]);
    predict_otherwise(model, outputs[1]);
    cr_expect_eq(memcmp(outputs[0], outputs[1], sizeof outputs[0]), 0);
    dunlin_predictor_destroy(predictor);
    cr_expect_eq(dunlin_app_model_export_onnx(model, network, nowhere, &error), DUNLIN_IO);
    MUST(dunlin_model_from_zoo("mlp", NULL, NULL, &other, &error));
    cr_assert_eq(stat(path, &about), 0);
    cr_expect_eq(dunlin_app_model_export_onnx(model, other, path, &error), DUNLIN_MISMATCH);
    cr_expect_not_null(strstr(error.text, "the federated model has "), "%s", error.text);
    cr_assert_eq(stat(path, &after), 0);
    cr_expect_eq(about.st_ino, after.st_ino, "the file that was there stays");
    cr_expect_eq(dunlin_app_model_create_predictor(model, other, NULL, &predictor, &error),
                 DUNLIN_MISMATCH);
    cr_expect_null(predictor);
    MUST(dunlin_predictor_create(other, NULL, &predictor, &error));
    cr_expect_eq(dunlin_app_model_fill_predictor(model, network, predictor, &error),
                 DUNLIN_MISMATCH);
    cr_expect_eq(dunlin_app_model_fill_predictor(model, network, NULL, &error), DUNLIN_ARGUMENT);
    dunlin_predictor_destroy(predictor);
    cr_expect_eq(dunlin_app_model_create_predictor(NULL, network, NULL, &predictor, &error),
                 DUNLIN_ARGUMENT);
    cr_expect_null(predictor);
    cr_expect_eq(dunlin_app_model_export_onnx(model, NULL, path, &error), DUNLIN_ARGUMENT);
    dunlin_model_destroy(other);
    dunlin_model_destroy(read);
    dunlin_app_model_close(model);
    end();
}

/* ---- in a trainer ---- */

/* Is every parameter of the trainer the federated one, rounded to whole multiples of its unit where
 * `is_rounded`? */
static void expect_weights(const dunlin_app_model *model, dunlin_trainer *trainer, bool is_rounded)
{
    static float wanted[MOST_VALUES];
    static float is[MOST_VALUES];
    for (int32_t i = 0; i < dunlin_trainer_n_parameters(trainer); i++) {
        dunlin_parameter_info info = {0};
        dunlin_scale_info scale = DUNLIN_SCALE_INFO_INIT;
        MUST(dunlin_trainer_parameter(trainer, i, &info));
        const size_t n = (size_t)info.n_elements;
        MUST(dunlin_app_model_get_tensor(model, info.name, wanted, info.n_elements, &error));
        MUST(dunlin_trainer_get_parameter(trainer, info.name, is, info.n_elements));
        if (!is_rounded) {
            cr_expect_eq(memcmp(is, wanted, n * sizeof *is), 0, "%s", info.name);
            continue;
        }
        MUST(dunlin_trainer_scale(trainer, i, &scale));
        for (size_t k = 0; k < n; k++) {
            const float whole = ldexpf(wanted[k], -scale.exponent);
            const float rounded = fmaxf(-127.0F, fminf(127.0F, roundf(whole)));
            cr_assert_eq(is[k], ldexpf(rounded, scale.exponent), "%s: %zu", info.name, k);
        }
    }
}

Test(app_model, goes_into_a_trainer_of_floats, .timeout = 600)
{
    static float outputs[2][N_IMAGES * N_CLASSES];
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_app_model *model = NULL;
    dunlin_model *other = NULL;
    dunlin_trainer *trainer = NULL;
    begin(TASK(""));
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    (void)open_model(&model);
    MUST(dunlin_trainer_create(network, &options, &trainer, &error));
    MUST(dunlin_app_model_fill_trainer(model, network, trainer, &error));
    expect_weights(model, trainer, false);
    MUST(dunlin_trainer_predict(trainer, &images, 0, N_IMAGES, outputs[0]));
    predict_otherwise(model, outputs[1]);
    cr_expect_eq(memcmp(outputs[0], outputs[1], sizeof outputs[0]), 0);
    cr_expect_eq(dunlin_app_model_fill_trainer(model, network, NULL, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_app_model_fill_trainer(NULL, network, trainer, &error), DUNLIN_ARGUMENT);
    MUST(dunlin_model_from_zoo("mlp", NULL, NULL, &other, &error));
    cr_expect_eq(dunlin_app_model_fill_trainer(model, other, trainer, &error), DUNLIN_MISMATCH);
    expect_weights(model, trainer, false);
    dunlin_trainer_destroy(trainer);
    MUST(dunlin_trainer_create(other, &options, &trainer, &error));
    cr_expect_eq(dunlin_app_model_fill_trainer(model, network, trainer, &error), DUNLIN_MISMATCH);
    cr_expect_not_null(strstr(error.text, "the trainer has "), "%s", error.text);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(other);
    dunlin_app_model_close(model);
    end();
}

Test(app_model, becomes_a_qdq_file, .timeout = 600)
{
    char prefix[128];
    char path[160];
    char arguments[512];
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_metrics metrics;
    dunlin_app_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    options.precision = "niti";
    begin(TASK(""));
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    (void)open_model(&model);
    MUST(dunlin_trainer_create(network, &options, &trainer, &error));
    MUST(dunlin_app_model_fill_trainer(model, network, trainer, &error));
    (void)snprintf(prefix, sizeof prefix, "%s/app", where.folder);
    (void)snprintf(path, sizeof path, "%s.onnx", prefix);
    cr_expect_eq(dunlin_trainer_export_qdq(trainer, path), DUNLIN_STATE, "no values were seen");
    MUST(dunlin_trainer_evaluate(trainer, &images, 0, N_IMAGES, &metrics));
    expect_weights(model, trainer, true);
    qdq_write(trainer, &images, N_IMAGES, N_PIXELS, N_CLASSES, prefix);
    (void)snprintf(arguments, sizeof arguments, "%s.onnx %s.x %s.y 6 0", prefix, prefix, prefix);
    if (qdq_is_checkable()) {
        cr_expect_eq(qdq_check(arguments), 0, "%s", arguments);
    }
    qdq_remove(prefix);
    dunlin_trainer_destroy(trainer);
    dunlin_app_model_close(model);
    end();
}

/* ---- other threads ---- */

typedef struct watcher {
    atomic_bool is_stopped;
    int n_opened;
    uint64_t highest;
    dunlin_error error; /* the first that should not be */
} watcher;

static void *watch(void *ctx)
{
    watcher *w = ctx;
    while (!atomic_load(&w->is_stopped)) {
        float bias[6];
        dunlin_app_model *model = NULL;
        dunlin_app_model_info info = DUNLIN_APP_MODEL_INFO_INIT;
        dunlin_error failure = {0};
        dunlin_status status = dunlin_app_model_open(device.client, &model, &failure);
        if (status == DUNLIN_OK) {
            status = dunlin_app_model_get_tensor(model, "features.0.bias", bias, 6, &failure);
        }
        if (status == DUNLIN_OK && dunlin_app_model_get_info(model, &info) == DUNLIN_OK) {
            w->n_opened++;
            w->highest = info.round > w->highest ? info.round : w->highest;
        } else if (status != DUNLIN_STATE && w->error.status == DUNLIN_OK) {
            w->error = failure;
        }
        dunlin_app_model_close(model);
    }
    return NULL;
}

Test(app_model, is_read_by_another_thread_while_rounds_run, .timeout = 600)
{
    watcher w = {.n_opened = 0};
    pthread_t thread;
    dunlin_app_model *model = NULL;
    begin(TASK(", \"local\": \"classifier.5\""));
    cr_assert_eq(pthread_create(&thread, NULL, watch, &w), 0);
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    site_wait_round(&where, 2);
    (void)run(DUNLIN_OUTCOME_ACCEPTED);
    site_wait_round(&where, 3);
    (void)run(DUNLIN_OUTCOME_RUN_OVER);
    (void)open_model(&model);
    dunlin_app_model_close(model);
    for (int i = 0; i < 1000 && w.highest < 2; i++) {
        const struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL);
    }
    atomic_store(&w.is_stopped, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_eq(w.error.status, DUNLIN_OK, "%s", w.error.text);
    cr_expect_gt(w.n_opened, 0);
    cr_expect_eq(w.highest, 2);
    end();
}

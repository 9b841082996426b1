/*
 * fake_client.c - the client's side of the tests: a runtime over the fake server, a learner that
 * adds known numbers, folders.
 */
#include "fake_server.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t clock_now(void *ctx)
{
    return ((const fake_server *)ctx)->now_ms;
}

static void clock_sleep(void *ctx, int64_t ms)
{
    ((fake_server *)ctx)->now_ms += ms;
}

dunlin_runtime *fake_server_runtime(fake_server *server, const char *folder,
                                    const dunlin_alloc *alloc)
{
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_runtime *runtime = NULL;
    dunlin_error error = {0};
    options.store_folder = folder;
    options.clock = (dunlin_clock){
        .ctx = server, .wall_ms_fn = clock_now, .boot_ms_fn = clock_now, .sleep_fn = clock_sleep};
    if (alloc != NULL) {
        options.alloc = *alloc;
    }
    if (dunlin_runtime_create(&options, &runtime, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "runtime: %s\n", error.text);
        abort();
    }
    runtime->transport_ops.destroy_fn(runtime->transport);
    runtime->transport = &server->base;
    runtime->transport_ops = *server->base.ops;
    return runtime;
}

dunlin_client_options fake_server_client(const fake_server *server)
{
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    options.server_url = "https://Fake.example:8443";
    options.population = "phones";
    options.signing_keys = server->signing_public;
    options.n_signing_keys = 1;
    return options;
}

/* --- the learner --- */

static dunlin_status adder_load(void *self, const dunlin_task *task,
                                const dunlin_weights_reader *base)
{
    fake_learner *learner = self;
    if (learner->n_busy > 0) {
        learner->n_busy--;
        return DUNLIN_LOCKED;
    }
    if (learner->load_status != DUNLIN_OK) {
        return learner->load_status;
    }
    if (learner->wants_names && strcmp(base->tensors[0].name, "weights") != 0) {
        return DUNLIN_MISMATCH;
    }
    learner->n_loads++;
    learner->task = *task;
    learner->task.precision = NULL;
    (void)snprintf(learner->precision, sizeof learner->precision, "%s",
                   task->precision != NULL ? task->precision : "");
    learner->base = *base;
    learner->slice = 0;
    learner->evaluation = 0;
    return DUNLIN_OK;
}

static dunlin_status adder_fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    fake_learner *learner = self;
    (void)max_ms;
    learner->n_fits++;
    learner->slice++;
    if (learner->clock != NULL) {
        learner->clock->now_ms += learner->slice_ms;
    }
    if (learner->fit_status != DUNLIN_OK) {
        return learner->fit_status;
    }
    out_report->is_done = learner->slice >= learner->n_slices;
    out_report->n_examples = learner->n_examples;
    out_report->n_steps = learner->slice;
    out_report->loss = 1.0 / learner->slice;
    out_report->accuracy = 0.5;
    if (learner->edit_report_fn != NULL) {
        learner->edit_report_fn(out_report);
    }
    return DUNLIN_OK;
}

static dunlin_status adder_evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    fake_learner *learner = self;
    (void)max_ms;
    learner->n_evaluates++;
    learner->evaluation++;
    if (learner->clock != NULL) {
        learner->clock->now_ms += learner->slice_ms;
    }
    if (learner->fit_status != DUNLIN_OK) {
        return learner->fit_status;
    }
    out_report->is_done = learner->evaluation >= learner->n_slices;
    out_report->n_examples = learner->n_examples;
    out_report->loss = 1.0 / (1 + learner->slice);
    out_report->accuracy = 0.25 * (1 + learner->slice);
    if (learner->edit_report_fn != NULL) {
        learner->edit_report_fn(out_report);
    }
    learner->evaluation = out_report->is_done ? 0 : learner->evaluation;
    return DUNLIN_OK;
}

static dunlin_status adder_read(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    const fake_learner *learner = ctx;
    dunlin_status status = learner->base.read_fn(learner->base.ctx, index, first, n, out);
    for (int64_t i = 0; i < n; i++) {
        out[i] += learner->step * (float)((first + i) % 5 + 1);
    }
    if (learner->gives_nan && n > 1) {
        out[1] = NAN;
    }
    return status;
}

static dunlin_status adder_save(void *self, dunlin_weights_reader *out)
{
    fake_learner *learner = self;
    *out = (dunlin_weights_reader){.ctx = learner,
                                   .tensors = learner->base.tensors,
                                   .n_tensors =
                                       learner->base.n_tensors - (learner->drops_tensor ? 1 : 0),
                                   .read_fn = adder_read};
    return DUNLIN_OK;
}

static void adder_unload(void *self)
{
    ((fake_learner *)self)->n_unloads++;
}

static const char *adder_error(void *self)
{
    const fake_learner *learner = self;
    return learner->fit_status != DUNLIN_OK || learner->load_status != DUNLIN_OK ? "the adder fell"
                                                                                 : NULL;
}

static const dunlin_learner_ops ADDER_OPS = {.struct_size = sizeof(dunlin_learner_ops),
                                             .load = adder_load,
                                             .fit = adder_fit,
                                             .evaluate = adder_evaluate,
                                             .save = adder_save,
                                             .unload = adder_unload,
                                             .error_text = adder_error};

static dunlin_status keeper_checkpoint(void *self, const char *path)
{
    fake_learner *learner = self;
    learner->n_checkpoints++;
    if (learner->clock != NULL) {
        learner->clock->now_ms += learner->checkpoint_takes_ms;
    }
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return DUNLIN_IO;
    }
    (void)fprintf(file, "%d\n", learner->slice);
    (void)fclose(file);
    return learner->checkpoint_status;
}

static dunlin_status keeper_restore(void *self, const char *path)
{
    fake_learner *learner = self;
    FILE *file = fopen(path, "r");
    if (learner->restore_status != DUNLIN_OK || file == NULL) {
        learner->slice = -1000; /* in an unknown state: only a load helps */
        if (file != NULL) {
            (void)fclose(file);
        }
        return file == NULL ? DUNLIN_IO : learner->restore_status;
    }
    bool is_read = fscanf(file, "%d", &learner->slice) == 1;
    (void)fclose(file);
    learner->n_restores += is_read;
    return is_read ? DUNLIN_OK : DUNLIN_DATA;
}

static const dunlin_learner_ops KEEPER_OPS = {.struct_size = sizeof(dunlin_learner_ops),
                                              .load = adder_load,
                                              .fit = adder_fit,
                                              .evaluate = adder_evaluate,
                                              .save = adder_save,
                                              .unload = adder_unload,
                                              .error_text = adder_error,
                                              .checkpoint = keeper_checkpoint,
                                              .restore = keeper_restore};

dunlin_learner fake_learner_make_keeping(fake_learner *learner)
{
    (void)fake_learner_make(learner);
    return (dunlin_learner){.ops = &KEEPER_OPS, .self = learner};
}

dunlin_learner fake_learner_make(fake_learner *learner)
{
    memset(learner, 0, sizeof *learner);
    learner->step = 0.25F;
    learner->n_slices = 3;
    learner->n_examples = 40;
    return (dunlin_learner){.ops = &ADDER_OPS, .self = learner};
}

float fake_learner_update(const fake_learner *learner, const fake_server *server, int64_t i)
{
    static const int64_t N[FAKE_TENSORS] = {70000, 12, 3};
    int64_t place = i;
    for (int t = 0; t < FAKE_TENSORS && place >= N[t]; t++) {
        place -= N[t];
    }
    float fresh = server->values[i] + learner->step * (float)(place % 5 + 1);
    return fresh - server->values[i];
}

/* --- the world --- */

void fake_world_make(fake_world *world)
{
    memset(world, 0, sizeof *world);
    fake_folder_make(world->folder);
    fake_server_init(&world->server);
    world->plug = fake_learner_make(&world->learner);
    world->options = fake_server_client(&world->server);
}

void fake_world_open(fake_world *world)
{
    dunlin_error error = {0};
    world->runtime = fake_server_runtime(&world->server, world->folder, NULL);
    if (dunlin_client_create(world->runtime, &world->options, &world->plug, &world->client,
                             &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "client: %s\n", error.text);
        abort();
    }
}

void fake_world_close(fake_world *world)
{
    dunlin_client_destroy(world->client);
    world->client = NULL;
    dunlin_runtime_destroy(world->runtime);
    world->runtime = NULL;
}

/* --- folders --- */

void fake_folder_make(char out_path[64])
{
    (void)strcpy(out_path, "/tmp/dunlin-test-XXXXXX");
    if (mkdtemp(out_path) == NULL) {
        perror(out_path);
        abort();
    }
}

static int walk(const char *path, bool is_removed)
{
    int n = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return 0;
    }
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char inner[600];
        struct stat about;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        (void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        n++;
        if (lstat(inner, &about) == 0 && S_ISDIR(about.st_mode)) {
            n += walk(inner, is_removed);
        }
        if (is_removed) {
            (void)remove(inner);
        }
    }
    (void)closedir(folder);
    return n;
}

int fake_folder_count(const char *path)
{
    return walk(path, false);
}

void fake_folder_remove(const char *path)
{
    (void)walk(path, true);
    (void)rmdir(path);
}

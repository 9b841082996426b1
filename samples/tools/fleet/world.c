/*
 * world.c - what all devices of a simulation share: the data, its split, the network, the trainers.
 */
#include "fleet.h"

#include <dunlin/pipeline.h>
#include <dunlin/pixels.h>
#include <dunlin/several.h>
#include <dunlin/tools.h>
#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int fail(fleet_world *world, const dunlin_error *error)
{
    (void)snprintf(world->error, sizeof world->error, "%s",
                   error->text[0] != '\0' ? error->text : dunlin_status_text(error->status));
    return program_fail(&fleet_program, "%s", world->error);
}

/* As many as devices; in simulated time devices share a part where there are more than examples. */
static int64_t n_parts(const fleet_flags *flags, const dunlin_dataset *dataset)
{
    const int64_t n_examples = dunlin_dataset_n_examples(dataset);
    const bool is_shared = flags->devices_file != NULL &&
                           flags->partition_kind == DUNLIN_PARTITION_IID &&
                           flags->n_all_clients > n_examples;
    return is_shared ? n_examples : flags->n_all_clients;
}

static int open_data(const fleet_flags *flags, fleet_world *world)
{
    dunlin_error error = {0};
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.seed = flags->seed;
    options.max_examples = flags->max_examples;
    options.validation = flags->validation != NULL ? &flags->held_out : NULL;
    if (strcmp(flags->choice.name, "synthetic") == 0 && flags->validation == NULL &&
        flags->partition_kind == DUNLIN_PARTITION_NATURAL) {
        options.n_writers = flags->n_all_clients;
    }
    const char *name = flags->choice.name;
    if (world->model != NULL) {
        const char *wrong = data_fit(&flags->choice, world->model, flags->model, &name, &options);
        if (wrong != NULL) {
            error.status = DUNLIN_MISMATCH;
            (void)snprintf(error.text, sizeof error.text, "%s", wrong);
            return fail(world, &error);
        }
    }
    progress line = {0};
    if (!flags->is_quiet) {
        data_begin_reading(&flags->choice, &line);
    }
    const dunlin_status status = dunlin_tools_dataset_open(
        name, flags->choice.folder, DUNLIN_SPLIT_TRAIN, &options, NULL, &world->dataset, &error);
    progress_end(&line);
    if (status != DUNLIN_OK) {
        return fail(world, &error);
    }
    dunlin_partition_options partition = DUNLIN_PARTITION_OPTIONS_INIT;
    partition.kind = flags->partition_kind;
    partition.n_clients = n_parts(flags, world->dataset);
    partition.alpha = flags->alpha;
    partition.seed = flags->seed;
    partition.shares_writers = flags->devices_file != NULL;
    if (dunlin_partition_create(world->dataset, &partition, NULL, &world->partition, &error) !=
        DUNLIN_OK) {
        return fail(world, &error);
    }
    if (fleet_n_devices(flags, world) < 1) {
        (void)snprintf(world->error, sizeof world->error,
                       "--first-index %lld: the data are shared out among %lld devices",
                       (long long)flags->first_index,
                       (long long)dunlin_partition_n_clients(world->partition));
        return program_fail(&fleet_program, "%s", world->error);
    }
    return EXIT_OK;
}

/* The largest step of any device: of one whose remainder joins a batch, more than the batch. */
static int64_t largest_step(const fleet_flags *flags, const fleet_world *world)
{
    bool joins = flags->remainder != NULL && strcmp(flags->remainder, "join") == 0;
    for (int32_t i = 0; flags->remainder == NULL && i < dunlin_model_n_parameters(world->model);
         i++) {
        joins = joins || dunlin_model_is_variance(world->model, i);
    }
    int64_t most = world->batch;
    for (int64_t i = 0; joins && i < dunlin_partition_n_clients(world->partition); i++) {
        int64_t n = 0;
        (void)dunlin_partition_indices(world->partition, i, &n);
        const int64_t joined = dunlin_joined_batch(n, world->batch);
        most = joined > most ? joined : most;
    }
    return most;
}

/* A file is opened before the data, which take its shape; a network that reads a text or two images
 * likewise. */
static int open_first(const fleet_flags *flags, fleet_world *world)
{
    const size_t n = strlen(flags->model);
    dunlin_error error = {0};
    const bool is_file = n > 5 && strcmp(flags->model + n - 5, ".onnx") == 0;
    const bool is_pairs = strcmp(flags->choice.name, "pairs") == 0;
    if (!is_file &&
        (is_pairs || data_is_text(&flags->choice) || data_is_speeches(&flags->choice))) {
        dunlin_zoo_options zoo = DUNLIN_ZOO_OPTIONS_INIT;
        zoo.image = is_pairs ? (int32_t)flags->image : 0;
        data_fill_zoo(&flags->choice, flags->model, &zoo);
        return dunlin_model_from_zoo(flags->model, &zoo, NULL, &world->model, &error) == DUNLIN_OK
                   ? EXIT_OK
                   : fail(world, &error);
    }
    if (!is_file) {
        return EXIT_OK;
    }
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    sizes.height = (int32_t)flags->image;
    sizes.width = (int32_t)flags->image;
    return dunlin_model_open_sized(flags->model, &sizes, NULL, &world->model, &error) == DUNLIN_OK
               ? EXIT_OK
               : fail(world, &error);
}

/* A network of the zoo, in the shape of the data. */
static int open_zoo(const fleet_flags *flags, fleet_world *world)
{
    dunlin_error error = {0};
    const dunlin_shape shape = dunlin_dataset_shape(world->dataset);
    const dunlin_zoo_options zoo = {.struct_size = sizeof(dunlin_zoo_options),
                                    .image =
                                        (int32_t)(flags->image > 0 ? flags->image : shape.dims[1]),
                                    .channels = (int32_t)shape.dims[0],
                                    .classes = dunlin_dataset_n_classes(world->dataset)};
    return dunlin_model_from_zoo(flags->model, &zoo, NULL, &world->model, &error) == DUNLIN_OK
               ? EXIT_OK
               : fail(world, &error);
}

static int open_training(const fleet_flags *flags, fleet_world *world)
{
    dunlin_error error = {0};
    if (world->model == NULL && open_zoo(flags, world) != EXIT_OK) {
        return EXIT_FAILED;
    }
    /* Images are read anew in the size that the network takes. */
    if (flags->image > 0 && dunlin_model_n_inputs(world->model) == 1 &&
        flags->image != dunlin_dataset_shape(world->dataset).dims[1]) {
        dunlin_partition_destroy(world->partition);
        dunlin_dataset_close(world->dataset);
        world->partition = NULL;
        world->dataset = NULL;
        const int status = open_data(flags, world);
        if (status != EXIT_OK) {
            return status;
        }
    }
    world->n_params = dunlin_model_n_trainable_elements(world->model);
    if (dunlin_model_check_precision(world->model, flags->precision, &error) != DUNLIN_OK ||
        dunlin_model_check_storage(world->model, flags->storage_value, &error) != DUNLIN_OK) {
        return fail(world, &error);
    }
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.precision = flags->precision;
    options.storage = flags->storage_value;
    options.budget_bytes = flags->budget_bytes;
    options.momentum = (float)flags->momentum;
    options.policy = flags->policy;
    options.baselines = dunlin_baselines_published();
    options.ghost_statistics = flags->ghost > 0;
    options.micro_batch = flags->ghost;
    progress line = {0};
    if (!flags->is_quiet) {
        progress_begin(&line, "planning", NULL);
    }
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_status status = fleet_batch_choose(flags, world, &options, &error);
    if (status == DUNLIN_OK) {
        world->largest_step = largest_step(flags, world);
        options.batch = world->largest_step;
        status = dunlin_trainer_estimate(world->model, &options, &report, &error);
    }
    progress_end(&line);
    if (status != DUNLIN_OK) {
        return fail(world, &error);
    }
    options.batch = world->batch;
    options.precision = NULL; /* the plan says it, and the next */
    options.storage = DUNLIN_STORAGE_EXACT;
    if (dunlin_trainer_pool_create(world->model, &options, (int32_t)flags->n_threads, &world->pool,
                                   &error) != DUNLIN_OK) {
        return fail(world, &error);
    }
    return EXIT_OK;
}

/* What no device could do to its examples is refused here, as the devices would, before any round.
 */
static int check_changes(const fleet_flags *flags, fleet_world *world)
{
    dunlin_error error = {0};
    dunlin_source source;
    dunlin_pipeline *pipeline = NULL;
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    const dunlin_shape shape = dunlin_model_input_shape(world->model);
    options.is_flip = flags->is_flip;
    options.cutout = (int32_t)flags->changes.cutout;
    options.shift = (int32_t)flags->changes.shift;
    options.mixup = (float)flags->changes.mixup;
    options.noise = (float)flags->changes.noise;
    options.n_classes = (int32_t)dunlin_model_n_outputs(world->model);
    dunlin_dataset_source(world->dataset, &source);
    const dunlin_status status =
        dunlin_pipeline_create(&source, &shape, &options, NULL, &pipeline, &error);
    dunlin_pipeline_destroy(pipeline);
    return status == DUNLIN_OK ? EXIT_OK : fail(world, &error);
}

/* So that no round fails on every device for it. */
static int check_labels(const fleet_flags *flags, fleet_world *world)
{
    dunlin_source source;
    dunlin_error error = {.status = DUNLIN_MISMATCH};
    dunlin_dataset_source(world->dataset, &source);
    const int64_t n_given = source.n_labels > 0 ? source.n_labels : 1;
    const int64_t n_wanted = dunlin_model_n_labels(world->model);
    if (source.n_targets > 0 || n_wanted == 0 || n_given == n_wanted) {
        return EXIT_OK;
    }
    (void)snprintf(error.text, sizeof error.text,
                   "%.80s learns from %" PRId64 " labels an example, and %.80s has %" PRId64,
                   flags->model, n_wanted, dunlin_dataset_title(world->dataset), n_given);
    return fail(world, &error);
}

int64_t fleet_n_devices(const fleet_flags *flags, const fleet_world *world)
{
    if (flags->devices_file != NULL) {
        return flags->n_clients; /* each has a part */
    }
    int64_t left = dunlin_partition_n_clients(world->partition) - flags->first_index;
    return left < flags->n_clients ? left : flags->n_clients;
}

int fleet_world_open(const fleet_flags *flags, fleet_world *out_world)
{
    memset(out_world, 0, sizeof *out_world);
    int status = open_first(flags, out_world);
    if (status == EXIT_OK) {
        status = open_data(flags, out_world);
    }
    if (status == EXIT_OK) {
        status = open_training(flags, out_world);
    }
    if (status == EXIT_OK) {
        status = check_labels(flags, out_world);
    }
    if (status == EXIT_OK && flags->augment != NULL) {
        status = check_changes(flags, out_world);
    }
    if (status != EXIT_OK) {
        char error[FLEET_TEXT_BYTES];
        memcpy(error, out_world->error, sizeof error);
        fleet_world_close(out_world);
        memcpy(out_world->error, error, sizeof error);
    }
    return status;
}

void fleet_world_close(fleet_world *world)
{
    dunlin_trainer_pool_destroy(world->pool);
    dunlin_model_destroy(world->model);
    dunlin_partition_destroy(world->partition);
    dunlin_dataset_close(world->dataset);
    memset(world, 0, sizeof *world);
}

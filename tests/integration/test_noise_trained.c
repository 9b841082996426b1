/*
 * test_noise_trained.c - LeNet-5 trained in int8 by the built-in learner, each device on one
 * writer's digits, with noise of the devices under secure aggregation: the model is that of the
 * same whole numbers without masks, to the bit.
 */
#include "secagg_fleet.h"

#include <dunlin/builtin.h>
#include <dunlin/dataset.h>
#include <dunlin/tools.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_VALUES 61706 /* LeNet-5's */
#define N_EXAMPLES 24  /* of a device */
#define CLIP 1.0
#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"digits\", \"rounds\": 2, \"cohort\": 4, "            \
    "\"clients\": "                                                                                \
    "4, \"deadline_s\": 150, \"model\": \"lenet5\", \"seed\": 5, \"plan\": {\"lr\": 0.05, "        \
    "\"batch\": 8, \"precision\": \"adaptive-int8\"}, \"dp\": {\"clip\": 1, \"noise\": 2, "        \
    "\"delta\": 0.01, \"separation\": 1, \"noise_by\": \"distributed\"}, \"secagg\": "             \
    "{\"neighbours\": 3, \"threshold\": 2, \"corrupt\": 0, \"dropout\": 0, \"least_devices\": 3, " \
    "\"value_limit\": 4096, \"step_s\": 12}}"
#define MUST(call) cr_assert_eq((call), DUNLIN_OK, "%s", error.text)

static dunlin_error error;

/* What lies in each device's file of whole numbers before it is masked: the clipped update and its
 * noise, and one number for how much the device counts. */
typedef struct whole_numbers {
    uint32_t of[N_VALUES + 1];
    bool is_there;
} whole_numbers;

static whole_numbers seen[FLEET_DEVICES];

static void watch(secagg_fleet *fleet, int index)
{
    if (secagg_fleet_read_numbers(fleet, index, seen[index].of, N_VALUES + 1)) {
        seen[index].is_there = true;
    }
}

/* The data and what trains on them. */
typedef struct bench {
    dunlin_dataset *dataset;
    int64_t indices[FLEET_DEVICES][N_EXAMPLES];
    dunlin_dataset_view views[FLEET_DEVICES];
    dunlin_model *network;
    dunlin_trainer_pool *pool;
    dunlin_builtin *builtins[FLEET_DEVICES];
    dunlin_learner plugs[FLEET_DEVICES];
} bench;

/* The first examples of the first writers that have as many; of data without writers one after the
 * other. */
static void share_out(bench *b)
{
    const int64_t n = dunlin_dataset_n_examples(b->dataset);
    const int64_t n_writers = dunlin_dataset_n_natural_clients(b->dataset);
    int n_devices = 0;
    for (int64_t writer = 0; writer < n_writers && n_devices < FLEET_DEVICES; writer++) {
        int n_own = 0;
        for (int64_t i = 0; i < n && n_own < N_EXAMPLES; i++) {
            if (dunlin_dataset_client_of(b->dataset, i) == writer) {
                b->indices[n_devices][n_own++] = i;
            }
        }
        n_devices += n_own == N_EXAMPLES ? 1 : 0;
    }
    for (int64_t i = 0; n_writers == 0 && i < FLEET_DEVICES * N_EXAMPLES; i++) {
        b->indices[i / N_EXAMPLES][i % N_EXAMPLES] = i;
    }
    cr_assert(n_writers == 0 || n_devices == FLEET_DEVICES);
}

/* MNIST by writer where the data sets lie, else glyphs of our own. */
static void bench_open(bench *b)
{
    const char *folder = getenv("DUNLIN_DATA");
    dunlin_trainer_options training = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    memset(b, 0, sizeof *b);
    options.max_examples = 6000;
    if (dunlin_dataset_open("mnist_writers", folder, DUNLIN_SPLIT_TRAIN, &options, NULL,
                            &b->dataset, &error) != DUNLIN_OK) {
        MUST(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL,
                                       &b->dataset, &error));
    }
    share_out(b);
    MUST(dunlin_model_from_zoo("lenet5", NULL, NULL, &b->network, &error));
    MUST(dunlin_trainer_pool_create(b->network, &training, FLEET_DEVICES, &b->pool, &error));
    for (int i = 0; i < FLEET_DEVICES; i++) {
        dunlin_source source = DUNLIN_SOURCE_INIT;
        cr_assert_eq(
            dunlin_dataset_subset(b->dataset, b->indices[i], N_EXAMPLES, &b->views[i], &source),
            DUNLIN_OK);
        MUST(dunlin_builtin_create(b->pool, &source, NULL, &b->builtins[i], &b->plugs[i], &error));
    }
}

static void bench_close(bench *b)
{
    for (int i = 0; i < FLEET_DEVICES; i++) {
        dunlin_builtin_destroy(b->builtins[i]);
    }
    dunlin_trainer_pool_destroy(b->pool);
    dunlin_model_destroy(b->network);
    dunlin_dataset_close(b->dataset);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Round 1's model and the mean of the whole numbers, to the bit. */
static void expect_model(const secagg_fleet *fleet)
{
    static float before[N_VALUES];
    static float after[N_VALUES];
    int64_t n_moved = 0;
    server_process_wait_rounds(&fleet->server, 1);
    server_process_model(&fleet->server, 1, before, N_VALUES);
    server_process_model(&fleet->server, 2, after, N_VALUES);
    for (int64_t i = 0; i < N_VALUES; i++) {
        uint32_t sum = 0;
        for (int d = 0; d < FLEET_DEVICES; d++) {
            sum += seen[d].of[i];
        }
        const double mean =
            (double)(int32_t)sum * (CLIP / FLEET_VALUE_LIMIT * (1.0 / FLEET_DEVICES));
        const float wanted = (float)((double)before[i] + mean);
        cr_assert_eq(bits_of(after[i]), bits_of(wanted), "value %lld: %.9g, not %.9g", (long long)i,
                     (double)after[i], (double)wanted);
        n_moved += sum != 0 ? 1 : 0;
    }
    cr_expect_gt(n_moved, N_VALUES / 2);
}

Test(noise_trained, lenet5_in_int8_by_writer_is_the_sum_of_its_numbers, .timeout = 600)
{
    static secagg_fleet fleet;
    static bench b;
    bench_open(&b);
    secagg_fleet_begin_with(&fleet, TASK, b.plugs);
    fleet.watch_fn = watch;
    secagg_fleet_drive(&fleet);
    for (int i = 0; i < FLEET_DEVICES; i++) {
        secagg_fleet_expect_accepted(&fleet.devices[i]);
        cr_assert(seen[i].is_there, "device %d", i);
        cr_expect_eq(seen[i].of[N_VALUES], 1, "each counts once");
    }
    expect_model(&fleet);
    secagg_fleet_end(&fleet);
    bench_close(&b);
}

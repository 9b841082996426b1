/*
 * crash_client.c - a device as a program, to be killed: real TLS, the built-in learner with LeNet-5
 * on a few synthetic examples. Ends with 0 once a contribution was accepted.
 *
 *   crash_client URL CA.pem SIGNING.pub STORE N_ROUNDS [forgetful]
 *
 * With CRASH_HAS_MODEL=1 in the environment the app must have a model from the start.
 *
 * With CRASH_EXAMPLES in the environment the examples lie in an example store, which the first
 * start fills; the rounds then choose from it.
 *
 * forgetful: the server may lose assignments (its power fails); the device then comes again.
 * Waits are not slept: the program's clock is moved on instead.
 */
#include <dunlin/builtin.h>
#include <dunlin/client.h>
#include <dunlin/dataset.h>
#include <dunlin/tools.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_STEPS 20000
#define LONGEST_REST_MS 20

static int64_t skipped_ms;
static bool is_forgetful;

static int64_t read_clock(clockid_t id)
{
    struct timespec now = {0};
    (void)clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + skipped_ms;
}

static int64_t wall_ms(void *ctx)
{
    (void)ctx;
    return read_clock(CLOCK_REALTIME);
}

static int64_t boot_ms(void *ctx)
{
    (void)ctx;
    return read_clock(CLOCK_BOOTTIME);
}

static void rest(void *ctx, int64_t ms)
{
    (void)ctx;
    int64_t slept_ms = ms < LONGEST_REST_MS ? ms : LONGEST_REST_MS;
    struct timespec pause = {.tv_nsec = (long)slept_ms * 1000000L};
    (void)nanosleep(&pause, NULL);
    skipped_ms += ms - slept_ms;
}

static int fail(const dunlin_error *error)
{
    (void)fprintf(stderr, "crash_client: %s: %s\n", dunlin_status_name(error->status), error->text);
    return 1;
}

static int read_key(const char *path, uint8_t out_key[65])
{
    FILE *file = fopen(path, "r");
    int n_read = 0;
    unsigned byte = 0;
    while (file != NULL && n_read < 65 && fscanf(file, "%2x", &byte) == 1) {
        out_key[n_read++] = (uint8_t)byte;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return n_read == 65 ? 0 : 1;
}

static dunlin_source examples;

/* A little late, so that a step of training takes its slice of time whatever the machine: each is a
 * slice with a checkpoint after it, and rounds differ little in what they do to files. */
static dunlin_status read_late(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    struct timespec pause = {.tv_nsec = 1500000L};
    (void)nanosleep(&pause, NULL);
    return examples.read_fn(ctx, indices, n, out_x, out_y);
}

/* Errors that pass (the server is being killed too) are waited out; others end the program. */
static bool may_pass(dunlin_status status)
{
    return status == DUNLIN_UNREACHABLE || status == DUNLIN_CLOSED || status == DUNLIN_TIMEOUT ||
           status == DUNLIN_TLS || (is_forgetful && status == DUNLIN_REJECTED);
}

static int take_part(dunlin_client *client, int n_rounds)
{
    for (int n_steps = 0; n_steps < MAX_STEPS; n_steps++) { /* of one round */
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        int64_t wait_ms = 0;
        bool is_ended = false;
        dunlin_status status = dunlin_client_step(client, 1, &wait_ms, &is_ended, &report);
        if (status != DUNLIN_OK && !may_pass(status)) {
            return fail(dunlin_client_last_error(client));
        }
        if (is_ended && report.outcome == DUNLIN_OUTCOME_ACCEPTED) {
            (void)printf("round %d accepted, %lld steps\n", (int)report.round,
                         (long long)report.n_steps);
            if (--n_rounds == 0) {
                return 0;
            }
            n_steps = 0;
        } else if (is_ended && report.outcome != DUNLIN_OUTCOME_NOT_SELECTED &&
                   report.outcome != DUNLIN_OUTCOME_TOO_EARLY) {
            (void)printf("round %d: %s, %s\n", (int)report.round, dunlin_status_name(status),
                         dunlin_outcome_name(report.outcome));
        }
        (void)fflush(stdout);
        rest(NULL, is_ended ? dunlin_client_wait_ms(client) : wait_ms);
    }
    (void)fprintf(stderr, "crash_client: nothing was accepted\n");
    return 3;
}

/* The app's model is whole whenever the device starts, the old one or the new one; and there is one
 * from the first round on that was counted, as the test says by CRASH_HAS_MODEL. */
static int check_model(dunlin_client *client)
{
    dunlin_app_model *kept = NULL;
    dunlin_app_model_info info = DUNLIN_APP_MODEL_INFO_INIT;
    dunlin_error error = {0};
    const char *must = getenv("CRASH_HAS_MODEL");
    const dunlin_status status = dunlin_app_model_open(client, &kept, &error);
    if (status == DUNLIN_OK && dunlin_app_model_get_info(kept, &info) == DUNLIN_OK) {
        (void)printf("the app has the model after round %d\n", (int)info.round);
    }
    dunlin_app_model_close(kept);
    if (status == DUNLIN_OK || (status == DUNLIN_STATE && (must == NULL || must[0] != '1'))) {
        return 0;
    }
    return fail(&error);
}

/* ---- an example store in the place of the data set ---- */

#define MAX_EXAMPLES 60
#define EXAMPLE_BYTES (28 * 28)

static dunlin_examples *store;
static dunlin_examples_feed *feed;

/* All at once, so that a kill leaves all or none. */
static dunlin_status fill_store(const dunlin_source *from, dunlin_error *error)
{
    static uint8_t data[MAX_EXAMPLES][EXAMPLE_BYTES];
    dunlin_example list[MAX_EXAMPLES];
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    dunlin_status status = dunlin_examples_get_stats(store, &stats, error);
    if (status != DUNLIN_OK || stats.n_examples > 0) {
        return status;
    }
    int64_t n = from->n_examples < MAX_EXAMPLES ? from->n_examples : MAX_EXAMPLES;
    for (int64_t i = 0; i < n && status == DUNLIN_OK; i++) {
        int32_t label = 0;
        status = from->read_fn(from->ctx, &i, 1, data[i], &label);
        list[i] = (dunlin_example){.data = data[i], .n_bytes = EXAMPLE_BYTES, .label = label};
    }
    return status == DUNLIN_OK ? dunlin_examples_add(store, list, n, NULL, error) : status;
}

/* Changes *source from the data set to what rounds choose from the store. */
static dunlin_status use_store(const char *folder, dunlin_source *source,
                               dunlin_client_options *options, dunlin_error *error)
{
    static const dunlin_examples_rule EVERYTHING = DUNLIN_EXAMPLES_RULE_INIT;
    dunlin_source chosen = DUNLIN_SOURCE_INIT;
    dunlin_examples_options wanted = DUNLIN_EXAMPLES_OPTIONS_INIT;
    if (getenv("CRASH_EXAMPLES") == NULL) {
        return DUNLIN_OK;
    }
    wanted.folder = folder;
    wanted.rules = &EVERYTHING;
    wanted.n_rules = 1;
    dunlin_status status = dunlin_examples_open(&wanted, &store, error);
    if (status == DUNLIN_OK) {
        status = fill_store(source, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_examples_feed_create(store, NULL, EXAMPLE_BYTES, source->dtype, &feed,
                                             &chosen, error);
    }
    chosen.scale = source->scale;
    chosen.mean = source->mean;
    chosen.std = source->std;
    *source = chosen;
    options->examples = store;
    return status;
}

int main(int argc, char **argv)
{
    uint8_t key[65];
    if (argc < 6 || read_key(argv[3], key) != 0) {
        (void)fprintf(stderr, "usage: crash_client URL CA.pem SIGNING.pub STORE N_ROUNDS\n");
        return 2;
    }
    is_forgetful = argc > 6;
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_dataset *dataset = NULL;
    dunlin_trainer_pool *pool = NULL;
    dunlin_builtin *builtin = NULL;
    dunlin_learner learner;
    dunlin_runtime *runtime = NULL;
    dunlin_client *client = NULL;
    dunlin_source source = DUNLIN_SOURCE_INIT;
    dunlin_dataset_options data = DUNLIN_DATASET_OPTIONS_INIT;
    data.n_writers = 1;
    data.n_per_writer = 60;
    dunlin_trainer_options training = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    shared.store_folder = argv[4];
    shared.ca_file = argv[2];
    shared.clock = (dunlin_clock){.wall_ms_fn = wall_ms, .boot_ms_fn = boot_ms, .sleep_fn = rest};
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    options.server_url = argv[1];
    options.population = "phones";
    options.signing_keys = key;
    options.n_signing_keys = 1;
    options.enrolment_token = "index:0";
    options.checkpoint_ms = 1;
    int status = 1;
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK ||
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &data, NULL, &dataset,
                                  &error) ||
        dunlin_trainer_pool_create(model, &training, 1, &pool, &error) != DUNLIN_OK) {
        status = fail(&error);
    } else {
        dunlin_dataset_source(dataset, &source);
        dunlin_status opened = use_store(argv[4], &source, &options, &error);
        examples = source;
        source.read_fn = read_late;
        bool is_ok =
            opened == DUNLIN_OK &&
            dunlin_builtin_create(pool, &source, NULL, &builtin, &learner, &error) == DUNLIN_OK &&
            dunlin_runtime_create(&shared, &runtime, &error) == DUNLIN_OK &&
            dunlin_client_create(runtime, &options, &learner, &client, &error) == DUNLIN_OK;
        status = is_ok ? check_model(client) : fail(&error);
        if (status == 0) {
            status = take_part(client, (int)strtol(argv[5], NULL, 10));
        }
        if (status == 0) {
            status = check_model(client);
        }
    }
    dunlin_client_destroy(client);
    dunlin_runtime_destroy(runtime);
    dunlin_builtin_destroy(builtin);
    dunlin_examples_feed_destroy(feed);
    dunlin_examples_close(store);
    dunlin_trainer_pool_destroy(pool);
    dunlin_dataset_close(dataset);
    dunlin_model_destroy(model);
    return status;
}

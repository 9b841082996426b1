/*
 * 05_example_store.c - an app that gathers examples, and whose user has a say over each of them.
 *
 * Teaches the example store: adding with labels, limits, rules for the server's tasks, removing
 * before a round counts, consent taken back. The learner is the built-in trainer, fed from what the
 * client chose for the round.
 *   sample-05_example_store https://127.0.0.1:8443 state/ca.pem $(cat state/signing.pub) [STORE]
 * with the task file of 02_join_federation.c, its task named "digits". Expected output (the loss
 * depends on the server's seed):
 *   200 examples in 156800 bytes
 *   round 1: accepted, 100 examples, loss 2.2843
 *   removed in mid-round: withdrawn
 *   forgotten: 0 examples
 */
#include <dunlin/builtin.h>
#include <dunlin/client.h>
#include <dunlin/dataset.h>
#include <dunlin/examples.h>
#include <dunlin/tools.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define EXAMPLE_BYTES (28 * 28)
#define N_GATHERED 200

typedef struct app {
    dunlin_examples *examples;
    dunlin_examples_feed *feed;
    dunlin_trainer_pool *pool;
    dunlin_builtin *builtin;
    dunlin_runtime *runtime;
    dunlin_client_options options;
    dunlin_learner learner;
    int64_t ids[N_GATHERED];
    bool changes_its_mind;
} app;

static int fail(const dunlin_error *error)
{
    fprintf(stderr, "05_example_store: %s: %s\n", dunlin_status_name(error->status), error->text);
    return 1;
}

/* What the user drew today; here it is a data set that the library draws. */
static dunlin_status gather(app *this_app, const dunlin_source *drawn, dunlin_error *error)
{
    for (int64_t i = 0; i < N_GATHERED; i++) {
        uint8_t data[EXAMPLE_BYTES];
        dunlin_example example = {
            .collection = "drawings", .data = data, .n_bytes = sizeof data, .label = 0};
        dunlin_status status = drawn->read_fn(drawn->ctx, &i, 1, data, &example.label);
        if (status == DUNLIN_OK) {
            status = dunlin_examples_add(this_app->examples, &example, 1, &this_app->ids[i], error);
        }
        if (status != DUNLIN_OK) {
            return status;
        }
    }
    return DUNLIN_OK;
}

/* The user removes the newest drawing while it is being learnt from. */
static bool on_event(void *ctx, const dunlin_event *event)
{
    app *this_app = ctx;
    if (this_app->changes_its_mind && event->phase == DUNLIN_PHASE_UPLOAD) {
        this_app->changes_its_mind = false;
        return dunlin_examples_remove(this_app->examples, &this_app->ids[N_GATHERED - 1], 1,
                                      NULL) == DUNLIN_OK;
    }
    return true;
}

/* One round that is not sent away. */
static dunlin_status run(dunlin_client *client, dunlin_round_report *out_report)
{
    dunlin_status status = DUNLIN_OK;
    for (int i = 0; i < 50 && status == DUNLIN_OK; i++) {
        int64_t ms = dunlin_client_wait_ms(client);
        struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
        nanosleep(&pause, NULL);
        status = dunlin_client_run_round(client, out_report);
        if (out_report->outcome != DUNLIN_OUTCOME_NOT_SELECTED &&
            out_report->outcome != DUNLIN_OUTCOME_TOO_EARLY) {
            break;
        }
    }
    return status;
}

static int live(app *this_app)
{
    dunlin_error error = {0};
    dunlin_client *client = NULL;
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    if (dunlin_client_create(this_app->runtime, &this_app->options, &this_app->learner, &client,
                             &error) != DUNLIN_OK) {
        return fail(&error);
    }
    int status = 1;
    if (run(client, &report) == DUNLIN_OK && report.outcome == DUNLIN_OUTCOME_ACCEPTED) {
        printf("round %" PRIu64 ": accepted, %" PRId64 " examples, loss %.4f\n", report.round,
               report.n_examples, report.loss);
        this_app->changes_its_mind = true;
        status =
            run(client, &report) == DUNLIN_OK && report.outcome == DUNLIN_OUTCOME_WITHDRAWN ? 0 : 1;
        printf("removed in mid-round: %s\n", dunlin_outcome_name(report.outcome));
    }
    if (status == 0 && dunlin_client_forget(client) == DUNLIN_OK &&
        dunlin_examples_get_stats(this_app->examples, &stats, &error) == DUNLIN_OK) {
        printf("forgotten: %" PRId64 " examples\n", stats.n_examples);
    } else {
        status = fail(dunlin_client_last_error(client));
    }
    dunlin_client_destroy(client);
    return status;
}

/* The store, with what the app allows: the newest hundred drawings, for "digits" alone. */
static dunlin_status open_store(app *this_app, const char *folder, dunlin_error *error)
{
    static const dunlin_examples_rule RULES[] = {{.struct_size = sizeof RULES[0],
                                                  .task = "digits",
                                                  .collection = "drawings",
                                                  .max_examples = 100}};
    dunlin_examples_options wanted = DUNLIN_EXAMPLES_OPTIONS_INIT;
    wanted.folder = folder;
    wanted.max_examples = 1000;
    wanted.max_age_ms = INT64_C(30) * 24 * 3600 * 1000; /* a promise to the user */
    wanted.rules = RULES;
    wanted.n_rules = 1;
    return dunlin_examples_open(&wanted, &this_app->examples, error);
}

static dunlin_status set_up(app *this_app, const dunlin_model *model, dunlin_dataset *dataset,
                            const dunlin_runtime_options *shared, dunlin_error *error)
{
    dunlin_source drawn = DUNLIN_SOURCE_INIT;
    dunlin_source chosen = DUNLIN_SOURCE_INIT;
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    dunlin_trainer_options training = DUNLIN_TRAINER_OPTIONS_INIT;
    training.budget_bytes = 2 << 20;
    dunlin_dataset_source(dataset, &drawn);
    dunlin_status status = open_store(this_app, shared->store_folder, error);
    if (status == DUNLIN_OK) {
        status = gather(this_app, &drawn, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_examples_get_stats(this_app->examples, &stats, error);
        printf("%" PRId64 " examples in %" PRIu64 " bytes\n", stats.n_examples, stats.data_bytes);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_examples_feed_create(this_app->examples, NULL, EXAMPLE_BYTES, drawn.dtype,
                                             &this_app->feed, &chosen, error);
        chosen.scale = drawn.scale;
        chosen.mean = drawn.mean;
        chosen.std = drawn.std;
    }
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_pool_create(model, &training, 1, &this_app->pool, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_builtin_create(this_app->pool, &chosen, NULL, &this_app->builtin,
                                       &this_app->learner, error);
    }
    this_app->options.examples = this_app->examples;
    this_app->options.event_fn = on_event;
    this_app->options.event_ctx = this_app;
    return status == DUNLIN_OK ? dunlin_runtime_create(shared, &this_app->runtime, error) : status;
}

int main(int argc, char **argv)
{
    uint8_t key[65];
    for (size_t i = 0; i < 65; i++) {
        if (argc < 4 || strlen(argv[3]) != 130 || sscanf(argv[3] + 2 * i, "%2hhx", &key[i]) != 1) {
            fprintf(stderr, "usage: sample-05_example_store URL CA.pem SIGNING-KEY [STORE]\n");
            return 2;
        }
    }
    app this_app = {0};
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_dataset *dataset = NULL;
    dunlin_dataset_options data = DUNLIN_DATASET_OPTIONS_INIT;
    data.n_writers = 5;
    dunlin_runtime_options shared = {.struct_size = sizeof shared,
                                     .store_folder = argc > 4 ? argv[4] : "example_store",
                                     .ca_file = argv[2]};
    this_app.options = (dunlin_client_options){.struct_size = sizeof this_app.options,
                                               .server_url = argv[1],
                                               .population = "phones",
                                               .signing_keys = key,
                                               .n_signing_keys = 1};
    int status = 1;
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) == DUNLIN_OK &&
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &data, NULL, &dataset,
                                  &error) == DUNLIN_OK &&
        set_up(&this_app, model, dataset, &shared, &error) == DUNLIN_OK) {
        status = live(&this_app);
    } else {
        (void)fail(&error);
    }
    dunlin_runtime_destroy(this_app.runtime);
    dunlin_builtin_destroy(this_app.builtin);
    dunlin_trainer_pool_destroy(this_app.pool);
    dunlin_examples_feed_destroy(this_app.feed);
    dunlin_examples_close(this_app.examples);
    dunlin_dataset_close(dataset);
    dunlin_model_destroy(model);
    return status;
}

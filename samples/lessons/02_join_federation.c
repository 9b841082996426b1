/*
 * 02_join_federation.c - one device that takes part in a federation with the built-in learner.
 *
 * Teaches the life of a client: a runtime (store and transport), a learner over a pool of trainers,
 * a client, rounds. Weights come and go; the examples stay on the device. The data set is
 * synthetic. Start a server first:
 *   dunlin-server --listen 127.0.0.1:8443 --port-file port --state state --task task.json
 *   sample-02_join_federation https://127.0.0.1:8443 state/ca.pem state/signing.pub [STORE]
 * where task.json names population "phones" and model "lenet5" (dunlin-server --help has one).
 *
 * Expected output:
 *   round 1: accepted, 217 examples, loss 2.2803
 */
#include <dunlin/builtin.h>
#include <dunlin/client.h>
#include <dunlin/dataset.h>
#include <dunlin/tools.h>

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static int fail(const dunlin_error *error)
{
    fprintf(stderr, "02_join_federation: %s: %s\n", dunlin_status_name(error->status), error->text);
    return 1;
}

/* The server's signing key, 130 hex digits. An app would carry it in its code: assignments that it
 * has not signed are refused. */
static int read_key(const char *path, uint8_t out_key[65])
{
    FILE *file = fopen(path, "r");
    int n_read = 0;
    unsigned byte = 0;
    while (file != NULL && n_read < 65 && fscanf(file, "%2x", &byte) == 1) {
        out_key[n_read++] = (uint8_t)byte;
    }
    if (file != NULL) {
        fclose(file);
    }
    return n_read == 65 ? 0 : 1;
}

static void pause_ms(int64_t ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

/* Runs rounds until an update of ours was accepted. Between rounds the library returns to the app,
 * which would go to sleep; this one waits. */
static int take_part(dunlin_client *client)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 50; i++) {
        if (dunlin_client_run_round(client, &report) != DUNLIN_OK) {
            return fail(dunlin_client_last_error(client));
        }
        if (report.outcome == DUNLIN_OUTCOME_ACCEPTED) {
            printf("round %" PRIu64 ": accepted, %" PRId64 " examples, loss %.4f\n", report.round,
                   report.n_examples, report.loss);
            return 0;
        }
        printf("%s, again in %" PRId64 " ms\n", dunlin_outcome_name(report.outcome),
               report.retry_after_ms);
        if (report.outcome == DUNLIN_OUTCOME_RUN_OVER) {
            return 0; /* an app would ask again then: another run may have begun */
        }
        pause_ms(report.retry_after_ms);
    }
    return 1;
}

int main(int argc, char **argv)
{
    uint8_t key[65];
    if (argc < 4 || read_key(argv[3], key) != 0) {
        fprintf(stderr, "usage: sample-02_join_federation URL CA.pem SIGNING.pub [STORE]\n");
        return 2;
    }
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
    data.n_writers = 5; /* this device has the handwriting of five people */
    dunlin_trainer_options training = DUNLIN_TRAINER_OPTIONS_INIT;
    training.budget_bytes = 2 << 20; /* a hard line over all that training takes */
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    shared.store_folder = argc > 4 ? argv[4] : "join_federation_store";
    shared.ca_file = argv[2];
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    options.server_url = argv[1];
    options.population = "phones";
    options.signing_keys = key;
    options.n_signing_keys = 1;
    int status = 1;
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK ||
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &data, NULL, &dataset,
                                  &error) ||
        dunlin_trainer_pool_create(model, &training, 1, &pool, &error) != DUNLIN_OK) {
        status = fail(&error);
    } else {
        dunlin_dataset_source(dataset, &source);
        bool is_ok =
            dunlin_builtin_create(pool, &source, NULL, &builtin, &learner, &error) == DUNLIN_OK &&
            dunlin_runtime_create(&shared, &runtime, &error) == DUNLIN_OK &&
            dunlin_client_create(runtime, &options, &learner, &client, &error) == DUNLIN_OK;
        status = is_ok ? take_part(client) : fail(&error);
    }
    dunlin_client_destroy(client);
    dunlin_runtime_destroy(runtime);
    dunlin_builtin_destroy(builtin);
    dunlin_trainer_pool_destroy(pool);
    dunlin_dataset_close(dataset);
    dunlin_model_destroy(model);
    return status;
}

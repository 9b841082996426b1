/*
 * 08_use_the_model.c - an app that uses the model which its own device helps to train: how many
 * images it recognises before the federation, and with what the rounds have made of it.
 *
 * Teaches: the newest federated model is kept for the app, also after the last round and a restart
 * of the app (dunlin/app_model.h); a predictor with its weights; its ONNX file; the outcome
 * RUN_OVER, which comes with the model that a run has left. Start a server first:
 *   dunlin-server --listen 127.0.0.1:8443 --port-file port --state state --task task.json
 *   sample-08_use_the_model https://127.0.0.1:8443 state/ca.pem state/signing.pub [STORE
 * [FILE.onnx]] where task.json names population "phones", model "lenet5", cohort 1 and a few
 * rounds.
 *
 * Expected output:
 *   before: 17 of 200 right
 *   round 1 accepted, round 2 accepted, round 3 accepted; the run is over
 *   with the model after round 3: 95 of 200 right
 */
#include <dunlin/builtin.h>
#include <dunlin/client.h>
#include <dunlin/dataset.h>
#include <dunlin/tools.h>

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define N_SHOWN 200
#define TRY(call) status = status == DUNLIN_OK ? (call) : status

static dunlin_error error;

/* How many of the test images a predictor gets right; -1: none, error says why. */
static int count_right(dunlin_predictor *predictor, const dunlin_source *images)
{
    static float outputs[N_SHOWN][10];
    static uint8_t pixels[28 * 28];
    int n_right = 0;
    if (dunlin_predictor_predict(predictor, images, 0, N_SHOWN, outputs[0], &error) != DUNLIN_OK) {
        return -1;
    }
    for (int64_t i = 0; i < N_SHOWN; i++) {
        int32_t label = 0;
        int best = 0;
        for (int k = 1; k < 10; k++) {
            best = outputs[i][k] > outputs[i][best] ? k : best;
        }
        if (images->read_fn(images->ctx, &i, 1, pixels, &label) != DUNLIN_OK) {
            return -1;
        }
        n_right += best == label ? 1 : 0;
    }
    return n_right;
}

/* Rounds until the server's operator says that the run is over. An app would go to sleep between
 * them. */
static dunlin_status take_part(dunlin_client *client)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    while (report.outcome != DUNLIN_OUTCOME_RUN_OVER) {
        const dunlin_status status = dunlin_client_run_round(client, &report);
        if (status != DUNLIN_OK) {
            error = *dunlin_client_last_error(client);
            return status;
        }
        if (report.outcome == DUNLIN_OUTCOME_ACCEPTED) {
            printf("%sround %" PRIu64 " accepted", report.round > 1 ? ", " : "", report.round);
        }
        const int64_t ms = report.outcome == DUNLIN_OUTCOME_RUN_OVER ? 0 : report.retry_after_ms;
        struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
        nanosleep(&pause, NULL);
    }
    printf("; the run is over\n");
    return DUNLIN_OK;
}

/* The newest model that the client has: predictions, and a file for other programs. */
static dunlin_status use_model(dunlin_client *client, const dunlin_model *network,
                               const dunlin_source *images, const char *onnx_path)
{
    dunlin_app_model *model = NULL;
    dunlin_app_model_info info = DUNLIN_APP_MODEL_INFO_INIT;
    dunlin_predictor *predictor = NULL;
    dunlin_status status = dunlin_app_model_open(client, &model, &error);
    TRY(dunlin_app_model_get_info(model, &info));
    TRY(dunlin_app_model_create_predictor(model, network, NULL, &predictor, &error));
    if (status == DUNLIN_OK) {
        printf("with the model after round %" PRIu64 ": %d of %d right\n", info.round,
               count_right(predictor, images), N_SHOWN);
    }
    if (onnx_path != NULL) {
        TRY(dunlin_app_model_export_onnx(model, network, onnx_path, &error));
    }
    dunlin_predictor_destroy(predictor);
    dunlin_app_model_close(model);
    return status;
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
        fclose(file);
    }
    return n_read == 65 ? 0 : 1;
}

int main(int argc, char **argv)
{
    uint8_t key[65];
    if (argc < 4 || read_key(argv[3], key) != 0) {
        fprintf(stderr, "usage: sample-08_use_the_model URL CA.pem SIGNING.pub [STORE [ONNX]]\n");
        return 2;
    }
    dunlin_status status = DUNLIN_OK;
    dunlin_model *network = NULL;
    dunlin_dataset *train = NULL, *test = NULL;
    dunlin_predictor *shipped = NULL;
    dunlin_trainer_pool *pool = NULL;
    dunlin_builtin *builtin = NULL;
    dunlin_learner learner;
    dunlin_runtime *runtime = NULL;
    dunlin_client *client = NULL;
    dunlin_source mine = DUNLIN_SOURCE_INIT, images = DUNLIN_SOURCE_INIT;
    dunlin_dataset_options data = DUNLIN_DATASET_OPTIONS_INIT;
    data.n_writers = 5;
    dunlin_trainer_options training = DUNLIN_TRAINER_OPTIONS_INIT;
    training.budget_bytes = 2 << 20;
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    shared.store_folder = argc > 4 ? argv[4] : "use_the_model_store";
    shared.ca_file = argv[2];
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    options.server_url = argv[1];
    options.population = "phones";
    options.signing_keys = key;
    options.n_signing_keys = 1;
    TRY(dunlin_model_from_zoo("lenet5", NULL, NULL, &network, &error));
    TRY(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &data, NULL, &train,
                                  &error));
    TRY(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &test, &error));
    TRY(dunlin_trainer_pool_create(network, &training, 1, &pool, &error));
    TRY(dunlin_predictor_create(network, NULL, &shipped, &error));
    if (status == DUNLIN_OK) {
        dunlin_dataset_source(train, &mine);
        dunlin_dataset_source(test, &images);
        printf("before: %d of %d right\n", count_right(shipped, &images), N_SHOWN);
    }
    TRY(dunlin_builtin_create(pool, &mine, NULL, &builtin, &learner, &error));
    TRY(dunlin_runtime_create(&shared, &runtime, &error));
    TRY(dunlin_client_create(runtime, &options, &learner, &client, &error));
    TRY(take_part(client));
    TRY(use_model(client, network, &images, argc > 5 ? argv[5] : NULL));
    if (status != DUNLIN_OK) {
        fprintf(stderr, "08_use_the_model: %s: %s\n", dunlin_status_name(status), error.text);
    }
    dunlin_client_destroy(client);
    dunlin_runtime_destroy(runtime);
    dunlin_builtin_destroy(builtin);
    dunlin_trainer_pool_destroy(pool);
    dunlin_predictor_destroy(shipped);
    dunlin_dataset_close(test);
    dunlin_dataset_close(train);
    dunlin_model_destroy(network);
    return status == DUNLIN_OK ? 0 : 1;
}

/*
 * embedded.c - server and client in one process, by public headers alone: <dunlin/server.h> makes a
 * server on a free port, a client enrols, does a round, fails while the server is stopped, and does
 * another once it listens again. embedded FOLDER, which is empty.
 */
#include <dunlin/client.h>
#include <dunlin/server.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char TASK[] = "{\"population\": \"phones\", \"task\": \"two\", \"rounds\": 2, "
                           "\"cohort\": 1, \"tensors\": [{\"name\": \"line\", \"shape\": [2]}], "
                           "\"plan\": {\"epochs\": 1, \"lr\": 0.1}}";

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "embedded.c:%d: not so: %s: ", __LINE__, #condition);                  \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* --- a learner that adds 1 to each weight --- */

typedef struct adder {
    float weights[2];
    dunlin_weights_reader base;
} adder;

static dunlin_status adder_load(void *self, const dunlin_task *task,
                                const dunlin_weights_reader *base)
{
    adder *own = self;
    (void)task;
    own->base = *base;
    return base->read_fn(base->ctx, 0, 0, 2, own->weights);
}

static dunlin_status adder_fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    adder *own = self;
    (void)max_ms;
    own->weights[0] += 1.0F;
    own->weights[1] += 1.0F;
    out_report->n_examples = 8;
    out_report->loss = 0.5;
    out_report->is_done = true;
    return DUNLIN_OK;
}

static dunlin_status adder_evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    (void)self, (void)max_ms;
    out_report->n_examples = 8;
    out_report->loss = 0.5;
    out_report->is_done = true;
    return DUNLIN_OK;
}

static dunlin_status adder_read(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    memcpy(out, ((const adder *)ctx)->weights + index + first, (size_t)n * sizeof(float));
    return DUNLIN_OK;
}

static dunlin_status adder_save(void *self, dunlin_weights_reader *out)
{
    *out = ((adder *)self)->base;
    out->ctx = self;
    out->read_fn = adder_read;
    return DUNLIN_OK;
}

static void adder_unload(void *self)
{
    (void)self;
}

static const dunlin_learner_ops ADDER_OPS = {.struct_size = sizeof(dunlin_learner_ops),
                                             .load = adder_load,
                                             .fit = adder_fit,
                                             .evaluate = adder_evaluate,
                                             .save = adder_save,
                                             .unload = adder_unload};

/* --- the server --- */

typedef struct place {
    char state[512];
    char task[512];
    char store[512];
    char json[512];
} place;

static void make_place(const char *folder, place *out)
{
    (void)snprintf(out->state, sizeof out->state, "%s/state", folder);
    (void)snprintf(out->task, sizeof out->task, "%s/task.json", folder);
    (void)snprintf(out->store, sizeof out->store, "%s/store", folder);
    (void)snprintf(out->json, sizeof out->json, "%s/status.json", folder);
    FILE *file = fopen(out->task, "w");
    EXPECT(file != NULL, "%s", out->task);
    EXPECT(fputs(TASK, file) >= 0 && fclose(file) == 0, "%s", out->task);
}

static bool status_says(dunlin_server *server, const char *text)
{
    dunlin_error error = {0};
    char *status = NULL;
    EXPECT(dunlin_server_status(server, &status, &error) == DUNLIN_OK, "%s", error.text);
    const bool is_there = strstr(status, text) != NULL;
    dunlin_server_free_text(status);
    return is_there;
}

/* Waits up to 20 s, while a thread of the server works. */
static void wait_for(dunlin_server *server, const char *text)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000000L};
    int n_left = 1000;
    while (!status_says(server, text) && n_left-- > 0) {
        (void)nanosleep(&pause, NULL);
    }
    EXPECT(n_left > 0, "%s is not in the status", text);
}

/* What is refused names the option; nothing is made. */
static void check_refusals(const place *at)
{
    dunlin_error error = {0};
    dunlin_server *server = NULL;
    dunlin_server_options options = DUNLIN_SERVER_OPTIONS_INIT;
    options.task_file = at->task;
    EXPECT(dunlin_server_create(&options, &server, &error) == DUNLIN_ARGUMENT &&
               strstr(error.text, "--state") != NULL && server == NULL,
           "%s", error.text);
    options.state_folder = at->state;
    options.n_threads = 65;
    EXPECT(dunlin_server_create(&options, &server, &error) == DUNLIN_ARGUMENT &&
               strstr(error.text, "--threads 65") != NULL,
           "%s", error.text);
    options.n_threads = 1;
    options.host = "[::1]";
    EXPECT(dunlin_server_create(&options, &server, &error) == DUNLIN_ARGUMENT &&
               strstr(error.text, "--listen [::1]") != NULL,
           "%s", error.text);
    options.struct_size = 0;
    EXPECT(dunlin_server_create(&options, &server, &error) == DUNLIN_ARGUMENT &&
               strstr(error.text, "DUNLIN_SERVER_OPTIONS_INIT") != NULL,
           "%s", error.text);
}

static dunlin_server *make_server(const place *at, bool is_stepped)
{
    dunlin_error error = {0};
    dunlin_server *server = NULL;
    dunlin_server_options options = DUNLIN_SERVER_OPTIONS_INIT;
    options.state_folder = at->state;
    options.task_file = at->task;
    options.json_file = at->json;
    options.accept_ms = 1;
    options.reject_ms = 1;
    options.is_stepped = is_stepped;
    EXPECT(dunlin_server_create(&options, &server, &error) == DUNLIN_OK, "%s", error.text);
    EXPECT(dunlin_server_port(server) == 0 && dunlin_server_url(server)[0] == '\0', "listens");
    dunlin_server *second = NULL;
    EXPECT(dunlin_server_create(&options, &second, &error) == DUNLIN_LOCKED, "%s", error.text);
    EXPECT(dunlin_server_refresh(server, true, &error) == DUNLIN_STATE, "%s", error.text);
    EXPECT(dunlin_server_start(server, &error) == DUNLIN_OK, "%s", error.text);
    EXPECT(dunlin_server_start(server, &error) == DUNLIN_STATE, "%s", error.text);
    return server;
}

/* --- a round --- */

/* Steps the server until the status says so. */
static void step_to(dunlin_server *server, const char *text)
{
    dunlin_error error = {0};
    for (int i = 0; i < 3; i++) {
        EXPECT(dunlin_server_step(server, &error) == DUNLIN_OK, "%s", error.text);
    }
    EXPECT(status_says(server, text), "%s is not in the status", text);
}

static dunlin_client *make_client(const place *at, const dunlin_server *server,
                                  const dunlin_learner *learner, dunlin_runtime **out_runtime)
{
    dunlin_error error = {0};
    dunlin_client *client = NULL;
    uint8_t key[DUNLIN_SERVER_KEY_BYTES];
    dunlin_server_signing_key(server, key);
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    shared.store_folder = at->store;
    shared.ca_file = dunlin_server_ca_file(server);
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    options.server_url = dunlin_server_url(server);
    options.population = "phones";
    options.signing_keys = key;
    options.n_signing_keys = 1;
    options.retry_first_ms = 1;
    options.retry_most_ms = 1;
    EXPECT(dunlin_runtime_create(&shared, out_runtime, &error) == DUNLIN_OK, "%s", error.text);
    EXPECT(dunlin_client_create(*out_runtime, &options, learner, &client, &error) == DUNLIN_OK,
           "%s", error.text);
    return client;
}

static void run_round(dunlin_client *client, uint64_t round)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    int64_t waited_ms = 0;
    while (report.outcome != DUNLIN_OUTCOME_ACCEPTED && waited_ms < 20000) {
        EXPECT(dunlin_client_run_round(client, &report) == DUNLIN_OK, "%s",
               dunlin_client_last_error(client)->text);
        const int64_t left = report.retry_after_ms > 0 ? report.retry_after_ms : 1;
        const int64_t ms = left < 100 ? left : 100;
        const struct timespec pause = {.tv_nsec = (long)ms * 1000000L};
        waited_ms += ms;
        if (report.outcome != DUNLIN_OUTCOME_ACCEPTED) {
            (void)nanosleep(&pause, NULL);
        }
    }
    EXPECT(report.outcome == DUNLIN_OUTCOME_ACCEPTED, "%s", dunlin_outcome_name(report.outcome));
    EXPECT((uint64_t)report.round == round, "round %d", (int)report.round);
}

int main(int argc, char **argv)
{
    EXPECT(argc == 2, "usage: embedded FOLDER");
    (void)signal(SIGPIPE, SIG_IGN);
    place at;
    make_place(argv[1], &at);
    check_refusals(&at);

    dunlin_error error = {0};
    dunlin_server *server = make_server(&at, true);
    const uint16_t port = dunlin_server_port(server);
    adder own = {.weights = {0}};
    dunlin_learner learner = {&ADDER_OPS, &own};
    dunlin_runtime *runtime = NULL;
    dunlin_client *client = make_client(&at, server, &learner, &runtime);
    EXPECT(port != 0, "no port");
    run_round(client, 1);
    step_to(server, "\"participants\": 1");
    EXPECT(own.weights[0] == 1.0F, "%g", (double)own.weights[0]);

    /* Nothing listens, then the same port does. */
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    EXPECT(dunlin_server_stop(server, &error) == DUNLIN_OK, "%s", error.text);
    EXPECT(dunlin_client_run_round(client, &report) == DUNLIN_UNREACHABLE, "%s",
           dunlin_client_last_error(client)->text);
    FILE *file = fopen(at.json, "r");
    EXPECT(file != NULL && fclose(file) == 0, "%s is not there", at.json);
    EXPECT(dunlin_server_start(server, &error) == DUNLIN_OK, "%s", error.text);
    EXPECT(dunlin_server_port(server) == port, "%u", (unsigned)dunlin_server_port(server));
    run_round(client, 2);
    step_to(server, "\"state\": \"done\"");
    EXPECT(own.weights[0] == 2.0F, "the second round began from the first's model: %g",
           (double)own.weights[0]);
    dunlin_client_destroy(client);
    dunlin_runtime_destroy(runtime);
    dunlin_server_destroy(server);

    /* The state stays; a thread of the server closes rounds now. */
    server = make_server(&at, false);
    wait_for(server, "\"state\": \"done\"");
    EXPECT(dunlin_server_step(server, &error) == DUNLIN_STATE, "%s", error.text);
    EXPECT(dunlin_server_keep(server, 1, &error) == DUNLIN_STATE, "%s", error.text);
    EXPECT(dunlin_server_settle(server, &error) == DUNLIN_STATE, "%s", error.text);
    EXPECT(dunlin_server_refresh(server, true, &error) == DUNLIN_OK, "%s", error.text);
    char key_id[DUNLIN_SERVER_KEY_ID_BYTES];
    EXPECT(dunlin_server_rotate_signing_key(at.state, key_id, &error) == DUNLIN_LOCKED, "%s",
           error.text);
    dunlin_server_destroy(server);
    EXPECT(dunlin_server_rotate_signing_key(at.state, key_id, &error) == DUNLIN_OK, "%s",
           error.text);
    printf("embedded: two rounds on port %u, key %s\n", (unsigned)port, key_id);
    return 0;
}

/*
 * command.c - the command line of dunlin-server.
 *
 * Invariant: every option is a row of one table; what is not in it is refused.
 */
#include "command.h"

#include "stepped.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WINDOW_MS (24ll * 3600 * 1000)
#define MAX_THREADS 64

static const char *take_own(const char *name, const char *value, void *out_values);

const program_info server_program = {
    .name = "dunlin-server",
    .purpose = "a mock federated-learning server for development and tests",
    .examples =
        "  dunlin-server --listen 127.0.0.1:0 --port-file port --state state --task task.json\n"
        "  dunlin-server --listen 127.0.0.1:8443 --port-file port --state state --task task.json "
        "\\\n"
        "      --test-set synthetic --windows 200:2000\n"
        "\n"
        "A task file:\n"
        "  {\n"
        "    \"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\",\n"
        "    \"rounds\": 10, \"cohort\": 8, \"clients\": 24, \"deadline_s\": 120, \"seed\": 1,\n"
        "    \"algorithm\": \"fedavg\",\n"
        "    \"plan\": {\"epochs\": 2, \"batch\": 16, \"lr\": 0.05, \"momentum\": 0.9}\n"
        "  }\n"
        "\n"
        "The state folder gets ca.pem for the clients' --ca and signing.pub, the key (hex) that\n"
        "assignments are signed with. SIGTERM ends the server in order.\n",
    .take_fn = take_own,
};

#define AT(member) offsetof(server_command, member)

static const arg args[] = {
    {NULL, ARG_HEADING, 0, NULL, "what it needs", 0, 0, 0},
    {"--listen", ARG_OWN, 0, "ADDR:PORT",
     "numeric address; [::1]:0 for IPv6; port 0 picks a free one", 0, 0, 0},
    {"--port-file", ARG_TEXT, AT(options.port_file), "FILE",
     "where the port is written once connections are taken", 0, 0, 0},
    {"--state", ARG_TEXT, AT(options.state_folder), "DIR",
     "CA, keys, database, models; made if missing, mode 0700", 0, 0, 0},
    {"--task", ARG_TEXT, AT(options.task_file), "FILE", "what to train (JSON, below)", 0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "connections", 0, 0, 0},
    {"--name", ARG_OWN, 0, "HOST", "a host name or address that clients use; repeat for more", 0, 0,
     0},
    {"--certificate", ARG_TEXT, AT(options.certificate_file), "FILE",
     "PEM, with --key, instead of a leaf of the server's own CA", 0, 0, 0},
    {"--key", ARG_TEXT, AT(options.certificate_key_file), "FILE", "the key of --certificate, PEM",
     0, 0, 0},
    {"--trusted-proxy", ARG_OWN, 0, "ADDR",
     "a reverse proxy, whose X-Forwarded-For counts; repeat for more", 0, 0, 0},
    {"--windows", ARG_OWN, 0, "ACCEPT:REJECT[:OVER]",
     "least wait in ms after taking part, after not, and when the run is over (1000:2000:3600000)",
     0, 0, 0},
    {"--threads", ARG_I64, AT(n_threads), "N", "for requests and for evaluation (2)", 1,
     MAX_THREADS, 0},
    {NULL, ARG_HEADING, 0, NULL, "who takes part", 0, 0, 0},
    {"--tokens", ARG_TEXT, AT(options.tokens_file), "FILE",
     "who may enrol: a secret a line (see TASK.md); else anybody may", 0, 0, 0},
    {"--allow-replace", ARG_FLAG, AT(options.allows_replace), NULL,
     "a token that was used may be used by another key, which gets the place", 0, 0, 0},
    {"--claimed-places", ARG_FLAG, AT(options.has_claimed_places), NULL,
     "a client gets the place it claims, without a proof: simulated fleets", 0, 0, 0},
    {"--mtls", ARG_TEXT, AT(options.mtls_ca), "CA",
     "PEM file; only clients with a certificate under it get in", 0, 0, 0},
    {"--mtls-places", ARG_FLAG, AT(options.has_mtls_places), NULL,
     "each certificate of a client stands for one place", 0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "what it tells", 0, 0, 0},
    {"--open-status", ARG_FLAG, AT(options.has_open_status), NULL,
     "/v1/status is for everybody; else for this machine, or", 0, 0, 0},
    {"--status-token", ARG_TEXT, AT(options.status_token_file), "FILE",
     "for whoever sends the secret in it as a bearer token", 0, 0, 0},
    {"--test-set", ARG_TEXT, AT(options.test_set), "DATASET",
     "evaluate each model on the test part of this data set", 0, 0, 0},
    {"--validation", ARG_TEXT, AT(options.validation), "N%|N[:writers][:seed=S][:first=M]",
     "or on what is held out of (the first M examples of) its training part", 0, 0, 0},
    {"--data", ARG_TEXT, AT(options.data_folder), "DIR", "where data sets are (else DUNLIN_DATA)",
     0, 0, 0},
    {"--json", ARG_TEXT, AT(options.json_file), "FILE", "the status as JSON at the end", 0, 0, 0},
    {"--log", ARG_OWN, 0, "LEVEL", "off, error, warning, info or debug (info)", 0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "the run", 0, 0, 0},
    {"--seed", ARG_U64, AT(options.seed), "N", "goes before the task's seed", 0, 0,
     AT(options.has_seed)},
    {"--insecure-noise-seed", ARG_U64, AT(options.insecure_noise_seed), "N",
     "noise of private rounds that can be repeated: nothing is private then", 0, 0,
     AT(options.has_insecure_noise_seed)},
    {"--faults", ARG_TEXT, AT(options.faults_file), "FILE",
     "what goes wrong, and when (see FAULTS.md)", 0, 0, 0},
    {"--stepped", ARG_I64, AT(stepped_ms), "MS",
     "simulated time, from MS since 1970 on: it comes on standard input (see RUNNING.md)", 0,
     (double)STEPPED_MOST_MS, AT(is_stepped)},
    {"--moment", ARG_U64, AT(options.moment), "N",
     "with --stepped: moments can be kept; goes on from moment N, with 0 from the beginning", 0, 0,
     AT(options.keeps_moments)},
    {"--simulated", ARG_TEXT, AT(options.simulated_file), "FILE",
     "with --stepped: what the simulation says of its devices (JSON), for status and page", 0, 0,
     0},
    {"--rotate-signing-key", ARG_FLAG, AT(wants_rotation), NULL,
     "with --state alone: the next key signs from now on; ends then", 0, 0, 0},
    {"--privacy", ARG_TEXT, AT(privacy), "QUESTION",
     "alone: what a private run costs, or with state=DIR has cost, as JSON (see PRIVACY.md); ends "
     "then",
     0, 0, 0},
    {"--secagg-table", ARG_TEXT, AT(secagg), "QUESTION",
     "alone: neighbours and threshold of a secure aggregation, as JSON (see SECAGG.md); ends then",
     0, 0, 0},
};

/* A number that ends where `end` stands. */
static bool parse_number(const char *text, const char *end, int64_t most, int64_t *out_value)
{
    char *stop = NULL;
    *out_value = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &stop, 10) : -1;
    return stop == end && *out_value >= 0 && *out_value <= most;
}

static const char *take_listen(const char *value, server_command *command)
{
    const char *colon = strrchr(value, ':');
    const char *host = value;
    size_t n_host = colon != NULL ? (size_t)(colon - value) : 0;
    if (n_host >= 2 && host[0] == '[' && host[n_host - 1] == ']') {
        host++;
        n_host -= 2;
    }
    int64_t port = 0;
    if (colon == NULL || n_host == 0 || n_host >= sizeof command->host ||
        !parse_number(colon + 1, value + strlen(value), 65535, &port)) {
        return "ADDR:PORT with a port from 0 to 65535";
    }
    memcpy(command->host, host, n_host);
    command->host[n_host] = 0;
    command->options.host = command->host;
    command->options.port = (uint16_t)port;
    return NULL;
}

static const char *take_windows(const char *value, server_command *command)
{
    const char *end = value + strlen(value);
    const char *colon = strchr(value, ':');
    const char *second = colon != NULL ? strchr(colon + 1, ':') : NULL;
    int64_t accept_ms = 0;
    int64_t reject_ms = 0;
    int64_t over_ms = 0;
    if (colon == NULL || !parse_number(value, colon, MAX_WINDOW_MS, &accept_ms) ||
        !parse_number(colon + 1, second != NULL ? second : end, MAX_WINDOW_MS, &reject_ms) ||
        (second != NULL && !parse_number(second + 1, end, MAX_WINDOW_MS, &over_ms))) {
        return "ACCEPT_MS:REJECT_MS or ACCEPT_MS:REJECT_MS:OVER_MS, each at most 86400000";
    }
    command->options.over_ms = (uint64_t)over_ms;
    command->options.accept_ms = (uint64_t)accept_ms;
    command->options.reject_ms = (uint64_t)reject_ms;
    return NULL;
}

static const char *take_level(const char *value, server_command *command)
{
    static const char *const names[] = {"off", "error", "warning", "info", "debug"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(value, names[i]) == 0) {
            command->log_level = (dunlin_log_level)i;
            return NULL;
        }
    }
    return "off, error, warning, info or debug";
}

static const char *take_own(const char *name, const char *value, void *out_values)
{
    server_command *command = out_values;
    dunlin_server_options *options = &command->options;
    if (strcmp(name, "--listen") == 0) {
        return take_listen(value, command);
    }
    if (strcmp(name, "--windows") == 0) {
        return take_windows(value, command);
    }
    if (strcmp(name, "--log") == 0) {
        return take_level(value, command);
    }
    const bool is_name = strcmp(name, "--name") == 0;
    uint32_t *n = is_name ? &options->n_names : &options->n_proxies;
    if (value[0] == 0 || *n >= (is_name ? DUNLIN_SERVER_MOST_NAMES : DUNLIN_SERVER_MOST_PROXIES)) {
        return is_name ? "a host name, at most 16 of them" : "an address, at most 8 of them";
    }
    (is_name ? command->names : command->proxies)[*n] = value;
    (*n)++;
    return NULL;
}

/* The first that is needed and not there; NULL: none. */
static const char *missing_of(const server_command *command)
{
    const dunlin_server_options *options = &command->options;
    if (command->wants_rotation) {
        return options->state_folder == NULL ? "--state" : NULL;
    }
    if (command->host[0] == 0) {
        return "--listen";
    }
    if (options->port_file == NULL) {
        return "--port-file";
    }
    if (options->state_folder == NULL) {
        return "--state";
    }
    return options->task_file == NULL ? "--task" : NULL;
}

/* What the library says of the options; a rotation has neither an address nor a task. */
static int check(const server_command *command)
{
    if (command->privacy != NULL || command->secagg != NULL) {
        return EXIT_OK; /* it is read when it is answered */
    }
    const char *missing = missing_of(command);
    if (missing != NULL) {
        return program_misuse(&server_program, "%s is missing; --help describes it", missing);
    }
    dunlin_server_options options = command->options;
    dunlin_error error = {0};
    options.is_stepped = command->is_stepped;
    if (command->wants_rotation) {
        options.task_file = "";
    }
    return dunlin_server_options_check(&options, &error) == DUNLIN_OK
               ? EXIT_OK
               : program_misuse(&server_program, "%s", error.text);
}

args_result server_command_parse(int argc, const char *const *argv, server_command *out_command)
{
    *out_command = (server_command){
        .options = DUNLIN_SERVER_OPTIONS_INIT, .n_threads = 2, .log_level = DUNLIN_LOG_INFO};
    out_command->options.names = out_command->names;
    out_command->options.proxies = out_command->proxies;
    args_result result =
        args_parse(&server_program, args, sizeof args / sizeof args[0], argc, argv, out_command);
    out_command->options.n_threads = (int32_t)out_command->n_threads;
    if (!result.is_done) {
        result.exit_status = check(out_command);
        result.is_done = result.exit_status != EXIT_OK;
    }
    return result;
}

/*
 * command.c - the command line of dunlin-server.
 *
 * Invariant: every option is a row of one table; what is not in it is refused.
 */
#include "command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WINDOW_MS (24ull * 3600 * 1000)

static const char help_text[] =
    "dunlin-server - a mock federated-learning server for development and tests\n"
    "\n"
    "  dunlin-server --listen ADDR:PORT --port-file FILE --state DIR --task FILE [options]\n"
    "\n"
    "  --listen ADDR:PORT       numeric address; [::1]:0 for IPv6; port 0 picks a free one\n"
    "  --name HOST              a host name or address that clients use; repeat for more\n"
    "  --certificate FILE, --key FILE\n"
    "                           PEM, instead of a leaf of the server's own CA\n"
    "  --trusted-proxy ADDR     a reverse proxy, whose X-Forwarded-For counts; repeat for more\n"
    "  --port-file FILE         where the port is written once connections are taken\n"
    "  --state DIR              CA, keys, database, models; made if missing, mode 0700\n"
    "  --task FILE              what to train (JSON, below)\n"
    "  --windows ACCEPT:REJECT  least wait in ms after taking part and after not (1000:2000)\n"
    "  --tokens FILE            who may enrol: a secret a line (see README.md); else anybody may\n"
    "  --allow-replace          a token that was used may be used by another key, which gets the "
    "place\n"
    "  --claimed-places         a client gets the place it claims, without a proof: simulated "
    "fleets\n"
    "  --open-status            /v1/status is for everybody; else for this machine, or\n"
    "  --status-token FILE      for whoever sends the secret in it as a bearer token\n"
    "  --mtls CA                PEM file; only clients with a certificate under it get in\n"
    "  --mtls-places            each certificate of a client stands for one place\n"
    "  --test-set DATASET       evaluate each model on the test part of this data set\n"
    "  --data DIR               where data sets are (else DUNLIN_DATA)\n"
    "  --seed N                 goes before the task's seed\n"
    "  --threads N              for requests and for evaluation (2)\n"
    "  --json FILE              the status as JSON at the end\n"
    "  --faults FILE            what goes wrong, and when (see README.md)\n"
    "  --rotate-signing-key     with --state alone: the next key signs from now on; ends then\n"
    "  --log LEVEL              off, error, warning, info or debug (info)\n"
    "  --help, --version\n"
    "\n"
    "A task file:\n"
    "  {\n"
    "    \"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\",\n"
    "    \"rounds\": 10, \"cohort\": 8, \"clients\": 24, \"deadline_s\": 120, \"seed\": 1,\n"
    "    \"algorithm\": \"fedavg\",\n"
    "    \"plan\": {\"epochs\": 2, \"batch\": 16, \"lr\": 0.05, \"momentum\": 0.9}\n"
    "  }\n"
    "\n"
    "Examples:\n"
    "  dunlin-server --listen 127.0.0.1:0 --port-file port --state state --task task.json\n"
    "  dunlin-server --listen 127.0.0.1:8443 --port-file port --state state --task task.json \\\n"
    "      --test-set synthetic --windows 200:2000\n"
    "\n"
    "The state folder gets ca.pem for the clients' --ca and signing.pub, the key (hex) that\n"
    "assignments are signed with. Exit status: 0 ended by a signal, 1 failed, 2 misuse.\n";

const char *server_command_help(void)
{
    return help_text;
}

/* ARGUMENT with one line. */
static dunlin_status refuse(dunlin_error *error, const char *format, ...) DUNLIN_PRINTF(2, 3);
static dunlin_status refuse(dunlin_error *error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *error = (dunlin_error){.status = DUNLIN_ARGUMENT, .subsystem = "options"};
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return DUNLIN_ARGUMENT;
}

static bool parse_u64(const char *text, uint64_t limit, uint64_t *out_value)
{
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != 0 || value > limit) {
        return false;
    }
    *out_value = value;
    return true;
}

static dunlin_status parse_listen(const char *value, server_command *command, dunlin_error *error)
{
    const char *colon = strrchr(value, ':');
    const char *host = value;
    size_t n_host = colon != NULL ? (size_t)(colon - value) : 0;
    if (n_host >= 2 && host[0] == '[' && host[n_host - 1] == ']') {
        host++;
        n_host -= 2;
    }
    uint64_t port = 0;
    if (colon == NULL || n_host == 0 || n_host >= sizeof command->host ||
        !parse_u64(colon + 1, 65535, &port)) {
        return refuse(error, "--listen %.80s: wants ADDR:PORT with a port from 0 to 65535", value);
    }
    memcpy(command->host, host, n_host);
    command->host[n_host] = 0;
    command->options.host = command->host;
    command->options.port = (uint16_t)port;
    return DUNLIN_OK;
}

static dunlin_status parse_windows(const char *value, server_command *command, dunlin_error *error)
{
    dunlin_server_options *options = &command->options;
    const char *colon = strchr(value, ':');
    char first[24] = "";
    if (colon != NULL && (size_t)(colon - value) < sizeof first) {
        memcpy(first, value, (size_t)(colon - value));
    }
    if (colon == NULL || !parse_u64(first, MAX_WINDOW_MS, &options->accept_ms) ||
        !parse_u64(colon + 1, MAX_WINDOW_MS, &options->reject_ms)) {
        return refuse(error, "--windows %.80s: wants ACCEPT_MS:REJECT_MS, each at most %llu", value,
                      MAX_WINDOW_MS);
    }
    return DUNLIN_OK;
}

static dunlin_status parse_level(const char *value, server_command *command, dunlin_error *error)
{
    static const char *const names[] = {"off", "error", "warning", "info", "debug"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(value, names[i]) == 0) {
            command->log_level = (dunlin_log_level)i;
            return DUNLIN_OK;
        }
    }
    return refuse(error, "--log %.80s: wants off, error, warning, info or debug", value);
}

static dunlin_status parse_number(const char *name, const char *value, server_command *command,
                                  dunlin_error *error)
{
    uint64_t number = 0;
    bool is_seed = strcmp(name, "--seed") == 0;
    uint64_t limit = is_seed ? UINT64_MAX : 64;
    dunlin_server_options *options = &command->options;
    if (!parse_u64(value, limit, &number) || (!is_seed && number == 0)) {
        return refuse(error, "%s %.80s: wants %s", name, value,
                      is_seed ? "a number from 0" : "a number from 1 to 64");
    }
    if (is_seed) {
        options->seed = number;
        options->has_seed = true;
    } else {
        options->n_threads = (int32_t)number;
    }
    return DUNLIN_OK;
}

/* One more of an option that may be repeated. */
static dunlin_status add_text(const char *name, const char *value, const char **texts, uint32_t *n,
                              uint32_t limit, dunlin_error *error)
{
    if (value[0] == 0 || *n >= limit) {
        return refuse(error, "%s %.80s: %s", name, value,
                      value[0] == 0 ? "wants a value"
                                    : "too many of these (16 names, 8 "
                                      "proxies)");
    }
    texts[*n] = value;
    (*n)++;
    return DUNLIN_OK;
}

static dunlin_status parse_option(const char *name, const char *value, server_command *command,
                                  dunlin_error *error)
{
    dunlin_server_options *options = &command->options;
    const struct {
        const char *name;
        const char **out;
    } texts[] = {
        {"--port-file", &options->port_file},      {"--state", &options->state_folder},
        {"--task", &options->task_file},           {"--mtls", &options->mtls_ca},
        {"--test-set", &options->test_set},        {"--data", &options->data_folder},
        {"--json", &options->json_file},           {"--faults", &options->faults_file},
        {"--tokens", &options->tokens_file},       {"--status-token", &options->status_token_file},
        {"--key", &options->certificate_key_file}, {"--certificate", &options->certificate_file},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(name, texts[i].name) == 0) {
            if (value[0] == 0) {
                return refuse(error, "%s: wants a value", name);
            }
            *texts[i].out = value;
            return DUNLIN_OK;
        }
    }
    if (strcmp(name, "--name") == 0) {
        return add_text(name, value, command->names, &options->n_names, DUNLIN_SERVER_MOST_NAMES,
                        error);
    }
    if (strcmp(name, "--trusted-proxy") == 0) {
        return add_text(name, value, command->proxies, &options->n_proxies,
                        DUNLIN_SERVER_MOST_PROXIES, error);
    }
    if (strcmp(name, "--listen") == 0) {
        return parse_listen(value, command, error);
    }
    if (strcmp(name, "--windows") == 0) {
        return parse_windows(value, command, error);
    }
    if (strcmp(name, "--log") == 0) {
        return parse_level(value, command, error);
    }
    if (strcmp(name, "--seed") == 0 || strcmp(name, "--threads") == 0) {
        return parse_number(name, value, command, error);
    }
    return refuse(error, "unknown option %.80s (see --help)", name);
}

/* True if the word is an option that takes no value. */
static bool parse_switch(const char *name, server_command *command)
{
    dunlin_server_options *options = &command->options;
    const struct {
        const char *name;
        bool *out;
    } switches[] = {
        {"--allow-replace", &options->allows_replace},
        {"--claimed-places", &options->has_claimed_places},
        {"--mtls-places", &options->has_mtls_places},
        {"--open-status", &options->has_open_status},
        {"--rotate-signing-key", &command->wants_rotation},
        {"--help", &command->wants_help},
        {"-h", &command->wants_help},
        {"--version", &command->wants_version},
    };
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        if (strcmp(name, switches[i].name) == 0) {
            *switches[i].out = true;
            return true;
        }
    }
    return false;
}

static dunlin_status check_required(const server_command *command, dunlin_error *error)
{
    const dunlin_server_options *options = &command->options;
    const char *missing = NULL;
    if (command->wants_rotation) {
        missing = options->state_folder == NULL ? "--state" : NULL;
    } else if (command->host[0] == 0) {
        missing = "--listen";
    } else if (options->port_file == NULL) {
        missing = "--port-file";
    } else if (options->state_folder == NULL) {
        missing = "--state";
    } else if (options->task_file == NULL) {
        missing = "--task";
    }
    if (missing != NULL) {
        return refuse(error, "%s is missing (see --help)", missing);
    }
    return DUNLIN_OK;
}

/* What the library says of the options; a rotation has neither an address nor a task. */
static dunlin_status check(const server_command *command, dunlin_error *error)
{
    dunlin_server_options options = command->options;
    if (command->wants_rotation) {
        options.task_file = "";
    }
    return dunlin_server_options_check(&options, error);
}

dunlin_status server_command_parse(int argc, const char *const *argv, server_command *out_command,
                                   dunlin_error *error)
{
    *out_command =
        (server_command){.options = DUNLIN_SERVER_OPTIONS_INIT, .log_level = DUNLIN_LOG_INFO};
    out_command->options.names = out_command->names;
    out_command->options.proxies = out_command->proxies;
    for (int i = 1; i < argc; i++) {
        if (parse_switch(argv[i], out_command)) {
            if (out_command->wants_help || out_command->wants_version) {
                return DUNLIN_OK;
            }
            continue;
        }
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        const dunlin_status status = parse_option(argv[i], value, out_command, error);
        if (status != DUNLIN_OK) {
            return status;
        }
        i++;
    }
    const dunlin_status status = check_required(out_command, error);
    return status != DUNLIN_OK ? status : check(out_command, error);
}

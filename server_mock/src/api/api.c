/*
 * api.c - the server as a program holds it: made, started, asked, stopped.
 */
#include "base/certs.h"
#include "base/files.h"
#include "base/log.h"
#include "http/http_daemon.h"
#include "privacy/ask.h"
#include "rounds/rounds.h"
#include "secagg/secagg_ask.h"
#include "server/lifecycle.h"
#include "server/moment.h"
#include "server/privacy_log.h"
#include "server/status.h"
#include "state/context.h"
#include "state/db.h"
#include "task/options.h"
#include "task/task.h"

#include <dunlin/server.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

_Static_assert(DUNLIN_SERVER_KEY_BYTES == DUNLIN_PUBLIC_KEY_BYTES, "a public key");
_Static_assert(DUNLIN_SERVER_KEY_ID_BYTES == DUNLIN_WIRE_ID_BYTES, "an id");

#define URL_BYTES (DUNLIN_SERVER_HOST_BYTES + 24u)

struct dunlin_server {
    dunlin__server inner;
    dunlin__http *http; /* NULL: it does not listen */
    uint16_t port;
    char url[URL_BYTES];
    dunlin__server_path ca_file;
};

dunlin_log dunlin_server_log(dunlin_log_level level)
{
    return dunlin__server_log(level);
}

/* The file of a moment. */
static dunlin_status moment_path(const dunlin_server *server, uint64_t number,
                                 dunlin__server_path *out, dunlin_error *error)
{
    return dunlin__server_path_make(out, error, "%s/moment-%" PRIu64, server->inner.folder.text,
                                    number);
}

/* From here on moments may be kept; takes up the one that the options name. */
static dunlin_status take_moment(dunlin_server *server, dunlin_error *error)
{
    const dunlin_server_options *options = &server->inner.options;
    dunlin__server_path path;
    if (!options->keeps_moments) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__server_db_keep_log(server->inner.db, error));
    if (options->moment == 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(moment_path(server, options->moment, &path, error));
    return dunlin__moment_take(&server->inner, path.text, error);
}

/* Over an object that is zeroed. */
static dunlin_status open_server(dunlin_server *server, const dunlin_server_options *options,
                                 const dunlin_alloc *alloc, dunlin_error *error)
{
    dunlin__server_task task;
    uint8_t address[16];
    if (inet_pton(AF_INET, options->host, address) != 1 &&
        inet_pton(AF_INET6, options->host, address) != 1) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "server", 0,
                            "--listen %.60s: not a numeric IPv4 or IPv6 address", options->host);
    }
    DUNLIN_TRY(
        dunlin__server_path_make(&server->ca_file, error, "%s/ca.pem", options->state_folder));
    DUNLIN_TRY(dunlin__server_task_read(options->task_file, alloc, &task, error));
    server->inner.now_ms_fn = options->now_ms_fn;
    server->inner.now_ctx = options->now_ctx;
    DUNLIN_TRY(dunlin__server_open(&server->inner, options, &task, &options->log, error));
    const dunlin_status status = take_moment(server, error);
    if (status != DUNLIN_OK) {
        dunlin__server_close(&server->inner);
    }
    return status;
}

dunlin_status dunlin_server_create(const dunlin_server_options *options, dunlin_server **out_server,
                                   dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (out_server == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "server", 0, "out_server is NULL");
    }
    *out_server = NULL;
    dunlin_server_options own = DUNLIN_SERVER_OPTIONS_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_server_options, options, &own, out_error));
    DUNLIN_TRY(dunlin_server_options_check(&own, out_error));
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_server *server = dunlin__alloc_zeroed(&alloc, 1, sizeof *server);
    if (server == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "server", 0, "no memory for a server");
    }
    const dunlin_status status = open_server(server, &own, &alloc, out_error);
    if (status != DUNLIN_OK) {
        dunlin__free_array(&alloc, server, 1, sizeof *server);
        return status;
    }
    *out_server = server;
    return DUNLIN_OK;
}

/* Publishes the port: to callers, to the next start, in the file. */
static dunlin_status tell_port(dunlin_server *server, dunlin_error *error)
{
    dunlin_server_options *options = &server->inner.options;
    const bool is_ipv6 = strchr(options->host, ':') != NULL;
    options->port = server->port;
    (void)snprintf(server->url, sizeof server->url, "https://%s%s%s:%u", is_ipv6 ? "[" : "",
                   options->host, is_ipv6 ? "]" : "", (unsigned)server->port);
    if (options->port_file == NULL) {
        return DUNLIN_OK;
    }
    char text[16];
    const int n = snprintf(text, sizeof text, "%u\n", (unsigned)server->port);
    return dunlin__outfile_put(options->port_file, DUNLIN_SERVER_FILE_MODE, text, (size_t)n, error);
}

static void end_connections(dunlin_server *server)
{
    dunlin__http_stop(server->http);
    server->http = NULL;
}

dunlin_status dunlin_server_start(dunlin_server *server, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    dunlin__server *inner = &server->inner;
    if (server->http != NULL) {
        return dunlin__fail(out_error, DUNLIN_STATE, "server", 0, "it listens on %s already",
                            server->url);
    }
    if (!inner->options.is_stepped && !inner->has_worker) {
        DUNLIN_TRY(dunlin__server_start(inner, out_error));
    }
    DUNLIN_TRY(dunlin__http_start(inner, &server->http, &server->port, out_error));
    const dunlin_status status = tell_port(server, out_error);
    if (status != DUNLIN_OK) {
        end_connections(server);
        return status;
    }
    dunlin__log(&inner->log, DUNLIN_LOG_INFO, "main", "listening on %s", server->url);
    return DUNLIN_OK;
}

dunlin_status dunlin_server_step(dunlin_server *server, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (!server->inner.options.is_stepped) {
        return dunlin__fail(out_error, DUNLIN_STATE, "server", 0,
                            "a server that is not is_stepped closes its rounds itself");
    }
    dunlin__server_tick(&server->inner);
    return DUNLIN_OK;
}

static dunlin_status check_moments(const dunlin_server *server, dunlin_error *error)
{
    return server->inner.options.keeps_moments
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_STATE, "server", 0,
                              "a server without keeps_moments keeps none");
}

dunlin_status dunlin_server_keep(dunlin_server *server, uint64_t number, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    dunlin__server_path path;
    DUNLIN_TRY(check_moments(server, out_error));
    DUNLIN_TRY(moment_path(server, number, &path, out_error));
    return dunlin__moment_keep(&server->inner, path.text, out_error);
}

dunlin_status dunlin_server_settle(dunlin_server *server, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    DUNLIN_TRY(check_moments(server, out_error));
    (void)pthread_mutex_lock(&server->inner.lock);
    const dunlin_status status = dunlin__server_db_force(server->inner.db, out_error);
    (void)pthread_mutex_unlock(&server->inner.lock);
    return status;
}

uint16_t dunlin_server_port(const dunlin_server *server)
{
    return server->port;
}

const char *dunlin_server_url(const dunlin_server *server)
{
    return server->url;
}

const char *dunlin_server_ca_file(const dunlin_server *server)
{
    return server->ca_file.text;
}

void dunlin_server_signing_key(const dunlin_server *server,
                               uint8_t out_key[DUNLIN_SERVER_KEY_BYTES])
{
    memcpy(out_key, server->inner.certs.signing_public, DUNLIN_SERVER_KEY_BYTES);
}

dunlin_status dunlin_server_status(dunlin_server *server, char **out_text, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    *out_text = dunlin__server_status_text(&server->inner);
    return *out_text != NULL
               ? DUNLIN_OK
               : dunlin__fail(out_error, DUNLIN_MEMORY, "server", 0, "no memory for the status");
}

void dunlin_server_free_text(char *text)
{
    free(text);
}

dunlin_status dunlin_server_refresh(dunlin_server *server, bool reads_tokens,
                                    dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (server->http == NULL) {
        return dunlin__fail(out_error, DUNLIN_STATE, "server", 0,
                            "dunlin_server_refresh() of a server that does not listen");
    }
    bool is_new = false;
    dunlin__server *inner = &server->inner;
    const dunlin_status status = dunlin__http_renew(server->http, &is_new, out_error);
    if (is_new) {
        dunlin__log(&inner->log, DUNLIN_LOG_INFO, "certs", "a new certificate is in use");
        return status;
    }
    dunlin_error wrong = {0};
    if (status != DUNLIN_OK) {
        dunlin__log(&inner->log, DUNLIN_LOG_ERROR, "certs", "%s",
                    out_error != NULL ? out_error->text : dunlin_status_text(status));
        dunlin__error_clear(out_error);
    }
    if (reads_tokens && dunlin__server_read_tokens(inner, &wrong) != DUNLIN_OK) {
        dunlin__log(&inner->log, DUNLIN_LOG_ERROR, "places", "%s", wrong.text);
    }
    return DUNLIN_OK;
}

static dunlin_status write_json(dunlin_server *server, dunlin_error *error)
{
    const char *path = server->inner.options.json_file;
    if (path == NULL) {
        return DUNLIN_OK;
    }
    char *text = dunlin__server_status_text(&server->inner);
    if (text == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "server", 0, "the status for %.120s", path);
    }
    const dunlin_status status =
        dunlin__outfile_put(path, DUNLIN_SERVER_FILE_MODE, text, strlen(text), error);
    free(text);
    return status;
}

dunlin_status dunlin_server_stop(dunlin_server *server, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (server->http == NULL) {
        return DUNLIN_OK;
    }
    const dunlin_status status = write_json(server, out_error);
    end_connections(server);
    return status;
}

void dunlin_server_destroy(dunlin_server *server)
{
    if (server == NULL) {
        return;
    }
    const dunlin_alloc alloc = server->inner.alloc;
    end_connections(server);
    dunlin__server_close(&server->inner);
    dunlin__free_array(&alloc, server, 1, sizeof *server);
}

dunlin_status dunlin_server_rotate_signing_key(const char *state_folder,
                                               char out_key_id[DUNLIN_SERVER_KEY_ID_BYTES],
                                               dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__server_certs certs;
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__server_path_make(&path, out_error, "%s/lock", state_folder));
    const int fd = open(path.text, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return dunlin__fail(out_error, DUNLIN_IO, "server", 0,
                            "--rotate-signing-key: %.120s holds no server's state", state_folder);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        return dunlin__fail(out_error, DUNLIN_LOCKED, "server", 0,
                            "--rotate-signing-key: %.120s is in use: stop the server first",
                            state_folder);
    }
    const dunlin_status status =
        dunlin__server_certs_rotate(state_folder, &alloc, &certs, out_error);
    if (status == DUNLIN_OK) {
        memcpy(out_key_id, certs.key_id, DUNLIN_SERVER_KEY_ID_BYTES);
    }
    dunlin__server_certs_free(&certs, &alloc);
    (void)close(fd);
    return status;
}

dunlin_status dunlin_server_privacy(const char *question, char **out_text, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    *out_text = NULL;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__privacy_question asked;
    dunlin__privacy_answer answer;
    if (strncmp(question, "state=", 6) == 0) {
        return dunlin__privacy_log(question + 6, &alloc, out_text, out_error);
    }
    DUNLIN_TRY(dunlin__privacy_read(question, &asked, out_error));
    DUNLIN_TRY(dunlin__privacy_account(&asked, &alloc, &answer, out_error));
    *out_text = dunlin__privacy_tell(&asked, &answer);
    return *out_text != NULL
               ? DUNLIN_OK
               : dunlin__fail(out_error, DUNLIN_MEMORY, "privacy", 0, "no memory for the answer");
}

dunlin_status dunlin_server_secagg(const char *question, char **out_text, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    return dunlin__secagg_answer(question, out_text, out_error);
}

/*
 * loop.c - the server of a simulation as a part of the process.
 *
 * Invariant: a call has the body, the answer and the effects that it has over the wire, so events
 * and models are the same.
 */
#include "loop.h"

#include <mem/support.h>
#include <wire/signature.h>

#include <context/runtime.h>
#include <errno.h>
#include <inttypes.h>
#include <requests/local.h>
#include <rounds/rounds.h>
#include <server/lifecycle.h>
#include <server/moment.h>
#include <server/status.h>
#include <simulate/keep.h>
#include <stdio.h>
#include <stdlib.h>
#include <store/store.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ADDRESS "https://memory"
#define AUTHORITY "memory"
#define BLOCK_BYTES 65536
#define MOST_WINDOW_MS (24ULL * 3600 * 1000)

struct loop {
    dunlin_transport head; /* first: the client gives it back */
    dunlin__server server;
    bool is_open;
    char state_folder[FLEET_PATH_BYTES];
    char task_file[FLEET_PATH_BYTES];
    char validation[FLEET_VALIDATION_BYTES];
    int64_t now_ms;
    dunlin_runtime_stats stats;
    dunlin__server_reply reply;
    uint8_t *body; /* of a request whose body is in a file */
    size_t capacity;
};

/* ---- a request ---- */

static const char *value_of(const char *line, const char *name)
{
    const size_t n = strlen(name);
    return strncasecmp(line, name, n) == 0 && line[n] == ':' && line[n + 1] == ' ' ? line + n + 2
                                                                                   : NULL;
}

static void take_headers(const dunlin_http_request *from, dunlin__server_request *to)
{
    const struct {
        const char *name;
        const char **value;
    } rows[] = {{DUNLIN_HEADER_DEVICE, &to->device_id},
                {DUNLIN_HEADER_CHALLENGE, &to->challenge},
                {DUNLIN_HEADER_COUNTER, &to->counter},
                {DUNLIN_HEADER_SIGNATURE, &to->signature},
                {DUNLIN_HEADER_IDEMPOTENCY, &to->idempotency_key},
                {DUNLIN_HEADER_TOKEN, &to->token},
                {DUNLIN_HEADER_CONTENT_RANGE, &to->content_range},
                {"Range", &to->range},
                {"If-Range", &to->if_range}};
    for (int32_t i = 0; i < from->n_headers; i++) {
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            const char *value = value_of(from->headers[i], rows[k].name);
            *rows[k].value = value != NULL ? value : *rows[k].value;
        }
    }
}

static dunlin_status read_body(loop *all, const dunlin_http_request *from, dunlin_error *error)
{
    const size_t n = (size_t)from->body_bytes;
    if (n > all->capacity) {
        free(all->body);
        all->body = malloc(n);
        all->capacity = all->body != NULL ? n : 0;
    }
    if (n > all->capacity) {
        return dunlin__fail(error, DUNLIN_MEMORY, "transport", 0, "no memory for %zu bytes", n);
    }
    for (size_t done = 0; done < n;) {
        const ssize_t got =
            pread(from->body_fd, all->body + done, n - done, (off_t)(from->body_offset + done));
        if (got <= 0) {
            return dunlin__fail(error, DUNLIN_IO, "transport", 0,
                                "the file of a body of %zu bytes ends after %zu", n, done);
        }
        done += (size_t)got;
    }
    return DUNLIN_OK;
}

/* ---- a reply ---- */

static bool write_whole(int fd, const uint8_t *bytes, size_t n, uint64_t offset)
{
    for (size_t done = 0; done < n;) {
        const ssize_t put = pwrite(fd, bytes + done, n - done, (off_t)(offset + done));
        if (put <= 0) {
            return false;
        }
        done += (size_t)put;
    }
    return true;
}

/* Bytes of a good answer's body to where the request wants them. */
static dunlin_status give_bytes(const dunlin_http_request *request, const uint8_t *bytes, size_t n,
                                dunlin_http_reply *out, dunlin_error *error)
{
    if (n > request->reply_limit_bytes - out->body_bytes) {
        return dunlin__fail(error, DUNLIN_LIMIT, "transport", 0,
                            "the reply is longer than its limit of %llu bytes",
                            (unsigned long long)request->reply_limit_bytes);
    }
    if (request->reply_fd < 0) {
        memcpy((uint8_t *)request->reply + out->body_bytes, bytes, n);
    } else if (!write_whole(request->reply_fd, bytes, n, request->reply_offset + out->body_bytes)) {
        return dunlin__fail(error, DUNLIN_IO, "transport", 0,
                            "a reply of %zu bytes cannot be written", n);
    }
    out->body_bytes += n;
    out->received_bytes += n;
    return DUNLIN_OK;
}

static dunlin_status give_file(const dunlin_http_request *request, const dunlin__server_reply *from,
                               dunlin_http_reply *out, dunlin_error *error)
{
    uint8_t block[BLOCK_BYTES];
    for (uint64_t done = 0; done < from->n_fd_bytes;) {
        const uint64_t left = from->n_fd_bytes - done;
        const size_t n = left < sizeof block ? (size_t)left : sizeof block;
        const ssize_t got = pread(from->fd, block, n, (off_t)(from->fd_offset + done));
        if (got <= 0) {
            return dunlin__fail(error, DUNLIN_CLOSED, "transport", 0,
                                "an object of the server ends after %llu bytes",
                                (unsigned long long)done);
        }
        DUNLIN_TRY(give_bytes(request, block, (size_t)got, out, error));
        done += (uint64_t)got;
    }
    return DUNLIN_OK;
}

static void give_error(const uint8_t *bytes, size_t n, dunlin_http_reply *out)
{
    out->received_bytes += n;
    out->error_bytes = n < sizeof out->error_body ? n : sizeof out->error_body;
    memcpy(out->error_body, bytes, (size_t)out->error_bytes);
}

static dunlin_status give_reply(const dunlin_http_request *request,
                                const dunlin__server_reply *from, dunlin_http_reply *out,
                                dunlin_error *error)
{
    const uint8_t *body = dunlin__server_reply_body(from);
    out->status = (int32_t)from->http_code;
    out->is_server = true;
    if (from->retry_after_ms >= 0) {
        out->retry_after_ms = (from->retry_after_ms + 999) / 1000 * 1000; /* whole seconds */
    }
    if (from->has_upload_offset) {
        out->upload_offset = (int64_t)from->upload_offset;
    }
    if (from->content_range[0] != '\0') {
        char line[DUNLIN_WIRE_RANGE_BYTES + 32];
        const int n =
            snprintf(line, sizeof line, "%s: %s", DUNLIN_HEADER_CONTENT_RANGE, from->content_range);
        dunlin_http_reply_header(out, line, (size_t)n);
    }
    if (strcmp(request->method, "HEAD") == 0) {
        return DUNLIN_OK;
    }
    if (from->http_code >= 300) {
        give_error(body, from->n_body, out);
        return DUNLIN_OK;
    }
    return from->fd >= 0 ? give_file(request, from, out, error)
                         : give_bytes(request, body, from->n_body, out, error);
}

/* ---- the transport ---- */

static dunlin_status loop_perform(dunlin_transport *transport, const dunlin_http_request *request,
                                  dunlin_http_reply *out_reply, dunlin_error *error)
{
    loop *all = (loop *)(void *)transport;
    dunlin__server_request asked = {.method = request->method,
                                    .authority = AUTHORITY,
                                    .path = request->url + strlen(ADDRESS),
                                    .body = request->body,
                                    .n_body = (size_t)request->body_bytes};
    dunlin_http_reply_begin(out_reply);
    if (strncmp(request->url, ADDRESS "/", sizeof ADDRESS) != 0) {
        return dunlin__fail(error, DUNLIN_UNREACHABLE, "transport", 0,
                            "%.100s is not the server in this process", request->url);
    }
    if (request->body_fd >= 0) {
        DUNLIN_TRY(read_body(all, request, error));
        asked.body = all->body;
    }
    take_headers(request, &asked);
    out_reply->sent_bytes = request->body_bytes;
    dunlin__server_perform(&all->server, &asked, &all->reply);
    const dunlin_status status = give_reply(request, &all->reply, out_reply, error);
    if (all->reply.fd >= 0) {
        (void)close(all->reply.fd);
    }
    dunlin__server_reply_end(&all->reply, &all->server.alloc);
    all->stats.n_requests++;
    all->stats.body_bytes_sent += out_reply->sent_bytes;
    all->stats.body_bytes_received += out_reply->received_bytes;
    return status;
}

static void loop_stats(dunlin_transport *transport, dunlin_runtime_stats *out_stats)
{
    const loop *all = (const loop *)(const void *)transport;
    out_stats->n_requests = all->stats.n_requests;
    out_stats->body_bytes_sent = all->stats.body_bytes_sent;
    out_stats->body_bytes_received = all->stats.body_bytes_received;
}

/* The loop outlives the runtime. */
static void loop_destroy(dunlin_transport *transport)
{
    (void)transport;
}

static const dunlin_transport_ops OPS = {.struct_size = sizeof(dunlin_transport_ops),
                                         .perform_fn = loop_perform,
                                         .get_stats_fn = loop_stats,
                                         .destroy_fn = loop_destroy};

dunlin_transport *loop_transport(loop *all)
{
    return &all->head;
}

dunlin_status loop_relax(dunlin_runtime *runtime, bool has_moments, dunlin_error *error)
{
    return dunlin__store_relax(runtime->store, has_moments, error);
}

bool loop_has_moments(void)
{
    return true;
}

dunlin_status loop_hold(dunlin_runtime *runtime, dunlin_error *error)
{
    return dunlin__store_keep_log(runtime->store, error);
}

void loop_settle_runtime(dunlin_runtime *runtime)
{
    dunlin__store_settle(runtime->store);
}

dunlin_status loop_keep(loop *all, const char *path, dunlin_error *error)
{
    return dunlin__moment_keep(&all->server, path, error);
}

dunlin_status loop_settle(loop *all, dunlin_error *error)
{
    (void)pthread_mutex_lock(&all->server.lock);
    const dunlin_status status = dunlin__server_db_force(all->server.db, error);
    (void)pthread_mutex_unlock(&all->server.lock);
    return status;
}

/* ---- keys ---- */

/* A new one each time: nobody asks twice. */
static dunlin_status make_key(void *ctx, uint8_t out_public_key[65])
{
    uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
    (void)ctx;
    return dunlin__key_generate(private_key, out_public_key, NULL);
}

static dunlin_status sign_nothing(void *ctx, const void *message, size_t n_bytes,
                                  uint8_t out_signature[64])
{
    (void)ctx;
    (void)message;
    (void)n_bytes;
    memset(out_signature, 0, 64);
    return DUNLIN_OK;
}

dunlin_key_store loop_keys(void)
{
    return (dunlin_key_store){.public_key_fn = make_key, .sign_fn = sign_nothing};
}

/* ---- the server ---- */

static int64_t now_ms(void *ctx)
{
    return ((const loop *)ctx)->now_ms;
}

void loop_tell(loop *all, int64_t ms)
{
    all->now_ms = ms;
    dunlin__server_tick(&all->server);
}

json_t *loop_status(loop *all)
{
    char *text = dunlin__server_status_text(&all->server);
    json_t *status = text != NULL ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return status;
}

/* "ACCEPT:REJECT[:OVER]", as dunlin-server has it. */
static int take_windows(const char *text, dunlin_server_options *options)
{
    uint64_t values[3] = {0};
    int n = 0;
    const char *at = text;
    char *end = NULL;
    while (n < 3 && *at >= '0' && *at <= '9') {
        values[n++] = strtoull(at, &end, 10);
        at = *end == ':' ? end + 1 : end;
        if (*end != ':') {
            break;
        }
    }
    if (n < 2 || *end != '\0' || values[0] > MOST_WINDOW_MS || values[1] > MOST_WINDOW_MS ||
        values[2] > MOST_WINDOW_MS) {
        return program_fail(&fleet_program,
                            "--windows %.60s: expected ACCEPT:REJECT[:OVER], each at most a day in "
                            "ms",
                            text);
    }
    options->accept_ms = values[0];
    options->reject_ms = values[1];
    options->over_ms = values[2];
    return EXIT_OK;
}

static int fill_options(loop *all, const fleet_flags *flags, dunlin_server_options *options)
{
    options->state_folder = all->state_folder;
    options->task_file = all->task_file;
    options->test_set = flags->choice.name;
    options->data_folder = flags->choice.folder;
    options->has_claimed_places = true;
    options->has_seed = true;
    options->seed = flags->seed;
    options->n_threads = flags->n_threads > 8 ? 8 : (int32_t)flags->n_threads;
    options->is_stepped = true;
    options->has_insecure_noise_seed = flags->has_noise_seed;
    options->insecure_noise_seed = flags->noise_seed;
    if (flags->is_judged_by_held_out) {
        fleet_validation_text(flags, all->validation);
        options->validation = all->validation;
    }
    return take_windows(flags->windows != NULL ? flags->windows : SIM_WINDOWS, options);
}

static int fail(const dunlin_error *error)
{
    return program_fail(&fleet_program, "%s", error->text);
}

static int open_inner(loop *all, const fleet_flags *flags, const fleet_server *place)
{
    dunlin_error error = {0};
    dunlin__server_task task;
    dunlin_server_options options = DUNLIN_SERVER_OPTIONS_INIT;
    const dunlin_log silent = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    const int exit_status = fill_options(all, flags, &options);
    if (exit_status != EXIT_OK) {
        return exit_status;
    }
    if (dunlin_server_options_check(&options, &error) != DUNLIN_OK ||
        dunlin__server_task_read(all->task_file, &alloc, &task, &error) != DUNLIN_OK) {
        return fail(&error);
    }
    all->server.now_ms_fn = now_ms;
    all->server.now_ctx = all;
    if (dunlin__server_open(&all->server, &options, &task, &silent, &error) != DUNLIN_OK) {
        return fail(&error);
    }
    all->is_open = true;
    dunlin_status status = dunlin__server_trust_callers(&all->server, place->keeps, &error);
    if (status == DUNLIN_OK && place->moment > 0) {
        char path[FLEET_PATH_BYTES + 32];
        (void)snprintf(path, sizeof path, "%s/moment-%" PRIu64, all->state_folder, place->moment);
        status = dunlin__moment_take(&all->server, path, &error);
    }
    return status == DUNLIN_OK ? EXIT_OK : fail(&error);
}

static bool join_path(char out[FLEET_PATH_BYTES], const char *folder, const char *name)
{
    return snprintf(out, FLEET_PATH_BYTES, "%s/%s", folder, name) < FLEET_PATH_BYTES;
}

int loop_open(const fleet_flags *flags, const fleet_world *world, fleet_server *server)
{
    loop *all = calloc(1, sizeof *all);
    server->loop = all;
    if (all == NULL) {
        return program_fail(&fleet_program, "no memory for a server");
    }
    all->head.ops = &OPS;
    all->now_ms = server->begin_ms;
    all->reply.fd = -1;
    if (!join_path(all->state_folder, server->folder, "server") ||
        !join_path(all->task_file, server->folder, "task.json")) {
        return program_fail(&fleet_program, "%s: the path of a run's folder is too long",
                            server->folder);
    }
    int exit_status = fleet_task_write(flags, world, all->task_file);
    exit_status = exit_status == EXIT_OK ? open_inner(all, flags, server) : exit_status;
    if (exit_status == EXIT_OK) {
        (void)snprintf(server->url, sizeof server->url, "%s", ADDRESS);
        memcpy(server->signing_keys, all->server.certs.signing_public, DUNLIN_PUBLIC_KEY_BYTES);
        server->n_signing_keys = 1;
    }
    return exit_status;
}

void loop_close(loop *all)
{
    if (all == NULL) {
        return;
    }
    if (all->is_open) {
        dunlin__server_close(&all->server);
    }
    free(all->body);
    free(all);
}

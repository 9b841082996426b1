/*
 * lifecycle.c - opens a server on its state, and the thread that closes rounds.
 */
#include "lifecycle.h"

#include "base/certs.h"
#include "base/files.h"
#include "model/evaluate.h"
#include "model/models.h"
#include "model_open.h"
#include "rounds/ahead.h"
#include "rounds/kept.h"
#include "rounds/rounds.h"
#include "rounds/secure.h"
#include "rounds/state.h"
#include "state/context.h"
#include "state/db.h"
#include "state/devices.h"
#include "state/places.h"
#include "task/options.h"
#include "task/task.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORKER_PERIOD_MS 200

dunlin__server_certs_wish dunlin__server_wish(const dunlin_server_options *options)
{
    return (dunlin__server_certs_wish){.host = options->host,
                                       .names = options->names,
                                       .n_names = options->n_names,
                                       .certificate_file = options->certificate_file,
                                       .key_file = options->certificate_key_file};
}

dunlin_status dunlin__server_read_tokens(dunlin__server *server, dunlin_error *error)
{
    const char *path = server->options.tokens_file;
    int64_t n_places =
        server->task.n_clients != 0 ? server->task.n_clients : (int64_t)DUNLIN_SERVER_CLIENTS;
    dunlin__places read = {0};
    if (path == NULL) {
        return DUNLIN_OK;
    }
    dunlin_status status = dunlin__places_read(path, n_places, &server->alloc, &read, error);
    if (status == DUNLIN_OK) {
        (void)pthread_mutex_lock(&server->lock);
        dunlin__places before = server->places;
        server->places = read;
        (void)pthread_mutex_unlock(&server->lock);
        read = before;
    }
    dunlin__places_free(&read, &server->alloc);
    return status;
}

dunlin_status dunlin__server_open(dunlin__server *server, const dunlin_server_options *options,
                                  dunlin__server_task *task, const dunlin_log *log,
                                  dunlin_error *error)
{
    server->options = *options;
    server->task = *task;
    task->tensors = NULL;
    task->n_tensors = 0;
    server->log = *log;
    server->alloc = dunlin__alloc_or_default(NULL);
    server->lock_fd = -1;
    server->clock_offset_ms = dunlin__server_clock_offset();
    server->watch.opened_ms = dunlin__server_now(server);
    if (options->has_seed) {
        server->task.seed = options->seed;
    }
    server->is_repeatable = options->has_insecure_noise_seed && task->dp.is_on;
    (void)pthread_mutex_init(&server->lock, NULL);
    (void)pthread_cond_init(&server->changed, NULL);
    dunlin_status status =
        dunlin__server_path_make(&server->folder, error, "%s", options->state_folder);
    if (status == DUNLIN_OK) {
        status = dunlin__state_make_folders(server, error);
    }
    if (status == DUNLIN_OK) {
        const dunlin__server_certs_wish wish = dunlin__server_wish(options);
        status = dunlin__server_certs_load(server->folder.text, &wish, &server->alloc,
                                           &server->certs, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_read_tokens(server, error);
    }
    if (status == DUNLIN_OK && options->status_token_file != NULL) {
        status = dunlin__places_read(options->status_token_file, 1, &server->alloc,
                                     &server->status_token, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__model_open(server, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__state_open(server, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_close(server);
        return status;
    }
    dunlin__kept_load_best(server);
    dunlin__kept_sweep(server);
    dunlin__state_sweep(server, "uploads", false);
    dunlin__state_sweep(server, "spool", true);
    return DUNLIN_OK;
}

/* ---- the worker ---- */

static void wait_for_work(dunlin__server *server)
{
    struct timespec until = {0};
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WORKER_PERIOD_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    int code = 0;
    while (code == 0 && !server->is_stopping && !server->is_woken) {
        code = pthread_cond_timedwait(&server->changed, &server->lock, &until);
    }
    server->is_woken = false;
}

static void *work(void *ctx)
{
    dunlin__server *server = ctx;
    (void)pthread_mutex_lock(&server->lock);
    while (!server->is_stopping) {
        (void)pthread_mutex_unlock(&server->lock);
        dunlin__server_tick(server);
        (void)pthread_mutex_lock(&server->lock);
        wait_for_work(server);
    }
    (void)pthread_mutex_unlock(&server->lock);
    return NULL;
}

dunlin_status dunlin__server_start(dunlin__server *server, dunlin_error *error)
{
    int code = pthread_create(&server->worker, NULL, work, server);
    if (code != 0) {
        return dunlin__fail(error, DUNLIN_MEMORY, "server", code,
                            "the worker's thread cannot be started: %s", strerror(code));
    }
    server->has_worker = true;
    if (server->task.buffered.is_on) {
        dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                    "rounds overlap: which updates make a model depends on which devices are fast, "
                    "so this run cannot be repeated; one in simulated time can");
    }
    return DUNLIN_OK;
}

void dunlin__server_close(dunlin__server *server)
{
    if (server->has_worker) {
        (void)pthread_mutex_lock(&server->lock);
        server->is_stopping = true;
        (void)pthread_cond_signal(&server->changed);
        (void)pthread_mutex_unlock(&server->lock);
        dunlin__evaluator_stop(server->evaluator);
        (void)pthread_join(server->worker, NULL);
        server->has_worker = false;
    }
    dunlin__evaluator_close(server->evaluator);
    dunlin__server_db_close(server->db);
    dunlin__devices_free(server);
    for (size_t i = 0; i < DUNLIN_SERVER_MOST_MODELS; i++) {
        dunlin__published_free(&server->models[i], &server->alloc);
    }
    dunlin__free_array(&server->alloc, server->closed, server->closed_capacity,
                       sizeof *server->closed);
    dunlin__free_array(&server->alloc, server->in_cohort, server->task.n_clients, sizeof(bool));
    dunlin__ahead_free(server);
    dunlin__secure_free(server);
    if (server->task.tensors == NULL) {
        dunlin__free_array(&server->alloc, server->layout.tensors, server->layout.n_tensors,
                           sizeof *server->layout.tensors);
    }
    dunlin__server_task_free(&server->task, &server->alloc);
    dunlin__server_certs_free(&server->certs, &server->alloc);
    dunlin__places_free(&server->places, &server->alloc);
    dunlin__places_free(&server->status_token, &server->alloc);
    if (server->lock_fd >= 0) {
        (void)close(server->lock_fd);
    }
    (void)pthread_cond_destroy(&server->changed);
    (void)pthread_mutex_destroy(&server->lock);
    server->evaluator = NULL;
    server->db = NULL;
    server->closed = NULL;
    server->in_cohort = NULL;
    server->lock_fd = -1;
}

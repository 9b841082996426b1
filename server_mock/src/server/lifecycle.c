/*
 * lifecycle.c - opens a server on its state, and the thread that closes rounds.
 */
#include "lifecycle.h"

#include "base/certs.h"
#include "base/files.h"
#include "model/evaluate.h"
#include "model/models.h"
#include "model/noise.h"
#include "rounds/ahead.h"
#include "rounds/kept.h"
#include "rounds/orders.h"
#include "rounds/private.h"
#include "rounds/rounds.h"
#include "rounds/state.h"
#include "state/context.h"
#include "state/db.h"
#include "state/devices.h"
#include "state/places.h"
#include "task/options.h"
#include "task/task.h"
#include "task/together.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORKER_PERIOD_MS 200

/* What ends a run early, and the best model, must have something to judge models by; rollback is in
 * the table of what goes with what. */
static dunlin_status check_judges(const dunlin__server *server, dunlin_error *error)
{
    const dunlin__server_task *task = &server->task;
    const struct {
        const char *key;
        double value;
    } keys[] = {{"target_accuracy", task->target_accuracy}, {"patience", task->patience}};
    bool has_test_set = dunlin__evaluator_has_test_set(server->evaluator);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !has_test_set; i++) {
        if (keys[i].value > 0) {
            return dunlin__fail(error, DUNLIN_DATA, "server", 0,
                                "the task's %s %.6g wants --test-set, to judge models by",
                                keys[i].key, keys[i].value);
        }
    }
    if (has_test_set || dunlin__server_task_is_judged(task)) {
        return DUNLIN_OK;
    }
    if (task->wants_best) {
        return dunlin__fail(error, DUNLIN_DATA, "server", 0,
                            "the task's keep_best wants --test-set, evaluate_every or "
                            "plan.evaluate, to judge models by");
    }
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "server",
                "no best model is kept: without --test-set, evaluate_every or plan.evaluate "
                "nothing judges models");
    return DUNLIN_OK;
}

/* What the task did not know of a private run: the model's values. */
static dunlin_status check_private(const dunlin__server *server, dunlin_error *error)
{
    const dunlin__privacy_question *terms = &server->task.dp.question;
    dunlin__noise noise;
    for (uint32_t i = 0; i < server->layout.n_tensors; i++) {
        if (server->layout.tensors[i].rule == DUNLIN_V1_RULE_STATISTIC) {
            DUNLIN_TRY(dunlin__together_check(DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_DP) |
                                                  DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_STATISTICS),
                                              "the task", error));
        }
    }
    DUNLIN_TRY(dunlin__noise_make(&noise, terms->clip, dunlin__private_multiplier(&server->task),
                                  server->layout.n_shared_values, error));
    const char *note = dunlin__private_note(server);
    dunlin__log(&server->log, note != NULL ? DUNLIN_LOG_WARNING : DUNLIN_LOG_INFO, "server",
                "noise %.6g of clip %g: epsilon %.6g at delta %g after %llu rounds%s%s",
                terms->noise, terms->clip, server->task.dp.cost.epsilon, terms->delta,
                (unsigned long long)server->task.rounds, note != NULL ? "; " : "",
                note != NULL ? note : "");
    return DUNLIN_OK;
}

static dunlin_status open_model(dunlin__server *server, dunlin_error *error)
{
    if (server->task.tensors != NULL) {
        if (server->options.test_set != NULL) {
            return dunlin__fail(error, DUNLIN_UNSUPPORTED, "server", 0,
                                "--test-set %.60s: a task with its own tensors cannot be "
                                "evaluated here",
                                server->options.test_set);
        }
        server->layout.tensors = server->task.tensors;
        server->layout.n_tensors = server->task.n_tensors;
    } else {
        DUNLIN_TRY(dunlin__evaluator_open(&server->task, &server->options, &server->alloc,
                                          &server->layout, &server->evaluator, error));
    }
    if (!dunlin__evaluator_has_test_set(server->evaluator)) {
        const dunlin__traits traits = dunlin__together_traits(&server->task);
        DUNLIN_TRY(dunlin__together_check(traits | DUNLIN_TRAIT_BIT(DUNLIN_TRAIT_NO_TEST_SET),
                                          "the task", error));
    }
    DUNLIN_TRY(check_judges(server, error));
    server->layout.chunk_bytes = server->task.chunk_bytes;
    server->layout.has_control = server->task.plan.is_scaffold;
    server->layout.is_int8 = dunlin__server_task_is_int8(&server->task);
    dunlin__orders_settle(&server->task, &server->layout);
    DUNLIN_TRY(dunlin__layout_make_local(&server->layout, server->task.local, error));
    DUNLIN_TRY(dunlin__layout_check(&server->layout, error));
    return server->task.dp.is_on ? check_private(server, error) : DUNLIN_OK;
}

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
        status = open_model(server, error);
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

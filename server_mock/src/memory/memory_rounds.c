/*
 * memory_rounds.c - the rounds of a task in memory, from the first to the last.
 *
 * Invariant: rows of closed rounds, the base and what is kept of them say all of the run; none of
 * it depends on which thread or process did what.
 */
#include "memory_rounds.h"

#include "model/update_norm.h"
#include "rounds/best.h"
#include "rounds/clip.h"
#include "rounds/cohort.h"
#include "rounds/lineage.h"
#include "rounds/orders.h"
#include "rounds/plan.h"
#include "rounds/tally.h"
#include "server/model_open.h"
#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

const char *dunlin__memory_refusal(const dunlin__server_task *task)
{
    const struct {
        bool is_there;
        const char *text;
    } rows[] = {
        {task->n_clients == 0, "clients that are not known beforehand: who comes first is a matter "
                               "of the network"},
        {dunlin__server_task_n_select(task) > task->cohort && task->over_select > 1,
         "over_select: who comes first is a matter of the network"},
        {task->plan.is_scaffold, "algorithm scaffold: each device keeps a variate on its storage"},
        {task->local[0] != 0, "local: each device keeps tensors on its storage"},
        {task->feedback_rounds > 0, "compress.feedback: each device keeps what was left out on its "
                                    "storage"},
        {task->is_down, "compress.down: models do not go down"},
        {task->dp.is_on, "dp: the account of a private run lies in the server's database"},
        {task->tensors != NULL, "tensors: a model by name is needed"},
        {task->metrics_per_device, "metrics_per_device: they are files of the server's folder"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_there) {
            return rows[i].text;
        }
    }
    return NULL;
}

static dunlin__round_row next_row(const dunlin__server *server, uint64_t round, uint64_t base)
{
    const int64_t now_ms = dunlin__server_now(server);
    return (dunlin__round_row){
        .round = round,
        .state = DUNLIN_ROUND_OPEN,
        .base = base,
        .opened_ms = now_ms,
        .deadline_ms = now_ms + (int64_t)dunlin__server_task_deadline_ms(&server->task, round),
        .is_evaluation = dunlin__server_task_is_evaluation(&server->task, round)};
}

static dunlin_status make_room(dunlin__memory *memory, dunlin_error *error)
{
    dunlin__server *server = &memory->server;
    const dunlin_alloc *alloc = &server->alloc;
    const size_t n_values = (size_t)server->layout.n_values;
    const size_t n_moments = dunlin__strategy_has_moments(&server->task.strategy)
                                 ? (size_t)server->layout.n_averaged_values
                                 : 0;
    memory->base = dunlin__alloc_array(alloc, n_values, sizeof *memory->base);
    memory->next = dunlin__alloc_array(alloc, n_values, sizeof *memory->next);
    memory->asked = dunlin__alloc_array(alloc, server->task.n_clients, sizeof *memory->asked);
    bool is_there = memory->base != NULL && memory->next != NULL && memory->asked != NULL;
    if (n_moments > 0) {
        memory->moments = dunlin__alloc_array(alloc, n_moments, sizeof *memory->moments);
        memory->next_moments = dunlin__alloc_array(alloc, n_moments, sizeof *memory->moments);
        is_there = is_there && memory->moments != NULL && memory->next_moments != NULL;
    }
    if (!is_there) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0,
                            "no memory for a model of %zu values", n_values);
    }
    for (size_t i = 0; i < n_moments; i++) {
        memory->moments[i] = dunlin__server_step_first(&server->task.strategy);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__memory_open(dunlin__memory *memory, const dunlin_server_options *options,
                                  const dunlin_log *log, dunlin_error *error)
{
    dunlin__server *server = &memory->server;
    memset(memory, 0, sizeof *memory);
    server->options = *options;
    server->log = *log;
    server->alloc = dunlin__alloc_or_default(NULL);
    server->lock_fd = -1;
    server->clock_offset_ms = dunlin__server_clock_offset();
    (void)pthread_mutex_init(&server->lock, NULL);
    DUNLIN_TRY(dunlin__server_task_read(options->task_file, &server->alloc, &server->task, error));
    if (options->has_seed) {
        server->task.seed = options->seed;
    }
    const char *refusal = dunlin__memory_refusal(&server->task);
    if (refusal != NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "rounds", 0,
                            "--transport memory does not have %s", refusal);
    }
    DUNLIN_TRY(dunlin__model_open(server, error));
    DUNLIN_TRY(make_room(memory, error));
    const dunlin__values initial = dunlin__evaluator_initial(server->evaluator);
    DUNLIN_TRY(
        initial.values_fn(initial.ctx, 0, (size_t)server->layout.n_values, memory->base, error));
    server->task.keeps_best = false; /* there are no files: the figures alone tell which it is */
    server->is_started = true;
    server->round = next_row(server, 1, 0);
    dunlin__best_settle(server);
    return DUNLIN_OK;
}

void dunlin__memory_free(dunlin__memory *memory)
{
    dunlin__server *server = &memory->server;
    const dunlin_alloc *alloc = &server->alloc;
    const size_t n_values = (size_t)server->layout.n_values;
    const size_t n_moments = (size_t)server->layout.n_averaged_values;
    const size_t n_clients = server->task.n_clients;
    dunlin__free_array(alloc, memory->base, n_values, sizeof *memory->base);
    dunlin__free_array(alloc, memory->next, n_values, sizeof *memory->next);
    dunlin__free_array(alloc, memory->moments, n_moments, sizeof *memory->moments);
    dunlin__free_array(alloc, memory->next_moments, n_moments, sizeof *memory->moments);
    dunlin__free_array(alloc, memory->asked, n_clients, sizeof *memory->asked);
    for (size_t i = 0; i < DUNLIN_GUARD_ROUNDS; i++) {
        dunlin__norms_free(&memory->recent[i], alloc);
    }
    dunlin__norms_free(&memory->history, alloc);
    dunlin__evaluator_close(server->evaluator);
    dunlin__free_array(alloc, server->layout.tensors, server->layout.n_tensors,
                       sizeof *server->layout.tensors);
    dunlin__free_array(alloc, server->in_cohort, n_clients, sizeof(bool));
    dunlin__free_array(alloc, server->closed, server->closed_capacity, sizeof *server->closed);
    dunlin__server_task_free(&server->task, alloc);
    (void)pthread_mutex_destroy(&server->lock);
    memset(memory, 0, sizeof *memory);
}

/* ---- a round begins ---- */

static int compare_norms(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

static dunlin_status gather_history(dunlin__memory *memory, dunlin_error *error)
{
    const dunlin_alloc *alloc = &memory->server.alloc;
    size_t n = 0;
    for (size_t i = 0; i < DUNLIN_GUARD_ROUNDS; i++) {
        n += memory->recent[i].n;
    }
    dunlin__norms_free(&memory->history, alloc);
    if (n == 0) {
        return DUNLIN_OK;
    }
    memory->history.values = dunlin__alloc_array(alloc, n, sizeof(double));
    memory->history.capacity = n;
    if (memory->history.values == NULL) {
        memory->history.capacity = 0;
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "no memory for %zu norms", n);
    }
    for (size_t i = 0; i < DUNLIN_GUARD_ROUNDS; i++) {
        const dunlin__norms *one = &memory->recent[i];
        if (one->n > 0) {
            memcpy(memory->history.values + memory->history.n, one->values,
                   one->n * sizeof(double));
        }
        memory->history.n += one->n;
    }
    qsort(memory->history.values, n, sizeof(double), compare_norms);
    return DUNLIN_OK;
}

dunlin_status dunlin__memory_begin(dunlin__memory *memory, dunlin_error *error)
{
    dunlin__server *server = &memory->server;
    DUNLIN_TRY(dunlin__server_choose_cohort(server, error));
    memory->n_asked = 0;
    for (uint32_t i = 0; i < server->task.n_clients; i++) {
        if (server->in_cohort[i]) {
            memory->asked[memory->n_asked++] = i;
        }
    }
    memory->is_guarded = dunlin__guard_is_on(&server->task) && !server->round.is_evaluation;
    memory->bound = 0;
    if (memory->is_guarded) {
        DUNLIN_TRY(gather_history(memory, error));
        if (memory->history.n >= DUNLIN_GUARD_UPDATES) {
            memory->bound = dunlin__guard_bound(&memory->history, NULL);
        }
    }
    return DUNLIN_OK;
}

void dunlin__memory_assign(const dunlin__memory *memory, uint32_t client_index,
                           dunlin__assignment *out_assignment)
{
    const dunlin__server *server = &memory->server;
    const dunlin__server_task *task = &server->task;
    uint32_t features[DUNLIN_SERVER_FEATURES];
    const size_t n_features = dunlin__server_features(task, true, features);
    memset(out_assignment, 0, sizeof *out_assignment);
    memcpy(out_assignment->population, task->population, sizeof task->population);
    memcpy(out_assignment->task, task->name, sizeof task->name);
    out_assignment->run_epoch = 1;
    out_assignment->round = server->round.round;
    out_assignment->kind =
        server->round.is_evaluation ? DUNLIN_V1_KIND_EVALUATE : DUNLIN_V1_KIND_TRAIN;
    out_assignment->has_plan = true;
    dunlin__plan_fill(server, client_index, true, &out_assignment->plan);
    out_assignment->aggregation = DUNLIN_V1_AGGREGATION_PLAIN;
    for (size_t i = 0; i < n_features; i++) {
        out_assignment->required_features[i] = features[i];
    }
    out_assignment->required_features_count = (pb_size_t)n_features;
}

/* ---- contributions ---- */

bool dunlin__memory_wants_norms(const dunlin__memory *memory)
{
    return memory->is_guarded;
}

void dunlin__memory_measure(const dunlin__memory *memory, const float *const *updates, size_t n,
                            double *out_norms)
{
    const dunlin__server *server = &memory->server;
    for (size_t done = 0; done < n;) {
        dunlin__update_norms norms[16];
        const size_t most = sizeof norms / sizeof norms[0];
        const size_t n_now = n - done < most ? n - done : most;
        dunlin__update_measure_values(&server->layout, DUNLIN_LAYOUT_SHARED, updates + done, n_now,
                                      server->task.sends_weights ? memory->base : NULL, norms);
        for (size_t i = 0; i < n_now; i++) {
            out_norms[done + i] = norms[i].norm;
        }
        done += n_now;
    }
}

static double scale_of(const dunlin__memory *memory, double norm)
{
    return memory->bound > 0 && norm > memory->bound ? memory->bound / norm : 1;
}

dunlin__memory_work dunlin__memory_take(const dunlin__memory *memory, uint32_t client_index,
                                        const dunlin__commit_request *commit, double norm)
{
    const dunlin__server *server = &memory->server;
    dunlin__memory_work work = {.row = dunlin__server_tally_contribution(
                                    server, server->round.round, client_index, commit)};
    work.row.norm = norm;
    work.scale = scale_of(memory, norm);
    return work;
}

static int compare_works(const void *left, const void *right)
{
    const dunlin__memory_work *a = left;
    const dunlin__memory_work *b = right;
    return (a->row.client_index > b->row.client_index) -
           (a->row.client_index < b->row.client_index);
}

dunlin_status dunlin__memory_settle(dunlin__memory *memory, dunlin__memory_work *works, size_t n,
                                    dunlin_error *error)
{
    const dunlin_alloc *alloc = &memory->server.alloc;
    const bool is_known = memory->history.n >= DUNLIN_GUARD_UPDATES;
    if (n > 1) {
        qsort(works, n, sizeof *works, compare_works);
    }
    if (!memory->is_guarded || is_known || n == 0) {
        return DUNLIN_OK;
    }
    dunlin__norms own = {.values = dunlin__alloc_array(alloc, n, sizeof(double)), .capacity = n};
    if (own.values == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "%zu norms", n);
    }
    for (size_t i = 0; i < n; i++) {
        own.values[own.n++] = works[i].row.norm;
    }
    memory->bound = dunlin__guard_bound(&memory->history, &own);
    for (size_t i = 0; i < n; i++) {
        const double scale = scale_of(memory, works[i].row.norm);
        works[i].is_again = scale < works[i].scale;
        works[i].scale = scale;
    }
    dunlin__norms_free(&own, alloc);
    return DUNLIN_OK;
}

/* ---- the close ---- */

bool dunlin__memory_is_aggregated(const dunlin__memory *memory, size_t n_works)
{
    const dunlin__server *server = &memory->server;
    return !server->round.is_evaluation && n_works >= server->task.min_reports;
}

bool dunlin__memory_judges(const dunlin__memory *memory)
{
    const dunlin__server *server = &memory->server;
    return dunlin__evaluator_has_test_set(server->evaluator) &&
           dunlin__server_task_judges(&server->task, server->round.round);
}

dunlin_status dunlin__memory_judge_begin(dunlin__memory *memory, bool is_aggregated,
                                         size_t *out_n_pieces, dunlin_error *error)
{
    const dunlin__values values =
        dunlin__memory_values(is_aggregated ? memory->next : memory->base);
    *out_n_pieces = dunlin__evaluator_n_pieces(memory->server.evaluator);
    return dunlin__evaluator_load(memory->server.evaluator, &values, error);
}

dunlin_status dunlin__memory_judge(dunlin__memory *memory, size_t piece,
                                   dunlin__figures *out_figures, dunlin_error *error)
{
    return dunlin__evaluator_judge(memory->server.evaluator, piece, out_figures, error);
}

void dunlin__memory_judge_end(const dunlin__figures *pieces, size_t n, dunlin__memory_end *out_end)
{
    out_end->has_figures = true;
    dunlin__figures_join(pieces, n, &out_end->accuracy, &out_end->loss);
}

/* Keeps the norms of a round whose model stays. */
static dunlin_status keep_norms(dunlin__memory *memory, const dunlin__memory_work *works, size_t n,
                                dunlin_error *error)
{
    const dunlin_alloc *alloc = &memory->server.alloc;
    dunlin__norms *into = &memory->recent[memory->n_recent % DUNLIN_GUARD_ROUNDS];
    dunlin__norms_free(into, alloc);
    into->values = dunlin__alloc_array(alloc, n, sizeof(double));
    if (into->values == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "%zu norms", n);
    }
    into->capacity = n;
    for (size_t i = 0; i < n; i++) {
        into->values[into->n++] = works[i].row.norm;
    }
    memory->n_recent++;
    return DUNLIN_OK;
}

/* Why there is no next base, as the server that listens says it. */
static void fill_failure(const dunlin__memory *memory, const dunlin__memory_end *end, size_t n,
                         dunlin__round_row *row)
{
    const uint32_t least = memory->server.task.min_reports;
    if (n < least) {
        row->is_failed = true;
        (void)snprintf(row->why, sizeof row->why,
                       "%zu contributions counted, min_reports is %" PRIu32, n, least);
    } else if (end->status != DUNLIN_OK) {
        row->is_failed = true;
        (void)snprintf(row->why, sizeof row->why, "the updates %s: %.120s",
                       end->status == DUNLIN_OVERFLOW ? "cannot be summed"
                                                      : "have no finite average",
                       end->error.text);
    }
}

static void fill_verdict(const dunlin__memory *memory, const dunlin__memory_end *end,
                         dunlin__round_row *row)
{
    if (!end->has_figures) {
        return;
    }
    const dunlin__verdict verdict =
        dunlin__lineage_judge(&memory->server, &end->failure, end->accuracy, end->loss);
    row->is_evaluated = verdict.is_evaluated;
    row->accuracy = verdict.is_evaluated ? verdict.accuracy : 0;
    row->loss = verdict.is_evaluated ? verdict.loss : 0;
    row->is_given_up = !verdict.is_evaluated;
    row->is_taken_back = verdict.is_bad;
    if (!row->is_failed) {
        memcpy(row->why, verdict.why, sizeof row->why);
    }
}

static void fill_row(dunlin__memory *memory, const dunlin__memory_work *works, size_t n,
                     const dunlin__memory_end *end, dunlin__round_row *row)
{
    dunlin__server_tally tally = {0};
    row->state = DUNLIN_ROUND_CLOSED;
    row->reason = n >= dunlin__server_goal(&memory->server) ? DUNLIN_CLOSE_GOAL : DUNLIN_CLOSE_ALL;
    row->n_participants = n;
    row->n_dropped = end->n_dropped;
    row->norm_bound =
        memory->is_guarded && n >= memory->server.task.min_reports ? memory->bound : 0;
    for (size_t i = 0; i < n; i++) {
        dunlin__server_tally_add(&tally, &works[i].row);
        row->n_scaled += row->norm_bound > 0 && works[i].scale < 1 ? 1 : 0;
    }
    dunlin__server_tally_fill(&tally, row);
    row->clip_norm = row->is_evaluation ? 0 : dunlin__clip_norm(&memory->server);
    fill_failure(memory, end, n, row);
    fill_verdict(memory, end, row);
    row->closed_ms = dunlin__server_now(&memory->server);
}

static void swap_bases(dunlin__memory *memory)
{
    float *base = memory->base;
    dunlin__moments *moments = memory->moments;
    memory->base = memory->next;
    memory->next = base;
    memory->moments = memory->next_moments;
    memory->next_moments = moments;
}

static void tell_round(const dunlin__server *server, const dunlin__round_row *row)
{
    dunlin__log(
        &server->log, row->why[0] != 0 ? DUNLIN_LOG_WARNING : DUNLIN_LOG_INFO, "rounds",
        "round %" PRIu64 " closed in memory: %" PRIu64 " participants, %" PRIu64 " dropped%s%s",
        row->round, row->n_participants, row->n_dropped, row->why[0] != 0 ? "; " : "", row->why);
}

dunlin_status dunlin__memory_close(dunlin__memory *memory, const dunlin__memory_work *works,
                                   size_t n, const dunlin__memory_end *end, dunlin_error *error)
{
    dunlin__server *server = &memory->server;
    dunlin__round_row row = server->round;
    void *list = server->closed;
    const bool has_room = dunlin__grow_array(&server->alloc, &list, &server->closed_capacity,
                                             server->n_closed + 1, sizeof *server->closed);
    server->closed = list;
    if (!has_room) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "round %" PRIu64, row.round + 1);
    }
    fill_row(memory, works, n, end, &row);
    const bool is_made = dunlin__memory_is_aggregated(memory, n) && end->status == DUNLIN_OK;
    const bool stays = is_made && !row.is_taken_back;
    if (stays) {
        swap_bases(memory);
    }
    if (stays && memory->is_guarded && n > 0) {
        DUNLIN_TRY(keep_norms(memory, works, n, error));
    }
    server->closed[server->n_closed++] = row;
    server->round = next_row(server, row.round + 1, row.is_taken_back ? row.base : row.round);
    dunlin__best_settle(server);
    server->is_exported = server->is_done;
    tell_round(server, &row);
    return DUNLIN_OK;
}

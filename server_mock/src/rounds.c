/*
 * rounds.c - when a round ends, and what comes of it: folded, published, evaluated.
 *
 * Invariant: the next model follows from the updates that were accepted, never from the order of
 * their arrival; a close that is cut short is made again, with the same result.
 */
#include "aggregate.h"
#include "server.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define BRIEF_ANSWER_MS (10 * 60 * 1000)
#define ANSWER_MS (7LL * 24 * 3600 * 1000)

/* ---- closing ---- */

static dunlin__close_reason find_reason(const dunlin__server *server, int64_t now_ms)
{
    const dunlin__round_row *round = &server->round;
    dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    if (counts.n_accepted >= server->task.cohort) {
        return DUNLIN_CLOSE_GOAL;
    }
    if (round->deadline_ms != 0 && now_ms >= round->deadline_ms) {
        return DUNLIN_CLOSE_DEADLINE;
    }
    if (server->in_cohort != NULL &&
        counts.n_accepted + counts.n_dropped >= dunlin__server_task_n_select(&server->task)) {
        return DUNLIN_CLOSE_ALL;
    }
    return DUNLIN_CLOSE_NONE;
}

static dunlin_status save_round(dunlin__server *server, const dunlin__round_row *round,
                                dunlin_error *error)
{
    DUNLIN_TRY(dunlin__server_db_begin(server->db, true, error));
    dunlin_status status = dunlin__server_db_put_round(server->db, round, error);
    if (status == DUNLIN_OK) {
        return dunlin__server_db_commit(server->db, error);
    }
    dunlin__server_db_rollback(server->db);
    return status;
}

/* The accepted updates of a round, in the order of client indices. */
typedef struct gathered {
    dunlin__server *server;
    dunlin__fold_input *inputs;
    size_t n;
    size_t capacity;
    double weight_sum;
    double metric_weights[DUNLIN_N_METRICS];
    double metric_sums[DUNLIN_N_METRICS];
    dunlin_error *error;
} gathered;

static dunlin_status gather(void *ctx, const dunlin__contribution_row *row)
{
    gathered *all = ctx;
    void *inputs = all->inputs;
    bool has_room = dunlin__grow_array(&all->server->alloc, &inputs, &all->capacity, all->n + 1,
                                       sizeof *all->inputs);
    all->inputs = inputs;
    if (!has_room) {
        return dunlin__fail(all->error, DUNLIN_MEMORY, "rounds", 0, "contribution %zu", all->n + 1);
    }
    dunlin__fold_input *input = &all->inputs[all->n];
    DUNLIN_TRY(dunlin__server_spool_path(all->server, row->assignment, &input->path, all->error));
    /* SCAFFOLD's average is over devices, as its variates are (Karimireddy et al. 2020). */
    input->weight = all->server->layout.has_control ? 1.0 : row->weight;
    all->n++;
    all->weight_sum += row->weight;
    for (int m = 0; m < DUNLIN_N_METRICS; m++) {
        if (row->metrics.is_there[m]) {
            all->metric_weights[m] += row->weight;
            all->metric_sums[m] += row->weight * row->metrics.values[m];
        }
    }
    return DUNLIN_OK;
}

/* The files and blocks of a fold; two of them with SCAFFOLD: weights, and control variate. */
typedef struct folding {
    dunlin__server *server;
    dunlin__weights_file bases[2];
    dunlin__fold folds[2];
    dunlin__values values[2];
    double *sums;
    float *block;
} folding;

static dunlin_status begin_stream(folding *work, const gathered *all, size_t n_inputs,
                                  const char *folder, bool is_control)
{
    const dunlin__server *server = work->server;
    const dunlin__layout *layout = &server->layout;
    int at = is_control ? 1 : 0;
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__model_path(folder, server->round.round, is_control ? "control" : "weights",
                                  &path, all->error));
    DUNLIN_TRY(dunlin__weights_file_open(path.text,
                                         is_control ? layout->n_averaged_values : layout->n_values,
                                         &work->bases[at], all->error));
    work->folds[at] =
        (dunlin__fold){.layout = layout,
                       .part = is_control ? DUNLIN_LAYOUT_AVERAGED : DUNLIN_LAYOUT_ALL,
                       .first_in_inputs = is_control ? layout->n_shared_values : 0,
                       .divisor = is_control ? (double)server->task.n_clients : 0,
                       .base = &work->bases[at],
                       .inputs = all->inputs,
                       .n_inputs = n_inputs,
                       .sends_weights = server->task.sends_weights,
                       .sums = work->sums,
                       .block = work->block};
    work->values[at] = dunlin__fold_values(&work->folds[at]);
    return DUNLIN_OK;
}

static dunlin_status fold_all(folding *work, const gathered *all, size_t n_inputs,
                              dunlin__published *out_model)
{
    dunlin__server *server = work->server;
    dunlin__server_path folder;
    dunlin_error *error = all->error;
    if (work->sums == NULL || work->block == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "the blocks of the fold");
    }
    DUNLIN_TRY(dunlin__server_path_make(&folder, error, "%s/models", server->folder.text));
    DUNLIN_TRY(begin_stream(work, all, n_inputs, folder.text, false));
    if (server->layout.has_control) {
        DUNLIN_TRY(begin_stream(work, all, n_inputs, folder.text, true));
    }
    return dunlin__model_publish(folder.text, server->round.round + 1, &server->layout,
                                 work->values, &server->alloc, out_model, error);
}

/* Folds and publishes the base of the next round. Not locked. */
static dunlin_status make_next(dunlin__server *server, const gathered *all, size_t n_inputs,
                               dunlin__published *out_model)
{
    folding work = {.server = server, .bases = {{.fd = -1}, {.fd = -1}}};
    work.sums = dunlin__alloc_array(&server->alloc, DUNLIN_FOLD_VALUES, sizeof(double));
    work.block = dunlin__alloc_array(&server->alloc, DUNLIN_FOLD_VALUES, sizeof(float));
    dunlin_status status = fold_all(&work, all, n_inputs, out_model);
    dunlin__free_array(&server->alloc, work.sums, DUNLIN_FOLD_VALUES, sizeof(double));
    dunlin__free_array(&server->alloc, work.block, DUNLIN_FOLD_VALUES, sizeof(float));
    dunlin__weights_file_close(&work.bases[0]);
    dunlin__weights_file_close(&work.bases[1]);
    return status;
}

static void fill_closed(const dunlin__server *server, const gathered *all, int64_t now_ms,
                        dunlin__round_row *row)
{
    dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    *row = server->round;
    row->state = DUNLIN_ROUND_CLOSED;
    row->closed_ms = now_ms;
    row->n_participants = all->n;
    row->n_dropped = (uint64_t)counts.n_assigned + counts.n_dropped;
    row->bytes_down = atomic_load(&server->counters.body_bytes_down) - server->down_at_open;
    row->bytes_up = atomic_load(&server->counters.body_bytes_up) - server->up_at_open;
    row->weight_sum = all->weight_sum;
    for (int m = 0; m < DUNLIN_N_METRICS; m++) {
        row->metrics.is_there[m] = all->metric_weights[m] > 0;
        row->metrics.values[m] =
            all->metric_weights[m] > 0 ? all->metric_sums[m] / all->metric_weights[m] : 0;
    }
    row->is_failed = all->n < server->task.min_reports;
}

static dunlin__round_row next_round(const dunlin__server *server, uint64_t round, int64_t now_ms)
{
    dunlin__round_row row = {.round = round,
                             .state = DUNLIN_ROUND_OPEN,
                             .opened_ms = now_ms,
                             .is_evaluation =
                                 dunlin__server_task_is_evaluation(&server->task, round)};
    if (server->task.n_clients != 0) {
        row.deadline_ms = now_ms + (int64_t)server->task.deadline_ms;
    }
    return row;
}

static dunlin_status save_closed(dunlin__server *server, const dunlin__round_row *closed,
                                 const dunlin__round_row *next, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__server_db_begin(server->db, true, error));
    dunlin_status status = dunlin__server_db_put_round(server->db, closed, error);
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_put_round(server->db, next, error);
    }
    if (status == DUNLIN_OK && closed->round > 1) {
        status = dunlin__server_db_prune_work(server->db, closed->round - 1, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_prune_answers(server->db, next->opened_ms - BRIEF_ANSWER_MS,
                                                 next->opened_ms - ANSWER_MS, error);
    }
    if (status == DUNLIN_OK) {
        return dunlin__server_db_commit(server->db, error);
    }
    dunlin__server_db_rollback(server->db);
    return status;
}

static void remove_model(const dunlin__server *server, uint64_t round)
{
    dunlin__server_path folder;
    dunlin__server_path path;
    dunlin_error ignored;
    if (dunlin__server_path_make(&folder, &ignored, "%s/models", server->folder.text) ==
            DUNLIN_OK &&
        dunlin__model_path(folder.text, round, "weights", &path, &ignored) == DUNLIN_OK) {
        (void)unlink(path.text);
        if (dunlin__model_path(folder.text, round, "manifest", &path, &ignored) == DUNLIN_OK) {
            (void)unlink(path.text);
        }
        if (dunlin__model_path(folder.text, round, "control", &path, &ignored) == DUNLIN_OK) {
            (void)unlink(path.text);
        }
    }
}

/* Takes the new model in front, drops the oldest. Locked. */
static void push_model(dunlin__server *server, const dunlin__published *model)
{
    dunlin__published *oldest = &server->models[DUNLIN_SERVER_KEPT_MODELS - 1];
    uint64_t dropped = oldest->round;
    dunlin__published_free(oldest, &server->alloc);
    memmove(&server->models[1], &server->models[0],
            (DUNLIN_SERVER_KEPT_MODELS - 1) * sizeof server->models[0]);
    server->models[0] = *model;
    if (dropped != 0) {
        remove_model(server, dropped);
    }
}

static dunlin_status drop_upload(void *ctx, const dunlin__assignment_row *assignment)
{
    dunlin__server *server = ctx;
    dunlin__server_path path;
    dunlin_error ignored;
    if (dunlin__server_upload_folder(server, assignment->id, &path, &ignored) == DUNLIN_OK) {
        dunlin__server_folder_remove(path.text);
    }
    return DUNLIN_OK;
}

/* Moves on to the next round. Locked. */
static dunlin_status move_on(dunlin__server *server, gathered *all, dunlin__published *model)
{
    int64_t now_ms = dunlin__server_now(server);
    dunlin__round_row closed;
    fill_closed(server, all, now_ms, &closed);
    dunlin__round_row next = next_round(server, closed.round + 1, now_ms);
    void *list = server->closed;
    bool has_room = dunlin__grow_array(&server->alloc, &list, &server->closed_capacity,
                                       server->n_closed + 1, sizeof *server->closed);
    server->closed = list;
    if (!has_room) {
        return dunlin__fail(all->error, DUNLIN_MEMORY, "rounds", 0, "round %" PRIu64, next.round);
    }
    DUNLIN_TRY(save_closed(server, &closed, &next, all->error));
    server->closed[server->n_closed] = closed;
    server->n_closed++;
    push_model(server, model);
    memset(model, 0, sizeof *model);
    /* What cannot be listed is swept at the next start. */
    dunlin_status listed =
        dunlin__server_db_each_assignment(server->db, closed.round, drop_upload, server, NULL);
    (void)listed;
    server->round = next;
    server->is_done = next.round > server->task.rounds;
    server->down_at_open = atomic_load(&server->counters.body_bytes_down);
    server->up_at_open = atomic_load(&server->counters.body_bytes_up);
    return dunlin__server_choose_cohort(server, all->error);
}

static void tell_round(const dunlin__server *server, const dunlin__round_row *row)
{
    dunlin__log(
        &server->log, row->is_failed ? DUNLIN_LOG_WARNING : DUNLIN_LOG_INFO, "rounds",
        "round %" PRIu64 " %s: %" PRIu64 " participants, %" PRIu64 " dropped, %s loss %.4f, %.1f s",
        row->round, row->is_failed ? "failed" : "closed", row->n_participants, row->n_dropped,
        row->is_evaluation ? "evaluation" : "train", row->metrics.values[DUNLIN_METRIC_LOSS],
        (double)(row->closed_ms - row->opened_ms) / 1000);
}

/* Folds the round that is closing. Locked, but not while it folds. */
static dunlin_status close_round(dunlin__server *server, dunlin_error *error)
{
    gathered all = {.server = server, .error = error};
    dunlin__published model = {0};
    dunlin_status status =
        dunlin__server_db_each_contribution(server->db, server->round.round, gather, &all, error);
    if (status == DUNLIN_OK) {
        bool is_folded = all.n >= server->task.min_reports && !server->round.is_evaluation;
        size_t n_inputs = is_folded ? all.n : 0;
        (void)pthread_mutex_unlock(&server->lock);
        status = make_next(server, &all, n_inputs, &model);
        (void)pthread_mutex_lock(&server->lock);
    }
    if (status == DUNLIN_OK) {
        status = move_on(server, &all, &model);
    }
    if (status == DUNLIN_OK) {
        tell_round(server, &server->closed[server->n_closed - 1]);
        for (size_t i = 0; i < all.n; i++) {
            (void)unlink(all.inputs[i].path.text);
        }
    }
    dunlin__published_free(&model, &server->alloc);
    dunlin__free_array(&server->alloc, all.inputs, all.capacity, sizeof *all.inputs);
    return status;
}

/* ---- after the close ---- */

/* The newest round without figures whose model is still there; NULL if there is none. Locked. */
static dunlin__round_row *find_pending(const dunlin__server *server)
{
    if (!dunlin__evaluator_has_test_set(server->evaluator)) {
        return NULL;
    }
    for (size_t i = server->n_closed; i > 0; i--) {
        dunlin__round_row *row = &server->closed[i - 1];
        for (size_t m = 0; m < DUNLIN_SERVER_KEPT_MODELS && !row->is_evaluated; m++) {
            if (server->models[m].round == row->round + 1) {
                return row;
            }
        }
    }
    return NULL;
}

static dunlin_status weights_path(const dunlin__server *server, uint64_t round,
                                  dunlin__server_path *out_path, dunlin_error *error)
{
    dunlin__server_path folder;
    DUNLIN_TRY(dunlin__server_path_make(&folder, error, "%s/models", server->folder.text));
    return dunlin__model_path(folder.text, round, "weights", out_path, error);
}

/* Evaluates one model. Locked, but not while it works. */
static dunlin_status evaluate(dunlin__server *server, const dunlin__round_row *pending,
                              dunlin_error *error)
{
    uint64_t round = pending->round;
    dunlin__server_path path;
    double accuracy = 0;
    double loss = 0;
    DUNLIN_TRY(weights_path(server, round + 1, &path, error));
    (void)pthread_mutex_unlock(&server->lock);
    dunlin_status status =
        dunlin__evaluator_run(server->evaluator, path.text, &accuracy, &loss, error);
    (void)pthread_mutex_lock(&server->lock);
    DUNLIN_TRY(status);
    for (size_t i = 0; i < server->n_closed; i++) {
        dunlin__round_row *row = &server->closed[i];
        if (row->round == round) {
            row->is_evaluated = true;
            row->accuracy = accuracy;
            row->loss = loss;
            DUNLIN_TRY(save_round(server, row, error));
        }
    }
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                "round %" PRIu64 ": accuracy %.4f, loss %.4f", round, accuracy, loss);
    return DUNLIN_OK;
}

static dunlin_status export_model(dunlin__server *server, dunlin_error *error)
{
    dunlin__server_path weights;
    dunlin__server_path onnx;
    server->is_exported = true;
    if (server->evaluator == NULL) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(weights_path(server, server->round.round, &weights, error));
    DUNLIN_TRY(dunlin__server_path_make(&onnx, error, "%s/model.onnx", server->folder.text));
    (void)pthread_mutex_unlock(&server->lock);
    dunlin_status status =
        dunlin__evaluator_export(server->evaluator, weights.text, onnx.text, error);
    (void)pthread_mutex_lock(&server->lock);
    return status;
}

static dunlin_status step(dunlin__server *server, dunlin_error *error)
{
    int64_t now_ms = dunlin__server_now(server);
    if (!server->is_done && server->is_started && server->round.state == DUNLIN_ROUND_OPEN) {
        dunlin__close_reason reason = find_reason(server, now_ms);
        if (reason != DUNLIN_CLOSE_NONE) {
            server->round.state = DUNLIN_ROUND_CLOSING;
            server->round.reason = reason;
            DUNLIN_TRY(save_round(server, &server->round, error));
        }
    }
    if (!server->is_done && server->round.state == DUNLIN_ROUND_CLOSING) {
        DUNLIN_TRY(close_round(server, error));
    }
    dunlin__round_row *pending = find_pending(server);
    if (pending != NULL) {
        DUNLIN_TRY(evaluate(server, pending, error));
    }
    if (server->is_done && !server->is_exported && find_pending(server) == NULL) {
        DUNLIN_TRY(export_model(server, error));
    }
    return DUNLIN_OK;
}

void dunlin__server_tick(dunlin__server *server)
{
    dunlin_error error = {0};
    (void)pthread_mutex_lock(&server->lock);
    if (server->fault.status == DUNLIN_OK) {
        dunlin_status status = step(server, &error);
        if (status != DUNLIN_OK && !server->is_stopping) {
            server->fault = error;
            dunlin__log(&server->log, DUNLIN_LOG_ERROR, "rounds", "the rounds have stopped: %s",
                        error.text);
        }
    }
    (void)pthread_mutex_unlock(&server->lock);
}

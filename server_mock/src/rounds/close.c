/*
 * close.c - closes a round: aggregates its updates and publishes the next base.
 *
 * Invariant: the next model follows from the updates that were accepted, never from the order of
 * their arrival; a close that is interrupted is repeated, with the same result.
 */
#include "close.h"

#include "base/files.h"
#include "bases.h"
#include "best.h"
#include "buffered.h"
#include "clip.h"
#include "close_tell.h"
#include "cohort.h"
#include "evaluation.h"
#include "guard.h"
#include "kept.h"
#include "lineage.h"
#include "metrics.h"
#include "model/aggregate.h"
#include "model/evaluate.h"
#include "model/models.h"
#include "model/update_norm.h"
#include "private.h"
#include "secure.h"
#include "state.h"
#include "state/context.h"
#include "state/db.h"
#include "tally.h"
#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BRIEF_ANSWER_MS (10 * 60 * 1000)
#define ANSWER_MS (7LL * 24 * 3600 * 1000)

dunlin_status dunlin__server_save_round(dunlin__server *server, const dunlin__round_row *round,
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

/* A round that is being closed: its accepted updates in the order of client indices, and what is
 * found out on the way. */
typedef struct closing {
    dunlin__server *server;
    dunlin__round_row row; /* as it will be stored */
    dunlin__aggregate_input *inputs;
    size_t n;
    size_t capacity;
    size_t n_lost; /* accepted updates whose files are not there, or not whole */
    dunlin__server_tally tally;
    uint64_t from_file; /* the base that the next one is made from */
    uint64_t next_base; /* the round whose model that is */
    bool is_guarded;
    dunlin__norms history;
    dunlin_error *error;
} closing;

static uint64_t update_bytes(const dunlin__layout *layout)
{
    uint64_t n_control = layout->has_control ? layout->n_averaged_values : 0;
    return (layout->n_shared_values + n_control) * sizeof(float);
}

static dunlin_status gather(void *ctx, const dunlin__contribution_row *row)
{
    closing *all = ctx;
    const dunlin__layout *layout = &all->server->layout;
    void *inputs = all->inputs;
    const bool has_room = dunlin__grow_array(&all->server->alloc, &inputs, &all->capacity,
                                             all->n + 1, sizeof *all->inputs);
    all->inputs = inputs;
    if (!has_room) {
        return dunlin__fail(all->error, DUNLIN_MEMORY, "rounds", 0, "contribution %zu", all->n + 1);
    }
    dunlin__aggregate_input *input = &all->inputs[all->n];
    *input = (dunlin__aggregate_input){.scale = 1, .client_index = row->client_index, .norm = -1};
    DUNLIN_TRY(dunlin__server_spool_path(all->server, row->assignment, &input->path, all->error));
    DUNLIN_TRY(dunlin__buffered_scale(all->server, row, &input->scale, all->error));
    if (!all->row.is_evaluation && !all->server->task.secagg.is_on &&
        dunlin__server_file_size(input->path.text) != (int64_t)update_bytes(layout)) {
        all->n_lost++;
        return DUNLIN_OK;
    }
    /* SCAFFOLD's average is over devices, as its variates are (Karimireddy et al. 2020). */
    input->weight = layout->has_control ? 1.0 : row->weight;
    all->n++;
    dunlin__server_tally_add(&all->tally, row);
    return DUNLIN_OK;
}

/* Publishes the next base: the base that was begun from, with `n_inputs` updates aggregated into
 * it. Not locked. */
static dunlin_status make_base(const closing *all, size_t n_inputs, const dunlin__noise *noise,
                               uint64_t number, dunlin__published *out_model)
{
    const dunlin__base_work work = {
        .from = all->from_file, .inputs = all->inputs, .n_inputs = n_inputs, .noise = noise};
    return dunlin__base_make(all->server, &work, number, out_model, all->error);
}

/* The same with the noise of a private round, also where nobody came. Not locked. */
static dunlin_status make_private_base(const closing *all, uint64_t number,
                                       dunlin__published *out_model)
{
    dunlin__noise noise = {0};
    DUNLIN_TRY(dunlin__private_bound(all->server, all->inputs, all->n, all->error));
    dunlin_status status = dunlin__private_noise(all->server, &all->row, &noise, all->error);
    if (status == DUNLIN_OK) {
        status = make_base(all, all->n, &noise, number, out_model);
    }
    dunlin__noise_wipe(&noise);
    return status;
}

/* The same from the one vector that a secure aggregation gives: the mean of all. Not locked. */
static dunlin_status make_secure_base(closing *all, uint64_t number, dunlin__published *out_model)
{
    dunlin__server *server = all->server;
    dunlin__secure_result result;
    dunlin__aggregate_input mean = {.weight = 1, .scale = 1, .norm = -1};
    DUNLIN_TRY(dunlin__server_path_make(&mean.path, all->error, "%s/spool/secagg.mean",
                                        server->folder.text));
    dunlin_status status = dunlin__secure_sum(server, mean.path.text, &result, all->error);
    if (status == DUNLIN_OK) {
        const dunlin__base_work work = {.from = all->from_file, .inputs = &mean, .n_inputs = 1};
        all->tally.weight_sum = (double)result.weights;
        status = dunlin__base_make(server, &work, number, out_model, all->error);
    }
    (void)unlink(mean.path.text);
    return status;
}

/* Whether a status of an aggregation is the updates' own: another try would end alike. */
static bool is_of_updates(const closing *all, dunlin_status status)
{
    const bool has_no_sum =
        all->server->task.secagg.is_on && (status == DUNLIN_REJECTED || status == DUNLIN_DATA);
    return status == DUNLIN_NUMERIC || status == DUNLIN_OVERFLOW || has_no_sum;
}

/* Takes the updates' norms, and scales down those that are above the round's bound. Not locked. */
static dunlin_status guard(closing *all)
{
    dunlin__server *server = all->server;
    dunlin__server_path base;
    dunlin__norms own = {0};
    DUNLIN_TRY(dunlin__server_weights_path(server, all->from_file, &base, all->error));
    own.values = dunlin__alloc_array(&server->alloc, all->n, sizeof *own.values);
    own.capacity = all->n;
    if (own.values == NULL) {
        return dunlin__fail(all->error, DUNLIN_MEMORY, "rounds", 0, "%zu norms", all->n);
    }
    dunlin_status status = DUNLIN_OK;
    for (size_t i = 0; status == DUNLIN_OK && i < all->n; i++) {
        dunlin__update_norms norms;
        status = dunlin__update_measure(
            &server->layout, DUNLIN_LAYOUT_SHARED, all->inputs[i].path.text,
            server->task.sends_weights ? base.text : NULL, &server->alloc, &norms, all->error);
        all->inputs[i].norm = norms.norm;
        own.values[i] = norms.norm;
        own.n++;
    }
    double bound = status == DUNLIN_OK ? dunlin__guard_bound(&all->history, &own) : 0;
    all->row.norm_bound = bound;
    for (size_t i = 0; i < all->n && bound > 0; i++) {
        dunlin__aggregate_input *input = &all->inputs[i];
        if (input->norm > bound) {
            input->scale *= bound / input->norm;
            all->row.n_scaled++;
            dunlin__log(&server->log, DUNLIN_LOG_WARNING, "rounds",
                        "round %" PRIu64 ": an update of norm %.6g is scaled down to %.6g",
                        all->row.round, input->norm, bound);
        }
    }
    dunlin__norms_free(&own, &server->alloc);
    return status;
}

/* True if the round's updates are to be folded; else the row says why not, where that is a failure.
 */
static bool is_aggregated(closing *all)
{
    dunlin__round_row *row = &all->row;
    if (row->is_taken_back) {
        return false;
    }
    const dunlin__server_task *task = &all->server->task;
    if (!task->dp.is_on && !task->secagg.is_on && all->n < task->min_reports) {
        row->is_failed = true;
        (void)snprintf(row->why, sizeof row->why,
                       "%zu contributions counted, min_reports is %" PRIu32, all->n,
                       task->min_reports);
    }
    return !row->is_failed && !row->is_evaluation;
}

/* Folds and publishes the base of the next round; updates that have no finite average fail the
 * round. Not locked. */
static dunlin_status aggregate_round(closing *all, bool *out_is_aggregated,
                                     dunlin__published *out_model)
{
    uint64_t number = all->row.round + 1;
    const bool is_private = all->server->task.dp.is_on;
    const bool is_secure = all->server->task.secagg.is_on;
    *out_is_aggregated = is_aggregated(all);
    if (is_private) { /* also a round without a model counts */
        DUNLIN_TRY(dunlin__private_account(all->server, &all->row, all->error));
    }
    if (*out_is_aggregated && all->is_guarded) {
        DUNLIN_TRY(guard(all));
    }
    if (*out_is_aggregated) {
        dunlin_status status = is_secure    ? make_secure_base(all, number, out_model)
                               : is_private ? make_private_base(all, number, out_model)
                                            : make_base(all, all->n, NULL, number, out_model);
        if (!is_of_updates(all, status)) {
            return status;
        }
        *out_is_aggregated = false;
        all->row.is_failed = true;
        const char *what = status == DUNLIN_NUMERIC    ? "have no finite average"
                           : status == DUNLIN_OVERFLOW ? "cannot be summed"
                                                       : "have no sum";
        (void)snprintf(all->row.why, sizeof all->row.why, "the updates %s: %.160s", what,
                       all->error->text);
        dunlin__error_clear(all->error);
    }
    return make_base(all, 0, NULL, number, out_model);
}

/* A model that is awaited is evaluated before anything begins from it. Locked, but not while it
 * works. */
static dunlin_status judge(closing *all, dunlin__published *model)
{
    dunlin__server *server = all->server;
    dunlin_error failure = {0};
    dunlin__round_row *row = &all->row;
    DUNLIN_TRY(dunlin__server_evaluate(server, row->round + 1, &row->accuracy, &row->loss, &failure,
                                       all->error));
    dunlin__verdict verdict = dunlin__lineage_judge(server, &failure, row->accuracy, row->loss);
    row->is_evaluated = verdict.is_evaluated;
    row->is_taken_back = verdict.is_bad;
    memcpy(row->why, verdict.why, sizeof row->why);
    if (!verdict.is_bad) {
        return DUNLIN_OK;
    }
    all->next_base = row->base;
    dunlin__published_free(model, &server->alloc);
    (void)pthread_mutex_unlock(&server->lock);
    dunlin_status status = make_base(all, 0, NULL, row->round + 1, model);
    (void)pthread_mutex_lock(&server->lock);
    return status;
}

/* The round's row, but for what its model was found to be. Locked. */
static void fill_closed(closing *all, int64_t now_ms)
{
    const dunlin__server *server = all->server;
    dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    dunlin__round_row *row = &all->row;
    row->state = DUNLIN_ROUND_CLOSED;
    row->closed_ms = now_ms;
    row->n_participants = all->n;
    row->n_dropped = (uint64_t)counts.n_dropped + all->n_lost;
    row->n_dropped += server->task.buffered.is_on ? 0 : counts.n_assigned; /* else they go on */
    row->bytes_down = atomic_load(&server->counters.body_bytes_down) - server->down_at_open;
    row->bytes_up = atomic_load(&server->counters.body_bytes_up) - server->up_at_open;
    dunlin__server_tally_fill(&all->tally, row);
    if (dunlin__private_hides_devices(server)) { /* how many came is not to be told either */
        row->n_participants = 0;
        row->n_dropped = 0;
        row->bytes_down = 0;
        row->bytes_up = 0;
        row->weight_sum = 0;
    }
    row->clip_norm = row->is_evaluation ? 0 : dunlin__clip_norm(server);
}

static dunlin__round_row next_round(const dunlin__server *server, uint64_t round, uint64_t base,
                                    int64_t now_ms)
{
    dunlin__round_row row = {.round = round,
                             .state = DUNLIN_ROUND_OPEN,
                             .base = base,
                             .opened_ms = now_ms,
                             .is_evaluation =
                                 dunlin__server_task_is_evaluation(&server->task, round)};
    if (server->task.n_clients != 0) {
        row.deadline_ms = now_ms + (int64_t)dunlin__server_task_deadline_ms(&server->task, round);
    }
    return row;
}

static dunlin_status save_closed(closing *all, const dunlin__round_row *next)
{
    dunlin__server *server = all->server;
    dunlin__round_row *closed = &all->row;
    dunlin_error *error = all->error;
    DUNLIN_TRY(dunlin__server_db_begin(server->db, true, error));
    dunlin_status status = DUNLIN_OK;
    if (server->task.dp.is_on) {
        status = dunlin__private_end_close(server, closed, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_put_round(server->db, closed, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_put_round(server->db, next, error);
    }
    for (size_t i = 0; status == DUNLIN_OK && i < all->n; i++) {
        const dunlin__aggregate_input *input = &all->inputs[i];
        if (input->norm >= 0) {
            status = dunlin__server_db_set_norm(server->db, closed->round, input->client_index,
                                                input->norm, error);
        }
    }
    if (status == DUNLIN_OK) {
        status = dunlin__metrics_close(server, closed->round, error);
    }
    if (status == DUNLIN_OK) {
        const uint64_t over = dunlin__buffered_over(server, closed->round);
        status = dunlin__server_db_prune_work(server->db, over > 0 ? over - 1 : 0, error);
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

/* Puts the new model in front, removes the oldest. Locked. */
static void push_model(dunlin__server *server, const dunlin__published *model)
{
    size_t last = dunlin__server_n_models(server) - 1;
    dunlin__published_free(&server->models[last], &server->alloc);
    memmove(&server->models[1], &server->models[0], last * sizeof server->models[0]);
    server->models[0] = *model;
}

/* Moves on to the next round. Locked. */
static dunlin_status move_on(closing *all, dunlin__published *model)
{
    dunlin__server *server = all->server;
    if (server->is_stale) {
        return dunlin__fail(all->error, DUNLIN_STATE, "rounds", 0,
                            "round %" PRId64 " ends when the state has been read again",
                            (int64_t)server->round.round);
    }
    int64_t now_ms = dunlin__server_now(server);
    fill_closed(all, now_ms);
    dunlin__round_row next = next_round(server, all->row.round + 1, all->next_base, now_ms);
    DUNLIN_TRY(dunlin__private_open(server, &next, all->error));
    void *list = server->closed;
    bool has_room = dunlin__grow_array(&server->alloc, &list, &server->closed_capacity,
                                       server->n_closed + 1, sizeof *server->closed);
    server->closed = list;
    if (!has_room) {
        return dunlin__fail(all->error, DUNLIN_MEMORY, "rounds", 0, "round %" PRIu64, next.round);
    }
    DUNLIN_TRY(save_closed(all, &next));
    server->closed[server->n_closed] = all->row;
    server->n_closed++;
    dunlin__private_forget(server);
    dunlin__secure_end(server);
    push_model(server, model);
    memset(model, 0, sizeof *model);
    dunlin__kept_sweep(server);
    dunlin__state_drop_uploads(server, dunlin__buffered_over(server, all->row.round));
    server->round = next;
    dunlin__best_settle(server);
    server->down_at_open = atomic_load(&server->counters.body_bytes_down);
    server->up_at_open = atomic_load(&server->counters.body_bytes_up);
    dunlin_status status = dunlin__server_choose_cohort(server, all->error);
    server->is_stale = server->is_stale || status != DUNLIN_OK;
    return status;
}

/* Which base the next one is made from, and by which norms updates are judged. Locked. */
static dunlin_status begin(closing *all)
{
    dunlin__server *server = all->server;
    dunlin__round_row *row = &all->row;
    all->from_file = row->round;
    all->next_base = row->round;
    if (dunlin__lineage_is_bad(server, row->base)) {
        dunlin__good_model good = dunlin__lineage_newest_good(server);
        all->from_file = good.file;
        all->next_base = good.round;
        row->is_taken_back = true;
        row->is_failed = true;
        (void)snprintf(row->why, sizeof row->why,
                       "it began from the model of round %" PRIu64 ", which was taken back",
                       row->base);
    }
    all->is_guarded = dunlin__guard_is_on(&server->task) && !row->is_evaluation;
    return all->is_guarded ? dunlin__guard_history(server, &all->history, all->error) : DUNLIN_OK;
}

/* Makes the next base. Locked, but not while it works. */
static dunlin_status make_next(closing *all, dunlin__published *out_model)
{
    dunlin__server *server = all->server;
    bool was_aggregated = false;
    (void)pthread_mutex_unlock(&server->lock);
    dunlin_status status = aggregate_round(all, &was_aggregated, out_model);
    (void)pthread_mutex_lock(&server->lock);
    bool is_judged = was_aggregated && !server->is_stale &&
                     dunlin__best_is_awaited(&server->task) &&
                     dunlin__server_task_judges(&server->task, all->row.round) &&
                     dunlin__evaluator_has_test_set(server->evaluator);
    return status == DUNLIN_OK && is_judged ? judge(all, out_model) : status;
}

dunlin_status dunlin__server_close_round(dunlin__server *server, dunlin_error *error)
{
    closing all = {.server = server, .row = server->round, .error = error};
    dunlin__published model = {0};
    dunlin_status status =
        dunlin__server_db_each_contribution(server->db, server->round.round, gather, &all, error);
    if (status == DUNLIN_OK) {
        status = begin(&all);
    }
    if (all.n_lost > 0) {
        dunlin__log(&server->log, DUNLIN_LOG_ERROR, "rounds",
                    "round %" PRIu64 ": %zu accepted updates are not on the storage, or not whole",
                    all.row.round, all.n_lost);
    }
    if (status == DUNLIN_OK) {
        status = make_next(&all, &model);
    }
    if (status == DUNLIN_OK) {
        status = move_on(&all, &model);
    }
    if (status == DUNLIN_OK) {
        dunlin__round_tell(server, &server->closed[server->n_closed - 1]);
        for (size_t i = 0; i < all.n; i++) {
            (void)unlink(all.inputs[i].path.text);
        }
    }
    dunlin__published_free(&model, &server->alloc);
    dunlin__norms_free(&all.history, &server->alloc);
    dunlin__free_array(&server->alloc, all.inputs, all.capacity, sizeof *all.inputs);
    return status;
}

dunlin_status dunlin__server_begin_anew(dunlin__server *server, dunlin_error *error)
{
    dunlin__good_model good = dunlin__lineage_newest_good(server);
    closing all = {.server = server, .row = server->round, .from_file = good.file, .error = error};
    dunlin__published model = {0};
    all.row.base = good.round;
    (void)pthread_mutex_unlock(&server->lock);
    dunlin_status status = make_base(&all, 0, NULL, all.row.round, &model);
    (void)pthread_mutex_lock(&server->lock);
    if (status == DUNLIN_OK) {
        status = dunlin__server_save_round(server, &all.row, error);
    }
    if (status == DUNLIN_OK) {
        server->round = all.row;
        dunlin__published_free(&server->models[0], &server->alloc);
        server->models[0] = model;
        memset(&model, 0, sizeof model);
    }
    dunlin__published_free(&model, &server->alloc);
    return status;
}

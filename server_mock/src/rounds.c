/*
 * rounds.c - the life of a round: barrier, who is asked, when it ends, what comes of it.
 *
 * Invariant: with the clients known beforehand everything here follows from (seed, round, client
 * index) and from which updates were accepted, never from the order of their arrival.
 */
#include "aggregate.h"
#include "server.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BRIEF_ANSWER_MS (10 * 60 * 1000)
#define ANSWER_MS (7LL * 24 * 3600 * 1000)
/* Work put into guessing when a client's turn comes. */
#define GUESS_STEPS 200000u

/* ---- ranks ---- */

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t dunlin__server_rank(uint64_t seed, uint64_t round, uint64_t client_index)
{
    return mix(mix(mix(seed) ^ round) ^ client_index);
}

uint64_t dunlin__server_work_seed(uint64_t seed, uint64_t round, uint64_t client_index)
{
    return mix(dunlin__server_rank(seed, round, client_index) ^ 0x776f726b); /* "work" */
}

typedef struct ranked {
    uint64_t rank;
    uint32_t client_index;
} ranked;

static int compare_ranks(const void *left, const void *right)
{
    const ranked *a = left;
    const ranked *b = right;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    return a->client_index < b->client_index ? -1 : a->client_index > b->client_index;
}

dunlin_status dunlin__server_choose_cohort(dunlin__server *server, dunlin_error *error)
{
    uint32_t n_clients = server->task.n_clients;
    if (n_clients == 0) {
        return DUNLIN_OK;
    }
    if (server->in_cohort == NULL) {
        server->in_cohort = dunlin__alloc_zeroed(&server->alloc, n_clients, sizeof(bool));
    }
    ranked *ranks = dunlin__alloc_array(&server->alloc, n_clients, sizeof *ranks);
    if (server->in_cohort == NULL || ranks == NULL) {
        dunlin__free_array(&server->alloc, ranks, n_clients, sizeof *ranks);
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "the ranks of %" PRIu32 " clients",
                            n_clients);
    }
    for (uint32_t i = 0; i < n_clients; i++) {
        ranks[i].client_index = i;
        ranks[i].rank = dunlin__server_rank(server->task.seed, server->round.round, i);
    }
    qsort(ranks, n_clients, sizeof *ranks, compare_ranks);
    memset(server->in_cohort, 0, n_clients * sizeof(bool));
    uint32_t n_select = dunlin__server_task_n_select(&server->task);
    for (uint32_t i = 0; i < n_select; i++) {
        server->in_cohort[ranks[i].client_index] = true;
    }
    dunlin__free_array(&server->alloc, ranks, n_clients, sizeof *ranks);
    return DUNLIN_OK;
}

/* True if a client will be asked in a later round. */
static bool is_asked(const dunlin__server *server, uint64_t round, uint64_t client_index)
{
    uint64_t own = dunlin__server_rank(server->task.seed, round, client_index);
    uint32_t n_before = 0;
    uint32_t n_select = dunlin__server_task_n_select(&server->task);
    for (uint32_t i = 0; i < server->task.n_clients && n_before < n_select; i++) {
        uint64_t rank = dunlin__server_rank(server->task.seed, round, i);
        n_before += rank < own || (rank == own && i < client_index) ? 1 : 0;
    }
    return n_before < n_select;
}

/* Rounds until a client is asked again, 1 for the next; looks ahead only so far. */
static uint64_t rounds_until_asked(const dunlin__server *server, uint64_t client_index)
{
    uint64_t n_ahead = 1;
    uint64_t most = GUESS_STEPS / server->task.n_clients + 1;
    while (n_ahead < most && server->round.round + n_ahead <= server->task.rounds &&
           !is_asked(server, server->round.round + n_ahead, client_index)) {
        n_ahead++;
    }
    return n_ahead;
}

uint64_t dunlin__server_wait_ms(const dunlin__server *server, const dunlin__server_device *device)
{
    uint64_t least = server->options.reject_ms;
    int64_t index = device->row.client_index;
    if (server->in_cohort == NULL || !server->is_started || server->is_done || index < 0) {
        return least;
    }
    double mean_ms = 0;
    if (server->n_closed > 0) {
        int64_t lasted =
            server->closed[server->n_closed - 1].closed_ms - server->closed[0].opened_ms;
        mean_ms = lasted > 0 ? (double)lasted / (double)server->n_closed : 0;
    }
    double elapsed_ms = (double)(dunlin__server_now(server) - server->round.opened_ms);
    double left_ms = fmax(mean_ms - elapsed_ms, 0);
    double n_between = (double)(rounds_until_asked(server, (uint64_t)index) - 1);
    /* Half the way: rounds may get faster, and a client that waits too long holds one up. A round
     * that drags on will go on for a while. */
    double guess = fmax((left_ms + n_between * mean_ms) / 2, elapsed_ms / 8);
    return guess > (double)least ? (uint64_t)guess : least;
}

/* ---- parts ---- */

dunlin__part dunlin__device_part(const dunlin__server *server, const dunlin__server_device *device)
{
    return device->part_round == server->round.round ? device->part : DUNLIN_PART_NONE;
}

void dunlin__device_set_part(dunlin__server *server, dunlin__server_device *device,
                             dunlin__part part)
{
    device->part_round = server->round.round;
    device->part = part;
}

dunlin__part_counts dunlin__server_count_parts(const dunlin__server *server, int64_t now_ms)
{
    dunlin__part_counts counts = {0};
    for (size_t i = 0; i < server->devices.n; i++) {
        const dunlin__server_device *device = server->devices.list[i];
        switch (dunlin__device_part(server, device)) {
        case DUNLIN_PART_OFFERED:
            counts.n_offered += now_ms <= device->offer_until_ms ? 1 : 0;
            break;
        case DUNLIN_PART_ASSIGNED:
            counts.n_assigned++;
            break;
        case DUNLIN_PART_ACCEPTED:
            counts.n_accepted++;
            break;
        case DUNLIN_PART_DROPPED:
            counts.n_dropped++;
            break;
        case DUNLIN_PART_NONE:
        default:
            break;
        }
    }
    return counts;
}

dunlin_v1_rejection_t dunlin__server_judge(dunlin__server *server,
                                           const dunlin__server_device *device, int64_t now_ms)
{
    const dunlin__round_row *round = &server->round;
    bool is_open = !server->is_done && server->is_started && server->fault.status == DUNLIN_OK &&
                   round->state == DUNLIN_ROUND_OPEN &&
                   (round->deadline_ms == 0 || now_ms < round->deadline_ms);
    dunlin__part part = dunlin__device_part(server, device);
    if (!is_open || part == DUNLIN_PART_ACCEPTED || part == DUNLIN_PART_DROPPED) {
        return DUNLIN_V1_REJECTION_NO_WORK;
    }
    dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    if (counts.n_accepted >= server->task.cohort) {
        return DUNLIN_V1_REJECTION_ENOUGH_DEVICES;
    }
    if (server->in_cohort != NULL) {
        int64_t index = device->row.client_index;
        bool is_chosen = index >= 0 && index < server->task.n_clients && server->in_cohort[index];
        return is_chosen ? DUNLIN_V1_REJECTION_NONE : DUNLIN_V1_REJECTION_NO_WORK;
    }
    bool has_place = part == DUNLIN_PART_ASSIGNED ||
                     (part == DUNLIN_PART_OFFERED && now_ms <= device->offer_until_ms);
    uint32_t n_taken = counts.n_offered + counts.n_assigned + counts.n_accepted;
    if (!has_place && n_taken >= dunlin__server_task_n_select(&server->task)) {
        return DUNLIN_V1_REJECTION_ENOUGH_DEVICES;
    }
    return DUNLIN_V1_REJECTION_NONE;
}

dunlin_status dunlin__server_check_barrier(dunlin__server *server, int64_t now_ms,
                                           dunlin_error *error)
{
    if (server->is_started || server->devices.n_checked_in < server->task.min_clients_for_start) {
        return DUNLIN_OK;
    }
    server->round.opened_ms = now_ms;
    if (server->in_cohort != NULL) {
        /* Everybody is there, so time runs from here. */
        server->round.deadline_ms = now_ms + (int64_t)server->task.deadline_ms;
    }
    DUNLIN_TRY(dunlin__server_db_set(server->db, "is_started", 1, error));
    DUNLIN_TRY(dunlin__server_db_put_round(server->db, &server->round, error));
    server->is_started = true;
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds", "%" PRIu64 " clients are here: begin",
                server->devices.n_checked_in);
    return DUNLIN_OK;
}

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
    double loss_weight;
    double loss_sum;
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
    input->weight = row->weight;
    all->n++;
    all->weight_sum += row->weight;
    if (row->has_loss) {
        all->loss_weight += row->weight;
        all->loss_sum += row->weight * row->loss;
    }
    return DUNLIN_OK;
}

/* Folds and publishes the base of the next round. Not locked. */
static dunlin_status make_next(dunlin__server *server, const gathered *all, size_t n_inputs,
                               dunlin__published *out_model)
{
    dunlin__server_path folder;
    dunlin__server_path base_path;
    dunlin__weights_file base;
    uint64_t round = server->round.round;
    dunlin_error *error = all->error;
    DUNLIN_TRY(dunlin__server_path_make(&folder, error, "%s/models", server->folder.text));
    DUNLIN_TRY(dunlin__model_path(folder.text, round, "weights", &base_path, error));
    DUNLIN_TRY(dunlin__weights_file_open(base_path.text, server->layout.n_values, &base, error));
    dunlin__fold fold = {.base = &base,
                         .inputs = all->inputs,
                         .n_inputs = n_inputs,
                         .sends_weights = server->task.sends_weights};
    fold.sums = dunlin__alloc_array(&server->alloc, DUNLIN_FOLD_VALUES, sizeof(double));
    fold.block = dunlin__alloc_array(&server->alloc, DUNLIN_FOLD_VALUES, sizeof(float));
    dunlin_status status = DUNLIN_OK;
    if (fold.sums == NULL || fold.block == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "the blocks of the fold");
    } else {
        dunlin__values values = dunlin__fold_values(&fold);
        status = dunlin__model_publish(folder.text, round + 1, &server->layout, &values,
                                       &server->alloc, out_model, error);
    }
    dunlin__free_array(&server->alloc, fold.sums, DUNLIN_FOLD_VALUES, sizeof(double));
    dunlin__free_array(&server->alloc, fold.block, DUNLIN_FOLD_VALUES, sizeof(float));
    dunlin__weights_file_close(&base);
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
    row->has_train_loss = all->loss_weight > 0;
    row->train_loss = row->has_train_loss ? all->loss_sum / all->loss_weight : 0;
    row->is_failed = all->n < server->task.min_reports;
}

static dunlin__round_row next_round(const dunlin__server *server, uint64_t round, int64_t now_ms)
{
    dunlin__round_row row = {.round = round, .state = DUNLIN_ROUND_OPEN, .opened_ms = now_ms};
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
    dunlin__log(&server->log, row->is_failed ? DUNLIN_LOG_WARNING : DUNLIN_LOG_INFO, "rounds",
                "round %" PRIu64 " %s: %" PRIu64 " participants, %" PRIu64
                " dropped, train loss %.4f, %.1f s",
                row->round, row->is_failed ? "failed" : "closed", row->n_participants,
                row->n_dropped, row->train_loss, (double)(row->closed_ms - row->opened_ms) / 1000);
}

/* Folds the round that is closing. Locked, but not while it folds. */
static dunlin_status close_round(dunlin__server *server, dunlin_error *error)
{
    gathered all = {.server = server, .error = error};
    dunlin__published model = {0};
    dunlin_status status =
        dunlin__server_db_each_contribution(server->db, server->round.round, gather, &all, error);
    if (status == DUNLIN_OK) {
        size_t n_inputs = all.n < server->task.min_reports ? 0 : all.n;
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

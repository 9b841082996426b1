/*
 * private.c - rounds with noise: who is drawn, the seeds of a close, what the run has cost.
 *
 * Invariant: a release has one draw of noise: its seed is on the storage before anything is made of
 * it, a close that is repeated uses it again, and the transaction that ends the close drops it.
 */
#include "private.h"

#include "ahead.h"
#include "model/update_norm.h"
#include "privacy/terms.h"
#include "state/db.h"
#include "state/devices.h"
#include "task/task.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(DUNLIN_ROUND_SEED_BYTES == DUNLIN_SEED_BYTES, "a seed");

/* Streams of a round's draw seed. */
#define DRAW_STREAM 0u

static const dunlin__privacy_question *terms_of(const dunlin__server *server)
{
    return &server->task.dp.question;
}

static bool is_drawn(const dunlin__server *server)
{
    const dunlin__privacy_sampling sampling = terms_of(server)->sampling;
    return server->task.dp.is_on &&
           (sampling == DUNLIN_SAMPLING_POISSON || sampling == DUNLIN_SAMPLING_FIXED);
}

bool dunlin__private_is_secret(const dunlin__server *server)
{
    return server->task.dp.is_on && dunlin__private_note(server) == NULL;
}

bool dunlin__private_hides_devices(const dunlin__server *server)
{
    return dunlin__private_is_secret(server) && !server->task.dp.is_distributed;
}

const char *dunlin__private_note(const dunlin__server *server)
{
    if (server->is_repeatable) {
        return "not private: the seed of the noise is known (--insecure-noise-seed)";
    }
    return server->task.dp.noise_cohort > 0
               ? "not private: the noise is that of a larger cohort (dp.noise_cohort)"
               : NULL;
}

double dunlin__private_multiplier(const dunlin__server_task *task)
{
    const uint32_t n = task->dp.noise_cohort;
    return n > 0 ? task->dp.question.noise * (double)task->cohort / (double)n
                 : task->dp.question.noise;
}

bool dunlin__private_state(const dunlin__server *server, dunlin_v1_privacy_t *out_privacy)
{
    static const dunlin_v1_privacy_sampling_t samplings[] = {
        [DUNLIN_SAMPLING_FIRST_COME] = DUNLIN_V1_PRIVACY_SAMPLING_ARRIVAL,
        [DUNLIN_SAMPLING_POISSON] = DUNLIN_V1_PRIVACY_SAMPLING_POISSON,
        [DUNLIN_SAMPLING_FIXED] = DUNLIN_V1_PRIVACY_SAMPLING_FIXED,
        [DUNLIN_SAMPLING_TREE] = DUNLIN_V1_PRIVACY_SAMPLING_ARRIVAL};
    const dunlin__privacy_question *terms = terms_of(server);
    if (!server->task.dp.is_on) {
        return false;
    }
    *out_privacy = (dunlin_v1_privacy_t){.mechanism = terms->sampling == DUNLIN_SAMPLING_TREE
                                                          ? DUNLIN_V1_PRIVACY_MECHANISM_TREE
                                                          : DUNLIN_V1_PRIVACY_MECHANISM_GAUSSIAN,
                                         .sampling = samplings[terms->sampling],
                                         .epsilon = server->task.dp.cost.epsilon,
                                         .delta = terms->delta,
                                         .noise_multiplier = terms->noise,
                                         .clip_norm = terms->clip,
                                         .n_rounds = server->task.rounds,
                                         .cohort = server->task.cohort,
                                         .min_separation_rounds = (uint32_t)terms->separation,
                                         .max_rounds = terms->most_rounds,
                                         .is_repeatable = !dunlin__private_is_secret(server),
                                         .is_distributed = server->task.dp.is_distributed};
    return true;
}

/* ---- what was promised ---- */

static dunlin_status keep_terms(dunlin__server *server, const char *terms, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__server_db_begin(server->db, true, error));
    dunlin_status status = dunlin__server_db_set_term(server->db, "privacy", terms, error);
    if (status == DUNLIN_OK) {
        const char *noise =
            server->task.dp.noise_cohort > 0 ? DUNLIN_NOISE_SIMULATED : DUNLIN_NOISE_SECRET;
        status = dunlin__server_db_set_term(
            server->db, "noise", server->is_repeatable ? DUNLIN_NOISE_REPEATABLE : noise, error);
    }
    if (status == DUNLIN_OK) {
        return dunlin__server_db_commit(server->db, error);
    }
    dunlin__server_db_rollback(server->db);
    return status;
}

dunlin_status dunlin__private_agree(dunlin__server *server, dunlin_error *error)
{
    char kept[DUNLIN_TERMS_BYTES];
    char noise[32];
    char terms[DUNLIN_TERMS_BYTES] = "";
    if (server->task.dp.is_distributed && server->options.has_insecure_noise_seed) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "server", 0,
                            "--insecure-noise-seed %" PRIu64 " is for noise of the server, and "
                            "dp.noise_by is distributed",
                            server->options.insecure_noise_seed);
    }
    DUNLIN_TRY(dunlin__server_db_get_term(server->db, "privacy", kept, sizeof kept, error));
    DUNLIN_TRY(dunlin__server_db_get_term(server->db, "noise", noise, sizeof noise, error));
    if (server->task.dp.is_on) {
        dunlin__privacy_terms(terms_of(server), terms);
    }
    const bool has_closed = server->n_closed > 0 || server->round.state == DUNLIN_ROUND_CLOSING;
    if (kept[0] != 0 && server->task.dp.is_on && strcmp(kept, terms) != 0) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "server", 0,
                            "dp is %.120s, and the state's rounds have promised %.120s", terms,
                            kept);
    }
    if (kept[0] != 0 && !server->task.dp.is_on) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "server", 0,
                            "the task has no dp, and the state's rounds have promised %.160s",
                            kept);
    }
    if (kept[0] == 0 && server->task.dp.is_on && has_closed) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "server", 0,
                            "the task has dp, and the state has %zu rounds without noise",
                            server->n_closed);
    }
    if (server->task.dp.is_on && terms_of(server)->sampling == DUNLIN_SAMPLING_TREE &&
        server->n_closed > 0 && server->n_closed < server->task.rounds &&
        !server->closed[server->n_closed - 1].noise_seed.is_there) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "server", 0,
                            "rounds is %" PRIu64 ", and the state's tree of noise has ended at "
                            "round %zu",
                            server->task.rounds, server->n_closed);
    }
    const bool was_repeatable = strcmp(noise, DUNLIN_NOISE_REPEATABLE) == 0;
    if (!server->task.dp.is_on || (kept[0] != 0 && (was_repeatable || !server->is_repeatable))) {
        server->is_repeatable = server->is_repeatable || was_repeatable;
        return DUNLIN_OK;
    }
    return keep_terms(server, terms, error);
}

/* ---- seeds ---- */

/* 256 bits: random ones or, for fleets that are to be repeated, of the option's number. */
static dunlin_status draw_seed(const dunlin__server *server, uint64_t round, const char *purpose,
                               dunlin__round_seed *out_seed, dunlin_error *error)
{
    out_seed->is_there = true;
    if (!server->options.has_insecure_noise_seed) {
        return dunlin__random_bytes(out_seed->bytes, sizeof out_seed->bytes, error);
    }
    uint8_t text[32] = {0};
    memcpy(text, &server->options.insecure_noise_seed, sizeof(uint64_t));
    memcpy(text + 8, &round, sizeof round);
    memcpy(text + 16, purpose, strnlen(purpose, sizeof text - 16));
    return dunlin__sha256_of(text, sizeof text, out_seed->bytes, error);
}

static void drop_seed(dunlin__round_seed *seed)
{
    dunlin__wipe(seed, sizeof *seed);
}

dunlin_status dunlin__private_open(const dunlin__server *server, dunlin__round_row *row,
                                   dunlin_error *error)
{
    if (!is_drawn(server) || row->draw_seed.is_there) {
        return DUNLIN_OK;
    }
    return draw_seed(server, row->round, "draw", &row->draw_seed, error);
}

dunlin_status dunlin__private_begin_close(const dunlin__server *server, dunlin__round_row *row,
                                          dunlin_error *error)
{
    if (!server->task.dp.is_on || server->task.dp.is_distributed || row->noise_seed.is_there) {
        return DUNLIN_OK;
    }
    return draw_seed(server, row->round, "noise", &row->noise_seed, error);
}

/* ---- cohorts ---- */

bool dunlin__private_may_take_part(const dunlin__server *server, const dunlin__device_row *device)
{
    const dunlin__privacy_question *terms = terms_of(server);
    const uint64_t round = server->round.round;
    if (!server->task.dp.is_on || device->last_round == 0 || device->last_round == round) {
        return true;
    }
    return (terms->most_rounds == 0 || device->n_rounds < terms->most_rounds) &&
           device->last_round + (terms->separation > 0 ? terms->separation : 1) <= round;
}

dunlin_status dunlin__private_take_part(dunlin__server *server, dunlin__server_device *device,
                                        dunlin_error *error)
{
    if (!server->task.dp.is_on || device->row.last_round == server->round.round) {
        return DUNLIN_OK;
    }
    dunlin__device_row row = device->row;
    row.last_round = server->round.round;
    row.n_rounds++;
    DUNLIN_TRY(dunlin__server_db_take_part(server->db, &row, error));
    device->row = row; /* a transaction that fails leaves it too careful, until the state is read */
    return DUNLIN_OK;
}

/* Each by itself with the chance cohort / clients, or cohort of clients without replacement (Knuth,
 * volume 2, algorithm S); by whole numbers, so neither is rounded. */
static void draw_cohort(dunlin__server *server)
{
    const bool is_poisson = terms_of(server)->sampling == DUNLIN_SAMPLING_POISSON;
    const uint32_t n_clients = server->task.n_clients;
    uint32_t left = server->task.cohort;
    dunlin__bits bits;
    dunlin__bits_begin(&bits, server->round.draw_seed.bytes, DRAW_STREAM);
    server->n_in_cohort = 0;
    for (uint32_t i = 0; i < n_clients; i++) {
        const bool is_in = is_poisson ? dunlin__bits_below(&bits, n_clients) < server->task.cohort
                                      : dunlin__bits_below(&bits, n_clients - i) < left;
        server->in_cohort[i] = is_in;
        server->n_in_cohort += is_in ? 1 : 0;
        left -= is_in && !is_poisson ? 1 : 0;
    }
    dunlin__bits_wipe(&bits);
}

static int compare_places(const void *left, const void *right)
{
    const dunlin__ranked *a = left;
    const dunlin__ranked *b = right;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    return a->client_index < b->client_index ? -1 : a->client_index > b->client_index;
}

/* The lowest ranks of those who may take part: nobody counts on who that is. */
static dunlin_status rank_cohort(dunlin__server *server, dunlin_error *error)
{
    const uint32_t n_clients = server->task.n_clients;
    const uint64_t round = server->round.round;
    uint32_t n = 0;
    dunlin__ranked *ranks = dunlin__alloc_array(&server->alloc, n_clients, sizeof *ranks);
    if (ranks == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "the ranks of %" PRIu32 " clients",
                            n_clients);
    }
    for (uint32_t i = 0; i < n_clients; i++) {
        const dunlin__server_device *device = dunlin__devices_find_index(server, i);
        server->in_cohort[i] = false;
        if (device == NULL || dunlin__private_may_take_part(server, &device->row)) {
            ranks[n++] = (dunlin__ranked){.rank = dunlin__server_rank(server->task.seed, round, i),
                                          .client_index = i};
        }
    }
    qsort(ranks, n, sizeof *ranks, compare_places);
    const uint32_t n_wanted = dunlin__server_task_n_select(&server->task);
    server->n_in_cohort = n < n_wanted ? n : n_wanted;
    for (uint32_t k = 0; k < server->n_in_cohort; k++) {
        server->in_cohort[ranks[k].client_index] = true;
    }
    dunlin__free_array(&server->alloc, ranks, n_clients, sizeof *ranks);
    return DUNLIN_OK;
}

dunlin_status dunlin__private_choose(dunlin__server *server, dunlin_error *error)
{
    if (!is_drawn(server)) {
        return rank_cohort(server, error);
    }
    if (!server->round.draw_seed.is_there && server->round.state == DUNLIN_ROUND_OPEN) {
        /* The first round of a run: later ones get theirs with the transaction that opens them. */
        dunlin__round_row row = server->round;
        DUNLIN_TRY(dunlin__private_open(server, &row, error));
        DUNLIN_TRY(dunlin__server_db_begin(server->db, true, error));
        const dunlin_status status = dunlin__server_db_put_round(server->db, &row, error);
        if (status != DUNLIN_OK) {
            dunlin__server_db_rollback(server->db);
            return status;
        }
        DUNLIN_TRY(dunlin__server_db_commit(server->db, error));
        server->round = row;
    }
    draw_cohort(server);
    return DUNLIN_OK;
}

/* ---- the close ---- */

/* The round of this number; NULL if it has not closed. They follow each other from 1 on. */
static dunlin__round_row *closed_round(const dunlin__server *server, uint64_t round)
{
    return round >= 1 && round <= server->n_closed ? &server->closed[round - 1] : NULL;
}

/* In a tree the node that round t completes takes the place of the nodes that ended at t - 1, t -
 * 2, t - 4 ... below it: so many, the zeros at the end of t. */
static uint32_t count_ended(uint64_t round)
{
    uint32_t n = 0;
    while (((round >> n) & 1) == 0) {
        n++;
    }
    return n;
}

/* Whether a later close takes the noise of a round away again, when `last` is the last one that has
 * closed: in a tree, while its node is one of those that the running sum is read from. */
static bool needs_seed(const dunlin__server *server, uint64_t round, uint64_t last)
{
    if (terms_of(server)->sampling != DUNLIN_SAMPLING_TREE || last >= server->task.rounds) {
        return false;
    }
    const uint64_t n_leaves = UINT64_C(1) << count_ended(round);
    return round <= last && (last & ~(n_leaves - 1)) == round;
}

dunlin_status dunlin__private_noise(const dunlin__server *server, const dunlin__round_row *row,
                                    dunlin__noise *out_noise, dunlin_error *error)
{
    const dunlin__privacy_question *terms = terms_of(server);
    DUNLIN_TRY(dunlin__noise_make(out_noise, terms->clip, dunlin__private_multiplier(&server->task),
                                  server->layout.n_shared_values, error));
    const bool is_tree = terms->sampling == DUNLIN_SAMPLING_TREE;
    const uint32_t n_ended = is_tree ? count_ended(row->round) : 0;
    memcpy(out_noise->nodes[0].seed, row->noise_seed.bytes, DUNLIN_SEED_BYTES);
    out_noise->n_nodes = 1;
    for (uint32_t level = 0; level < n_ended; level++) {
        const dunlin__round_row *ended = closed_round(server, row->round - (UINT64_C(1) << level));
        if (ended == NULL || !ended->noise_seed.is_there || n_ended >= DUNLIN_NOISE_NODES) {
            return dunlin__fail(error, DUNLIN_DATA, "rounds", 0,
                                "the noise of round %" PRIu64 " is not there to be taken away",
                                row->round - (UINT64_C(1) << level));
        }
        dunlin__noise_node *node = &out_noise->nodes[out_noise->n_nodes++];
        memcpy(node->seed, ended->noise_seed.bytes, DUNLIN_SEED_BYTES);
        node->is_taken_away = true;
    }
    return row->noise_seed.is_there
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_DATA, "rounds", 0,
                              "round %" PRIu64 " closes without a seed of its noise", row->round);
}

dunlin_status dunlin__private_bound(const dunlin__server *server, dunlin__aggregate_input *inputs,
                                    size_t n, dunlin_error *error)
{
    const double clip = terms_of(server)->clip;
    for (size_t i = 0; i < n; i++) {
        dunlin__update_norms norms;
        DUNLIN_TRY(dunlin__update_measure(&server->layout, DUNLIN_LAYOUT_SHARED,
                                          inputs[i].path.text, NULL, &server->alloc, &norms,
                                          error));
        const bool is_within = norms.norm <= clip * (1 + DUNLIN_NOISE_SLACK);
        inputs[i].weight = 1;
        inputs[i].scale = is_within ? 1 : clip / norms.norm;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__private_account(const dunlin__server *server, dunlin__round_row *row,
                                      dunlin_error *error)
{
    dunlin__privacy_answer answer;
    DUNLIN_TRY(dunlin__privacy_spent(terms_of(server), row->round, &server->alloc, &answer, error));
    row->is_private = true;
    row->epsilon = answer.epsilon;
    return DUNLIN_OK;
}

dunlin_status dunlin__private_end_close(dunlin__server *server, dunlin__round_row *row,
                                        dunlin_error *error)
{
    drop_seed(&row->draw_seed);
    if (!needs_seed(server, row->round, row->round)) {
        drop_seed(&row->noise_seed);
    }
    for (size_t i = 0; i < server->n_closed; i++) {
        dunlin__round_row earlier = server->closed[i];
        if (earlier.noise_seed.is_there && !needs_seed(server, earlier.round, row->round)) {
            drop_seed(&earlier.noise_seed);
            DUNLIN_TRY(dunlin__server_db_put_round(server->db, &earlier, error));
        }
    }
    return dunlin__server_db_drop_contributions(server->db, row->round, error);
}

void dunlin__private_forget(dunlin__server *server)
{
    dunlin_error failure = {0};
    const uint64_t last = server->n_closed;
    if (!server->task.dp.is_on) {
        return;
    }
    for (size_t i = 0; i < server->n_closed; i++) {
        if (!needs_seed(server, server->closed[i].round, last)) {
            drop_seed(&server->closed[i].noise_seed);
        }
    }
    if (dunlin__server_db_force(server->db, &failure) != DUNLIN_OK) {
        dunlin__log(&server->log, DUNLIN_LOG_WARNING, "rounds",
                    "round %" PRIu64 ": the seed of its noise may still be in the log: %s", last,
                    failure.text);
    }
}

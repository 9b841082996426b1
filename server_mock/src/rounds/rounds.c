/*
 * rounds.c - when a round ends, when its model is evaluated, and what is done when something fails.
 *
 * Invariant: no failure is final. A failure is shown in the status and the work is repeated, first
 * after a second, later after half a minute, until the cause is gone.
 */
#include "rounds.h"

#include "best.h"
#include "buffered.h"
#include "close.h"
#include "cohort.h"
#include "evaluation.h"
#include "kept.h"
#include "lineage.h"
#include "model/evaluate.h"
#include "private.h"
#include "secure.h"
#include "state.h"
#include "state/context.h"
#include "state/db.h"
#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETRY_FIRST_MS 1000
#define RETRY_MOST_MS 30000

/* ---- closing ---- */

static dunlin__close_reason find_reason(const dunlin__server *server, int64_t now_ms)
{
    const dunlin__round_row *round = &server->round;
    dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    if (dunlin__lineage_is_bad(server, round->base)) {
        return DUNLIN_CLOSE_TAKEN_BACK;
    }
    if (server->task.secagg.is_on) {
        return dunlin__secure_reason(server, now_ms);
    }
    const uint32_t goal = dunlin__server_goal(server);
    if (goal > 0 && counts.n_accepted >= goal) {
        return DUNLIN_CLOSE_GOAL;
    }
    if (round->deadline_ms != 0 && now_ms >= round->deadline_ms) {
        return DUNLIN_CLOSE_DEADLINE;
    }
    if (server->in_cohort != NULL && counts.n_accepted + counts.n_dropped >= server->n_in_cohort) {
        return DUNLIN_CLOSE_ALL;
    }
    return DUNLIN_CLOSE_NONE;
}

/* ---- evaluating ---- */

/* The newest round without figures whose model is still there; NULL if there is none. Locked. */
static dunlin__round_row *find_pending(const dunlin__server *server)
{
    if (!dunlin__evaluator_has_test_set(server->evaluator)) {
        return NULL;
    }
    for (size_t i = server->n_closed; i > 0; i--) {
        dunlin__round_row *row = &server->closed[i - 1];
        bool is_wanted = !row->is_evaluated && !row->is_taken_back && !row->is_given_up &&
                         dunlin__server_task_judges(&server->task, row->round);
        for (size_t m = 0; m < DUNLIN_SERVER_MOST_MODELS && is_wanted; m++) {
            if (server->models[m].round == row->round + 1) {
                return row;
            }
        }
    }
    return NULL;
}

static void tell_figures(const dunlin__server *server, const dunlin__round_row *row)
{
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                "round %" PRIu64 ": accuracy %.4f, loss %.4f", row->round, row->accuracy,
                row->loss);
}

/* Stores what an evaluation said of a closed round's model. Locked. */
static dunlin_status take_verdict(dunlin__server *server, uint64_t round,
                                  const dunlin__verdict *verdict, dunlin_error *error)
{
    dunlin__round_row *found = dunlin__lineage_find(server, round);
    if (found == NULL) {
        return DUNLIN_OK;
    }
    dunlin__round_row row = *found;
    row.is_evaluated = verdict->is_evaluated;
    row.accuracy = verdict->is_evaluated ? verdict->accuracy : 0;
    row.loss = verdict->is_evaluated ? verdict->loss : 0;
    row.is_given_up = !verdict->is_evaluated;
    /* Why a round failed goes before what its model is like. */
    if (!row.is_failed) {
        memcpy(row.why, verdict->why, sizeof row.why);
    }
    DUNLIN_TRY(dunlin__server_save_round(server, &row, error));
    *found = row;
    if (verdict->is_bad) {
        return dunlin__lineage_take_back(server, round, verdict->why, error);
    }
    if (verdict->is_evaluated) {
        tell_figures(server, &row);
    } else {
        dunlin__log(&server->log, DUNLIN_LOG_WARNING, "rounds",
                    "round %" PRIu64 " has no figures: %s", round, verdict->why);
    }
    dunlin__kept_sweep(server);
    return DUNLIN_OK;
}

/* Evaluates one model. Locked, but not while it works. */
static dunlin_status evaluate(dunlin__server *server, uint64_t round, dunlin_error *error)
{
    dunlin_error failure = {0};
    double accuracy = 0;
    double loss = 0;
    DUNLIN_TRY(dunlin__server_evaluate(server, round + 1, &accuracy, &loss, &failure, error));
    dunlin__verdict verdict = dunlin__lineage_judge(server, &failure, accuracy, loss);
    dunlin_status status = take_verdict(server, round, &verdict, error);
    dunlin__best_settle(server);
    return status;
}

/* ---- the end of the run ---- */

static dunlin_status finish(dunlin__server *server, dunlin_error *error)
{
    if (dunlin__lineage_is_bad(server, server->round.base)) {
        DUNLIN_TRY(dunlin__server_begin_anew(server, error));
    }
    return server->is_exported ? DUNLIN_OK : dunlin__kept_export(server, error);
}

/* ---- one turn ---- */

static dunlin_status close_if_due(dunlin__server *server, dunlin_error *error)
{
    dunlin__buffered_sweep(server, dunlin__server_now(server));
    if (server->is_started && server->round.state == DUNLIN_ROUND_OPEN) {
        dunlin__secure_advance(server, dunlin__server_now(server));
        dunlin__close_reason reason = find_reason(server, dunlin__server_now(server));
        if (reason == DUNLIN_CLOSE_NONE) {
            return DUNLIN_OK;
        }
        dunlin__round_row row = server->round;
        row.state = DUNLIN_ROUND_CLOSING;
        row.reason = reason;
        DUNLIN_TRY(dunlin__private_begin_close(server, &row, error));
        DUNLIN_TRY(dunlin__server_save_round(server, &row, error));
        server->round = row;
    }
    if (server->round.state != DUNLIN_ROUND_CLOSING) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__server_close_round(server, error));
    const dunlin__round_row *last = &server->closed[server->n_closed - 1];
    if (last->is_evaluated) { /* with `rollback` its model is judged before the round is closed */
        tell_figures(server, last);
    }
    return DUNLIN_OK;
}

static dunlin_status step(dunlin__server *server, dunlin_error *error)
{
    if (server->is_stale) {
        DUNLIN_TRY(dunlin__server_reload(server, error));
    }
    if (!server->is_done) {
        DUNLIN_TRY(close_if_due(server, error));
    }
    dunlin__watch_fill(server, dunlin__server_now(server)); /* evaluating may take long */
    const dunlin__round_row *pending = find_pending(server);
    if (pending != NULL) {
        DUNLIN_TRY(evaluate(server, pending->round, error));
    }
    DUNLIN_TRY(dunlin__kept_save_best(server, error));
    return server->is_done && find_pending(server) == NULL ? finish(server, error) : DUNLIN_OK;
}

/* Tells what holds the rounds up, and when they are tried again. Locked. */
static void take_fault(dunlin__server *server, const dunlin_error *error)
{
    int64_t wait_ms = RETRY_MOST_MS;
    if (server->n_faults < 5) {
        wait_ms = (int64_t)RETRY_FIRST_MS << server->n_faults;
    }
    wait_ms = wait_ms < RETRY_MOST_MS ? wait_ms : RETRY_MOST_MS;
    server->fault = *error;
    server->n_faults++;
    server->retry_ms = dunlin__server_now(server) + wait_ms;
    dunlin__log(&server->log, DUNLIN_LOG_ERROR, "rounds",
                "the rounds are held up: %s; next try in %" PRId64 " s", error->text,
                wait_ms / 1000);
}

void dunlin__server_tick(dunlin__server *server)
{
    dunlin_error error = {0};
    (void)pthread_mutex_lock(&server->lock);
    if (server->fault.status == DUNLIN_OK || dunlin__server_now(server) >= server->retry_ms) {
        dunlin_status status = step(server, &error);
        if (status != DUNLIN_OK && !server->is_stopping) {
            take_fault(server, &error);
        } else if (status == DUNLIN_OK && server->fault.status != DUNLIN_OK) {
            dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds", "the rounds go on");
            memset(&server->fault, 0, sizeof server->fault);
            server->n_faults = 0;
        }
    }
    (void)pthread_mutex_unlock(&server->lock);
}

/*
 * lineage.c - which model each round began from, and which models are bad.
 *
 * Invariant: all of it follows from the rows of the closed rounds, so it is the same after a start.
 */
#include "lineage.h"

#include "base/files.h"
#include "model/evaluate.h"
#include "model/models.h"
#include "packed.h"
#include "state/context.h"
#include "state/db.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

dunlin__round_row *dunlin__lineage_find(const dunlin__server *server, uint64_t round)
{
    if (server->n_closed == 0 || round < server->closed[0].round) {
        return NULL;
    }
    /* They follow each other without gaps. */
    uint64_t at = round - server->closed[0].round;
    return at < server->n_closed && server->closed[at].round == round ? &server->closed[at] : NULL;
}

bool dunlin__lineage_is_bad(const dunlin__server *server, uint64_t round)
{
    const dunlin__round_row *row = dunlin__lineage_find(server, round);
    return row != NULL && row->is_taken_back;
}

/* ---- judging ---- */

static bool find_best(const dunlin__server *server, double *out_accuracy)
{
    bool has_best = false;
    for (size_t i = 0; i < server->n_closed; i++) {
        const dunlin__round_row *row = &server->closed[i];
        if (row->is_evaluated && !row->is_taken_back &&
            (!has_best || row->accuracy > *out_accuracy)) {
            *out_accuracy = row->accuracy;
            has_best = true;
        }
    }
    return has_best;
}

dunlin__verdict dunlin__lineage_judge(const dunlin__server *server, const dunlin_error *failure,
                                      double accuracy, double loss)
{
    dunlin__verdict verdict = {.accuracy = accuracy, .loss = loss};
    bool is_finite = failure->status == DUNLIN_OK && isfinite(loss) && isfinite(accuracy);
    double rollback = server->task.rollback;
    double best = 0;
    if (failure->status != DUNLIN_OK && failure->status != DUNLIN_NUMERIC) {
        (void)snprintf(verdict.why, sizeof verdict.why, "the model could not be evaluated: %s",
                       failure->text);
    } else if (!is_finite) {
        verdict.is_bad = !server->task.plan.is_scaffold;
        (void)snprintf(verdict.why, sizeof verdict.why, "the evaluation is not finite%s%s",
                       failure->status != DUNLIN_OK ? ": " : "",
                       failure->status != DUNLIN_OK ? failure->text : "");
    } else {
        verdict.is_evaluated = true;
        if (rollback > 0 && find_best(server, &best) && best - accuracy > rollback) {
            verdict.is_bad = true;
            (void)snprintf(verdict.why, sizeof verdict.why,
                           "accuracy %.4f is below the best, %.4f, by more than rollback %.6g",
                           accuracy, best, rollback);
        }
    }
    return verdict;
}

/* ---- going on from a good model ---- */

bool dunlin__lineage_has_file(const dunlin__server *server, uint64_t number)
{
    dunlin__server_path path;
    dunlin_error ignored;
    return dunlin__server_weights_path(server, number, &path, &ignored) == DUNLIN_OK &&
           dunlin__server_file_size(path.text) ==
               (int64_t)(server->layout.n_values * sizeof(float));
}

dunlin__good_model dunlin__lineage_newest_good(const dunlin__server *server)
{
    bool can_judge = dunlin__evaluator_has_test_set(server->evaluator);
    for (size_t i = server->n_closed; i > 0; i--) {
        const dunlin__round_row *row = &server->closed[i - 1];
        bool is_good = !row->is_taken_back && (row->is_evaluated || !can_judge);
        if (is_good && dunlin__lineage_has_file(server, row->round + 1)) {
            return (dunlin__good_model){row->round, row->round + 1};
        }
    }
    dunlin__good_model good = {0, 1};
    for (size_t i = dunlin__server_n_models(server);
         i > 0 && !dunlin__lineage_has_file(server, good.file); i--) {
        good.file = server->models[i - 1].round;
    }
    return good;
}

static dunlin_status save_taken_back(dunlin__server *server, size_t first, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__server_db_begin(server->db, true, error));
    dunlin_status status = DUNLIN_OK;
    for (size_t i = first; status == DUNLIN_OK && i < server->n_closed; i++) {
        if (server->closed[i].is_taken_back) {
            status = dunlin__server_db_put_round(server->db, &server->closed[i], error);
        }
    }
    if (status == DUNLIN_OK) {
        return dunlin__server_db_commit(server->db, error);
    }
    dunlin__server_db_rollback(server->db);
    return status;
}

dunlin_status dunlin__lineage_take_back(dunlin__server *server, uint64_t round, const char *why,
                                        dunlin_error *error)
{
    dunlin__round_row *row = dunlin__lineage_find(server, round);
    if (row == NULL) {
        return DUNLIN_OK;
    }
    size_t first = (size_t)(row - server->closed);
    row->is_taken_back = true;
    (void)snprintf(row->why, sizeof row->why, "%s", why);
    dunlin__log(&server->log, DUNLIN_LOG_WARNING, "rounds", "round %" PRIu64 " is taken back: %s",
                round, why);
    for (size_t i = first + 1; i < server->n_closed; i++) {
        dunlin__round_row *later = &server->closed[i];
        if (!later->is_taken_back && dunlin__lineage_is_bad(server, later->base)) {
            later->is_taken_back = true;
            (void)snprintf(later->why, sizeof later->why,
                           "it began from the model of round %" PRIu64 ", which was taken back",
                           later->base);
        }
    }
    dunlin_status status = save_taken_back(server, first, error);
    /* What could not be stored is not true: the rows are read again. */
    server->is_stale = server->is_stale || status != DUNLIN_OK;
    return status;
}

/* ---- files ---- */

/* The newest base cannot be read: its round is taken back, so the current one ends and the next
 * begins from a good one. False if there is none of this task. */
static bool can_go_on(dunlin__server *server, const char *folder)
{
    dunlin__round_row *row = dunlin__lineage_find(server, server->round.base);
    dunlin__published published = {0};
    dunlin_error ignored;
    if (row == NULL) {
        return false;
    }
    bool was_taken_back = row->is_taken_back;
    row->is_taken_back = true;
    uint64_t file = dunlin__lineage_newest_good(server).file;
    row->is_taken_back = was_taken_back;
    bool has_good = file != 0 && dunlin__model_load(folder, file, &server->layout, &server->alloc,
                                                    &published, &ignored) == DUNLIN_OK;
    dunlin__published_free(&published, &server->alloc);
    return has_good;
}

dunlin_status dunlin__lineage_load(dunlin__server *server, dunlin_error *error)
{
    uint64_t round = server->round.round;
    dunlin__server_path folder;
    dunlin_error failure = {0};
    DUNLIN_TRY(dunlin__server_path_make(&folder, error, "%s/models", server->folder.text));
    for (size_t i = 0; i < dunlin__server_n_models(server) && round > i; i++) {
        dunlin__server_path path;
        DUNLIN_TRY(dunlin__model_path(folder.text, round - i, "manifest", &path, error));
        if (i > 0 && dunlin__server_file_size(path.text) < 0) {
            break;
        }
        dunlin_status status =
            dunlin__model_load(folder.text, round - i, &server->layout, &server->alloc,
                               &server->models[i], i > 0 ? &failure : error);
        if (status == DUNLIN_OK) {
            DUNLIN_TRY(dunlin__packed_load(server, &server->models[i], i == 0, error));
        } else if (i == 0) {
            if (!can_go_on(server, folder.text)) {
                return status;
            }
            failure = *error;
            dunlin__error_clear(error);
            DUNLIN_TRY(dunlin__lineage_take_back(server, server->round.base, failure.text, error));
        } else {
            /* Nothing begins from an older one: it may go. */
            dunlin__log(&server->log, DUNLIN_LOG_WARNING, "server", "left out: %s", failure.text);
            break;
        }
    }
    return DUNLIN_OK;
}

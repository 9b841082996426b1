/*
 * close_tell.c - the line in the log of a round that is over.
 */
#include "close_tell.h"

#include "private.h"
#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>

static void tell_private(const dunlin__server *server, const dunlin__round_row *row,
                         const char *end)
{
    dunlin__log(&server->log, row->why[0] != 0 ? DUNLIN_LOG_WARNING : DUNLIN_LOG_INFO, "rounds",
                "round %" PRIu64 " %s: epsilon %.6g at delta %g so far%s, %.1f s%s%s", row->round,
                end, row->epsilon, server->task.dp.question.delta,
                dunlin__private_is_secret(server) ? "" : " (not private)",
                (double)(row->closed_ms - row->opened_ms) / 1000, row->why[0] != 0 ? "; " : "",
                row->why);
}

void dunlin__round_tell(const dunlin__server *server, const dunlin__round_row *row)
{
    char loss[64] = "";
    const char *kind = row->is_evaluation ? "evaluation" : "train";
    const char *end = row->is_failed ? "failed" : "closed";
    if (row->is_taken_back) {
        end = "is taken back";
    }
    if (row->is_private) {
        tell_private(server, row, end);
        return;
    }
    if (row->metrics.is_there[DUNLIN_METRIC_LOSS]) {
        (void)snprintf(loss, sizeof loss, ", %s loss %.4f", kind,
                       row->metrics.values[DUNLIN_METRIC_LOSS]);
    }
    dunlin__log(&server->log, row->why[0] != 0 ? DUNLIN_LOG_WARNING : DUNLIN_LOG_INFO, "rounds",
                "round %" PRIu64 " %s: %" PRIu64 " participants, %" PRIu64 " dropped%s, %.1f s%s%s",
                row->round, end, row->n_participants, row->n_dropped, loss,
                (double)(row->closed_ms - row->opened_ms) / 1000, row->why[0] != 0 ? "; " : "",
                row->why);
}

/*
 * update_judge.c - a finished update: joined to one file of float32, and held against the plan.
 *
 * Invariant: what is judged is what will be averaged: the decoded values.
 */
#include "update_judge.h"

#include "base/files.h"
#include "model/spool.h"
#include "model/update_norm.h"
#include "state/db.h"
#include "state/reply.h"
#include "task/task.h"

#include <mem/support.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Devices of before round after they clip, which leaves an update a little longer than its bound.
 */
#define NORM_SLACK (1 + 1e-6)

static void refuse_update(dunlin__call_state *call, const char *format, ...) DUNLIN_PRINTF(2, 3);

static void refuse_update(dunlin__call_state *call, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(call->refusal, sizeof call->refusal, format, args);
    va_end(args);
    call->is_refused = true;
}

/* The bound on what the server has decoded; running statistics are no part of it. */
static dunlin_status judge_norm(dunlin__call_state *call, const dunlin__spool_report *report,
                                dunlin_error *error)
{
    const dunlin__server *server = call->server;
    const dunlin__layout *layout = &server->layout;
    dunlin__server_path base;
    dunlin__update_norms norms;
    DUNLIN_TRY(dunlin__server_weights_path(server, call->round, &base, error));
    DUNLIN_TRY(dunlin__update_measure(layout, DUNLIN_LAYOUT_AVERAGED, call->spooled.text,
                                      server->task.sends_weights ? base.text : NULL, &server->alloc,
                                      &norms, error));
    const double layer_bound = call->clip_norm / sqrt((double)norms.n_layers);
    /* Both sides take the norm of a packed update in the same arithmetic: not a bit above it. */
    const bool is_within = report->is_packed
                               ? dunlin__norm_is_within(report->square, (float)call->clip_norm)
                               : norms.norm <= call->clip_norm * NORM_SLACK;
    if (!is_within) {
        refuse_update(call, "the update's norm %.6g is above the plan's %.6g", norms.norm,
                      call->clip_norm);
    } else if (server->task.plan.clips_layers && norms.layer_norm > layer_bound * NORM_SLACK) {
        refuse_update(call, "the norm %.6g of tensor %.80s is above the plan's %.6g of a tensor",
                      norms.layer_norm, layout->tensors[norms.layer].name, layer_bound);
    }
    return DUNLIN_OK;
}

static dunlin_status judge_update(dunlin__call_state *call, const dunlin__spool_report *report,
                                  dunlin_error *error)
{
    if (!report->is_finite) {
        refuse_update(call, "value %" PRIu64 " of the update is not finite", report->bad_value);
        return DUNLIN_OK;
    }
    return call->clip_norm > 0 ? judge_norm(call, report, error) : DUNLIN_OK;
}

/* A failure that the device's bytes are to blame for. */
static bool is_of_bytes(dunlin_status status)
{
    return status == DUNLIN_PROTOCOL || status == DUNLIN_NUMERIC || status == DUNLIN_MISMATCH ||
           status == DUNLIN_OVERFLOW;
}

bool dunlin__update_judge(dunlin__call_state *call, const char *assignment_id)
{
    dunlin__server *server = call->server;
    dunlin__server_path folder;
    dunlin__spool_report report;
    char draw[33];
    dunlin_error error = {0};
    dunlin_status status = dunlin__server_draw_id(draw, &error);
    if (status == DUNLIN_OK) {
        status = dunlin__server_upload_folder(server, assignment_id, &folder, &error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_path_make(&call->spooled, &error, "%s/spool/%s.new",
                                          server->folder.text, draw);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__update_spool(folder.text, &server->layout,
                                      call->has_packing ? &call->packing : NULL, call->spooled.text,
                                      &server->alloc, &report, &error);
    }
    if (status == DUNLIN_OK) {
        status = judge_update(call, &report, &error);
    }
    if (status != DUNLIN_OK) {
        (void)unlink(call->spooled.text);
        call->spooled.text[0] = 0;
        if (call->has_packing && is_of_bytes(status)) {
            refuse_update(call, "%s", error.text);
            return true;
        }
        if (error.status == DUNLIN_IO && error.code == ENOENT) {
            dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_INVALID, "%s", error.text);
        } else {
            dunlin__server_refuse_error(call->reply, &error);
        }
        return false;
    }
    return true;
}

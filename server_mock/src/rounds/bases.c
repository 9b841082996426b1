/*
 * bases.c - makes the base of a round from an older one and the updates of a round.
 *
 * Invariant: a base follows from the older base, the updates and the seeds of their noise alone, so
 * making it twice gives the same bytes.
 */
#include "bases.h"

#include "base/files.h"
#include "model/aggregate.h"
#include "model/models.h"
#include "model/moments_file.h"
#include "packed.h"
#include "state/context.h"

#include <mem/support.h>

/* The files and blocks of one base; two of them with SCAFFOLD: weights, and control variate. */
typedef struct making {
    dunlin__server *server;
    dunlin__base_work of;
    dunlin__server_path folder;
    dunlin__weights_file bases[2];
    dunlin__aggregate aggregates[2];
    dunlin__values values[2];
    dunlin__aggregate_room room;
    dunlin__moments_file moments;
    bool has_moments;
    dunlin_error *error;
} making;

static dunlin_status begin_stream(making *work, bool is_control)
{
    const dunlin__server *server = work->server;
    const dunlin__layout *layout = &server->layout;
    int at = is_control ? 1 : 0;
    double divisor = is_control ? (double)server->task.n_clients : 0;
    /* What does not depend on who came, in a private round. */
    divisor = work->of.noise != NULL ? (double)server->task.cohort : divisor;
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__model_path(work->folder.text, work->of.from,
                                  is_control ? "control" : "weights", &path, work->error));
    DUNLIN_TRY(dunlin__weights_file_open(path.text,
                                         is_control ? layout->n_averaged_values : layout->n_values,
                                         &work->bases[at], work->error));
    work->aggregates[at] =
        (dunlin__aggregate){.layout = layout,
                            .part = is_control ? DUNLIN_LAYOUT_AVERAGED : DUNLIN_LAYOUT_ALL,
                            .first_in_inputs = is_control ? layout->n_shared_values : 0,
                            .divisor = divisor,
                            .base = dunlin__weights_file_values(&work->bases[at]),
                            .inputs = work->of.inputs,
                            .n_inputs = work->of.n_inputs,
                            .sends_weights = server->task.sends_weights,
                            .strategy = &server->task.strategy,
                            .moments = work->has_moments && !is_control ? &work->moments : NULL,
                            .noise = work->of.noise,
                            .room = &work->room};
    work->values[at] = dunlin__aggregate_values(&work->aggregates[at]);
    return DUNLIN_OK;
}

/* The strategy's moments go from base to base as the weights do. */
static dunlin_status begin_moments(making *work, uint64_t number)
{
    dunlin__server *server = work->server;
    const dunlin__strategy *strategy = &server->task.strategy;
    if (!dunlin__strategy_has_moments(strategy)) {
        return dunlin__moments_file_remove(work->folder.text, number, work->error);
    }
    if (work->of.n_inputs == 0 && work->of.noise == NULL) {
        return dunlin__moments_file_keep(work->folder.text, work->of.from, number, &server->alloc,
                                         work->error);
    }
    work->has_moments = true;
    const dunlin__moments_kind kind = {strategy, server->layout.n_averaged_values};
    DUNLIN_TRY(dunlin__moments_file_open(work->folder.text, work->of.from, number, &kind,
                                         &server->alloc, &work->moments, work->error));
    if (work->moments.is_left_out) {
        dunlin__log(&server->log, DUNLIN_LOG_WARNING, "rounds",
                    "strategy %s begins anew: %.140s is of another strategy or model, or not whole",
                    dunlin__strategy_name(strategy->kind), work->moments.from_path.text);
    }
    return DUNLIN_OK;
}

static dunlin_status make_base(making *work, uint64_t number, dunlin__published *out_model)
{
    dunlin__server *server = work->server;
    DUNLIN_TRY(
        dunlin__server_path_make(&work->folder, work->error, "%s/models", server->folder.text));
    DUNLIN_TRY(dunlin__aggregate_room_make(&work->room, &server->task.strategy, work->of.n_inputs,
                                           &server->alloc, work->error));
    DUNLIN_TRY(begin_moments(work, number));
    DUNLIN_TRY(begin_stream(work, false));
    if (server->layout.has_control) {
        DUNLIN_TRY(begin_stream(work, true));
    }
    dunlin__packed_remove(server, number);
    return dunlin__model_publish(work->folder.text, number, &server->layout, work->values,
                                 &server->alloc, out_model, work->error);
}

/* The moments are in their place after the weights, and both before the round's transaction: a kill
 * in between repeats the close from the base before. */
static dunlin_status end_moments(making *work, dunlin_status status, dunlin__published *model)
{
    dunlin_alloc *alloc = &work->server->alloc;
    if (!work->has_moments) {
        return status;
    }
    const dunlin_status ended =
        dunlin__moments_file_close(&work->moments, alloc, status, work->error);
    if (status == DUNLIN_OK && ended != DUNLIN_OK) {
        dunlin__published_free(model, alloc);
    }
    return ended;
}

dunlin_status dunlin__base_make(dunlin__server *server, const dunlin__base_work *of,
                                uint64_t number, dunlin__published *out_model, dunlin_error *error)
{
    making work = {.server = server, .of = *of, .bases = {{.fd = -1}, {.fd = -1}}, .error = error};
    dunlin_status status = make_base(&work, number, out_model);
    status = end_moments(&work, status, out_model);
    if (status == DUNLIN_OK) {
        status = dunlin__packed_make(server, out_model, error);
        if (status != DUNLIN_OK) {
            dunlin__published_free(out_model, &server->alloc);
        }
    }
    dunlin__aggregate_room_free(&work.room, &server->alloc);
    dunlin__weights_file_close(&work.bases[0]);
    dunlin__weights_file_close(&work.bases[1]);
    return status;
}

/*
 * clip.c - moves the bound of updates from round to round.
 */
#include "clip.h"

#include "state/db.h"
#include "task/task.h"

#include <math.h>

double dunlin__clip_norm(const dunlin__server *server)
{
    const dunlin__server_plan *plan = &server->task.plan;
    double norm = plan->clip_norm;
    for (size_t i = server->n_closed; i > 0 && plan->clip_quantile > 0; i--) {
        const dunlin__round_row *row = &server->closed[i - 1];
        if (row->clip_norm > 0 && row->has_clip_within) {
            const double step = plan->clip_rate * (row->clip_within - plan->clip_quantile);
            norm = row->clip_norm * exp(-step);
            break;
        }
    }
    norm =
        norm > 0 && norm < DUNLIN_CLIP_LEAST && plan->clip_quantile > 0 ? DUNLIN_CLIP_LEAST : norm;
    norm = norm > DUNLIN_CLIP_MOST ? DUNLIN_CLIP_MOST : norm;
    return (double)(float)norm;
}

bool dunlin__clip_has_orders(const dunlin__server_task *task)
{
    const dunlin__server_plan *plan = &task->plan;
    return plan->clip_norm > 0 &&
           (plan->clips_layers || plan->clip_quantile > 0 || task->sends_weights);
}

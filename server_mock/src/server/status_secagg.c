/*
 * status_secagg.c - what a status has of secure aggregation.
 */
#include "status_secagg.h"

#include "rounds/secure.h"
#include "task/task.h"

json_t *dunlin__status_secagg(const dunlin__server *server)
{
    const dunlin__server_secagg *secagg = &server->task.secagg;
    if (!secagg->is_on) {
        return json_null();
    }
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:b, s:f, s:f, s:f}", "claim",
                  "honest_but_curious", "cohort", (json_int_t)secagg->n_cohort, "neighbours",
                  (json_int_t)secagg->n_neighbours, "threshold", (json_int_t)secagg->threshold,
                  "least_devices", (json_int_t)secagg->least_devices, "ring_bits",
                  (json_int_t)secagg->ring_bits, "clip", secagg->clip, "value_limit",
                  (json_int_t)secagg->value_limit, "weight_limit", (json_int_t)secagg->weight_limit,
                  "consistency", secagg->check_consistency ? 1 : 0, "step_s", secagg->step_s,
                  "corrupt", secagg->wish.corrupt, "dropout", secagg->wish.dropout);
    return object != NULL ? object : json_null();
}

/* Those that might have come to a step. */
static uint32_t awaited(const dunlin__secure_figures *figures, uint32_t step, bool has_consistency)
{
    if (step == DUNLIN_V1_SECAGG_STEP_ADVERTISE) {
        return figures->n_assigned;
    }
    const bool skips = step == DUNLIN_V1_SECAGG_STEP_UNMASK && !has_consistency;
    return figures->came[step - (skips ? 2 : 1)];
}

json_t *dunlin__status_secagg_round(const dunlin__server *server, uint64_t round)
{
    static const char *const names[] = {"", "advertise", "share", "mask", "consistency", "unmask"};
    const bool has_consistency = server->task.secagg.check_consistency;
    dunlin__secure_figures figures;
    if (!dunlin__secure_find(server, round, &figures)) {
        return json_null();
    }
    json_t *steps = json_object();
    for (uint32_t step = 1; step <= DUNLIN_WIRE_SECAGG_STEPS; step++) {
        if (step == DUNLIN_V1_SECAGG_STEP_CONSISTENCY && !has_consistency) {
            continue;
        }
        const uint32_t n_awaited = awaited(&figures, step, has_consistency);
        const uint32_t n_came = figures.came[step];
        (void)json_object_set_new(
            steps, names[step],
            json_pack("{s:I, s:I, s:f}", "devices", (json_int_t)n_came, "dropped",
                      (json_int_t)(n_awaited > n_came ? n_awaited - n_came : 0), "wall_s",
                      (double)figures.step_ms[step] / 1000));
    }
    json_t *object = json_pack(
        "{s:b, s:I, s:o, s:I, s:I, s:f}", "sum", figures.has_sum ? 1 : 0, "assigned",
        (json_int_t)figures.n_assigned, "steps", steps, "bytes_up", (json_int_t)figures.bytes_up,
        "bytes_down", (json_int_t)figures.bytes_down, "unmask_s", (double)figures.unmask_ms / 1000);
    return object != NULL ? object : json_null();
}

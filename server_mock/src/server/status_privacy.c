/*
 * status_privacy.c - what a status has of a private run: what it has cost, and what it does not
 * tell.
 */
#include "status_privacy.h"

#include "privacy/terms.h"
#include "rounds/private.h"
#include "task/task.h"

const char *const dunlin__status_hidden_of_round[] = {
    "participants", "dropped", "bytes_down", "bytes_up", "weight_sum", "scaled", "clip_within",
    "taken_back",   "devices", "metrics",    "wall_s",   "closed_by",  NULL};
const char *const dunlin__status_hidden_of_open[] = {"offered",   "assigned", "accepted", "dropped",
                                                     "uploading", "failed",   "history",  NULL};

void dunlin__status_hide(json_t *object, const char *const *keys)
{
    for (size_t i = 0; keys[i] != NULL; i++) {
        if (json_object_get(object, keys[i]) != NULL) {
            (void)json_object_set_new(object, keys[i], json_null());
        }
    }
}

json_t *dunlin__status_privacy(const dunlin__server *server)
{
    const dunlin__server_dp *dp = &server->task.dp;
    const dunlin__privacy_question *terms = &dp->question;
    if (!dp->is_on) {
        return json_null();
    }
    const double spent = server->n_closed > 0 ? server->closed[server->n_closed - 1].epsilon : 0;
    const bool is_tree = terms->sampling == DUNLIN_SAMPLING_TREE;
    const bool is_poisson = terms->sampling == DUNLIN_SAMPLING_POISSON;
    json_t *rate = is_poisson ? json_real(terms->rate) : json_null();
    const char *note = dunlin__private_note(server);
    json_t *object = json_pack(
        "{s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:s, s:o, s:I, s:I, s:I, s:b, s:f, s:s, s:s, "
        "s:s, s:s, s:s?, s:s, s:I, s:I, s:I, s:s}",
        "private", note == NULL ? 1 : 0, "epsilon", spent, "epsilon_of_run", dp->cost.epsilon,
        "delta", terms->delta, "noise", terms->noise, "clip", terms->clip, "deviation",
        dp->cost.deviation, "mechanism", is_tree ? "tree" : "gaussian", "sampling",
        is_tree || terms->sampling == DUNLIN_SAMPLING_FIRST_COME
            ? "arrival"
            : dunlin__sampling_name(terms->sampling),
        "rate", rate, "cohort", (json_int_t)server->task.cohort, "separation",
        (json_int_t)terms->separation, "most", (json_int_t)terms->most_rounds, "amplified",
        dp->cost.is_amplified ? 1 : 0, "sensitivity", dp->cost.sensitivity, "accountant",
        dp->cost.accountant == DUNLIN_ACCOUNTANT_RDP ? "rdp" : "pld", "unit", "device",
        "neighbours", dunlin__privacy_neighbours(terms), "assumes", dunlin__privacy_assumes(terms),
        "note", note, "noise_by", dp->is_distributed ? "distributed" : "server", "least_honest",
        (json_int_t)terms->n_parts, "noise_scale", (json_int_t)terms->part_scale, "value_limit",
        (json_int_t)(dp->is_distributed ? server->task.secagg.value_limit : 0), "noise_kind",
        dp->is_skellam ? "skellam" : "gaussian");
    return object != NULL ? object : json_null();
}

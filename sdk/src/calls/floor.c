/*
 * floor.c - see floor.h.
 *
 * Invariant: nothing that a server states is called proved here, but what follows from noise that
 * devices add and from rules that this one keeps by itself.
 */
#include "floor.h"

#include <mem/support.h>
#include <wire/secagg_noise.h>

#include <inttypes.h>

dunlin_status dunlin__floor_check(const dunlin_client_options *options,
                                  const dunlin_v1_privacy_t *privacy, dunlin_error *error)
{
    const double most = options->max_epsilon;
    if (!(most > 0) && options->min_cohort == 0) {
        return DUNLIN_OK;
    }
    if (privacy == NULL) {
        return dunlin__fail(error, DUNLIN_LIMIT, "client", 0,
                            "the task has no noise; this app wants epsilon of at most %g and "
                            "cohorts of at least %" PRIu32,
                            most, options->min_cohort);
    }
    if (most > 0 && privacy->is_repeatable) {
        return dunlin__fail(error, DUNLIN_LIMIT, "client", 0,
                            "the task's noise can be repeated, so it is not private; this app "
                            "wants epsilon of at most %g",
                            most);
    }
    if (most > 0 && !(privacy->epsilon <= most)) {
        return dunlin__fail(error, DUNLIN_LIMIT, "client", 0,
                            "the task's epsilon is %g at delta %g; this app wants at most %g",
                            privacy->epsilon, privacy->delta, most);
    }
    if (most > 0 && options->max_delta > 0 && !(privacy->delta <= options->max_delta)) {
        return dunlin__fail(error, DUNLIN_LIMIT, "client", 0,
                            "the task's delta is %g; this app wants at most %g", privacy->delta,
                            options->max_delta);
    }
    if (privacy->cohort < options->min_cohort) {
        return dunlin__fail(error, DUNLIN_LIMIT, "client", 0,
                            "the task's cohort is %" PRIu32 "; this app wants at least %" PRIu32,
                            privacy->cohort, options->min_cohort);
    }
    return DUNLIN_OK;
}

dunlin__secagg_floor dunlin__floor_secagg(const dunlin_client_options *options)
{
    return (dunlin__secagg_floor){.least_cohort = options->secagg_min_cohort,
                                  .least_devices = options->secagg_min_devices,
                                  .least_threshold = options->secagg_min_threshold};
}

/* Terms, or none: an update that the server sees by itself. */
static dunlin_status check_secagg(const dunlin_client_options *options,
                                  const dunlin__secagg_plan *terms, dunlin_error *error)
{
    const dunlin__secagg_floor floor = dunlin__floor_secagg(options);
    dunlin_error why = {0};
    if (terms == NULL) {
        return options->require_secure_aggregation
                   ? dunlin__fail(error, DUNLIN_LIMIT, "client", 0,
                                  "the server would see the update by itself; this app has "
                                  "require_secure_aggregation")
                   : DUNLIN_OK;
    }
    return dunlin__secagg_floor_check(terms, &floor, &why) == DUNLIN_OK
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_LIMIT, "client", 0, "%s", why.text);
}

dunlin_status dunlin__floor_check_secagg(const dunlin_client_options *options,
                                         const dunlin__offer *offer, dunlin_error *error)
{
    const dunlin__secagg_plan terms = {.n_cohort = offer->secagg.n_cohort,
                                       .n_neighbours = offer->secagg.n_neighbours,
                                       .threshold = offer->secagg.threshold,
                                       .least_devices = offer->secagg.least_devices,
                                       .check_consistency = offer->secagg.check_consistency};
    const bool is_secure = offer->aggregation == DUNLIN_V1_AGGREGATION_SECURE && offer->has_secagg;
    return check_secagg(options, is_secure ? &terms : NULL, error);
}

dunlin_status dunlin__floor_check_storage(const dunlin_client_options *options,
                                          const dunlin__offer *offer, dunlin_error *error)
{
    for (pb_size_t i = 0; options->stores_exact && i < offer->required_features_count; i++) {
        if (offer->required_features[i] == DUNLIN_V1_FEATURE_STORAGE) {
            return dunlin__fail(error, DUNLIN_LIMIT, "client", 0,
                                "the task stores what a step keeps in fewer bits than float32; "
                                "this app has stores_exact");
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_storage(dunlin_client *client, const dunlin__training_plan *plan)
{
    if (client->options.stores_exact && plan->storage != DUNLIN_V1_STORAGE_EXACT) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "client", 0,
                            "the plan stores what a step keeps in %s; this app has stores_exact",
                            plan->storage == DUNLIN_V1_STORAGE_BF16 ? "bf16" : "int8");
    }
    return DUNLIN_OK;
}

/* An update that is not clipped says more than one that is. */
static dunlin_status check_clip(dunlin_client *client, const dunlin__training_plan *plan)
{
    const float least = client->options.max_update_norm;
    const bool is_clipped = plan->clip_norm > 0.0F && plan->clip_norm <= least &&
                            plan->update_form != DUNLIN_V1_UPDATE_FORM_WEIGHTS;
    if (least > 0.0F && !is_clipped) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "client", 0,
                            "the plan clips the update to %g (0: not); this app wants at most %g",
                            (double)plan->clip_norm, (double)least);
    }
    return DUNLIN_OK;
}

/* What noise of the devices costs in the rounds that this one takes part in at most, by the
 * separation that it keeps itself. */
static double reckon_epsilon(const dunlin__assignment *assignment)
{
    const dunlin__secagg_plan *plan = &assignment->plan.secagg;
    const dunlin_v1_privacy_t *privacy = &assignment->privacy;
    const uint64_t apart = privacy->min_separation_rounds > 0 ? privacy->min_separation_rounds : 1;
    const uint64_t n_rounds = (privacy->n_rounds - 1) / apart + 1;
    return dunlin__secagg_plan_epsilon(plan, n_rounds, privacy->delta);
}

/* Who vouches for what is stated. */
static dunlin_epsilon_kind judge_epsilon(const dunlin__assignment *assignment)
{
    const dunlin_v1_privacy_t *privacy = &assignment->privacy;
    const bool is_proved = privacy->is_distributed && privacy->delta > 0 &&
                           reckon_epsilon(assignment) <= privacy->epsilon * (1 + 1e-9);
    return is_proved ? DUNLIN_EPSILON_PROVED_HERE : DUNLIN_EPSILON_STATED_BY_SERVER;
}

dunlin_status dunlin__floor_take(dunlin_client *client, const dunlin__assignment *assignment)
{
    const dunlin_v1_privacy_t *privacy = assignment->has_privacy ? &assignment->privacy : NULL;
    dunlin_round_report *report = &client->round->report;
    if (assignment->kind != DUNLIN_V1_KIND_TRAIN) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(check_storage(client, &assignment->plan));
    DUNLIN_TRY(check_clip(client, &assignment->plan));
    DUNLIN_TRY(dunlin__floor_check(&client->options, privacy, &client->error));
    const bool is_secure = assignment->aggregation == DUNLIN_V1_AGGREGATION_SECURE;
    DUNLIN_TRY(check_secagg(&client->options, is_secure ? &assignment->plan.secagg : NULL,
                            &client->error));
    report->aggregation =
        is_secure ? DUNLIN_AGGREGATION_HONEST_BUT_CURIOUS : DUNLIN_AGGREGATION_PLAIN;
    if (privacy != NULL && !privacy->is_repeatable) {
        report->epsilon_kind = judge_epsilon(assignment);
        report->epsilon = privacy->epsilon;
        report->delta = privacy->delta;
    }
    return DUNLIN_OK;
}

/*
 * grid.c - the settings that are compared: policies in budgets with batches, planned.
 */
#include "grid.h"

#include <dunlin/batch.h>
#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#define STEPS 10 /* of an epoch, at least, for a batch that is found by its price */

double grid_cpu_s(void)
{
    struct timespec now;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0
               ? (double)now.tv_sec + 1e-9 * (double)now.tv_nsec
               : (double)NAN;
}

dunlin_trainer_options grid_options(const study *at, const study_subject *subject,
                                    const grid_variant *variant, int64_t batch)
{
    dunlin_trainer_options options =
        study_options(at, subject, variant->policy, variant->budget_bytes, batch);
    options.ghost_statistics = variant->ghost > 0;
    options.micro_batch = variant->ghost;
    return options;
}

/* A batch of its own: does it fit? */
static bool plan_fixed(study *at, const study_subject *subject, grid_variant *variant)
{
    dunlin_error error = {0};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    const dunlin_trainer_options options = grid_options(at, subject, variant, variant->rule.batch);
    const dunlin_status status = dunlin_trainer_estimate(subject->model, &options, &report, &error);
    variant->batch = status == DUNLIN_OK ? variant->rule.batch : 0;
    if (status != DUNLIN_OK && status != DUNLIN_BUDGET) {
        study_fail_with(at, subject->name, &error);
    }
    return status == DUNLIN_OK || status == DUNLIN_BUDGET;
}

static bool plan_priced(study *at, const study_subject *subject, grid_variant *variant)
{
    dunlin_error error = {0};
    dunlin_batch_fit fit;
    memset(&fit, 0, sizeof fit);
    dunlin_trainer_options options = grid_options(at, subject, variant, STUDY_BATCH);
    options.max_ratio = variant->rule.ratio;
    if (dunlin_trainer_price_batches(subject->model, &options, &variant->budget_bytes, 1, &fit,
                                     NULL, &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    variant->batch = fit.capped.batch;
    variant->price =
        fit.fastest.example_ms > 0.0 ? fit.capped.example_ms / fit.fastest.example_ms : (double)NAN;
    return true;
}

static bool plan_most(study *at, const study_subject *subject, grid_variant *variant)
{
    dunlin_error error = {0};
    const dunlin_trainer_options options = grid_options(at, subject, variant, STUDY_BATCH);
    if (dunlin_trainer_max_batches(subject->model, &options, &variant->budget_bytes, 1,
                                   &variant->batch, NULL, &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    variant->batch = variant->batch > GRID_MOST_BATCH ? GRID_MOST_BATCH : variant->batch;
    return true;
}

bool grid_plan(study *at, const study_subject *subject, int64_t n_train, grid_variant *variant)
{
    const bool is_fixed = variant->rule.batch > 0;
    const bool is_priced = variant->rule.ratio > 0.0;
    const int64_t steps = is_priced ? STEPS : 1;
    const int64_t most = n_train < steps ? 1 : n_train / steps;
    variant->price = (double)NAN;
    variant->budget_bytes = variant->has_budget ? study_bytes(&variant->budget, subject) : 0;
    const bool is_done = is_fixed    ? plan_fixed(at, subject, variant)
                         : is_priced ? plan_priced(at, subject, variant)
                                     : plan_most(at, subject, variant);
    if (!is_fixed && variant->batch > most) {
        variant->batch = most;
        variant->price = (double)NAN;
    }
    return is_done;
}

static void set_label(grid_variant *variant)
{
    char how[40];
    if (variant->ghost > 0) {
        (void)snprintf(how, sizeof how, "ghost of %" PRId64, variant->ghost);
    } else {
        (void)snprintf(how, sizeof how, "%s", policy_name(variant->policy));
    }
    const char *in = variant->has_budget ? " in " : "";
    const char *budget = variant->has_budget ? variant->budget.text : "";
    if (variant->rule.batch > 0) {
        (void)snprintf(variant->label, sizeof variant->label, "%s%s%s, batch %" PRId64, how, in,
                       budget, variant->rule.batch);
    } else if (variant->rule.ratio > 0.0) {
        (void)snprintf(variant->label, sizeof variant->label, "%s%s%s, price %g", how, in, budget,
                       variant->rule.ratio);
    } else {
        (void)snprintf(variant->label, sizeof variant->label, "%s%s%s", how, in, budget);
    }
}

/* The same run as one that is there already. */
static bool is_there(const grid_variant *all, int32_t n, const grid_variant *variant)
{
    bool is_found = false;
    for (int32_t i = 0; i < n; i++) {
        is_found =
            is_found || (all[i].policy == variant->policy && all[i].ghost == variant->ghost &&
                         all[i].budget_bytes == variant->budget_bytes && all[i].batch > 0 &&
                         all[i].batch == variant->batch);
    }
    return is_found;
}

/* --batches, or the largest that fits. */
static int32_t list_rules(const study_flags *flags, study_rule out[STUDY_MAX_LIST])
{
    out[0] = (study_rule){.text = "most"};
    memcpy(out, flags->rule_list, (size_t)flags->n_rules * sizeof out[0]);
    return flags->n_rules > 0 ? flags->n_rules : 1;
}

/* Policies, then slices of ghost statistics: of the first n_policies `policy` counts. */
static int32_t list_policies(const study *at, const study_subject *subject, const char *own,
                             dunlin_policy out[STUDY_MAX_LIST])
{
    const study_flags *flags = study_flags_of(at);
    (void)subject;
    if (flags->n_policies == 0 && flags->n_ghosts > 0) {
        return 0;
    }
    const bool has_fixed_alone = flags->n_rules > 0 && flags->n_rules == flags->n_batches;
    const bool has_price = flags->n_rules > flags->n_batches;
    return study_policies(at, has_fixed_alone ? "auto" : has_price ? "none,auto" : own, out);
}

/* One more setting, if it is another one; false: the study has failed. */
static bool add(study *at, const study_subject *subject, const grid_lists *lists,
                const grid_variant *variant, grid_variant out[GRID_MOST], int32_t *io_n)
{
    grid_variant made = *variant;
    if (*io_n == GRID_MOST) {
        study_fail(at, "more than %d settings of %s", GRID_MOST, study_model_name(subject->name));
        return false;
    }
    set_label(&made);
    if (!grid_plan(at, subject, lists->n_train, &made)) {
        return false;
    }
    if (!is_there(out, *io_n, &made)) {
        out[(*io_n)++] = made;
    }
    return true;
}

int32_t grid_variants(study *at, const study_subject *subject, const grid_lists *lists,
                      grid_variant out[GRID_MOST])
{
    const study_flags *flags = study_flags_of(at);
    study_rule rules[STUDY_MAX_LIST];
    study_budget budgets[STUDY_MAX_LIST];
    dunlin_policy policies[STUDY_MAX_LIST];
    const int32_t n_rules = list_rules(flags, rules);
    const int32_t n_policies = list_policies(at, subject, lists->policies, policies);
    const int32_t n_ghosts = study_has_batch_norm(subject) ? flags->n_ghosts : 0;
    const bool is_unlimited =
        flags->n_budgets == 0 && flags->n_rules > 0 && flags->n_rules == flags->n_batches;
    const int32_t n_budgets = is_unlimited ? 1 : study_budgets(at, lists->budgets, budgets);
    int32_t n = 0;
    if (flags->n_ghosts > n_ghosts) {
        study_tell_filter(at, "--policies ghost:%" PRId64 ": %s has no batch norm",
                          flags->ghost_list[0], study_model_name(subject->name));
    }
    for (int32_t b = 0; b < n_budgets; b++) {
        for (int32_t p = 0; p < n_policies + n_ghosts; p++) {
            for (int32_t r = 0; r < n_rules; r++) {
                grid_variant variant = {.rule = rules[r], .has_budget = !is_unlimited};
                variant.policy = p < n_policies ? policies[p] : DUNLIN_POLICY_AUTO;
                variant.ghost = p < n_policies ? 0 : flags->ghost_list[p - n_policies];
                if (variant.has_budget) {
                    variant.budget = budgets[b];
                }
                if (!add(at, subject, lists, &variant, out, &n)) {
                    return -1;
                }
            }
        }
    }
    return n;
}

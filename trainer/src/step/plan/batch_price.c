/*
 * batch_price.c - what an example costs at a batch within a budget, and the largest batch that is
 * not too slow.
 *
 * Invariant: no cost is assumed to rise or to fall with the batch. Every price is that of a plan,
 * and an answer is always a batch whose price is known and within the ratio of the least price
 * known.
 */
#include "batch_price.h"

#include "forms.h"
#include "step/context/context.h"

#include <mem/support.h>

#include <math.h>

#define DENSE 32       /* up to here every batch has its price */
#define COARSE 4096    /* from here on every fifth power of two: slices cost what they cost */
#define FINE 256       /* an answer is found to its 256th part */
#define BASE_ROUNDS 2  /* of looking beside the fastest */
#define MAX_PRICES 256 /* plans for one budget */

typedef struct pricer {
    const dunlin_net *net;
    dunlin_trainer_options options;
    int64_t most; /* the largest batch that fits; of any the largest there is */
    dunlin_batch_price known[MAX_PRICES]; /* ascending batches */
    int32_t n_known;
} pricer;

/* Plans one step; `*out_trainer` is the caller's, if not NULL. A batch of which more would have to
 * be summed than the step can does not fit either. */
static dunlin_status plan_batch(const dunlin_net *net, const dunlin_trainer_options *options,
                                bool is_trial, dunlin_trainer **out_trainer, bool *out_fits,
                                dunlin_error *error)
{
    *out_trainer = NULL;
    *out_fits = false;
    DUNLIN_TRY(dunlin__trainer_make(options, out_trainer, error));
    (*out_trainer)->is_trial = is_trial;
    const dunlin_status status = dunlin__trainer_plan(*out_trainer, net, error);
    *out_fits = status == DUNLIN_OK;
    if (status == DUNLIN_BUDGET || status == DUNLIN_OVERFLOW) {
        dunlin__error_clear(error);
        return DUNLIN_OK;
    }
    return status;
}

/* A batch that does not fit after all costs infinitely much. */
static dunlin_status find_price(const pricer *at, int64_t batch, dunlin_batch_price *out,
                                dunlin_error *error)
{
    dunlin_trainer_options one = at->options;
    dunlin_trainer *trainer = NULL;
    bool fits = false;
    one.batch = batch;
    *out = (dunlin_batch_price){.batch = batch, .example_ms = (double)INFINITY};
    const dunlin_status status = plan_batch(at->net, &one, false, &trainer, &fits, error);
    if (fits) {
        const dunlin_plan *plan = trainer->train.plan;
        dunlin_plan_account account;
        dunlin__plan_account(&trainer->train.lowered.graph, plan, &account);
        out->example_ms = (double)plan->cost_ns * 1e-6 / (double)batch;
        out->recompute_share =
            plan->cost_ns > 0 ? (double)account.recompute_ns / (double)plan->cost_ns : 0.0;
        for (uint32_t i = 0; i < plan->n_loops; i++) {
            const int64_t slice = (int64_t)plan->loops[i].slice_samples;
            out->micro_batch = slice > out->micro_batch ? slice : out->micro_batch;
        }
    }
    dunlin_trainer_destroy(trainer);
    return status;
}

static bool is_known(const pricer *at, int64_t batch)
{
    for (int32_t i = 0; i < at->n_known; i++) {
        if (at->known[i].batch == batch) {
            return true;
        }
    }
    return false;
}

static dunlin_status ask(pricer *at, int64_t batch, dunlin_error *error)
{
    if (at->n_known == MAX_PRICES || is_known(at, batch)) {
        return DUNLIN_OK;
    }
    dunlin_batch_price made;
    DUNLIN_TRY(find_price(at, batch, &made, error));
    int32_t i = at->n_known;
    for (; i > 0 && at->known[i - 1].batch > batch; i--) {
        at->known[i] = at->known[i - 1];
    }
    at->known[i] = made;
    at->n_known++;
    return DUNLIN_OK;
}

static dunlin_status ask_grid(pricer *at, dunlin_error *error)
{
    for (int64_t batch = 1; batch < at->most; batch *= batch < COARSE ? 2 : 32) {
        DUNLIN_TRY(ask(at, batch, error));
    }
    for (int64_t batch = 1; at->most <= DENSE && batch < at->most; batch++) {
        DUNLIN_TRY(ask(at, batch, error));
    }
    return ask(at, at->most, error);
}

static int32_t find_fastest(const pricer *at)
{
    int32_t best = 0;
    for (int32_t i = 1; i < at->n_known; i++) {
        if (at->known[i].example_ms < at->known[best].example_ms) {
            best = i;
        }
    }
    return best;
}

static int64_t middle(int64_t low, int64_t high)
{
    return (int64_t)sqrt((double)low * (double)high);
}

/* The fastest of the grid may have a faster neighbour. */
static dunlin_status look_beside_fastest(pricer *at, dunlin_error *error)
{
    for (int32_t round = 0; round < BASE_ROUNDS; round++) {
        const int32_t best = find_fastest(at);
        const int64_t batch = at->known[best].batch;
        const int64_t below = best > 0 ? at->known[best - 1].batch : batch;
        const int64_t above = best + 1 < at->n_known ? at->known[best + 1].batch : batch;
        DUNLIN_TRY(ask(at, middle(below, batch), error));
        DUNLIN_TRY(ask(at, middle(batch, above), error));
    }
    return DUNLIN_OK;
}

/* The largest known batch within the ratio: the fastest always is. */
static int32_t find_capped(const pricer *at, double ratio)
{
    const double cap = ratio * at->known[find_fastest(at)].example_ms;
    int32_t found = at->n_known - 1;
    while (found > 0 && !(at->known[found].example_ms <= cap)) {
        found--;
    }
    return found;
}

/* The next batch to look at, 0: none. First between the answer so far and the next known one, which
 * is too slow; then a little above it, where plans may be cheaper again. */
static int64_t next_to_ask(const pricer *at, double ratio)
{
    const int32_t found = find_capped(at, ratio);
    const int64_t low = at->known[found].batch;
    if (found == at->n_known - 1 || at->n_known == MAX_PRICES) {
        return 0;
    }
    const int64_t high = at->known[found + 1].batch;
    if (high - low > 1 + low / FINE) {
        return low + (high - low) / 2;
    }
    for (int64_t part = 32; part >= 4; part /= 2) {
        const int64_t beyond = low + (low + part - 1) / part;
        if (beyond < at->most && !is_known(at, beyond)) {
            return beyond;
        }
    }
    return 0;
}

static dunlin_status search(pricer *at, double ratio, dunlin_batch_fit *fit, dunlin_error *error)
{
    if (isinf(ratio)) {
        DUNLIN_TRY(ask(at, at->most, error));
    } else {
        DUNLIN_TRY(ask_grid(at, error));
        DUNLIN_TRY(look_beside_fastest(at, error));
    }
    for (int64_t next = next_to_ask(at, ratio); next > 0; next = next_to_ask(at, ratio)) {
        DUNLIN_TRY(ask(at, next, error));
    }
    fit->capped = at->known[find_capped(at, ratio)];
    fit->fastest = at->known[find_fastest(at)];
    fit->any = at->known[at->n_known - 1];
    return DUNLIN_OK;
}

dunlin_status dunlin__batch_fits(const dunlin_net *net, const dunlin_trainer_options *options,
                                 uint64_t budget_bytes, int64_t batch, bool is_trial,
                                 bool *out_fits, dunlin_error *error)
{
    dunlin_trainer_options within = *options;
    dunlin_trainer *trainer = NULL;
    within.batch = batch;
    within.budget_bytes = budget_bytes;
    within.least_budget_bytes = 0; /* as for its price */
    within.cache_dir = NULL;
    const dunlin_status status = plan_batch(net, &within, is_trial, &trainer, out_fits, error);
    dunlin_trainer_destroy(trainer);
    return status;
}

dunlin_status dunlin__batch_price(const dunlin_net *net, const dunlin_trainer_options *options,
                                  double ratio, int64_t any, dunlin_batch_fit *fit,
                                  dunlin_error *error)
{
    pricer at = {.net = net, .options = *options};
    const dunlin_batch_price none = {.batch = 0};
    fit->capped = none;
    fit->any = none;
    fit->fastest = none;
    if (any == 0) {
        return DUNLIN_OK;
    }
    at.most = any < DUNLIN_TRAINER_MAX_BATCH ? any : DUNLIN_TRAINER_MAX_BATCH;
    at.options.budget_bytes = fit->budget_bytes;
    at.options.least_budget_bytes = 0; /* no plans for other budgets are wanted, */
    at.options.cache_dir = NULL;       /* and none of these is kept */
    DUNLIN_TRY(search(&at, ratio, fit, error));
    if (any == INT64_MAX) {
        fit->capped.batch = fit->capped.batch == at.most ? INT64_MAX : fit->capped.batch;
        fit->any.batch = INT64_MAX;
    }
    return DUNLIN_OK;
}

/*
 * max_batch.c - the largest batch that fits a budget, or each of several, in whichever form of the
 * training graph needs less; what that costs is batch_price.c's.
 *
 * Invariant: the least budget is taken to grow with the batch; each answer's own least was computed
 * and fits. It grows nearly along a line, so the next batch to ask about is interpolated, and
 * halved towards every third time; what is known from one budget narrows the search for the next.
 * The least is that of the planner's fixed attempts, and a search within the budget may find what
 * takes less: so batches above what was found are then planned, until one that is near has no plan.
 */
#include "batch_price.h"
#include "budget.h"
#include "forms.h"
#include "prepare.h"
#include "step/context/context.h"
#include "step/context/options.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <math.h>

#define MAX_BATCH DUNLIN_TRAINER_MAX_BATCH
#define MAX_PROBES 128
#define CHUNK 16     /* budgets of one search */
#define ONE_BY_ONE 8 /* above the last that fits */
#define NEAR 16 /* how near above an answer a batch without a plan is found: to its 16th part */

typedef struct {
    int64_t batch;
    uint64_t least_bytes; /* UINT64_MAX: the sizes do not even fit into 64 bits */
} probe;

typedef struct {
    dunlin_trainer_options options; /* as the library sees them */
    dunlin_trainer *trainers[2]; /* one a form; the second NULL until it is known that there are two
                                  */
    const dunlin_net *net;
    probe probes[MAX_PROBES]; /* ascending batches */
    int32_t n_probes;
    bool is_unbounded_from; /* any batch fits `unbounded_bytes` */
    uint64_t unbounded_bytes;
    uint64_t least_bytes; /* with which one example fits */
} searcher;

static void remember(searcher *search, probe made)
{
    int32_t at = search->n_probes;
    if (at == MAX_PROBES) {
        return;
    }
    for (; at > 0 && search->probes[at - 1].batch > made.batch; at--) {
        search->probes[at] = search->probes[at - 1];
    }
    search->probes[at] = made;
    search->n_probes++;
}

/* The least budget for a batch in one form, of graphs made for the batch if that makes a
 * difference. */
static dunlin_status find_least_in(const searcher *search, dunlin_trainer *trainer, int64_t batch,
                                   uint64_t *out_bytes, dunlin_error *error)
{
    const bool is_other = trainer->options.batch != batch;
    if (trainer->train.step == NULL || (is_other && trainer->train.step->follows_batch)) {
        dunlin__trainer_unprepare(trainer);
        trainer->options.batch = batch;
        trainer->counter.peak_bytes = trainer->counter.now_bytes;
        DUNLIN_TRY(dunlin__trainer_prepare(trainer, search->net, error));
    }
    return dunlin__trainer_least_budget(trainer, batch, out_bytes, error);
}

static dunlin_status make_in(searcher *search, dunlin_step_form form, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__trainer_make(&search->options, &search->trainers[form], error));
    search->trainers[form]->form = form;
    search->trainers[form]->is_form_fixed = true;
    return DUNLIN_OK;
}

/* The smaller least of both forms. */
static dunlin_status find_least(searcher *search, int64_t batch, uint64_t *out_bytes,
                                dunlin_error *error)
{
    dunlin_trainer *first = search->trainers[DUNLIN_FORM_TERMS];
    DUNLIN_TRY(find_least_in(search, first, batch, out_bytes, error));
    if (!first->train.step->reads_terms) {
        return DUNLIN_OK;
    }
    uint64_t bytes = 0;
    if (search->trainers[DUNLIN_FORM_SUMS] == NULL) {
        DUNLIN_TRY(make_in(search, DUNLIN_FORM_SUMS, error));
    }
    DUNLIN_TRY(find_least_in(search, search->trainers[DUNLIN_FORM_SUMS], batch, &bytes, error));
    *out_bytes = bytes < *out_bytes ? bytes : *out_bytes;
    return DUNLIN_OK;
}

static dunlin_status ask(searcher *search, int64_t batch, probe *out_probe, dunlin_error *error)
{
    *out_probe = (probe){.batch = batch, .least_bytes = UINT64_MAX};
    const dunlin_status status = find_least(search, batch, &out_probe->least_bytes, error);
    if (status == DUNLIN_OVERFLOW) {
        dunlin__error_clear(error);
        out_probe->least_bytes = UINT64_MAX;
    } else if (status != DUNLIN_OK) {
        return status;
    }
    remember(search, *out_probe);
    return DUNLIN_OK;
}

/* Where a line through both leaves the budget; without an upper end, a little further. */
static int64_t interpolate(const probe *low, const probe *high, uint64_t budget)
{
    const double bytes = (double)high->least_bytes - (double)low->least_bytes;
    const double share = bytes > 0.0 ? ((double)budget - (double)low->least_bytes) / bytes : 0.5;
    const double at = (double)low->batch + share * (double)(high->batch - low->batch);
    return at < 1.0 ? 1 : at < (double)MAX_BATCH ? (int64_t)at : MAX_BATCH;
}

/* The first batch that is known, or found, not to fit; MAX_BATCH + 1 if all fit. */
static dunlin_status find_upper(searcher *search, uint64_t budget, probe *low, probe *out_high,
                                dunlin_error *error)
{
    for (int32_t i = 0; i < search->n_probes; i++) {
        const probe *known = &search->probes[i];
        if (known->least_bytes > budget) {
            *out_high = *known;
            return DUNLIN_OK;
        }
        *low = *known;
    }
    probe before = search->probes[0];
    while (low->batch < MAX_BATCH) {
        int64_t next = 2 * low->batch;
        if (before.batch < low->batch) {
            const int64_t guess = interpolate(&before, low, budget);
            const int64_t beyond = guess + guess / 32 + 1;
            next = beyond > next ? beyond : next;
        }
        probe made;
        DUNLIN_TRY(ask(search, next < MAX_BATCH ? next : MAX_BATCH, &made, error));
        if (made.least_bytes > budget) {
            *out_high = made;
            return DUNLIN_OK;
        }
        before = *low;
        *low = made;
    }
    *out_high = (probe){.batch = MAX_BATCH + 1, .least_bytes = UINT64_MAX};
    return DUNLIN_OK;
}

/* By the fixed attempts alone; 1 where they take more. */
static dunlin_status find_batch(searcher *search, uint64_t budget, int64_t *out_batch,
                                dunlin_error *error)
{
    probe low = search->probes[0];
    probe high;
    *out_batch = 1;
    if (low.least_bytes > budget) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(find_upper(search, budget, &low, &high, error));
    for (int32_t i = 0; high.batch - low.batch > 1; i++) {
        int64_t next = low.batch + (high.batch - low.batch) / 2;
        if (i % 3 != 2 && high.least_bytes != UINT64_MAX) {
            next = interpolate(&low, &high, budget);
            next = next > low.batch ? next : low.batch + 1;
            next = next < high.batch ? next : high.batch - 1;
        }
        probe made;
        DUNLIN_TRY(ask(search, next, &made, error));
        if (made.least_bytes <= budget) {
            low = made;
        } else {
            high = made;
        }
    }
    *out_batch = low.batch;
    return DUNLIN_OK;
}

/* A larger batch by trials: first far above *in_out_low, and if that fits, the largest there is:
 * where examples are taken in slices, what holds that holds any. Else twice as far each time until
 * one does not fit, then nearer and nearer; *out_high: the nearest that was tried in vain. */
static dunlin_status try_beyond(const searcher *search, uint64_t budget, int64_t step,
                                int64_t *in_out_low, int64_t *out_high, dunlin_error *error)
{
    int64_t low = *in_out_low;
    int64_t high = MAX_BATCH + 1;
    bool is_doubling = true;
    while (high - low > 1 + low / NEAR) {
        bool fits = false;
        const bool is_most = low > *in_out_low && high > MAX_BATCH;
        step = step < high - low ? step : high - low - 1;
        const int64_t next = is_most ? MAX_BATCH : low + step;
        DUNLIN_TRY(
            dunlin__batch_fits(search->net, &search->options, budget, next, true, &fits, error));
        if (fits) {
            low = next;
            step = is_doubling ? 2 * step : step;
        } else {
            high = next;
            is_doubling = is_most;
            step = is_most ? step : step > ONE_BY_ONE ? step / 4 : step - 1;
        }
    }
    *in_out_low = low;
    *out_high = high;
    return DUNLIN_OK;
}

/* From a batch that has a plan within the budget to a larger one, until one that is at most a part
 * in NEAR above it has none: mostly the first that is asked for. What fits beyond one that does not
 * may be missed. */
static dunlin_status extend(const searcher *search, uint64_t budget, int64_t *in_out_batch,
                            dunlin_error *error)
{
    int64_t low = *in_out_batch;
    int64_t high = low + 1 + low / NEAR;
    while (low < MAX_BATCH && high <= MAX_BATCH) {
        bool fits = false;
        DUNLIN_TRY(
            dunlin__batch_fits(search->net, &search->options, budget, high, false, &fits, error));
        if (!fits) {
            break;
        }
        low = high;
        DUNLIN_TRY(try_beyond(search, budget, low / 4 + 2, &low, &high, error));
    }
    *in_out_batch = low < MAX_BATCH ? low : INT64_MAX;
    return DUNLIN_OK;
}

/* Starts with what one sample takes, and with what any number does where slices can be made. */
static dunlin_status start(searcher *search, dunlin_error *error)
{
    probe made;
    DUNLIN_TRY(ask(search, 1, &made, error));
    search->least_bytes = made.least_bytes;
    if (dunlin__budget_is_used(&search->options)) {
        DUNLIN_TRY(
            dunlin__batch_least(search->net, &search->options, 1, &search->least_bytes, error));
    }
    /* The largest batch there is costs what two slices cost, if the policy makes any; and with
     * regions in slices of a sample everything may be recomputed from the examples. */
    const dunlin_status status = find_least(search, MAX_BATCH, &search->unbounded_bytes, error);
    if (status == DUNLIN_OVERFLOW) {
        dunlin__error_clear(error);
        return DUNLIN_OK;
    }
    search->is_unbounded_from = status == DUNLIN_OK;
    return status;
}

static dunlin_status answer(searcher *search, const uint64_t *budgets, int32_t n,
                            int64_t *out_batches, dunlin_error *error)
{
    DUNLIN_TRY(start(search, error));
    for (int32_t i = 0; i < n; i++) {
        if (budgets[i] == 0 ||
            (search->is_unbounded_from && search->unbounded_bytes <= budgets[i])) {
            out_batches[i] = INT64_MAX;
            continue;
        }
        if (budgets[i] < search->least_bytes) {
            out_batches[i] = 0;
            continue;
        }
        DUNLIN_TRY(find_batch(search, budgets[i], &out_batches[i], error));
        if (dunlin__budget_is_used(&search->options)) {
            DUNLIN_TRY(extend(search, budgets[i], &out_batches[i], error));
        }
    }
    return DUNLIN_OK;
}

static dunlin_status find_all(const dunlin_model *model, const dunlin_trainer_options *options,
                              const uint64_t *budgets, int32_t n, int64_t *out_batches,
                              uint64_t *out_least_bytes, dunlin_error *error)
{
    searcher search = {.net = &model->net};
    DUNLIN_TRY(dunlin__trainer_take_options(options, &search.options, error));
    search.options.least_budget_bytes = 0; /* no plans for other budgets are wanted */
    DUNLIN_TRY(make_in(&search, DUNLIN_FORM_TERMS, error));
    const dunlin_status status = answer(&search, budgets, n, out_batches, error);
    *out_least_bytes = search.least_bytes;
    dunlin_trainer_destroy(search.trainers[DUNLIN_FORM_TERMS]);
    dunlin_trainer_destroy(search.trainers[DUNLIN_FORM_SUMS]);
    if (status == DUNLIN_OK) {
        dunlin__error_clear(error);
    }
    return status;
}

/* Prices of what was found; with any price the batches alone are asked for. */
static dunlin_status price_all(const dunlin_model *model, const dunlin_trainer_options *options,
                               const uint64_t *budgets, int32_t n, int64_t *batches,
                               dunlin_error *error)
{
    dunlin_trainer_options taken;
    DUNLIN_TRY(dunlin__trainer_take_options(options, &taken, error));
    for (int32_t i = 0; i < n && !isinf(taken.max_ratio); i++) {
        dunlin_batch_fit fit = {.budget_bytes = budgets[i]};
        DUNLIN_TRY(
            dunlin__batch_price(&model->net, &taken, taken.max_ratio, batches[i], &fit, error));
        batches[i] = fit.capped.batch;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_max_batches(const dunlin_model *model,
                                         const dunlin_trainer_options *options,
                                         const uint64_t *budgets, int32_t n, int64_t *out_batches,
                                         uint64_t *out_least_bytes, dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    if (model == NULL || n < 0 || (n > 0 && (budgets == NULL || out_batches == NULL))) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "n is %d and must be 0 or more, or model or one of the arrays is NULL",
                            (int)n);
    }
    uint64_t least = 0;
    dunlin_status status = find_all(model, options, budgets, n, out_batches, &least, error);
    if (status == DUNLIN_OK) {
        status = price_all(model, options, budgets, n, out_batches, error);
    }
    if (out_least_bytes != NULL) {
        *out_least_bytes = least;
    }
    return status;
}

dunlin_status dunlin_trainer_price_batches(const dunlin_model *model,
                                           const dunlin_trainer_options *options,
                                           const uint64_t *budgets, int32_t n,
                                           dunlin_batch_fit *out_fits, uint64_t *out_least_bytes,
                                           dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    if (model == NULL || n < 0 || (n > 0 && (budgets == NULL || out_fits == NULL))) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "n is %d and must be 0 or more, or model or one of the arrays is NULL",
                            (int)n);
    }
    dunlin_trainer_options taken;
    uint64_t least = 0;
    DUNLIN_TRY(dunlin__trainer_take_options(options, &taken, error));
    for (int32_t first = 0; first < n || first == 0; first += CHUNK) {
        int64_t batches[CHUNK] = {0};
        const int32_t n_here = n - first < CHUNK ? n - first : CHUNK;
        DUNLIN_TRY(find_all(model, options, budgets == NULL ? NULL : budgets + first, n_here,
                            batches, &least, error));
        for (int32_t i = 0; i < n_here; i++) {
            dunlin_batch_fit *fit = &out_fits[first + i];
            fit->budget_bytes = budgets[first + i];
            DUNLIN_TRY(
                dunlin__batch_price(&model->net, &taken, taken.max_ratio, batches[i], fit, error));
        }
    }
    if (out_least_bytes != NULL) {
        *out_least_bytes = least;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_max_batch(const dunlin_model *model,
                                       const dunlin_trainer_options *options, int64_t *out_batch,
                                       bool *out_is_unbounded, dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    if (model == NULL || out_batch == NULL || out_is_unbounded == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0, "%s is NULL",
                            model == NULL       ? "model"
                            : out_batch == NULL ? "out_batch"
                                                : "out_is_unbounded");
    }
    *out_batch = 0;
    *out_is_unbounded = false;
    const uint64_t budget = options == NULL ? 0 : options->budget_bytes;
    int64_t batch = 0;
    uint64_t least = 0;
    DUNLIN_TRY(find_all(model, options, &budget, 1, &batch, &least, error));
    if (batch == 0) {
        return dunlin__fail_budget(error, "trainer", budget, least);
    }
    DUNLIN_TRY(price_all(model, options, &budget, 1, &batch, error));
    *out_is_unbounded = batch > MAX_BATCH;
    *out_batch = *out_is_unbounded ? MAX_BATCH : batch;
    return DUNLIN_OK;
}

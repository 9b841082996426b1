/*
 * pld.c - epsilon of rounds composed, by the distribution of the privacy loss.
 *
 * Invariant: whatever was cut, wrapped round or rounded makes the upper epsilon larger and the
 * lower one smaller.
 */
#include "pld.h"

#include "fourier.h"
#include "tilt.h"

#include <mem/support.h>

#include <float.h>
#include <math.h>

#define MOST_LOG2 20u
#define COARSE 4096.0 /* points of the losses that the first window is found on */
#define BEGIN 16384.0 /* points of the first window; the next one has four times as many */
#define ROUNDING 0x1p-53

/* One direction and one bound of it: what is composed, and the grid that it is composed on. */
typedef struct composition {
    const dunlin__pld_rounds *kinds;
    size_t n;
    double delta;
    double reach;
    dunlin__loss_direction direction;
    bool is_upper;
    const dunlin_alloc *alloc;
    dunlin__loss losses[DUNLIN_PLD_KINDS];
    uint64_t times[DUNLIN_PLD_KINDS];
    dunlin__tilt tilt;
} composition;

/* The tilted mass of the sum: that of the loss (first + k) interval at [2 k]. */
typedef struct composed {
    double *values;
    size_t n;
    int64_t first;
    double interval;
    double error; /* in the sum of magnitudes */
} composed;

static dunlin__loss_round round_of(const composition *all, size_t k)
{
    return (dunlin__loss_round){.noise = all->kinds[k].noise,
                                .rate = all->kinds[k].rate,
                                .reach = all->reach,
                                .direction = all->direction};
}

static void losses_free(composition *all)
{
    for (size_t k = 0; k < all->n; k++) {
        dunlin__loss_free(&all->losses[k], all->alloc);
    }
}

static dunlin_status losses_make(composition *all, double interval, dunlin_error *error)
{
    for (size_t k = 0; k < all->n; k++) {
        const dunlin__loss_round round = round_of(all, k);
        all->times[k] = all->kinds[k].n_rounds;
        const dunlin_status status =
            all->is_upper
                ? dunlin__loss_upper(&all->losses[k], &round, interval, all->alloc, error)
                : dunlin__loss_lower(&all->losses[k], &round, interval, all->alloc, error);
        if (status != DUNLIN_OK) {
            losses_free(all);
            return status;
        }
    }
    const dunlin__loss_sum sum = {.losses = all->losses, .times = all->times, .n = all->n};
    all->tilt = dunlin__tilt_find(&sum, all->delta);
    return DUNLIN_OK;
}

/* values *= (the transform of one round's tilted mass)^times. Gives the error that this adds, in
 * the Euclidean norm of the product; `scratch` has the room of `values`. */
static double multiply(const composition *all, size_t k, const dunlin__fourier *fourier,
                       double *scratch, double *values)
{
    const dunlin__loss *loss = &all->losses[k];
    const size_t n = fourier->n;
    const double times = (double)all->times[k];
    const double step = all->tilt.power * loss->interval;
    const double log_sum = dunlin__loss_moment(loss, all->tilt.power, NULL, NULL);
    for (size_t i = 0; i < 2 * n; i++) {
        scratch[i] = 0;
    }
    for (size_t i = 0; i < loss->n; i++) {
        const int64_t place = loss->first + (int64_t)i;
        if (loss->mass[i] > 0) {
            scratch[2 * ((uint64_t)place & (n - 1))] +=
                exp(log(loss->mass[i]) + (double)place * step - log_sum);
        }
    }
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        squares += scratch[2 * i] * scratch[2 * i];
    }
    dunlin__fourier_run(fourier, scratch, false);
    for (size_t i = 0; i < n; i++) {
        const double length = hypot(scratch[2 * i], scratch[2 * i + 1]);
        const double angle = atan2(scratch[2 * i + 1], scratch[2 * i]) * times;
        const double power = length > 0 ? exp(times * log(length)) : 0;
        const double re = power * cos(angle);
        const double im = power * sin(angle);
        const double before = values[2 * i];
        values[2 * i] = before * re - values[2 * i + 1] * im;
        values[2 * i + 1] = before * im + values[2 * i + 1] * re;
    }
    /* The masses themselves are off by some 1e-13 (loss.c, exp, log): that times the rounds too. */
    const double own = 7 * (double)fourier->log2_n * ROUNDING + 1e-13;
    return times * own * sqrt((double)n * squares);
}

/* The sum's tilted mass in the window, on n = 2^log2_n points. */
static dunlin_status compose(const composition *all, uint32_t log2_n, composed *out_sum,
                             dunlin_error *error)
{
    dunlin__fourier fourier;
    DUNLIN_TRY(dunlin__fourier_make(&fourier, log2_n, all->alloc, error));
    const size_t n = fourier.n;
    const double interval = all->losses[0].interval;
    double *scratch = dunlin__alloc_array(all->alloc, 2 * n, sizeof(double));
    *out_sum = (composed){.n = n,
                          .interval = interval,
                          .values = dunlin__alloc_zeroed(all->alloc, 2 * n, sizeof(double))};
    if (scratch == NULL || out_sum->values == NULL) {
        dunlin__free_array(all->alloc, scratch, 2 * n, sizeof(double));
        dunlin__free_array(all->alloc, out_sum->values, 2 * n, sizeof(double));
        dunlin__fourier_free(&fourier, all->alloc);
        *out_sum = (composed){0};
        return dunlin__fail(error, DUNLIN_MEMORY, "privacy", 0,
                            "no memory for %zu composed privacy losses", n);
    }
    for (size_t i = 0; i < n; i++) {
        out_sum->values[2 * i] = 1;
    }
    double times = 0;
    for (size_t k = 0; k < all->n; k++) {
        out_sum->error += multiply(all, k, &fourier, scratch, out_sum->values);
        times += (double)all->times[k];
    }
    double squares = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        squares += out_sum->values[i] * out_sum->values[i];
    }
    dunlin__fourier_run(&fourier, out_sum->values, true);
    /* In place order from the window's first point on. */
    out_sum->first = (int64_t)floor(all->tilt.low / interval);
    for (size_t i = 0; i < n; i++) {
        scratch[2 * i] =
            out_sum->values[2 * ((uint64_t)(out_sum->first + (int64_t)i) & (n - 1))] / (double)n;
    }
    double *ordered = scratch;
    scratch = out_sum->values;
    out_sum->values = ordered;
    out_sum->error +=
        (16 * times + 7 * (double)log2_n) * ROUNDING * sqrt(squares) + 2 * all->tilt.outside;
    dunlin__free_array(all->alloc, scratch, 2 * n, sizeof(double));
    dunlin__fourier_free(&fourier, all->alloc);
    return DUNLIN_OK;
}

/* The bound of delta at epsilon. */
static double delta_at(const composition *all, const composed *sum, double epsilon)
{
    const double t = all->tilt.power;
    const double from = epsilon / sum->interval - (double)sum->first;
    size_t i = from < 0 ? 0 : (size_t)fmin(floor(from) + 1, (double)sum->n);
    double total = 0;
    /* The factors by steps, and afresh every so often. */
    const double tilted_step = exp(-t * sum->interval);
    const double step = exp(-sum->interval);
    while (i < sum->n) {
        const double v = (double)(sum->first + (int64_t)i) * sum->interval - epsilon;
        double tilted = exp(-t * v);
        double plain = exp(-v);
        if (tilted <= 0) {
            break;
        }
        const size_t end = sum->n - i < 256 ? sum->n : i + 256;
        for (; i < end; i++) {
            const double value = sum->values[2 * i];
            total += value * tilted * (1 - plain);
            tilted *= tilted_step;
            plain *= step;
        }
    }
    const double error = sum->error * exp(dunlin__tilt_weight(t)) + 1e-12 * fabs(total);
    const double scale = exp(all->tilt.log_moment - t * epsilon);
    if (!all->is_upper) {
        return total > error ? (total - error) * scale : 0;
    }
    double infinite = 0;
    for (size_t k = 0; k < all->n; k++) {
        infinite += (double)all->times[k] * all->losses[k].infinite;
    }
    return (fmax(total, 0) + error) * scale + infinite;
}

/* The point at which delta's bound passes the wanted one, between `low`, where it is above, and
 * `high`, to 1e-9: the end that proves the bound. */
static double bisect(const composition *all, const composed *sum, double low, double high)
{
    while (high - low > 1e-9 * high) {
        const double middle = low + (high - low) / 2;
        if (delta_at(all, sum, middle) > all->delta) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return all->is_upper ? high : low;
}

static double solve_upper(const composition *all, const composed *sum)
{
    if (delta_at(all, sum, 0) <= all->delta) {
        return 0;
    }
    double low = 0;
    double high = fmax(all->tilt.high, 1);
    while (delta_at(all, sum, high) > all->delta) {
        low = high;
        high *= 2;
    }
    return bisect(all, sum, low, high);
}

/* Far below the outcomes that are looked at, the lower bound of delta is 0: so from `above`
 * downward, in steps that grow. */
static double solve_lower(const composition *all, const composed *sum, double above)
{
    double high = above;
    double step = DUNLIN_PLD_WIDTH / 8;
    while (step < above) {
        const double low = above - step;
        if (delta_at(all, sum, low) > all->delta) {
            return bisect(all, sum, low, high);
        }
        high = low;
        step *= 1.25;
    }
    return 0;
}

/* The largest of the kinds' ranges of losses. */
static double widest_range(const composition *all)
{
    double widest = 0;
    for (size_t k = 0; k < all->n; k++) {
        const dunlin__loss_round round = round_of(all, k);
        double least = 0;
        double most = 0;
        dunlin__loss_range(&round, &least, &most);
        widest = fmax(widest, most - least);
    }
    return widest;
}

/* One bound of epsilon in one direction on a grid of this interval; for the lower one *out_epsilon
 * comes as the upper one. *out_n is how many points the window has. LIMIT if they are too many. */
static dunlin_status bound_epsilon(composition *all, double interval, double *out_n,
                                   double *out_epsilon, dunlin_error *error)
{
    DUNLIN_TRY(losses_make(all, interval, error));
    const double n_points = (all->tilt.high - all->tilt.low) / interval + 2;
    uint32_t log2_n = 1;
    while (log2_n <= MOST_LOG2 && ldexp(1, (int)log2_n) < n_points) {
        log2_n++;
    }
    *out_n = n_points;
    composed sum = {0};
    dunlin_status status = DUNLIN_OK;
    if (log2_n > MOST_LOG2) {
        status = dunlin__fail(error, DUNLIN_LIMIT, "privacy", 0,
                              "composed privacy losses on %.0f points are above the limit of %u",
                              n_points, 1u << MOST_LOG2);
    } else {
        status = compose(all, log2_n, &sum, error);
    }
    if (status == DUNLIN_OK) {
        *out_epsilon =
            all->is_upper ? solve_upper(all, &sum) : solve_lower(all, &sum, *out_epsilon);
        dunlin__free_array(all->alloc, sum.values, 2 * sum.n, sizeof(double));
    }
    losses_free(all);
    return status;
}

/* The larger of both directions; *out_epsilon as above. */
static dunlin_status bound_both(composition *all, double interval, bool is_upper, double *out_n,
                                double *out_epsilon, dunlin_error *error)
{
    bool is_sampled = false;
    for (size_t k = 0; k < all->n; k++) {
        is_sampled = is_sampled || all->kinds[k].rate < 1;
    }
    all->is_upper = is_upper;
    all->direction = DUNLIN_LOSS_REMOVE;
    const double upper = *out_epsilon;
    DUNLIN_TRY(bound_epsilon(all, interval, out_n, out_epsilon, error));
    if (is_sampled) { /* else the directions are the same */
        double other = upper;
        double other_n = 0;
        all->direction = DUNLIN_LOSS_ADD;
        DUNLIN_TRY(bound_epsilon(all, interval, &other_n, &other, error));
        *out_epsilon = fmax(*out_epsilon, other);
        *out_n = fmax(*out_n, other_n);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__pld_epsilon(const dunlin__pld_rounds *kinds, size_t n, double delta,
                                  bool wants_lower, const dunlin_alloc *alloc,
                                  dunlin__pld_bracket *out_epsilon, dunlin_error *error)
{
    *out_epsilon = (dunlin__pld_bracket){0};
    if (n == 0 || n > DUNLIN_PLD_KINDS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "privacy", 0,
                            "%zu kinds of rounds, where 1 to %u can be composed", n,
                            DUNLIN_PLD_KINDS);
    }
    double times = 0;
    for (size_t k = 0; k < n; k++) {
        times += (double)kinds[k].n_rounds;
    }
    composition all = {.kinds = kinds, .n = n, .delta = delta, .alloc = alloc, .is_upper = true};
    /* What is cut, times the rounds, is below 1e-9 of delta. */
    all.reach = sqrt(2 * log(1e9 * times / delta));
    const double least = widest_range(&all) / (DUNLIN_LOSS_POINTS - 16);
    double n_points = 0;
    double interval = fmax(widest_range(&all) / COARSE, least);
    DUNLIN_TRY(losses_make(&all, interval, error));
    interval = (all.tilt.high - all.tilt.low) / BEGIN;
    losses_free(&all);
    interval = fmax(interval, least);
    double before = HUGE_VAL;
    while (true) {
        double upper = 0;
        DUNLIN_TRY(bound_both(&all, interval, true, &n_points, &upper, error));
        out_epsilon->upper = upper;
        bool is_near = before - upper <= DUNLIN_PLD_WIDTH / 2;
        before = upper;
        if (wants_lower) {
            out_epsilon->lower = upper;
            DUNLIN_TRY(bound_both(&all, interval, false, &n_points, &out_epsilon->lower, error));
            is_near = upper - out_epsilon->lower <= DUNLIN_PLD_WIDTH;
        }
        if (is_near || interval / 4 < least || n_points * 4 > ldexp(1, MOST_LOG2)) {
            return DUNLIN_OK;
        }
        interval /= 4;
    }
}

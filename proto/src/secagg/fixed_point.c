/*
 * fixed_point.c - values as whole numbers of a ring, rounded at random, and means of their sums.
 *
 * Invariant: |element| <= value_limit. A product that rounds up is below the limit, whose fraction
 * is 0, so no rounding passes it.
 */
#include <mem/support.h>
#include <wire/fixed_point.h>
#include <wire/secagg_noise.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Draws of 32 bits that are made at a time. */
#define DRAWS 256u

/* sqrt(2 ln(1 / beta)), beta = 2^-8: the chance that roundings are too long. */
#define SPREAD 3.3302184446307908

static dunlin_status begin_draws(dunlin__fixed_point *fixed, dunlin_error *error)
{
    const uint8_t counter[DUNLIN_AES_BLOCK_BYTES] = {0};
    fixed->n_clipped = 0;
    fixed->n_values = 0;
    fixed->squares = 0;
    return dunlin__ctr_begin(&fixed->draws, fixed->key, counter, error);
}

dunlin_status dunlin__fixed_point_begin(const dunlin__secagg_plan *plan, uint32_t weight,
                                        dunlin__fixed_point *out_fixed, dunlin_error *error)
{
    if (weight < 1 || weight > plan->weight_limit) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "weight is %u, allowed are 1 to weight_limit, %u", weight,
                            plan->weight_limit);
    }
    *out_fixed = (dunlin__fixed_point){
        .clip = (double)plan->clip,
        .factor = (double)plan->value_limit / (double)plan->clip *
                  ((double)weight / (double)plan->weight_limit),
    };
    DUNLIN_TRY(dunlin__random_bytes(out_fixed->key, sizeof(out_fixed->key), error));
    return begin_draws(out_fixed, error);
}

dunlin_status dunlin__fixed_point_again(dunlin__fixed_point *fixed, dunlin_error *error)
{
    dunlin__ctr_end(&fixed->draws);
    return begin_draws(fixed, error);
}

double dunlin__fixed_point_length(const dunlin__secagg_plan *plan)
{
    /* The root of c^2 + n / 4 + spread (c + sqrt(n) / 2) = value_limit^2. */
    const double n = (double)plan->n_values;
    const double most = (double)plan->value_limit;
    const double square = SPREAD * SPREAD / 4 + most * most - n / 4 - SPREAD / 2 * sqrt(n);
    const double steps = square > 0 ? sqrt(square) - SPREAD / 2 : 0;
    return steps > 0 ? steps / most * (double)plan->clip : 0;
}

bool dunlin__fixed_point_is_within(const dunlin__fixed_point *fixed,
                                   const dunlin__secagg_plan *plan)
{
    return fixed->squares <= (uint64_t)plan->value_limit * plan->value_limit;
}

static void add_square(dunlin__fixed_point *fixed, int64_t number)
{
    const uint64_t square = (uint64_t)(number * number); /* below 2^62 */
    fixed->squares = square > UINT64_MAX - fixed->squares ? UINT64_MAX : fixed->squares + square;
}

/* Up with the chance of the fraction; draw / 2^32 is uniform in [0, 1). */
static int64_t round_at_random(double exact, uint32_t draw)
{
    const double below = floor(exact);
    const bool is_up = (exact - below) * 4294967296.0 > (double)draw;
    return (int64_t)below + (is_up ? 1 : 0);
}

static dunlin_status quantise_some(dunlin__fixed_point *fixed, const float *values, size_t n,
                                   uint32_t *out_elements, dunlin_error *error)
{
    uint32_t draws[DRAWS];
    DUNLIN_TRY(
        dunlin__ctr_next(&fixed->draws, NULL, n * sizeof(draws[0]), (uint8_t *)draws, error));
    for (size_t i = 0; i < n; i++) {
        double value = (double)values[i];
        if (!isfinite(value)) {
            return dunlin__fail(error, DUNLIN_NUMERIC, "secagg", 0,
                                "value %" PRIu64 " of the update is not finite",
                                fixed->n_values + i);
        }
        const bool is_clipped = value > fixed->clip || value < -fixed->clip;
        fixed->n_clipped += is_clipped ? 1 : 0;
        value = is_clipped ? (value > 0 ? fixed->clip : -fixed->clip) : value;
        const int64_t number = round_at_random(value * fixed->factor, draws[i]);
        add_square(fixed, number);
        out_elements[i] = (uint32_t)number;
    }
    fixed->n_values += n;
    return DUNLIN_OK;
}

dunlin_status dunlin__fixed_point_next(dunlin__fixed_point *fixed, const float *values, size_t n,
                                       uint32_t *out_elements, dunlin_error *error)
{
    for (size_t at = 0; at < n; at += DRAWS) {
        const size_t part = n - at < DRAWS ? n - at : DRAWS;
        DUNLIN_TRY(quantise_some(fixed, values + at, part, out_elements + at, error));
    }
    return DUNLIN_OK;
}

void dunlin__fixed_point_end(dunlin__fixed_point *fixed)
{
    dunlin__ctr_end(&fixed->draws);
    dunlin__wipe(fixed->key, sizeof(fixed->key));
}

dunlin_status dunlin__fixed_point_mean(const dunlin__secagg_plan *plan, const uint32_t *elements,
                                       size_t n, uint32_t weights, uint32_t n_devices,
                                       double *out_mean, dunlin_error *error)
{
    const uint64_t most_weights = (uint64_t)n_devices * plan->weight_limit;
    const int64_t most =
        (int64_t)n_devices * (int64_t)plan->value_limit + (int64_t)dunlin__secagg_noise_reach(plan);
    if (weights < n_devices || weights > most_weights) {
        return dunlin__fail(error, DUNLIN_DATA, "secagg", 0,
                            "the weights of %u devices add up to %u, allowed are %u to %llu",
                            n_devices, weights, n_devices, (unsigned long long)most_weights);
    }
    const double factor = (double)plan->clip / (double)plan->value_limit *
                          ((double)plan->weight_limit / (double)weights);
    for (size_t i = 0; i < n; i++) {
        const int64_t sum = dunlin__ring_signed(elements[i], plan->ring_bits);
        if (sum > most || sum < -most) {
            return dunlin__fail(error, DUNLIN_DATA, "secagg", 0,
                                "an element of the sum of %u devices is %lld, at most %lld",
                                n_devices, (long long)sum, (long long)most);
        }
        out_mean[i] = (double)sum * factor;
    }
    return DUNLIN_OK;
}

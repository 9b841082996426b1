/*
 * terms.c - the terms of a secure aggregation: whether they go together, and their digest.
 */
#include <mem/support.h>
#include <wire/fixed_point.h>
#include <wire/secagg_noise.h>

#include <string.h>

#define TERMS_TAG "dunlin.v1.secagg.terms"

static dunlin_status check_neighbours(const dunlin__secagg_plan *plan, dunlin_error *error)
{
    if (plan->n_neighbours < 2 || plan->n_neighbours > DUNLIN_SECAGG_NEIGHBOURS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "n_neighbours is %u, allowed are 2 to %u", plan->n_neighbours,
                            DUNLIN_SECAGG_NEIGHBOURS);
    }
    if (plan->n_neighbours % 2 != 0 && plan->n_neighbours + 1 < plan->n_cohort) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "n_neighbours is %u, an odd number below n_cohort less 1, %u",
                            plan->n_neighbours, plan->n_cohort - 1);
    }
    if (plan->threshold <= plan->n_neighbours / 2 || plan->threshold > plan->n_neighbours) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "threshold is %u, allowed are %u to %u for %u neighbours",
                            plan->threshold, plan->n_neighbours / 2 + 1, plan->n_neighbours,
                            plan->n_neighbours);
    }
    if (plan->threshold >= plan->n_cohort) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "threshold is %u, more than the neighbours in an n_cohort of %u",
                            plan->threshold, plan->n_cohort);
    }
    return DUNLIN_OK;
}

/* Room in the ring for the sum of all devices. Factors are below 2^31 and 2^17. */
static dunlin_status check_room(const dunlin__secagg_plan *plan, dunlin_error *error)
{
    const uint64_t reach = dunlin__secagg_noise_reach(plan);
    const uint64_t values = (uint64_t)plan->n_cohort * plan->value_limit + reach;
    const uint64_t weights = (uint64_t)plan->n_cohort * plan->weight_limit;
    if (plan->value_limit < 1 || values >= UINT64_C(1) << (plan->ring_bits - 1)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "value_limit %u of %u devices does not fit below 2^%u%s",
                            plan->value_limit, plan->n_cohort, plan->ring_bits - 1,
                            reach > 0 ? " beside their noise" : "");
    }
    if (plan->weight_limit < 1 || weights >= UINT64_C(1) << plan->ring_bits) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "weight_limit %u of %u devices does not fit below 2^%u",
                            plan->weight_limit, plan->n_cohort, plan->ring_bits);
    }
    return DUNLIN_OK;
}

/* The noise of version 2, and none of it in version 1. */
static dunlin_status check_noise(const dunlin__secagg_plan *plan, dunlin_error *error)
{
    const bool has_noise = plan->noise_kind != DUNLIN_V1_SECAGG_NOISE_NONE;
    if (has_noise != (plan->version == 2) || (!has_noise && plan->noise_scale != 0) ||
        (!has_noise && plan->least_honest != 0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "noise_kind is %u, noise_scale %u and least_honest %u in version %u, "
                            "where version 2 alone has noise",
                            (unsigned)plan->noise_kind, plan->noise_scale, plan->least_honest,
                            plan->version);
    }
    if (!has_noise) {
        return DUNLIN_OK;
    }
    if (plan->noise_kind != DUNLIN_V1_SECAGG_NOISE_GAUSSIAN &&
        plan->noise_kind != DUNLIN_V1_SECAGG_NOISE_SKELLAM) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "noise_kind is %u, understood are 1 and 2", (unsigned)plan->noise_kind);
    }
    const uint32_t most = dunlin__secagg_scale_most(plan->noise_kind);
    if (plan->noise_scale < DUNLIN_SECAGG_SCALE_LEAST || plan->noise_scale > most) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "noise_scale is %u whole numbers, allowed are %u to %u",
                            plan->noise_scale, DUNLIN_SECAGG_SCALE_LEAST, most);
    }
    if (plan->least_honest < 1 || plan->least_honest > plan->least_devices) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "least_honest is %u, allowed are 1 to least_devices, %u",
                            plan->least_honest, plan->least_devices);
    }
    if (plan->weight_limit != 1) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "weight_limit is %u, with noise each device counts once",
                            plan->weight_limit);
    }
    if (!(dunlin__fixed_point_length(plan) >= 0.5 * (double)plan->clip)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "value_limit %u is too coarse for %llu values: rounding them would "
                            "take more than half of the clip",
                            plan->value_limit, (unsigned long long)plan->n_values);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_check(const dunlin__secagg_plan *plan, dunlin_error *error)
{
    if (plan->version < 1 || plan->version > 2) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "version of secure aggregation is %u, understood are 1 and 2",
                            plan->version);
    }
    if (plan->session.size < 16 || plan->session.size > sizeof(plan->session.bytes)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "session has %u bytes, allowed are 16 to %zu",
                            (unsigned)plan->session.size, sizeof(plan->session.bytes));
    }
    if (plan->ring_bits < 8 || plan->ring_bits > 32) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "ring_bits is %u, allowed are 8 to 32", plan->ring_bits);
    }
    if (plan->n_cohort < 3 || plan->n_cohort > DUNLIN_WIRE_SECAGG_COHORT) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "n_cohort is %u, allowed are 3 to %u", plan->n_cohort,
                            DUNLIN_WIRE_SECAGG_COHORT);
    }
    if (plan->least_devices < 2 || plan->least_devices > plan->n_cohort) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "least_devices is %u, allowed are 2 to n_cohort, %u",
                            plan->least_devices, plan->n_cohort);
    }
    if (plan->n_values < 1 || plan->n_values > DUNLIN_WIRE_SECAGG_VALUES) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "n_values is %llu, allowed are 1 to 2^36",
                            (unsigned long long)plan->n_values);
    }
    if (!(plan->clip >= 1e-30f && plan->clip <= 1e30f)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "clip is %g, allowed are 1e-30 to 1e30", (double)plan->clip);
    }
    DUNLIN_TRY(check_neighbours(plan, error));
    DUNLIN_TRY(check_room(plan, error));
    return check_noise(plan, error);
}

static size_t put_number(uint8_t *out_bytes, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++) {
        out_bytes[i] = (uint8_t)(value >> (56 - 8 * i));
    }
    return 8;
}

dunlin_status dunlin__secagg_digest(const dunlin__secagg_plan *plan,
                                    uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    uint32_t clip_bits = 0;
    memcpy(&clip_bits, &plan->clip, sizeof(clip_bits));
    const uint64_t numbers[] = {plan->version,
                                plan->n_cohort,
                                plan->n_neighbours,
                                plan->threshold,
                                plan->least_devices,
                                plan->ring_bits,
                                plan->n_values,
                                clip_bits,
                                plan->value_limit,
                                plan->weight_limit,
                                plan->check_consistency ? 1 : 0};
    const uint64_t noise[] = {(uint64_t)plan->noise_kind, plan->noise_scale, plan->least_honest};
    uint8_t bytes[sizeof(TERMS_TAG) + sizeof(numbers) + sizeof(noise) + sizeof(uint64_t) +
                  sizeof(plan->session.bytes)];
    size_t n = sizeof(TERMS_TAG) - 1;
    memcpy(bytes, TERMS_TAG, n);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        n += put_number(bytes + n, numbers[i]);
    }
    for (size_t i = 0; plan->version >= 2 && i < sizeof(noise) / sizeof(noise[0]); i++) {
        n += put_number(bytes + n, noise[i]);
    }
    n += put_number(bytes + n, plan->session.size);
    memcpy(bytes + n, plan->session.bytes, plan->session.size);
    return dunlin__sha256_of(bytes, n + plan->session.size, out_sha256, error);
}

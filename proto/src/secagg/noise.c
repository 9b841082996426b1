/*
 * noise.c - the random bits of a device's noise, and draws of the discrete Gaussian, exact in
 * numbers of 64 bits.
 *
 * Invariant: with a scale s of at most 2^24 and draws below 2^31, a square is below 2^62 and a
 * divisor 2 s^2 k below 2^63 while k is below 2^13, which a draw passes with a chance of 1 /
 * (2^13)!
 */
#include "noise_draws.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <string.h>

#define MOST_SIZE ((uint64_t)1 << 31)
#define N_WORDS (sizeof(((dunlin__secagg_noise *)0)->words) / sizeof(uint64_t))

/* ---- bits ---- */

/* Fresh bits of the stream; zeros, and a status, where there are none. */
static void next_bits(dunlin__secagg_noise *noise, uint8_t *out_bytes, size_t n_bytes)
{
    const dunlin_status status =
        dunlin__ctr_next(&noise->stream, NULL, n_bytes, out_bytes, &noise->error);
    if (status != DUNLIN_OK) {
        noise->status = status;
        memset(out_bytes, 0, n_bytes);
    }
}

static uint64_t next_word(dunlin__secagg_noise *noise)
{
    if (noise->n_used == N_WORDS) {
        next_bits(noise, (uint8_t *)noise->words, sizeof(noise->words));
        noise->n_used = 0;
    }
    return noise->words[noise->n_used++];
}

const uint8_t *dunlin__noise_bytes(dunlin__secagg_noise *noise, size_t *out_n)
{
    if (noise->n_bytes_used == sizeof(noise->bytes)) {
        next_bits(noise, noise->bytes, sizeof(noise->bytes));
        noise->n_bytes_used = 0;
    }
    *out_n = sizeof(noise->bytes) - noise->n_bytes_used;
    return noise->bytes + noise->n_bytes_used;
}

uint64_t dunlin__noise_below(dunlin__secagg_noise *noise, uint64_t n)
{
    uint64_t mask = n - 1;
    for (unsigned shift = 1; shift < 64; shift *= 2) {
        mask |= mask >> shift;
    }
    uint64_t drawn = n;
    /* Without random bits the draws are of no use, but they end. */
    while (drawn >= n && noise->status == DUNLIN_OK) {
        drawn = next_word(noise) & mask;
    }
    return drawn;
}

static bool chance(dunlin__secagg_noise *noise, uint64_t a, uint64_t b)
{
    return dunlin__noise_below(noise, b) < a;
}

/* A chance of e^(-a / b), a at most b. */
static bool exponential_chance(dunlin__secagg_noise *noise, uint64_t a, uint64_t b)
{
    uint64_t k = 1;
    while (chance(noise, a, b * k)) {
        k++;
    }
    return k % 2 == 1;
}

/* ---- draws ---- */

/* A size and a sign of the discrete Laplace distribution: e^(-size / scale). */
static uint64_t draw_laplace(dunlin__secagg_noise *noise, bool *out_is_negative)
{
    const uint64_t scale = noise->scale;
    while (noise->status == DUNLIN_OK) {
        const uint64_t rest = dunlin__noise_below(noise, scale);
        if (!exponential_chance(noise, rest, scale)) {
            continue;
        }
        uint64_t n_scales = 0;
        while (exponential_chance(noise, 1, 1)) {
            n_scales++;
        }
        *out_is_negative = chance(noise, 1, 2);
        if (!*out_is_negative || rest + n_scales > 0) { /* else 0 would come twice as often */
            return rest + scale * n_scales;
        }
    }
    *out_is_negative = false;
    return 0;
}

/* A chance of e^(-(size - scale)^2 / (2 scale^2)), which makes the one distribution the other. */
static bool is_accepted(dunlin__secagg_noise *noise, uint64_t size)
{
    const uint64_t scale = noise->scale;
    const uint64_t distance = size > scale ? size - scale : scale - size;
    const uint64_t divisor = 2 * scale * scale;
    if (size >= MOST_SIZE) {
        return false; /* its chance is below e^-8000 */
    }
    const uint64_t square = distance * distance;
    for (uint64_t i = 0; i < square / divisor; i++) {
        if (!exponential_chance(noise, 1, 1)) {
            return false;
        }
    }
    return exponential_chance(noise, square % divisor, divisor);
}

static uint32_t draw_gaussian(dunlin__secagg_noise *noise)
{
    bool is_negative = false;
    uint64_t size = 0;
    do {
        size = draw_laplace(noise, &is_negative);
    } while (noise->status == DUNLIN_OK && !is_accepted(noise, size));
    return is_negative ? 0u - (uint32_t)size : (uint32_t)size;
}

dunlin_status dunlin__secagg_noise_begin(const dunlin__secagg_plan *plan,
                                         dunlin__secagg_noise *out_noise, dunlin_error *error)
{
    uint8_t key[DUNLIN_AES256_BYTES];
    const uint8_t counter[DUNLIN_AES_BLOCK_BYTES] = {0};
    *out_noise = (dunlin__secagg_noise){.kind = plan->noise_kind,
                                        .scale = plan->noise_scale,
                                        .n_used = N_WORDS,
                                        .n_bytes_used = sizeof(out_noise->bytes)};
    if (plan->noise_kind == DUNLIN_V1_SECAGG_NOISE_SKELLAM) {
        dunlin__poisson_make((uint64_t)plan->noise_scale * plan->noise_scale, &out_noise->poisson);
    }
    DUNLIN_TRY(dunlin__random_bytes(key, sizeof(key), error));
    const dunlin_status status = dunlin__ctr_begin(&out_noise->stream, key, counter, error);
    dunlin__wipe(key, sizeof(key));
    return status;
}

dunlin_status dunlin__secagg_noise_add(dunlin__secagg_noise *noise, uint32_t *elements, size_t n,
                                       dunlin_error *error)
{
    const bool is_skellam = noise->kind == DUNLIN_V1_SECAGG_NOISE_SKELLAM;
    for (size_t i = 0; i < n && noise->status == DUNLIN_OK; i++) {
        elements[i] += is_skellam ? dunlin__skellam_draw(noise) : draw_gaussian(noise);
    }
    return noise->status == DUNLIN_OK
               ? DUNLIN_OK
               : dunlin__fail(error, noise->status, "secagg", 0, "no random bits for noise: %.120s",
                              noise->error.text);
}

void dunlin__secagg_noise_end(dunlin__secagg_noise *noise)
{
    dunlin__ctr_end(&noise->stream);
    dunlin__wipe(noise->words, sizeof(noise->words));
    dunlin__wipe(noise->bytes, sizeof(noise->bytes));
}

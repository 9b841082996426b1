/*
 * skellam.c - draws of Poisson numbers, and differences of two, exact in numbers of 64 bits.
 *
 * A number x is proposed and kept with its chance in units of that of the mode m, which is a
 * product of fractions: of mean / j for j above m up to x, or of j / mean for j above x up to m.
 * Each fraction is one trial, so nothing is rounded, and no factorial is ever known. Around the
 * mode all numbers are proposed alike; beyond that middle a fraction is at most the first one
 * there, so numbers are proposed by a geometric distribution of that ratio, and kept with the
 * middle's product and what is left of the fractions (von Neumann 1951 rejection; envelopes of this
 * form: Devroye 1986, "Non-Uniform Random Variate Generation", chapter X.3).
 *
 * Invariant: numerators and denominators of chances are below 2^55, times 256 below 2^63, while
 * squares are at most 2^40 and numbers below 2^53, which one passes with a chance below e^-(2^30).
 */
#include "noise_draws.h"

/* ---- trials ---- */

/* Trials for which the chances that they fail become smaller: of trial i it is numerator(i) over
 * denominator(i), both of which go down by a step. */
typedef struct trials {
    uint64_t n;
    uint64_t numerator, denominator; /* of the first */
    uint64_t numerator_step, denominator_step;
} trials;

static uint8_t take_byte(dunlin__secagg_noise *noise)
{
    size_t n = 0;
    const uint8_t byte = *dunlin__noise_bytes(noise, &n);
    noise->n_bytes_used++;
    return byte;
}

/* Whether a random number in [0, 1), whose first digit to the base 256 is known, is below a / b. */
static bool is_below(dunlin__secagg_noise *noise, uint8_t digit, uint64_t a, uint64_t b)
{
    for (;;) {
        const uint64_t wanted = 256 * a / b;
        a = 256 * a % b;
        if (digit != wanted || a == 0) {
            return digit < wanted;
        }
        digit = take_byte(noise);
    }
}

static bool is_chance(dunlin__secagg_noise *noise, uint64_t a, uint64_t b)
{
    return is_below(noise, take_byte(noise), a, b);
}

/* How many trials go well, at most all. A byte decides each, unless it is below what the first
 * chance may be. */
static uint64_t count_good(dunlin__secagg_noise *noise, const trials *of)
{
    const uint64_t edge = (256 * of->numerator + of->denominator - 1) / of->denominator;
    uint64_t i = 0;
    while (i < of->n) {
        size_t n_bytes = 0;
        const uint8_t *bytes = dunlin__noise_bytes(noise, &n_bytes);
        const uint64_t left = of->n - i;
        const size_t part = left < n_bytes ? (size_t)left : n_bytes;
        size_t k = 0;
        while (k < part && bytes[k] >= edge) {
            k++;
        }
        i += k;
        noise->n_bytes_used += (uint32_t)k;
        if (k < part) {
            const uint8_t digit = take_byte(noise);
            if (is_below(noise, digit, of->numerator - i * of->numerator_step,
                         of->denominator - i * of->denominator_step)) {
                return i;
            }
            i++;
        }
    }
    return i;
}

/* Whether all of n fractions come true: above / (step j) for j from last down to last - n + 1. */
static bool all_down(dunlin__secagg_noise *noise, uint64_t above, uint64_t step, uint64_t last,
                     uint64_t n)
{
    const trials of = {n, step * last - above, step * last, step, step};
    return n == 0 || count_good(noise, &of) == n;
}

/* ...(step j) / below for j from first up to first + n - 1. */
static bool all_up(dunlin__secagg_noise *noise, uint64_t below, uint64_t step, uint64_t first,
                   uint64_t n)
{
    const trials of = {n, below - step * first, below, step, 0};
    return n == 0 || count_good(noise, &of) == n;
}

/* ---- proposals ---- */

void dunlin__poisson_make(uint64_t square, dunlin__secagg_poisson *out_poisson)
{
    const uint64_t mode = square / 2;
    uint64_t width = 1; /* 1.5 deviations and a bit: any width is right, and this one quick */
    while (8 * width * width < 9 * square) {
        width++;
    }
    dunlin__secagg_poisson *of = out_poisson;
    *of = (dunlin__secagg_poisson){.square = square, .mode = mode};
    of->low = mode > width ? mode - width : 0;
    of->high = mode + width;
    /* A geometric series of the ratio mean / (high + 2), or (low - 1) / mean. */
    of->tail_high[0] = 2 * (of->high + 2);
    of->tail_high[1] = 2 * (of->high + 2) - square;
    of->n_high = (of->tail_high[0] + of->tail_high[1] - 1) / of->tail_high[1];
    if (of->low > 0) {
        of->tail_low[0] = square;
        of->tail_low[1] = square - 2 * (of->low - 1);
        of->n_low = (of->tail_low[0] + of->tail_low[1] - 1) / of->tail_low[1];
    }
}

/* Trials with a chance of a / b of each to fail, until one does. */
static uint64_t draw_geometric(dunlin__secagg_noise *noise, uint64_t a, uint64_t b)
{
    const trials of = {.n = UINT64_MAX, .numerator = a, .denominator = b};
    return count_good(noise, &of);
}

static bool propose_above(dunlin__secagg_noise *noise, uint64_t *out_number)
{
    const dunlin__secagg_poisson *of = &noise->poisson;
    const uint64_t first = of->high + 1;
    if (!is_chance(noise, of->tail_high[0], of->tail_high[1] * of->n_high)) {
        return false;
    }
    const uint64_t more = draw_geometric(noise, of->tail_high[1], of->tail_high[0]);
    *out_number = first + more;
    return all_down(noise, of->square, 2, first, first - of->mode) &&
           all_down(noise, first + 1, 1, first + more, more);
}

static bool propose_below(dunlin__secagg_noise *noise, uint64_t *out_number)
{
    const dunlin__secagg_poisson *of = &noise->poisson;
    const uint64_t first = of->low - 1;
    if (!is_chance(noise, of->tail_low[0], of->tail_low[1] * of->n_low)) {
        return false;
    }
    const uint64_t more = draw_geometric(noise, of->tail_low[1], of->tail_low[0]);
    if (more > first) {
        return false;
    }
    *out_number = first - more;
    return all_up(noise, of->square, 2, first + 1, of->mode - first) &&
           all_up(noise, first, 1, first - more + 1, more);
}

static bool propose(dunlin__secagg_noise *noise, uint64_t *out_number)
{
    const dunlin__secagg_poisson *of = &noise->poisson;
    const uint64_t n_middle = of->high - of->low + 1;
    const uint64_t place = dunlin__noise_below(noise, n_middle + of->n_low + of->n_high);
    if (place >= n_middle) {
        return place - n_middle < of->n_low ? propose_below(noise, out_number)
                                            : propose_above(noise, out_number);
    }
    *out_number = of->low + place;
    return *out_number > of->mode
               ? all_down(noise, of->square, 2, *out_number, *out_number - of->mode)
               : all_up(noise, of->square, 2, *out_number + 1, of->mode - *out_number);
}

uint64_t dunlin__poisson_draw(dunlin__secagg_noise *noise)
{
    uint64_t number = 0;
    while (!propose(noise, &number) && noise->status == DUNLIN_OK) {
    }
    return number;
}

uint32_t dunlin__skellam_draw(dunlin__secagg_noise *noise)
{
    const uint64_t one = dunlin__poisson_draw(noise);
    return (uint32_t)(one - dunlin__poisson_draw(noise));
}

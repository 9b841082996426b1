/*
 * odds.c - the tails of hypergeometric distributions, and what follows for neighbours and
 * threshold.
 *
 * Bell et al. (CCS 2020), section 3.3 and appendix. The circle is cut only where two stretches of
 * half the neighbours each are empty: one such stretch leaves a line, which is connected. Sums of
 * logarithms, whose errors are below 1e-9 for the sizes allowed.
 */
#include <mem/support.h>
#include <wire/protocol.h>
#include <wire/secagg_odds.h>

#include <math.h>

/* log2 of n over k. */
static double log_choose(uint32_t n, uint32_t k)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < k; i++) {
        sum += log2((double)(n - i)) - log2((double)(i + 1));
    }
    return sum;
}

/* log2(2^a + 2^b). */
static double add_logs(double a, double b)
{
    const double high = a > b ? a : b;
    const double low = a > b ? b : a;
    return isinf(low) ? high : high + log2(1.0 + exp2(low - high));
}

double dunlin__secagg_tail(uint32_t n_all, uint32_t n_marked, uint32_t n_drawn, uint32_t least)
{
    const uint32_t n_others = n_all - n_marked;
    const uint32_t most = n_marked < n_drawn ? n_marked : n_drawn;
    const uint32_t first = n_drawn > n_others ? n_drawn - n_others : 0;
    if (least <= first) {
        return 0.0;
    }
    if (least > most) {
        return -HUGE_VAL;
    }
    /* The chance of exactly `least`, then of one more each. */
    double term = log_choose(n_marked, least) + log_choose(n_others, n_drawn - least) -
                  log_choose(n_all, n_drawn);
    double sum = term;
    for (uint32_t i = least; i < most; i++) {
        term += log2((double)(n_marked - i)) + log2((double)(n_drawn - i)) - log2((double)(i + 1)) -
                log2((double)(n_others - (n_drawn - i) + 1));
        sum = add_logs(sum, term);
    }
    return sum < 0.0 ? sum : 0.0;
}

uint32_t dunlin__secagg_part(uint32_t n, double part)
{
    const double exact = ceil((double)n * part - 1e-9);
    return exact >= (double)n ? n : (uint32_t)exact;
}

/* Two stretches of half the neighbours without one honest device that stays. */
static double cut_chance(uint32_t n, uint32_t n_missing, uint32_t n_neighbours)
{
    const uint32_t n_empty = 2 * (n_neighbours / 2);
    if (n_neighbours + 1 >= n || n_empty > n_missing) {
        return -HUGE_VAL;
    }
    double chance = log_choose(n, 2);
    for (uint32_t i = 0; i < n_empty; i++) {
        chance += log2((double)(n_missing - i)) - log2((double)(n - i));
    }
    return chance;
}

dunlin__secagg_odds dunlin__secagg_odds_of(const dunlin__secagg_wish *wish, uint32_t n_neighbours,
                                           uint32_t threshold)
{
    const uint32_t n = wish->n_devices;
    const uint32_t n_drawn = n_neighbours < n - 1 ? n_neighbours : n - 1;
    const uint32_t n_corrupt = dunlin__secagg_part(n, wish->corrupt);
    const uint32_t n_dropped = dunlin__secagg_part(n, wish->dropout);
    const uint32_t n_missing = n_corrupt + n_dropped < n ? n_corrupt + n_dropped : n;
    const double times = log2((double)n);
    const uint32_t n_others = n - 1;
    /* Fewer than `threshold` stay: more than n_drawn - threshold drop out. */
    const uint32_t too_many = threshold > n_drawn ? 0 : n_drawn - threshold + 1;
    return (dunlin__secagg_odds){
        .hidden = times + dunlin__secagg_tail(n_others, n_corrupt < n_others ? n_corrupt : n_others,
                                              n_drawn, threshold),
        .connected = n_missing + 1 >= n ? 0.0 : cut_chance(n, n_missing, n_drawn),
        .finished =
            times + dunlin__secagg_tail(n_others, n_dropped < n_others ? n_dropped : n_others,
                                        n_drawn, too_many),
    };
}

static dunlin_status check_wish(const dunlin__secagg_wish *wish, dunlin_error *error)
{
    if (wish->n_devices < 3 || wish->n_devices > DUNLIN_WIRE_SECAGG_COHORT) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "devices is %u, allowed are 3 to %u", wish->n_devices,
                            DUNLIN_WIRE_SECAGG_COHORT);
    }
    if (!(wish->corrupt >= 0.0 && wish->corrupt < 1.0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "corrupt is %g, allowed are 0 to below 1", wish->corrupt);
    }
    if (!(wish->dropout >= 0.0 && wish->dropout < 1.0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "dropout is %g, allowed are 0 to below 1", wish->dropout);
    }
    if (!(wish->security_bits >= 1.0 && wish->security_bits <= 256.0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "security is %g bits, allowed are 1 to 256", wish->security_bits);
    }
    if (!(wish->failure_bits >= 1.0 && wish->failure_bits <= 256.0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "failure is %g bits, allowed are 1 to 256", wish->failure_bits);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_judge(const dunlin__secagg_wish *wish, uint32_t n_neighbours,
                                   uint32_t threshold, dunlin_error *error)
{
    DUNLIN_TRY(check_wish(wish, error));
    const dunlin__secagg_odds odds = dunlin__secagg_odds_of(wish, n_neighbours, threshold);
    if (add_logs(odds.hidden, odds.connected) > -wish->security_bits) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "%u neighbours and threshold %u: a secret in corrupt hands has chance "
                            "2^%.1f, a cut circle 2^%.1f, together at most 2^-%g",
                            n_neighbours, threshold, odds.hidden, odds.connected,
                            wish->security_bits);
    }
    if (odds.finished > -wish->failure_bits) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "%u neighbours and threshold %u: a round without a sum has chance "
                            "2^%.1f, at most 2^-%g",
                            n_neighbours, threshold, odds.finished, wish->failure_bits);
    }
    return DUNLIN_OK;
}

/* The thresholds that do with a number of neighbours: the chance of one evil falls with the
 * threshold, that of the other rises. False: none does. */
static bool find_thresholds(const dunlin__secagg_wish *wish, uint32_t n_neighbours,
                            dunlin__secagg_setup *out_setup)
{
    uint32_t least = n_neighbours / 2 + 1;
    uint32_t most = n_neighbours;
    while (least <= n_neighbours &&
           dunlin__secagg_judge(wish, n_neighbours, least, NULL) != DUNLIN_OK) {
        least++;
    }
    while (most > least && dunlin__secagg_judge(wish, n_neighbours, most, NULL) != DUNLIN_OK) {
        most--;
    }
    *out_setup = (dunlin__secagg_setup){.n_neighbours = n_neighbours,
                                        .least_threshold = least,
                                        .most_threshold = most,
                                        .threshold = least + (most - least + 1) / 2};
    return least <= n_neighbours;
}

dunlin_status dunlin__secagg_choose(const dunlin__secagg_wish *wish, uint32_t most_neighbours,
                                    dunlin__secagg_setup *out_setup, dunlin_error *error)
{
    DUNLIN_TRY(check_wish(wish, error));
    const uint32_t n_others = wish->n_devices - 1;
    const uint32_t most = most_neighbours < n_others ? most_neighbours : n_others;
    for (uint32_t n = 2; n <= most; n += (n + 1 == n_others) ? 1 : 2) {
        if (find_thresholds(wish, n, out_setup)) {
            return DUNLIN_OK;
        }
    }
    *out_setup = (dunlin__secagg_setup){0};
    return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                        "no number of neighbours up to %u does for %u devices, %g corrupt, %g "
                        "dropping out, 2^-%g and 2^-%g",
                        most, wish->n_devices, wish->corrupt, wish->dropout, wish->security_bits,
                        wish->failure_bits);
}

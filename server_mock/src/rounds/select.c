/*
 * select.c - what devices are worth to a round, by their reports: the arithmetic alone.
 *
 * Invariant: what is chosen follows from the numbers and the ranks, never from their order.
 */
#include "select.h"

#include <math.h>
#include <stdlib.h>

#define CUT 0.95 /* of the utility of the last that would be chosen by it alone */

bool dunlin__select_is_known(const dunlin__reported *reported)
{
    return reported->round > 0 || reported->took_ms > 0;
}

double dunlin__select_useful(const dunlin__reported *reported)
{
    return reported->n_examples * fmax(reported->loss, 0);
}

double dunlin__select_utility(const dunlin__reported *reported, uint64_t round, double unit,
                              double prefer_ms, double penalty)
{
    const double useful = dunlin__select_useful(reported);
    const double part = unit > 0 ? fmin(useful, unit) / unit : 0;
    const double last = reported->round > 0 ? (double)reported->round : 1;
    const double utility = part + sqrt(0.1 * log((double)(round > 0 ? round : 1)) / last);
    const bool is_slow = prefer_ms > 0 && reported->took_ms > prefer_ms;
    return is_slow ? utility * pow(prefer_ms / reported->took_ms, penalty) : utility;
}

static int compare_reals(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return a < b ? -1 : a > b ? 1 : 0;
}

double dunlin__select_quantile(double *values, size_t n, double share)
{
    if (n == 0) {
        return 0;
    }
    qsort(values, n, sizeof *values, compare_reals);
    const double place = ceil(share * (double)n - 1e-9);
    const size_t at = place > 1 ? (size_t)place : 1;
    return values[(at < n ? at : n) - 1];
}

double dunlin__select_paced_ms(const double *useful, size_t n, size_t window, double first_ms,
                               double step_ms, double most_ms)
{
    double paced_ms = first_ms;
    for (size_t end = 2 * window; end <= n; end++) {
        double before = 0;
        double last = 0;
        for (size_t i = 0; i < window; i++) { /* anew: a running sum would keep its rounding */
            before += useful[end - 2 * window + i];
            last += useful[end - window + i];
        }
        paced_ms += before > last ? step_ms : 0;
    }
    return fmin(paced_ms, most_ms);
}

double dunlin__select_explore(const dunlin__server_selection *terms, uint64_t round)
{
    const double before = round > 0 ? (double)(round - 1) : 0;
    return fmax(terms->explore * pow(terms->decay, before), terms->least);
}

size_t dunlin__select_n_new(double explore, size_t n_wanted, size_t n_new, size_t n_known)
{
    size_t n = (size_t)floor(explore * (double)n_wanted + 0.5);
    const size_t least = n_wanted > n_known ? n_wanted - n_known : 0;
    n = n > least ? n : least;
    return n < n_new ? n : n_new;
}

/* ---- of all, some ---- */

static int compare_ranks(const void *left, const void *right)
{
    const dunlin__select_entry *a = left;
    const dunlin__select_entry *b = right;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    return a->client_index < b->client_index ? -1 : a->client_index > b->client_index ? 1 : 0;
}

/* The greatest first. */
static int compare_keys(const void *left, const void *right)
{
    const dunlin__select_entry *a = left;
    const dunlin__select_entry *b = right;
    if (a->key != b->key) {
        return a->key > b->key ? -1 : 1;
    }
    return compare_ranks(left, right);
}

void dunlin__select_by_rank(dunlin__select_entry *entries, size_t n_entries, size_t n)
{
    if (n < n_entries) {
        qsort(entries, n_entries, sizeof *entries, compare_ranks);
    }
}

/* ln(u) / utility, for u in (0, 1): in the order of u^(1 / utility). */
static double key_of(const dunlin__select_entry *entry)
{
    const double u = ((double)(entry->rank >> 11) + 0.5) * 0x1p-53;
    return entry->utility > 0 ? log(u) / entry->utility : -HUGE_VAL;
}

void dunlin__select_by_utility(dunlin__select_entry *entries, size_t n_entries, size_t n)
{
    if (n >= n_entries || n == 0) {
        return;
    }
    for (size_t i = 0; i < n_entries; i++) {
        entries[i].key = entries[i].utility;
    }
    qsort(entries, n_entries, sizeof *entries, compare_keys);
    const double cut = CUT * entries[n - 1].utility;
    size_t n_pool = 0;
    while (n_pool < n_entries && entries[n_pool].utility >= cut) {
        entries[n_pool].key = key_of(&entries[n_pool]);
        n_pool++;
    }
    qsort(entries, n_pool, sizeof *entries, compare_keys);
}

/* ---- tiers ---- */

void dunlin__select_tiers(const double *times, size_t n, uint32_t n_tiers, double *out_ends)
{
    for (uint32_t t = 0; t < n_tiers; t++) {
        const size_t end = (size_t)(t + 1) * n / n_tiers;
        out_ends[t] = n > 0 ? times[end > 0 ? end - 1 : 0] : 0;
    }
}

uint32_t dunlin__select_tier_of(double time_ms, const double *ends, uint32_t n_tiers)
{
    uint32_t tier = 0;
    while (tier + 1 < n_tiers && time_ms > ends[tier]) {
        tier++;
    }
    return tier;
}

void dunlin__select_change_tiers(const double *losses, const bool *has_credit, uint32_t n_tiers,
                                 double *out_weights)
{
    for (uint32_t t = 0; t < n_tiers; t++) {
        uint32_t n_better = 0; /* and have credit: n - i of the i-th worst of n */
        for (uint32_t i = 0; i < n_tiers; i++) {
            const bool is_better = losses[i] < losses[t] || (losses[i] == losses[t] && i > t);
            n_better += has_credit[i] && is_better ? 1 : 0;
        }
        out_weights[t] = has_credit[t] ? (double)n_better : 0;
    }
}

uint32_t dunlin__select_draw_tier(const double *weights, uint32_t n_tiers, double draw)
{
    double sum = 0;
    for (uint32_t t = 0; t < n_tiers; t++) {
        sum += weights[t];
    }
    if (!(sum > 0)) {
        const uint32_t tier = (uint32_t)(draw * n_tiers);
        return tier < n_tiers ? tier : n_tiers - 1;
    }
    double left = draw * sum;
    for (uint32_t t = 0; t + 1 < n_tiers; t++) {
        if (left < weights[t]) {
            return t;
        }
        left -= weights[t];
    }
    return n_tiers - 1;
}

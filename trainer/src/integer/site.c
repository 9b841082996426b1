/*
 * site.c - exponents: what a batch does to those of the next, and what a calibration does to its
 * own.
 *
 * Invariant: outside of a calibration nothing moves an exponent while a batch runs; a site's
 * exponent is never below that of its sum, so sums are shifted down and never up.
 */
#include "site.h"

#include <math.h>

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t limited(int32_t exponent)
{
    return most(least(exponent, DUNLIN_SITE_MAX_EXPONENT), -DUNLIN_SITE_MAX_EXPONENT);
}

int32_t dunlin__site_sum_exponent(const dunlin_integer_site *sites, const dunlin_integer_link *link)
{
    const int32_t a = link->rule == DUNLIN_RULE_QUANTISED ? 0 : sites[link->a].exponent;
    const int32_t b = link->b == DUNLIN_STEP_NONE ? 0 : sites[link->b].exponent;
    switch (link->rule) {
    case DUNLIN_RULE_PRODUCT:
        return limited(a + b + link->offset);
    case DUNLIN_RULE_ALIGNED:
        return most(a, b);
    case DUNLIN_RULE_QUANTISED:
    case DUNLIN_RULE_WIDEST:
        break;
    }
    return sites[link->site].exponent;
}

int32_t dunlin__site_shift_for(int64_t largest)
{
    int32_t bits = 0; /* the least with largest <= 2^bits */
    while (bits < 62 && largest > (INT64_C(1) << bits)) {
        bits++;
    }
    return most(bits - DUNLIN_SITE_BITS, 0);
}

int32_t dunlin__site_exponent_for(float largest)
{
    int bits = 0;
    if (!(largest > 0.0F)) {
        return DUNLIN_SITE_ZERO;
    }
    /* largest = fraction * 2^bits, fraction in [0.5, 1) */
    const double fraction = frexp((double)largest, &bits);
    return limited((fraction > 0.5 ? bits : bits - 1) - DUNLIN_SITE_BITS);
}

static int32_t widest(const dunlin_integer_site *sites, const dunlin_integer_link *link)
{
    const int32_t a = sites[link->a].exponent;
    const int32_t b = link->b == DUNLIN_STEP_NONE ? a : sites[link->b].exponent;
    return limited(most(a, b) + link->offset);
}

void dunlin__site_follow(const dunlin_kernel_call *call, dunlin_integer_site *sites,
                         const dunlin_integer_link *link)
{
    if (call->run->is_calibrating) {
        sites[link->site].exponent = widest(sites, link);
        sites[link->site].is_known = 1;
    }
}

static int32_t shift_of(const dunlin_site_output *output)
{
    const dunlin_integer_site *site = &output->sites[output->link->site];
    const int32_t shift = site->is_known != 0 ? site->exponent - output->sum_exponent : 0;
    return least(most(shift, 0), DUNLIN_SITE_MAX_SHIFT);
}

dunlin_site_output dunlin__site_open(const dunlin_kernel_call *call,
                                     const dunlin_integer_link *link, int32_t sites_operand,
                                     int32_t counts_operand)
{
    dunlin_site_output output = {
        .sites = call->operands[sites_operand], .link = link, .call = call};
    if (counts_operand >= 0) {
        output.counts = call->operands[counts_operand];
    }
    output.sum_exponent = dunlin__site_sum_exponent(output.sites, link);
    output.shift = shift_of(&output);
    return output;
}

bool dunlin__site_close(dunlin_site_output *output, int64_t largest, int64_t n_clipped)
{
    dunlin_integer_site *site = &output->sites[output->link->site];
    if (output->call->run->is_calibrating) {
        const int32_t needed = limited(output->sum_exponent + dunlin__site_shift_for(largest));
        if (site->is_known != 0 && needed <= site->exponent) {
            return false;
        }
        site->exponent = needed;
        site->is_known = 1;
        const int32_t shift = shift_of(output);
        const bool is_raised = shift != output->shift;
        output->shift = shift;
        return is_raised;
    }
    if (output->counts != NULL && (output->call->parts & DUNLIN_MEM_REDUCE) != 0) {
        dunlin_integer_count *count = &output->counts[output->link->site];
        if (output->call->is_first) {
            *count = (dunlin_integer_count){.largest = 0};
        }
        count->n_clipped += n_clipped;
        count->largest = largest > count->largest ? largest : count->largest;
    }
    return false;
}

void dunlin__sites_forget(dunlin_integer_site *sites, uint32_t first, size_t n)
{
    for (size_t i = first; i < n; i++) {
        sites[i] = (dunlin_integer_site){.n_raised = sites[i].n_raised,
                                         .n_lowered = sites[i].n_lowered,
                                         .n_clipped = sites[i].n_clipped};
    }
}

/* The exponent for the next batch, by what this one had under exponent `sum` of its sums. */
static int32_t moved(const dunlin_integer_site *site, const dunlin_integer_count *count,
                     int32_t sum)
{
    const int32_t needed = limited(sum + dunlin__site_shift_for(count->largest));
    if (needed > site->exponent) {
        return needed;
    }
    const int32_t shift = least(most(site->exponent - sum, 0), 62);
    const bool is_small = count->largest > 0 &&
                          count->largest < ((int64_t)DUNLIN_SITE_LEAST_LARGEST << least(shift, 48));
    return is_small ? site->exponent - 1 : site->exponent;
}

/* All sums' exponents are those of the batch that was, so they come first; then inputs are final
 * before what is made of them. */
void dunlin__sites_adapt(dunlin_integer_site *sites, const dunlin_integer_count *counts,
                         const dunlin_integer_link *links, size_t n_links)
{
    for (size_t i = n_links; i-- > 0;) {
        const dunlin_integer_link *link = &links[i];
        if (link->rule == DUNLIN_RULE_WIDEST) {
            continue;
        }
        dunlin_integer_site *site = &sites[link->site];
        const dunlin_integer_count *count = &counts[link->site];
        const int32_t before = site->exponent;
        site->exponent = moved(site, count, dunlin__site_sum_exponent(sites, link));
        site->n_clipped += count->n_clipped;
        site->n_raised += site->exponent > before ? 1 : 0;
        site->n_lowered += site->exponent < before ? 1 : 0;
    }
    dunlin__sites_settle(sites, links, n_links);
}

void dunlin__sites_settle(dunlin_integer_site *sites, const dunlin_integer_link *links,
                          size_t n_links)
{
    for (size_t i = 0; i < n_links; i++) {
        const dunlin_integer_link *link = &links[i];
        dunlin_integer_site *site = &sites[link->site];
        if (link->rule == DUNLIN_RULE_WIDEST) {
            site->exponent = widest(sites, link);
        } else {
            site->exponent = most(site->exponent, dunlin__site_sum_exponent(sites, link));
        }
    }
}

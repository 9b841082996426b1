/*
 * site.h - the scales of a step in integers: where they are kept, what counts during a batch, and
 * what the counts do to the scales of the next one.
 *
 * A value is q * 2^e, q in [-127, 127], with one exponent e a tensor: a *site* of the table. The
 * exponents of activations and errors are fixed before a batch begins, so every operator is a map;
 * what does not fit is clipped and counted, and the maxima move the exponents between two batches.
 * Before the first batch a calibration finds them: its examples pass one at a time, and each
 * operator raises its site to what the example needs before it writes.
 */
#ifndef DUNLIN_INTEGER_SITE_H
#define DUNLIN_INTEGER_SITE_H

#include "graph/step.h"

#define DUNLIN_SITE_BITS 7           /* of a magnitude */
#define DUNLIN_SITE_LEAST_LARGEST 48 /* below it a batch's largest q lowers its exponent by one */
#define DUNLIN_SITE_LOW_BITS 8       /* of a weight in 16 bits, below those of its exponent */
#define DUNLIN_SITE_MAX_EXPONENT 100 /* of either sign */
#define DUNLIN_SITE_MAX_SHIFT 31
/* A parameter of zeros has to begin somewhere: its first steps are up to 31 of 2^-10 long. */
#define DUNLIN_SITE_ZERO (-10)

/* Persistent, and in checkpoints (proto/FORMATS.md). */
typedef struct dunlin_integer_site {
    int32_t exponent;
    int32_t is_known;            /* 0: no calibration has seen it */
    int32_t n_raised, n_lowered; /* batches that moved it */
    int64_t n_clipped;           /* values, over all batches */
} dunlin_integer_site;
#define DUNLIN_SITE_INTS ((int64_t)(sizeof(dunlin_integer_site) / sizeof(int32_t)))

/* What one batch counts at a site: order-free, so slices change nothing. */
typedef struct dunlin_integer_count {
    int64_t n_clipped;
    int64_t largest; /* magnitude before rounding, in units of 2^(exponent of the sum) */
} dunlin_integer_count;
#define DUNLIN_COUNT_INTS ((int64_t)(sizeof(dunlin_integer_count) / sizeof(int32_t)))

/* How a site's sum gets its exponent, by which the sum is shifted down to the site's own. */
typedef enum dunlin_integer_rule {
    DUNLIN_RULE_QUANTISED = 0, /* of a float: none, the site's own is enough */
    DUNLIN_RULE_PRODUCT,       /* a + b + offset: products of two sites' values, or of one's */
    DUNLIN_RULE_ALIGNED,       /* the higher of a and b: the other one is shifted down to it */
    DUNLIN_RULE_WIDEST /* not a sum: the site's exponent is the higher of a and b, + offset */
} dunlin_integer_rule;

typedef struct dunlin_integer_link {
    dunlin_integer_rule rule;
    uint32_t site;
    uint32_t a, b; /* sites; b: DUNLIN_STEP_NONE for a product of one */
    int32_t offset;
} dunlin_integer_link;

/* The exponent of a link's sum; of QUANTISED and WIDEST the site's. */
int32_t dunlin__site_sum_exponent(const dunlin_integer_site *sites,
                                  const dunlin_integer_link *link);

/* The least shift under which a magnitude fits: ceil(log2(largest)) - 7, never below 0. Source:
 * Wang et al., "NITI" (arXiv 2009.13108). */
int32_t dunlin__site_shift_for(int64_t largest);

/* Of floats up to this magnitude: ceil(log2(largest)) - 7; of zeros alone DUNLIN_SITE_ZERO. */
int32_t dunlin__site_exponent_for(float largest);

/* What one operator needs to round its sums to a site. Made by dunlin__site_open(). */
typedef struct dunlin_site_output {
    dunlin_integer_site *sites;
    dunlin_integer_count *counts; /* NULL: nothing is counted (inference, a map part alone) */
    const dunlin_integer_link *link;
    const dunlin_kernel_call *call;
    int32_t shift; /* of the sum, 0 or more */
    int32_t sum_exponent;
} dunlin_site_output;

/* `counts_operand` below 0: there is none. */
dunlin_site_output dunlin__site_open(const dunlin_kernel_call *call,
                                     const dunlin_integer_link *link, int32_t sites_operand,
                                     int32_t counts_operand);
/*
 * After the sums were rounded by `shift`: what came of it. True: the exponent was raised (in a
 * calibration alone), and the sums must be rounded again.
 */
bool dunlin__site_close(dunlin_site_output *output, int64_t largest, int64_t n_clipped);

/* Of a WIDEST link, before anything is written at it: in a calibration its exponent follows those
 * that it is made of. */
void dunlin__site_follow(const dunlin_kernel_call *call, dunlin_integer_site *sites,
                         const dunlin_integer_link *link);

/* Forgets what calibrations have found, from site `first` on. */
void dunlin__sites_forget(dunlin_integer_site *sites, uint32_t first, size_t n);
/* After a batch: the exponents of the next one, in the order of the links. */
void dunlin__sites_adapt(dunlin_integer_site *sites, const dunlin_integer_count *counts,
                         const dunlin_integer_link *links, size_t n_links);
/* Once exponents of parameters were raised after that: none is below that of its sum. */
void dunlin__sites_settle(dunlin_integer_site *sites, const dunlin_integer_link *links,
                          size_t n_links);

#endif

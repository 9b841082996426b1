/*
 * sums.h - weighted sums of many values whose bits depend neither on order nor on grouping.
 *
 * Each weighted value is rounded to a multiple of 2^-90 by a function of itself alone and kept in
 * four limbs of 64 bits, which are added as integers: reset, then per term count() and add() block
 * by block; partial sums of other threads, processes or machines are merged; read at the end. So
 * any permutation and any partition of the terms gives the same bits (on x87, which rounds products
 * twice, they may be others than elsewhere).
 *
 * The splitting by fixed extractors is that of Demmel and Nguyen, "Fast Reproducible Floating-Point
 * Summation" (2013), and Neal, "Fast Exact Summation Using Small and Large Superaccumulators"
 * (2015). With S the exact sum of n terms the result differs from S by at most
 * 2^-53 * sum(|term|) (each product is rounded once; twice more where it is scaled)
 * + n * 2^-91 + 2^-51 * |S|.
 */
#ifndef DUNLIN_SERVER_SUMS_H
#define DUNLIN_SERVER_SUMS_H

#include <dunlin/alloc.h>

#define DUNLIN_SUMS_LIMBS 4u
#define DUNLIN_SUMS_TERMS 65536u                           /* the most that one sum takes */
#define DUNLIN_SUMS_LIMIT 158456325028528675187087900672.0 /* 2^97: a weighted value is smaller */

/* Which limbs of a chunk of values are there; what lies where the others would be is nothing. */
enum { DUNLIN_SUMS_EMPTY = 0, DUNLIN_SUMS_LOW = 1, DUNLIN_SUMS_HIGH = 2 };
#define DUNLIN_SUMS_CHUNK 512u /* values */

/*
 * Limb k of value i lies at limbs[k * stride + i] and counts multiples of 2^(51 - 47 k): in chunks
 * of level LOW the limbs 2 and 3 alone, the others being 0, in those of level HIGH all. `weight` is
 * the sum of the weights likewise. So all that there is to add of two partial sums of one level is
 * n_terms, weight and the limbs, integer by integer.
 */
typedef struct dunlin__sums {
    int64_t *limbs;
    uint8_t *levels; /* of each chunk */
    int64_t weight[DUNLIN_SUMS_LIMBS];
    size_t stride;
    size_t capacity; /* in values */
    size_t n_values;
    uint32_t n_terms;
} dunlin__sums;

/* One term's values. `values` and `origin` are of the block that is added. */
typedef struct dunlin__sums_term {
    const float *values;
    const float *origin; /* what scaling leaves where it is; NULL: zeros */
    double weight;
    double scale;         /* below 1: values are origin + scale * (value - origin) */
    uint64_t first_value; /* the number of values[0], for texts; as the next */
    int64_t client_index;
} dunlin__sums_term;

/* Room for so many sums, of no terms yet. MEMORY. Follow by dunlin__sums_free(). */
DUNLIN_NODISCARD dunlin_status dunlin__sums_make(dunlin__sums *out_sums, size_t n_values,
                                                 const dunlin_alloc *alloc, dunlin_error *error);
void dunlin__sums_free(dunlin__sums *sums, const dunlin_alloc *alloc);

/* No terms, of `n_values` sums, which is at most what there is room for. */
void dunlin__sums_reset(dunlin__sums *sums, size_t n_values);

/* One more term of this weight; its values follow, each once. OVERFLOW: there are 65,536 already;
 * NUMERIC: the weight is not above 0 and below 2^97. */
DUNLIN_NODISCARD dunlin_status dunlin__sums_count(dunlin__sums *sums, double weight,
                                                  dunlin_error *error);

/* Adds n values of a term from sum `first` on. OVERFLOW names the first weighted value that is not
 * below 2^97 in magnitude, or is none; the sums are then of no more use. */
DUNLIN_NODISCARD dunlin_status dunlin__sums_add(dunlin__sums *sums, size_t first, size_t n,
                                                const dunlin__sums_term *term, dunlin_error *error);

/* The opposite, of values that were added with the same term; the term still counts. */
DUNLIN_NODISCARD dunlin_status dunlin__sums_take_away(dunlin__sums *sums, size_t first, size_t n,
                                                      const dunlin__sums_term *term,
                                                      dunlin_error *error);

/* The highest level of any chunk; makes that of every chunk at least this one. */
uint8_t dunlin__sums_level(const dunlin__sums *sums);
void dunlin__sums_raise(dunlin__sums *sums, uint8_t level);

/* Adds the terms of `from`. MISMATCH: another number of values; OVERFLOW: too many terms together.
 * A failure changes nothing. */
DUNLIN_NODISCARD dunlin_status dunlin__sums_merge(dunlin__sums *sums, const dunlin__sums *from,
                                                  dunlin_error *error);

/* The sums as they are, n of them from `first` on; 0 is +0. */
void dunlin__sums_read(const dunlin__sums *sums, size_t first, size_t n, double *out_sums);
/* The sum of the terms' weights. */
double dunlin__sums_weight(const dunlin__sums *sums);

#endif

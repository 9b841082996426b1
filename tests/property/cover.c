/*
 * cover.c - the draw, and the product beside it.
 *
 * Invariant: what is drawn depends on the factors, the seed and the number of rows alone.
 */
#include "cover.h"

#include "random.h"

#include <string.h>

#define N_CANDIDATES 32 /* rows of which the one with most new pairs is taken */

/* Pairs that stand in a row already: of factor, value, factor, value. */
typedef struct seen_pairs {
    bool is_seen[COVER_MAX_FACTORS][COVER_MAX_VALUES][COVER_MAX_FACTORS][COVER_MAX_VALUES];
} seen_pairs;

/* Pairs of the row's value of factor `f` with those of the factors in `is_set` that are new. */
static int count_new(const seen_pairs *seen, const cover_factors *factors, const cover_row *row,
                     int f, const bool *is_set)
{
    int n = 0;
    for (int g = 0; g < factors->n; g++) {
        n += g != f && is_set[g] && !seen->is_seen[f][row->values[f]][g][row->values[g]] ? 1 : 0;
    }
    return n;
}

/* Factors in a random order; each gets the value that makes most new pairs with those before. */
static int draw_row(const seen_pairs *seen, const cover_factors *factors, uint64_t *rng,
                    cover_row *out)
{
    bool is_set[COVER_MAX_FACTORS] = {false};
    int n_new = 0;
    for (int i = 0; i < factors->n; i++) {
        int f = (int)test_random_below(rng, (uint64_t)factors->n);
        while (is_set[f]) {
            f = (f + 1) % factors->n;
        }
        const int first = (int)test_random_below(rng, (uint64_t)factors->n_values[f]);
        int best = -1;
        int taken = first;
        for (int k = 0; k < factors->n_values[f]; k++) {
            out->values[f] = (first + k) % factors->n_values[f];
            const int n = count_new(seen, factors, out, f, is_set);
            if (n > best) {
                best = n;
                taken = out->values[f];
            }
        }
        out->values[f] = taken;
        is_set[f] = true;
        n_new += best;
    }
    return n_new;
}

static void note(seen_pairs *seen, const cover_factors *factors, const cover_row *row)
{
    for (int f = 0; f < factors->n; f++) {
        for (int g = 0; g < factors->n; g++) {
            seen->is_seen[f][row->values[f]][g][row->values[g]] = true;
        }
    }
}

static int count_missing(const seen_pairs *seen, const cover_factors *factors)
{
    int n = 0;
    for (int f = 0; f < factors->n; f++) {
        for (int g = f + 1; g < factors->n; g++) {
            for (int a = 0; a < factors->n_values[f]; a++) {
                for (int b = 0; b < factors->n_values[g]; b++) {
                    n += seen->is_seen[f][a][g][b] ? 0 : 1;
                }
            }
        }
    }
    return n;
}

int cover_draw(const cover_factors *factors, uint64_t seed, int n_rows, cover_row *out_rows)
{
    static seen_pairs seen;
    uint64_t rng = seed;
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i < n_rows; i++) {
        int best = -1;
        for (int k = 0; k < N_CANDIDATES; k++) {
            cover_row row = {{0}};
            const int n = draw_row(&seen, factors, &rng, &row);
            if (n > best) {
                best = n;
                out_rows[i] = row;
            }
        }
        note(&seen, factors, &out_rows[i]);
    }
    return count_missing(&seen, factors);
}

int cover_product(const cover_factors *factors)
{
    int n = 1;
    for (int f = 0; f < factors->n; f++) {
        n *= factors->n_values[f];
    }
    return n;
}

cover_row cover_product_row(const cover_factors *factors, int index)
{
    cover_row row = {{0}};
    for (int f = 0; f < factors->n; f++) {
        row.values[f] = index % factors->n_values[f];
        index /= factors->n_values[f];
    }
    return row;
}

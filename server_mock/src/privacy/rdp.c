/*
 * rdp.c - the orders, the plain Gaussian, a fixed cohort, and the way to epsilon.
 *
 * Invariant: what is given is never below the true value, but for rounding in the last digits,
 * which the conversion adds back.
 */
#include "rdp.h"

#include <float.h>
#include <math.h>

#define N_TENTHS 97u /* 1.3 to 10.9 */
#define N_WHOLE 54u  /* 11 to 64 */

double dunlin__rdp_order(size_t i)
{
    static const double last[] = {72, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512};
    if (i == 0) {
        return 1.25;
    }
    if (i <= N_TENTHS) {
        return (double)(12 + i) / 10;
    }
    if (i <= N_TENTHS + N_WHOLE) {
        return (double)(i - N_TENTHS + 10);
    }
    return last[i - N_TENTHS - N_WHOLE - 1];
}

double dunlin__rdp_gaussian(double noise, double order)
{
    return order / (2 * noise * noise);
}

double dunlin__rdp_fixed(double noise, double share, double order)
{
    const double a = ceil(order);
    /* Without sampling, of order j: j 2^2 / (2 noise^2). */
    const double unit = 2 / (noise * noise);
    const double plain = unit * order;
    double log_choose = 0; /* of a over j */
    double largest = -HUGE_VAL;
    double sum = 0; /* of the terms, in units of e^largest */
    for (int64_t k = 1; (double)k <= a; k++) {
        const double j = (double)k;
        log_choose += log((a - j + 1) / j);
        if (j < 2) {
            continue;
        }
        double factor = log(2) + (j - 1) * unit * j;
        if (j < 3 && unit * 2 < log(2)) { /* 4 (e^x - 1) below 2 e^x */
            factor = log(4 * expm1(unit * 2));
        }
        const double term = j * log(share) + log_choose + factor;
        if (term > largest) {
            sum *= exp(largest - term);
            largest = term;
        }
        sum += exp(term - largest);
    }
    const double log_sum = largest + log(sum);
    const double log_moment = log_sum > 0 ? log_sum + log1p(exp(-log_sum)) : log1p(exp(log_sum));
    return fmin(log_moment / (a - 1), plain);
}

double dunlin__rdp_epsilon_of(const double *orders, const double *rdp, size_t n, double delta,
                              double *out_order)
{
    double best = HUGE_VAL;
    double best_order = n > 0 ? orders[0] : 0;
    for (size_t i = 0; i < n; i++) {
        const double a = orders[i];
        const double epsilon =
            rdp[i] * (1 + 1e-10) + log1p(-1 / a) - (log(delta) + log(a)) / (a - 1);
        if (epsilon < best) {
            best = epsilon;
            best_order = a;
        }
    }
    if (out_order != NULL) {
        *out_order = best_order;
    }
    return best > 0 ? best * (1 + 1e-10) : 0;
}

double dunlin__rdp_epsilon(const double rdp[DUNLIN_RDP_ORDERS], double delta, double *out_order)
{
    double orders[DUNLIN_RDP_ORDERS];
    for (size_t i = 0; i < DUNLIN_RDP_ORDERS; i++) {
        orders[i] = dunlin__rdp_order(i);
    }
    return dunlin__rdp_epsilon_of(orders, rdp, DUNLIN_RDP_ORDERS, delta, out_order);
}

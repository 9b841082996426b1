/*
 * rdp.h - what rounds cost in Renyi differential privacy, and the epsilon that this gives.
 *
 * Renyi differential privacy is that of Mironov (CSF 2017): of order a, the divergence
 * log(E[(P / Q)^a]) / (a - 1) with P / Q at outcomes of Q. Costs of one order add over rounds, also
 * where a round is chosen by what earlier ones gave. `noise` is always the standard deviation in
 * units of the sensitivity. All functions are pure and may be called from any thread; what they are
 * given has been checked (account.h).
 */
#ifndef DUNLIN_SERVER_PRIVACY_RDP_H
#define DUNLIN_SERVER_PRIVACY_RDP_H

#include <dunlin/base.h>

#include <stddef.h>
#include <stdint.h>

/* 1.25; 1.3 to 10.9 by 0.1; 11 to 64 by 1; 72, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448,
 * 512. */
#define DUNLIN_RDP_ORDERS 165u

/** @return order i of the list above, i below DUNLIN_RDP_ORDERS. */
double dunlin__rdp_order(size_t i);

/**
 * The Gaussian mechanism without sampling.
 *
 * @return order / (2 noise^2).
 */
double dunlin__rdp_gaussian(double noise, double order);

/**
 * The Gaussian mechanism over a cohort in which each device is with the chance `rate`, by itself;
 * neighbours differ by one device more or less, and the larger direction is taken (Mironov, Talwar,
 * Zhang 2019, "Renyi Differential Privacy of the Sampled Gaussian Mechanism", theorem 5). The
 * moment is integrated by the trapezoidal rule, with a relative error below 1e-11.
 *
 * @param noise from 0.05 on.
 * @param rate above 0, at most 1.
 * @param order above 1.
 */
double dunlin__rdp_sampled(double noise, double rate, double order);

/**
 * The discrete Gaussian of the parameter `variance`, moved by `shift` in one coordinate, by exact
 * sums (Canonne, Kamath, Steinke 2020, whose theorem 14 bounds it by shift^2 order / (2 variance),
 * for vectors too).
 */
double dunlin__rdp_discrete(double variance, uint64_t shift, double order);

/**
 * The same with sampling, the larger of the two directions, in one coordinate.
 *
 * @param variance at most 1e8: the sum has some 26 terms for each unit of its square root.
 */
double dunlin__rdp_discrete_sampled(double variance, uint64_t shift, double rate, double order);

/**
 * The Gaussian mechanism over a cohort of a fixed size drawn without replacement, where neighbours
 * have one device replaced: the bound of Wang, Balle, Kasiviswanathan 2019 ("Subsampled Renyi
 * Differential Privacy and Analytical Moments Accountant", theorem 9), never more than without
 * sampling. An order between two whole ones costs what the upper one does.
 *
 * @param noise in units of the clipping norm; replacing moves the sum by twice that.
 * @param share the cohort's size over the population's, above 0, at most 1.
 */
double dunlin__rdp_fixed(double noise, double share, double order);

/**
 * The least epsilon of all orders at `delta`, by the conversion of Canonne, Kamath, Steinke 2020
 * (proposition 12; Asoodeh et al. 2021 has the same form): rdp + log(1 - 1 / a) - log(a delta) / (a
 * - 1). Rounded up by 1e-10 of itself.
 *
 * @param rdp the cost of each order of the list, summed over rounds.
 * @param out_order the order that gave it; NULL is fine.
 * @return epsilon, at least 0.
 */
double dunlin__rdp_epsilon(const double rdp[DUNLIN_RDP_ORDERS], double delta, double *out_order);

/** The same for a list of orders of the caller's, n of them. */
double dunlin__rdp_epsilon_of(const double *orders, const double *rdp, size_t n, double delta,
                              double *out_order);

#endif

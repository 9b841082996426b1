/*
 * gaussian.h - the exact epsilon and delta of the Gaussian mechanism.
 */
#ifndef DUNLIN_SERVER_PRIVACY_GAUSSIAN_H
#define DUNLIN_SERVER_PRIVACY_GAUSSIAN_H

/**
 * Delta of Gaussian mechanisms without sampling, composed (Balle, Wang 2018, theorem 8).
 *
 * @param mu the square root of the sum of 1 / noise^2 over the rounds, above 0.
 */
double dunlin__gaussian_delta(double mu, double epsilon);

/** @return the least epsilon, rounded up by 1e-9 of itself, at least 0. */
double dunlin__gaussian_epsilon(double mu, double delta);

#endif

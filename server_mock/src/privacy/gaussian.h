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

/* The least deviation, in whole numbers, of discrete noise that is counted as Gaussian noise; the
 * server's has 2^29 (model/noise.c). */
#define DUNLIN_DISCRETE_STEPS 0x1p20

/**
 * Gaussian noise that discrete noise costs no more than, in any number of dimensions, with sampling
 * and over composed rounds.
 *
 * Take Gaussian noise of the variance v - 16 and draw, for each coordinate x that comes of it, a
 * whole number z with odds of e^(-(z - x)^2 / 32): what comes after the noise costs nothing, and a
 * sum of e^(-(z - x)^2 / 32) over all z depends on x by a factor of at most 1 +- 2.1 e^(-32 pi^2)
 * (Poisson's summation). So z has the probabilities of the discrete Gaussian of the parameter v
 * within factors of e^+-g, g = 4.3 e^(-32 pi^2), below 1e-136, and n draws of it within e^+-(n g).
 * Mixtures of such, as sampling makes them, are as near. With 2^36 values, 24 nodes and a million
 * rounds 2 n g is below DUNLIN_DISCRETE_GAP.
 *
 * @param noise the parameter of the discrete noise over the sensitivity, both in whole numbers.
 * @param steps that parameter, at least 5.
 * @return the deviation over the sensitivity, rounded down; to the epsilon that it gives
 *         DUNLIN_DISCRETE_GAP is to be added.
 */
double dunlin__gaussian_of_discrete(double noise, double steps);

#define DUNLIN_DISCRETE_GAP 1e-100

#endif

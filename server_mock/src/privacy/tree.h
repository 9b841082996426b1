/*
 * tree.h - what tree aggregation (DP-FTRL) costs when a device takes part more than once.
 *
 * Rounds are the leaves of a binary tree; each node holds the sum of its leaves with noise of its
 * own, and running sums are read from the nodes (Kairouz et al. 2021, "Practical and Private (Deep)
 * Learning without Sampling or Shuffling"). All nodes together are one Gaussian mechanism. A device
 * that takes part in the rounds S moves a node by at most its clipping norm times the number of
 * rounds of S under it, so the sensitivity squared is the sum of those numbers squared.
 */
#ifndef DUNLIN_SERVER_PRIVACY_TREE_H
#define DUNLIN_SERVER_PRIVACY_TREE_H

#include <stdint.h>

#define DUNLIN_TREE_ROUNDS 1000000u /* the most in one tree */

/**
 * An upper bound of the sensitivity squared, in units of the clipping norm squared: the largest for
 * each level of nodes by itself, added. It is the sensitivity itself where the separation is a
 * power of two, where each device takes part once, and in most other trees; else slightly more.
 *
 * @param n_rounds leaves of the tree, at most DUNLIN_TREE_ROUNDS; whole nodes alone are released.
 * @param separation two rounds of one device are at least so many apart, 1: any two.
 * @param most the most rounds that a device takes part in; 0: as many as the separation lets it.
 */
uint64_t dunlin__tree_sensitivity(uint64_t n_rounds, uint64_t separation, uint64_t most);

#endif

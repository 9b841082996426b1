/*
 * loss.h - the privacy loss of one round of the sampled Gaussian, on a grid.
 *
 * The loss at an outcome is log(P / Q). In the direction REMOVE P is the round with the device
 * (which is drawn with the chance `rate`) and Q the one without; ADD has them exchanged. The two
 * are composed each by itself (Zhu, Dong, Wang 2022, "Optimal Accounting of Differential Privacy
 * via Characteristic Function").
 *
 * Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 ("Connect the Dots: Tighter Discrete
 * Approximations of Privacy Loss Distributions") have the pessimistic grid: the outcomes between
 * two points of the grid are moved to these points so that the mass under P and under Q is kept,
 * which never lowers a delta, and raises it least of all grids. The optimistic one here puts
 * outcomes that lie beside each other together as soon as their common loss is that of the grid's
 * next point: tangents to the curve of delta where the other one has chords, so it never raises a
 * delta.
 */
#ifndef DUNLIN_SERVER_PRIVACY_LOSS_H
#define DUNLIN_SERVER_PRIVACY_LOSS_H

#include <dunlin/alloc.h>

#define DUNLIN_LOSS_POINTS (1u << 22) /* the most of one grid */

typedef enum dunlin__loss_direction {
    DUNLIN_LOSS_REMOVE = 0,
    DUNLIN_LOSS_ADD = 1,
} dunlin__loss_direction;

/* One round, and how far its tails are followed. */
typedef struct dunlin__loss_round {
    double noise; /* standard deviation in units of the sensitivity */
    double rate;  /* above 0, at most 1 */
    double reach; /* outcomes further than so many standard deviations from both means are cut */
    dunlin__loss_direction direction;
} dunlin__loss_round;

/* Mass on the losses (first + i) * interval, i below n. */
typedef struct dunlin__loss {
    double *mass;
    size_t n;
    int64_t first;
    double interval;
    double infinite; /* mass with an infinite loss: what was cut above; optimistic: 0 */
} dunlin__loss;

/* The least and the largest loss within the reach. */
void dunlin__loss_range(const dunlin__loss_round *round, double *out_least, double *out_most);

/* Points of a grid of this interval, at most SIZE_MAX. */
size_t dunlin__loss_points(const dunlin__loss_round *round, double interval);

/* LIMIT: more than DUNLIN_LOSS_POINTS points; MEMORY. Follow by dunlin__loss_free(). */
DUNLIN_NODISCARD dunlin_status dunlin__loss_upper(dunlin__loss *out_loss,
                                                  const dunlin__loss_round *round, double interval,
                                                  const dunlin_alloc *alloc, dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__loss_lower(dunlin__loss *out_loss,
                                                  const dunlin__loss_round *round, double interval,
                                                  const dunlin_alloc *alloc, dunlin_error *error);
void dunlin__loss_free(dunlin__loss *loss, const dunlin_alloc *alloc);

#endif

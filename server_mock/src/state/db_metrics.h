/*
 * db_metrics.h - the app's own metrics in the database: of the open round by device, of closed
 * rounds as means.
 */
#ifndef DUNLIN_SERVER_DB_METRICS_H
#define DUNLIN_SERVER_DB_METRICS_H

#include "db.h"

#define DUNLIN_SERVER_METRIC_NAMES 128u /* different ones that a round keeps */

/* Notes a contribution's metric; of a name that comes twice the first stays. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_app_metric(dunlin__server_db *db,
                                                                uint64_t round,
                                                                int64_t client_index,
                                                                const char *name, double value,
                                                                dunlin_error *error);

/* One metric of a closed round: over `n` contributions, the mean by their weights. */
typedef struct dunlin__round_metric_row {
    uint64_t round;
    char name[DUNLIN_WIRE_METRIC_BYTES];
    uint64_t n;
    double mean;
    double least;
    double most;
} dunlin__round_metric_row;

/* Makes the means of a round that closes, of the names that the most contributions have, then by
 * the alphabet. *out_n_left: so many names beyond DUNLIN_SERVER_METRIC_NAMES are left out. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_round_metrics(dunlin__server_db *db,
                                                                   uint64_t round,
                                                                   uint64_t *out_n_left,
                                                                   dunlin_error *error);

typedef dunlin_status (*dunlin__round_metric_fn)(void *ctx, const dunlin__round_metric_row *row);
/* Of all closed rounds, in their order, then by name. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_round_metric(
    dunlin__server_db *db, dunlin__round_metric_fn metric_fn, void *ctx, dunlin_error *error);

typedef dunlin_status (*dunlin__left_names_fn)(void *ctx, uint64_t round, uint64_t n_left);
/* Of the rounds that left names out. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_left_names(dunlin__server_db *db,
                                                                 dunlin__left_names_fn left_fn,
                                                                 void *ctx, dunlin_error *error);

/* One device's, in the open round. */
typedef struct dunlin__app_metric_row {
    int64_t client_index;
    char name[DUNLIN_WIRE_METRIC_BYTES];
    double value;
    double weight; /* of the contribution */
} dunlin__app_metric_row;

typedef dunlin_status (*dunlin__app_metric_fn)(void *ctx, const dunlin__app_metric_row *row);
/* Those of a round whose names have means, by device, then by name. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_app_metric(dunlin__server_db *db,
                                                                 uint64_t round,
                                                                 dunlin__app_metric_fn metric_fn,
                                                                 void *ctx, dunlin_error *error);

/* Drops what single devices said up to a round. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_prune_app_metrics(dunlin__server_db *db,
                                                                   uint64_t round,
                                                                   dunlin_error *error);

#endif

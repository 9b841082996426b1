/*
 * db_metrics.c - the rows of the app's own metrics.
 *
 * Invariant: what a single device said is there until its round has closed, no longer.
 */
#include "db_metrics.h"

#include "db_core.h"

#include <mem/support.h>

#include <stdio.h>

static void read_name(sqlite3_stmt *row, int column, char out_name[DUNLIN_WIRE_METRIC_BYTES])
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    (void)snprintf(out_name, DUNLIN_WIRE_METRIC_BYTES, "%s", text != NULL ? text : "");
}

dunlin_status dunlin__server_db_add_app_metric(dunlin__server_db *db, uint64_t round,
                                               int64_t client_index, const char *name, double value,
                                               dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_APP_METRIC_ADD, "itid", (int64_t)round, name,
                                 client_index, value);
    return dunlin__server_db_run(db, DUNLIN_SQL_APP_METRIC_ADD, error);
}

dunlin_status dunlin__server_db_add_round_metrics(dunlin__server_db *db, uint64_t round,
                                                  uint64_t *out_n_left, dunlin_error *error)
{
    int64_t most = (int64_t)DUNLIN_SERVER_METRIC_NAMES;
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_ROUND_METRICS_ADD, "ii", (int64_t)round, most);
    DUNLIN_TRY(dunlin__server_db_run(db, DUNLIN_SQL_ROUND_METRICS_ADD, error));
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_ROUND_METRICS_LEFT, "ii", (int64_t)round, most);
    DUNLIN_TRY(dunlin__server_db_run(db, DUNLIN_SQL_ROUND_METRICS_LEFT, error));
    *out_n_left = 0;
    if (sqlite3_changes(db->connection) == 0) {
        return DUNLIN_OK;
    }
    sqlite3_stmt *row =
        dunlin__server_db_bind(db, DUNLIN_SQL_ROUND_METRICS_LEFT_OF, "i", (int64_t)round);
    bool is_row = false;
    DUNLIN_TRY(dunlin__server_db_row(db, DUNLIN_SQL_ROUND_METRICS_LEFT_OF, &is_row, error));
    *out_n_left = is_row ? (uint64_t)sqlite3_column_int64(row, 0) : 0;
    dunlin__server_db_reset(db, DUNLIN_SQL_ROUND_METRICS_LEFT_OF);
    return DUNLIN_OK;
}

dunlin_status dunlin__server_db_each_round_metric(dunlin__server_db *db,
                                                  dunlin__round_metric_fn metric_fn, void *ctx,
                                                  dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_ROUND_METRICS_EACH, "");
    bool is_row = true;
    dunlin_status status = dunlin__server_db_row(db, DUNLIN_SQL_ROUND_METRICS_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        dunlin__round_metric_row metric = {.round = (uint64_t)sqlite3_column_int64(row, 0),
                                           .n = (uint64_t)sqlite3_column_int64(row, 2),
                                           .mean = sqlite3_column_double(row, 3),
                                           .least = sqlite3_column_double(row, 4),
                                           .most = sqlite3_column_double(row, 5)};
        read_name(row, 1, metric.name);
        status = metric_fn(ctx, &metric);
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_ROUND_METRICS_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_ROUND_METRICS_EACH);
    return status;
}

dunlin_status dunlin__server_db_each_left_names(dunlin__server_db *db,
                                                dunlin__left_names_fn left_fn, void *ctx,
                                                dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_ROUND_METRICS_LEFT_EACH, "");
    bool is_row = true;
    dunlin_status status =
        dunlin__server_db_row(db, DUNLIN_SQL_ROUND_METRICS_LEFT_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        status = left_fn(ctx, (uint64_t)sqlite3_column_int64(row, 0),
                         (uint64_t)sqlite3_column_int64(row, 1));
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_ROUND_METRICS_LEFT_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_ROUND_METRICS_LEFT_EACH);
    return status;
}

dunlin_status dunlin__server_db_each_app_metric(dunlin__server_db *db, uint64_t round,
                                                dunlin__app_metric_fn metric_fn, void *ctx,
                                                dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_APP_METRIC_EACH, "i", (int64_t)round);
    bool is_row = true;
    dunlin_status status = dunlin__server_db_row(db, DUNLIN_SQL_APP_METRIC_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        dunlin__app_metric_row metric = {.client_index = sqlite3_column_int64(row, 0),
                                         .value = sqlite3_column_double(row, 2),
                                         .weight = sqlite3_column_double(row, 3)};
        read_name(row, 1, metric.name);
        status = metric_fn(ctx, &metric);
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_APP_METRIC_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_APP_METRIC_EACH);
    return status;
}

dunlin_status dunlin__server_db_prune_app_metrics(dunlin__server_db *db, uint64_t round,
                                                  dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_APP_METRICS_PRUNE, "i", (int64_t)round);
    return dunlin__server_db_run(db, DUNLIN_SQL_APP_METRICS_PRUNE, error);
}

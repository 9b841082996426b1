/*
 * db_telemetry.c - the database's rows of telemetry: sums of each event.
 */
#include "db_core.h"

#include <mem/support.h>

dunlin_status dunlin__server_db_add_telemetry(dunlin__server_db *db, uint32_t event, double count,
                                              double value, bool *out_is_stored,
                                              dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_TELEMETRY_ADD, "iddi", (int64_t)event, count, value,
                                 (int64_t)DUNLIN_SERVER_EVENTS);
    DUNLIN_TRY(dunlin__server_db_run(db, DUNLIN_SQL_TELEMETRY_ADD, error));
    *out_is_stored = sqlite3_changes(db->connection) > 0;
    return DUNLIN_OK;
}

dunlin_status dunlin__server_db_each_telemetry(dunlin__server_db *db,
                                               dunlin__telemetry_fn telemetry_fn, void *ctx,
                                               dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_TELEMETRY_EACH, "");
    bool is_row = true;
    dunlin_status status = dunlin__server_db_row(db, DUNLIN_SQL_TELEMETRY_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        dunlin__telemetry_row sums = {.event = (uint32_t)sqlite3_column_int64(row, 0),
                                      .n = (uint64_t)sqlite3_column_int64(row, 1),
                                      .count_sum = sqlite3_column_double(row, 2),
                                      .value_sum = sqlite3_column_double(row, 3),
                                      .value_min = sqlite3_column_double(row, 4),
                                      .value_max = sqlite3_column_double(row, 5)};
        status = telemetry_fn(ctx, &sums);
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_TELEMETRY_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_TELEMETRY_EACH);
    return status;
}

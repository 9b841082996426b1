/*
 * db_private.c - the database's rows of private runs: what they have promised, who had work.
 */
#include "db_core.h"

#include <mem/support.h>

#include <stdio.h>

dunlin_status dunlin__server_db_get_term(dunlin__server_db *db, const char *name, char *out_value,
                                         size_t capacity, dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_TERM_GET, "t", name);
    bool is_row = false;
    out_value[0] = 0;
    DUNLIN_TRY(dunlin__server_db_row(db, DUNLIN_SQL_TERM_GET, &is_row, error));
    if (is_row) {
        (void)snprintf(out_value, capacity, "%s", (const char *)sqlite3_column_text(row, 0));
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_TERM_GET);
    return DUNLIN_OK;
}

dunlin_status dunlin__server_db_set_term(dunlin__server_db *db, const char *name, const char *value,
                                         dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_TERM_SET, "tt", name, value);
    return dunlin__server_db_run(db, DUNLIN_SQL_TERM_SET, error);
}

dunlin_status dunlin__server_db_take_part(dunlin__server_db *db, const dunlin__device_row *device,
                                          dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_DEVICE_TAKES_PART, "iii", device->row,
                                 (int64_t)device->last_round, (int64_t)device->n_rounds);
    return dunlin__server_db_run(db, DUNLIN_SQL_DEVICE_TAKES_PART, error);
}

dunlin_status dunlin__server_db_drop_contributions(dunlin__server_db *db, uint64_t round,
                                                   dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_CONTRIBUTIONS_DROP, "i", (int64_t)round);
    return dunlin__server_db_run(db, DUNLIN_SQL_CONTRIBUTIONS_DROP, error);
}

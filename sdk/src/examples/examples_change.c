/*
 * examples_change.c - what an app adds to the example store and takes out of it, and the limits.
 *
 * Invariant: after every call the examples that are not held are within the limits of number and
 * bytes, and nothing at all is older than the limit of age as of that call.
 */
#include "examples.h"
#include "store/database.h"

#include <mem/sized.h>

#include <inttypes.h>
#include <string.h>

dunlin_status dunlin__examples_expire(dunlin_examples *examples, dunlin_error *error)
{
    if (examples->max_age_ms == 0) {
        return DUNLIN_OK;
    }
    int64_t now_ms = examples->wall_ms_fn(examples->wall_ctx);
    /* The clock was set back: what seems to be of the future begins to age now. */
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_TO_PRESENT, NULL, now_ms);
    DUNLIN_TRY(dunlin__examples_do(examples, DUNLIN_EXAMPLES_TO_PRESENT, error));
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_EXPIRE, NULL,
                                now_ms - examples->max_age_ms);
    DUNLIN_TRY(dunlin__examples_do(examples, DUNLIN_EXAMPLES_EXPIRE, error));
    if (sqlite3_changes(examples->database.db) > 0) {
        atomic_fetch_add(&examples->n_changes, 1U);
    }
    return DUNLIN_OK;
}

/* The oldest goes: held if a round trains on it, else for good. */
static dunlin_status drop_oldest(dunlin_examples *examples, dunlin_error *error)
{
    bool has_row = false;
    DUNLIN_TRY(dunlin__examples_step(examples, DUNLIN_EXAMPLES_OLDEST, &has_row, error));
    int64_t id =
        has_row ? sqlite3_column_int64(examples->statements[DUNLIN_EXAMPLES_OLDEST], 0) : 0;
    dunlin__examples_leave(examples, DUNLIN_EXAMPLES_OLDEST);
    if (!has_row) {
        return dunlin__fail(error, DUNLIN_DATA, "examples", 0,
                            "the example store is damaged: its totals are above %" PRId64
                            " examples or %" PRId64 " bytes, and it has no example to remove",
                            examples->max_examples, examples->max_bytes);
    }
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_HOLD, NULL, id);
    DUNLIN_TRY(dunlin__examples_do(examples, DUNLIN_EXAMPLES_HOLD, error));
    if (sqlite3_changes(examples->database.db) > 0) {
        return DUNLIN_OK;
    }
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_DELETE, NULL, id);
    return dunlin__examples_do(examples, DUNLIN_EXAMPLES_DELETE, error);
}

static dunlin_status keep_limits(dunlin_examples *examples, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__examples_expire(examples, error));
    for (;;) {
        bool has_row = false;
        sqlite3_stmt *totals = examples->statements[DUNLIN_EXAMPLES_TOTALS];
        DUNLIN_TRY(dunlin__examples_step(examples, DUNLIN_EXAMPLES_TOTALS, &has_row, error));
        bool is_over = has_row && (sqlite3_column_int64(totals, 0) > examples->max_examples ||
                                   sqlite3_column_int64(totals, 1) > examples->max_bytes);
        dunlin__examples_leave(examples, DUNLIN_EXAMPLES_TOTALS);
        if (!is_over) {
            return DUNLIN_OK;
        }
        DUNLIN_TRY(drop_oldest(examples, error));
    }
}

static dunlin_status check_example(const dunlin_examples *examples, const dunlin_example *example,
                                   int64_t index, dunlin_error *error)
{
    const char *collection = example->collection != NULL ? example->collection : "";
    if (example->data == NULL || example->n_bytes == 0 || example->time_ms < 0 ||
        strlen(collection) > DUNLIN_EXAMPLE_NAME_CHARS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "examples", 0,
                            "example %lld has no data, a time below 0 or a collection of more "
                            "than %d characters",
                            (long long)index, DUNLIN_EXAMPLE_NAME_CHARS);
    }
    uint64_t most = DUNLIN_EXAMPLE_MAX_BYTES;
    most = (uint64_t)examples->max_bytes < most ? (uint64_t)examples->max_bytes : most;
    if (example->n_bytes > most) {
        return dunlin__fail(error, DUNLIN_LIMIT, "examples", 0,
                            "example %lld has %zu bytes, more than %llu", (long long)index,
                            example->n_bytes, (unsigned long long)most);
    }
    return DUNLIN_OK;
}

static dunlin_status add_one(dunlin_examples *examples, const dunlin_example *example,
                             int64_t *out_id, dunlin_error *error)
{
    int64_t now_ms = examples->wall_ms_fn(examples->wall_ctx);
    bool is_dated = example->time_ms > 0 && example->time_ms < now_ms;
    sqlite3_stmt *statement = dunlin__examples_bind(
        examples, DUNLIN_EXAMPLES_ADD, example->collection != NULL ? example->collection : "",
        is_dated ? example->time_ms : now_ms);
    (void)sqlite3_bind_int(statement, 3, example->label);
    (void)sqlite3_bind_int64(statement, 4, (int64_t)example->n_bytes);
    (void)sqlite3_bind_blob(statement, 5, example->data, (int)example->n_bytes, SQLITE_STATIC);
    DUNLIN_TRY(dunlin__examples_do(examples, DUNLIN_EXAMPLES_ADD, error));
    *out_id = sqlite3_last_insert_rowid(examples->database.db);
    return DUNLIN_OK;
}

static dunlin_status is_still_there(dunlin_examples *examples, int64_t id, int64_t index,
                                    dunlin_error *error)
{
    bool has_row = false;
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_IS_THERE, NULL, id);
    dunlin_status status =
        dunlin__examples_step(examples, DUNLIN_EXAMPLES_IS_THERE, &has_row, error);
    dunlin__examples_leave(examples, DUNLIN_EXAMPLES_IS_THERE);
    if (status == DUNLIN_OK && !has_row) {
        return dunlin__fail(error, DUNLIN_LIMIT, "examples", 0,
                            "example %lld is older than what the store's limits (%lld examples, "
                            "%lld bytes, %lld ms) leave",
                            (long long)index, (long long)examples->max_examples,
                            (long long)examples->max_bytes, (long long)examples->max_age_ms);
    }
    return status;
}

dunlin_status dunlin_examples_add(dunlin_examples *examples, const dunlin_example *list, int64_t n,
                                  int64_t *out_ids, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (examples == NULL || n < 0 || (n > 0 && list == NULL)) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "examples", 0,
                            "adding takes a store and n examples, not %lld", (long long)n);
    }
    for (int64_t i = 0; i < n; i++) {
        DUNLIN_TRY(check_example(examples, &list[i], i, out_error));
    }
    int64_t first = 0;
    DUNLIN_TRY(dunlin__examples_begin(examples, out_error));
    dunlin_status status = DUNLIN_OK;
    for (int64_t i = 0; status == DUNLIN_OK && i < n; i++) {
        int64_t id = 0;
        status = add_one(examples, &list[i], &id, out_error);
        first = i == 0 ? id : first;
    }
    if (status == DUNLIN_OK) {
        status = keep_limits(examples, out_error);
    }
    /* Ids follow each other: nobody else writes within the transaction. */
    for (int64_t i = 0; status == DUNLIN_OK && i < n; i++) {
        status = is_still_there(examples, first + i, i, out_error);
    }
    status = dunlin__examples_end(examples, status, out_error);
    for (int64_t i = 0; status == DUNLIN_OK && out_ids != NULL && i < n; i++) {
        out_ids[i] = first + i;
    }
    return status;
}

/* After a removal by the user: rounds look again, and what the log still has of it goes. */
static dunlin_status end_removal(dunlin_examples *examples, dunlin_status status, bool is_shrunk,
                                 dunlin_error *error)
{
    status = dunlin__examples_end(examples, status, error);
    if (status == DUNLIN_OK) {
        atomic_fetch_add(&examples->n_changes, 1U);
        (void)pthread_mutex_lock(&examples->lock);
        if (is_shrunk) {
            (void)sqlite3_exec(examples->database.db, "PRAGMA incremental_vacuum", NULL, NULL,
                               NULL);
        }
        dunlin__database_empty_log(&examples->database);
        (void)pthread_mutex_unlock(&examples->lock);
    }
    return status;
}

dunlin_status dunlin_examples_remove(dunlin_examples *examples, const int64_t *ids, int64_t n,
                                     dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (examples == NULL || n < 0 || (n > 0 && ids == NULL)) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "examples", 0,
                            "removing takes a store and n ids, not %lld", (long long)n);
    }
    DUNLIN_TRY(dunlin__examples_begin(examples, out_error));
    dunlin_status status = DUNLIN_OK;
    for (int64_t i = 0; status == DUNLIN_OK && i < n; i++) {
        (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_DELETE, NULL, ids[i]);
        status = dunlin__examples_do(examples, DUNLIN_EXAMPLES_DELETE, out_error);
    }
    return end_removal(examples, status, false, out_error);
}

dunlin_status dunlin_examples_clear(dunlin_examples *examples, const char *collection,
                                    dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (examples == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "examples", 0, "examples is NULL");
    }
    DUNLIN_TRY(dunlin__examples_begin(examples, out_error));
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_CLEAR, collection, 0);
    dunlin_status status = dunlin__examples_do(examples, DUNLIN_EXAMPLES_CLEAR, out_error);
    return end_removal(examples, status, collection == NULL, out_error);
}

dunlin_status dunlin_examples_trim(dunlin_examples *examples, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (examples == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "examples", 0, "examples is NULL");
    }
    DUNLIN_TRY(dunlin__examples_begin(examples, out_error));
    unsigned before = atomic_load(&examples->n_changes);
    dunlin_status status = keep_limits(examples, out_error);
    bool is_changed = atomic_load(&examples->n_changes) != before;
    return is_changed ? end_removal(examples, status, false, out_error)
                      : dunlin__examples_end(examples, status, out_error);
}

dunlin_status dunlin_examples_get_stats(dunlin_examples *examples, dunlin_examples_stats *out_stats,
                                        dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (examples == NULL || out_stats == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "examples", 0, "%s is NULL",
                            examples == NULL ? "examples" : "out_stats");
    }
    DUNLIN_TRY(dunlin__struct_check(out_stats, "dunlin_examples_stats", out_error));
    bool has_row = false;
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    (void)pthread_mutex_lock(&examples->lock);
    sqlite3_stmt *statement = examples->statements[DUNLIN_EXAMPLES_STATS];
    dunlin_status status =
        dunlin__examples_step(examples, DUNLIN_EXAMPLES_STATS, &has_row, out_error);
    if (has_row) {
        stats.n_examples = sqlite3_column_int64(statement, 0);
        stats.data_bytes = (uint64_t)sqlite3_column_int64(statement, 1);
        stats.n_held = sqlite3_column_int64(statement, 2);
        stats.file_bytes = (uint64_t)sqlite3_column_int64(statement, 3);
    }
    dunlin__examples_leave(examples, DUNLIN_EXAMPLES_STATS);
    (void)pthread_mutex_unlock(&examples->lock);
    dunlin__struct_give(&stats, sizeof stats, out_stats);
    return status;
}

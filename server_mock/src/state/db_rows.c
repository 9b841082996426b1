/*
 * db_rows.c - the rows of the database, in and out.
 *
 * Invariant: columns are bound and read in the order of the statements in db_core.h.
 */
#include "db_core.h"

#include <mem/support.h>

#include <string.h>

static void column_text(sqlite3_stmt *row, int column, char *out_text, size_t capacity)
{
    const unsigned char *text = sqlite3_column_text(row, column);
    size_t n_bytes = text != NULL ? (size_t)sqlite3_column_bytes(row, column) : 0;
    if (n_bytes >= capacity) {
        n_bytes = capacity - 1;
    }
    if (n_bytes > 0) {
        memcpy(out_text, text, n_bytes);
    }
    out_text[n_bytes] = 0;
}

/* False unless the column holds exactly so many bytes. */
static bool column_bytes(sqlite3_stmt *row, int column, uint8_t *out_bytes, size_t n_bytes)
{
    const void *bytes = sqlite3_column_blob(row, column);
    if (bytes == NULL || (size_t)sqlite3_column_bytes(row, column) != n_bytes) {
        return false;
    }
    memcpy(out_bytes, bytes, n_bytes);
    return true;
}

static bool column_real(sqlite3_stmt *row, int column, double *out_value)
{
    *out_value = sqlite3_column_double(row, column);
    return sqlite3_column_type(row, column) != SQLITE_NULL;
}

static void bind_real(sqlite3_stmt *row, int place, bool is_there, double value)
{
    if (is_there) {
        (void)sqlite3_bind_double(row, place, value);
    } else {
        (void)sqlite3_bind_null(row, place);
    }
}

static void bind_seed(sqlite3_stmt *row, int place, const dunlin__round_seed *seed)
{
    if (seed->is_there) {
        (void)sqlite3_bind_blob(row, place, seed->bytes, (int)sizeof seed->bytes, SQLITE_TRANSIENT);
    } else {
        (void)sqlite3_bind_null(row, place);
    }
}

static void read_seed(sqlite3_stmt *row, int column, dunlin__round_seed *out_seed)
{
    out_seed->is_there = column_bytes(row, column, out_seed->bytes, sizeof out_seed->bytes);
}

static void bind_metrics(sqlite3_stmt *row, int first, const dunlin__device_metrics *metrics)
{
    for (int i = 0; i < DUNLIN_N_METRICS; i++) {
        bind_real(row, first + i, metrics->is_there[i], metrics->values[i]);
    }
}

static void read_metrics(sqlite3_stmt *row, int first, dunlin__device_metrics *out_metrics)
{
    for (int i = 0; i < DUNLIN_N_METRICS; i++) {
        out_metrics->is_there[i] = column_real(row, first + i, &out_metrics->values[i]);
    }
}

const char *dunlin__device_metric_name(dunlin__device_metric metric)
{
    static const char *const names[] = {
#define DUNLIN_METRIC_NAME(name, text) text,
        DUNLIN_DEVICE_METRIC_MAP(DUNLIN_METRIC_NAME)
#undef DUNLIN_METRIC_NAME
    };
    return (unsigned)metric < DUNLIN_N_METRICS ? names[metric] : "";
}

dunlin_status dunlin__server_db_get(dunlin__server_db *db, const char *name, int64_t fallback,
                                    int64_t *out_value, dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_META_GET, "t", name);
    bool is_row = false;
    DUNLIN_TRY(dunlin__server_db_row(db, DUNLIN_SQL_META_GET, &is_row, error));
    *out_value = is_row ? sqlite3_column_int64(row, 0) : fallback;
    dunlin__server_db_reset(db, DUNLIN_SQL_META_GET);
    return DUNLIN_OK;
}

dunlin_status dunlin__server_db_set(dunlin__server_db *db, const char *name, int64_t value,
                                    dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_META_SET, "ti", name, value);
    return dunlin__server_db_run(db, DUNLIN_SQL_META_SET, error);
}

dunlin_status dunlin__server_db_add_device(dunlin__server_db *db, dunlin__device_row *device,
                                           dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_DEVICE_ADD, "tbi", device->id, device->public_key,
                                 (int)sizeof device->public_key, device->client_index);
    DUNLIN_TRY(dunlin__server_db_run(db, DUNLIN_SQL_DEVICE_ADD, error));
    device->row = sqlite3_last_insert_rowid(db->connection);
    return DUNLIN_OK;
}

dunlin_status dunlin__server_db_remove_device(dunlin__server_db *db, int64_t row,
                                              const char *device_id, dunlin_error *error)
{
    static const dunlin__sql by_row[] = {DUNLIN_SQL_DEVICE_SESSIONS_REMOVE,
                                         DUNLIN_SQL_DEVICE_ASSIGNMENTS_REMOVE,
                                         DUNLIN_SQL_DEVICE_REMOVE};
    for (size_t i = 0; i < sizeof by_row / sizeof by_row[0]; i++) {
        (void)dunlin__server_db_bind(db, by_row[i], "i", row);
        DUNLIN_TRY(dunlin__server_db_run(db, by_row[i], error));
    }
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_DEVICE_ANSWERS_REMOVE, "t", device_id);
    return dunlin__server_db_run(db, DUNLIN_SQL_DEVICE_ANSWERS_REMOVE, error);
}

dunlin_status dunlin__server_db_each_device(dunlin__server_db *db, dunlin__device_fn device_fn,
                                            void *ctx, dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_DEVICE_EACH, "");
    bool is_row = true;
    dunlin_status status = dunlin__server_db_row(db, DUNLIN_SQL_DEVICE_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        dunlin__device_row device = {.row = sqlite3_column_int64(row, 0),
                                     .client_index = sqlite3_column_int64(row, 3),
                                     .last_round = (uint64_t)sqlite3_column_int64(row, 4),
                                     .n_rounds = (uint64_t)sqlite3_column_int64(row, 5)};
        column_text(row, 1, device.id, sizeof device.id);
        if (!column_bytes(row, 2, device.public_key, sizeof device.public_key)) {
            status =
                dunlin__fail(error, DUNLIN_DATA, "database", 0,
                             "the state's database: device %lld has no key", (long long)device.row);
        } else {
            status = device_fn(ctx, &device);
        }
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_DEVICE_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_DEVICE_EACH);
    return status;
}

dunlin_status dunlin__server_db_add_session(dunlin__server_db *db,
                                            const dunlin__session_row *session, dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_SESSION_ADD, "tiiiiii", session->id,
                                 session->device, (int64_t)session->round, (int64_t)session->state,
                                 session->until_ms, (int64_t)session->packs,
                                 (int64_t)session->unpacks);
    return dunlin__server_db_run(db, DUNLIN_SQL_SESSION_ADD, error);
}

dunlin_status dunlin__server_db_find_session(dunlin__server_db *db, const char *id,
                                             dunlin__session_row *out_session, bool *out_is_found,
                                             dunlin_error *error)
{
    memset(out_session, 0, sizeof *out_session);
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_SESSION_FIND, "t", id);
    DUNLIN_TRY(dunlin__server_db_row(db, DUNLIN_SQL_SESSION_FIND, out_is_found, error));
    if (*out_is_found) {
        column_text(row, 0, out_session->id, sizeof out_session->id);
        out_session->device = sqlite3_column_int64(row, 1);
        out_session->round = (uint64_t)sqlite3_column_int64(row, 2);
        out_session->state = (dunlin__work_state)sqlite3_column_int(row, 3);
        out_session->until_ms = sqlite3_column_int64(row, 4);
        out_session->packs = sqlite3_column_int(row, 5) != 0;
        out_session->unpacks = sqlite3_column_int(row, 6) != 0;
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_SESSION_FIND);
    return DUNLIN_OK;
}

dunlin_status dunlin__server_db_end_session(dunlin__server_db *db, const char *id,
                                            dunlin__work_state state, dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_SESSION_END, "ti", id, (int64_t)state);
    return dunlin__server_db_run(db, DUNLIN_SQL_SESSION_END, error);
}

dunlin_status dunlin__server_db_add_assignment(dunlin__server_db *db,
                                               const dunlin__assignment_row *assignment,
                                               dunlin_error *error)
{
    const uint64_t from =
        assignment->replaces_from > 0 ? assignment->replaces_from : assignment->round;
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_ASSIGNMENT_REPLACE, "iii", assignment->device,
                                 (int64_t)from, (int64_t)assignment->round);
    DUNLIN_TRY(dunlin__server_db_run(db, DUNLIN_SQL_ASSIGNMENT_REPLACE, error));
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_ASSIGNMENT_ADD, "tiiitii", assignment->id,
                                 assignment->device, (int64_t)assignment->round,
                                 (int64_t)assignment->state, assignment->token,
                                 assignment->deadline_ms, (int64_t)assignment->packs);
    return dunlin__server_db_run(db, DUNLIN_SQL_ASSIGNMENT_ADD, error);
}

static void read_assignment(sqlite3_stmt *row, dunlin__assignment_row *out_assignment)
{
    column_text(row, 0, out_assignment->id, sizeof out_assignment->id);
    out_assignment->device = sqlite3_column_int64(row, 1);
    out_assignment->round = (uint64_t)sqlite3_column_int64(row, 2);
    out_assignment->state = (dunlin__work_state)sqlite3_column_int(row, 3);
    column_text(row, 4, out_assignment->token, sizeof out_assignment->token);
    out_assignment->deadline_ms = sqlite3_column_int64(row, 5);
    out_assignment->has_manifest =
        column_bytes(row, 6, out_assignment->manifest_sha256, DUNLIN_SHA256_BYTES);
    out_assignment->packs = sqlite3_column_int(row, 7) != 0;
}

dunlin_status dunlin__server_db_find_assignment(dunlin__server_db *db, const char *id,
                                                dunlin__assignment_row *out_assignment,
                                                bool *out_is_found, dunlin_error *error)
{
    memset(out_assignment, 0, sizeof *out_assignment);
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_ASSIGNMENT_FIND, "t", id);
    DUNLIN_TRY(dunlin__server_db_row(db, DUNLIN_SQL_ASSIGNMENT_FIND, out_is_found, error));
    if (*out_is_found) {
        read_assignment(row, out_assignment);
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_ASSIGNMENT_FIND);
    return DUNLIN_OK;
}

dunlin_status dunlin__server_db_end_assignment(dunlin__server_db *db, const char *id,
                                               dunlin__work_state state, dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_ASSIGNMENT_END, "ti", id, (int64_t)state);
    return dunlin__server_db_run(db, DUNLIN_SQL_ASSIGNMENT_END, error);
}

dunlin_status dunlin__server_db_set_manifest(dunlin__server_db *db, const char *id,
                                             const uint8_t manifest_sha256[DUNLIN_SHA256_BYTES],
                                             dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_ASSIGNMENT_MANIFEST, "tb", id, manifest_sha256,
                                 (int)DUNLIN_SHA256_BYTES);
    return dunlin__server_db_run(db, DUNLIN_SQL_ASSIGNMENT_MANIFEST, error);
}

dunlin_status dunlin__server_db_each_assignment(dunlin__server_db *db, uint64_t round,
                                                dunlin__assignment_fn assignment_fn, void *ctx,
                                                dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_ASSIGNMENT_EACH, "i", (int64_t)round);
    bool is_row = true;
    dunlin_status status = dunlin__server_db_row(db, DUNLIN_SQL_ASSIGNMENT_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        dunlin__assignment_row assignment = {0};
        read_assignment(row, &assignment);
        status = assignment_fn(ctx, &assignment);
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_ASSIGNMENT_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_ASSIGNMENT_EACH);
    return status;
}

dunlin_status dunlin__server_db_prune_work(dunlin__server_db *db, uint64_t round,
                                           dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_SESSIONS_PRUNE, "i", (int64_t)round);
    DUNLIN_TRY(dunlin__server_db_run(db, DUNLIN_SQL_SESSIONS_PRUNE, error));
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_ASSIGNMENTS_PRUNE, "i", (int64_t)round);
    return dunlin__server_db_run(db, DUNLIN_SQL_ASSIGNMENTS_PRUNE, error);
}

dunlin_status dunlin__server_db_add_contribution(dunlin__server_db *db,
                                                 const dunlin__contribution_row *contribution,
                                                 dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(
        db, DUNLIN_SQL_CONTRIBUTION_ADD, "iiitdii", (int64_t)contribution->round,
        contribution->client_index, contribution->device, contribution->assignment,
        contribution->weight, (int64_t)contribution->n_steps, (int64_t)contribution->train_ms);
    bind_metrics(row, 8, &contribution->metrics);
    (void)sqlite3_bind_int(row, 8 + DUNLIN_N_METRICS, (int)contribution->within_clip);
    return dunlin__server_db_run(db, DUNLIN_SQL_CONTRIBUTION_ADD, error);
}

dunlin_status dunlin__server_db_each_contribution(dunlin__server_db *db, uint64_t round,
                                                  dunlin__contribution_fn contribution_fn,
                                                  void *ctx, dunlin_error *error)
{
    sqlite3_stmt *row =
        dunlin__server_db_bind(db, DUNLIN_SQL_CONTRIBUTION_EACH, "i", (int64_t)round);
    bool is_row = true;
    dunlin_status status = dunlin__server_db_row(db, DUNLIN_SQL_CONTRIBUTION_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        dunlin__contribution_row entry = {.round = (uint64_t)sqlite3_column_int64(row, 0),
                                          .client_index = sqlite3_column_int64(row, 1),
                                          .device = sqlite3_column_int64(row, 2),
                                          .weight = sqlite3_column_double(row, 4),
                                          .n_steps = (uint64_t)sqlite3_column_int64(row, 5),
                                          .train_ms = (uint64_t)sqlite3_column_int64(row, 6)};
        column_text(row, 3, entry.assignment, sizeof entry.assignment);
        read_metrics(row, 7, &entry.metrics);
        if (!column_real(row, 7 + DUNLIN_N_METRICS, &entry.norm)) {
            entry.norm = -1;
        }
        entry.within_clip = (dunlin_v1_within_clip_t)sqlite3_column_int(row, 8 + DUNLIN_N_METRICS);
        status = contribution_fn(ctx, &entry);
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_CONTRIBUTION_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_CONTRIBUTION_EACH);
    return status;
}

dunlin_status dunlin__server_db_set_norm(dunlin__server_db *db, uint64_t round,
                                         int64_t client_index, double norm, dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_CONTRIBUTION_NORM, "iid", (int64_t)round,
                                 client_index, norm);
    return dunlin__server_db_run(db, DUNLIN_SQL_CONTRIBUTION_NORM, error);
}

dunlin_status dunlin__server_db_each_norm(dunlin__server_db *db, uint32_t n_rounds,
                                          dunlin__norm_fn norm_fn, void *ctx, dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_NORM_EACH, "i", (int64_t)n_rounds);
    bool is_row = true;
    dunlin_status status = dunlin__server_db_row(db, DUNLIN_SQL_NORM_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        status = norm_fn(ctx, sqlite3_column_double(row, 0));
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_NORM_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_NORM_EACH);
    return status;
}

dunlin_status dunlin__server_db_put_round(dunlin__server_db *db, const dunlin__round_row *round,
                                          dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(
        db, DUNLIN_SQL_ROUND_PUT, "iiiiiiiiiid", (int64_t)round->round, (int64_t)round->state,
        (int64_t)round->reason, round->opened_ms, round->deadline_ms, round->closed_ms,
        (int64_t)round->n_participants, (int64_t)round->n_dropped, (int64_t)round->bytes_down,
        (int64_t)round->bytes_up, round->weight_sum);
    bind_real(row, 12, round->is_evaluated, round->accuracy);
    bind_real(row, 13, round->is_evaluated, round->loss);
    (void)sqlite3_bind_int(row, 14, round->is_failed ? 1 : 0);
    (void)sqlite3_bind_int(row, 15, round->is_evaluation ? 1 : 0);
    bind_metrics(row, 16, &round->metrics);
    int next = 16 + DUNLIN_N_METRICS;
    (void)sqlite3_bind_int64(row, next, (int64_t)round->base);
    (void)sqlite3_bind_int(row, next + 1, round->is_taken_back ? 1 : 0);
    (void)sqlite3_bind_int64(row, next + 2, (int64_t)round->n_scaled);
    bind_real(row, next + 3, round->norm_bound > 0, round->norm_bound);
    (void)sqlite3_bind_text(row, next + 4, round->why, -1, SQLITE_TRANSIENT);
    bind_real(row, next + 5, round->clip_norm > 0, round->clip_norm);
    bind_real(row, next + 6, round->has_clip_within, round->clip_within);
    bind_real(row, next + 7, round->is_private, round->epsilon);
    bind_seed(row, next + 8, &round->draw_seed);
    bind_seed(row, next + 9, &round->noise_seed);
    return dunlin__server_db_run(db, DUNLIN_SQL_ROUND_PUT, error);
}

static void read_round(sqlite3_stmt *row, dunlin__round_row *out_round)
{
    out_round->round = (uint64_t)sqlite3_column_int64(row, 0);
    out_round->state = (dunlin__round_state)sqlite3_column_int(row, 1);
    out_round->reason = (dunlin__close_reason)sqlite3_column_int(row, 2);
    out_round->opened_ms = sqlite3_column_int64(row, 3);
    out_round->deadline_ms = sqlite3_column_int64(row, 4);
    out_round->closed_ms = sqlite3_column_int64(row, 5);
    out_round->n_participants = (uint64_t)sqlite3_column_int64(row, 6);
    out_round->n_dropped = (uint64_t)sqlite3_column_int64(row, 7);
    out_round->bytes_down = (uint64_t)sqlite3_column_int64(row, 8);
    out_round->bytes_up = (uint64_t)sqlite3_column_int64(row, 9);
    out_round->weight_sum = sqlite3_column_double(row, 10);
    out_round->is_evaluated = column_real(row, 11, &out_round->accuracy);
    (void)column_real(row, 12, &out_round->loss);
    out_round->is_failed = sqlite3_column_int(row, 13) != 0;
    out_round->is_evaluation = sqlite3_column_int(row, 14) != 0;
    read_metrics(row, 15, &out_round->metrics);
    int next = 15 + DUNLIN_N_METRICS;
    out_round->base = (uint64_t)sqlite3_column_int64(row, next);
    out_round->is_taken_back = sqlite3_column_int(row, next + 1) != 0;
    out_round->n_scaled = (uint64_t)sqlite3_column_int64(row, next + 2);
    (void)column_real(row, next + 3, &out_round->norm_bound);
    column_text(row, next + 4, out_round->why, sizeof out_round->why);
    (void)column_real(row, next + 5, &out_round->clip_norm);
    out_round->has_clip_within = column_real(row, next + 6, &out_round->clip_within);
    out_round->is_private = column_real(row, next + 7, &out_round->epsilon);
    read_seed(row, next + 8, &out_round->draw_seed);
    read_seed(row, next + 9, &out_round->noise_seed);
}

dunlin_status dunlin__server_db_each_round(dunlin__server_db *db, dunlin__round_fn round_fn,
                                           void *ctx, dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_ROUND_EACH, "");
    bool is_row = true;
    dunlin_status status = dunlin__server_db_row(db, DUNLIN_SQL_ROUND_EACH, &is_row, error);
    while (status == DUNLIN_OK && is_row) {
        dunlin__round_row round = {0};
        read_round(row, &round);
        status = round_fn(ctx, &round);
        if (status == DUNLIN_OK) {
            status = dunlin__server_db_row(db, DUNLIN_SQL_ROUND_EACH, &is_row, error);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_ROUND_EACH);
    return status;
}

dunlin_status dunlin__server_db_find_answer(dunlin__server_db *db, const char *scope,
                                            const char *key, dunlin__answer_row *out_answer,
                                            bool *out_is_found, dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_ANSWER_FIND, "tt", scope, key);
    DUNLIN_TRY(dunlin__server_db_row(db, DUNLIN_SQL_ANSWER_FIND, out_is_found, error));
    if (!*out_is_found) {
        return DUNLIN_OK;
    }
    size_t n_body = (size_t)sqlite3_column_bytes(row, 4);
    const void *body = sqlite3_column_blob(row, 4);
    dunlin_status status = DUNLIN_OK;
    if (n_body > sizeof out_answer->body ||
        !column_bytes(row, 0, out_answer->request_sha256, DUNLIN_SHA256_BYTES)) {
        status = dunlin__fail(error, DUNLIN_DATA, "database", 0,
                              "the state's database: a stored answer is damaged");
    } else {
        out_answer->http_code = (uint32_t)sqlite3_column_int64(row, 1);
        out_answer->made_ms = sqlite3_column_int64(row, 2);
        out_answer->is_brief = sqlite3_column_int(row, 3) != 0;
        out_answer->n_body = n_body;
        if (n_body > 0) {
            memcpy(out_answer->body, body, n_body);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_ANSWER_FIND);
    return status;
}

dunlin_status dunlin__server_db_add_answer(dunlin__server_db *db, const dunlin__answer_row *answer,
                                           dunlin_error *error)
{
    sqlite3_stmt *row = dunlin__server_db_bind(db, DUNLIN_SQL_ANSWER_ADD, "ttbiii", answer->scope,
                                               answer->key, answer->request_sha256,
                                               (int)DUNLIN_SHA256_BYTES, (int64_t)answer->http_code,
                                               answer->made_ms, (int64_t)answer->is_brief);
    if (answer->n_body > 0) {
        (void)sqlite3_bind_blob(row, 7, answer->body, (int)answer->n_body, SQLITE_TRANSIENT);
    } else {
        (void)sqlite3_bind_zeroblob(row, 7, 0);
    }
    return dunlin__server_db_run(db, DUNLIN_SQL_ANSWER_ADD, error);
}

dunlin_status dunlin__server_db_prune_answers(dunlin__server_db *db, int64_t brief_before_ms,
                                              int64_t all_before_ms, dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_ANSWERS_PRUNE, "ii", brief_before_ms,
                                 all_before_ms);
    return dunlin__server_db_run(db, DUNLIN_SQL_ANSWERS_PRUNE, error);
}

/*
 * telemetry.c - records, batches, sends and deletes telemetry.
 *
 * Invariant: a record belongs to at most one batch, whose name, order and ages are fixed before it
 * is sent; so a batch that is sent again is the same request, and the server counts it once.
 */
#include "telemetry.h"

#include "calls/exchange.h"
#include "context/client_context.h"
#include "context/conditions.h"
#include "context/runtime.h"
#include "store/database.h"
#include "store/files.h"

#include <wire/digest.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "telemetry.db"
#define BATCH 32
#define SEND_MS 5000
#define URL_BYTES 2304
#define HEADER_BYTES 192

static const char *const MIGRATIONS[] = {
    "CREATE TABLE records (id INTEGER PRIMARY KEY AUTOINCREMENT, client TEXT NOT NULL,"
    " event INTEGER NOT NULL, wall_ms INTEGER NOT NULL, count INTEGER NOT NULL,"
    " value REAL NOT NULL, batch TEXT, age_ms INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX records_client ON records (client, id);"};

static const dunlin__database_plan PLAN = {.subsystem = "telemetry",
                                           .name = "telemetry",
                                           .file = FILE_NAME,
                                           .pragmas = "PRAGMA busy_timeout = 200;",
                                           .migrations = MIGRATIONS,
                                           .n_migrations = 1};

/* An open database and one statement of it. */
typedef struct telemetry_job {
    dunlin_client *client;
    dunlin__database database;
    dunlin_error *error;
} telemetry_job;

static dunlin_status prepare(telemetry_job *job, const char *sql, sqlite3_stmt **out_statement)
{
    DUNLIN_TRY(dunlin__database_prepare(&job->database, sql, out_statement, job->error));
    (void)sqlite3_bind_text(*out_statement, 1, job->client->name, -1, SQLITE_STATIC);
    return DUNLIN_OK;
}

/* Steps a statement that gives no rows, and ends it. */
static dunlin_status run(telemetry_job *job, sqlite3_stmt *statement)
{
    int code = sqlite3_step(statement);
    dunlin_status status =
        code == SQLITE_DONE
            ? DUNLIN_OK
            : dunlin__database_fail(&job->database, "writing telemetry", code, job->error);
    (void)sqlite3_finalize(statement);
    return status;
}

static dunlin_status run_plain(telemetry_job *job, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    DUNLIN_TRY(prepare(job, sql, &statement));
    return run(job, statement);
}

/* ---- noting ---- */

static dunlin_status add(telemetry_job *job, uint32_t event, int64_t count, double value)
{
    sqlite3_stmt *statement = NULL;
    DUNLIN_TRY(prepare(job,
                       "INSERT INTO records (client, event, wall_ms, count, value)"
                       " VALUES (?1, ?2, ?3, ?4, ?5)",
                       &statement));
    dunlin__moment now = dunlin__runtime_now(job->client->runtime);
    (void)sqlite3_bind_int64(statement, 2, event);
    (void)sqlite3_bind_int64(statement, 3, now.wall_ms);
    (void)sqlite3_bind_int64(statement, 4, count);
    (void)sqlite3_bind_double(statement, 5, value);
    return run(job, statement);
}

static dunlin_status add_round(telemetry_job *job, const dunlin_round_report *report,
                               dunlin_status status)
{
    const dunlin__round *round = job->client->round;
    for (int phase = 0; phase < DUNLIN_N_PHASES; phase++) {
        if (round->phase_tries[phase] > 0) {
            DUNLIN_TRY(add(job, DUNLIN_TELEMETRY_PHASE + (uint32_t)phase, round->phase_tries[phase],
                           (double)round->phase_ms[phase]));
        }
    }
    if (report->body_bytes_received > 0 || report->body_bytes_sent > 0) {
        DUNLIN_TRY(add(job, DUNLIN_TELEMETRY_BYTES_DOWN, 1, (double)report->body_bytes_received));
        DUNLIN_TRY(add(job, DUNLIN_TELEMETRY_BYTES_UP, 1, (double)report->body_bytes_sent));
    }
    if (report->peak_bytes > 0) {
        DUNLIN_TRY(add(job, DUNLIN_TELEMETRY_PEAK_BYTES, 1, (double)report->peak_bytes));
    }
    if (report->storage != DUNLIN_TASK_STORAGE_EXACT) {
        DUNLIN_TRY(add(job, DUNLIN_TELEMETRY_STORAGE, 1, (double)report->storage));
    }
    if (report->n_checkpoints > 0) {
        DUNLIN_TRY(add(job, DUNLIN_TELEMETRY_CHECKPOINTS, report->n_checkpoints,
                       (double)report->checkpoint_ms));
    }
    if (status != DUNLIN_OK) {
        DUNLIN_TRY(add(job, DUNLIN_TELEMETRY_FAILURE, (int64_t)status, (double)report->phase));
    }
    return add(job, DUNLIN_TELEMETRY_ROUND, (int64_t)report->outcome, (double)report->total_ms);
}

static dunlin_status note(telemetry_job *job, const dunlin_round_report *report,
                          dunlin_status status)
{
    char trim[160];
    DUNLIN_TRY(
        dunlin__database_open(&job->database, job->client->runtime->folder, &PLAN, job->error));
    DUNLIN_TRY(
        dunlin__database_run(&job->database, "writing telemetry", "BEGIN IMMEDIATE", job->error));
    DUNLIN_TRY(add_round(job, report, status));
    (void)snprintf(trim, sizeof trim,
                   "DELETE FROM records WHERE client = ?1 AND id NOT IN (SELECT id FROM records"
                   " WHERE client = ?1 ORDER BY id DESC LIMIT %d)",
                   DUNLIN_TELEMETRY_WAITING);
    DUNLIN_TRY(run_plain(job, trim));
    return dunlin__database_run(&job->database, "writing telemetry", "COMMIT", job->error);
}

void dunlin__telemetry_note(dunlin_client *client, const dunlin_round_report *report,
                            dunlin_status status)
{
    dunlin_error error = {0};
    telemetry_job job = {.client = client, .error = &error};
    /* How long a device trained tells how much it has, which a secure aggregation hides. */
    const bool is_hidden = client->round != NULL && client->round->has_assignment &&
                           client->round->assignment.aggregation == DUNLIN_V1_AGGREGATION_SECURE;
    if (!client->options.sends_telemetry || client->round == NULL || is_hidden ||
        report->outcome == DUNLIN_OUTCOME_TOO_EARLY) {
        return;
    }
    dunlin_status noted = note(&job, report, status);
    dunlin__database_close(&job.database);
    if (noted != DUNLIN_OK) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "telemetry",
                    "a round could not be noted: %s", dunlin_status_text(noted));
    }
}

/* ---- sending ---- */

/* The name of the batch that waits; "" if nothing does. Makes one of the oldest records if none has
 * been made. */
static dunlin_status find_batch(telemetry_job *job, char out_batch[DUNLIN_WIRE_IDEMPOTENCY_BYTES])
{
    sqlite3_stmt *row = NULL;
    bool is_empty = true;
    out_batch[0] = '\0';
    DUNLIN_TRY(
        prepare(job, "SELECT batch FROM records WHERE client = ?1 ORDER BY id LIMIT 1", &row));
    if (sqlite3_step(row) == SQLITE_ROW) {
        const unsigned char *text = sqlite3_column_text(row, 0);
        is_empty = false;
        if (text != NULL) {
            (void)snprintf(out_batch, DUNLIN_WIRE_IDEMPOTENCY_BYTES, "%s", (const char *)text);
        }
    }
    (void)sqlite3_finalize(row);
    if (is_empty || out_batch[0] != '\0') {
        return DUNLIN_OK;
    }
    char sql[256];
    DUNLIN_TRY(dunlin__idempotency_key(out_batch, job->error));
    (void)snprintf(sql, sizeof sql,
                   "UPDATE records SET batch = ?2, age_ms = max(0, ?3 - wall_ms) WHERE id IN"
                   " (SELECT id FROM records WHERE client = ?1 ORDER BY id LIMIT %d)",
                   BATCH);
    DUNLIN_TRY(prepare(job, sql, &row));
    (void)sqlite3_bind_text(row, 2, out_batch, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(row, 3, dunlin__runtime_now(job->client->runtime).wall_ms);
    return run(job, row);
}

static dunlin_status read_batch(telemetry_job *job, const char *batch,
                                dunlin__telemetry_request *out)
{
    sqlite3_stmt *row = NULL;
    *out = (dunlin__telemetry_request){.client_version = (uint32_t)dunlin_version()};
    (void)snprintf(out->batch_id, sizeof out->batch_id, "%s", batch);
    DUNLIN_TRY(prepare(job,
                       "SELECT event, age_ms, count, value FROM records"
                       " WHERE client = ?1 AND batch = ?2 ORDER BY id",
                       &row));
    (void)sqlite3_bind_text(row, 2, batch, -1, SQLITE_STATIC);
    int code = sqlite3_step(row);
    while (code == SQLITE_ROW && out->records_count < BATCH) {
        uint64_t age_ms = (uint64_t)sqlite3_column_int64(row, 1);
        out->records[out->records_count++] = (dunlin__telemetry_record){
            .event = (uint32_t)sqlite3_column_int64(row, 0),
            .age_ms = age_ms < DUNLIN_WIRE_MAX_WAIT_MS ? age_ms : DUNLIN_WIRE_MAX_WAIT_MS,
            .count = sqlite3_column_int64(row, 2),
            .value = sqlite3_column_double(row, 3)};
        code = sqlite3_step(row);
    }
    dunlin_status status =
        code == SQLITE_DONE || code == SQLITE_ROW
            ? DUNLIN_OK
            : dunlin__database_fail(&job->database, "reading telemetry", code, job->error);
    (void)sqlite3_finalize(row);
    return status;
}

/* One unsigned POST: no device, no challenge, no signature. */
static dunlin_status post(telemetry_job *job, const dunlin__telemetry_request *batch,
                          dunlin_http_reply *out_reply)
{
    dunlin_client *client = job->client;
    uint8_t body[DUNLIN_V1_TELEMETRY_REQUEST_SIZE];
    uint8_t answer[256];
    size_t n_bytes = 0;
    char path[DUNLIN_WIRE_PATH_BYTES];
    char url[URL_BYTES];
    char key[HEADER_BYTES];
    dunlin__fault fault;
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_TELEMETRY, NULL);
    DUNLIN_TRY(dunlin__telemetry_request_encode(batch, body, sizeof body, &n_bytes, job->error));
    DUNLIN_TRY(dunlin__route_format(&route, path, sizeof path, job->error));
    (void)snprintf(url, sizeof url, "%s%s", client->origin.url, path);
    (void)snprintf(key, sizeof key, "%s: %s", DUNLIN_HEADER_IDEMPOTENCY, batch->batch_id);
    dunlin_http_request request = DUNLIN_HTTP_REQUEST_INIT;
    request.method = "POST";
    request.url = url;
    request.headers[request.n_headers++] = DUNLIN_HEADER_PROTOCOL ": " DUNLIN_WIRE_VERSION_TEXT;
    request.headers[request.n_headers++] = DUNLIN_HEADER_CONTENT_TYPE ": " DUNLIN_WIRE_CONTENT_TYPE;
    request.headers[request.n_headers++] = key;
    request.body = body;
    request.body_bytes = n_bytes;
    request.reply = answer;
    request.reply_limit_bytes = sizeof answer;
    request.timeout_ms = SEND_MS;
    /* These bytes belong to no round. */
    uint64_t sent = client->journal.sent_bytes;
    uint64_t received = client->journal.received_bytes;
    dunlin_error before = client->error;
    dunlin_status status = dunlin__client_exchange(client, &request, out_reply, &fault);
    client->error = before;
    client->journal.sent_bytes = sent;
    client->journal.received_bytes = received;
    return status;
}

static dunlin_status send_oldest(telemetry_job *job)
{
    char batch[DUNLIN_WIRE_IDEMPOTENCY_BYTES];
    dunlin__telemetry_request request;
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    sqlite3_stmt *removal = NULL;
    DUNLIN_TRY(
        dunlin__database_open(&job->database, job->client->runtime->folder, &PLAN, job->error));
    DUNLIN_TRY(find_batch(job, batch));
    if (batch[0] == '\0') {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(read_batch(job, batch, &request));
    DUNLIN_TRY(post(job, &request, &reply));
    /* Taken, or refused for good; what may pass is sent again after another round. */
    if (reply.status >= 500 || reply.status == 429) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(prepare(job, "DELETE FROM records WHERE client = ?1 AND batch = ?2", &removal));
    (void)sqlite3_bind_text(removal, 2, batch, -1, SQLITE_STATIC);
    return run(job, removal);
}

static bool has_file(const dunlin_client *client)
{
    char path[DUNLIN_FILE_PATH_BYTES];
    return dunlin__file_path(client->runtime->folder, FILE_NAME, path, NULL) == DUNLIN_OK &&
           access(path, F_OK) == 0;
}

void dunlin__telemetry_send(dunlin_client *client)
{
    dunlin_error error = {0};
    telemetry_job job = {.client = client, .error = &error};
    dunlin_conditions conditions = dunlin__client_conditions(client);
    if (!client->options.sends_telemetry || !has_file(client) ||
        dunlin__client_is_interrupted(client) || !dunlin__client_is_eligible(client, &conditions)) {
        return;
    }
    (void)send_oldest(&job);
    dunlin__database_close(&job.database);
}

/* ---- wiping ---- */

/* There is nothing in it worth keeping, and consent withdrawn is a promise. */
static void remove_damaged(const dunlin_client *client)
{
    static const char *const NAMES[] = {FILE_NAME, FILE_NAME "-wal", FILE_NAME "-shm"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        char path[DUNLIN_FILE_PATH_BYTES];
        if (dunlin__file_path(client->runtime->folder, NAMES[i], path, NULL) == DUNLIN_OK) {
            (void)unlink(path);
        }
    }
}

dunlin_status dunlin__telemetry_wipe(dunlin_client *client, dunlin_error *error)
{
    telemetry_job job = {.client = client, .error = error};
    if (!has_file(client)) {
        return DUNLIN_OK;
    }
    dunlin_status status =
        dunlin__database_open(&job.database, client->runtime->folder, &PLAN, error);
    if (status == DUNLIN_OK) {
        status = run_plain(&job, "DELETE FROM records WHERE client = ?1");
    }
    if (status == DUNLIN_OK) {
        dunlin__database_empty_log(&job.database);
    }
    dunlin__database_close(&job.database);
    if (status == DUNLIN_DATA) {
        remove_damaged(client);
        dunlin__error_clear(error);
        return DUNLIN_OK;
    }
    return status;
}

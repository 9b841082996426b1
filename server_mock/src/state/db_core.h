/*
 * db_core.h - statements of the database: what db.c offers to db_rows.c.
 */
#ifndef DUNLIN_SERVER_DB_CORE_H
#define DUNLIN_SERVER_DB_CORE_H

#include "db.h"

#include <pthread.h>
#include <sqlite3.h>

#define DUNLIN_SQL_MAP(X)                                                                          \
    X(META_GET, "SELECT value FROM meta WHERE name = ?1")                                          \
    X(META_SET, "INSERT OR REPLACE INTO meta(name, value) VALUES(?1, ?2)")                         \
    X(DEVICE_ADD, "INSERT INTO devices(id, public_key, client_index) VALUES(?1, ?2, ?3)")          \
    X(DEVICE_REMOVE, "DELETE FROM devices WHERE row = ?1")                                         \
    X(DEVICE_SESSIONS_REMOVE, "DELETE FROM sessions WHERE device = ?1")                            \
    X(DEVICE_ASSIGNMENTS_REMOVE, "DELETE FROM assignments WHERE device = ?1 AND state != 2")       \
    X(DEVICE_ANSWERS_REMOVE, "DELETE FROM answers WHERE scope = ?1")                               \
    X(DEVICE_EACH, "SELECT row, id, public_key, client_index, last_round, n_rounds FROM devices"   \
                   " ORDER BY row")                                                                \
    X(DEVICE_TAKES_PART, "UPDATE devices SET last_round = ?2, n_rounds = ?3 WHERE row = ?1")       \
    X(TERM_GET, "SELECT value FROM terms WHERE name = ?1")                                         \
    X(TERM_SET, "INSERT OR REPLACE INTO terms(name, value) VALUES(?1, ?2)")                        \
    X(PROOF_FIND, "SELECT client_index, public_key FROM proofs WHERE sha256 = ?1")                 \
    X(PROOF_PUT,                                                                                   \
      "INSERT OR REPLACE INTO proofs(sha256, client_index, public_key) VALUES(?1, ?2, ?3)")        \
    X(PROOF_SPEND, "UPDATE proofs SET public_key = zeroblob(65) WHERE public_key = ?1")            \
    X(REPLACED_ADD, "INSERT OR REPLACE INTO replaced(id, at_ms) VALUES(?1, ?2)")                   \
    X(REPLACED_FIND, "SELECT at_ms FROM replaced WHERE id = ?1")                                   \
    X(REPLACED_PRUNE, "DELETE FROM replaced WHERE row <="                                          \
                      " (SELECT max(row) FROM replaced) - ?1")                                     \
    X(SESSION_ADD, "INSERT INTO sessions(id, device, round, state, until_ms, packs, unpacks)"      \
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                          \
    X(SESSION_FIND, "SELECT id, device, round, state, until_ms, packs, unpacks FROM sessions"      \
                    " WHERE id = ?1")                                                              \
    X(SESSION_END, "UPDATE sessions SET state = ?2 WHERE id = ?1")                                 \
    X(SESSIONS_PRUNE, "DELETE FROM sessions WHERE round < ?1")                                     \
    X(ASSIGNMENT_REPLACE,                                                                          \
      "UPDATE assignments SET state = 3 WHERE device = ?1 AND round BETWEEN ?2 AND ?3"             \
      " AND state = 1")                                                                            \
    X(ASSIGNMENT_ADD,                                                                              \
      "INSERT INTO assignments(id, device, round, state, token, deadline_ms, packs)"               \
      " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                                       \
    X(ASSIGNMENT_FIND,                                                                             \
      "SELECT id, device, round, state, token, deadline_ms, manifest, packs FROM assignments"      \
      " WHERE id = ?1")                                                                            \
    X(ASSIGNMENT_END, "UPDATE assignments SET state = ?2 WHERE id = ?1")                           \
    X(ASSIGNMENT_MANIFEST, "UPDATE assignments SET manifest = ?2 WHERE id = ?1")                   \
    X(ASSIGNMENT_EACH,                                                                             \
      "SELECT id, device, round, state, token, deadline_ms, manifest, packs FROM assignments"      \
      " WHERE round = ?1 ORDER BY rowid")                                                          \
    X(ASSIGNMENTS_PRUNE, "DELETE FROM assignments WHERE round < ?1")                               \
    X(CONTRIBUTION_ADD,                                                                            \
      "INSERT INTO contributions(round, client_index, device, assignment, weight, n_steps,"        \
      " train_ms, loss, accuracy, loss_before, accuracy_before, loss_after, accuracy_after,"       \
      " within_clip) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)")         \
    X(CONTRIBUTION_EACH,                                                                           \
      "SELECT round, client_index, device, assignment, weight, n_steps, train_ms, loss, accuracy," \
      " loss_before, accuracy_before, loss_after, accuracy_after, norm, within_clip"               \
      " FROM contributions WHERE round = ?1 ORDER BY client_index")                                \
    X(CONTRIBUTIONS_DROP, "DELETE FROM contributions WHERE round = ?1")                            \
    X(CONTRIBUTION_NORM,                                                                           \
      "UPDATE contributions SET norm = ?3 WHERE round = ?1 AND client_index = ?2")                 \
    X(NORM_EACH,                                                                                   \
      "SELECT norm FROM contributions WHERE norm IS NOT NULL AND round IN (SELECT round FROM"      \
      " rounds WHERE state = 3 AND NOT is_failed AND NOT is_evaluation AND NOT is_taken_back"      \
      " ORDER BY round DESC LIMIT ?1) ORDER BY norm")                                              \
    X(ROUND_PUT,                                                                                   \
      "INSERT OR REPLACE INTO rounds(round, state, reason, opened_ms, deadline_ms, closed_ms,"     \
      " n_participants, n_dropped, bytes_down, bytes_up, weight_sum, accuracy, loss, is_failed,"   \
      " is_evaluation, train_loss, device_accuracy, loss_before, accuracy_before, loss_after,"     \
      " accuracy_after, base, is_taken_back, n_scaled, norm_bound, why, clip_norm, clip_within,"   \
      " epsilon, draw_seed, noise_seed) "                                                          \
      "VALUES(?1, ?2, ?3, ?4,"                                                                     \
      " ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23," \
      " ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31)")                                                  \
    X(ROUND_EACH,                                                                                  \
      "SELECT round, state, reason, opened_ms, deadline_ms, closed_ms, n_participants,"            \
      " n_dropped, bytes_down, bytes_up, weight_sum, accuracy, loss, is_failed, is_evaluation,"    \
      " train_loss, device_accuracy, loss_before, accuracy_before, loss_after, accuracy_after,"    \
      " coalesce(base, round - 1), is_taken_back, n_scaled, norm_bound, why, clip_norm, "          \
      "clip_within, epsilon, draw_seed, noise_seed"                                                \
      " FROM rounds ORDER BY round")                                                               \
    X(ANSWER_FIND, "SELECT request, http_code, made_ms, is_brief, body FROM answers"               \
                   " WHERE scope = ?1 AND key = ?2")                                               \
    X(ANSWER_ADD, "INSERT INTO answers(scope, key, request, http_code, made_ms, is_brief, body)"   \
                  " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                           \
    X(ANSWERS_PRUNE, "DELETE FROM answers WHERE made_ms < ?2 OR (is_brief AND made_ms < ?1)")      \
    X(APP_METRIC_ADD, "INSERT OR IGNORE INTO app_metrics(round, name, client_index, value)"        \
                      " VALUES(?1, ?2, ?3, ?4)")                                                   \
    /* The join goes by name and place, so the order of the sum is always the same. */             \
    X(ROUND_METRICS_ADD,                                                                           \
      "INSERT OR REPLACE INTO round_metrics(round, name, n, mean, least, most)"                    \
      " SELECT m.round, m.name, count(*), min(max(sum(c.weight * m.value) / sum(c.weight),"        \
      " min(m.value)), max(m.value)), min(m.value), max(m.value) FROM app_metrics m"               \
      " CROSS JOIN contributions c ON c.round = m.round AND c.client_index = m.client_index"       \
      " WHERE m.round = ?1 GROUP BY m.name ORDER BY count(*) DESC, m.name LIMIT ?2")               \
    X(ROUND_METRICS_LEFT, "INSERT OR REPLACE INTO round_metrics_left(round, n) SELECT ?1, n FROM"  \
                          " (SELECT count(DISTINCT name) - ?2 AS n FROM app_metrics"               \
                          " WHERE round = ?1) WHERE n > 0")                                        \
    X(ROUND_METRICS_LEFT_OF, "SELECT n FROM round_metrics_left WHERE round = ?1")                  \
    X(ROUND_METRICS_EACH, "SELECT round, name, n, mean, least, most FROM round_metrics"            \
                          " ORDER BY round, name")                                                 \
    X(ROUND_METRICS_LEFT_EACH, "SELECT round, n FROM round_metrics_left ORDER BY round")           \
    X(APP_METRIC_EACH, "SELECT m.client_index, m.name, m.value, c.weight FROM app_metrics m"       \
                       " JOIN contributions c ON c.round = m.round"                                \
                       " AND c.client_index = m.client_index"                                      \
                       " JOIN round_metrics r ON r.round = m.round AND r.name = m.name"            \
                       " WHERE m.round = ?1 ORDER BY m.client_index, m.name")                      \
    X(APP_METRICS_PRUNE, "DELETE FROM app_metrics WHERE round <= ?1")                              \
    X(TELEMETRY_ADD, "INSERT INTO telemetry(event, n, count_sum, value_sum, value_min, value_max)" \
                     " SELECT ?1, 1, ?2, ?3, ?3, ?3 WHERE (SELECT count(*) FROM telemetry) < ?4"   \
                     " OR EXISTS (SELECT 1 FROM telemetry WHERE event = ?1)"                       \
                     " ON CONFLICT(event) DO UPDATE SET n = n + 1, count_sum = count_sum + ?2,"    \
                     " value_sum = value_sum + ?3, value_min = min(value_min, ?3),"                \
                     " value_max = max(value_max, ?3)")                                            \
    X(TELEMETRY_EACH, "SELECT event, n, count_sum, value_sum, value_min, value_max"                \
                      " FROM telemetry ORDER BY event")                                            \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                    \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")

typedef enum dunlin__sql {
#define DUNLIN_SQL_ENUMERATOR(name, text) DUNLIN_SQL_##name,
    DUNLIN_SQL_MAP(DUNLIN_SQL_ENUMERATOR)
#undef DUNLIN_SQL_ENUMERATOR
        DUNLIN_N_SQL
} dunlin__sql;

/* Which transactions are on the storage: numbers count them. */
typedef struct dunlin__server_db_sync {
    pthread_mutex_t lock; /* over what follows; taken after the server's */
    pthread_cond_t changed;
    int fd;           /* of the write-ahead log; -1: none */
    uint64_t written; /* committed so far */
    uint64_t synced;  /* and on the storage */
    bool is_syncing;  /* one thread does it for all */
    bool has_failed;  /* from then on a sync says nothing, until all is written again */
} dunlin__server_db_sync;

struct dunlin__server_db {
    dunlin_alloc alloc;
    sqlite3 *connection;
    bool is_durable;
    bool is_relaxed; /* nothing is synced */
    sqlite3_stmt *statements[DUNLIN_N_SQL];
    dunlin__server_db_sync sync;
};

/* Opens what db_sync.c syncs: the write-ahead log of the database at `path`, which is there. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_sync_open(dunlin__server_db *db, const char *path,
                                                           dunlin_error *error);
void dunlin__server_db_sync_close(dunlin__server_db *db);
/* After a commit: counts it; `is_synced` if it is on the storage, and so all before it. */
void dunlin__server_db_count(dunlin__server_db *db, bool is_synced);

/*
 * A statement, reset, with its parameters bound. One letter each: t text, i int64_t, d double, b
 * bytes (pointer, int length), n nothing (NULL).
 */
sqlite3_stmt *dunlin__server_db_bind(dunlin__server_db *db, dunlin__sql sql, const char *letters,
                                     ...);

/* Steps to the next row. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_row(dunlin__server_db *db, dunlin__sql sql,
                                                     bool *out_is_row, dunlin_error *error);

/* Runs a bound statement that gives no rows. STATE for a broken constraint. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_run(dunlin__server_db *db, dunlin__sql sql,
                                                     dunlin_error *error);

/* Ends a statement whose rows are not wanted any more. */
void dunlin__server_db_reset(dunlin__server_db *db, dunlin__sql sql);

#endif

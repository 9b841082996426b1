/*
 * examples.c - the example store's database: its tables, its statements, opening and closing.
 *
 * Invariant: what changes more than one row is one transaction, so a failure or a kill leaves the
 * store as it was before the call or as it is after it.
 */
#include "examples.h"

#include "store/database.h"

#include <mem/sized.h>
#include <mem/support.h>

#include <errno.h>
#include <string.h>
#include <time.h>

#define DEFAULT_EXAMPLES 100000
#define DEFAULT_BYTES (256LL << 20)
#define MAX_HOLD_OUT_PERCENT 50

/* The blob stands last: what asks for the other columns alone reads none of its pages. */
static const char *const MIGRATIONS[] = {
    "CREATE TABLE examples (id INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL,"
    " label INTEGER NOT NULL, made_ms INTEGER NOT NULL, n_bytes INTEGER NOT NULL,"
    " is_held INTEGER NOT NULL DEFAULT 0, data BLOB NOT NULL);"
    "CREATE INDEX examples_by_age ON examples (is_held, made_ms, id, collection);"
    "CREATE TABLE totals (n_examples INTEGER NOT NULL, n_bytes INTEGER NOT NULL);"
    "INSERT INTO totals VALUES (0, 0);"
    "CREATE TABLE choices (client TEXT PRIMARY KEY NOT NULL, assignment TEXT NOT NULL,"
    " n_examples INTEGER NOT NULL, is_broken INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE TABLE chosen (client TEXT NOT NULL, position INTEGER NOT NULL,"
    " example INTEGER NOT NULL, PRIMARY KEY (client, position)) WITHOUT ROWID;"
    "CREATE INDEX chosen_by_example ON chosen (example);"
    "CREATE TRIGGER example_added AFTER INSERT ON examples BEGIN"
    " UPDATE totals SET n_examples = n_examples + 1, n_bytes = n_bytes + new.n_bytes; END;"
    "CREATE TRIGGER example_held AFTER UPDATE OF is_held ON examples"
    " WHEN old.is_held = 0 AND new.is_held = 1 BEGIN"
    " UPDATE totals SET n_examples = n_examples - 1, n_bytes = n_bytes - old.n_bytes; END;"
    "CREATE TRIGGER example_gone AFTER DELETE ON examples BEGIN"
    " UPDATE totals SET n_examples = n_examples - 1, n_bytes = n_bytes - old.n_bytes"
    " WHERE old.is_held = 0;"
    " UPDATE choices SET is_broken = 1 WHERE client IN"
    " (SELECT client FROM chosen WHERE example = old.id); END;",
    "ALTER TABLE choices ADD COLUMN n_held_out INTEGER NOT NULL DEFAULT 0;"};

/* A file that can shrink, a cache of half a MiB, a log of about 1 MiB. */
static const dunlin__database_plan PLAN = {
    .subsystem = "examples",
    .name = "example store",
    .file = "examples.db",
    .pragmas = "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA cache_size = -512;"
               " PRAGMA wal_autocheckpoint = 256; PRAGMA journal_size_limit = 1048576;",
    .migrations = MIGRATIONS,
    .n_migrations = sizeof MIGRATIONS / sizeof MIGRATIONS[0]};

static const char *const SQL[DUNLIN_EXAMPLES_N_SQL] = {
    [DUNLIN_EXAMPLES_ADD] = "INSERT INTO examples (collection, made_ms, label, n_bytes, data)"
                            " VALUES (?1, ?2, ?3, ?4, ?5)",
    [DUNLIN_EXAMPLES_TO_PRESENT] =
        "UPDATE examples SET made_ms = ?2 WHERE is_held IN (0, 1) AND made_ms > ?2",
    [DUNLIN_EXAMPLES_EXPIRE] = "DELETE FROM examples WHERE is_held IN (0, 1) AND made_ms < ?2",
    [DUNLIN_EXAMPLES_TOTALS] = "SELECT n_examples, n_bytes FROM totals",
    [DUNLIN_EXAMPLES_OLDEST] =
        "SELECT id FROM examples WHERE is_held = 0 ORDER BY made_ms, id LIMIT 1",
    [DUNLIN_EXAMPLES_HOLD] = "UPDATE examples SET is_held = 1 WHERE id = ?2 AND EXISTS"
                             " (SELECT 1 FROM chosen WHERE example = ?2)",
    [DUNLIN_EXAMPLES_DELETE] = "DELETE FROM examples WHERE id = ?2",
    [DUNLIN_EXAMPLES_CLEAR] = "DELETE FROM examples WHERE ?1 IS NULL OR collection = ?1",
    [DUNLIN_EXAMPLES_IS_THERE] = "SELECT 1 FROM examples WHERE id = ?2 AND is_held = 0",
    [DUNLIN_EXAMPLES_CANDIDATES] =
        "SELECT id FROM examples WHERE is_held = 0 AND made_ms >= ?2"
        " AND (?1 IS NULL OR collection = ?1) ORDER BY made_ms DESC, id DESC LIMIT ?3",
    [DUNLIN_EXAMPLES_COUNT] = "SELECT count(*) FROM examples WHERE is_held = 0 AND made_ms >= ?2"
                              " AND (?1 IS NULL OR collection = ?1)",
    [DUNLIN_EXAMPLES_ADD_CHOSEN] =
        "INSERT INTO chosen (client, position, example) VALUES (?1, ?2, ?3)",
    [DUNLIN_EXAMPLES_ADD_CHOICE] =
        "INSERT INTO choices (client, n_examples, assignment, n_held_out) VALUES (?1, ?2, ?3, ?4)",
    [DUNLIN_EXAMPLES_CHOICE] =
        "SELECT assignment, n_examples, is_broken, n_held_out FROM choices WHERE client = ?1",
    [DUNLIN_EXAMPLES_DROP_CHOSEN] = "DELETE FROM chosen WHERE client = ?1",
    [DUNLIN_EXAMPLES_DROP_CHOICE] = "DELETE FROM choices WHERE client = ?1",
    [DUNLIN_EXAMPLES_DROP_HELD] = "DELETE FROM examples WHERE is_held = 1 AND NOT EXISTS"
                                  " (SELECT 1 FROM chosen WHERE example = examples.id)",
    [DUNLIN_EXAMPLES_READ] = "SELECT e.label, e.data FROM chosen c JOIN examples e"
                             " ON e.id = c.example WHERE c.client = ?1 AND c.position = ?2",
    [DUNLIN_EXAMPLES_STATS] =
        "SELECT n_examples, n_bytes, (SELECT count(*) FROM examples WHERE is_held = 1),"
        " (SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()) FROM "
        "totals"};

/* --- statements --- */

sqlite3_stmt *dunlin__examples_bind(dunlin_examples *examples, dunlin__examples_sql which,
                                    const char *text, int64_t number)
{
    sqlite3_stmt *statement = examples->statements[which];
    if (text != NULL) {
        (void)sqlite3_bind_text(statement, 1, text, -1, SQLITE_STATIC);
    }
    if (sqlite3_bind_parameter_count(statement) > 1) {
        (void)sqlite3_bind_int64(statement, 2, number);
    }
    return statement;
}

dunlin_status dunlin__examples_step(dunlin_examples *examples, dunlin__examples_sql which,
                                    bool *out_has_row, dunlin_error *error)
{
    errno = 0;
    int code = sqlite3_step(examples->statements[which]);
    *out_has_row = code == SQLITE_ROW;
    return code == SQLITE_ROW || code == SQLITE_DONE
               ? DUNLIN_OK
               : dunlin__database_fail(&examples->database, "an example", code, error);
}

void dunlin__examples_leave(dunlin_examples *examples, dunlin__examples_sql which)
{
    (void)sqlite3_reset(examples->statements[which]);
    (void)sqlite3_clear_bindings(examples->statements[which]);
}

dunlin_status dunlin__examples_do(dunlin_examples *examples, dunlin__examples_sql which,
                                  dunlin_error *error)
{
    bool has_row = false;
    dunlin_status status = dunlin__examples_step(examples, which, &has_row, error);
    dunlin__examples_leave(examples, which);
    return status;
}

dunlin_status dunlin__examples_begin(dunlin_examples *examples, dunlin_error *error)
{
    (void)pthread_mutex_lock(&examples->lock);
    dunlin_status status =
        dunlin__database_run(&examples->database, "beginning", "BEGIN IMMEDIATE", error);
    if (status != DUNLIN_OK) {
        (void)pthread_mutex_unlock(&examples->lock);
    }
    return status;
}

dunlin_status dunlin__examples_end(dunlin_examples *examples, dunlin_status status,
                                   dunlin_error *error)
{
    if (status == DUNLIN_OK) {
        status = dunlin__database_run(&examples->database, "committing", "COMMIT", error);
    }
    if (status != DUNLIN_OK && sqlite3_get_autocommit(examples->database.db) == 0) {
        (void)sqlite3_exec(examples->database.db, "ROLLBACK", NULL, NULL, NULL);
    }
    (void)pthread_mutex_unlock(&examples->lock);
    return status;
}

/* --- opening --- */

static int64_t system_wall_ms(void *ctx)
{
    struct timespec now = {0};
    (void)ctx;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Rule i of an app's: they lie as far apart as the first one is large there. */
static dunlin_status take_rule(const dunlin_examples_options *options, int32_t i,
                               dunlin_examples_rule *out, dunlin_error *error)
{
    *out = (dunlin_examples_rule)DUNLIN_EXAMPLES_RULE_INIT;
    if (i == 0) {
        return DUNLIN_STRUCT_TAKE(dunlin_examples_rule, options->rules, out, error);
    }
    const size_t bytes = options->rules->struct_size;
    const char *from = (const char *)options->rules + (size_t)i * bytes;
    size_t own_bytes = 0;
    memcpy(&own_bytes, from, sizeof own_bytes);
    if (own_bytes != bytes) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "examples", 0,
                            "struct_size of rule %d is %zu, that of the first is %zu; start both "
                            "from DUNLIN_EXAMPLES_RULE_INIT",
                            (int)i, own_bytes, bytes);
    }
    return DUNLIN_STRUCT_TAKE(dunlin_examples_rule, from, out, error);
}

static dunlin_status check_rule(const dunlin_examples_options *options, int32_t i,
                                dunlin_error *error)
{
    dunlin_examples_rule rule;
    DUNLIN_TRY(take_rule(options, i, &rule, error));
    bool is_long = (rule.task != NULL && strlen(rule.task) > DUNLIN_EXAMPLE_NAME_CHARS) ||
                   (rule.collection != NULL && strlen(rule.collection) > DUNLIN_EXAMPLE_NAME_CHARS);
    if (is_long || rule.max_examples < 0 || rule.max_age_ms < 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "examples", 0,
                            "rule %d has a limit below 0 or a name longer than %d characters",
                            (int)i, DUNLIN_EXAMPLE_NAME_CHARS);
    }
    if (rule.hold_out_percent < 0 || rule.hold_out_percent > MAX_HOLD_OUT_PERCENT) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "examples", 0,
                            "rule %d holds %d percent out; it can be 0 to %d", (int)i,
                            (int)rule.hold_out_percent, MAX_HOLD_OUT_PERCENT);
    }
    return DUNLIN_OK;
}

static dunlin_status check_options(const dunlin_examples_options *options, dunlin_error *error)
{
    if (options->folder == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "examples", 0,
                            "option folder of an example store is NULL");
    }
    if (options->max_examples < 0 || options->max_age_ms < 0 || options->max_bytes > INT64_MAX) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "examples", 0,
                            "max_examples is %lld, max_age_ms %lld; they must be 0 or more, and "
                            "max_bytes below 2^63",
                            (long long)options->max_examples, (long long)options->max_age_ms);
    }
    if (options->n_rules < 0 || (options->n_rules > 0 && options->rules == NULL)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "examples", 0, "n_rules is %d, without rules",
                            (int)options->n_rules);
    }
    for (int32_t i = 0; i < options->n_rules; i++) {
        DUNLIN_TRY(check_rule(options, i, error));
    }
    return DUNLIN_OK;
}

static dunlin_status copy_rules(dunlin_examples *examples, const dunlin_examples_options *options,
                                dunlin_error *error)
{
    if (options->n_rules == 0) {
        return DUNLIN_OK;
    }
    examples->rules =
        dunlin__alloc_zeroed(&examples->alloc, (size_t)options->n_rules, sizeof *examples->rules);
    bool is_ok = examples->rules != NULL;
    examples->n_rules = is_ok ? options->n_rules : 0;
    for (int32_t i = 0; is_ok && i < options->n_rules; i++) {
        dunlin_examples_rule from;
        dunlin__examples_rule *to = &examples->rules[i];
        DUNLIN_TRY(take_rule(options, i, &from, error));
        to->max_examples = from.max_examples;
        to->max_age_ms = from.max_age_ms;
        to->hold_out_percent = from.hold_out_percent;
        is_ok = dunlin__copy_text(&examples->alloc, from.task, &to->task) &&
                dunlin__copy_text(&examples->alloc, from.collection, &to->collection);
    }
    return is_ok ? DUNLIN_OK
                 : dunlin__fail(error, DUNLIN_MEMORY, "examples", 0, "no memory for %d rules",
                                (int)options->n_rules);
}

static dunlin_status fill(dunlin_examples *examples, const dunlin_examples_options *options,
                          dunlin_error *error)
{
    examples->max_examples = options->max_examples > 0 ? options->max_examples : DEFAULT_EXAMPLES;
    examples->max_bytes = options->max_bytes > 0 ? (int64_t)options->max_bytes : DEFAULT_BYTES;
    examples->max_age_ms = options->max_age_ms;
    examples->wall_ms_fn = options->wall_ms_fn != NULL ? options->wall_ms_fn : system_wall_ms;
    examples->wall_ctx = options->wall_ctx;
    DUNLIN_TRY(copy_rules(examples, options, error));
    DUNLIN_TRY(dunlin__database_open(&examples->database, options->folder, &PLAN, error));
    for (int i = 0; i < DUNLIN_EXAMPLES_N_SQL; i++) {
        DUNLIN_TRY(
            dunlin__database_prepare(&examples->database, SQL[i], &examples->statements[i], error));
    }
    return dunlin_examples_trim(examples, error);
}

dunlin_status dunlin_examples_open(const dunlin_examples_options *options,
                                   dunlin_examples **out_examples, dunlin_error *out_error)
{
    if (out_examples == NULL) {
        return DUNLIN_ARGUMENT;
    }
    *out_examples = NULL;
    dunlin__error_clear(out_error);
    dunlin_examples_options copy = DUNLIN_EXAMPLES_OPTIONS_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_examples_options, options, &copy, out_error));
    DUNLIN_TRY(check_options(&copy, out_error));
    dunlin_alloc alloc = dunlin__alloc_or_default(&copy.alloc);
    dunlin_examples *examples = dunlin__alloc_zeroed(&alloc, 1, sizeof *examples);
    if (examples == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "examples", 0,
                            "no memory for an example store");
    }
    examples->alloc = alloc;
    (void)pthread_mutex_init(&examples->lock, NULL);
    dunlin_status status = fill(examples, &copy, out_error);
    if (status != DUNLIN_OK) {
        dunlin_examples_close(examples);
        return status;
    }
    *out_examples = examples;
    return DUNLIN_OK;
}

static void close_now(dunlin_examples *examples)
{
    dunlin_alloc alloc = examples->alloc;
    for (int i = 0; i < DUNLIN_EXAMPLES_N_SQL; i++) {
        (void)sqlite3_finalize(examples->statements[i]);
    }
    dunlin__database_close(&examples->database);
    for (int32_t i = 0; i < examples->n_rules; i++) {
        dunlin__free_text(&alloc, examples->rules[i].task);
        dunlin__free_text(&alloc, examples->rules[i].collection);
    }
    dunlin__free_array(&alloc, examples->rules, (size_t)examples->n_rules, sizeof *examples->rules);
    (void)pthread_mutex_destroy(&examples->lock);
    dunlin__free_array(&alloc, examples, 1, sizeof *examples);
}

void dunlin_examples_close(dunlin_examples *examples)
{
    if (examples == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&examples->lock);
    bool is_used = examples->n_users > 0;
    examples->is_leaving = true;
    (void)pthread_mutex_unlock(&examples->lock);
    if (!is_used) {
        close_now(examples);
    }
}

void dunlin__examples_hold(dunlin_examples *examples)
{
    (void)pthread_mutex_lock(&examples->lock);
    examples->n_users++;
    (void)pthread_mutex_unlock(&examples->lock);
}

void dunlin__examples_let_go(dunlin_examples *examples)
{
    (void)pthread_mutex_lock(&examples->lock);
    examples->n_users--;
    bool is_last = examples->is_leaving && examples->n_users == 0;
    (void)pthread_mutex_unlock(&examples->lock);
    if (is_last) {
        close_now(examples);
    }
}

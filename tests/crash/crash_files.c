/*
 * crash_files.c - how far the rounds have come, by the server's files, and faults in these files.
 */
#include "crash_files.h"

#include <wire/digest.h>

#include <jansson.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define WEIGHTS_BYTES (61706 * 4) /* of lenet5 */

bool crash_world_is_published(const crash_world *world, int round)
{
    char path[192];
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/models/%06d.manifest", world->state, round);
    return stat(path, &about) == 0;
}

bool crash_world_is_counted(const crash_world *world)
{
    char path[192];
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    bool is_found = false;
    (void)snprintf(path, sizeof path, "%s/server.db", world->state);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
        sqlite3_busy_timeout(db, 5000) == SQLITE_OK &&
        sqlite3_prepare_v2(db,
                           "SELECT count(*) FROM contributions WHERE round = ?1 UNION ALL "
                           "SELECT count(*) FROM rounds WHERE round > ?1",
                           -1, &statement, NULL) == SQLITE_OK) {
        (void)sqlite3_bind_int(statement, 1, world->round);
        while (sqlite3_step(statement) == SQLITE_ROW) {
            is_found = is_found || sqlite3_column_int(statement, 0) > 0;
        }
    }
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    return is_found;
}

uint64_t crash_world_model(const crash_world *world, int round)
{
    char path[192];
    unsigned char block[4096];
    uint64_t number = 0xcbf29ce484222325ULL; /* FNV-1a, 64 bits */
    (void)snprintf(path, sizeof path, "%s/models/%06d.weights", world->state, round);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    for (size_t n = fread(block, 1, sizeof block, file); n > 0;
         n = fread(block, 1, sizeof block, file)) {
        for (size_t i = 0; i < n; i++) {
            number = (number ^ block[i]) * 0x100000001b3ULL;
        }
    }
    (void)fclose(file);
    return number;
}

/* best.json; NULL if it is not there, or not whole. */
static json_t *read_best(const crash_world *world, bool *out_is_there)
{
    char path[192];
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/models/best.json", world->state);
    *out_is_there = stat(path, &about) == 0;
    return json_load_file(path, 0, NULL);
}

bool crash_world_best_is_whole(crash_world *world)
{
    char path[192];
    struct stat about;
    bool is_there = false;
    json_t *best = read_best(world, &is_there);
    bool has_all = json_is_integer(json_object_get(best, "round")) &&
                   json_is_string(json_object_get(best, "weights_sha256")) &&
                   json_is_string(json_object_get(best, "onnx_sha256"));
    json_decref(best);
    if (is_there && !has_all) {
        return crash_world_complain(world, "best.json is not whole", 0);
    }
    (void)snprintf(path, sizeof path, "%s/models/best.weights", world->state);
    if (stat(path, &about) == 0 && about.st_size != WEIGHTS_BYTES) {
        return crash_world_complain(world, "best.weights has bytes", (int)about.st_size);
    }
    if (is_there && (stat(path, &about) != 0)) {
        return crash_world_complain(world, "best.json is there, best.weights is not", 0);
    }
    return true;
}

/* True if a file beside best.json has the digest that stands there. */
static bool has_digest(const crash_world *world, const char *name, const json_t *wanted)
{
    static unsigned char bytes[1 << 20];
    char path[192];
    char hex[DUNLIN_SHA256_HEX_BYTES];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin_error error;
    (void)snprintf(path, sizeof path, "%s/models/%s", world->state, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    size_t n = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    if (dunlin__sha256_of(bytes, n, sha256, &error) != DUNLIN_OK) {
        return false;
    }
    dunlin__hex_encode(sha256, sizeof sha256, hex);
    return json_is_string(wanted) && strcmp(json_string_value(wanted), hex) == 0;
}

bool crash_world_is_best(const crash_world *world)
{
    char path[192];
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int round = 0;
    bool is_there = false;
    (void)snprintf(path, sizeof path, "%s/server.db", world->state);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
        sqlite3_busy_timeout(db, 5000) == SQLITE_OK &&
        sqlite3_prepare_v2(db,
                           "SELECT base FROM rounds WHERE base > 0 AND loss_before NOT NULL "
                           "ORDER BY accuracy_before DESC, loss_before, base LIMIT 1",
                           -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        round = sqlite3_column_int(statement, 0);
    }
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    json_t *best = read_best(world, &is_there);
    bool is_best =
        round == 0
            ? !is_there
            : json_integer_value(json_object_get(best, "round")) == round &&
                  has_digest(world, "best.weights", json_object_get(best, "weights_sha256")) &&
                  has_digest(world, "best.onnx", json_object_get(best, "onnx_sha256"));
    json_decref(best);
    return is_best;
}

bool crash_world_complain(crash_world *world, const char *what, int number)
{
    if (world->complaint[0] == '\0') {
        (void)snprintf(world->complaint, sizeof world->complaint, "round %d: %s (%d); see %s",
                       world->round, what, number, world->folder);
    }
    return false;
}

int crash_world_count_rounds(crash_world *world)
{
    char path[192];
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int n_rounds = 0;
    (void)snprintf(path, sizeof path, "%s/server.db", world->state);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(db, 5000) != SQLITE_OK ||
        sqlite3_prepare_v2(db,
                           "SELECT round, n_participants, is_failed FROM rounds "
                           "WHERE closed_ms > 0 ORDER BY round",
                           -1, &statement, NULL) != SQLITE_OK) {
        (void)crash_world_complain(world, "the server's database cannot be read", 0);
    }
    while (world->complaint[0] == '\0' && sqlite3_step(statement) == SQLITE_ROW) {
        n_rounds++;
        if (sqlite3_column_int(statement, 0) != n_rounds || sqlite3_column_int(statement, 1) != 1 ||
            sqlite3_column_int(statement, 2) != 0) {
            (void)crash_world_complain(world, "not one contribution in round", n_rounds);
        }
    }
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    return n_rounds;
}

/*
 * crash_files.c - how far the rounds have come, by the server's files, and faults in these files.
 */
#include "crash_files.h"

#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>

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

/*
 * db_sync.c - transactions reach the storage together: one sync of the write-ahead log for all that
 * wait for it.
 *
 * A transaction that is committed with PRAGMA synchronous = NORMAL has been handed to the system.
 * SQLite syncs the log itself before it uses it anew, so a sync of the file as it stands covers all
 * transactions before it, as with synchronous = FULL, but outside the server's lock.
 */
#include "base/files.h"
#include "db_core.h"

#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

dunlin_status dunlin__server_db_sync_open(dunlin__server_db *db, const char *path,
                                          dunlin_error *error)
{
    dunlin__server_path log;
    DUNLIN_TRY(dunlin__server_path_make(&log, error, "%s-wal", path));
    db->sync.fd = open(log.text, O_RDWR | O_CLOEXEC);
    if (db->sync.fd < 0) {
        return dunlin__file_fail(error, "opening", log.text, errno);
    }
    return DUNLIN_OK;
}

void dunlin__server_db_sync_close(dunlin__server_db *db)
{
    if (db->sync.fd >= 0) {
        (void)close(db->sync.fd);
    }
    (void)pthread_cond_destroy(&db->sync.changed);
    (void)pthread_mutex_destroy(&db->sync.lock);
}

void dunlin__server_db_count(dunlin__server_db *db, bool is_synced)
{
    (void)pthread_mutex_lock(&db->sync.lock);
    db->sync.written++;
    if (is_synced && !db->sync.has_failed) {
        db->sync.synced = db->sync.written;
        (void)pthread_cond_broadcast(&db->sync.changed);
    }
    (void)pthread_mutex_unlock(&db->sync.lock);
}

uint64_t dunlin__server_db_ticket(dunlin__server_db *db)
{
    (void)pthread_mutex_lock(&db->sync.lock);
    uint64_t ticket = db->sync.written;
    (void)pthread_mutex_unlock(&db->sync.lock);
    return ticket;
}

dunlin_status dunlin__server_db_wait(dunlin__server_db *db, uint64_t ticket, dunlin_error *error)
{
    dunlin__server_db_sync *sync = &db->sync;
    int code = 0;
    if (db->is_relaxed) {
        return DUNLIN_OK;
    }
    (void)pthread_mutex_lock(&sync->lock);
    while (sync->synced < ticket && code == 0) {
        if (sync->has_failed) {
            code = EIO;
            continue;
        }
        if (sync->is_syncing) {
            (void)pthread_cond_wait(&sync->changed, &sync->lock);
            continue;
        }
        uint64_t covered = sync->written;
        sync->is_syncing = true;
        (void)pthread_mutex_unlock(&sync->lock);
        code = fdatasync(sync->fd) == 0 ? 0 : errno;
        (void)pthread_mutex_lock(&sync->lock);
        sync->is_syncing = false;
        sync->has_failed = code != 0;
        if (code == 0 && sync->synced < covered) {
            sync->synced = covered;
        }
        (void)pthread_cond_broadcast(&sync->changed);
    }
    (void)pthread_mutex_unlock(&sync->lock);
    return code == 0 ? DUNLIN_OK
                     : dunlin__file_fail(error, "syncing", "the state's database", code);
}

dunlin_status dunlin__server_db_force(dunlin__server_db *db, dunlin_error *error)
{
    int code =
        sqlite3_wal_checkpoint_v2(db->connection, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (code != SQLITE_OK) {
        return dunlin__fail(error, DUNLIN_IO, "database", code, "the state's database: %.180s",
                            sqlite3_errmsg(db->connection));
    }
    (void)pthread_mutex_lock(&db->sync.lock);
    db->sync.has_failed = false;
    db->sync.synced = db->sync.written;
    (void)pthread_cond_broadcast(&db->sync.changed);
    (void)pthread_mutex_unlock(&db->sync.lock);
    return DUNLIN_OK;
}

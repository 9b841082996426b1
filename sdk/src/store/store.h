/*
 * store.h - the journals of all clients of a runtime in one SQLite database, and a folder for each
 * round's files.
 *
 * Thread-safe. A write is on the storage when the call returns (WAL, synchronous=FULL).
 */
#ifndef DUNLIN_SDK_STORE_H
#define DUNLIN_SDK_STORE_H

#include "session/journal.h"

#define DUNLIN_STORE_SCHEMA 6

typedef struct dunlin__store dunlin__store;

/*
 * Opens or makes `folder`/dunlin.db. VERSION: a newer schema, left as it is. LOCKED: the storage or
 * the database is locked. SPACE: no room. DATA: the file is not a database or is damaged, left as
 * it is.
 */
DUNLIN_NODISCARD dunlin_status dunlin__store_open(const char *folder, const dunlin_alloc *alloc,
                                                  dunlin__store **out_store, dunlin_error *error);
void dunlin__store_close(dunlin__store *store);

/* From here on nothing is synced: for simulations, whose process is the machine. A kill of the
 * process alone loses nothing. `has_moments`: what comes after one dunlin__store_settle() stays in
 * the log until the next, so without the log the store is what it was then. */
DUNLIN_NODISCARD dunlin_status dunlin__store_relax(dunlin__store *store, bool has_moments,
                                                   dunlin_error *error);
/* The half of it that `has_moments` is, with all syncs. */
DUNLIN_NODISCARD dunlin_status dunlin__store_keep_log(dunlin__store *store, dunlin_error *error);
void dunlin__store_settle(dunlin__store *store);

/* A client's journal; *out_is_known is false, and the journal zero, if the store has none. */
DUNLIN_NODISCARD dunlin_status dunlin__store_load(dunlin__store *store, const char *client,
                                                  dunlin__journal *out_journal, bool *out_is_known,
                                                  dunlin_error *error);

/* Replaces a client's journal. */
DUNLIN_NODISCARD dunlin_status dunlin__store_save(dunlin__store *store, const char *client,
                                                  const dunlin__journal *journal,
                                                  dunlin_error *error);

/* The signed assignment of the current round, with the phase that follows it: one transaction.
 * n_bytes 0: none. */
DUNLIN_NODISCARD dunlin_status dunlin__store_save_assignment(dunlin__store *store,
                                                             const char *client,
                                                             const dunlin__journal *journal,
                                                             const uint8_t *sealed, size_t n_bytes,
                                                             dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__store_load_assignment(dunlin__store *store,
                                                             const char *client,
                                                             uint8_t *out_sealed, size_t capacity,
                                                             size_t *out_n_bytes,
                                                             dunlin_error *error);

DUNLIN_NODISCARD dunlin_status dunlin__store_forget(dunlin__store *store, const char *client,
                                                    dunlin_error *error);

#endif

/*
 * db_places.c - the rows that say what proves a place, and who lost one.
 *
 * Invariant: of a token or a certificate no more than its SHA-256 is kept.
 */
#include "db_core.h"

#include <mem/support.h>

#include <string.h>

#define KEPT_REPLACED 4096

dunlin_status dunlin__server_db_find_proof(dunlin__server_db *db,
                                           const uint8_t sha256[DUNLIN_SHA256_BYTES],
                                           dunlin__proof_row *out_proof, bool *out_is_found,
                                           dunlin_error *error)
{
    memset(out_proof, 0, sizeof *out_proof);
    sqlite3_stmt *row =
        dunlin__server_db_bind(db, DUNLIN_SQL_PROOF_FIND, "b", sha256, (int)DUNLIN_SHA256_BYTES);
    DUNLIN_TRY(dunlin__server_db_row(db, DUNLIN_SQL_PROOF_FIND, out_is_found, error));
    dunlin_status status = DUNLIN_OK;
    if (*out_is_found) {
        const void *key = sqlite3_column_blob(row, 1);
        memcpy(out_proof->sha256, sha256, DUNLIN_SHA256_BYTES);
        out_proof->client_index = sqlite3_column_int64(row, 0);
        if (key == NULL || sqlite3_column_bytes(row, 1) != (int)sizeof out_proof->public_key) {
            status = dunlin__fail(error, DUNLIN_DATA, "database", 0,
                                  "the state's database: the proof of place %lld has no key",
                                  (long long)out_proof->client_index);
        } else {
            memcpy(out_proof->public_key, key, sizeof out_proof->public_key);
        }
    }
    dunlin__server_db_reset(db, DUNLIN_SQL_PROOF_FIND);
    return status;
}

dunlin_status dunlin__server_db_put_proof(dunlin__server_db *db, const dunlin__proof_row *proof,
                                          dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_PROOF_PUT, "bib", proof->sha256,
                                 (int)sizeof proof->sha256, proof->client_index, proof->public_key,
                                 (int)sizeof proof->public_key);
    return dunlin__server_db_run(db, DUNLIN_SQL_PROOF_PUT, error);
}

dunlin_status dunlin__server_db_spend_proofs(dunlin__server_db *db,
                                             const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                             dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_PROOF_SPEND, "b", public_key,
                                 (int)DUNLIN_PUBLIC_KEY_BYTES);
    return dunlin__server_db_run(db, DUNLIN_SQL_PROOF_SPEND, error);
}

dunlin_status dunlin__server_db_add_replaced(dunlin__server_db *db, const char *device_id,
                                             int64_t at_ms, dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_REPLACED_ADD, "ti", device_id, at_ms);
    DUNLIN_TRY(dunlin__server_db_run(db, DUNLIN_SQL_REPLACED_ADD, error));
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_REPLACED_PRUNE, "i", (int64_t)KEPT_REPLACED);
    return dunlin__server_db_run(db, DUNLIN_SQL_REPLACED_PRUNE, error);
}

dunlin_status dunlin__server_db_find_replaced(dunlin__server_db *db, const char *device_id,
                                              bool *out_is_found, dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_REPLACED_FIND, "t", device_id);
    DUNLIN_TRY(dunlin__server_db_row(db, DUNLIN_SQL_REPLACED_FIND, out_is_found, error));
    dunlin__server_db_reset(db, DUNLIN_SQL_REPLACED_FIND);
    return DUNLIN_OK;
}

/*
 * messages_over.c - the signature of the statement that a run is over.
 *
 * As with an assignment, nothing is decoded before the signature over its exact bytes has been
 * verified; the tag keeps a signature of the one from being one of the other.
 */
#include <mem/support.h>
#include <wire/messages.h>
#include <wire/signature.h>

#include <string.h>

#define RUN_OVER_TAG "dunlin.v1.run_over"

typedef struct over_message {
    uint8_t
        bytes[sizeof(RUN_OVER_TAG) + sizeof(((dunlin_v1_signed_run_over_t *)0)->statement.bytes)];
    size_t n_bytes;
} over_message;

/* The tag with its ending 0, then the statement's bytes. */
static void make_over_message(const dunlin_v1_signed_run_over_t *sealed, over_message *out)
{
    memcpy(out->bytes, RUN_OVER_TAG, sizeof(RUN_OVER_TAG));
    memcpy(out->bytes + sizeof(RUN_OVER_TAG), sealed->statement.bytes, sealed->statement.size);
    out->n_bytes = sizeof(RUN_OVER_TAG) + sealed->statement.size;
}

dunlin_status dunlin__run_over_seal(const dunlin__run_over *statement,
                                    const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                    dunlin_v1_signed_run_over_t *out_signed, dunlin_error *error)
{
    size_t n_bytes = 0;
    memset(out_signed, 0, sizeof(*out_signed));
    DUNLIN_TRY(dunlin__run_over_encode(statement, out_signed->statement.bytes,
                                       sizeof(out_signed->statement.bytes), &n_bytes, error));
    out_signed->statement.size = (pb_size_t)n_bytes;
    memcpy(out_signed->key_id, statement->key_id, sizeof(out_signed->key_id));
    over_message message;
    make_over_message(out_signed, &message);
    return dunlin__sign(private_key, message.bytes, message.n_bytes, out_signed->signature, error);
}

dunlin_status dunlin__run_over_open(const dunlin_v1_signed_run_over_t *sealed,
                                    const dunlin__trusted_key *keys, size_t n_keys,
                                    dunlin__run_over *out_statement, dunlin_error *error)
{
    memset(out_statement, 0, sizeof(*out_statement));
    const dunlin__trusted_key *key = NULL;
    for (size_t i = 0; i < n_keys && key == NULL; i++) {
        if (strncmp(keys[i].key_id, sealed->key_id, sizeof(sealed->key_id)) == 0) {
            key = &keys[i];
        }
    }
    if (key == NULL || sealed->statement.size > sizeof(sealed->statement.bytes)) {
        return dunlin__fail(error, DUNLIN_SIGNATURE, "run over", 0,
                            "the statement is signed by the key \"%.64s\", which is not one of "
                            "the %zu trusted ones",
                            sealed->key_id, n_keys);
    }
    over_message message;
    make_over_message(sealed, &message);
    DUNLIN_TRY(
        dunlin__verify(key->public_key, message.bytes, message.n_bytes, sealed->signature, error));
    DUNLIN_TRY(dunlin__run_over_decode(sealed->statement.bytes, sealed->statement.size,
                                       out_statement, error));
    if (strcmp(out_statement->key_id, key->key_id) != 0) {
        const dunlin_status status =
            dunlin__fail(error, DUNLIN_SIGNATURE, "run over", 0,
                         "the statement names the key %.32s and is signed by %.32s",
                         out_statement->key_id, key->key_id);
        memset(out_statement, 0, sizeof(*out_statement));
        return status;
    }
    return DUNLIN_OK;
}

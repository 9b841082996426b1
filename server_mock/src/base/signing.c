/*
 * signing.c - the keys that sign assignments.
 *
 * Invariant: the next key exists, and its public half can be given to clients, before it signs
 * anything. A rotation cut off in the middle leaves both files with one key, and the next load
 * makes a new next one.
 */
#include "signing.h"

#include "files.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <string.h>

typedef struct pair {
    uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
} pair;

static dunlin_status write_hex(const char *folder, const char *name, const uint8_t *bytes,
                               size_t n_bytes, dunlin_error *error)
{
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/%s", folder, name));
    char text[2 * DUNLIN_PUBLIC_KEY_BYTES + 2];
    dunlin__hex_encode(bytes, n_bytes, text);
    text[2 * n_bytes] = '\n';
    dunlin_status status =
        dunlin__outfile_put(path.text, DUNLIN_SERVER_FILE_MODE, text, 2 * n_bytes + 1, error);
    dunlin__wipe(text, sizeof text);
    return status;
}

static dunlin_status make_pair(const char *folder, const char *name, pair *out_pair,
                               dunlin_error *error)
{
    DUNLIN_TRY(dunlin__key_generate(out_pair->private_key, out_pair->public_key, error));
    return write_hex(folder, name, out_pair->private_key, sizeof out_pair->private_key, error);
}

static dunlin_status load_pair(const char *folder, const char *name, const dunlin_alloc *alloc,
                               pair *out_pair, dunlin_error *error)
{
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/%s", folder, name));
    if (dunlin__server_file_size(path.text) < 0) {
        return make_pair(folder, name, out_pair, error);
    }
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__server_file_read(alloc, path.text, 256, &bytes, &n_bytes, error));
    if (n_bytes > 0 && bytes[n_bytes - 1] == '\n') {
        bytes[n_bytes - 1] = 0;
    }
    bool is_right = dunlin__hex_decode((const char *)bytes, out_pair->private_key,
                                       sizeof out_pair->private_key);
    dunlin__wipe(bytes, n_bytes);
    dunlin__free_array(alloc, bytes, n_bytes + 1, 1);
    if (!is_right) {
        return dunlin__fail(error, DUNLIN_DATA, "certs", 0, "%.160s: not a key of 64 hex digits",
                            path.text);
    }
    return dunlin__key_public(out_pair->private_key, out_pair->public_key, error);
}

static dunlin_status load_both(const char *folder, const dunlin_alloc *alloc, pair pairs[2],
                               dunlin_error *error)
{
    DUNLIN_TRY(load_pair(folder, "signing.key", alloc, &pairs[0], error));
    DUNLIN_TRY(load_pair(folder, "signing-next.key", alloc, &pairs[1], error));
    if (memcmp(pairs[0].public_key, pairs[1].public_key, sizeof pairs[0].public_key) == 0) {
        DUNLIN_TRY(make_pair(folder, "signing-next.key", &pairs[1], error));
    }
    DUNLIN_TRY(
        write_hex(folder, "signing.pub", pairs[0].public_key, sizeof pairs[0].public_key, error));
    return write_hex(folder, "signing-next.pub", pairs[1].public_key, sizeof pairs[1].public_key,
                     error);
}

dunlin_status dunlin__signing_load(const char *folder, const dunlin_alloc *alloc,
                                   dunlin__server_certs *certs, dunlin_error *error)
{
    pair pairs[2];
    uint8_t sha256[DUNLIN_SHA256_BYTES] = {0};
    dunlin_status status = load_both(folder, alloc, pairs, error);
    if (status == DUNLIN_OK) {
        status = dunlin__sha256_of(pairs[0].public_key, sizeof pairs[0].public_key, sha256, error);
    }
    if (status == DUNLIN_OK) {
        memcpy(certs->signing_key, pairs[0].private_key, sizeof certs->signing_key);
        memcpy(certs->signing_public, pairs[0].public_key, sizeof certs->signing_public);
        memcpy(certs->next_public, pairs[1].public_key, sizeof certs->next_public);
        dunlin__hex_encode(sha256, 8, certs->key_id);
    }
    dunlin__wipe(pairs, sizeof pairs);
    return status;
}

dunlin_status dunlin__server_certs_rotate(const char *folder, const dunlin_alloc *alloc,
                                          dunlin__server_certs *out_certs, dunlin_error *error)
{
    pair pairs[2];
    memset(out_certs, 0, sizeof *out_certs);
    dunlin_status status = load_both(folder, alloc, pairs, error);
    if (status == DUNLIN_OK) {
        status = write_hex(folder, "signing.key", pairs[1].private_key, sizeof pairs[1].private_key,
                           error);
    }
    dunlin__wipe(pairs, sizeof pairs);
    return status == DUNLIN_OK ? dunlin__signing_load(folder, alloc, out_certs, error) : status;
}

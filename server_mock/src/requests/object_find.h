/*
 * object_find.h - where the bytes of a hash lie among the models that can be fetched.
 */
#ifndef DUNLIN_SERVER_OBJECT_FIND_H
#define DUNLIN_SERVER_OBJECT_FIND_H

#include "state/context.h"

typedef struct dunlin__found_object {
    dunlin__server_path path;
    uint64_t offset; /* in the file */
    uint64_t n_bytes;
} dunlin__found_object;

/* Finds what a hash names, a manifest or a chunk; false if nothing that is kept has it. Locked. */
bool dunlin__object_find(const dunlin__server *server, const uint8_t sha256[DUNLIN_SHA256_BYTES],
                         dunlin__found_object *out_object);

#endif

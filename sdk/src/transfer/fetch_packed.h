/*
 * fetch_packed.h - a base that comes in fewer bytes: packed, or as a delta from the packed base
 * that this device has kept.
 */
#ifndef DUNLIN_SDK_FETCH_PACKED_H
#define DUNLIN_SDK_FETCH_PACKED_H

#include "context/client_context.h"

/* A packed base in the round's folder: packed.manifest and packed.bin, delta.manifest and .bin. */
#define DUNLIN_FETCH_PACKED "packed"
#define DUNLIN_FETCH_DELTA "delta"

/* The base that the packed bytes are to become, and where. */
typedef struct dunlin__packed_target {
    const char *folder;
    const dunlin__manifest_source *manifest; /* of the base, checked */
    int fd;                                  /* of its file */
    uint64_t beside_bytes; /* of storage that base and round need beside the packed bytes */
} dunlin__packed_target;

/*
 * Fills the target's stream of weights, each chunk of it verified, if the assignment has a packed
 * base and what is there of the file is not whole. What cannot be used is logged, and the file is
 * empty then: the base is to be fetched as it is. So only failures that may pass, and STOPPED, come
 * back. `*out_is_kept`: packed.bin is worth keeping for the next delta.
 */
dunlin_status dunlin__fetch_packed(dunlin_client *client, const dunlin__packed_target *target,
                                   bool *out_is_kept, dunlin__fault *out_fault);

/* Removes what is left of it in the round's folder; `keeps_packed`: but for packed.bin. */
void dunlin__fetch_packed_clear(const char *folder, bool keeps_packed);

#endif

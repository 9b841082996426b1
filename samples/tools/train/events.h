/*
 * events.h - what TensorBoard reads: records of an event file, whole, to be appended to it.
 */
#ifndef DUNLIN_SAMPLES_TRAIN_EVENTS_H
#define DUNLIN_SAMPLES_TRAIN_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#define TRAIN_TAG_BYTES 32   /* of a tag at most, its zero included */
#define TRAIN_MAX_SCALARS 12 /* of a record at most */
/* A record at most: of a scalar the tag and 12 bytes, and 64 for all else. */
#define TRAIN_EVENT_BYTES (TRAIN_MAX_SCALARS * (TRAIN_TAG_BYTES + 12) + 64)

typedef struct train_scalar {
    char tag[TRAIN_TAG_BYTES];
    double value; /* written as a float: the format has no other */
} train_scalar;

/* Each writes one record and returns its bytes. `wall_s`: seconds since 1970. */

/* The first record of a file. */
size_t train_event_version(double wall_s, unsigned char out[TRAIN_EVENT_BYTES]);
/* A run goes on in a new file: what older files of the folder have from this step on is void. */
size_t train_event_start(double wall_s, int64_t step, unsigned char out[TRAIN_EVENT_BYTES]);
size_t train_event_scalars(double wall_s, int64_t step, const train_scalar *scalars, size_t n,
                           unsigned char out[TRAIN_EVENT_BYTES]);

/* CRC-32C of n bytes. */
uint32_t train_crc32c(const void *data, size_t n);

#endif

/*
 * make_message.h - random messages that keep every rule, for round trips and for spoiling.
 */
#ifndef DUNLIN_TESTS_MAKE_MESSAGE_H
#define DUNLIN_TESTS_MAKE_MESSAGE_H

#include <wire/messages.h>

/* One row of DUNLIN_MESSAGE_MAP with its types taken off. */
typedef struct message_row {
    const char *name;
    size_t struct_bytes;
    size_t max_bytes;
    void (*make_fn)(void *message, uint64_t *state);
    dunlin_status (*encode_fn)(const void *message, uint8_t *out_bytes, size_t capacity,
                               size_t *out_n_bytes, dunlin_error *error);
    dunlin_status (*decode_fn)(const uint8_t *bytes, size_t n_bytes, void *out_message,
                               dunlin_error *error);
} message_row;

extern const message_row message_rows[];
extern const size_t n_message_rows;

/* Large enough for any of the structs. */
typedef union any_message {
#define ANY_MEMBER(name, generated) dunlin__##name name;
    DUNLIN_MESSAGE_MAP(ANY_MEMBER)
#undef ANY_MEMBER
} any_message;

/* Fills `peers` (up to `capacity`) too. `is_request` picks the direction. */
void make_secagg(dunlin__secagg_message *message, bool is_request, dunlin__secagg_peer *peers,
                 uint32_t capacity, uint64_t *state);

#define DECLARE_MAKE(name, generated) void make_##name(dunlin__##name *message, uint64_t *state);
DUNLIN_MESSAGE_MAP(DECLARE_MAKE)
#undef DECLARE_MAKE

#endif

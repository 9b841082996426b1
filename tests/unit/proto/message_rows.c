/*
 * message_rows.c - the calls of every message, made, written and read, in one table.
 */
#include "make_message.h"

#include <string.h>

#define DEFINE_ROW_FUNCTIONS(name, generated)                                                      \
    static void name##_make(void *message, uint64_t *state)                                        \
    {                                                                                              \
        memset(message, 0, sizeof(dunlin__##name));                                                \
        make_##name(message, state);                                                               \
    }                                                                                              \
    static dunlin_status name##_encode(const void *message, uint8_t *out_bytes, size_t capacity,   \
                                       size_t *out_n_bytes, dunlin_error *error)                   \
    {                                                                                              \
        return dunlin__##name##_encode(message, out_bytes, capacity, out_n_bytes, error);          \
    }                                                                                              \
    static dunlin_status name##_decode(const uint8_t *bytes, size_t n_bytes, void *out_message,    \
                                       dunlin_error *error)                                        \
    {                                                                                              \
        return dunlin__##name##_decode(bytes, n_bytes, out_message, error);                        \
    }
DUNLIN_MESSAGE_MAP(DEFINE_ROW_FUNCTIONS)
#undef DEFINE_ROW_FUNCTIONS

const message_row message_rows[] = {
#define DEFINE_ROW(name, generated)                                                                \
    {#name, sizeof(dunlin__##name), generated##_SIZE, name##_make, name##_encode, name##_decode},
    DUNLIN_MESSAGE_MAP(DEFINE_ROW)
#undef DEFINE_ROW
};
const size_t n_message_rows = sizeof message_rows / sizeof message_rows[0];

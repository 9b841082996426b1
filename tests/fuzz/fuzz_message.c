/*
 * fuzz_message.c - any bytes as any message: refused in one line, or taken and then written and
 * read again to the same bytes. The first byte of the input picks the message, the rest are its
 * bytes.
 */
#include <wire/messages.h>

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t first[DUNLIN_WIRE_BODY_BYTES];
static uint8_t second[DUNLIN_WIRE_BODY_BYTES];

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static void require_told(dunlin_status status, const dunlin_error *error)
{
    require(error->status == status && error->text[0] != '\0' && strchr(error->text, '\n') == NULL);
}

#define DEFINE_TRY(name, generated)                                                                \
    static void try_##name(const uint8_t *bytes, size_t n_bytes)                                   \
    {                                                                                              \
        static dunlin__##name message;                                                             \
        dunlin_error error = {0};                                                                  \
        size_t n_first = 0;                                                                        \
        size_t n_second = 0;                                                                       \
        dunlin_status status = dunlin__##name##_decode(bytes, n_bytes, &message, &error);          \
        if (status != DUNLIN_OK) {                                                                 \
            require_told(status, &error);                                                          \
            return;                                                                                \
        }                                                                                          \
        require(dunlin__##name##_encode(&message, first, sizeof(first), &n_first, &error) ==       \
                DUNLIN_OK);                                                                        \
        require(n_first <= generated##_SIZE);                                                      \
        require(dunlin__##name##_decode(first, n_first, &message, &error) == DUNLIN_OK);           \
        require(dunlin__##name##_encode(&message, second, sizeof(second), &n_second, &error) ==    \
                DUNLIN_OK);                                                                        \
        require(n_first == n_second && memcmp(first, second, n_first) == 0);                       \
    }
DUNLIN_MESSAGE_MAP(DEFINE_TRY)
#undef DEFINE_TRY

#define N_PEERS 8u
#define N_SURVIVOR_BYTES 64u

#define DEFINE_TRY_SECAGG(name)                                                                    \
    static void try_##name(const uint8_t *bytes, size_t n_bytes)                                   \
    {                                                                                              \
        static dunlin__secagg_peer peers[N_PEERS];                                                 \
        static uint8_t survivors[N_SURVIVOR_BYTES];                                                \
        dunlin__secagg_message message = {.peers = peers,                                          \
                                          .peer_capacity = N_PEERS,                                \
                                          .survivors = survivors,                                  \
                                          .survivor_capacity = N_SURVIVOR_BYTES};                  \
        dunlin_error error = {0};                                                                  \
        size_t n_first = 0;                                                                        \
        size_t n_second = 0;                                                                       \
        dunlin_status status = dunlin__##name##_decode(bytes, n_bytes, &message, &error);          \
        if (status != DUNLIN_OK) {                                                                 \
            require_told(status, &error);                                                          \
            return;                                                                                \
        }                                                                                          \
        require(dunlin__##name##_encode(&message, first, sizeof(first), &n_first, &error) ==       \
                DUNLIN_OK);                                                                        \
        require(dunlin__##name##_decode(first, n_first, &message, &error) == DUNLIN_OK);           \
        require(dunlin__##name##_encode(&message, second, sizeof(second), &n_second, &error) ==    \
                DUNLIN_OK);                                                                        \
        require(n_first == n_second && memcmp(first, second, n_first) == 0);                       \
    }
DEFINE_TRY_SECAGG(secagg_request)
DEFINE_TRY_SECAGG(secagg_response)
#undef DEFINE_TRY_SECAGG

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *bytes,
                                 size_t n_bytes) = {try_secagg_request, try_secagg_response,
#define TRY_ROW(name, generated) try_##name,
                                                    DUNLIN_MESSAGE_MAP(TRY_ROW)
#undef TRY_ROW
    };
    if (size > 0) {
        tries[data[0] % (sizeof(tries) / sizeof(tries[0]))](data + 1, size - 1);
    }
    return 0;
}

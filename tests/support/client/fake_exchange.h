/*
 * fake_exchange.h - one exchange as the fake server answers it: what its two files share.
 */
#ifndef DUNLIN_TESTS_FAKE_EXCHANGE_H
#define DUNLIN_TESTS_FAKE_EXCHANGE_H

#include "fake_server.h"

#define CHUNK_BYTES DUNLIN_WIRE_CHUNK_MIN_BYTES
#define DEVICE "device-1"
#define SESSION "session-1"
#define OFFER "offer-1"
#define TOKEN "token-of-the-assignment"
#define AUTHORITY "fake.example:8443"

typedef struct fake_tensor {
    const char *name;
    int64_t n;
    dunlin_v1_rule_t rule;
} fake_tensor;
extern const fake_tensor fake_tensors[FAKE_TENSORS];

/* One exchange as it is being answered. */
typedef struct fake_exchange {
    const dunlin_http_request *request;
    dunlin__route route;
    const char *path;
    uint8_t *body;
    size_t body_bytes;
    int status;
    uint8_t reply[2600];
    size_t reply_bytes;
    const uint8_t *object; /* instead of reply */
    uint64_t object_bytes;
    uint64_t range_first;
    uint64_t range_total;
    int64_t upload_offset;
} fake_exchange;

/* Notes the first thing that was wrong. */
void fake_complain(fake_server *server, const char *format, ...) DUNLIN_PRINTF(2, 3);
void fake_require(fake_server *server, dunlin_status status, const char *what);
/* The value of a request's header, "" if there is none. */
const char *fake_header(const fake_exchange *x, const char *name);
void fake_refuse(fake_server *server, fake_exchange *x, dunlin_v1_status_code_t code);

/* The challenge of the moment. */
void fake_take_challenge(fake_server *server, char out[DUNLIN_WIRE_ID_BYTES]);

/* The calls; see fake_calls.c. */
void fake_on_enrol(fake_server *server, fake_exchange *x);
void fake_on_checkin(fake_server *server, fake_exchange *x);
void fake_on_accept(fake_server *server, fake_exchange *x);
void fake_on_object(fake_server *server, fake_exchange *x);
void fake_on_put(fake_server *server, fake_exchange *x);
void fake_on_chunk(fake_server *server, fake_exchange *x);
void fake_on_commit(fake_server *server, fake_exchange *x);
void fake_on_abort(fake_server *server, fake_exchange *x);
void fake_on_telemetry(fake_server *server, fake_exchange *x);
void fake_on_forget(fake_server *server, fake_exchange *x);

#endif

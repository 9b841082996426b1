/*
 * messages.h - every message of the protocol as a plain struct, with encode and decode.
 *
 * The structs come from the .proto files (see there for the meaning of each field): strings are
 * `char name[limit + 1]`, lists `thing[limit]` with `thing_count`, byte fields of one fixed length
 * plain arrays, other byte fields `{size, bytes[limit]}`, submessages have a `has_name` beside
 * them. Zero-initialise a struct, fill it, encode it. No struct holds a pointer, except the two of
 * secure aggregation, whose peers live in the caller's array.
 *
 * encode checks the message by the same rules as decode, so that one side does not send what the
 * other would refuse. decode refuses, with PROTOCOL and one line that names the message, the field
 * and its limit: broken protobuf, missing required fields, numbers outside their range, numbers
 * that are not finite, strings outside their characters. Unknown fields are skipped. After a failed
 * decode the struct is zero. No allocation, no state; any thread.
 */
#ifndef DUNLIN_WIRE_MESSAGES_H
#define DUNLIN_WIRE_MESSAGES_H

#include <dunlin/base.h>
#include <wire/assignment.pb.h>
#include <wire/common.pb.h>
#include <wire/fleet.pb.h>
#include <wire/protocol.h>
#include <wire/secagg.pb.h>
#include <wire/telemetry.pb.h>
#include <wire/update.pb.h>

/* Parts of messages. Enumerators are those of the .proto files: DUNLIN_V1_KIND_TRAIN ... */
typedef dunlin_v1_window_t dunlin__window;
typedef dunlin_v1_capabilities_t dunlin__capabilities;
typedef dunlin_v1_conditions_t dunlin__conditions;
typedef dunlin_v1_policy_t dunlin__policy;
typedef dunlin_v1_offer_t dunlin__offer;
typedef dunlin_v1_training_plan_t dunlin__training_plan;
typedef dunlin_v1_secagg_plan_t dunlin__secagg_plan;
typedef dunlin_v1_metric_t dunlin__metric;
typedef dunlin_v1_app_metric_t dunlin__app_metric;
typedef dunlin_v1_telemetry_record_t dunlin__telemetry_record;
typedef dunlin_v1_secagg_peer_t dunlin__secagg_peer;

/* Whole messages: our name, the generated names, the largest encoded size. */
#define DUNLIN_MESSAGE_MAP(X)                                                                      \
    X(enrol_request, DUNLIN_V1_ENROL_REQUEST)           /* ENROL, up */                            \
    X(enrol_response, DUNLIN_V1_ENROL_RESPONSE)         /* ENROL, down */                          \
    X(checkin_request, DUNLIN_V1_CHECKIN_REQUEST)       /* CHECKIN, up */                          \
    X(checkin_response, DUNLIN_V1_CHECKIN_RESPONSE)     /* CHECKIN, down */                        \
    X(run_over, DUNLIN_V1_RUN_OVER)                     /* inside checkin_response, signed */      \
    X(accept_request, DUNLIN_V1_ACCEPT_REQUEST)         /* ACCEPT, up */                           \
    X(accept_response, DUNLIN_V1_ACCEPT_RESPONSE)       /* ACCEPT, down */                         \
    X(assignment, DUNLIN_V1_ASSIGNMENT)                 /* inside accept_response, signed */       \
    X(put_response, DUNLIN_V1_PUT_RESPONSE)             /* PUT, down; up goes the manifest */      \
    X(commit_request, DUNLIN_V1_COMMIT_REQUEST)         /* COMMIT, up */                           \
    X(commit_response, DUNLIN_V1_COMMIT_RESPONSE)       /* COMMIT, down */                         \
    X(abort_request, DUNLIN_V1_ABORT_REQUEST)           /* ABORT, up */                            \
    X(abort_response, DUNLIN_V1_ABORT_RESPONSE)         /* ABORT, down */                          \
    X(telemetry_request, DUNLIN_V1_TELEMETRY_REQUEST)   /* TELEMETRY, up */                        \
    X(telemetry_response, DUNLIN_V1_TELEMETRY_RESPONSE) /* TELEMETRY, down */                      \
    X(forget_request, DUNLIN_V1_FORGET_REQUEST)         /* FORGET, up */                           \
    X(forget_response, DUNLIN_V1_FORGET_RESPONSE)       /* FORGET, down */                         \
    X(status, DUNLIN_V1_STATUS)                         /* any call, down, HTTP status >= 400 */

/*
 * For each row NAME of the table:
 *   typedef ... dunlin__NAME;
 *   dunlin__NAME_encode(message, out_bytes, capacity, out_n_bytes, error): LIMIT if `capacity` is
 *       too small; DUNLIN_V1_..._SIZE always does.
 *   dunlin__NAME_decode(bytes, n_bytes, out_message, error)
 */
#define DUNLIN_MESSAGE_DECLARE(name, generated)                                                    \
    typedef dunlin_v1_##name##_t dunlin__##name;                                                   \
    DUNLIN_NODISCARD dunlin_status dunlin__##name##_encode(                                        \
        const dunlin__##name *message, uint8_t *out_bytes, size_t capacity, size_t *out_n_bytes,   \
        dunlin_error *error);                                                                      \
    DUNLIN_NODISCARD dunlin_status dunlin__##name##_decode(                                        \
        const uint8_t *bytes, size_t n_bytes, dunlin__##name *out_message, dunlin_error *error);
DUNLIN_MESSAGE_MAP(DUNLIN_MESSAGE_DECLARE)
#undef DUNLIN_MESSAGE_DECLARE

/*
 * One message of a secure aggregation, either way. Before decoding, `peers` and `peer_capacity` are
 * the caller's array, and `survivors` has room for `survivor_capacity` bytes; more than fits is
 * LIMIT.
 *
 * Whoever has no room for all peers gives `peer_fn` instead of an array: decode hands over one at a
 * time, checked by the rules, encode asks for each of `n_peers` once, in order. What it does not
 * return as OK ends the message with that status.
 */
typedef struct dunlin__secagg_message {
    uint32_t step; /* DUNLIN_V1_SECAGG_STEP_... */
    bool poll;     /* up: asks again, without peers */
    bool ready;    /* down */
    uint64_t retry_ms;
    bool has_manifest;
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];
    uint32_t n_peers;
    uint32_t peer_capacity;
    dunlin__secagg_peer *peers;
    uint32_t n_survivor_bytes; /* down, of step mask */
    uint32_t survivor_capacity;
    uint8_t *survivors;
    void *ctx;
    dunlin_status (*peer_fn)(void *ctx, uint32_t index, dunlin__secagg_peer *peer,
                             dunlin_error *error);
} dunlin__secagg_message;

DUNLIN_NODISCARD dunlin_status dunlin__secagg_request_encode(const dunlin__secagg_message *message,
                                                             uint8_t *out_bytes, size_t capacity,
                                                             size_t *out_n_bytes,
                                                             dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__secagg_request_decode(const uint8_t *bytes, size_t n_bytes,
                                                             dunlin__secagg_message *out_message,
                                                             dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__secagg_response_encode(const dunlin__secagg_message *message,
                                                              uint8_t *out_bytes, size_t capacity,
                                                              size_t *out_n_bytes,
                                                              dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__secagg_response_decode(const uint8_t *bytes, size_t n_bytes,
                                                              dunlin__secagg_message *out_message,
                                                              dunlin_error *error);

/* A public key and the name the server signs under. */
typedef struct dunlin__trusted_key {
    char key_id[DUNLIN_WIRE_ID_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
} dunlin__trusted_key;

/* Server: encodes and signs. `out_signed` goes into accept_response.assignment; `key_id` of the
 * assignment names the key. */
DUNLIN_NODISCARD dunlin_status dunlin__assignment_seal(
    const dunlin__assignment *assignment, const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
    dunlin_v1_signed_assignment_t *out_signed, dunlin_error *error);

/* Client: verifies with the trusted key of that name, then decodes. SIGNATURE if no key has the
 * name or the signature is wrong; nothing is decoded before it is verified. */
DUNLIN_NODISCARD dunlin_status dunlin__assignment_open(const dunlin_v1_signed_assignment_t *sealed,
                                                       const dunlin__trusted_key *keys,
                                                       size_t n_keys,
                                                       dunlin__assignment *out_assignment,
                                                       dunlin_error *error);

/* The same for the statement that a run is over, under a tag of its own. */
DUNLIN_NODISCARD dunlin_status dunlin__run_over_seal(
    const dunlin__run_over *statement, const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
    dunlin_v1_signed_run_over_t *out_signed, dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__run_over_open(const dunlin_v1_signed_run_over_t *sealed,
                                                     const dunlin__trusted_key *keys, size_t n_keys,
                                                     dunlin__run_over *out_statement,
                                                     dunlin_error *error);

/* The client's status for a server's error. */
typedef struct dunlin__status_meaning {
    dunlin_status status; /* ours: REJECTED, PROTOCOL, SIGNATURE ... */
    bool is_permanent;    /* the same request would fail again: the long delay, not the short */
    int http_code;        /* that the server answers with */
    const char *name;     /* "STALE_CHALLENGE" */
} dunlin__status_meaning;

/* Never NULL: an unknown code means INTERNAL's row. */
const dunlin__status_meaning *dunlin__status_describe(dunlin_v1_status_code_t code);

#endif

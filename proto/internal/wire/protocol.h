/*
 * protocol.h - the frame around the messages: header names, limits, and the calls with their
 * paths.
 *
 * Client and server both take every name and number from here; neither has a path or a limit of its
 * own. Pure functions, any thread.
 */
#ifndef DUNLIN_WIRE_PROTOCOL_H
#define DUNLIN_WIRE_PROTOCOL_H

#include <dunlin/base.h>

/* The version of the wire format; not the library's. */
#define DUNLIN_WIRE_VERSION 1
#define DUNLIN_WIRE_VERSION_TEXT "1"

#define DUNLIN_WIRE_CONTENT_TYPE "application/x-protobuf"
#define DUNLIN_WIRE_CONTENT_TYPE_CHUNK "application/octet-stream"

/* Header names. Every request and every answer carries the version. */
#define DUNLIN_HEADER_PROTOCOL "Dunlin-Protocol"
/* Signed calls: who signs, over which challenge, which use of it, and 128 hex digits of r and s. */
#define DUNLIN_HEADER_DEVICE "Dunlin-Device"
#define DUNLIN_HEADER_CHALLENGE "Dunlin-Challenge"
#define DUNLIN_HEADER_COUNTER "Dunlin-Counter"
#define DUNLIN_HEADER_SIGNATURE "Dunlin-Signature"
/* Every POST: drawn by the client, kept by its retries. */
#define DUNLIN_HEADER_IDEMPOTENCY "Idempotency-Key"
/* Chunks of an update: the assignment's token. */
#define DUNLIN_HEADER_TOKEN "Dunlin-Token"
/* Answers to HEAD and PUT of a chunk: how many bytes are there, so where to go on. */
#define DUNLIN_HEADER_UPLOAD_OFFSET "Upload-Offset"
/* Of HTTP itself. */
#define DUNLIN_HEADER_CONTENT_TYPE "Content-Type"
#define DUNLIN_HEADER_CONTENT_RANGE "Content-Range"

/* Limits. What exceeds one is refused where it enters, with LIMIT and a text that names it. */
#define DUNLIN_WIRE_BODY_BYTES (64u * 1024u)      /* an ordinary message */
#define DUNLIN_WIRE_MANIFEST_BYTES (256u * 1024u) /* a manifest, also as the body of put */
#define DUNLIN_WIRE_CHUNKS 4096u                  /* in a manifest */
#define DUNLIN_WIRE_TENSORS 4096u                 /* in a manifest */
#define DUNLIN_WIRE_STREAMS 8u                    /* in a manifest */
#define DUNLIN_WIRE_CHUNK_MIN_BYTES (256u * 1024u)
#define DUNLIN_WIRE_CHUNK_MAX_BYTES (1024u * 1024u)
#define DUNLIN_WIRE_CHUNK_DEFAULT_BYTES (256u * 1024u)
#define DUNLIN_WIRE_BLOCK_BYTES (64u * 1024u)         /* what streams are worked on in */
#define DUNLIN_WIRE_PEERS 255u                        /* neighbours in a secure aggregation */
#define DUNLIN_WIRE_SECAGG_COHORT 65536u              /* devices in a secure aggregation */
#define DUNLIN_WIRE_SECAGG_VALUES (UINT64_C(1) << 36) /* of its vectors */
#define DUNLIN_WIRE_DIMS 8u

#define DUNLIN_WIRE_ID_CHARS 64u /* ids, challenges, keys: letters, digits, - _ . ~ */
#define DUNLIN_WIRE_ID_BYTES (DUNLIN_WIRE_ID_CHARS + 1u)
#define DUNLIN_WIRE_SECRET_CHARS_MIN 16u /* least length of what must not be guessed */
#define DUNLIN_WIRE_TOKEN_CHARS 128u
#define DUNLIN_WIRE_TOKEN_BYTES (DUNLIN_WIRE_TOKEN_CHARS + 1u)
#define DUNLIN_WIRE_NAME_CHARS 255u /* tensor names: UTF-8 without control characters */
#define DUNLIN_WIRE_NAME_BYTES (DUNLIN_WIRE_NAME_CHARS + 1u)
#define DUNLIN_WIRE_AUTHORITY_CHARS 261u  /* host, ':', port */
#define DUNLIN_WIRE_PATH_BYTES 256u       /* the longest path with its ending 0 fits with room */
#define DUNLIN_WIRE_IDEMPOTENCY_BYTES 33u /* 16 random bytes in hex and the ending 0 */
#define DUNLIN_WIRE_MAX_WAIT_MS (366ull * 24 * 3600 * 1000)

#define DUNLIN_SHA256_BYTES 32u
#define DUNLIN_SHA256_HEX_BYTES 65u /* with the ending 0 */
#define DUNLIN_SIGNATURE_BYTES 64u
#define DUNLIN_SIGNATURE_HEX_BYTES 129u /* with the ending 0 */
#define DUNLIN_PRIVATE_KEY_BYTES 32u
#define DUNLIN_PUBLIC_KEY_BYTES 65u

/* What calls need of a request: name, method, is signed, carries an idempotency key, carries the
 * token, body limit in bytes. */
#define DUNLIN_CALL_MAP(X)                                                                         \
    X(ENROL, "POST", true, true, false, DUNLIN_WIRE_BODY_BYTES)                                    \
    X(CHECKIN, "POST", true, true, false, DUNLIN_WIRE_BODY_BYTES)                                  \
    X(ACCEPT, "POST", true, true, false, DUNLIN_WIRE_BODY_BYTES)                                   \
    X(OBJECT_GET, "GET", false, false, false, 0)                                                   \
    X(PUT, "POST", true, true, false, DUNLIN_WIRE_MANIFEST_BYTES)                                  \
    X(CHUNK_HEAD, "HEAD", false, false, true, 0)                                                   \
    X(CHUNK_PUT, "PUT", false, false, true, DUNLIN_WIRE_CHUNK_MAX_BYTES)                           \
    X(COMMIT, "POST", true, true, false, DUNLIN_WIRE_BODY_BYTES)                                   \
    X(ABORT, "POST", true, true, false, DUNLIN_WIRE_BODY_BYTES)                                    \
    X(SECAGG, "POST", true, true, false, DUNLIN_WIRE_BODY_BYTES)                                   \
    X(TELEMETRY, "POST", false, true, false, DUNLIN_WIRE_BODY_BYTES)                               \
    X(FORGET, "POST", true, true, false, DUNLIN_WIRE_BODY_BYTES)

typedef enum dunlin__call {
#define DUNLIN_CALL_ENUMERATOR(name, method, is_signed, is_keyed, has_token, body)                 \
    DUNLIN_CALL_##name,
    DUNLIN_CALL_MAP(DUNLIN_CALL_ENUMERATOR)
#undef DUNLIN_CALL_ENUMERATOR
        DUNLIN_N_CALLS
} dunlin__call;

typedef struct dunlin__call_info {
    const char *name;   /* "CHECKIN" */
    const char *method; /* "POST" */
    bool is_signed;     /* carries device, challenge, counter and signature */
    bool is_keyed;      /* carries an idempotency key */
    bool has_token;     /* carries the assignment's token */
    uint32_t max_body_bytes;
} dunlin__call_info;

/* The row of a call; NULL for a number that is none. */
const dunlin__call_info *dunlin__call_describe(dunlin__call call);

/* The number of a secure aggregation's step is that of dunlin.v1.SecaggStep, 1 to 5; in a path it
 * is spelled advertise, share, mask, consistency, unmask. */
#define DUNLIN_WIRE_SECAGG_STEPS 5u

/*
 * A call and what its path names.
 *
 * `id` is the population (ENROL, CHECKIN, FORGET), session (ACCEPT) or assignment (PUT, CHUNK_HEAD,
 * CHUNK_PUT, COMMIT, ABORT, SECAGG). `sha256` is the object of OBJECT_GET, CHUNK_HEAD and
 * CHUNK_PUT. The rest stays zero.
 */
typedef struct dunlin__route {
    dunlin__call call;
    uint32_t secagg_step;
    char id[DUNLIN_WIRE_ID_BYTES];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
} dunlin__route;

/* Starts a route; `id` may be NULL where the call has none. Only copies; format checks. An id that
 * is too long is cut to an invalid one. */
dunlin__route dunlin__route_make(dunlin__call call, const char *id);

/* Writes the path of a route, "/v1/populations/phones:checkin". ARGUMENT for an id outside its
 * characters or an unknown call or step, LIMIT if `capacity` is too small (DUNLIN_WIRE_PATH_BYTES
 * always does). */
DUNLIN_NODISCARD dunlin_status dunlin__route_format(const dunlin__route *route, char *out_path,
                                                    size_t capacity, dunlin_error *error);

/*
 * Reads method and path of a request. Nothing is percent-decoded, no query is taken, so nothing can
 * climb out of its place.
 *
 * PROTOCOL: no such path. UNSUPPORTED: the path exists, but not with this method. Ids are within
 * their characters and length, hashes are 64 lower-case hex digits.
 */
DUNLIN_NODISCARD dunlin_status dunlin__route_parse(const char *method, const char *path,
                                                   dunlin__route *out_route, dunlin_error *error);

/* True for 1 to 64 letters, digits, '-', '_', '.', '~' that do not begin with '.'. */
bool dunlin__id_is_valid(const char *id);

#define DUNLIN_WIRE_METRICS 64u      /* of the app's own, of a contribution */
#define DUNLIN_WIRE_METRIC_CHARS 64u /* of the name of one */
#define DUNLIN_WIRE_METRIC_BYTES 65u /* with the ending 0 */
#define DUNLIN_WIRE_METRIC_MAX 1e30  /* its value is within this of 0 */
/* True for a name of one: 1 to 64 letters, digits, '_', '.', '-', '/'. */
bool dunlin__metric_name_is_valid(const char *name);

/* The same with up to `max_chars` and at least `min_chars` characters. */
bool dunlin__token_is_valid(const char *token, size_t min_chars, size_t max_chars);

/* True for well-formed UTF-8 without control characters, at most `max_chars` bytes before the
 * ending 0, not empty. */
bool dunlin__text_is_valid(const char *text, size_t max_chars);

/* A decimal number of a header, digits only; PROTOCOL with the header's name otherwise. */
DUNLIN_NODISCARD dunlin_status dunlin__header_u64(const char *name, const char *value,
                                                  uint64_t *out_value, dunlin_error *error);

/*
 * "bytes FIRST-LAST/TOTAL" of a chunk that is sent in part: format and parse. A range holds at
 * least one byte, ends before `total_bytes`, and the total is 1 to DUNLIN_WIRE_CHUNK_MAX_BYTES.
 */
#define DUNLIN_WIRE_RANGE_BYTES 80u
typedef struct dunlin__chunk_range {
    uint64_t offset;
    uint64_t n_bytes;
    uint64_t total_bytes;
} dunlin__chunk_range;

DUNLIN_NODISCARD dunlin_status dunlin__chunk_range_format(const dunlin__chunk_range *range,
                                                          char out_value[DUNLIN_WIRE_RANGE_BYTES],
                                                          dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__chunk_range_parse(const char *value,
                                                         dunlin__chunk_range *out_range,
                                                         dunlin_error *error);

#endif

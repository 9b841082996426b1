/*
 * codec.h - one message between struct and bytes: nanopb with our rules and our error texts.
 */
#ifndef DUNLIN_PROTO_CODEC_H
#define DUNLIN_PROTO_CODEC_H

#include "rules.h"

#include <pb.h>

typedef struct dunlin__field_name {
    uint32_t tag;
    const char *name;
} dunlin__field_name;

/* What the codec knows of a message. `check_fn` lists the rules and may be NULL. */
typedef struct dunlin__message_kind {
    const char *name;
    const pb_msgdesc_t *descriptor;
    size_t struct_bytes;
    void (*check_fn)(dunlin__rules *rules, const void *message);
    const dunlin__field_name *fields;
    size_t n_fields;
} dunlin__message_kind;

/* A row for a generated FIELDLIST: DUNLIN_V1_STATUS_FIELDLIST(DUNLIN_FIELD_NAME, 0) */
#define DUNLIN_FIELD_NAME(unused, allocation, rule, type, field, tag) {(tag), #field},

dunlin_status dunlin__message_encode(const dunlin__message_kind *kind, const void *message,
                                     uint8_t *out_bytes, size_t capacity, size_t *out_n_bytes,
                                     dunlin_error *error);

/* The struct is zeroed first, and again after a failure. */
dunlin_status dunlin__message_decode(const dunlin__message_kind *kind, const uint8_t *bytes,
                                     size_t n_bytes, void *out_message, dunlin_error *error);

/* Runs the rules alone. */
dunlin_status dunlin__message_check(const dunlin__message_kind *kind, const void *message,
                                    bool is_decoded, dunlin_error *error);

/* Finds and names the field nanopb stumbled over. `scratch` is a zeroed struct of the message. */
dunlin_status dunlin__message_fail(const dunlin__message_kind *kind, const uint8_t *bytes,
                                   size_t n_bytes, void *scratch, dunlin_error *error);

/* PROTOCOL or LIMIT for what nanopb says of a message that is encoded. */
dunlin_status dunlin__message_fail_encode(const char *name, const char *reason, size_t capacity,
                                          dunlin_error *error);

/* The kinds, each beside its rules. */
extern const dunlin__message_kind dunlin__kind_enrol_request;
extern const dunlin__message_kind dunlin__kind_enrol_response;
extern const dunlin__message_kind dunlin__kind_checkin_request;
extern const dunlin__message_kind dunlin__kind_checkin_response;
extern const dunlin__message_kind dunlin__kind_run_over;
extern const dunlin__message_kind dunlin__kind_accept_request;
extern const dunlin__message_kind dunlin__kind_accept_response;
extern const dunlin__message_kind dunlin__kind_assignment;
extern const dunlin__message_kind dunlin__kind_put_response;
extern const dunlin__message_kind dunlin__kind_commit_request;
extern const dunlin__message_kind dunlin__kind_commit_response;
extern const dunlin__message_kind dunlin__kind_abort_request;
extern const dunlin__message_kind dunlin__kind_abort_response;
extern const dunlin__message_kind dunlin__kind_telemetry_request;
extern const dunlin__message_kind dunlin__kind_telemetry_response;
extern const dunlin__message_kind dunlin__kind_forget_request;
extern const dunlin__message_kind dunlin__kind_forget_response;
extern const dunlin__message_kind dunlin__kind_status;

/* Defines dunlin__kind_NAME with its table of field names; GENERATED is the generated prefix. */
#define DUNLIN_DEFINE_KIND(kind_name, text, GENERATED, check)                                      \
    static const dunlin__field_name kind_name##_fields[] = {                                       \
        GENERATED##_FIELDLIST(DUNLIN_FIELD_NAME, 0)};                                              \
    const dunlin__message_kind dunlin__kind_##kind_name = {                                        \
        .name = (text),                                                                            \
        .descriptor = GENERATED##_FIELDS,                                                          \
        .struct_bytes = sizeof(dunlin__##kind_name),                                               \
        .check_fn = (check),                                                                       \
        .fields = kind_name##_fields,                                                              \
        .n_fields = sizeof(kind_name##_fields) / sizeof(kind_name##_fields[0])}

#endif

/*
 * codec.c - one message between struct and bytes.
 *
 * nanopb says why it stopped but not where. In that case the bytes are walked field by field with
 * the same descriptor until the one that fails is found, so that the error can name it.
 */
#include "codec.h"

#include <mem/support.h>

#include <pb_decode.h>
#include <pb_encode.h>
#include <string.h>

dunlin_status dunlin__message_check(const dunlin__message_kind *kind, const void *message,
                                    bool is_decoded, dunlin_error *error)
{
    dunlin__rules rules = {.message = kind->name, .is_decoded = is_decoded, .error = error};
    if (kind->check_fn != NULL) {
        kind->check_fn(&rules, message);
    }
    return rules.status;
}

dunlin_status dunlin__message_fail_encode(const char *name, const char *reason, size_t capacity,
                                          dunlin_error *error)
{
    if (strcmp(reason, "stream full") == 0) {
        return dunlin__fail(error, DUNLIN_LIMIT, "message", 0, "%s: does not fit %zu bytes", name,
                            capacity);
    }
    return dunlin__fail(error, DUNLIN_PROTOCOL, "message", 0, "%s: cannot be encoded: %s", name,
                        reason);
}

dunlin_status dunlin__message_encode(const dunlin__message_kind *kind, const void *message,
                                     uint8_t *out_bytes, size_t capacity, size_t *out_n_bytes,
                                     dunlin_error *error)
{
    *out_n_bytes = 0;
    DUNLIN_TRY(dunlin__message_check(kind, message, false, error));
    pb_ostream_t stream = pb_ostream_from_buffer(out_bytes, capacity);
    if (!pb_encode(&stream, kind->descriptor, message)) {
        return dunlin__message_fail_encode(kind->name, PB_GET_ERROR(&stream), capacity, error);
    }
    *out_n_bytes = stream.bytes_written;
    return DUNLIN_OK;
}

static const char *name_field(const dunlin__message_kind *kind, uint32_t tag)
{
    for (size_t i = 0; i < kind->n_fields; i++) {
        if (kind->fields[i].tag == tag) {
            return kind->fields[i].name;
        }
    }
    return "an unknown field";
}

dunlin_status dunlin__message_fail(const dunlin__message_kind *kind, const uint8_t *bytes,
                                   size_t n_bytes, void *scratch, dunlin_error *error)
{
    pb_istream_t walk = pb_istream_from_buffer(bytes, n_bytes);
    while (walk.bytes_left > 0) {
        size_t first = n_bytes - walk.bytes_left;
        pb_wire_type_t wire_type = PB_WT_VARINT;
        uint32_t tag = 0;
        bool is_end = false;
        if (!pb_decode_tag(&walk, &wire_type, &tag, &is_end)) {
            return dunlin__fail(error, DUNLIN_PROTOCOL, "message", 0,
                                "%s: no field begins at byte %zu of %zu", kind->name, first,
                                n_bytes);
        }
        if (!pb_skip_field(&walk, wire_type)) {
            return dunlin__fail(error, DUNLIN_PROTOCOL, "message", 0,
                                "%s: %s is cut short at byte %zu of %zu", kind->name,
                                name_field(kind, tag), first, n_bytes);
        }
        size_t length = n_bytes - walk.bytes_left - first;
        pb_istream_t field = pb_istream_from_buffer(bytes + first, length);
        if (!pb_decode_ex(&field, kind->descriptor, scratch, PB_DECODE_NOINIT)) {
            return dunlin__fail(error, DUNLIN_PROTOCOL, "message", 0,
                                "%s: %s cannot be read (%s), %zu bytes at byte %zu", kind->name,
                                name_field(kind, tag), PB_GET_ERROR(&field), length, first);
        }
    }
    return dunlin__fail(error, DUNLIN_PROTOCOL, "message", 0, "%s: %zu bytes cannot be read",
                        kind->name, n_bytes);
}

dunlin_status dunlin__message_decode(const dunlin__message_kind *kind, const uint8_t *bytes,
                                     size_t n_bytes, void *out_message, dunlin_error *error)
{
    memset(out_message, 0, kind->struct_bytes);
    if (n_bytes > DUNLIN_WIRE_BODY_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "message", 0,
                            "%s: %zu bytes, at most %u are allowed", kind->name, n_bytes,
                            DUNLIN_WIRE_BODY_BYTES);
    }
    pb_istream_t stream = pb_istream_from_buffer(bytes, n_bytes);
    dunlin_status status = DUNLIN_OK;
    if (!pb_decode(&stream, kind->descriptor, out_message)) {
        memset(out_message, 0, kind->struct_bytes);
        status = dunlin__message_fail(kind, bytes, n_bytes, out_message, error);
    } else {
        status = dunlin__message_check(kind, out_message, true, error);
    }
    if (status != DUNLIN_OK) {
        memset(out_message, 0, kind->struct_bytes);
    }
    return status;
}

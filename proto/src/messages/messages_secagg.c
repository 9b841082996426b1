/*
 * messages_secagg.c - messages of secure aggregation, whose peers live in the caller's array, or go
 * through it one by one.
 *
 * The list is long, so nanopb hands over one peer at a time; none is held twice.
 */
#include "codec/codec.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <pb_decode.h>
#include <pb_encode.h>
#include <string.h>

#define KEY_BYTES 32u

typedef struct peer_list {
    const dunlin__secagg_message *message; /* that is encoded */
    dunlin__secagg_message *taken;         /* or decoded */
    dunlin__rules *rules;
} peer_list;

static void check_key(dunlin__rules *rules, const char *field, size_t n_bytes, size_t wanted_bytes)
{
    if (n_bytes != 0 && n_bytes != wanted_bytes) {
        dunlin__rules_break(rules, field, "has %zu bytes, 0 or %zu are allowed", n_bytes,
                            wanted_bytes);
    }
}

static void check_peer(dunlin__rules *rules, unsigned index, const dunlin__secagg_peer *peer)
{
    dunlin__rules_enter_item(rules, "peers", index);
    dunlin__rule_number(rules, "peer_index", peer->peer_index, 1, UINT32_MAX);
    check_key(rules, "encryption_key", peer->encryption_key.size, KEY_BYTES);
    check_key(rules, "mask_key", peer->mask_key.size, KEY_BYTES);
    check_key(rules, "signature", peer->signature.size, DUNLIN_SIGNATURE_BYTES);
    check_key(rules, "device_key", peer->device_key.size, DUNLIN_PUBLIC_KEY_BYTES);
    dunlin__rule_count(rules, "ciphertext", peer->ciphertext.size, 0,
                       sizeof(peer->ciphertext.bytes));
    dunlin__rule_count(rules, "share", peer->share.size, 0, sizeof(peer->share.bytes));
    dunlin__rule_number(rules, "share_kind", (uint64_t)peer->share_kind, DUNLIN_V1_SHARE_KIND_NONE,
                        DUNLIN_V1_SHARE_KIND_MASK_KEY);
    dunlin__rule_true(rules, "share",
                      (peer->share.size == 0) == (peer->share_kind == DUNLIN_V1_SHARE_KIND_NONE),
                      "and share_kind must come together");
    dunlin__rules_leave(rules);
}

static void check_message(dunlin__rules *rules, const dunlin__secagg_message *m)
{
    dunlin__rule_number(rules, "step", m->step, DUNLIN_V1_SECAGG_STEP_ADVERTISE,
                        DUNLIN_V1_SECAGG_STEP_UNMASK);
    dunlin__rule_number(rules, "retry_ms", m->retry_ms, 0, DUNLIN_WIRE_MAX_WAIT_MS);
    dunlin__rule_true(rules, "peers", !m->poll || m->n_peers == 0, "come with a poll");
    if (dunlin__rule_count(rules, "peers", m->n_peers, 0, DUNLIN_WIRE_PEERS)) {
        for (unsigned i = 0; m->peer_fn == NULL && i < m->n_peers; i++) {
            check_peer(rules, i, &m->peers[i]);
        }
    }
    if (m->n_survivor_bytes > DUNLIN_WIRE_SECAGG_COHORT / 8) {
        dunlin__rules_break(rules, "survivors", "has %u bytes, at most %u are allowed",
                            m->n_survivor_bytes, DUNLIN_WIRE_SECAGG_COHORT / 8);
    }
}

static bool encode_peer(pb_ostream_t *stream, const pb_field_t *field,
                        const dunlin__secagg_peer *peer)
{
    return pb_encode_tag_for_field(stream, field) &&
           pb_encode_submessage(stream, DUNLIN_V1_SECAGG_PEER_FIELDS, peer);
}

/* Asks for one peer, and judges it as those of an array are judged beforehand. */
static bool encode_asked(pb_ostream_t *stream, const pb_field_t *field, const peer_list *list,
                         uint32_t index)
{
    dunlin__secagg_peer peer = {0};
    dunlin__rules *rules = list->rules;
    rules->status = list->message->peer_fn(list->message->ctx, index, &peer, rules->error);
    check_peer(rules, index, &peer);
    const bool is_written = rules->status == DUNLIN_OK && encode_peer(stream, field, &peer);
    dunlin__wipe(&peer, sizeof(peer));
    return is_written;
}

static bool encode_peers(pb_ostream_t *stream, const pb_field_t *field, void *const *argument)
{
    const peer_list *list = *argument;
    for (uint32_t i = 0; i < list->message->n_peers; i++) {
        if (list->message->peer_fn != NULL
                ? !encode_asked(stream, field, list, i)
                : !encode_peer(stream, field, &list->message->peers[i])) {
            return false;
        }
    }
    return true;
}

static bool encode_survivors(pb_ostream_t *stream, const pb_field_t *field, void *const *argument)
{
    const peer_list *list = *argument;
    const dunlin__secagg_message *message = list->message;
    return message->n_survivor_bytes == 0 ||
           (pb_encode_tag_for_field(stream, field) &&
            pb_encode_string(stream, message->survivors, message->n_survivor_bytes));
}

static bool decode_survivors(pb_istream_t *stream, const pb_field_t *field, void **argument)
{
    (void)field;
    peer_list *list = *argument;
    dunlin__secagg_message *message = list->taken;
    if (stream->bytes_left > message->survivor_capacity) {
        list->rules->status =
            dunlin__fail(list->rules->error, DUNLIN_LIMIT, "message", 0,
                         "%s: survivors has %zu bytes, at most %u fit", list->rules->message,
                         stream->bytes_left, message->survivor_capacity);
        return false;
    }
    message->n_survivor_bytes = (uint32_t)stream->bytes_left;
    return pb_read(stream, message->survivors, stream->bytes_left);
}

static bool decode_peer(pb_istream_t *stream, const pb_field_t *field, void **argument)
{
    (void)field;
    peer_list *list = *argument;
    dunlin__secagg_message *message = list->taken;
    dunlin__rules *rules = list->rules;
    const bool is_handed = message->peer_fn != NULL;
    if ((!is_handed && message->n_peers == message->peer_capacity) ||
        message->n_peers == DUNLIN_WIRE_PEERS) {
        rules->status = dunlin__fail(rules->error, DUNLIN_LIMIT, "message", 0,
                                     "%s: more than %u peers", rules->message, message->n_peers);
        return false;
    }
    dunlin__secagg_peer handed;
    dunlin__secagg_peer *peer = is_handed ? &handed : &message->peers[message->n_peers];
    memset(peer, 0, sizeof(*peer));
    if (!pb_decode(stream, DUNLIN_V1_SECAGG_PEER_FIELDS, peer)) {
        dunlin__rules_break(rules, "peers", "item %u cannot be read (%s)", message->n_peers,
                            PB_GET_ERROR(stream));
        return false;
    }
    if (is_handed) {
        check_peer(rules, message->n_peers, peer);
        if (rules->status == DUNLIN_OK) {
            rules->status = message->peer_fn(message->ctx, message->n_peers, peer, rules->error);
        }
        dunlin__wipe(&handed, sizeof(handed));
    }
    message->n_peers++;
    return rules->status == DUNLIN_OK;
}

static dunlin_status encode_any(const dunlin__message_kind *kind, const void *generated,
                                const dunlin__rules *rules, uint8_t *out_bytes, size_t capacity,
                                size_t *out_n_bytes)
{
    size_t limit = (capacity < DUNLIN_WIRE_BODY_BYTES) ? capacity : DUNLIN_WIRE_BODY_BYTES;
    pb_ostream_t stream = pb_ostream_from_buffer(out_bytes, limit);
    if (!pb_encode(&stream, kind->descriptor, generated)) {
        DUNLIN_TRY(rules->status);
        return dunlin__message_fail_encode(kind->name, PB_GET_ERROR(&stream), limit, rules->error);
    }
    *out_n_bytes = stream.bytes_written;
    return DUNLIN_OK;
}

/* Reads into `generated`, whose peers go through `list`; the rules' status tells how it went. */
static dunlin_status decode_any(const dunlin__message_kind *kind, const uint8_t *bytes,
                                size_t n_bytes, void *generated, void *scratch,
                                dunlin__rules *rules)
{
    if (n_bytes > DUNLIN_WIRE_BODY_BYTES) {
        return dunlin__fail(rules->error, DUNLIN_LIMIT, "message", 0,
                            "%s: %zu bytes, at most %u are allowed", kind->name, n_bytes,
                            DUNLIN_WIRE_BODY_BYTES);
    }
    pb_istream_t stream = pb_istream_from_buffer(bytes, n_bytes);
    if (!pb_decode(&stream, kind->descriptor, generated) && rules->status == DUNLIN_OK) {
        return dunlin__message_fail(kind, bytes, n_bytes, scratch, rules->error);
    }
    return rules->status;
}

static const dunlin__field_name request_fields[] = {
    DUNLIN_V1_SECAGG_REQUEST_FIELDLIST(DUNLIN_FIELD_NAME, 0)};
static const dunlin__message_kind request_kind = {
    .name = "SecaggRequest",
    .descriptor = DUNLIN_V1_SECAGG_REQUEST_FIELDS,
    .struct_bytes = sizeof(dunlin_v1_secagg_request_t),
    .fields = request_fields,
    .n_fields = sizeof(request_fields) / sizeof(request_fields[0])};

static const dunlin__field_name response_fields[] = {
    DUNLIN_V1_SECAGG_RESPONSE_FIELDLIST(DUNLIN_FIELD_NAME, 0)};
static const dunlin__message_kind response_kind = {
    .name = "SecaggResponse",
    .descriptor = DUNLIN_V1_SECAGG_RESPONSE_FIELDS,
    .struct_bytes = sizeof(dunlin_v1_secagg_response_t),
    .fields = response_fields,
    .n_fields = sizeof(response_fields) / sizeof(response_fields[0])};

/* Keeps the caller's array, clears the rest. */
static void reset_message(dunlin__secagg_message *message)
{
    *message = (dunlin__secagg_message){.peers = message->peers,
                                        .peer_capacity = message->peer_capacity,
                                        .survivors = message->survivors,
                                        .survivor_capacity = message->survivor_capacity,
                                        .ctx = message->ctx,
                                        .peer_fn = message->peer_fn};
}

static dunlin_status finish_decode(dunlin__secagg_message *message, dunlin__rules *rules,
                                   dunlin_status status)
{
    if (status == DUNLIN_OK) {
        check_message(rules, message);
        status = rules->status;
    }
    if (status != DUNLIN_OK) {
        reset_message(message);
    }
    return status;
}

dunlin_status dunlin__secagg_request_encode(const dunlin__secagg_message *message,
                                            uint8_t *out_bytes, size_t capacity,
                                            size_t *out_n_bytes, dunlin_error *error)
{
    dunlin__rules rules = {.message = request_kind.name, .error = error};
    *out_n_bytes = 0;
    check_message(&rules, message);
    DUNLIN_TRY(rules.status);
    peer_list list = {.message = message, .rules = &rules};
    dunlin_v1_secagg_request_t generated = {.step = (dunlin_v1_secagg_step_t)message->step,
                                            .poll = message->poll,
                                            .peers = {.funcs.encode = encode_peers, .arg = &list}};
    if (message->has_manifest) {
        generated.manifest_sha256.size = DUNLIN_SHA256_BYTES;
        memcpy(generated.manifest_sha256.bytes, message->manifest_sha256, DUNLIN_SHA256_BYTES);
    }
    return encode_any(&request_kind, &generated, &rules, out_bytes, capacity, out_n_bytes);
}

dunlin_status dunlin__secagg_request_decode(const uint8_t *bytes, size_t n_bytes,
                                            dunlin__secagg_message *out_message,
                                            dunlin_error *error)
{
    dunlin__rules rules = {.message = request_kind.name, .is_decoded = true, .error = error};
    peer_list list = {.taken = out_message, .rules = &rules};
    dunlin_v1_secagg_request_t scratch = {0};
    dunlin_v1_secagg_request_t generated = {.peers = {.funcs.decode = decode_peer, .arg = &list}};
    reset_message(out_message);
    dunlin_status status = decode_any(&request_kind, bytes, n_bytes, &generated, &scratch, &rules);
    out_message->step = (uint32_t)generated.step;
    out_message->poll = generated.poll;
    size_t n_hash = generated.manifest_sha256.size;
    out_message->has_manifest = n_hash == DUNLIN_SHA256_BYTES;
    memcpy(out_message->manifest_sha256, generated.manifest_sha256.bytes, DUNLIN_SHA256_BYTES);
    if (status == DUNLIN_OK) {
        check_key(&rules, "manifest_sha256", n_hash, DUNLIN_SHA256_BYTES);
    }
    return finish_decode(out_message, &rules, status);
}

dunlin_status dunlin__secagg_response_encode(const dunlin__secagg_message *message,
                                             uint8_t *out_bytes, size_t capacity,
                                             size_t *out_n_bytes, dunlin_error *error)
{
    dunlin__rules rules = {.message = response_kind.name, .error = error};
    *out_n_bytes = 0;
    check_message(&rules, message);
    DUNLIN_TRY(rules.status);
    peer_list list = {.message = message, .rules = &rules};
    dunlin_v1_secagg_response_t generated = {
        .step = (dunlin_v1_secagg_step_t)message->step,
        .ready = message->ready,
        .retry_ms = message->retry_ms,
        .peers = {.funcs.encode = encode_peers, .arg = &list},
        .survivors = {.funcs.encode = encode_survivors, .arg = &list}};
    return encode_any(&response_kind, &generated, &rules, out_bytes, capacity, out_n_bytes);
}

dunlin_status dunlin__secagg_response_decode(const uint8_t *bytes, size_t n_bytes,
                                             dunlin__secagg_message *out_message,
                                             dunlin_error *error)
{
    dunlin__rules rules = {.message = response_kind.name, .is_decoded = true, .error = error};
    peer_list list = {.taken = out_message, .rules = &rules};
    dunlin_v1_secagg_response_t scratch = {0};
    dunlin_v1_secagg_response_t generated = {
        .peers = {.funcs.decode = decode_peer, .arg = &list},
        .survivors = {.funcs.decode = decode_survivors, .arg = &list}};
    reset_message(out_message);
    dunlin_status status = decode_any(&response_kind, bytes, n_bytes, &generated, &scratch, &rules);
    out_message->step = (uint32_t)generated.step;
    out_message->ready = generated.ready;
    out_message->retry_ms = generated.retry_ms;
    return finish_decode(out_message, &rules, status);
}

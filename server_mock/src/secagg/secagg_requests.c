/*
 * secagg_requests.c - what the server takes of a device's request, and what it answers.
 *
 * Invariant: a request that is refused has changed nothing. One that comes a second time is OK if
 * it says the same, so that an answer may be lost; other keys, shares or names are refused.
 */
#include "secagg_cohort.h"

#include <mem/support.h>
#include <wire/signature.h>

#include <string.h>

static dunlin_status refuse_device(dunlin_error *error, dunlin_status status, uint32_t peer_index,
                                   const char *what)
{
    return dunlin__fail(error, status, "secagg", 0, "peer %u of a secure aggregation %s",
                        peer_index, what);
}

/* A device has one place in a session, and another one's keys fit no place. */
static bool is_taken_key(const dunlin__secagg_server *server, uint32_t peer_index,
                         const uint8_t *device_key, const dunlin__secagg_peer *keys)
{
    for (uint32_t i = 1; i <= server->plan.n_cohort; i++) {
        const secagg_device *other = secagg_device_of(server, i);
        if (i != peer_index && other->took[DUNLIN_V1_SECAGG_STEP_ADVERTISE] &&
            (memcmp(other->device_key, device_key, DUNLIN_PUBLIC_KEY_BYTES) == 0 ||
             memcmp(other->encryption_key, keys->encryption_key.bytes, DUNLIN_X25519_BYTES) == 0 ||
             memcmp(other->mask_key, keys->mask_key.bytes, DUNLIN_X25519_BYTES) == 0)) {
            return true;
        }
    }
    return false;
}

static dunlin_status take_advertise(dunlin__secagg_server *server, uint32_t peer_index,
                                    const uint8_t *device_key,
                                    const dunlin__secagg_message *message, dunlin_error *error)
{
    secagg_device *device = secagg_device_of(server, peer_index);
    const dunlin__secagg_peer *keys = &message->peers[0];
    uint8_t statement[DUNLIN_SECAGG_STATEMENT_BYTES];
    if (message->n_peers != 1 || keys->peer_index != peer_index ||
        keys->encryption_key.size != DUNLIN_X25519_BYTES ||
        keys->mask_key.size != DUNLIN_X25519_BYTES ||
        keys->signature.size != DUNLIN_SIGNATURE_BYTES) {
        return refuse_device(error, DUNLIN_PROTOCOL, peer_index, "advertises without all its keys");
    }
    if (device->took[DUNLIN_V1_SECAGG_STEP_ADVERTISE]) {
        const bool is_same =
            memcmp(device->device_key, device_key, DUNLIN_PUBLIC_KEY_BYTES) == 0 &&
            memcmp(device->encryption_key, keys->encryption_key.bytes, DUNLIN_X25519_BYTES) == 0 &&
            memcmp(device->mask_key, keys->mask_key.bytes, DUNLIN_X25519_BYTES) == 0;
        return is_same ? DUNLIN_OK
                       : refuse_device(error, DUNLIN_REJECTED, peer_index,
                                       "advertises other keys than the first time");
    }
    if (is_taken_key(server, peer_index, device_key, keys)) {
        return refuse_device(error, DUNLIN_REJECTED, peer_index,
                             "advertises a key that another one has");
    }
    const size_t n = dunlin__secagg_key_statement(
        server->terms, peer_index, keys->encryption_key.bytes, keys->mask_key.bytes, statement);
    if (dunlin__verify(device_key, statement, n, keys->signature.bytes, NULL) != DUNLIN_OK) {
        return refuse_device(error, DUNLIN_SIGNATURE, peer_index,
                             "has a wrong signature under its keys");
    }
    memcpy(device->device_key, device_key, DUNLIN_PUBLIC_KEY_BYTES);
    memcpy(device->encryption_key, keys->encryption_key.bytes, DUNLIN_X25519_BYTES);
    memcpy(device->mask_key, keys->mask_key.bytes, DUNLIN_X25519_BYTES);
    memcpy(device->key_signature, keys->signature.bytes, DUNLIN_SIGNATURE_BYTES);
    return DUNLIN_OK;
}

/* Whether the peers are neighbours, none twice, and all sealed bytes there. */
static dunlin_status check_sealed(const dunlin__secagg_server *server, uint32_t peer_index,
                                  const dunlin__secagg_message *message, dunlin_error *error)
{
    uint8_t is_seen[DUNLIN_WIRE_PEERS + 1] = {0};
    for (uint32_t i = 0; i < message->n_peers; i++) {
        const uint32_t place =
            dunlin__secagg_place(server, peer_index, message->peers[i].peer_index);
        if (place == 0 || is_seen[place] != 0) {
            return refuse_device(error, DUNLIN_PROTOCOL, peer_index,
                                 "names a peer that is no neighbour, or one twice");
        }
        if (message->peers[i].ciphertext.size != DUNLIN_SECAGG_SEALED_BYTES) {
            return refuse_device(error, DUNLIN_PROTOCOL, peer_index,
                                 "sends shares of another length than sealed ones have");
        }
        is_seen[place] = 1;
    }
    return message->n_peers == server->n_slots
               ? DUNLIN_OK
               : refuse_device(error, DUNLIN_PROTOCOL, peer_index,
                               "sends no shares for some of its neighbours");
}

static dunlin_status take_share(dunlin__secagg_server *server, uint32_t peer_index,
                                const dunlin__secagg_message *message, dunlin_error *error)
{
    const bool is_second = secagg_device_of(server, peer_index)->took[DUNLIN_V1_SECAGG_STEP_SHARE];
    DUNLIN_TRY(check_sealed(server, peer_index, message, error));
    for (uint32_t i = 0; i < message->n_peers; i++) {
        const dunlin__secagg_peer *peer = &message->peers[i];
        const uint32_t place = dunlin__secagg_place(server, peer_index, peer->peer_index);
        uint8_t *slot =
            server->sealed + secagg_slot(server, peer_index, place) * DUNLIN_SECAGG_SEALED_BYTES;
        if (is_second && memcmp(slot, peer->ciphertext.bytes, DUNLIN_SECAGG_SEALED_BYTES) != 0) {
            return refuse_device(error, DUNLIN_REJECTED, peer_index,
                                 "sends other shares than the first time");
        }
        memcpy(slot, peer->ciphertext.bytes, DUNLIN_SECAGG_SEALED_BYTES);
    }
    return DUNLIN_OK;
}

static dunlin_status take_consistency(dunlin__secagg_server *server, uint32_t peer_index,
                                      const dunlin__secagg_message *message, dunlin_error *error)
{
    secagg_device *device = secagg_device_of(server, peer_index);
    uint8_t statement[DUNLIN_SECAGG_STATEMENT_BYTES];
    if (message->n_peers != 1 || message->peers[0].peer_index != peer_index ||
        message->peers[0].signature.size != DUNLIN_SIGNATURE_BYTES) {
        return refuse_device(error, DUNLIN_PROTOCOL, peer_index, "comes without a signature");
    }
    const size_t n = dunlin__secagg_survivor_statement(server->terms, peer_index,
                                                       server->survivors_sha256, statement);
    if (dunlin__verify(device->device_key, statement, n, message->peers[0].signature.bytes, NULL) !=
        DUNLIN_OK) {
        return refuse_device(error, DUNLIN_SIGNATURE, peer_index, "signed other survivors");
    }
    memcpy(device->survivor_signature, message->peers[0].signature.bytes, DUNLIN_SIGNATURE_BYTES);
    return DUNLIN_OK;
}

/* Of each neighbour that sent shares one, of the kind that its fate asks for, at its place. */
static dunlin_status check_told(const dunlin__secagg_server *server, uint32_t peer_index,
                                const dunlin__secagg_message *message, dunlin_error *error)
{
    uint8_t is_seen[DUNLIN_WIRE_PEERS + 1] = {0};
    for (uint32_t i = 0; i < message->n_peers; i++) {
        const dunlin__secagg_peer *peer = &message->peers[i];
        const uint32_t place = dunlin__secagg_place(server, peer_index, peer->peer_index);
        if (place == 0 || is_seen[place] != 0) {
            return refuse_device(error, DUNLIN_PROTOCOL, peer_index,
                                 "tells of a peer that is no neighbour, or of one twice");
        }
        const secagg_device *owner = secagg_device_of(server, peer->peer_index);
        const dunlin_v1_share_kind_t wanted = !owner->took[DUNLIN_V1_SECAGG_STEP_SHARE]
                                                  ? DUNLIN_V1_SHARE_KIND_NONE
                                              : owner->is_folded ? DUNLIN_V1_SHARE_KIND_SELF_MASK
                                                                 : DUNLIN_V1_SHARE_KIND_MASK_KEY;
        if (wanted == DUNLIN_V1_SHARE_KIND_NONE || peer->share_kind != wanted ||
            peer->share.size != DUNLIN_SECAGG_TOLD_BYTES ||
            peer->share.bytes[0] != dunlin__secagg_place(server, peer->peer_index, peer_index)) {
            return refuse_device(error, DUNLIN_PROTOCOL, peer_index,
                                 "tells a share of another kind or place than was asked for");
        }
        is_seen[place] = 1;
    }
    return DUNLIN_OK;
}

static dunlin_status take_unmask(dunlin__secagg_server *server, uint32_t peer_index,
                                 const dunlin__secagg_message *message, dunlin_error *error)
{
    DUNLIN_TRY(check_told(server, peer_index, message, error));
    if (secagg_device_of(server, peer_index)->took[DUNLIN_V1_SECAGG_STEP_UNMASK]) {
        return DUNLIN_OK; /* what was told stands */
    }
    for (uint32_t i = 0; i < message->n_peers; i++) {
        const dunlin__secagg_peer *peer = &message->peers[i];
        secagg_told *told =
            &server->told[secagg_slot(server, peer->peer_index, peer->share.bytes[0])];
        memcpy(told->share, peer->share.bytes + 1, DUNLIN_SHAMIR_BYTES);
        told->is_there = true;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_take_request(dunlin__secagg_server *server, uint32_t peer_index,
                                          const uint8_t *device_key,
                                          const dunlin__secagg_message *message,
                                          dunlin_error *error)
{
    secagg_device *device = secagg_device_of(server, peer_index);
    dunlin_status status = DUNLIN_OK;
    if (server->step != DUNLIN_V1_SECAGG_STEP_ADVERTISE &&
        memcmp(device->device_key, device_key, DUNLIN_PUBLIC_KEY_BYTES) != 0) {
        return refuse_device(error, DUNLIN_REJECTED, peer_index,
                             "comes with another device's key than it advertised with");
    }
    switch (server->step) {
    case DUNLIN_V1_SECAGG_STEP_ADVERTISE:
        status = take_advertise(server, peer_index, device_key, message, error);
        break;
    case DUNLIN_V1_SECAGG_STEP_SHARE:
        status = take_share(server, peer_index, message, error);
        break;
    case DUNLIN_V1_SECAGG_STEP_MASK:
        status = message->has_manifest && message->n_peers == 0
                     ? DUNLIN_OK
                     : refuse_device(error, DUNLIN_PROTOCOL, peer_index,
                                     "names no manifest of its vector");
        break;
    case DUNLIN_V1_SECAGG_STEP_CONSISTENCY:
        status = take_consistency(server, peer_index, message, error);
        break;
    default:
        status = take_unmask(server, peer_index, message, error);
        break;
    }
    if (status == DUNLIN_OK) {
        device->took[server->step] = true;
    }
    return status;
}

/* ---- answers ---- */

typedef struct answer {
    const dunlin__secagg_server *server;
    uint32_t peer_index;
    uint32_t step;
    uint32_t next; /* of the neighbours */
} answer;

/* Whether a neighbour is in the answer. */
static bool is_in_answer(const answer *now, uint32_t neighbour)
{
    const secagg_device *device = secagg_device_of(now->server, neighbour);
    return now->step == DUNLIN_V1_SECAGG_STEP_ADVERTISE || device->took[now->step];
}

static void give_device_keys(const dunlin__secagg_server *server, uint32_t peer_index,
                             dunlin__secagg_peer *peer)
{
    const secagg_device *device = secagg_device_of(server, peer_index);
    peer->peer_index = peer_index;
    peer->encryption_key.size = DUNLIN_X25519_BYTES;
    memcpy(peer->encryption_key.bytes, device->encryption_key, DUNLIN_X25519_BYTES);
    peer->mask_key.size = DUNLIN_X25519_BYTES;
    memcpy(peer->mask_key.bytes, device->mask_key, DUNLIN_X25519_BYTES);
    peer->signature.size = DUNLIN_SIGNATURE_BYTES;
    memcpy(peer->signature.bytes, device->key_signature, DUNLIN_SIGNATURE_BYTES);
    peer->device_key.size = DUNLIN_PUBLIC_KEY_BYTES;
    memcpy(peer->device_key.bytes, device->device_key, DUNLIN_PUBLIC_KEY_BYTES);
}

static dunlin_status give_next(void *ctx, uint32_t index, dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    answer *now = ctx;
    const dunlin__secagg_server *server = now->server;
    (void)error;
    if (now->step == DUNLIN_V1_SECAGG_STEP_ADVERTISE && index == 0) {
        give_device_keys(server, now->peer_index, peer);
        return DUNLIN_OK;
    }
    const uint32_t *list = secagg_neighbours_of(server, now->peer_index);
    while (!is_in_answer(now, list[now->next])) {
        now->next++;
    }
    const uint32_t neighbour = list[now->next++];
    peer->peer_index = neighbour;
    if (now->step == DUNLIN_V1_SECAGG_STEP_ADVERTISE) {
        give_device_keys(server, neighbour, peer);
    } else if (now->step == DUNLIN_V1_SECAGG_STEP_SHARE) {
        const uint32_t place = dunlin__secagg_place(server, neighbour, now->peer_index);
        peer->ciphertext.size = DUNLIN_SECAGG_SEALED_BYTES;
        memcpy(peer->ciphertext.bytes,
               server->sealed + secagg_slot(server, neighbour, place) * DUNLIN_SECAGG_SEALED_BYTES,
               DUNLIN_SECAGG_SEALED_BYTES);
    } else {
        peer->signature.size = DUNLIN_SIGNATURE_BYTES;
        memcpy(peer->signature.bytes, secagg_device_of(server, neighbour)->survivor_signature,
               DUNLIN_SIGNATURE_BYTES);
    }
    return DUNLIN_OK;
}

/* How many peers are in an answer. */
static uint32_t count_in_answer(const answer *now)
{
    const uint32_t *list = secagg_neighbours_of(now->server, now->peer_index);
    uint32_t n = now->step == DUNLIN_V1_SECAGG_STEP_ADVERTISE ? 1 : 0;
    for (uint32_t i = 0; i < now->server->n_slots; i++) {
        n += is_in_answer(now, list[i]) ? 1 : 0;
    }
    return n;
}

/* Whether a peer may ask for the answer of a step now. */
static dunlin_status check_asked(const dunlin__secagg_server *server, uint32_t peer_index,
                                 uint32_t step, dunlin_error *error)
{
    if (step < DUNLIN_V1_SECAGG_STEP_ADVERTISE || step > DUNLIN_V1_SECAGG_STEP_UNMASK) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "step %u is none of a secure aggregation", step);
    }
    const bool is_past = step == DUNLIN_V1_SECAGG_STEP_SHARE && server->sealed == NULL;
    if (server->step == DUNLIN_SECAGG_FAILED || is_past || peer_index < 1 ||
        peer_index > server->plan.n_cohort || !secagg_device_of(server, peer_index)->took[step]) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "peer %u gets no answer of step %u in step %u", peer_index, step,
                            server->step);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_server_answer(dunlin__secagg_server *server,
                                           const dunlin__secagg_asked *asked, uint8_t *out_bytes,
                                           size_t capacity, size_t *out_n_bytes,
                                           dunlin_error *error)
{
    const uint32_t step = asked->step;
    answer now = {.server = server, .peer_index = asked->peer_index, .step = step};
    *out_n_bytes = 0;
    DUNLIN_TRY(check_asked(server, asked->peer_index, step, error));
    const bool is_mask = step == DUNLIN_V1_SECAGG_STEP_MASK;
    dunlin__secagg_message message = {
        .step = step, .ready = server->step > step, .ctx = &now, .peer_fn = give_next};
    message.retry_ms = message.ready ? 0 : asked->retry_ms;
    if (message.ready && is_mask) {
        message.survivors = server->survivors;
        message.n_survivor_bytes = (server->plan.n_cohort + 7) / 8;
    } else if (message.ready && step != DUNLIN_V1_SECAGG_STEP_UNMASK) {
        message.n_peers = count_in_answer(&now);
    }
    return dunlin__secagg_response_encode(&message, out_bytes, capacity, out_n_bytes, error);
}

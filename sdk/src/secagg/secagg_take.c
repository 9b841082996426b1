/*
 * secagg_take.c - what a device refuses of what the server tells it, peer by peer.
 *
 * The refusals: a key or an index twice, own keys changed, a wrong signature, a point of low order,
 * shares of nobody it knows, sealed for another or under another place, a survivor that sent no
 * shares, itself among those that dropped out.
 */
#include "secagg_state.h"

#include <mem/support.h>
#include <wire/signature.h>

#include <string.h>

secagg_neighbour *dunlin__secagg_find(dunlin__secagg_client *client, uint32_t peer_index)
{
    for (uint32_t i = 0; i < client->n_neighbours; i++) {
        if (client->neighbours[i].peer_index == peer_index) {
            return &client->neighbours[i];
        }
    }
    return NULL;
}

static dunlin_status refuse_peer(dunlin_error *error, dunlin_status status, uint32_t peer_index,
                                 const char *what)
{
    return dunlin__fail(error, status, "secagg", 0, "peer %u of a secure aggregation %s",
                        peer_index, what);
}

/* Own keys come back as they were sent, or somebody changed them. */
static dunlin_status take_own_keys(dunlin__secagg_client *client, const dunlin__secagg_peer *peer,
                                   dunlin_error *error)
{
    if (client->has_own) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index, "is in the list twice");
    }
    if (memcmp(peer->encryption_key.bytes, client->encryption_key, DUNLIN_X25519_BYTES) != 0 ||
        memcmp(peer->mask_key.bytes, client->mask_key, DUNLIN_X25519_BYTES) != 0 ||
        memcmp(peer->device_key.bytes, client->options.device_key, DUNLIN_PUBLIC_KEY_BYTES) != 0) {
        return refuse_peer(error, DUNLIN_MISMATCH, peer->peer_index,
                           "is this device, with other keys than its own");
    }
    client->has_own = true;
    return DUNLIN_OK;
}

/* A device of many names, or one that copies another's keys. While the list is read, `secret` and
 * `mask` hold the public keys. */
static dunlin_status check_new(dunlin__secagg_client *client, const dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    const uint8_t *one = peer->encryption_key.bytes;
    const uint8_t *two = peer->mask_key.bytes;
    bool is_known =
        memcmp(one, two, DUNLIN_X25519_BYTES) == 0 ||
        memcmp(one, client->encryption_key, DUNLIN_X25519_BYTES) == 0 ||
        memcmp(two, client->mask_key, DUNLIN_X25519_BYTES) == 0 ||
        memcmp(peer->device_key.bytes, client->options.device_key, DUNLIN_PUBLIC_KEY_BYTES) == 0;
    for (uint32_t i = 0; i < client->n_neighbours; i++) {
        const secagg_neighbour *other = &client->neighbours[i];
        is_known = is_known || memcmp(one, other->secret, DUNLIN_X25519_BYTES) == 0 ||
                   memcmp(two, other->mask, DUNLIN_X25519_BYTES) == 0 ||
                   memcmp(peer->device_key.bytes, other->device_key, DUNLIN_PUBLIC_KEY_BYTES) == 0;
    }
    if (dunlin__secagg_find(client, peer->peer_index) != NULL) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index, "is in the list twice");
    }
    return is_known ? refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index,
                                  "has a key that another one has")
                    : DUNLIN_OK;
}

static dunlin_status verify_keys(dunlin__secagg_client *client, const dunlin__secagg_peer *peer,
                                 dunlin_error *error)
{
    uint8_t statement[DUNLIN_SECAGG_STATEMENT_BYTES];
    const size_t n =
        dunlin__secagg_key_statement(client->terms, peer->peer_index, peer->encryption_key.bytes,
                                     peer->mask_key.bytes, statement);
    if (dunlin__verify(peer->device_key.bytes, statement, n, peer->signature.bytes, NULL) !=
        DUNLIN_OK) {
        return refuse_peer(error, DUNLIN_SIGNATURE, peer->peer_index,
                           "has a wrong signature under its keys");
    }
    return client->options.judge_key_fn == NULL
               ? DUNLIN_OK
               : client->options.judge_key_fn(client->options.ctx, peer->peer_index,
                                              peer->device_key.bytes, error);
}

dunlin_status dunlin__secagg_take_keys(dunlin__secagg_client *client,
                                       const dunlin__secagg_peer *peer, dunlin_error *error)
{
    if (peer->peer_index > client->plan.n_cohort) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index, "is beyond the cohort");
    }
    if (peer->encryption_key.size != DUNLIN_X25519_BYTES ||
        peer->mask_key.size != DUNLIN_X25519_BYTES ||
        peer->signature.size != DUNLIN_SIGNATURE_BYTES ||
        peer->device_key.size != DUNLIN_PUBLIC_KEY_BYTES) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index, "comes without all its keys");
    }
    if (peer->peer_index == client->plan.peer_index) {
        return take_own_keys(client, peer, error);
    }
    if (client->n_neighbours == client->plan.n_neighbours) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index,
                           "is one neighbour more than n_neighbours");
    }
    DUNLIN_TRY(check_new(client, peer, error));
    DUNLIN_TRY(verify_keys(client, peer, error));
    secagg_neighbour *neighbour = &client->neighbours[client->n_neighbours];
    *neighbour = (secagg_neighbour){.peer_index = peer->peer_index};
    memcpy(neighbour->device_key, peer->device_key.bytes, DUNLIN_PUBLIC_KEY_BYTES);
    memcpy(neighbour->secret, peer->encryption_key.bytes, DUNLIN_X25519_BYTES);
    memcpy(neighbour->mask, peer->mask_key.bytes, DUNLIN_X25519_BYTES);
    client->n_neighbours++;
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_take_shares(dunlin__secagg_client *client,
                                         const dunlin__secagg_peer *peer, dunlin_error *error)
{
    secagg_neighbour *neighbour = dunlin__secagg_find(client, peer->peer_index);
    if (neighbour == NULL) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index,
                           "sent shares and is no neighbour");
    }
    if (neighbour->has_sent) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index, "sent shares twice");
    }
    if (peer->ciphertext.size != DUNLIN_SECAGG_SEALED_BYTES) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "secagg", 0,
                            "peer %u of a secure aggregation sent %u sealed bytes, not %u",
                            peer->peer_index, (unsigned)peer->ciphertext.size,
                            DUNLIN_SECAGG_SEALED_BYTES);
    }
    const dunlin_status status = dunlin__secagg_open(
        client->terms, neighbour->secret, peer->peer_index, client->plan.peer_index,
        peer->ciphertext.bytes, &neighbour->shares, error);
    if (status == DUNLIN_DIGEST) {
        return refuse_peer(error, DUNLIN_DIGEST, peer->peer_index,
                           "sent shares that were sealed by another, for another, or changed");
    }
    DUNLIN_TRY(status);
    if (neighbour->shares.place == 0 || neighbour->shares.place > client->plan.n_neighbours) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index,
                           "sent shares for a place that n_neighbours has not");
    }
    neighbour->has_sent = true;
    client->n_sent++;
    return DUNLIN_OK;
}

static bool has_bit(const uint8_t *bits, uint32_t peer_index)
{
    return ((unsigned)bits[(peer_index - 1) / 8] >> ((peer_index - 1) % 8) & 1u) != 0;
}

static uint32_t count_bits(const uint8_t *bits, size_t n_bytes)
{
    uint32_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        n += (uint32_t)__builtin_popcount(bits[i]);
    }
    return n;
}

/* Bits of nobody: past the cohort. */
static bool has_strangers(const dunlin__secagg_client *client, const uint8_t *bits)
{
    const uint32_t n_last = client->plan.n_cohort % 8;
    return n_last != 0 && (unsigned)bits[client->plan.n_cohort / 8] >> n_last != 0;
}

dunlin_status dunlin__secagg_take_survivors(dunlin__secagg_client *client, const uint8_t *bits,
                                            size_t n_bytes, dunlin_error *error)
{
    const dunlin__secagg_plan *plan = &client->plan;
    if (n_bytes != (plan->n_cohort + 7) / 8 || has_strangers(client, bits)) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "secagg", 0,
                            "the survivors' %zu bytes are not a bit for each of %u devices",
                            n_bytes, plan->n_cohort);
    }
    if (!has_bit(bits, plan->peer_index)) {
        return refuse_peer(error, DUNLIN_REJECTED, plan->peer_index,
                           "is this device, and is said to have dropped out");
    }
    uint32_t n_alive = 0;
    for (uint32_t i = 0; i < client->n_neighbours; i++) {
        secagg_neighbour *neighbour = &client->neighbours[i];
        neighbour->survives = has_bit(bits, neighbour->peer_index);
        n_alive += neighbour->survives ? 1 : 0;
        if (neighbour->survives && !neighbour->has_sent) {
            return refuse_peer(error, DUNLIN_PROTOCOL, neighbour->peer_index,
                               "is said to survive and sent no shares");
        }
    }
    if (n_alive < plan->threshold) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "%u neighbours survive, fewer than the threshold %u", n_alive,
                            plan->threshold);
    }
    const uint32_t n_all = count_bits(bits, n_bytes);
    const uint32_t floor = client->options.floor.least_devices;
    const uint32_t least = floor > plan->least_devices ? floor : plan->least_devices;
    if (n_all < least) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "%u devices survive, fewer than the least of a sum, %u", n_all, least);
    }
    return dunlin__sha256_of(bits, n_bytes, client->survivors_sha256, error);
}

dunlin_status dunlin__secagg_take_signature(dunlin__secagg_client *client,
                                            const dunlin__secagg_peer *peer, dunlin_error *error)
{
    uint8_t statement[DUNLIN_SECAGG_STATEMENT_BYTES];
    secagg_neighbour *neighbour = dunlin__secagg_find(client, peer->peer_index);
    if (neighbour == NULL || !neighbour->survives) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index,
                           "signed the survivors and is none of this device's");
    }
    if (neighbour->agrees) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index, "signed the survivors twice");
    }
    if (peer->signature.size != DUNLIN_SIGNATURE_BYTES) {
        return refuse_peer(error, DUNLIN_PROTOCOL, peer->peer_index, "comes without a signature");
    }
    const size_t n = dunlin__secagg_survivor_statement(client->terms, peer->peer_index,
                                                       client->survivors_sha256, statement);
    if (dunlin__verify(neighbour->device_key, statement, n, peer->signature.bytes, NULL) !=
        DUNLIN_OK) {
        return refuse_peer(error, DUNLIN_SIGNATURE, peer->peer_index,
                           "did not sign the same survivors");
    }
    neighbour->agrees = true;
    return DUNLIN_OK;
}

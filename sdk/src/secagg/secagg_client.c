/*
 * secagg_client.c - one device's part in a secure aggregation, step by step.
 *
 * Invariant: `step` only grows. A failure, and the last message, wipe every secret; what is wiped
 * answers STATE. Bell et al. 2020, algorithm 2; Bonawitz et al. 2017, figure 4.
 */
#include "secagg_state.h"

#include <mem/support.h>

#include <string.h>

static void wipe_coefficients(dunlin__secagg_client *client)
{
    if (client->coefficients != NULL) {
        const size_t n_bytes = 2 * secagg_coefficient_bytes(client);
        dunlin__wipe(client->coefficients, n_bytes);
        dunlin__free_array(&client->alloc, client->coefficients, n_bytes, 1);
        client->coefficients = NULL;
    }
}

void dunlin__secagg_end(dunlin__secagg_client *client)
{
    wipe_coefficients(client);
    dunlin__wipe(client->neighbours, client->plan.n_neighbours * sizeof(client->neighbours[0]));
    dunlin__wipe(client->encryption_private, sizeof(client->encryption_private));
    dunlin__wipe(client->mask_private, sizeof(client->mask_private));
    dunlin__wipe(client->seed, sizeof(client->seed));
    dunlin__wipe(client->self_key, sizeof(client->self_key));
    client->n_neighbours = 0;
    client->step = SECAGG_OVER;
}

dunlin_status dunlin__secagg_floor_check(const dunlin__secagg_plan *plan,
                                         const dunlin__secagg_floor *floor, dunlin_error *error)
{
    const struct {
        const char *name;
        uint32_t value;
        uint32_t least;
    } rows[] = {
        {"n_cohort", plan->n_cohort, floor->least_cohort},
        {"n_neighbours", plan->n_neighbours,
         plan->n_neighbours + 1 >= plan->n_cohort ? 0 : floor->least_neighbours},
        {"threshold", plan->threshold, floor->least_threshold},
        {"least_devices", plan->least_devices, floor->least_devices},
        {"check_consistency", plan->check_consistency ? 1 : 0, floor->needs_consistency ? 1 : 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].value < rows[i].least) {
            return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                                "%s of the secure aggregation is %u, this app wants at least %u",
                                rows[i].name, rows[i].value, rows[i].least);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_index(const dunlin__secagg_plan *plan, dunlin_error *error)
{
    if (plan->peer_index < 1 || plan->peer_index > plan->n_cohort) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "peer_index is %u, allowed are 1 to n_cohort, %u", plan->peer_index,
                            plan->n_cohort);
    }
    return DUNLIN_OK;
}

static dunlin_status draw_keys(dunlin__secagg_client *client, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__secagg_digest(&client->plan, client->terms, error));
    DUNLIN_TRY(dunlin__random_bytes(client->encryption_private, DUNLIN_X25519_BYTES, error));
    DUNLIN_TRY(dunlin__random_bytes(client->mask_private, DUNLIN_X25519_BYTES, error));
    DUNLIN_TRY(dunlin__random_bytes(client->seed, DUNLIN_SHAMIR_BYTES, error));
    DUNLIN_TRY(dunlin__secagg_self_key(client->terms, client->seed, client->plan.peer_index,
                                       client->self_key, error));
    DUNLIN_TRY(dunlin__x25519_public(client->encryption_private, client->encryption_key, error));
    return dunlin__x25519_public(client->mask_private, client->mask_key, error);
}

dunlin_status dunlin__secagg_client_open(const dunlin__secagg_client_options *options,
                                         dunlin__secagg_client **out_client, dunlin_error *error)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(options->alloc);
    *out_client = NULL;
    DUNLIN_TRY(dunlin__secagg_check(options->plan, error));
    DUNLIN_TRY(dunlin__secagg_floor_check(options->plan, &options->floor, error));
    DUNLIN_TRY(check_index(options->plan, error));
    dunlin__secagg_client *client = dunlin__alloc_zeroed(&alloc, 1, sizeof(*client));
    if (client == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0,
                            "no memory for a secure aggregation");
    }
    client->plan = *options->plan;
    client->options = *options;
    client->alloc = alloc;
    client->step = DUNLIN_V1_SECAGG_STEP_ADVERTISE;
    client->neighbours =
        dunlin__alloc_zeroed(&alloc, client->plan.n_neighbours, sizeof(client->neighbours[0]));
    dunlin_status status =
        client->neighbours != NULL
            ? draw_keys(client, error)
            : dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0, "no memory for %u neighbours",
                           client->plan.n_neighbours);
    if (status != DUNLIN_OK) {
        dunlin__secagg_client_close(client);
        return status;
    }
    *out_client = client;
    return DUNLIN_OK;
}

void dunlin__secagg_client_close(dunlin__secagg_client *client)
{
    if (client == NULL) {
        return;
    }
    const dunlin_alloc alloc = client->alloc;
    if (client->neighbours != NULL) {
        dunlin__secagg_end(client);
        dunlin__free_array(&alloc, client->neighbours, client->plan.n_neighbours,
                           sizeof(client->neighbours[0]));
    }
    dunlin__wipe(client, sizeof(*client));
    dunlin__free_array(&alloc, client, 1, sizeof(*client));
}

uint32_t dunlin__secagg_client_step(const dunlin__secagg_client *client)
{
    return client->step;
}

/* ---- what is written ---- */

static dunlin_status sign_for(dunlin__secagg_client *client, const uint8_t *statement, size_t n,
                              dunlin__secagg_peer *peer, dunlin_error *error)
{
    peer->signature.size = DUNLIN_SIGNATURE_BYTES;
    return client->options.sign_fn(client->options.ctx, statement, n, peer->signature.bytes, error);
}

static dunlin_status give_keys(dunlin__secagg_client *client, dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    uint8_t statement[DUNLIN_SECAGG_STATEMENT_BYTES];
    peer->peer_index = client->plan.peer_index;
    peer->encryption_key.size = DUNLIN_X25519_BYTES;
    memcpy(peer->encryption_key.bytes, client->encryption_key, DUNLIN_X25519_BYTES);
    peer->mask_key.size = DUNLIN_X25519_BYTES;
    memcpy(peer->mask_key.bytes, client->mask_key, DUNLIN_X25519_BYTES);
    const size_t n = dunlin__secagg_key_statement(
        client->terms, peer->peer_index, client->encryption_key, client->mask_key, statement);
    return sign_for(client, statement, n, peer, error);
}

/* The place of a neighbour in this device's list is its position, from 1. */
static dunlin_status give_shares(dunlin__secagg_client *client, uint32_t index,
                                 dunlin__secagg_peer *peer, dunlin_error *error)
{
    const secagg_neighbour *neighbour = &client->neighbours[index];
    const unsigned threshold = client->plan.threshold;
    dunlin__secagg_shares shares = {.place = (uint8_t)(index + 1)};
    dunlin__shamir_share(client->mask_private, client->coefficients, threshold, shares.place,
                         shares.key_share);
    dunlin__shamir_share(client->seed, client->coefficients + secagg_coefficient_bytes(client),
                         threshold, shares.place, shares.seed_share);
    peer->peer_index = neighbour->peer_index;
    peer->ciphertext.size = DUNLIN_SECAGG_SEALED_BYTES;
    const dunlin_status status =
        dunlin__secagg_seal(client->terms, neighbour->secret, client->plan.peer_index,
                            neighbour->peer_index, &shares, peer->ciphertext.bytes, error);
    dunlin__wipe(&shares, sizeof(shares));
    return status;
}

static dunlin_status give_signature(dunlin__secagg_client *client, dunlin__secagg_peer *peer,
                                    dunlin_error *error)
{
    uint8_t statement[DUNLIN_SECAGG_STATEMENT_BYTES];
    peer->peer_index = client->plan.peer_index;
    const size_t n = dunlin__secagg_survivor_statement(client->terms, peer->peer_index,
                                                       client->survivors_sha256, statement);
    return sign_for(client, statement, n, peer, error);
}

/* One share of the next neighbour that sent any: of the seed if it survives, else of the key. The
 * other one is wiped before this one is told. */
static dunlin_status give_told(dunlin__secagg_client *client, dunlin__secagg_peer *peer)
{
    while (!client->neighbours[client->n_told].has_sent) {
        client->n_told++;
    }
    secagg_neighbour *neighbour = &client->neighbours[client->n_told++];
    peer->peer_index = neighbour->peer_index;
    peer->share_kind =
        neighbour->survives ? DUNLIN_V1_SHARE_KIND_SELF_MASK : DUNLIN_V1_SHARE_KIND_MASK_KEY;
    peer->share.size = DUNLIN_SECAGG_TOLD_BYTES;
    peer->share.bytes[0] = neighbour->shares.place;
    dunlin__shamir_select(neighbour->survives, neighbour->shares.key_share,
                          neighbour->shares.seed_share, peer->share.bytes + 1);
    dunlin__wipe(&neighbour->shares, sizeof(neighbour->shares));
    return DUNLIN_OK;
}

static dunlin_status give_peer(void *ctx, uint32_t index, dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    dunlin__secagg_client *client = ctx;
    switch (client->step) {
    case DUNLIN_V1_SECAGG_STEP_ADVERTISE:
        return give_keys(client, peer, error);
    case DUNLIN_V1_SECAGG_STEP_SHARE:
        return give_shares(client, index, peer, error);
    case DUNLIN_V1_SECAGG_STEP_CONSISTENCY:
        return give_signature(client, peer, error);
    default:
        return give_told(client, peer);
    }
}

/* Random polynomials for both secrets, while the shares are written. */
static dunlin_status draw_coefficients(dunlin__secagg_client *client, dunlin_error *error)
{
    const size_t n_bytes = 2 * secagg_coefficient_bytes(client);
    client->coefficients = dunlin__alloc_array(&client->alloc, n_bytes, 1);
    if (client->coefficients == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0, "no memory for %u shares",
                            client->n_neighbours);
    }
    return dunlin__random_bytes(client->coefficients, n_bytes, error);
}

static dunlin_status write_step(dunlin__secagg_client *client, uint8_t *out_bytes, size_t capacity,
                                size_t *out_n_bytes, dunlin_error *error)
{
    dunlin__secagg_message message = {
        .step = client->step, .poll = client->is_written, .ctx = client, .peer_fn = give_peer};
    const bool is_mask = client->step == DUNLIN_V1_SECAGG_STEP_MASK;
    if (!client->is_written) {
        message.has_manifest = is_mask;
        memcpy(message.manifest_sha256, client->manifest_sha256, DUNLIN_SHA256_BYTES);
        message.n_peers = is_mask                                        ? 0
                          : client->step == DUNLIN_V1_SECAGG_STEP_SHARE  ? client->n_neighbours
                          : client->step == DUNLIN_V1_SECAGG_STEP_UNMASK ? client->n_sent
                                                                         : 1;
    }
    if (client->step == DUNLIN_V1_SECAGG_STEP_SHARE && !client->is_written) {
        DUNLIN_TRY(draw_coefficients(client, error));
    }
    DUNLIN_TRY(dunlin__secagg_request_encode(&message, out_bytes, capacity, out_n_bytes, error));
    wipe_coefficients(client);
    client->is_written = true;
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_client_write(dunlin__secagg_client *client, uint8_t *out_bytes,
                                          size_t capacity, size_t *out_n_bytes, dunlin_error *error)
{
    *out_n_bytes = 0;
    if (client->step == SECAGG_OVER) {
        return dunlin__fail(error, DUNLIN_STATE, "secagg", 0,
                            "this device's part in the session of %u devices is over",
                            client->plan.n_cohort);
    }
    if (client->step == DUNLIN_V1_SECAGG_STEP_MASK && !client->has_manifest) {
        return dunlin__fail(error, DUNLIN_STATE, "secagg", 0,
                            "%llu of %llu elements are masked, and the vector has no name yet",
                            (unsigned long long)client->n_masked,
                            (unsigned long long)dunlin__secagg_elements(&client->plan));
    }
    const bool is_last = client->step == DUNLIN_V1_SECAGG_STEP_UNMASK;
    const dunlin_status status = write_step(client, out_bytes, capacity, out_n_bytes, error);
    if (status != DUNLIN_OK || is_last) {
        dunlin__secagg_end(client);
    }
    return status;
}

/* ---- what is read ---- */

static dunlin_status take_peer(void *ctx, uint32_t index, dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    dunlin__secagg_client *client = ctx;
    (void)index;
    switch (client->step) {
    case DUNLIN_V1_SECAGG_STEP_ADVERTISE:
        return dunlin__secagg_take_keys(client, peer, error);
    case DUNLIN_V1_SECAGG_STEP_SHARE:
        return dunlin__secagg_take_shares(client, peer, error);
    case DUNLIN_V1_SECAGG_STEP_CONSISTENCY:
        return dunlin__secagg_take_signature(client, peer, error);
    default:
        return dunlin__fail(error, DUNLIN_PROTOCOL, "secagg", 0,
                            "peer %u of a secure aggregation comes with step %u", peer->peer_index,
                            client->step);
    }
}

/* Looks at nothing, so that a message is known to be whole before anything is taken of it. */
static dunlin_status pass_peer(void *ctx, uint32_t index, dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    (void)ctx;
    (void)index;
    (void)peer;
    (void)error;
    return DUNLIN_OK;
}

static dunlin_status check_enough(const dunlin__secagg_client *client, uint32_t n, const char *what,
                                  dunlin_error *error)
{
    return n >= client->plan.threshold
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                              "%u neighbours %s, fewer than the threshold %u", n, what,
                              client->plan.threshold);
}

/* Public keys become what both sides share; a point of low order is seen here. */
static dunlin_status agree_with_all(dunlin__secagg_client *client, dunlin_error *error)
{
    for (uint32_t i = 0; i < client->n_neighbours; i++) {
        secagg_neighbour *neighbour = &client->neighbours[i];
        uint8_t secret[DUNLIN_X25519_BYTES];
        DUNLIN_TRY(
            dunlin__x25519_agree(client->encryption_private, neighbour->secret, secret, error));
        memcpy(neighbour->secret, secret, sizeof(secret));
        dunlin_status status =
            dunlin__x25519_agree(client->mask_private, neighbour->mask, secret, error);
        if (status == DUNLIN_OK) {
            status = dunlin__secagg_pair_key(client->terms, secret, client->plan.peer_index,
                                             neighbour->peer_index, neighbour->mask, error);
        }
        dunlin__wipe(secret, sizeof(secret));
        DUNLIN_TRY(status);
    }
    dunlin__wipe(client->encryption_private, sizeof(client->encryption_private));
    return DUNLIN_OK;
}

/* All peers of a step were taken: are they enough? */
static dunlin_status finish_step(dunlin__secagg_client *client,
                                 const dunlin__secagg_message *message, dunlin_error *error)
{
    uint32_t n_agree = 0;
    switch (client->step) {
    case DUNLIN_V1_SECAGG_STEP_ADVERTISE:
        if (!client->has_own) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "secagg", 0,
                                "peer %u, this device, is missing in the list of keys",
                                client->plan.peer_index);
        }
        DUNLIN_TRY(check_enough(client, client->n_neighbours, "advertise keys", error));
        return agree_with_all(client, error);
    case DUNLIN_V1_SECAGG_STEP_SHARE:
        return check_enough(client, client->n_sent, "sent shares", error);
    case DUNLIN_V1_SECAGG_STEP_MASK:
        return dunlin__secagg_take_survivors(client, message->survivors, message->n_survivor_bytes,
                                             error);
    default:
        for (uint32_t i = 0; i < client->n_neighbours; i++) {
            n_agree += client->neighbours[i].agrees ? 1 : 0;
        }
        return check_enough(client, n_agree, "signed the survivors", error);
    }
}

/* One bit a device: bytes that are none of the cohort's are LIMIT. */
static dunlin_status read_step(dunlin__secagg_client *client, const uint8_t *bytes, size_t n_bytes,
                               uint8_t *survivors, uint64_t *out_retry_ms, dunlin_error *error)
{
    const bool is_mask = client->step == DUNLIN_V1_SECAGG_STEP_MASK;
    dunlin__secagg_message message = {.survivors = survivors,
                                      .survivor_capacity =
                                          is_mask ? (client->plan.n_cohort + 7) / 8 : 0,
                                      .peer_fn = pass_peer};
    DUNLIN_TRY(dunlin__secagg_response_decode(bytes, n_bytes, &message, error));
    if (message.step != client->step) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "secagg", 0,
                            "the answer is of step %u, asked was step %u", message.step,
                            client->step);
    }
    if (!message.ready) {
        if (message.n_peers != 0 || message.n_survivor_bytes != 0) {
            return dunlin__fail(error, DUNLIN_PROTOCOL, "secagg", 0,
                                "%u peers come with an answer that is not ready", message.n_peers);
        }
        *out_retry_ms = message.retry_ms > 0 ? message.retry_ms : 1;
        return DUNLIN_OK;
    }
    message.ctx = client;
    message.peer_fn = take_peer;
    DUNLIN_TRY(dunlin__secagg_response_decode(bytes, n_bytes, &message, error));
    DUNLIN_TRY(finish_step(client, &message, error));
    client->step += is_mask && !client->plan.check_consistency ? 2 : 1;
    client->is_written = false;
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_client_read(dunlin__secagg_client *client, const uint8_t *bytes,
                                         size_t n_bytes, uint64_t *out_retry_ms,
                                         dunlin_error *error)
{
    *out_retry_ms = 0;
    if (client->step == SECAGG_OVER || !client->is_written) {
        return dunlin__fail(error, DUNLIN_STATE, "secagg", 0,
                            "no answer is awaited in step %u of a secure aggregation",
                            client->step);
    }
    const size_t n_room = client->step == DUNLIN_V1_SECAGG_STEP_MASK ? client->plan.n_cohort : 1;
    uint8_t *survivors = dunlin__alloc_zeroed(&client->alloc, (n_room + 7) / 8, 1);
    const dunlin_status status =
        survivors != NULL ? read_step(client, bytes, n_bytes, survivors, out_retry_ms, error)
                          : dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0,
                                         "no memory for a bit for each of %zu", n_room);
    dunlin__free_array(&client->alloc, survivors, (n_room + 7) / 8, 1);
    if (status != DUNLIN_OK) {
        dunlin__secagg_end(client);
    }
    return status;
}

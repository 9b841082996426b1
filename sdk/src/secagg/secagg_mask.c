/*
 * secagg_mask.c - a device's vector under its own mask and those that it shares with neighbours.
 *
 * Invariant: `n_masked` only grows, so that no two vectors are ever under one mask. Whoever has the
 * higher index adds the common mask, the other one takes it off (Bonawitz et al. 2017,
 * section 4.1).
 */
#include "secagg_state.h"

#include <mem/support.h>

#include <string.h>

static dunlin_status mask_block(dunlin__secagg_client *client, uint32_t *elements, size_t n,
                                dunlin_error *error)
{
    const unsigned bits = client->plan.ring_bits;
    DUNLIN_TRY(
        dunlin__mask_add(client->self_key, client->n_masked, bits, false, elements, n, error));
    for (uint32_t i = 0; i < client->n_neighbours; i++) {
        const secagg_neighbour *neighbour = &client->neighbours[i];
        if (neighbour->has_sent) {
            DUNLIN_TRY(dunlin__mask_add(neighbour->mask, client->n_masked, bits,
                                        neighbour->peer_index > client->plan.peer_index, elements,
                                        n, error));
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_client_mask(dunlin__secagg_client *client, uint32_t *elements,
                                         size_t n, uint8_t *out_bytes, dunlin_error *error)
{
    const uint64_t n_left = dunlin__secagg_elements(&client->plan) - client->n_masked;
    if (client->step != DUNLIN_V1_SECAGG_STEP_MASK || client->has_manifest || n_left == 0) {
        return dunlin__fail(error, DUNLIN_STATE, "secagg", 0,
                            "nothing is to be masked in step %u with %llu elements left",
                            client->step, (unsigned long long)n_left);
    }
    const uint64_t wanted = n_left < DUNLIN_SECAGG_BLOCK ? n_left : DUNLIN_SECAGG_BLOCK;
    dunlin_status status = n == wanted ? mask_block(client, elements, n, error)
                                       : dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                                                      "a block of %zu elements, wanted are %llu", n,
                                                      (unsigned long long)wanted);
    if (status != DUNLIN_OK) {
        dunlin__secagg_end(client);
        return status;
    }
    dunlin__ring_pack(elements, n, client->plan.ring_bits, out_bytes);
    client->n_masked += n;
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_client_mask_end(dunlin__secagg_client *client,
                                             const uint8_t manifest_sha256[DUNLIN_SHA256_BYTES],
                                             dunlin_error *error)
{
    const uint64_t n_elements = dunlin__secagg_elements(&client->plan);
    if (client->step != DUNLIN_V1_SECAGG_STEP_MASK || client->n_masked != n_elements) {
        return dunlin__fail(
            error, DUNLIN_STATE, "secagg", 0, "%llu of %llu elements are masked in step %u",
            (unsigned long long)client->n_masked, (unsigned long long)n_elements, client->step);
    }
    memcpy(client->manifest_sha256, manifest_sha256, DUNLIN_SHA256_BYTES);
    client->has_manifest = true;
    dunlin__wipe(client->self_key, sizeof(client->self_key));
    dunlin__wipe(client->seed, sizeof(client->seed));
    dunlin__wipe(client->mask_private, sizeof(client->mask_private));
    for (uint32_t i = 0; i < client->n_neighbours; i++) {
        dunlin__wipe(client->neighbours[i].mask, DUNLIN_AES256_BYTES);
    }
    return DUNLIN_OK;
}

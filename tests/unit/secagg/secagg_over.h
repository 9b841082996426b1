/*
 * secagg_over.h - what a device answers once its part in a session is over.
 */
#ifndef DUNLIN_TESTS_SECAGG_OVER_H
#define DUNLIN_TESTS_SECAGG_OVER_H

#include "secagg/secagg_world.h"

#include <criterion/criterion.h>

/* Nothing is left of a session that was ended. */
static inline void expect_over(secagg_member *member, const char *name)
{
    uint64_t retry_ms = 0;
    dunlin_error error = {0};
    uint32_t element = 0;
    const uint8_t hash[DUNLIN_SHA256_BYTES] = {0};
    cr_assert_eq(dunlin__secagg_client_step(member->client), DUNLIN_V1_SECAGG_STEP_UNSPECIFIED,
                 "%s", name);
    cr_assert_eq(dunlin__secagg_client_write(member->client, member->request,
                                             DUNLIN_WIRE_BODY_BYTES, &member->n_request, &error),
                 DUNLIN_STATE, "%s", name);
    cr_assert_eq(member->n_request, 0);
    cr_assert_eq(dunlin__secagg_client_read(member->client, hash, 0, &retry_ms, &error),
                 DUNLIN_STATE, "%s", name);
    cr_assert_eq(
        dunlin__secagg_client_mask(member->client, &element, 1, (uint8_t *)&element, &error),
        DUNLIN_STATE, "%s", name);
    cr_assert_eq(dunlin__secagg_client_mask_end(member->client, hash, &error), DUNLIN_STATE);
}

#endif

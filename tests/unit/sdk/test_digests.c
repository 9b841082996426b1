/*
 * test_digests.c - what is compared by its hash is compared to the last byte: hashes that are right
 * but for one bit are refused, wherever the bit is.
 */
#include "client/in_world.h"

static const int BYTES[] = {0, 15, 16, DUNLIN_SHA256_BYTES - 1};
#define N_BYTES (sizeof BYTES / sizeof BYTES[0])

Test(digests, the_base_in_the_assignment)
{
    for (size_t i = 0; i < N_BYTES; i++) {
        setup();
        w.server.wrong_base_byte = BYTES[i];
        (void)run(DUNLIN_DIGEST, DUNLIN_OUTCOME_NONE);
        cr_expect_eq(w.learner.n_loads, 0, "byte %d", BYTES[i]);
        cr_expect_eq(w.server.n_contributions, 0);
        teardown();
    }
    setup();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    teardown();
}

/* The manifest is the one that is signed; it says what no chunk's bytes come to. */
Test(digests, a_chunk_in_a_signed_manifest)
{
    for (size_t i = 0; i < N_BYTES; i++) {
        setup();
        w.server.wrong_chunk_byte = BYTES[i];
        fake_server_remake_base(&w.server);
        (void)run(DUNLIN_DIGEST, DUNLIN_OUTCOME_NONE);
        cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "chunk 0"), "%s",
                           dunlin_client_last_error(w.client)->text);
        cr_expect_eq(w.learner.n_loads, 0, "byte %d", BYTES[i]);
        cr_expect_eq(w.server.n_contributions, 0);
        teardown();
    }
    setup();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    teardown();
}

Test(digests, the_manifest_that_was_put)
{
    for (size_t i = 0; i < N_BYTES; i++) {
        setup();
        w.server.wrong_put_byte = BYTES[i];
        (void)run(DUNLIN_MISMATCH, DUNLIN_OUTCOME_NONE);
        cr_expect_eq(w.server.n_contributions, 0, "byte %d", BYTES[i]);
        teardown();
    }
    setup();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    teardown();
}

static size_t wrong_signature_byte;

static void flip_signature(dunlin_v1_signed_assignment_t *sealed)
{
    sealed->signature[wrong_signature_byte] ^= 1;
}

WORLD_TEST(digests, the_signature_of_an_assignment)
{
    w.server.edit_sealed_fn = flip_signature;
    for (size_t i = 0; i < DUNLIN_SIGNATURE_BYTES; i++) {
        wrong_signature_byte = i;
        (void)run(DUNLIN_SIGNATURE, DUNLIN_OUTCOME_NONE);
        cr_expect_eq(w.learner.n_loads, 0, "byte %zu", i);
        w.server.now_ms += dunlin_client_wait_ms(w.client);
    }
}

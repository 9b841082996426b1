/*
 * test_providers.c - the crypto libraries of phones and of servers, one held against the other: the
 * same bytes, the same signatures accepted and refused.
 *
 * The program is linked with GnuTLS, so the tests of digests and signatures in it are GnuTLS's; in
 * test_proto the same tests are PSA's.
 */
#include "provider_gnutls.h"
#include "random.h"

#include <criterion/criterion.h>

#include <pthread.h>
#include <string.h>

#define N_PROVIDERS 2
#define N_THREADS 4

static const dunlin__crypto_provider *const providers[N_PROVIDERS] = {&dunlin__provider_psa,
                                                                      &dunlin__provider_gnutls};

/* SEC 2, 2.4.2: the order, the field's prime, the base point and twice it. */
#define ORDER "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"
#define ORDER_LESS_1 "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632550"
#define PRIME "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"
#define BASE_X "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
#define BASE_Y "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
#define BASE_LESS_Y "b01cbd1c01e58065711814b583f061e9d431cca994cea1313449bf97c840ae0a"
#define TWICE_X "7cf27b188d034f7e8a52380304b51ac3c08969e277f21b35a60b48fc47669978"
#define TWICE_Y "07775510db8ed040293d9ac69f7430dbba7dade63ce982299e04b79d227873d1"
#define ZERO "0000000000000000000000000000000000000000000000000000000000000000"
#define ONE "0000000000000000000000000000000000000000000000000000000000000001"
#define TWO "0000000000000000000000000000000000000000000000000000000000000002"
#define ALL_ONES "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

static void from_hex(const char *text, uint8_t *bytes, size_t n_bytes)
{
    cr_assert(dunlin__hex_decode(text, bytes, n_bytes), "%s", text);
}

static void fill(uint64_t *state, uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = (uint8_t)test_random_u64(state);
    }
}

/* a - b, of 32 bytes each. */
static void subtract(const uint8_t *a, const uint8_t *b, uint8_t *out)
{
    int borrow = 0;
    for (int i = 31; i >= 0; i--) {
        int digit = a[i] - b[i] - borrow;
        borrow = digit < 0 ? 1 : 0;
        out[i] = (uint8_t)(digit + 256 * borrow);
    }
}

/* What both say of a signature; they have to agree. */
static bool verify(const uint8_t *public_key, const uint8_t *sha256, const uint8_t *signature)
{
    bool said[N_PROVIDERS];
    for (int i = 0; i < N_PROVIDERS; i++) {
        cr_assert_eq(providers[i]->verify_fn(public_key, sha256, signature, &said[i], NULL),
                     DUNLIN_OK);
    }
    cr_assert_eq(said[0], said[1], "PSA says %d, GnuTLS %d", said[0], said[1]);
    return said[0];
}

/* Both sign alike. */
static void sign(const uint8_t *private_key, const uint8_t *sha256, uint8_t *out_signature)
{
    uint8_t other[64];
    cr_assert_eq(providers[0]->sign_fn(private_key, sha256, out_signature, NULL), DUNLIN_OK);
    cr_assert_eq(providers[1]->sign_fn(private_key, sha256, other, NULL), DUNLIN_OK);
    cr_assert_arr_eq(out_signature, other, 64);
}

Test(providers, this_program_has_gnutls)
{
    cr_assert_str_eq(dunlin__crypto->name, "gnutls");
}

Test(providers, public_keys_of_private_ones)
{
    static const char *const known[][3] = {
        {ONE, BASE_X, BASE_Y}, {TWO, TWICE_X, TWICE_Y}, {ORDER_LESS_1, BASE_X, BASE_LESS_Y}};
    static const char *const wrong[] = {ZERO, ORDER, ALL_ONES};
    uint8_t private_key[32];
    uint8_t wanted[64];
    uint8_t public_key[65];
    uint8_t signature[64];
    for (int p = 0; p < N_PROVIDERS; p++) {
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            from_hex(known[i][0], private_key, 32);
            from_hex(known[i][1], wanted, 32);
            from_hex(known[i][2], wanted + 32, 32);
            cr_assert_eq(providers[p]->key_public_fn(private_key, public_key, NULL), DUNLIN_OK);
            cr_assert_eq(public_key[0], 4);
            cr_assert_arr_eq(public_key + 1, wanted, 64);
            cr_assert_eq(providers[p]->key_check_fn(public_key, NULL), DUNLIN_OK);
        }
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
            dunlin_error error = {0};
            from_hex(wrong[i], private_key, 32);
            cr_assert_eq(providers[p]->key_public_fn(private_key, public_key, &error),
                         DUNLIN_ARGUMENT);
            cr_assert_not_null(strstr(error.text, "private key"));
            cr_assert_neq(providers[p]->sign_fn(private_key, wanted, signature, &error), DUNLIN_OK);
        }
    }
}

Test(providers, points_that_are_none)
{
    static const char *const wrong[][2] = {
        {ZERO, ZERO}, {BASE_X, TWICE_Y}, {PRIME, BASE_Y}, {ALL_ONES, BASE_Y}, {BASE_X, ALL_ONES}};
    uint8_t sha256[32] = {7};
    uint8_t key[32];
    uint8_t signature[64];
    uint8_t public_key[65] = {4};
    from_hex(ONE, key, 32);
    sign(key, sha256, signature);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        from_hex(wrong[i][0], public_key + 1, 32);
        from_hex(wrong[i][1], public_key + 33, 32);
        for (int p = 0; p < N_PROVIDERS; p++) {
            cr_assert_eq(providers[p]->key_check_fn(public_key, NULL), DUNLIN_SIGNATURE, "case %zu",
                         i);
        }
        cr_assert_not(verify(public_key, sha256, signature), "case %zu", i);
    }
    from_hex(BASE_X, public_key + 1, 32);
    from_hex(BASE_Y, public_key + 33, 32);
    cr_assert(verify(public_key, sha256, signature));
    for (int first = 0; first < 8; first++) { /* compressed, hybrid, none */
        public_key[0] = (uint8_t)first;
        cr_assert_eq(verify(public_key, sha256, signature), first == 4);
        cr_assert_eq(providers[1]->key_check_fn(public_key, NULL),
                     first == 4 ? DUNLIN_OK : DUNLIN_SIGNATURE);
    }
}

/* As Project Wycheproof has them for ECDSA: numbers at the edges of [1, n - 1]. */
Test(providers, signatures_at_the_edges)
{
    static const char *const edges[] = {ZERO, ONE, ORDER_LESS_1, ORDER, PRIME, ALL_ONES};
    const size_t n_edges = sizeof edges / sizeof edges[0];
    uint8_t order[32];
    uint8_t key[32];
    uint8_t public_key[65];
    uint8_t sha256[32];
    uint8_t good[64];
    uint8_t changed[64];
    uint64_t state = test_seed(61);
    fill(&state, sha256, 32);
    from_hex(ORDER, order, 32);
    cr_assert_eq(providers[1]->key_generate_fn(key, public_key, NULL), DUNLIN_OK);
    sign(key, sha256, good);
    cr_assert(verify(public_key, sha256, good));
    for (size_t i = 0; i < n_edges * n_edges; i++) {
        from_hex(edges[i / n_edges], changed, 32);
        from_hex(edges[i % n_edges], changed + 32, 32);
        cr_assert_not(verify(public_key, sha256, changed), "case %zu", i);
    }
    for (size_t i = 0; i < n_edges; i++) {
        memcpy(changed, good, 64);
        from_hex(edges[i], changed, 32);
        cr_assert_not(verify(public_key, sha256, changed), "r, case %zu", i);
        memcpy(changed, good, 64);
        from_hex(edges[i], changed + 32, 32);
        cr_assert_not(verify(public_key, sha256, changed), "s, case %zu", i);
    }
    memcpy(changed, good, 64);
    subtract(order, good + 32, changed + 32); /* the other of s and n - s is as good */
    cr_assert(verify(public_key, sha256, changed));
    memcpy(changed, good + 32, 32);
    memcpy(changed + 32, good, 32);
    cr_assert_not(verify(public_key, sha256, changed), "r and s in each other's place");
}

Test(providers, each_accepts_what_the_other_signs)
{
    static const char *const hashes[] = {ZERO, ONE, ORDER, ALL_ONES};
    uint64_t state = test_seed(62);
    for (int i = 0; i < test_cases(40); i++) {
        uint8_t key[32];
        uint8_t public_key[65];
        uint8_t again[65];
        uint8_t sha256[32];
        uint8_t signature[64];
        cr_assert_eq(providers[i % 2]->key_generate_fn(key, public_key, NULL), DUNLIN_OK);
        if (i % 4 == 3) { /* a small one, whose first bytes are 0 */
            memset(key, 0, 20 + test_random_below(&state, 11));
            key[31] |= 1;
            cr_assert_eq(providers[0]->key_public_fn(key, public_key, NULL), DUNLIN_OK);
        }
        cr_assert_eq(providers[1]->key_public_fn(key, again, NULL), DUNLIN_OK);
        cr_assert_arr_eq(again, public_key, 65);
        fill(&state, sha256, 32);
        if (i % 5 == 4) {
            from_hex(hashes[test_random_below(&state, 4)], sha256, 32);
        }
        sign(key, sha256, signature);
        cr_assert(verify(public_key, sha256, signature));
        uint8_t *parts[] = {public_key, sha256, signature};
        const size_t sizes[] = {65, 32, 64};
        const size_t part = test_random_below(&state, 3);
        parts[part][test_random_below(&state, sizes[part])] ^=
            (uint8_t)(1u << test_random_below(&state, 8));
        cr_assert_not(verify(public_key, sha256, signature), "part %zu", part);
    }
}

Test(providers, hashes_are_the_same)
{
    uint64_t state = test_seed(63);
    static uint8_t data[100000];
    fill(&state, data, sizeof data);
    for (size_t n = 0; n <= sizeof data; n += n < 200 ? 1 : 24950) {
        uint8_t sums[N_PROVIDERS + 1][32];
        dunlin__sha256 hash;
        for (int p = 0; p < N_PROVIDERS; p++) {
            cr_assert_eq(providers[p]->sha256_of_fn(data, n, sums[p], NULL), DUNLIN_OK);
            cr_assert_arr_eq(sums[p], sums[0], 32, "%zu bytes", n);
            cr_assert_eq(providers[p]->sha256_begin_fn(&hash, NULL), DUNLIN_OK);
            const size_t half = n / 2;
            if (half > 0) {
                cr_assert_eq(providers[p]->sha256_update_fn(&hash, data, half, NULL), DUNLIN_OK);
            }
            if (n > 0) {
                cr_assert_eq(providers[p]->sha256_update_fn(&hash, data + half, n - half, NULL),
                             DUNLIN_OK);
            }
            cr_assert_eq(providers[p]->sha256_end_fn(&hash, sums[N_PROVIDERS], NULL), DUNLIN_OK);
            cr_assert_arr_eq(sums[N_PROVIDERS], sums[0], 32, "%zu bytes in two", n);
        }
    }
}

typedef struct job {
    uint8_t key[32];
    uint8_t public_key[65];
    unsigned n_wrong;
} job;

static void *sign_and_verify(void *ctx)
{
    job *own = ctx;
    for (int i = 0; i < 50; i++) {
        const int signs = i % 2;
        uint8_t sha256[32];
        uint8_t signature[64];
        bool is_right = false;
        bool is_good = dunlin__crypto->sha256_of_fn(&i, sizeof i, sha256, NULL) == DUNLIN_OK &&
                       providers[signs]->sign_fn(own->key, sha256, signature, NULL) == DUNLIN_OK &&
                       providers[1 - signs]->verify_fn(own->public_key, sha256, signature,
                                                       &is_right, NULL) == DUNLIN_OK;
        own->n_wrong += is_good && is_right ? 0 : 1;
        sha256[0] ^= 1;
        is_good = providers[1]->verify_fn(own->public_key, sha256, signature, &is_right, NULL) ==
                  DUNLIN_OK;
        own->n_wrong += is_good && !is_right ? 0 : 1;
    }
    return NULL;
}

Test(providers, threads_do_not_meet)
{
    job jobs[N_THREADS];
    pthread_t threads[N_THREADS];
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < N_THREADS; i++) {
        cr_assert_eq(dunlin__key_generate(jobs[i].key, jobs[i].public_key, NULL), DUNLIN_OK);
        cr_assert_eq(pthread_create(&threads[i], NULL, sign_and_verify, &jobs[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        cr_expect_eq(jobs[i].n_wrong, 0, "thread %d: %u", i, jobs[i].n_wrong);
    }
}

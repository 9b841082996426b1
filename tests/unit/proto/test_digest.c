/*
 * test_digest.c - SHA-256 vectors of FIPS 180, hex, random bytes, and the lock under threads.
 */
#include "random.h"

#include <wire/digest.h>
#include <wire/signature.h>

#include <criterion/criterion.h>

#include <pthread.h>
#include <string.h>

static void expect_hash(const void *data, size_t n_bytes, const char *wanted)
{
    uint8_t sha256[32];
    char hex[DUNLIN_SHA256_HEX_BYTES];
    cr_assert_eq(dunlin__sha256_of(data, n_bytes, sha256, NULL), DUNLIN_OK);
    dunlin__hex_encode(sha256, sizeof(sha256), hex);
    cr_assert_str_eq(hex, wanted);
}

Test(proto_digest, known_vectors)
{
    static char million[1000000];
    memset(million, 'a', sizeof(million));
    expect_hash(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_hash("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_hash(million, sizeof(million),
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

Test(proto_digest, pieces_hash_like_the_whole)
{
    uint64_t state = test_seed(41);
    uint8_t data[1000];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)test_random_u64(&state);
    }
    uint8_t whole[32];
    cr_assert_eq(dunlin__sha256_of(data, sizeof(data), whole, NULL), DUNLIN_OK);
    for (int i = 0; i < test_cases(50); i++) {
        dunlin__sha256 hash;
        uint8_t pieced[32];
        cr_assert_eq(dunlin__sha256_begin(&hash, NULL), DUNLIN_OK);
        for (size_t at = 0; at < sizeof(data);) {
            size_t n = test_random_below(&state, sizeof(data) - at + 1);
            cr_assert_eq(dunlin__sha256_update(&hash, data + at, n, NULL), DUNLIN_OK);
            at += n;
        }
        cr_assert_eq(dunlin__sha256_end(&hash, pieced, NULL), DUNLIN_OK);
        cr_assert_arr_eq(pieced, whole, 32);
    }
}

Test(proto_digest, an_ended_hash_fails_cleanly)
{
    dunlin__sha256 hash;
    uint8_t sha256[32];
    dunlin_error error = {0};
    cr_assert_eq(dunlin__sha256_begin(&hash, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__sha256_end(&hash, sha256, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__sha256_update(&hash, "a", 1, &error), DUNLIN_INTERNAL);
    cr_assert_not_null(strstr(error.text, "SHA-256"));
    dunlin__sha256_abort(&hash);
    cr_assert_eq(dunlin__sha256_begin(&hash, NULL), DUNLIN_OK);
    dunlin__sha256_abort(&hash);
    dunlin__sha256_abort(&hash);
}

Test(proto_digest, hex_goes_both_ways)
{
    uint8_t bytes[3] = {0x00, 0x7f, 0xff};
    char text[7];
    dunlin__hex_encode(bytes, 3, text);
    cr_assert_str_eq(text, "007fff");
    uint8_t again[3] = {1, 1, 1};
    cr_assert(dunlin__hex_decode(text, again, 3));
    cr_assert_arr_eq(again, bytes, 3);
    cr_assert_not(dunlin__hex_decode("007ff", again, 3));
    cr_assert_not(dunlin__hex_decode("007fff0", again, 3));
    cr_assert_not(dunlin__hex_decode("007fFf", again, 3));
    cr_assert_not(dunlin__hex_decode("007fg0", again, 3));
    cr_assert_not(dunlin__hex_decode("", again, 3));
    cr_assert(dunlin__hex_decode("", again, 0));
}

Test(proto_digest, a_wrong_digest_names_the_thing)
{
    uint8_t a[32] = {1};
    uint8_t b[32] = {2};
    dunlin_error error = {0};
    cr_assert_eq(dunlin__sha256_expect("chunk 3", a, a, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__sha256_expect("chunk 3", a, b, &error), DUNLIN_DIGEST);
    cr_assert_not_null(strstr(error.text, "chunk 3"));
    cr_assert_not_null(strstr(error.text, "0200000000000000"));
}

Test(proto_digest, every_byte_of_a_digest_counts)
{
    uint8_t wanted[32];
    for (size_t i = 0; i < sizeof(wanted); i++) {
        wanted[i] = (uint8_t)(i + 100);
    }
    for (size_t i = 0; i < sizeof(wanted); i++) {
        uint8_t found[32];
        memcpy(found, wanted, sizeof(found));
        found[i] ^= 1;
        cr_expect_eq(dunlin__sha256_expect("chunk", wanted, found, NULL), DUNLIN_DIGEST, "%zu", i);
    }
}

Test(proto_digest, random_bytes_differ)
{
    static uint8_t first[5000];
    static uint8_t second[5000];
    cr_assert_eq(dunlin__random_bytes(first, sizeof(first), NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__random_bytes(second, sizeof(second), NULL), DUNLIN_OK);
    cr_assert_neq(memcmp(first, second, 1000), 0);
    cr_assert_neq(memcmp(first + 4000, second + 4000, 1000), 0);
    size_t n_bits = 0;
    for (size_t i = 0; i < sizeof(first); i++) {
        n_bits += (size_t)__builtin_popcount(first[i]);
    }
    cr_assert(n_bits > 19000 && n_bits < 21000, "%zu of 40000 bits", n_bits);
    char key[DUNLIN_WIRE_IDEMPOTENCY_BYTES];
    char other[DUNLIN_WIRE_IDEMPOTENCY_BYTES];
    cr_assert_eq(dunlin__idempotency_key(key, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__idempotency_key(other, NULL), DUNLIN_OK);
    cr_assert_eq(strlen(key), 32);
    cr_assert(dunlin__id_is_valid(key));
    cr_assert_str_neq(key, other);
}

Test(proto_digest, wiping_leaves_zeros)
{
    uint8_t secret[40];
    uint8_t zero[40] = {0};
    memset(secret, 0x5a, sizeof(secret));
    dunlin__wipe(secret, sizeof(secret));
    cr_assert_arr_eq(secret, zero, sizeof(zero));
}

#define N_THREADS 6
#define N_TURNS 12

/* More threads than one, each with hashes, keys and random bytes under way: the key slots and the
 * random generator are shared by all. */
static void *work(void *ctx)
{
    size_t *n_wrong = ctx;
    for (int i = 0; i < N_TURNS; i++) {
        uint8_t private_key[32];
        uint8_t public_key[65];
        uint8_t signature[64];
        uint8_t digest[32];
        dunlin__sha256 hash;
        bool is_right = dunlin__key_generate(private_key, public_key, NULL) == DUNLIN_OK &&
                        dunlin__sha256_begin(&hash, NULL) == DUNLIN_OK &&
                        dunlin__sign(private_key, "flock", 5, signature, NULL) == DUNLIN_OK &&
                        dunlin__sha256_update(&hash, "abc", 3, NULL) == DUNLIN_OK &&
                        dunlin__verify(public_key, "flock", 5, signature, NULL) == DUNLIN_OK &&
                        dunlin__sha256_end(&hash, digest, NULL) == DUNLIN_OK && digest[0] == 0xba &&
                        digest[31] == 0xad;
        *n_wrong += is_right ? 0 : 1;
    }
    return NULL;
}

Test(proto_digest, threads_share_the_crypto_library)
{
    pthread_t threads[N_THREADS];
    size_t n_wrong[N_THREADS] = {0};
    for (size_t i = 0; i < N_THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, work, &n_wrong[i]), 0);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
        cr_assert_eq(n_wrong[i], 0, "thread %zu", i);
    }
}

/*
 * test_secagg_math.c - X25519, HKDF, AES-GCM and AES-CTR against published vectors; shares,
 * elements of a ring, masks, and what binds keys and sealed shares to their terms.
 */
#include "random.h"

#include <wire/secagg.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

static void unhex(const char *text, uint8_t *out_bytes, size_t n_bytes)
{
    cr_assert(dunlin__hex_decode(text, out_bytes, n_bytes), "%s", text);
}

static void expect_hex(const uint8_t *bytes, size_t n_bytes, const char *wanted)
{
    char text[512];
    dunlin__hex_encode(bytes, n_bytes, text);
    cr_assert_str_eq(text, wanted);
}

/* RFC 7748, sections 5.2 and 6.1. The second point has its highest bit set, which is left out. */
Test(secagg_math, x25519_rfc_7748)
{
    static const char *const rows[][3] = {
        {"a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
         "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
         "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"},
        {"4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
         "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
         "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"},
        {"5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
         "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
         "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"}};
    uint8_t key[32];
    uint8_t point[32];
    uint8_t out[32];
    dunlin_error error = {0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unhex(rows[i][0], key, 32);
        unhex(rows[i][1], point, 32);
        cr_assert_eq(dunlin__x25519_agree(key, point, out, &error), DUNLIN_OK, "%s", error.text);
        expect_hex(out, 32, rows[i][2]);
    }
    cr_assert_eq(dunlin__x25519_public(key, out, &error), DUNLIN_OK, "%s", error.text);
    expect_hex(out, 32, "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
}

Test(secagg_math, x25519_iterated)
{
    uint8_t key[32] = {9};
    uint8_t point[32] = {9};
    uint8_t out[32];
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(dunlin__x25519_agree(key, point, out, NULL), DUNLIN_OK);
        memcpy(point, key, 32);
        memcpy(key, out, 32);
        if (i == 0) {
            expect_hex(key, 32, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
        }
    }
    expect_hex(key, 32, "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
}

/* The points of low order (RFC 7748, section 6.1, and curve25519's list of 2013). */
Test(secagg_math, points_of_low_order_are_refused)
{
    static const char *const points[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"};
    uint8_t key[32];
    uint8_t point[32];
    uint8_t out[32];
    dunlin_error error = {0};
    cr_assert_eq(dunlin__random_bytes(key, 32, &error), DUNLIN_OK);
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        unhex(points[i], point, 32);
        cr_assert_eq(dunlin__x25519_agree(key, point, out, &error), DUNLIN_SIGNATURE, "%s",
                     points[i]);
        cr_assert_not_null(strstr(error.text, "low order"), "%s", error.text);
    }
}

Test(secagg_math, hkdf_rfc_5869)
{
    uint8_t secret[80];
    uint8_t salt[80];
    uint8_t info[80];
    uint8_t out[82];
    dunlin_error error = {0};
    memset(secret, 0x0b, 22);
    for (uint8_t i = 0; i < 13; i++) {
        salt[i] = i;
        info[i] = (uint8_t)(0xf0 + i);
    }
    dunlin__hkdf_input input = {salt, 13, secret, 22, info, 10};
    cr_assert_eq(dunlin__hkdf_sha256(&input, out, 42, &error), DUNLIN_OK, "%s", error.text);
    expect_hex(
        out, 42,
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
    input = (dunlin__hkdf_input){NULL, 0, secret, 22, NULL, 0};
    cr_assert_eq(dunlin__hkdf_sha256(&input, out, 42, &error), DUNLIN_OK, "%s", error.text);
    expect_hex(
        out, 42,
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
    for (uint8_t i = 0; i < 80; i++) {
        secret[i] = i;
        salt[i] = (uint8_t)(0x60 + i);
        info[i] = (uint8_t)(0xb0 + i);
    }
    input = (dunlin__hkdf_input){salt, 80, secret, 80, info, 80};
    cr_assert_eq(dunlin__hkdf_sha256(&input, out, 82, &error), DUNLIN_OK, "%s", error.text);
    expect_hex(
        out, 82,
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41"
        "c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
}

/* NIST SP 800-38A, F.5.5, in pieces of any length. */
Test(secagg_math, ctr_sp_800_38a)
{
    uint8_t key[32];
    uint8_t counter[16];
    uint8_t text[64];
    uint8_t out[64];
    dunlin__ctr ctr;
    dunlin_error error = {0};
    unhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4", key, 32);
    unhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", counter, 16);
    unhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc119"
          "1a0a52eff69f2445df4f9b17ad2b417be66c3710",
          text, 64);
    for (size_t piece = 5; piece <= 64; piece += 59) {
        cr_assert_eq(dunlin__ctr_begin(&ctr, key, counter, &error), DUNLIN_OK, "%s", error.text);
        for (size_t at = 0; at < 64; at += piece) {
            const size_t n = 64 - at < piece ? 64 - at : piece;
            cr_assert_eq(dunlin__ctr_next(&ctr, text + at, n, out + at, &error), DUNLIN_OK, "%s",
                         error.text);
        }
        dunlin__ctr_end(&ctr);
        expect_hex(
            out, 64,
            "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c52b0930daa23de94ce870"
            "17ba2d84988ddfc9c58db67aada613c2dd08457941a6");
    }
}

/* McGrew and Viega, test case 16; then each part changed. */
Test(secagg_math, gcm_case_16)
{
    uint8_t key[32];
    uint8_t nonce[12];
    uint8_t data[20];
    uint8_t text[60];
    uint8_t sealed[76];
    uint8_t opened[60];
    dunlin_error error = {0};
    unhex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", key, 32);
    unhex("cafebabefacedbaddecaf888", nonce, 12);
    unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2", data, 20);
    unhex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e24"
          "49a6b525b16aedf5aa0de657ba637b39",
          text, 60);
    const dunlin__gcm_binding binding = {key, nonce, data, 20};
    cr_assert_eq(dunlin__gcm_seal(&binding, text, 60, sealed, &error), DUNLIN_OK, "%s", error.text);
    expect_hex(
        sealed, 76,
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b"
        "1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b");
    cr_assert_eq(dunlin__gcm_open(&binding, sealed, 76, opened, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_arr_eq(opened, text, 60);
    uint8_t *const parts[] = {key, nonce, data, sealed, sealed + 75};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        *parts[i] ^= 1;
        memset(opened, 1, 60);
        cr_assert_eq(dunlin__gcm_open(&binding, sealed, 76, opened, &error), DUNLIN_DIGEST);
        cr_assert_eq(opened[0] | opened[59], 0, "text of what was not sealed is left");
        *parts[i] ^= 1;
    }
}

/* FIPS 197, section 4.2: {57} x {83} = {c1}, {57} x {13} = {fe}. */
Test(secagg_math, shamir_known_products)
{
    const uint8_t secret[32] = {0x10};
    const uint8_t coefficient[32] = {0x57, 0x57};
    uint8_t share[32];
    dunlin__shamir_share(secret, coefficient, 2, 0x83, share);
    cr_assert_eq(share[0], 0x10 ^ 0xc1);
    cr_assert_eq(share[1], 0xc1);
    dunlin__shamir_share(secret, coefficient, 2, 0x13, share);
    cr_assert_eq(share[1], 0xfe);
}

Test(secagg_math, any_threshold_shares_give_the_secret)
{
    uint64_t state = test_seed(321);
    for (int run = 0; run < test_cases(60); run++) {
        const unsigned n = 2 + (unsigned)test_random_below(&state, 254);
        const unsigned threshold = 1 + (unsigned)test_random_below(&state, n < 40 ? n : 40);
        uint8_t secret[32];
        uint8_t coefficients[40 * 32];
        uint8_t places[40];
        uint8_t weights[40];
        uint8_t found[32] = {0};
        uint8_t other[32] = {0};
        uint8_t share[32];
        cr_assert_eq(dunlin__random_bytes(secret, 32, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__random_bytes(coefficients, sizeof(coefficients), NULL), DUNLIN_OK);
        const unsigned first = (unsigned)test_random_below(&state, n);
        for (unsigned i = 0; i < threshold; i++) {
            places[i] = (uint8_t)(1 + (first + i) % n);
        }
        cr_assert_eq(dunlin__shamir_weights(places, threshold, 0, weights, NULL), DUNLIN_OK);
        for (unsigned i = 0; i < threshold; i++) {
            dunlin__shamir_share(secret, coefficients, threshold, places[i], share);
            dunlin__shamir_add(found, weights[i], share);
        }
        cr_assert_arr_eq(found, secret, 32, "n %u, t %u", n, threshold);
        /* And the share of a place that was not asked. */
        const uint8_t at = (uint8_t)(1 + (first + threshold) % 255);
        cr_assert_eq(dunlin__shamir_weights(places, threshold, at, weights, NULL), DUNLIN_OK);
        for (unsigned i = 0; i < threshold; i++) {
            dunlin__shamir_share(secret, coefficients, threshold, places[i], share);
            dunlin__shamir_add(other, weights[i], share);
        }
        dunlin__shamir_share(secret, coefficients, threshold, at, share);
        cr_assert(dunlin__shamir_equal(other, share));
    }
}

Test(secagg_math, fewer_shares_give_something_else)
{
    uint8_t secret[32] = {7};
    uint8_t coefficients[4 * 32];
    const uint8_t places[] = {1, 2, 3, 4};
    uint8_t weights[4];
    uint8_t found[32] = {0};
    uint8_t share[32];
    cr_assert_eq(dunlin__random_bytes(coefficients, sizeof(coefficients), NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__shamir_weights(places, 4, 0, weights, NULL), DUNLIN_OK);
    for (unsigned i = 0; i < 4; i++) {
        dunlin__shamir_share(secret, coefficients, 5, places[i], share);
        dunlin__shamir_add(found, weights[i], share);
    }
    cr_assert_not(dunlin__shamir_equal(found, secret));
}

Test(secagg_math, places_that_cannot_be_are_refused)
{
    const uint8_t twice[] = {3, 9, 3};
    const uint8_t zero[] = {3, 0, 4};
    uint8_t weights[3];
    dunlin_error error = {0};
    cr_assert_eq(dunlin__shamir_weights(twice, 3, 0, weights, &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "place 3"), "%s", error.text);
    cr_assert_eq(dunlin__shamir_weights(zero, 3, 0, weights, &error), DUNLIN_ARGUMENT);
}

Test(secagg_math, select_takes_one_of_two)
{
    const uint8_t first[32] = {1, 0xff};
    const uint8_t second[32] = {2, 0x0f};
    uint8_t out[32];
    dunlin__shamir_select(false, first, second, out);
    cr_assert_arr_eq(out, first, 32);
    dunlin__shamir_select(true, first, second, out);
    cr_assert_arr_eq(out, second, 32);
}

/* Bit by bit, as the format says: element i has bits i x width and on, lowest first. */
static uint32_t slow_element(const uint8_t *bytes, size_t i, unsigned width)
{
    uint32_t element = 0;
    for (unsigned bit = 0; bit < width; bit++) {
        const size_t at = i * width + bit;
        element |= (uint32_t)(bytes[at / 8] >> (at % 8) & 1u) << bit;
    }
    return element;
}

Test(secagg_math, elements_of_every_width)
{
    uint64_t state = test_seed(322);
    for (unsigned bits = 8; bits <= 32; bits++) {
        uint32_t elements[77];
        uint32_t sums[77];
        uint8_t bytes[77 * 4];
        const uint32_t mask = UINT32_MAX >> (32 - bits);
        for (size_t i = 0; i < 77; i++) {
            elements[i] = (uint32_t)test_random_u64(&state);
            sums[i] = (uint32_t)i;
        }
        memset(bytes, 0xff, sizeof(bytes));
        dunlin__ring_pack(elements, 77, bits, bytes);
        cr_assert(dunlin__ring_add(sums, bytes, 77, bits, false));
        for (size_t i = 0; i < 77; i++) {
            cr_assert_eq(slow_element(bytes, i, bits), elements[i] & mask, "%u bits", bits);
            cr_assert_eq(sums[i], (uint32_t)i + (elements[i] & mask));
        }
        cr_assert(dunlin__ring_add(sums, bytes, 77, bits, true));
        for (size_t i = 0; i < 77; i++) {
            cr_assert_eq(sums[i], i);
        }
        const size_t n_bytes = (size_t)dunlin__ring_bytes(77, bits);
        bytes[n_bytes - 1] |= 0x80;
        cr_assert_eq(dunlin__ring_add(sums, bytes, 77, bits, false), 77 * bits % 8 == 0,
                     "%u bits: bits of no element", bits);
        /* In place. */
        memcpy(sums, elements, sizeof(sums));
        dunlin__ring_pack(elements, 77, bits, bytes);
        dunlin__ring_pack(sums, 77, bits, (uint8_t *)sums);
        cr_assert_eq(memcmp(sums, bytes, n_bytes), 0, "%u bits in place", bits);
    }
    cr_assert_eq(dunlin__ring_signed(0xff, 8), -1);
    cr_assert_eq(dunlin__ring_signed(0x17f, 8), 127);
    cr_assert_eq(dunlin__ring_signed(0x80000000u, 32), INT64_C(-2147483648));
}

/* The mask is the key stream, wherever one begins to read it. */
Test(secagg_math, a_mask_is_the_key_stream)
{
    const uint8_t key[32] = {3, 1, 4, 1, 5};
    const uint8_t zero[16] = {0};
    const size_t n = 2 * DUNLIN_SECAGG_BLOCK + 100;
    uint8_t *stream = calloc(n, 4);
    uint32_t *sums = calloc(n, sizeof(sums[0]));
    dunlin__ctr ctr;
    cr_assert_eq(dunlin__ctr_begin(&ctr, key, zero, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__ctr_next(&ctr, NULL, n * 4, stream, NULL), DUNLIN_OK);
    dunlin__ctr_end(&ctr);
    for (unsigned bits = 8; bits <= 32; bits++) {
        const uint32_t mask = UINT32_MAX >> (32 - bits);
        memset(sums, 0, n * sizeof(sums[0]));
        for (size_t at = 0; at < n; at += DUNLIN_SECAGG_BLOCK) {
            const size_t part = n - at < DUNLIN_SECAGG_BLOCK ? n - at : DUNLIN_SECAGG_BLOCK;
            cr_assert_eq(dunlin__mask_add(key, at, bits, false, sums + at, part, NULL), DUNLIN_OK);
        }
        for (size_t i = 0; i < n; i++) {
            cr_assert_eq(sums[i] & mask, slow_element(stream, i, bits), "%u bits, %zu", bits, i);
        }
        cr_assert_eq(dunlin__mask_add(key, 0, bits, true, sums, n, NULL), DUNLIN_OK);
        for (size_t i = 0; i < n; i++) {
            cr_assert_eq(sums[i] & mask, 0);
        }
    }
    dunlin_error error = {0};
    cr_assert_eq(dunlin__mask_add(key, 128, 32, false, sums, 1, &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "element 128"), "%s", error.text);
    free(stream);
    free(sums);
}

Test(secagg_math, keys_are_bound_to_all_they_name)
{
    uint8_t terms[32] = {1};
    const uint8_t secret[32] = {2};
    uint8_t one[32];
    uint8_t other[32];
    cr_assert_eq(dunlin__secagg_pair_key(terms, secret, 3, 8, one, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__secagg_pair_key(terms, secret, 8, 3, other, NULL), DUNLIN_OK);
    cr_assert_arr_eq(one, other, 32);
    cr_assert_eq(dunlin__secagg_pair_key(terms, secret, 3, 9, other, NULL), DUNLIN_OK);
    cr_assert_arr_neq(one, other, 32);
    cr_assert_eq(dunlin__secagg_share_key(terms, secret, 3, 8, one, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__secagg_share_key(terms, secret, 8, 3, other, NULL), DUNLIN_OK);
    cr_assert_arr_neq(one, other, 32);
    cr_assert_eq(dunlin__secagg_self_key(terms, secret, 3, one, NULL), DUNLIN_OK);
    terms[31] = 1;
    cr_assert_eq(dunlin__secagg_self_key(terms, secret, 3, other, NULL), DUNLIN_OK);
    cr_assert_arr_neq(one, other, 32);
}

Test(secagg_math, sealed_shares_open_for_whom_they_are)
{
    uint8_t terms[32] = {1};
    uint8_t secret[32] = {2};
    dunlin__secagg_shares shares = {.place = 5, .key_share = {6}, .seed_share = {7}};
    dunlin__secagg_shares found;
    uint8_t sealed[DUNLIN_SECAGG_SEALED_BYTES];
    cr_assert_eq(dunlin__secagg_seal(terms, secret, 3, 8, &shares, sealed, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__secagg_open(terms, secret, 3, 8, sealed, &found, NULL), DUNLIN_OK);
    cr_assert_eq(memcmp(&found, &shares, sizeof(found)), 0);
    cr_assert_eq(dunlin__secagg_open(terms, secret, 8, 3, sealed, &found, NULL), DUNLIN_DIGEST);
    cr_assert_eq(dunlin__secagg_open(terms, secret, 4, 8, sealed, &found, NULL), DUNLIN_DIGEST);
    terms[0] = 9;
    cr_assert_eq(dunlin__secagg_open(terms, secret, 3, 8, sealed, &found, NULL), DUNLIN_DIGEST);
}

/* Every byte that is signed, sealed with or derived, by hashlib, hmac and openssl from the tables
 * of sdk/SECAGG.md: what has these values once has them for ever. */
Test(secagg_math, bytes_of_version_1)
{
    dunlin__secagg_plan plan = {.version = 1,
                                .n_cohort = 10,
                                .n_neighbours = 4,
                                .threshold = 3,
                                .least_devices = 5,
                                .ring_bits = 20,
                                .n_values = 99,
                                .clip = 0.5f,
                                .value_limit = 1000,
                                .weight_limit = 100,
                                .check_consistency = true};
    uint8_t terms[32];
    uint8_t secret[32];
    uint8_t one[32];
    uint8_t two[32];
    uint8_t out[32];
    uint8_t statement[DUNLIN_SECAGG_STATEMENT_BYTES];
    uint32_t elements[3] = {0};
    plan.session.size = 16;
    for (uint8_t i = 0; i < 16; i++) {
        plan.session.bytes[i] = i;
    }
    cr_assert_eq(dunlin__secagg_digest(&plan, terms, NULL), DUNLIN_OK);
    expect_hex(terms, 32, "fcc8f29c2946eb72743cbbe205a79b0c220f07dbb3c30eec6038912c4871cba3");
    memset(secret, 0x42, 32);
    cr_assert_eq(dunlin__secagg_share_key(terms, secret, 3, 8, out, NULL), DUNLIN_OK);
    expect_hex(out, 32, "f9be44c17aa9bdfade09d5ce1329f6735ff4d9f90be0a9169cfe3cd7e19b75af");
    cr_assert_eq(dunlin__secagg_self_key(terms, secret, 3, out, NULL), DUNLIN_OK);
    expect_hex(out, 32, "602d506bdc08805fd2d581caf3c3facd13ed1a7b1f9d39d0a3665c66c364f377");
    cr_assert_eq(dunlin__secagg_pair_key(terms, secret, 8, 3, out, NULL), DUNLIN_OK);
    expect_hex(out, 32, "ea496f91e4bb5529f6db4a5b80ea331a8753e3c99cc60bddfb869dbc6e80bc03");
    cr_assert_eq(dunlin__mask_add(out, 0, 20, false, elements, 3, NULL), DUNLIN_OK);
    cr_assert_eq(elements[0], 0xbe98c);
    cr_assert_eq(elements[1], 0xd1fbd);
    cr_assert_eq(elements[2], 0x32eda);
    memset(one, 1, 32);
    memset(two, 2, 32);
    size_t n = dunlin__secagg_key_statement(terms, 3, one, two, statement);
    cr_assert_eq(n, 128);
    cr_assert_eq(dunlin__sha256_of(statement, n, out, NULL), DUNLIN_OK);
    expect_hex(out, 32, "5096d2b0e5280b074a58ac80cd03dfe8146c29393a2b6368fbf93bc677cba718");
    memset(one, 3, 32);
    n = dunlin__secagg_survivor_statement(terms, 3, one, statement);
    cr_assert_eq(n, 96);
    cr_assert_eq(dunlin__sha256_of(statement, n, out, NULL), DUNLIN_OK);
    expect_hex(out, 32, "dbfd4afead286a1b50ade223efeb0a785e808d34acbcbf6d466e73fe83db5b57");
}

Test(secagg_math, the_digest_has_every_term)
{
    dunlin__secagg_plan plan = {.version = 1,
                                .n_cohort = 10,
                                .n_neighbours = 4,
                                .threshold = 3,
                                .least_devices = 5,
                                .ring_bits = 32,
                                .n_values = 99,
                                .clip = 1.0f,
                                .value_limit = 1000,
                                .weight_limit = 100,
                                .peer_index = 1};
    plan.session.size = 16;
    uint8_t first[32];
    uint8_t other[32];
    cr_assert_eq(dunlin__secagg_digest(&plan, first, NULL), DUNLIN_OK);
    uint32_t *const numbers[] = {&plan.version,       &plan.n_cohort,    &plan.n_neighbours,
                                 &plan.threshold,     &plan.ring_bits,   &plan.value_limit,
                                 &plan.least_devices, &plan.weight_limit};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        ++*numbers[i];
        cr_assert_eq(dunlin__secagg_digest(&plan, other, NULL), DUNLIN_OK);
        cr_assert_arr_neq(first, other, 32, "number %zu is not in the digest", i);
        --*numbers[i];
    }
#define CHANGE(change, back)                                                                       \
    do {                                                                                           \
        change;                                                                                    \
        cr_assert_eq(dunlin__secagg_digest(&plan, other, NULL), DUNLIN_OK);                        \
        cr_assert_arr_neq(first, other, 32, #change);                                              \
        back;                                                                                      \
    } while (0)
    CHANGE(plan.n_values++, plan.n_values--);
    CHANGE(plan.clip = 2.0f, plan.clip = 1.0f);
    CHANGE(plan.check_consistency = true, plan.check_consistency = false);
    CHANGE(plan.session.bytes[15] = 1, plan.session.bytes[15] = 0);
    CHANGE(plan.session.size = 17, plan.session.size = 16);
    plan.peer_index = 2;
    cr_assert_eq(dunlin__secagg_digest(&plan, other, NULL), DUNLIN_OK);
    cr_assert_arr_eq(first, other, 32);
}

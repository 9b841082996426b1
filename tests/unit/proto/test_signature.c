/*
 * test_signature.c - ECDSA against RFC 6979's vectors, DER, signed requests and assignments.
 */
#include "make_message.h"
#include "random.h"

#include <wire/digest.h>
#include <wire/signature.h>

#include <criterion/criterion.h>

#include <string.h>

/* RFC 6979, appendix A.2.5: P-256 with SHA-256. */
#define VECTOR_PRIVATE "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721"
#define VECTOR_PUBLIC                                                                              \
    "0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb67903fe1008b8bc99a41ae9e956" \
    "28bc64f2f1b20c2d7e9f5177a3c294d4462299"
#define VECTOR_SAMPLE                                                                              \
    "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716f7cb1c942d657c41d436c7a1b6e2" \
    "9f65f3e900dbb9aff4064dc4ab2f843acda8"
#define VECTOR_TEST                                                                                \
    "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367019f4113742a2b14bd25926b49c6" \
    "49155f267e60d3814b4c0cc84250e46f0083"

static void from_hex(const char *text, uint8_t *bytes, size_t n_bytes)
{
    cr_assert(dunlin__hex_decode(text, bytes, n_bytes));
}

Test(proto_signature, known_vectors)
{
    uint8_t private_key[32];
    uint8_t public_key[65];
    uint8_t wanted[65];
    uint8_t signature[64];
    from_hex(VECTOR_PRIVATE, private_key, 32);
    from_hex(VECTOR_PUBLIC, wanted, 65);
    cr_assert_eq(dunlin__key_public(private_key, public_key, NULL), DUNLIN_OK);
    cr_assert_arr_eq(public_key, wanted, 65);
    from_hex(VECTOR_SAMPLE, wanted, 64);
    cr_assert_eq(dunlin__verify(public_key, "sample", 6, wanted, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__sign(private_key, "sample", 6, signature, NULL), DUNLIN_OK);
    cr_assert_arr_eq(signature, wanted, 64);
    from_hex(VECTOR_TEST, wanted, 64);
    cr_assert_eq(dunlin__verify(public_key, "test", 4, wanted, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__sign(private_key, "test", 4, signature, NULL), DUNLIN_OK);
    cr_assert_arr_eq(signature, wanted, 64);
}

Test(proto_signature, what_is_changed_does_not_verify)
{
    uint64_t state = test_seed(51);
    uint8_t private_key[32];
    uint8_t public_key[65];
    uint8_t signature[64];
    uint8_t message[50];
    dunlin_error error = {0};
    memset(message, 7, sizeof(message));
    cr_assert_eq(dunlin__key_generate(private_key, public_key, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__key_check(public_key, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__sign(private_key, message, sizeof(message), signature, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__verify(public_key, message, sizeof(message), signature, &error),
                 DUNLIN_OK);
    for (int i = 0; i < test_cases(20); i++) {
        uint8_t *parts[] = {message, signature, public_key};
        size_t sizes[] = {sizeof(message), sizeof(signature), sizeof(public_key)};
        size_t part = (size_t)i % 3;
        uint8_t *byte = parts[part] + test_random_below(&state, sizes[part]);
        uint8_t mask = (uint8_t)(1u << test_random_below(&state, 8));
        *byte ^= mask;
        cr_assert_eq(dunlin__verify(public_key, message, sizeof(message), signature, &error),
                     DUNLIN_SIGNATURE);
        *byte ^= mask;
    }
    memset(signature, 0, sizeof(signature));
    cr_assert_eq(dunlin__verify(public_key, message, sizeof(message), signature, &error),
                 DUNLIN_SIGNATURE);
    public_key[64] ^= 1;
    cr_assert_eq(dunlin__key_check(public_key, &error), DUNLIN_SIGNATURE);
    memset(private_key, 0, 32);
    cr_assert_eq(dunlin__key_public(private_key, public_key, &error), DUNLIN_ARGUMENT);
    memset(private_key, 0xff, 32);
    cr_assert_eq(dunlin__key_public(private_key, public_key, &error), DUNLIN_ARGUMENT);
}

Test(proto_signature, many_keys_leave_no_slot_taken)
{
    uint8_t private_key[32];
    uint8_t public_key[65];
    uint8_t signature[64];
    from_hex(VECTOR_PRIVATE, private_key, 32);
    from_hex(VECTOR_PUBLIC, public_key, 65);
    for (int i = 0; i < 70; i++) { /* the library has 32 slots */
        public_key[0] = (i % 2 == 0) ? 4 : 5;
        cr_assert_eq(dunlin__sign(private_key, "a", 1, signature, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__verify(public_key, "a", 1, signature, NULL),
                     (i % 2 == 0) ? DUNLIN_OK : DUNLIN_SIGNATURE);
    }
}

Test(proto_signature, der_goes_both_ways)
{
    uint64_t state = test_seed(52);
    for (int i = 0; i < test_cases(500); i++) {
        uint8_t signature[64];
        uint8_t again[64];
        uint8_t der[DUNLIN_SIGNATURE_DER_BYTES];
        for (size_t k = 0; k < 64; k++) {
            signature[k] = (uint8_t)test_random_u64(&state);
        }
        memset(signature, 0, test_random_below(&state, 32));
        memset(signature + 32, 0, test_random_below(&state, 32));
        signature[31] |= 1;
        signature[63] |= 1;
        size_t n_bytes = dunlin__signature_to_der(signature, der);
        cr_assert_leq(n_bytes, sizeof(der));
        cr_assert_eq(dunlin__signature_from_der(der, n_bytes, again, NULL), DUNLIN_OK);
        cr_assert_arr_eq(again, signature, 64);
        cr_assert_eq(dunlin__signature_from_der(der, n_bytes - 1, again, NULL), DUNLIN_SIGNATURE);
        der[test_random_below(&state, n_bytes)] ^= (uint8_t)(1u << test_random_below(&state, 8));
        uint8_t der_again[DUNLIN_SIGNATURE_DER_BYTES];
        if (dunlin__signature_from_der(der, n_bytes, again, NULL) == DUNLIN_OK) {
            cr_assert_eq(dunlin__signature_to_der(again, der_again), n_bytes);
            cr_assert_arr_eq(der_again, der, n_bytes);
        }
    }
}

Test(proto_signature, der_is_strict)
{
    static const uint8_t good[] = {0x30, 0x06, 0x02, 0x01, 0x05, 0x02, 0x01, 0x07};
    static const uint8_t bad[][9] = {
        {0x31, 0x06, 0x02, 0x01, 0x05, 0x02, 0x01, 0x07},       /* no sequence */
        {0x30, 0x05, 0x02, 0x01, 0x05, 0x02, 0x01, 0x07},       /* wrong length */
        {0x30, 0x06, 0x02, 0x01, 0x85, 0x02, 0x01, 0x07},       /* negative */
        {0x30, 0x06, 0x02, 0x01, 0x00, 0x02, 0x01, 0x07},       /* zero */
        {0x30, 0x06, 0x02, 0x01, 0x05, 0x03, 0x01, 0x07},       /* no integer */
        {0x30, 0x06, 0x02, 0x02, 0x05, 0x02, 0x01, 0x07},       /* length runs over */
        {0x30, 0x07, 0x02, 0x02, 0x00, 0x05, 0x02, 0x01, 0x07}, /* needless zero */
        {0x30, 0x07, 0x02, 0x01, 0x05, 0x02, 0x01, 0x07, 0x00}, /* more bytes after it */
    };
    uint8_t signature[64];
    cr_assert_eq(dunlin__signature_from_der(good, sizeof(good), signature, NULL), DUNLIN_OK);
    cr_assert_eq(signature[31], 5);
    cr_assert_eq(signature[63], 7);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        size_t n_bytes = (i < 6) ? 8 : 9;
        cr_assert_eq(dunlin__signature_from_der(bad[i], n_bytes, signature, NULL), DUNLIN_SIGNATURE,
                     "case %zu", i);
    }
}

Test(proto_signature, spki_goes_both_ways)
{
    uint8_t key[65];
    uint8_t again[65];
    uint8_t spki[DUNLIN_SPKI_BYTES];
    from_hex(VECTOR_PUBLIC, key, 65);
    dunlin__spki_from_key(key, spki);
    cr_assert_eq(dunlin__spki_to_key(spki, sizeof(spki), again, NULL), DUNLIN_OK);
    cr_assert_arr_eq(again, key, 65);
    spki[3] ^= 1;
    cr_assert_eq(dunlin__spki_to_key(spki, sizeof(spki), again, NULL), DUNLIN_SIGNATURE);
    spki[3] ^= 1;
    spki[90] ^= 1;
    cr_assert_eq(dunlin__spki_to_key(spki, sizeof(spki), again, NULL), DUNLIN_SIGNATURE);
}

static dunlin__signed_request sample_request(void)
{
    dunlin__signed_request request = {.method = "POST",
                                      .authority = "localhost:8443",
                                      .path = "/v1/populations/phones:checkin",
                                      .device_id = "d-1",
                                      .idempotency_key = "00112233445566778899aabbccddeeff",
                                      .challenge = "0123456789abcdef",
                                      .counter = 258};
    for (uint8_t i = 0; i < 32; i++) {
        request.body_sha256[i] = i;
    }
    return request;
}

Test(proto_signature, request_bytes_are_as_written_down)
{
    static const char wanted[] = "\0\x11"
                                 "dunlin.v1.request"
                                 "\0\0\0\0\0\0\0\x01"
                                 "\0\x04POST"
                                 "\0\x0elocalhost:8443"
                                 "\0\x1e/v1/populations/phones:checkin"
                                 "\0\x03"
                                 "d-1"
                                 "\0\x20"
                                 "00112233445566778899aabbccddeeff"
                                 "\0\x10"
                                 "0123456789abcdef"
                                 "\0\0\0\0\0\0\x01\x02"
                                 "\0\x20\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d"
                                 "\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d"
                                 "\x1e\x1f";
    dunlin__signed_request request = sample_request();
    uint8_t message[DUNLIN_REQUEST_MESSAGE_BYTES];
    size_t n_bytes = 0;
    cr_assert_eq(dunlin__request_message(&request, message, &n_bytes, NULL), DUNLIN_OK);
    cr_assert_eq(n_bytes, sizeof(wanted) - 1);
    cr_assert_arr_eq(message, (const uint8_t *)wanted, n_bytes);
    uint8_t digest[32];
    uint8_t message_digest[32];
    cr_assert_eq(dunlin__request_digest(&request, digest, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__sha256_of(message, n_bytes, message_digest, NULL), DUNLIN_OK);
    cr_assert_arr_eq(digest, message_digest, 32);
}

Test(proto_signature, no_part_of_a_request_can_be_changed_or_moved)
{
    dunlin__signed_request requests[10];
    for (size_t i = 0; i < 10; i++) {
        requests[i] = sample_request();
    }
    requests[1].method = "PUT";
    requests[2].authority = "localhost:8444";
    requests[3].path = "/v1/populations/phones:forget";
    requests[4].device_id = "d-";
    requests[5].device_id = "";
    requests[6].idempotency_key = "00112233445566778899aabbccddeefe";
    requests[7].challenge = "";
    requests[8].counter = 259;
    requests[9].body_sha256[31] = 0;
    uint8_t digests[10][32];
    for (size_t i = 0; i < 10; i++) {
        cr_assert_eq(dunlin__request_digest(&requests[i], digests[i], NULL), DUNLIN_OK);
        for (size_t k = 0; k < i; k++) {
            cr_assert_neq(memcmp(digests[i], digests[k], 32), 0, "%zu and %zu", i, k);
        }
    }
    dunlin_error error = {0};
    dunlin__signed_request request = sample_request();
    request.authority = NULL;
    cr_assert_eq(dunlin__request_digest(&request, digests[0], &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "authority"));
    request = sample_request();
    request.idempotency_key = "";
    cr_assert_eq(dunlin__request_digest(&request, digests[0], &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "idempotency key"));
    char long_path[DUNLIN_WIRE_PATH_BYTES + 1];
    memset(long_path, 'a', sizeof(long_path));
    long_path[DUNLIN_WIRE_PATH_BYTES] = '\0';
    request = sample_request();
    request.path = long_path;
    cr_assert_eq(dunlin__request_digest(&request, digests[0], &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "path"));
}

Test(proto_signature, requests_are_signed_and_verified)
{
    uint8_t private_key[32];
    uint8_t public_key[65];
    uint8_t signature[64];
    dunlin__signed_request request = sample_request();
    from_hex(VECTOR_PRIVATE, private_key, 32);
    from_hex(VECTOR_PUBLIC, public_key, 65);
    cr_assert_eq(dunlin__request_sign(&request, private_key, signature, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__request_verify(&request, public_key, signature, NULL), DUNLIN_OK);
    request.counter++;
    cr_assert_eq(dunlin__request_verify(&request, public_key, signature, NULL), DUNLIN_SIGNATURE);
}

static dunlin__trusted_key trusted[2];
static uint8_t server_private[32];

static void make_trusted(void)
{
    uint8_t reserve_private[32];
    memset(trusted, 0, sizeof(trusted));
    strcpy(trusted[0].key_id, "main");
    strcpy(trusted[1].key_id, "reserve");
    cr_assert_eq(dunlin__key_generate(server_private, trusted[0].public_key, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__key_generate(reserve_private, trusted[1].public_key, NULL), DUNLIN_OK);
}

Test(proto_signature, assignments_are_sealed_and_opened, .init = make_trusted)
{
    uint64_t state = test_seed(53);
    for (int i = 0; i < test_cases(10); i++) {
        dunlin__assignment made;
        dunlin__assignment opened;
        dunlin_v1_signed_assignment_t sealed;
        dunlin_error error = {0};
        memset(&made, 0, sizeof(made));
        make_assignment(&made, &state);
        memset(made.key_id, 0, sizeof(made.key_id));
        strcpy(made.key_id, "main");
        cr_assert_eq(dunlin__assignment_seal(&made, server_private, &sealed, &error), DUNLIN_OK,
                     "%s", error.text);
        cr_assert_eq(dunlin__assignment_open(&sealed, trusted, 2, &opened, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(memcmp(&opened, &made, sizeof(made)), 0);
        sealed.assignment.bytes[test_random_below(&state, sealed.assignment.size)] ^= 4;
        cr_assert_eq(dunlin__assignment_open(&sealed, trusted, 2, &opened, &error),
                     DUNLIN_SIGNATURE);
    }
}

Test(proto_signature, assignments_of_other_keys_are_refused, .init = make_trusted)
{
    uint64_t state = test_seed(54);
    dunlin__assignment made;
    dunlin__assignment opened;
    dunlin_v1_signed_assignment_t sealed;
    dunlin_error error = {0};
    memset(&made, 0, sizeof(made));
    make_assignment(&made, &state);
    strcpy(made.key_id, "other");
    cr_assert_eq(dunlin__assignment_seal(&made, server_private, &sealed, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__assignment_open(&sealed, trusted, 2, &opened, &error), DUNLIN_SIGNATURE);
    cr_assert_not_null(strstr(error.text, "\"other\""), "%s", error.text);
    strcpy(sealed.key_id, "reserve");
    cr_assert_eq(dunlin__assignment_open(&sealed, trusted, 2, &opened, &error), DUNLIN_SIGNATURE);
    strcpy(sealed.key_id, "main"); /* signed by it, but another is named within */
    cr_assert_eq(dunlin__assignment_open(&sealed, trusted, 2, &opened, &error), DUNLIN_SIGNATURE);
    cr_assert_not_null(strstr(error.text, "names the key other and is signed by main"), "%s",
                       error.text);
    cr_assert_eq(opened.deadline_ms, 0);
    made.plan.batch_size = 0;
    cr_assert_eq(dunlin__assignment_seal(&made, server_private, &sealed, &error), DUNLIN_PROTOCOL);
}

static void make_statement(dunlin__run_over *out, uint64_t *state, const char *key_id)
{
    memset(out, 0, sizeof(*out));
    make_run_over(out, state);
    memset(out->key_id, 0, sizeof(out->key_id));
    strcpy(out->key_id, key_id);
}

Test(proto_signature, what_says_that_a_run_is_over_is_as_safe_as_an_assignment,
     .init = make_trusted)
{
    uint64_t state = test_seed(55);
    for (int i = 0; i < test_cases(10); i++) {
        dunlin__run_over made;
        dunlin__run_over opened;
        dunlin_v1_signed_run_over_t sealed;
        dunlin_error error = {0};
        make_statement(&made, &state, "main");
        cr_assert_eq(dunlin__run_over_seal(&made, server_private, &sealed, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(dunlin__run_over_open(&sealed, trusted, 2, &opened, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(memcmp(&opened, &made, sizeof(made)), 0);
        sealed.statement.bytes[test_random_below(&state, sealed.statement.size)] ^= 4;
        cr_assert_eq(dunlin__run_over_open(&sealed, trusted, 2, &opened, &error), DUNLIN_SIGNATURE);
        memset(sealed.signature, 0, sizeof(sealed.signature));
        cr_assert_eq(dunlin__run_over_open(&sealed, trusted, 2, &opened, &error), DUNLIN_SIGNATURE);
        cr_assert_eq(opened.round, 0);
    }
}

Test(proto_signature, a_signature_of_an_assignment_ends_no_run, .init = make_trusted)
{
    uint64_t state = test_seed(56);
    dunlin__run_over made;
    dunlin__run_over opened;
    dunlin_v1_signed_run_over_t sealed;
    dunlin_v1_signed_assignment_t other;
    dunlin__assignment assignment;
    dunlin_error error = {0};
    make_statement(&made, &state, "main");
    cr_assert_eq(dunlin__run_over_seal(&made, server_private, &sealed, &error), DUNLIN_OK);
    /* The same bytes, signed by the same key as what the other message is. */
    memset(&other, 0, sizeof(other));
    memcpy(other.assignment.bytes, sealed.statement.bytes, sealed.statement.size);
    other.assignment.size = sealed.statement.size;
    memcpy(other.signature, sealed.signature, sizeof(other.signature));
    strcpy(other.key_id, "main");
    cr_assert_eq(dunlin__assignment_open(&other, trusted, 2, &assignment, &error),
                 DUNLIN_SIGNATURE);
    strcpy(sealed.key_id, "reserve");
    cr_assert_eq(dunlin__run_over_open(&sealed, trusted, 2, &opened, &error), DUNLIN_SIGNATURE);
    strcpy(sealed.key_id, "nobody");
    cr_assert_eq(dunlin__run_over_open(&sealed, trusted, 2, &opened, &error), DUNLIN_SIGNATURE);
    cr_assert_not_null(strstr(error.text, "\"nobody\""), "%s", error.text);
    make_statement(&made, &state, "other");
    cr_assert_eq(dunlin__run_over_seal(&made, server_private, &sealed, &error), DUNLIN_OK);
    strcpy(sealed.key_id, "main");
    cr_assert_eq(dunlin__run_over_open(&sealed, trusted, 2, &opened, &error), DUNLIN_SIGNATURE);
    cr_assert_not_null(strstr(error.text, "names the key other and is signed by main"), "%s",
                       error.text);
}

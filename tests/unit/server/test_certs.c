/*
 * test_certs.c - the certificates verify, match their keys, survive a restart, and are readable by
 * their owner alone.
 */
#include "base/private_key.h"
#include "server/device.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <criterion/criterion.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/ecp.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct loaded {
    test_server fixture;
    dunlin__server_certs certs;
    dunlin_alloc alloc;
    char path[256];
} loaded;

static const char *file(loaded *have, const char *name)
{
    (void)snprintf(have->path, sizeof have->path, "%s/%s", have->fixture.folder, name);
    return have->path;
}

static void load(loaded *have, const char *host)
{
    dunlin_error error = {0};
    have->alloc = dunlin__alloc_or_default(NULL);
    const dunlin__server_certs_wish wish = {.host = host};
    cr_assert_eq(
        dunlin__server_certs_load(have->fixture.folder, &wish, &have->alloc, &have->certs, &error),
        DUNLIN_OK, "%s", error.text);
}

static uint32_t verify(loaded *have, const char *leaf_name, const char *ca_name, const char *host)
{
    mbedtls_x509_crt ca;
    mbedtls_x509_crt leaf;
    uint32_t flags = 0;
    mbedtls_x509_crt_init(&ca);
    mbedtls_x509_crt_init(&leaf);
    cr_assert_eq(mbedtls_x509_crt_parse_file(&ca, file(have, ca_name)), 0);
    cr_assert_eq(mbedtls_x509_crt_parse_file(&leaf, file(have, leaf_name)), 0);
    (void)mbedtls_x509_crt_verify(&leaf, &ca, NULL, host, &flags, NULL, NULL);
    mbedtls_x509_crt_free(&leaf);
    mbedtls_x509_crt_free(&ca);
    return flags;
}

Test(certs, verify_under_their_ca)
{
    loaded have;
    test_server_folder(&have.fixture);
    load(&have, "10.1.2.3");
    cr_assert_eq(verify(&have, "server.pem", "ca.pem", "localhost"), 0);
    cr_assert_eq(verify(&have, "client.pem", "ca.pem", NULL), 0);
    cr_assert_neq(verify(&have, "server.pem", "ca.pem", "elsewhere.example"), 0);
    cr_assert_neq(verify(&have, "server.pem", "client.pem", "localhost"), 0);

    mbedtls_x509_crt leaf;
    mbedtls_pk_context key;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&random);
    mbedtls_x509_crt_init(&leaf);
    mbedtls_pk_init(&key);
    cr_assert_eq(mbedtls_ctr_drbg_seed(&random, mbedtls_entropy_func, &entropy, NULL, 0), 0);
    cr_assert_eq(mbedtls_x509_crt_parse_file(&leaf, file(&have, "server.pem")), 0);
    cr_assert_eq(dunlin__read_private_key(&key, file(&have, "server.key"), &random), 0);
    cr_assert_eq(dunlin__check_key_pair(&leaf.pk, &key, &random), 0);
    int n_names = 0;
    bool has_given = false;
    for (const mbedtls_x509_sequence *name = &leaf.subject_alt_names; name != NULL;
         name = name->next) {
        const uint8_t given[4] = {10, 1, 2, 3};
        n_names++;
        has_given = has_given || (name->buf.len == 4 && memcmp(name->buf.p, given, 4) == 0);
    }
    cr_assert_geq(n_names, 1);
    /* mbedTLS 2.28 lists DNS names alone; the addresses are looked for in the extension itself. */
    const uint8_t wanted[] = {0x87, 4, 10, 1, 2, 3};
    bool is_found = has_given;
    for (size_t i = 0; i + sizeof wanted <= leaf.v3_ext.len; i++) {
        is_found = is_found || memcmp(leaf.v3_ext.p + i, wanted, sizeof wanted) == 0;
    }
    cr_assert(is_found);
    mbedtls_pk_free(&key);
    mbedtls_ctr_drbg_free(&random);
    mbedtls_entropy_free(&entropy);
    mbedtls_x509_crt_free(&leaf);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    test_server_end(&have.fixture);
}

Test(certs, stay_as_they_are)
{
    loaded have;
    test_server_folder(&have.fixture);
    load(&have, "127.0.0.1");
    dunlin__server_certs first = have.certs;
    load(&have, "127.0.0.1");
    cr_assert_eq(first.certificate_bytes, have.certs.certificate_bytes);
    cr_assert_str_eq(first.certificate, have.certs.certificate);
    cr_assert_arr_eq(first.signing_key, have.certs.signing_key, DUNLIN_PRIVATE_KEY_BYTES);
    cr_assert_str_eq(first.key_id, have.certs.key_id);

    dunlin_error error = {0};
    uint8_t signature[DUNLIN_SIGNATURE_BYTES];
    cr_assert_eq(dunlin__sign(first.signing_key, "x", 1, signature, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__verify(have.certs.signing_public, "x", 1, signature, &error), DUNLIN_OK);
    dunlin__server_certs_free(&first, &have.alloc);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    test_server_end(&have.fixture);
}

Test(certs, are_private)
{
    static const char *const names[] = {"ca.key",     "ca.pem",      "server.key",  "server.pem",
                                        "client.key", "signing.key", "signing.pub", "client.pem"};
    loaded have;
    test_server_folder(&have.fixture);
    load(&have, "::1");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct stat info;
        cr_assert_eq(stat(file(&have, names[i]), &info), 0, "%s", names[i]);
        cr_expect_eq(info.st_mode & 0777, 0600, "%s", names[i]);
    }
    dunlin__server_certs_free(&have.certs, &have.alloc);
    test_server_end(&have.fixture);
}

Test(certs, name_a_damaged_key)
{
    loaded have;
    dunlin_error error = {0};
    test_server_folder(&have.fixture);
    load(&have, "127.0.0.1");
    dunlin__server_certs_free(&have.certs, &have.alloc);
    (void)test_server_write(&have.fixture, "signing.key", "not hex\n");
    const dunlin__server_certs_wish wish = {.host = "127.0.0.1"};
    cr_assert_eq(
        dunlin__server_certs_load(have.fixture.folder, &wish, &have.alloc, &have.certs, &error),
        DUNLIN_DATA);
    cr_assert_not_null(strstr(error.text, "signing.key"), "%s", error.text);
    test_server_end(&have.fixture);
}

static dunlin_status load_wish(loaded *have, const dunlin__server_certs_wish *wish,
                               dunlin_error *error)
{
    have->alloc = dunlin__alloc_or_default(NULL);
    return dunlin__server_certs_load(have->fixture.folder, wish, &have->alloc, &have->certs, error);
}

/* Case D5 of the field report: names for other machines, no 0.0.0.0 among them, a new leaf over the
 * same key when they change. */
Test(certs, follow_the_names)
{
    static const char *const names[] = {"fl.example.org", "10.9.8.7", "*.lab.example",
                                        "2001:db8::7"};
    const dunlin__server_certs_wish plain = {.host = "0.0.0.0"};
    const dunlin__server_certs_wish named = {.host = "::", .names = names, .n_names = 4};
    const uint8_t any[] = {0x87, 4, 0, 0, 0, 0};
    const uint8_t given[] = {0x87, 4, 10, 9, 8, 7};
    loaded have;
    dunlin_error error = {0};
    mbedtls_x509_crt leaf;
    test_server_folder(&have.fixture);
    cr_assert_eq(load_wish(&have, &plain, &error), DUNLIN_OK, "%s", error.text);
    dunlin__server_certs first = have.certs;
    cr_assert_neq(verify(&have, "server.pem", "ca.pem", "fl.example.org"), 0);
    cr_assert_eq(load_wish(&have, &named, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(verify(&have, "server.pem", "ca.pem", "fl.example.org"), 0);
    cr_assert_eq(verify(&have, "server.pem", "ca.pem", "a.lab.example"), 0);
    cr_assert_eq(verify(&have, "server.pem", "ca.pem", "localhost"), 0);
    cr_assert_str_eq(first.key, have.certs.key, "the key stays");
    cr_assert_str_neq(first.certificate, have.certs.certificate);
    dunlin__server_certs_free(&first, &have.alloc);
    mbedtls_x509_crt_init(&leaf);
    cr_assert_eq(mbedtls_x509_crt_parse_file(&leaf, file(&have, "server.pem")), 0);
    bool has_given = false;
    for (size_t i = 0; i + sizeof any <= leaf.v3_ext.len; i++) {
        cr_expect_neq(memcmp(leaf.v3_ext.p + i, any, sizeof any), 0, "0.0.0.0 is no name");
        has_given = has_given || memcmp(leaf.v3_ext.p + i, given, sizeof given) == 0;
    }
    cr_expect(has_given);
    mbedtls_x509_crt_free(&leaf);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    test_server_end(&have.fixture);
}

/* Case D11: before it ends a leaf is renewed, also where the CA's key came back for it alone. */
Test(certs, are_renewed_before_they_end)
{
    const int64_t now_s = (int64_t)time(NULL);
    const int64_t day_s = 86400;
    dunlin__server_certs_wish wish = {.host = "127.0.0.1", .now_s = now_s};
    loaded have;
    dunlin_error error = {0};
    char away[300];
    test_server_folder(&have.fixture);
    cr_assert_eq(load_wish(&have, &wish, &error), DUNLIN_OK, "%s", error.text);
    dunlin__server_certs first = have.certs;
    (void)snprintf(away, sizeof away, "%s/away.key", have.fixture.folder);
    cr_assert_eq(rename(file(&have, "ca.key"), away), 0);
    wish.now_s = now_s + 300 * day_s;
    cr_assert_eq(load_wish(&have, &wish, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_str_eq(first.certificate, have.certs.certificate, "not yet");
    dunlin__server_certs_free(&have.certs, &have.alloc);
    wish.now_s = now_s + 340 * day_s;
    cr_assert_neq(load_wish(&have, &wish, &error), DUNLIN_OK);
    cr_assert_not_null(strstr(error.text, "ca.key"), "%s", error.text);
    cr_assert_eq(rename(away, file(&have, "ca.key")), 0);
    cr_assert_eq(load_wish(&have, &wish, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_str_neq(first.certificate, have.certs.certificate);
    cr_assert_str_eq(first.key, have.certs.key);
    dunlin__server_certs_free(&first, &have.alloc);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    test_server_end(&have.fixture);
}

Test(certs, from_elsewhere_are_checked)
{
    loaded have;
    loaded other;
    dunlin_error error = {0};
    char certificate[256];
    char key[256];
    char foreign[256];
    test_server_folder(&have.fixture);
    test_server_folder(&other.fixture);
    load(&have, "127.0.0.1");
    load(&other, "127.0.0.1");
    (void)snprintf(certificate, sizeof certificate, "%s/server.pem", other.fixture.folder);
    (void)snprintf(key, sizeof key, "%s/server.key", other.fixture.folder);
    (void)snprintf(foreign, sizeof foreign, "%s/client.key", other.fixture.folder);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    dunlin__server_certs_wish wish = {
        .host = "127.0.0.1", .certificate_file = certificate, .key_file = key};
    cr_assert_eq(load_wish(&have, &wish, &error), DUNLIN_OK, "%s", error.text);
    cr_expect_str_eq(have.certs.certificate, other.certs.certificate);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    const struct {
        const char *certificate;
        const char *key;
        int64_t now_s;
        const char *says;
    } CASES[] = {{certificate, foreign, 0, "does not belong"},
                 {key, key, 0, "no PEM certificate"},
                 {certificate, certificate, 0, "private key"},
                 {"/nowhere", key, 0, "/nowhere"},
                 {certificate, key, (int64_t)time(NULL) + 500 * 86400, "ended on"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        wish.certificate_file = CASES[i].certificate;
        wish.key_file = CASES[i].key;
        wish.now_s = CASES[i].now_s;
        cr_expect_neq(load_wish(&have, &wish, &error), DUNLIN_OK, "%zu", i);
        cr_expect_not_null(strstr(error.text, CASES[i].says), "%zu: %s", i, error.text);
    }
    dunlin__server_certs_free(&other.certs, &other.alloc);
    test_server_end(&other.fixture);
    test_server_end(&have.fixture);
}

Test(certs, name_a_name_that_is_none)
{
    static const char *const CASES[] = {"a b", "https://x", "host:80", "0.0.0.0",
                                        "::",  "-.",        "a..b"};
    loaded have;
    test_server_folder(&have.fixture);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        dunlin_error error = {0};
        const dunlin__server_certs_wish wish = {
            .host = "127.0.0.1", .names = &CASES[i], .n_names = 1};
        cr_expect_eq(load_wish(&have, &wish, &error), DUNLIN_ARGUMENT, "%s", CASES[i]);
        cr_expect_not_null(strstr(error.text, CASES[i]), "%s", error.text);
    }
    test_server_end(&have.fixture);
}

/* The key that clients hold in reserve signs after a rotation, also after one that was cut off. */
Test(certs, a_signing_key_gives_way_to_the_next)
{
    loaded have;
    dunlin_error error = {0};
    uint8_t next[DUNLIN_PUBLIC_KEY_BYTES];
    test_server_folder(&have.fixture);
    load(&have, "127.0.0.1");
    memcpy(next, have.certs.next_public, sizeof next);
    cr_assert_neq(memcmp(next, have.certs.signing_public, sizeof next), 0);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    cr_assert_eq(dunlin__server_certs_rotate(have.fixture.folder, &have.alloc, &have.certs, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_arr_eq(have.certs.signing_public, next, sizeof next);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    load(&have, "127.0.0.1");
    cr_expect_arr_eq(have.certs.signing_public, next, sizeof next);
    cr_expect_neq(memcmp(have.certs.next_public, next, sizeof next), 0);
    /* Cut off between its two steps. */
    char hex[2 * DUNLIN_PRIVATE_KEY_BYTES + 1];
    dunlin__hex_encode(have.certs.signing_key, sizeof have.certs.signing_key, hex);
    (void)test_server_write(&have.fixture, "signing-next.key", hex);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    load(&have, "127.0.0.1");
    cr_expect_arr_eq(have.certs.signing_public, next, sizeof next);
    cr_expect_neq(memcmp(have.certs.next_public, next, sizeof next), 0);
    dunlin__server_certs_free(&have.certs, &have.alloc);
    test_server_end(&have.fixture);
}

/*
 * test_certs.c - the certificates verify, belong together, stay, and are for nobody else's eyes.
 */
#include "device.h"

#include <mem/support.h>
#include <wire/signature.h>

#include <criterion/criterion.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/ecp.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <private_key.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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
    cr_assert_eq(
        dunlin__server_certs_load(have->fixture.folder, host, &have->alloc, &have->certs, &error),
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
    cr_assert_eq(dunlin__server_certs_load(have.fixture.folder, "127.0.0.1", &have.alloc,
                                           &have.certs, &error),
                 DUNLIN_DATA);
    cr_assert_not_null(strstr(error.text, "signing.key"), "%s", error.text);
    test_server_end(&have.fixture);
}

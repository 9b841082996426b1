/*
 * certs.c - makes and loads the development CA, the certificates under it, and the signing key.
 *
 * Invariant: a key file is written before the certificate that speaks of it, so a certificate that
 * exists has its key; what exists is never replaced. Extensions are DER by hand (RFC 5280, 4.2.1.6
 * and 4.2.1.12), since mbedTLS 2.28 does not write them.
 */
#include "certs.h"

#include "files.h"
#include "private_key.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <arpa/inet.h>
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/oid.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PEM_BYTES 4096u
#define MAX_NAMES_BYTES 96u
#define CA_DAYS 3650
#define LEAF_DAYS 730

/* What every step of making needs. */
typedef struct maker {
    const char *folder;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_pk_context ca_key;
    mbedtls_x509_crt ca;
    dunlin_error *error;
} maker;

typedef struct leaf {
    const char *name; /* of the files */
    const char *subject;
    const char *host;
    bool is_server;
} leaf;

static dunlin_status fail_tls(maker *make, const char *doing, int code)
{
    return dunlin__fail(make->error, DUNLIN_INTERNAL, "certs", code, "%s: mbedTLS error -0x%04x",
                        doing, (unsigned)-code);
}

static dunlin_status maker_begin(maker *make, const char *folder, dunlin_error *error)
{
    make->folder = folder;
    make->error = error;
    mbedtls_entropy_init(&make->entropy);
    mbedtls_ctr_drbg_init(&make->random);
    mbedtls_pk_init(&make->ca_key);
    mbedtls_x509_crt_init(&make->ca);
    static const unsigned char tag[] = "dunlin development CA";
    int code = mbedtls_ctr_drbg_seed(&make->random, mbedtls_entropy_func, &make->entropy, tag,
                                     sizeof tag - 1);
    return code == 0 ? DUNLIN_OK : fail_tls(make, "seeding the random generator", code);
}

static void maker_end(maker *make)
{
    mbedtls_x509_crt_free(&make->ca);
    mbedtls_pk_free(&make->ca_key);
    mbedtls_ctr_drbg_free(&make->random);
    mbedtls_entropy_free(&make->entropy);
}

static dunlin_status file_path(const maker *make, const char *name, const char *ending,
                               dunlin__server_path *out_path)
{
    return dunlin__server_path_make(out_path, make->error, "%s/%s.%s", make->folder, name, ending);
}

/* Makes a P-256 key and writes it as NAME.key. */
static dunlin_status make_key(maker *make, const char *name, mbedtls_pk_context *out_key)
{
    dunlin__server_path path;
    DUNLIN_TRY(file_path(make, name, "key", &path));
    int code = mbedtls_pk_setup(out_key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY));
    if (code == 0) {
        code = mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*out_key),
                                   mbedtls_ctr_drbg_random, &make->random);
    }
    unsigned char pem[PEM_BYTES] = {0};
    if (code == 0) {
        code = mbedtls_pk_write_key_pem(out_key, pem, sizeof pem);
    }
    if (code != 0) {
        return fail_tls(make, "making a key", code);
    }
    dunlin_status status =
        dunlin__server_file_write(path.text, pem, strlen((const char *)pem), make->error);
    dunlin__wipe(pem, sizeof pem);
    return status;
}

static void validity_text(int64_t seconds, char out_text[16])
{
    time_t moment = (time_t)seconds;
    struct tm parts;
    memset(&parts, 0, sizeof parts);
    if (gmtime_r(&moment, &parts) == NULL || strftime(out_text, 16, "%Y%m%d%H%M%S", &parts) == 0) {
        memcpy(out_text, "20200101000000", 15);
    }
}

static int set_life(mbedtls_x509write_cert *cert, int days)
{
    char from[16];
    char until[16];
    int64_t now = (int64_t)time(NULL);
    validity_text(now - 24 * 3600, from);
    validity_text(now + (int64_t)days * 24 * 3600, until);
    return mbedtls_x509write_crt_set_validity(cert, from, until);
}

static int set_serial(maker *make, mbedtls_x509write_cert *cert)
{
    unsigned char bytes[16];
    int code = mbedtls_ctr_drbg_random(&make->random, bytes, sizeof bytes);
    bytes[0] = (unsigned char)((bytes[0] & 0x7F) | 0x40);
    code = code != 0 ? code : dunlin__set_serial(cert, bytes, sizeof bytes);
    return code;
}

static size_t add_name(uint8_t *out, uint8_t tag, const void *bytes, size_t n_bytes)
{
    out[0] = tag;
    out[1] = (uint8_t)n_bytes;
    memcpy(out + 2, bytes, n_bytes);
    return n_bytes + 2;
}

/* subjectAltName: a DNS name is [2], an address [7]. All lengths are below 128. */
static int set_names(mbedtls_x509write_cert *cert, const char *host)
{
    uint8_t der[MAX_NAMES_BYTES] = {0x30};
    size_t n = 2;
    const uint8_t loopback4[4] = {127, 0, 0, 1};
    const uint8_t loopback6[16] = {[15] = 1};
    uint8_t address[16];
    n += add_name(der + n, 0x82, "localhost", 9);
    n += add_name(der + n, 0x87, loopback4, sizeof loopback4);
    n += add_name(der + n, 0x87, loopback6, sizeof loopback6);
    if (inet_pton(AF_INET, host, address) == 1 && memcmp(address, loopback4, 4) != 0) {
        n += add_name(der + n, 0x87, address, 4);
    } else if (inet_pton(AF_INET6, host, address) == 1 && memcmp(address, loopback6, 16) != 0) {
        n += add_name(der + n, 0x87, address, 16);
    }
    der[1] = (uint8_t)(n - 2);
    return mbedtls_x509write_crt_set_extension(cert, MBEDTLS_OID_SUBJECT_ALT_NAME,
                                               MBEDTLS_OID_SIZE(MBEDTLS_OID_SUBJECT_ALT_NAME), 0,
                                               der, n);
}

/* extKeyUsage: serverAuth is id-kp 1, clientAuth 2. */
static int set_purpose(mbedtls_x509write_cert *cert, bool is_server)
{
    uint8_t der[] = {0x30, 0x0a, 0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01};
    der[sizeof der - 1] = is_server ? 1 : 2;
    return mbedtls_x509write_crt_set_extension(cert, MBEDTLS_OID_EXTENDED_KEY_USAGE,
                                               MBEDTLS_OID_SIZE(MBEDTLS_OID_EXTENDED_KEY_USAGE), 0,
                                               der, sizeof der);
}

static dunlin_status write_certificate(maker *make, const char *name, mbedtls_x509write_cert *cert)
{
    dunlin__server_path path;
    DUNLIN_TRY(file_path(make, name, "pem", &path));
    unsigned char pem[PEM_BYTES] = {0};
    int code =
        mbedtls_x509write_crt_pem(cert, pem, sizeof pem, mbedtls_ctr_drbg_random, &make->random);
    if (code != 0) {
        return fail_tls(make, "writing a certificate", code);
    }
    return dunlin__server_file_write(path.text, pem, strlen((const char *)pem), make->error);
}

static int fill_certificate(maker *make, mbedtls_x509write_cert *cert, const leaf *about,
                            mbedtls_pk_context *subject_key)
{
    const char *ca_name = "CN=Dunlin development CA,O=Dunlin";
    mbedtls_x509write_crt_set_version(cert, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(cert, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(cert, subject_key);
    mbedtls_x509write_crt_set_issuer_key(cert, &make->ca_key);
    int code = mbedtls_x509write_crt_set_issuer_name(cert, ca_name);
    code = code != 0 ? code
                     : mbedtls_x509write_crt_set_subject_name(cert, about != NULL ? about->subject
                                                                                  : ca_name);
    code = code != 0 ? code : set_serial(make, cert);
    code = code != 0 ? code : set_life(cert, about != NULL ? LEAF_DAYS : CA_DAYS);
    code = code != 0 ? code
                     : mbedtls_x509write_crt_set_basic_constraints(cert, about == NULL,
                                                                   about == NULL ? 0 : -1);
    code = code != 0 ? code : mbedtls_x509write_crt_set_subject_key_identifier(cert);
    code = code != 0 ? code : mbedtls_x509write_crt_set_authority_key_identifier(cert);
    unsigned usage = about == NULL ? MBEDTLS_X509_KU_KEY_CERT_SIGN | MBEDTLS_X509_KU_CRL_SIGN
                                   : MBEDTLS_X509_KU_DIGITAL_SIGNATURE;
    code = code != 0 ? code : mbedtls_x509write_crt_set_key_usage(cert, usage);
    if (code == 0 && about != NULL) {
        code = set_purpose(cert, about->is_server);
    }
    if (code == 0 && about != NULL && about->is_server) {
        code = set_names(cert, about->host);
    }
    return code;
}

/* `about` NULL: the CA itself. */
static dunlin_status make_certificate(maker *make, const leaf *about,
                                      mbedtls_pk_context *subject_key)
{
    mbedtls_x509write_cert cert;
    mbedtls_x509write_crt_init(&cert);
    int code = fill_certificate(make, &cert, about, subject_key);
    dunlin_status status = code != 0
                               ? fail_tls(make, "filling in a certificate", code)
                               : write_certificate(make, about != NULL ? about->name : "ca", &cert);
    mbedtls_x509write_crt_free(&cert);
    return status;
}

static dunlin_status load_ca(maker *make)
{
    dunlin__server_path key;
    dunlin__server_path pem;
    DUNLIN_TRY(file_path(make, "ca", "key", &key));
    DUNLIN_TRY(file_path(make, "ca", "pem", &pem));
    if (dunlin__server_file_size(pem.text) < 0) {
        DUNLIN_TRY(make_key(make, "ca", &make->ca_key));
        return make_certificate(make, NULL, &make->ca_key);
    }
    int code = dunlin__read_private_key(&make->ca_key, key.text, &make->random);
    if (code != 0) {
        return dunlin__fail(make->error, DUNLIN_TLS, "certs", code,
                            "%.160s: no private key could be read (mbedTLS -0x%04x)", key.text,
                            (unsigned)-code);
    }
    return DUNLIN_OK;
}

static dunlin_status ensure_leaf(maker *make, const leaf *about)
{
    dunlin__server_path pem;
    DUNLIN_TRY(file_path(make, about->name, "pem", &pem));
    if (dunlin__server_file_size(pem.text) >= 0) {
        return DUNLIN_OK;
    }
    mbedtls_pk_context key;
    mbedtls_pk_init(&key);
    dunlin_status status = make_key(make, about->name, &key);
    if (status == DUNLIN_OK) {
        status = make_certificate(make, about, &key);
    }
    mbedtls_pk_free(&key);
    return status;
}

static dunlin_status write_hex(maker *make, const char *ending, const uint8_t *bytes,
                               size_t n_bytes)
{
    dunlin__server_path path;
    DUNLIN_TRY(file_path(make, "signing", ending, &path));
    char text[2 * DUNLIN_PUBLIC_KEY_BYTES + 2];
    dunlin__hex_encode(bytes, n_bytes, text);
    text[2 * n_bytes] = '\n';
    dunlin_status status = dunlin__server_file_write(path.text, text, 2 * n_bytes + 1, make->error);
    dunlin__wipe(text, sizeof text);
    return status;
}

static dunlin_status load_signing_key(maker *make, const dunlin_alloc *alloc,
                                      dunlin__server_certs *certs)
{
    dunlin__server_path path;
    DUNLIN_TRY(file_path(make, "signing", "key", &path));
    if (dunlin__server_file_size(path.text) < 0) {
        DUNLIN_TRY(dunlin__key_generate(certs->signing_key, certs->signing_public, make->error));
        DUNLIN_TRY(write_hex(make, "key", certs->signing_key, sizeof certs->signing_key));
    } else {
        uint8_t *bytes = NULL;
        size_t n_bytes = 0;
        DUNLIN_TRY(dunlin__server_file_read(alloc, path.text, 256, &bytes, &n_bytes, make->error));
        if (n_bytes > 0 && bytes[n_bytes - 1] == '\n') {
            bytes[n_bytes - 1] = 0;
        }
        bool is_right =
            dunlin__hex_decode((const char *)bytes, certs->signing_key, sizeof certs->signing_key);
        dunlin__wipe(bytes, n_bytes);
        dunlin__free_array(alloc, bytes, n_bytes + 1, 1);
        if (!is_right) {
            return dunlin__fail(make->error, DUNLIN_DATA, "certs", 0,
                                "%.160s: not a key of 64 hex digits", path.text);
        }
        DUNLIN_TRY(dunlin__key_public(certs->signing_key, certs->signing_public, make->error));
    }
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    DUNLIN_TRY(dunlin__sha256_of(certs->signing_public, sizeof certs->signing_public, sha256,
                                 make->error));
    dunlin__hex_encode(sha256, 8, certs->key_id);
    return write_hex(make, "pub", certs->signing_public, sizeof certs->signing_public);
}

static dunlin_status read_pem(const maker *make, const char *ending, const dunlin_alloc *alloc,
                              char **out_text, size_t *out_bytes)
{
    dunlin__server_path path;
    DUNLIN_TRY(file_path(make, "server", ending, &path));
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(
        dunlin__server_file_read(alloc, path.text, 64 * 1024, &bytes, &n_bytes, make->error));
    *out_text = (char *)bytes;
    *out_bytes = n_bytes + 1;
    return DUNLIN_OK;
}

static dunlin_status load_all(maker *make, const char *host, const dunlin_alloc *alloc,
                              dunlin__server_certs *certs)
{
    const leaf server = {"server", "CN=dunlin-server,O=Dunlin", host, true};
    const leaf client = {"client", "CN=dunlin-client,O=Dunlin", "", false};
    DUNLIN_TRY(load_ca(make));
    DUNLIN_TRY(ensure_leaf(make, &server));
    DUNLIN_TRY(ensure_leaf(make, &client));
    DUNLIN_TRY(load_signing_key(make, alloc, certs));
    DUNLIN_TRY(read_pem(make, "pem", alloc, &certs->certificate, &certs->certificate_bytes));
    return read_pem(make, "key", alloc, &certs->key, &certs->key_bytes);
}

dunlin_status dunlin__server_certs_load(const char *folder, const char *host,
                                        const dunlin_alloc *alloc, dunlin__server_certs *out_certs,
                                        dunlin_error *error)
{
    memset(out_certs, 0, sizeof *out_certs);
    maker make;
    dunlin_status status = maker_begin(&make, folder, error);
    if (status == DUNLIN_OK) {
        status = load_all(&make, host, alloc, out_certs);
    }
    maker_end(&make);
    if (status != DUNLIN_OK) {
        dunlin__server_certs_free(out_certs, alloc);
    }
    return status;
}

void dunlin__server_certs_free(dunlin__server_certs *certs, const dunlin_alloc *alloc)
{
    if (certs->key != NULL) {
        dunlin__wipe(certs->key, certs->key_bytes);
    }
    dunlin__free_array(alloc, certs->key, certs->key_bytes, 1);
    dunlin__free_array(alloc, certs->certificate, certs->certificate_bytes, 1);
    dunlin__wipe(certs, sizeof *certs);
}

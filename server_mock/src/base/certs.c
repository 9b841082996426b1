/*
 * certs.c - makes and loads the development CA, the certificates under it, and the signing key.
 *
 * Invariant: a key file is written before its certificate, so a certificate that exists has its
 * key; an existing key stays, and a new leaf certificate uses the same key. Extensions are DER by
 * hand (RFC 5280, 4.2.1.6 and 4.2.1.12), since mbedTLS 2.28 does not write them.
 */
#include "certs.h"

#include "files.h"
#include "names.h"
#include "private_key.h"
#include "signing.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/oid.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PEM_BYTES 8192u
#define CA_DAYS 3650
#define LEAF_DAYS 397 /* what browsers and phones take at most */
#define RENEW_DAYS 60
#define DAY_S 86400

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
    const uint8_t *names; /* subjectAltName as DER; NULL for a client */
    size_t n_names;       /* bytes of it */
    int64_t now_s;
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
    dunlin_status status = dunlin__outfile_put(path.text, DUNLIN_SERVER_FILE_MODE, pem,
                                               strlen((const char *)pem), make->error);
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

static int set_life(mbedtls_x509write_cert *cert, int days, int64_t now_s)
{
    char from[16];
    char until[16];
    validity_text(now_s - DAY_S, from);
    validity_text(now_s + (int64_t)days * DAY_S, until);
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

static int set_names(mbedtls_x509write_cert *cert, const leaf *about)
{
    return mbedtls_x509write_crt_set_extension(cert, MBEDTLS_OID_SUBJECT_ALT_NAME,
                                               MBEDTLS_OID_SIZE(MBEDTLS_OID_SUBJECT_ALT_NAME), 0,
                                               about->names, about->n_names);
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
    return dunlin__outfile_put(path.text, DUNLIN_SERVER_FILE_MODE, pem, strlen((const char *)pem),
                               make->error);
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
    code = code != 0 ? code
                     : set_life(cert, about != NULL ? LEAF_DAYS : CA_DAYS,
                                about != NULL ? about->now_s : (int64_t)time(NULL));
    code = code != 0 ? code
                     : mbedtls_x509write_crt_set_basic_constraints(cert, about == NULL,
                                                                   about == NULL ? 0 : -1);
    code = code != 0 ? code : mbedtls_x509write_crt_set_subject_key_identifier(cert);
    code = code != 0 ? code : mbedtls_x509write_crt_set_authority_key_identifier(cert);
    unsigned usage = about == NULL ? MBEDTLS_X509_KU_KEY_CERT_SIGN | MBEDTLS_X509_KU_CRL_SIGN
                                   : MBEDTLS_X509_KU_DIGITAL_SIGNATURE;
    code = code != 0 ? code : mbedtls_x509write_crt_set_key_usage(cert, usage);
    if (code == 0 && about != NULL) {
        code = set_purpose(cert, about->names != NULL);
    }
    if (code == 0 && about != NULL && about->names != NULL) {
        code = set_names(cert, about);
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

static dunlin_status read_key(maker *make, const char *name, mbedtls_pk_context *out_key)
{
    dunlin__server_path path;
    DUNLIN_TRY(file_path(make, name, "key", &path));
    int code = dunlin__read_private_key(out_key, path.text, &make->random);
    return code == 0 ? DUNLIN_OK
                     : dunlin__fail(make->error, DUNLIN_TLS, "certs", code,
                                    "%.160s: no private key could be read (mbedTLS -0x%04x)",
                                    path.text, (unsigned)-code);
}

/* The CA's key is read when a certificate has to be made under it, so it may lie elsewhere until
 * then. */
static dunlin_status ensure_ca(maker *make)
{
    dunlin__server_path pem;
    DUNLIN_TRY(file_path(make, "ca", "pem", &pem));
    if (dunlin__server_file_size(pem.text) >= 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(make_key(make, "ca", &make->ca_key));
    return make_certificate(make, NULL, &make->ca_key);
}

static dunlin_status load_ca(maker *make)
{
    return mbedtls_pk_get_type(&make->ca_key) != MBEDTLS_PK_NONE
               ? DUNLIN_OK
               : read_key(make, "ca", &make->ca_key);
}

/* True if the file is there and need not be renewed. */
static bool is_current(const maker *make, const leaf *about)
{
    dunlin__server_path pem;
    mbedtls_x509_crt have;
    if (file_path(make, about->name, "pem", &pem) != DUNLIN_OK ||
        dunlin__server_file_size(pem.text) < 0) {
        return false;
    }
    mbedtls_x509_crt_init(&have);
    bool is_so = mbedtls_x509_crt_parse_file(&have, pem.text) == 0 &&
                 dunlin__server_leaf_is_current(&have, about->names, about->n_names,
                                                about->now_s + RENEW_DAYS * DAY_S);
    mbedtls_x509_crt_free(&have);
    return is_so;
}

static dunlin_status ensure_leaf(maker *make, const leaf *about)
{
    dunlin__server_path path;
    if (is_current(make, about)) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(load_ca(make));
    DUNLIN_TRY(file_path(make, about->name, "key", &path));
    mbedtls_pk_context key;
    mbedtls_pk_init(&key);
    dunlin_status status = dunlin__server_file_size(path.text) >= 0
                               ? read_key(make, about->name, &key)
                               : make_key(make, about->name, &key);
    if (status == DUNLIN_OK) {
        status = make_certificate(make, about, &key);
    }
    mbedtls_pk_free(&key);
    return status;
}

/* A certificate from elsewhere: it and its key have to belong together and to be in their time. */
static dunlin_status check_given(maker *make, const dunlin__server_certs_wish *wish,
                                 const dunlin__server_certs *certs, int64_t now_s)
{
    mbedtls_x509_crt chain;
    mbedtls_pk_context key;
    mbedtls_x509_crt_init(&chain);
    mbedtls_pk_init(&key);
    int code = mbedtls_x509_crt_parse(&chain, (const unsigned char *)certs->certificate,
                                      certs->certificate_bytes);
    dunlin_status status = DUNLIN_OK;
    if (code != 0) {
        status = dunlin__fail(make->error, DUNLIN_TLS, "certs", code,
                              "--certificate %.160s: no PEM certificate (mbedTLS -0x%04x)",
                              wish->certificate_file, (unsigned)-code);
    } else if (dunlin__read_private_key(&key, wish->key_file, &make->random) != 0) {
        status = dunlin__fail(make->error, DUNLIN_TLS, "certs", 0,
                              "--key %.160s: no unencrypted PEM private key", wish->key_file);
    } else if (dunlin__check_key_pair(&chain.pk, &key, &make->random) != 0) {
        status = dunlin__fail(make->error, DUNLIN_TLS, "certs", 0,
                              "--key %.100s does not belong to the first certificate in %.100s",
                              wish->key_file, wish->certificate_file);
    } else if (dunlin__server_leaf_end(&chain) <= now_s) {
        status = dunlin__fail(
            make->error, DUNLIN_TLS, "certs", 0, "--certificate %.160s: ended on %04d-%02d-%02d",
            wish->certificate_file, chain.valid_to.year, chain.valid_to.mon, chain.valid_to.day);
    }
    mbedtls_pk_free(&key);
    mbedtls_x509_crt_free(&chain);
    return status;
}

static dunlin_status read_pem(const maker *make, const char *path, const dunlin_alloc *alloc,
                              char **out_text, size_t *out_bytes)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__server_file_read(alloc, path, 64 * 1024, &bytes, &n_bytes, make->error));
    *out_text = (char *)bytes;
    *out_bytes = n_bytes + 1;
    return DUNLIN_OK;
}

static dunlin_status load_all(maker *make, const dunlin__server_certs_wish *wish,
                              const dunlin_alloc *alloc, dunlin__server_certs *certs)
{
    int64_t now_s = wish->now_s != 0 ? wish->now_s : (int64_t)time(NULL);
    uint8_t names[DUNLIN_SERVER_SAN_BYTES];
    leaf server = {
        .name = "server", .subject = "CN=dunlin-server,O=Dunlin", .names = names, .now_s = now_s};
    const leaf client = {.name = "client", .subject = "CN=dunlin-client,O=Dunlin", .now_s = now_s};
    dunlin__server_path pem;
    dunlin__server_path key;
    DUNLIN_TRY(dunlin__server_names_encode(wish, names, &server.n_names, make->error));
    DUNLIN_TRY(file_path(make, "server", "pem", &pem));
    DUNLIN_TRY(file_path(make, "server", "key", &key));
    DUNLIN_TRY(ensure_ca(make));
    DUNLIN_TRY(ensure_leaf(make, &client));
    DUNLIN_TRY(dunlin__signing_load(make->folder, alloc, certs, make->error));
    bool is_given = wish->certificate_file != NULL;
    if (!is_given) {
        DUNLIN_TRY(ensure_leaf(make, &server));
    }
    DUNLIN_TRY(read_pem(make, is_given ? wish->certificate_file : pem.text, alloc,
                        &certs->certificate, &certs->certificate_bytes));
    DUNLIN_TRY(read_pem(make, is_given ? wish->key_file : key.text, alloc, &certs->key,
                        &certs->key_bytes));
    return is_given ? check_given(make, wish, certs, now_s) : DUNLIN_OK;
}

dunlin_status dunlin__server_certs_load(const char *folder, const dunlin__server_certs_wish *wish,
                                        const dunlin_alloc *alloc, dunlin__server_certs *out_certs,
                                        dunlin_error *error)
{
    memset(out_certs, 0, sizeof *out_certs);
    maker make;
    dunlin_status status = maker_begin(&make, folder, error);
    if (status == DUNLIN_OK) {
        status = load_all(&make, wish, alloc, out_certs);
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

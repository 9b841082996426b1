/*
 * private_key.h - reads keys and numbers certificates with mbedTLS 2 and 3, whose calls differ.
 */
#ifndef DUNLIN_SERVER_PRIVATE_KEY_H
#define DUNLIN_SERVER_PRIVATE_KEY_H

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/pk.h>
#include <mbedtls/version.h>
#include <mbedtls/x509_crt.h>

/*
 * Reads the unencrypted key file at path into out_key, which the caller has initialised and frees.
 * random is a seeded generator; mbedTLS 3 blinds with it, mbedTLS 2 has no use for it. Returns 0 or
 * a negative code of mbedTLS.
 */
static inline int dunlin__read_private_key(mbedtls_pk_context *out_key, const char *path,
                                           mbedtls_ctr_drbg_context *random)
{
#if MBEDTLS_VERSION_MAJOR >= 3
    return mbedtls_pk_parse_keyfile(out_key, path, NULL, mbedtls_ctr_drbg_random, random);
#else
    (void)random;
    return mbedtls_pk_parse_keyfile(out_key, path, NULL);
#endif
}

/* Sets a certificate's serial number from big-endian bytes: 0 or a negative code of mbedTLS. */
static inline int dunlin__set_serial(mbedtls_x509write_cert *cert, unsigned char *bytes,
                                     size_t n_bytes)
{
#if MBEDTLS_VERSION_NUMBER >= 0x03040000
    return mbedtls_x509write_crt_set_serial_raw(cert, bytes, n_bytes);
#else
    mbedtls_mpi serial;
    mbedtls_mpi_init(&serial);
    int code = mbedtls_mpi_read_binary(&serial, bytes, n_bytes);
    code = code != 0 ? code : mbedtls_x509write_crt_set_serial(cert, &serial);
    mbedtls_mpi_free(&serial);
    return code;
#endif
}

/* Whether the public and the private key belong together: 0 or a negative code of mbedTLS. */
static inline int dunlin__check_key_pair(const mbedtls_pk_context *public_key,
                                         const mbedtls_pk_context *private_key,
                                         mbedtls_ctr_drbg_context *random)
{
#if MBEDTLS_VERSION_MAJOR >= 3
    return mbedtls_pk_check_pair(public_key, private_key, mbedtls_ctr_drbg_random, random);
#else
    (void)random;
    return mbedtls_pk_check_pair(public_key, private_key);
#endif
}

#endif

/*
 * names.h - the names in the server's certificate, and whether a certificate has them.
 */
#ifndef DUNLIN_SERVER_NAMES_H
#define DUNLIN_SERVER_NAMES_H

#include "certs.h"

#include <mbedtls/x509_crt.h>

#define DUNLIN_SERVER_SAN_BYTES 2048u

/* subjectAltName as DER (RFC 5280, 4.2.1.6). ARGUMENT for what is neither a host name nor an
 * address, LIMIT for too many. */
DUNLIN_NODISCARD dunlin_status dunlin__server_names_encode(const dunlin__server_certs_wish *wish,
                                                           uint8_t out_der[DUNLIN_SERVER_SAN_BYTES],
                                                           size_t *out_n_bytes,
                                                           dunlin_error *error);

/* True if the certificate has just these names (0 bytes: any, or none) and ends later than
 * `until_s`. */
bool dunlin__server_leaf_is_current(const mbedtls_x509_crt *leaf, const uint8_t *der,
                                    size_t n_bytes, int64_t until_s);

/* Seconds since 1970 at which the certificate ends. */
int64_t dunlin__server_leaf_end(const mbedtls_x509_crt *leaf);

#endif

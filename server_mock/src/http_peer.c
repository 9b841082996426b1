/*
 * http_peer.c - who is at the other end of a connection.
 *
 * Invariant: what is said here comes from the socket and from TLS, never from what the peer sends.
 */
#include "http_internal.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>

bool dunlin__http_certificate(struct MHD_Connection *connection,
                              uint8_t out_sha256[DUNLIN_SHA256_BYTES])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info == NULL || info->tls_session == NULL) {
        return false;
    }
    unsigned n_certificates = 0;
    gnutls_session_t session = info->tls_session;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &n_certificates);
    gnutls_x509_crt_t leaf = NULL;
    if (chain == NULL || n_certificates == 0 || gnutls_x509_crt_init(&leaf) != 0) {
        return false;
    }
    size_t n_bytes = DUNLIN_SHA256_BYTES;
    bool is_read =
        gnutls_x509_crt_import(leaf, &chain[0], GNUTLS_X509_FMT_DER) == 0 &&
        gnutls_x509_crt_get_key_id(leaf, GNUTLS_KEYID_USE_SHA256, out_sha256, &n_bytes) == 0 &&
        n_bytes == DUNLIN_SHA256_BYTES;
    gnutls_x509_crt_deinit(leaf);
    return is_read;
}

/*
 * certs.h - the development CA, the server's certificate, a client certificate, the signing key.
 */
#ifndef DUNLIN_SERVER_CERTS_H
#define DUNLIN_SERVER_CERTS_H

#include <dunlin/alloc.h>
#include <wire/protocol.h>

/* PEM texts end in 0; `..._bytes` counts that 0. */
typedef struct dunlin__server_certs {
    char *certificate;
    size_t certificate_bytes;
    char *key;
    size_t key_bytes;
    uint8_t signing_key[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t signing_public[DUNLIN_PUBLIC_KEY_BYTES];
    char key_id[DUNLIN_WIRE_ID_BYTES]; /* the first 16 hex digits of the public key's SHA-256 */
} dunlin__server_certs;

/*
 * Loads what the folder has, and makes what it lacks: ca.pem and ca.key, server.pem and server.key
 * (names: localhost, 127.0.0.1, ::1, and `host` if it is another address), client.pem and
 * client.key (under the same CA, for trying mTLS), signing.key and signing.pub (hex). All files are
 * mode 0600. Follow by free.
 */
DUNLIN_NODISCARD dunlin_status dunlin__server_certs_load(const char *folder, const char *host,
                                                         const dunlin_alloc *alloc,
                                                         dunlin__server_certs *out_certs,
                                                         dunlin_error *error);
/* Wipes the keys. */
void dunlin__server_certs_free(dunlin__server_certs *certs, const dunlin_alloc *alloc);

#endif

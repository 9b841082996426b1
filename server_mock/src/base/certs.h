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
    uint8_t next_public[DUNLIN_PUBLIC_KEY_BYTES]; /* of the key that signs after a rotation */
    char key_id[DUNLIN_WIRE_ID_BYTES]; /* the first 16 hex digits of the public key's SHA-256 */
} dunlin__server_certs;

/* What the certificates are to say. */
typedef struct dunlin__server_certs_wish {
    const char *host;         /* of --listen: in the leaf, unless it is 0.0.0.0 or :: */
    const char *const *names; /* more host names and addresses */
    uint32_t n_names;
    const char *certificate_file; /* PEM, leaf first; NULL: a leaf of our own CA */
    const char *key_file;
    int64_t now_s; /* seconds since 1970; 0: by the clock */
} dunlin__server_certs_wish;

/*
 * Loads what the folder has, and makes what it lacks: ca.pem and ca.key, server.pem and server.key
 * (names: localhost, 127.0.0.1, ::1, and those of the wish), client.pem and client.key (under the
 * same CA, for trying mTLS), signing.key and signing.pub (hex), signing-next.key and
 * signing-next.pub (the key after it). All files are mode 0600. A leaf that ends within 60 days, or
 * has other names, is renewed over the same key. With files of the wish's own, server.pem is not
 * touched; they are checked: ARGUMENT, TLS. Follow by free.
 */
DUNLIN_NODISCARD dunlin_status dunlin__server_certs_load(const char *folder,
                                                         const dunlin__server_certs_wish *wish,
                                                         const dunlin_alloc *alloc,
                                                         dunlin__server_certs *out_certs,
                                                         dunlin_error *error);

/* Makes the next signing key the one that signs, and a new next one. */
DUNLIN_NODISCARD dunlin_status dunlin__server_certs_rotate(const char *folder,
                                                           const dunlin_alloc *alloc,
                                                           dunlin__server_certs *out_certs,
                                                           dunlin_error *error);
/* Wipes the keys. */
void dunlin__server_certs_free(dunlin__server_certs *certs, const dunlin_alloc *alloc);

#endif

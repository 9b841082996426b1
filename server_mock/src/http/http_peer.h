/*
 * http_peer.h - who is at the other end of a connection.
 */
#ifndef DUNLIN_SERVER_HTTP_PEER_H
#define DUNLIN_SERVER_HTTP_PEER_H

#include "exchange.h"

/* SHA-256 of the public key in the client's certificate; false if it showed none. */
bool dunlin__http_certificate(struct MHD_Connection *connection,
                              uint8_t out_sha256[DUNLIN_SHA256_BYTES]);

/* The address of the other end as 16 bytes (IPv4 mapped); false if it is a trusted proxy. */
bool dunlin__http_address(const dunlin__http *http, struct MHD_Connection *connection,
                          uint8_t out_bytes[16]);
/* Who asks: `peer` and what follows it. False: the proxy is set up wrongly, refused. */
bool dunlin__http_peer(dunlin__exchange *now, struct MHD_Connection *connection);
/* False: the status is not for this client; the reply says for whom it is. */
bool dunlin__http_may_see_status(dunlin__exchange *now, struct MHD_Connection *connection);

#endif

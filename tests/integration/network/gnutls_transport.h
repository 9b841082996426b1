/*
 * gnutls_transport.h - a transport that shares no line with the built-in one: blocking sockets, TLS
 * by GnuTLS, a connection for each request. The least that an app's own transport has to do.
 */
#ifndef DUNLIN_TESTS_GNUTLS_TRANSPORT_H
#define DUNLIN_TESTS_GNUTLS_TRANSPORT_H

#include <dunlin/transport.h>

/* Trusts the CA alone. Gone with the runtime that takes it over. */
dunlin_transport *gnutls_transport_make(const char *ca_file);

#endif

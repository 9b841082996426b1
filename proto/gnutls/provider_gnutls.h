/*
 * provider_gnutls.h - the crypto provider of servers and simulated fleets.
 *
 * It is no part of the library of apps, which does not need GnuTLS.
 */
#ifndef DUNLIN_PROVIDER_GNUTLS_H
#define DUNLIN_PROVIDER_GNUTLS_H

#include <wire/provider.h>

extern const dunlin__crypto_provider dunlin__provider_gnutls;

#endif

/*
 * chosen.c - GnuTLS is what computes, in every program that links this object.
 */
#include "provider_gnutls.h"

const dunlin__crypto_provider *const dunlin__crypto = &dunlin__provider_gnutls;

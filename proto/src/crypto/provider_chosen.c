/*
 * provider_chosen.c - PSA is what computes, in every program that does not link another choice.
 *
 * Nothing else may stand in this file (provider.h).
 */
#include <wire/provider.h>

const dunlin__crypto_provider *const dunlin__crypto = &dunlin__provider_psa;

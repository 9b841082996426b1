/*
 * psa_lock.c - the one lock around PSA.
 *
 * The mutex is the one process-wide state of this layer. It has an object of its own, so that it is
 * one and the same whoever else computes digests and signatures.
 */
#include "psa_lock.h"

#include <mem/support.h>

#include <pthread.h>

static pthread_mutex_t crypto_lock = PTHREAD_MUTEX_INITIALIZER;

dunlin_status dunlin__psa_begin(dunlin_error *error)
{
    int code = pthread_mutex_lock(&crypto_lock);
    if (code != 0) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "crypto", code,
                            "the lock around the crypto library cannot be taken (error %d)", code);
    }
    psa_status_t status = psa_crypto_init(); /* nothing to do after the first time */
    if (status != PSA_SUCCESS) {
        (void)pthread_mutex_unlock(&crypto_lock);
        return dunlin__fail(error, DUNLIN_INTERNAL, "crypto", (int)status,
                            "the crypto library does not start (error %d)", (int)status);
    }
    return DUNLIN_OK;
}

void dunlin__psa_end(void)
{
    (void)pthread_mutex_unlock(&crypto_lock);
}

dunlin_status dunlin__psa_fail(dunlin_error *error, psa_status_t status, const char *what)
{
    dunlin_status ours =
        (status == PSA_ERROR_INSUFFICIENT_MEMORY) ? DUNLIN_MEMORY : DUNLIN_INTERNAL;
    return dunlin__fail(error, ours, "crypto", (int)status, "%s failed (error %d)", what,
                        (int)status);
}

/*
 * stress_crypto.c - many threads sign, verify and hash at once: the one lock around the crypto
 * library holds.
 */
#include <wire/digest.h>
#include <wire/signature.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define N_THREADS 8
#define N_ROUNDS 12

static void *run(void *ctx)
{
    int *n_failed = ctx;
    for (int i = 0; i < N_ROUNDS; i++) {
        uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
        uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
        uint8_t signature[DUNLIN_SIGNATURE_BYTES];
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        bool is_ok =
            dunlin__key_generate(private_key, public_key, NULL) == DUNLIN_OK &&
            dunlin__sha256_of("message", 7, sha256, NULL) == DUNLIN_OK &&
            dunlin__sign(private_key, sha256, sizeof sha256, signature, NULL) == DUNLIN_OK &&
            dunlin__verify(public_key, sha256, sizeof sha256, signature, NULL) == DUNLIN_OK;
        signature[5] ^= 1;
        is_ok = is_ok && dunlin__verify(public_key, sha256, sizeof sha256, signature, NULL) ==
                             DUNLIN_SIGNATURE;
        *n_failed += is_ok ? 0 : 1;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[N_THREADS];
    int n_failed[N_THREADS] = {0};
    int n_wrong = 0;
    for (int i = 0; i < N_THREADS; i++) {
        if (pthread_create(&threads[i], NULL, run, &n_failed[i]) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < N_THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        n_wrong += n_failed[i];
    }
    (void)printf("stress_crypto: %d threads, %d wrong\n", N_THREADS, n_wrong);
    return n_wrong == 0 ? 0 : 1;
}

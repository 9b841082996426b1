/*
 * device_key.c - the device's key: in the journal, or with the app's key store.
 *
 * Invariant: with a key store no private key is made or kept here.
 */
#include "device_key.h"

#include "context/client_context.h"

#include <wire/signature.h>

#include <string.h>

static bool is_zero(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

/* LOCKED stays what it is: the device is locked, so later. All else is the app's failure. */
static dunlin_status key_store_failed(dunlin_client *client, const char *what, dunlin_status status)
{
    dunlin_status told = status == DUNLIN_LOCKED ? DUNLIN_LOCKED : DUNLIN_CALLBACK;
    return dunlin__fail(&client->error, told, "client", (int)status,
                        "the app's key store could not %s: %s", what, dunlin_status_name(status));
}

dunlin_status dunlin__device_key_make(dunlin_client *client)
{
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
    uint8_t *private_key = client->journal.private_key;
    bool has_key = client->options.key_store.sign_fn != NULL ||
                   !is_zero(private_key, sizeof client->journal.private_key);
    return has_key ? DUNLIN_OK : dunlin__key_generate(private_key, public_key, &client->error);
}

dunlin_status dunlin__device_key_public(dunlin_client *client,
                                        uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES])
{
    const dunlin_key_store *store = &client->options.key_store;
    if (store->sign_fn == NULL) {
        return dunlin__key_public(client->journal.private_key, out_public_key, &client->error);
    }
    dunlin_status status = store->public_key_fn(store->ctx, out_public_key);
    if (status != DUNLIN_OK) {
        return key_store_failed(client, "give its public key", status);
    }
    return dunlin__key_check(out_public_key, &client->error);
}

dunlin_status dunlin__device_key_sign(dunlin_client *client, const dunlin__signed_request *request,
                                      uint8_t out_signature[DUNLIN_SIGNATURE_BYTES])
{
    const dunlin_key_store *store = &client->options.key_store;
    if (store->sign_fn == NULL) {
        return dunlin__request_sign(request, client->journal.private_key, out_signature,
                                    &client->error);
    }
    uint8_t message[DUNLIN_REQUEST_MESSAGE_BYTES];
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__request_message(request, message, &n_bytes, &client->error));
    return dunlin__device_key_sign_bytes(client, message, n_bytes, out_signature);
}

dunlin_status dunlin__device_key_sign_bytes(dunlin_client *client, const uint8_t *message,
                                            size_t n_bytes,
                                            uint8_t out_signature[DUNLIN_SIGNATURE_BYTES])
{
    const dunlin_key_store *store = &client->options.key_store;
    if (store->sign_fn == NULL) {
        return dunlin__sign(client->journal.private_key, message, n_bytes, out_signature,
                            &client->error);
    }
    const dunlin_status status = store->sign_fn(store->ctx, message, n_bytes, out_signature);
    return status == DUNLIN_OK ? DUNLIN_OK : key_store_failed(client, "sign", status);
}

void dunlin__device_key_forget(dunlin_client *client)
{
    const dunlin_key_store *store = &client->options.key_store;
    if (store->sign_fn != NULL && store->forget_fn != NULL) {
        store->forget_fn(store->ctx);
    }
}

dunlin_status dunlin_signature_from_der(const uint8_t *der, size_t n_bytes,
                                        uint8_t out_signature[64], dunlin_error *out_error)
{
    return dunlin__signature_from_der(der, n_bytes, out_signature, out_error);
}

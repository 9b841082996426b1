/*
 * device_key.h - the device's key, here or in the app's key store.
 */
#ifndef DUNLIN_SDK_DEVICE_KEY_H
#define DUNLIN_SDK_DEVICE_KEY_H

#include "context/client_context.h"

/* Makes a key where there is none and no key store; its public half; signs. */
dunlin_status dunlin__device_key_make(dunlin_client *client);
dunlin_status dunlin__device_key_public(dunlin_client *client,
                                        uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES]);
dunlin_status dunlin__device_key_sign(dunlin_client *client, const dunlin__signed_request *request,
                                      uint8_t out_signature[DUNLIN_SIGNATURE_BYTES]);
/* The same over any bytes. */
dunlin_status dunlin__device_key_sign_bytes(dunlin_client *client, const uint8_t *message,
                                            size_t n_bytes,
                                            uint8_t out_signature[DUNLIN_SIGNATURE_BYTES]);
void dunlin__device_key_forget(dunlin_client *client);

#endif

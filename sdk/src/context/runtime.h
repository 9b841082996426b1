/*
 * runtime.h - what the clients of a process share, and its clock.
 */
#ifndef DUNLIN_SDK_RUNTIME_H
#define DUNLIN_SDK_RUNTIME_H

#include "session/journal.h"
#include "store/store.h"
#include "transport/transport.h"

#include <mem/support.h>

#include <pthread.h>

struct dunlin_runtime {
    dunlin_alloc alloc;
    dunlin_log log;
    dunlin_clock clock;
    dunlin_transport *transport;
    dunlin_transport_ops transport_ops; /* its own table, as far as the library knows it */
    dunlin__store *store;
    char *folder;
    char boot_id[DUNLIN_BOOT_ID_BYTES];
    uint8_t installation[DUNLIN_SHA256_BYTES]; /* a hash; zeros: not known */
    pthread_mutex_t lock;                      /* over the list */
    dunlin_client *clients; /* the open ones: two of one name would corrupt each other's journal */
    bool is_leaving;        /* destroyed by the app; freed with the last of them */
};

dunlin__moment dunlin__runtime_now(const dunlin_runtime *runtime);
/* Takes a client into the runtime's list; STATE if one of its name is there, or the app has
 * destroyed the runtime. */
dunlin_status dunlin__runtime_add(dunlin_runtime *runtime, dunlin_client *client,
                                  dunlin_error *error);
/* True if the runtime is to be freed by the caller: the app has destroyed it, and this was its last
 * client. */
DUNLIN_NODISCARD bool dunlin__runtime_remove(dunlin_runtime *runtime, const dunlin_client *client);
void dunlin__runtime_free(dunlin_runtime *runtime);
void dunlin__runtime_sleep(const dunlin_runtime *runtime, int64_t ms);

#endif

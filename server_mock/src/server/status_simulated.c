/*
 * status_simulated.c - the devices of a simulated fleet, by class and hour, as the fleet tells
 * them: the protocol has no class of a device, and the server guesses none.
 */
#include "status_simulated.h"

#include <mem/support.h>

json_t *dunlin__status_simulated(const dunlin__server *server)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    const char *path = server->options.simulated_file;
    if (path == NULL ||
        dunlin__server_file_read(&server->alloc, path, DUNLIN_SERVER_SIMULATED_BYTES, &bytes,
                                 &n_bytes, NULL) != DUNLIN_OK) {
        return json_null();
    }
    json_t *object = json_loadb((const char *)bytes, n_bytes, JSON_REJECT_DUPLICATES, NULL);
    dunlin__free_array(&server->alloc, bytes, n_bytes + 1, 1);
    if (!json_is_object(object)) {
        json_decref(object);
        return json_null();
    }
    return object;
}

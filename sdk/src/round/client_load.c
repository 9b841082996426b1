/*
 * client_load.c - reads a client's journal from the store, and handles one that was copied from
 * another installation.
 */
#include "client_load.h"

#include "context/client_context.h"
#include "store/files.h"
#include "store/store.h"
#include "weights/kept.h"

#include <string.h>

/*
 * A journal that was written elsewhere is a copy: key, id and round are another device's, which may
 * be using them at this moment. What keeps from harm stays: when to come again, what was seen.
 */
static dunlin_status settle_in(dunlin_client *client, bool is_known, dunlin_error *error)
{
    static const uint8_t UNKNOWN[DUNLIN_SHA256_BYTES];
    dunlin__journal *journal = &client->journal;
    const uint8_t *here = client->runtime->installation;
    if (memcmp(here, UNKNOWN, sizeof UNKNOWN) == 0 ||
        memcmp(here, journal->installation, sizeof UNKNOWN) == 0) {
        return DUNLIN_OK;
    }
    bool is_copy = is_known && memcmp(journal->installation, UNKNOWN, sizeof UNKNOWN) != 0;
    if (is_copy) {
        char folder[DUNLIN_FILE_PATH_BYTES];
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "the store is a copy from another installation; this device enrols anew");
        *journal = (dunlin__journal){.wait_from = journal->wait_from,
                                     .wait_ms = journal->wait_ms,
                                     .seen_epoch = journal->seen_epoch,
                                     .seen_round = journal->seen_round};
        DUNLIN_TRY(dunlin__client_folder(client, folder));
        dunlin__folder_remove(folder);
        dunlin__local_wipe(client);
    }
    memcpy(journal->installation, here, sizeof UNKNOWN);
    return is_copy ? dunlin__store_save(client->runtime->store, client->name, journal, error)
                   : DUNLIN_OK;
}

dunlin_status dunlin__client_load(dunlin_client *client, dunlin_error *error)
{
    bool is_known = false;
    DUNLIN_TRY(dunlin__store_load(client->runtime->store, client->name, &client->journal, &is_known,
                                  error));
    return settle_in(client, is_known, error);
}

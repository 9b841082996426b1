/*
 * submit.h - the update of a round: written, read back, sent.
 */
#ifndef DUNLIN_SDK_SUBMIT_H
#define DUNLIN_SDK_SUBMIT_H

#include "context/client_context.h"

/* Writes the update of the loaded learner and its manifest to files; they do not change afterwards.
 */
dunlin_status dunlin__update_write(dunlin_client *client);
/* Reads the manifest of the written update back into the round. */
dunlin_status dunlin__update_read_manifest(dunlin_client *client);
/* Sends the chunks that the server misses. */
dunlin_status dunlin__update_send(dunlin_client *client, dunlin__fault *out_fault);

#endif

/*
 * fetch.h - downloads the base of a round, or what a run has left, to the storage.
 */
#ifndef DUNLIN_SDK_FETCH_H
#define DUNLIN_SDK_FETCH_H

#include "context/client_context.h"

/* Downloads and verifies the base, all of it or what is missing; checks room, limits, finiteness.
 */
dunlin_status dunlin__fetch_base(dunlin_client *client, dunlin__fault *out_fault);

/* LIMIT if a download is more than the client takes a round, SPACE if the folder's file system has
 * less room than so many bytes. */
dunlin_status dunlin__fetch_check_room(dunlin_client *client, const char *folder,
                                       uint64_t download_bytes, uint64_t storage_bytes,
                                       dunlin__fault *out_fault);

/*
 * The model that a run has left, as round->run_over names it, unless it is here: for the app. A
 * failure that would come again is logged, and the run is over without it. Where the conditions of
 * the device change meanwhile *out_event becomes INELIGIBLE; what is here stays for the next time.
 */
dunlin_status dunlin__fetch_last(dunlin_client *client, dunlin__event *out_event,
                                 dunlin__fault *out_fault);

#endif

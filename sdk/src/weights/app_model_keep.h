/*
 * app_model_keep.h - the base of a round becomes the app's model, in place of the one before.
 *
 * A base that has been fetched and checked moves from the round's folder into the model's; the
 * round reads it there. So there is one copy of it, and beside it the one before only while the new
 * one comes down.
 */
#ifndef DUNLIN_SDK_APP_MODEL_KEEP_H
#define DUNLIN_SDK_APP_MODEL_KEEP_H

#include "context/client_context.h"
#include "store/app_model_files.h"

/* What the assignment's base is as a model of the app: n_bytes is not known yet. */
dunlin__app_model_head dunlin__app_model_of_round(const dunlin_client *client);
/* And what a statement that the run is over names. */
dunlin__app_model_head dunlin__app_model_of_statement(const dunlin__run_over *statement);

/* Is this model here already, each byte of it? What is damaged is logged and no model any more; its
 * values go to `folder`/base.bin, where the fetch keeps what is right of them. */
bool dunlin__app_model_is_here(dunlin_client *client, const dunlin__app_model_head *wanted,
                               const char *folder);
/* Takes base.manifest and base.bin of `folder` for the app's model, if they are there, and names it
 * by its head; then the one before goes. IO, SPACE, LOCKED: the one before stays. */
DUNLIN_NODISCARD dunlin_status dunlin__app_model_take(dunlin_client *client, const char *folder,
                                                      dunlin__app_model_head *head);

/* Where the current base lies: in the round's folder or in the model's. `ending`:
 * DUNLIN_APP_MODEL_MANIFEST or ..._VALUES. */
DUNLIN_NODISCARD dunlin_status dunlin__base_path(dunlin_client *client, const char *ending,
                                                 char out_path[DUNLIN_FILE_PATH_BYTES]);

/* Removes the model if the app wants none, between rounds. Best effort. */
void dunlin__app_model_settle(dunlin_client *client);
/* Removes it. */
void dunlin__app_model_wipe(dunlin_client *client);

#endif

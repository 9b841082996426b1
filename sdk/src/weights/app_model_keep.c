/*
 * app_model_keep.c - moves a fetched base into the folder of the app's model.
 *
 * Invariant: values, then manifest, are there under the name of the model before the head names it;
 * what the head does not name goes after that.
 */
#include "app_model_keep.h"

#include "base_weights.h"
#include "tensor_table.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE "base"

dunlin__app_model_head dunlin__app_model_of_round(const dunlin_client *client)
{
    const dunlin__assignment *assignment = &client->round->assignment;
    dunlin__app_model_head head = {.run_epoch = assignment->run_epoch,
                                   .round = assignment->round > 0 ? assignment->round - 1 : 0,
                                   .manifest_bytes = assignment->base_manifest_bytes};
    memcpy(head.task, assignment->task, sizeof head.task);
    memcpy(head.manifest_sha256, assignment->base_manifest_sha256, sizeof head.manifest_sha256);
    return head;
}

dunlin__app_model_head dunlin__app_model_of_statement(const dunlin__run_over *statement)
{
    dunlin__app_model_head head = {.run_epoch = statement->run_epoch,
                                   .round = statement->round,
                                   .is_final = true,
                                   .manifest_bytes = statement->model_manifest_bytes};
    memcpy(head.task, statement->task, sizeof head.task);
    memcpy(head.manifest_sha256, statement->model_manifest_sha256, sizeof head.manifest_sha256);
    return head;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static dunlin_status verify_files(const dunlin__app_model_head *head, const char *folder,
                                  int *manifest_fd, int *values_fd, dunlin_error *error)
{
    char path[DUNLIN_FILE_PATH_BYTES];
    DUNLIN_TRY(dunlin__app_model_path(folder, head->manifest_sha256, DUNLIN_APP_MODEL_MANIFEST,
                                      path, error));
    DUNLIN_TRY(dunlin__file_open_there(path, manifest_fd, error));
    if (!dunlin__file_matches(*manifest_fd, 0, head->manifest_bytes, head->manifest_sha256)) {
        return dunlin__fail(error, DUNLIN_DIGEST, "app model", 0, "%s does not match its hash",
                            path);
    }
    DUNLIN_TRY(dunlin__app_model_path(folder, head->manifest_sha256, DUNLIN_APP_MODEL_VALUES, path,
                                      error));
    DUNLIN_TRY(dunlin__file_open_there(path, values_fd, error));
    const dunlin__manifest_source source = dunlin__base_manifest(head->manifest_bytes, manifest_fd);
    return dunlin__chunks_verify(&source, *values_fd, path, error);
}

/* Values that are right in part save the fetch of that part; those of a model that a kill kept from
 * being named, all of it. */
static void give_back(dunlin_client *client, const dunlin__app_model_head *head, const char *model,
                      const char *folder)
{
    char from[DUNLIN_FILE_PATH_BYTES];
    char to[DUNLIN_FILE_PATH_BYTES];
    if (dunlin__app_model_path(model, head->manifest_sha256, DUNLIN_APP_MODEL_VALUES, from, NULL) !=
            DUNLIN_OK ||
        dunlin__file_path(folder, BASE DUNLIN_APP_MODEL_VALUES, to, NULL) != DUNLIN_OK ||
        !is_there(from) || is_there(to)) {
        return;
    }
    if (rename(from, to) != 0) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "what is here of the base cannot be used again; it is fetched anew");
    }
}

bool dunlin__app_model_is_here(dunlin_client *client, const dunlin__app_model_head *wanted,
                               const char *folder)
{
    char model[DUNLIN_FILE_PATH_BYTES];
    char path[DUNLIN_FILE_PATH_BYTES];
    dunlin__app_model_head head = {0};
    dunlin_error error = {0};
    int manifest_fd = -1;
    int values_fd = -1;
    if (dunlin__client_model_folder(client, model, &error) != DUNLIN_OK) {
        return false;
    }
    dunlin_status status = dunlin__app_model_head_read(model, &head, &error);
    const bool is_named =
        status == DUNLIN_OK &&
        memcmp(head.manifest_sha256, wanted->manifest_sha256, sizeof head.manifest_sha256) == 0;
    if (is_named) {
        status = verify_files(&head, model, &manifest_fd, &values_fd, &error);
        if (manifest_fd >= 0) {
            (void)close(manifest_fd);
        }
        if (values_fd >= 0) {
            (void)close(values_fd);
        }
    }
    if (status != DUNLIN_OK && status != DUNLIN_STATE) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "the model that was kept for the app cannot be used, it is fetched anew: %s",
                    error.text);
        if (dunlin__file_path(model, DUNLIN_APP_MODEL_HEAD, path, NULL) == DUNLIN_OK) {
            (void)unlink(path);
        }
    }
    if (!is_named || status != DUNLIN_OK) {
        give_back(client, wanted, model, folder);
    }
    return is_named && status == DUNLIN_OK;
}

/* One of the two files, if it is in the folder still. */
static dunlin_status move_file(const char *folder, const char *model,
                               const dunlin__app_model_head *head, const char *name,
                               const char *ending, dunlin_error *error)
{
    char from[DUNLIN_FILE_PATH_BYTES];
    char to[DUNLIN_FILE_PATH_BYTES];
    int fd = -1;
    DUNLIN_TRY(dunlin__file_path(folder, name, from, error));
    DUNLIN_TRY(dunlin__app_model_path(model, head->manifest_sha256, ending, to, error));
    if (!is_there(from)) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__file_open(from, &fd, error));
    const dunlin_status status = dunlin__file_rename(fd, from, to, error);
    (void)close(fd);
    return status;
}

dunlin_status dunlin__app_model_take(dunlin_client *client, const char *folder,
                                     dunlin__app_model_head *head)
{
    char model[DUNLIN_FILE_PATH_BYTES];
    char path[DUNLIN_FILE_PATH_BYTES];
    struct stat about = {0};
    dunlin_error *error = &client->error;
    DUNLIN_TRY(dunlin__client_model_folder(client, model, error));
    DUNLIN_TRY(dunlin__folder_make(model, error));
    DUNLIN_TRY(move_file(folder, model, head, BASE DUNLIN_APP_MODEL_VALUES, DUNLIN_APP_MODEL_VALUES,
                         error));
    DUNLIN_TRY(move_file(folder, model, head, BASE DUNLIN_APP_MODEL_MANIFEST,
                         DUNLIN_APP_MODEL_MANIFEST, error));
    DUNLIN_TRY(move_file(folder, model, head, "packed" DUNLIN_APP_MODEL_VALUES,
                         DUNLIN_APP_MODEL_PACKED, error));
    /* A move has two ends, each in a folder of its own; the new one is on the storage by now. */
    DUNLIN_TRY(dunlin__folder_sync(folder, error));
    DUNLIN_TRY(
        dunlin__app_model_path(model, head->manifest_sha256, DUNLIN_APP_MODEL_VALUES, path, error));
    head->n_bytes = stat(path, &about) == 0 ? (uint64_t)about.st_size : 0;
    DUNLIN_TRY(dunlin__app_model_head_write(model, head, error));
    dunlin__app_model_sweep(model, head->manifest_sha256);
    return DUNLIN_OK;
}

dunlin_status dunlin__base_path(dunlin_client *client, const char *ending,
                                char out_path[DUNLIN_FILE_PATH_BYTES])
{
    char name[32];
    char model[DUNLIN_FILE_PATH_BYTES];
    (void)snprintf(name, sizeof name, "%s%s", BASE, ending);
    DUNLIN_TRY(dunlin__file_path(client->round->folder, name, out_path, &client->error));
    if (is_there(out_path)) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__client_model_folder(client, model, &client->error));
    return dunlin__app_model_path(model, client->round->assignment.base_manifest_sha256, ending,
                                  out_path, &client->error);
}

void dunlin__app_model_wipe(dunlin_client *client)
{
    char model[DUNLIN_FILE_PATH_BYTES];
    if (dunlin__client_model_folder(client, model, NULL) == DUNLIN_OK) {
        dunlin__app_model_sweep(model, NULL);
    }
}

void dunlin__app_model_settle(dunlin_client *client)
{
    if (!client->keeps_model && client->journal.phase == DUNLIN_PHASE_IDLE) {
        dunlin__app_model_wipe(client);
    }
}

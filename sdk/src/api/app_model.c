/*
 * app_model.c - the newest federated model as the app reads it: the server's tensors from one file,
 * the device's own from another.
 *
 * Invariant: a handle has its files open and checked, so what becomes of their names, while a round
 * of the client runs, does not matter to it.
 */
#include "context/client_context.h"
#include "store/app_model_files.h"
#include "store/store.h"
#include "weights/base_weights.h"
#include "weights/kept.h"
#include "weights/tensor_table.h"

#include <dunlin/app_model.h>
#include <mem/sized.h>

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 8 /* a model that is replaced while it is opened is looked for again */
#define NOT_OWN UINT64_MAX

struct dunlin_app_model {
    dunlin_alloc alloc;
    dunlin__app_model_head head;
    dunlin__tensor_table table;
    int values_fd;
    int own_fd;            /* -1: nothing of the device's own */
    uint64_t *own_offsets; /* of each tensor, in that file; NOT_OWN */
    int32_t n_own;
};

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* ---- what comes from the server ---- */

static dunlin_status open_values(dunlin_app_model *model, const char *folder, dunlin_error *error)
{
    const dunlin__app_model_head *head = &model->head;
    char path[DUNLIN_FILE_PATH_BYTES];
    int manifest_fd = -1;
    DUNLIN_TRY(dunlin__app_model_path(folder, head->manifest_sha256, DUNLIN_APP_MODEL_MANIFEST,
                                      path, error));
    DUNLIN_TRY(dunlin__file_open_there(path, &manifest_fd, error));
    const dunlin__manifest_source source =
        dunlin__base_manifest(head->manifest_bytes, &manifest_fd);
    dunlin_status status = DUNLIN_OK;
    if (!dunlin__file_matches(manifest_fd, 0, head->manifest_bytes, head->manifest_sha256)) {
        status =
            dunlin__fail(error, DUNLIN_DIGEST, "app model", 0, "%s does not match its hash", path);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__app_model_path(folder, head->manifest_sha256, DUNLIN_APP_MODEL_VALUES,
                                        path, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__file_open_there(path, &model->values_fd, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__chunks_verify(&source, model->values_fd, path, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__tensor_table_build(&model->alloc, &source, DUNLIN_STREAM_WEIGHTS,
                                            &model->table, error);
    }
    (void)close(manifest_fd);
    return status;
}

static void drop_values(dunlin_app_model *model)
{
    close_fd(&model->values_fd);
    dunlin__tensor_table_free(&model->alloc, &model->table);
}

/* The head's model; where a round has replaced it meanwhile, the one that is there then. */
static dunlin_status find_values(const dunlin_client *client, dunlin_app_model *model,
                                 dunlin_error *error)
{
    char folder[DUNLIN_FILE_PATH_BYTES];
    uint8_t before[DUNLIN_SHA256_BYTES];
    dunlin_status status = DUNLIN_OK;
    DUNLIN_TRY(dunlin__client_model_folder(client, folder, error));
    DUNLIN_TRY(dunlin__app_model_head_read(folder, &model->head, error));
    for (int i = 0; i < TRIES; i++) {
        status = open_values(model, folder, error);
        if (status == DUNLIN_OK) {
            return DUNLIN_OK;
        }
        drop_values(model);
        memcpy(before, model->head.manifest_sha256, sizeof before);
        dunlin_error ignored;
        if (dunlin__app_model_head_read(folder, &model->head, &ignored) != DUNLIN_OK ||
            memcmp(before, model->head.manifest_sha256, sizeof before) == 0) {
            break;
        }
    }
    return status;
}

/* ---- what is the device's own ---- */

static dunlin_status match_own(dunlin_app_model *model, const dunlin__tensor_table *own,
                               dunlin_error *error)
{
    int32_t at = 0;
    for (int32_t i = 0; i < model->table.n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &model->table.tensors[i];
        if (tensor->aggregation != DUNLIN_AGGREGATE_LOCAL) {
            continue;
        }
        if (at == own->n_tensors || strcmp(own->tensors[at].name, tensor->name) != 0 ||
            own->tensors[at].n_elements != tensor->n_elements) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "app model", 0,
                                "tensor %.100s is not what the device has kept", tensor->name);
        }
        model->own_offsets[i] = own->offsets[at++];
    }
    if (at != own->n_tensors) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "app model", 0,
                            "%d of %d kept tensors are the model's", (int)at, (int)own->n_tensors);
    }
    model->n_own = at;
    return DUNLIN_OK;
}

static dunlin_status open_own(const dunlin_client *client, dunlin_app_model *model, int32_t slot,
                              dunlin_error *error)
{
    char values[DUNLIN_FILE_PATH_BYTES];
    char path[DUNLIN_FILE_PATH_BYTES];
    struct stat about = {0};
    int manifest_fd = -1;
    dunlin__tensor_table own = {0};
    DUNLIN_TRY(dunlin__local_paths(client, slot, path, values, error));
    DUNLIN_TRY(dunlin__file_open_there(path, &manifest_fd, error));
    dunlin_status status = dunlin__file_open_there(values, &model->own_fd, error);
    if (status == DUNLIN_OK && fstat(manifest_fd, &about) != 0) {
        status = dunlin__fail(error, DUNLIN_IO, "app model", 0, "%s has no length", path);
    }
    const dunlin__manifest_source source =
        dunlin__base_manifest((uint64_t)about.st_size, &manifest_fd);
    if (status == DUNLIN_OK) {
        status = dunlin__chunks_verify(&source, model->own_fd, values, error);
    }
    if (status == DUNLIN_OK) {
        status =
            dunlin__tensor_table_build(&model->alloc, &source, DUNLIN_STREAM_LOCAL, &own, error);
    }
    if (status == DUNLIN_OK) {
        status = match_own(model, &own, error);
    }
    dunlin__tensor_table_free(&model->alloc, &own);
    (void)close(manifest_fd);
    return status;
}

static bool has_local_tensors(const dunlin_app_model *model)
{
    for (int32_t i = 0; i < model->table.n_tensors; i++) {
        if (model->table.tensors[i].aggregation == DUNLIN_AGGREGATE_LOCAL) {
            return true;
        }
    }
    return false;
}

/* In which file the device's own tensors of this task and run are; 0: it has none. */
static dunlin_status find_slot(const dunlin_client *client, const dunlin_app_model *model,
                               int32_t *out_slot, dunlin_error *error)
{
    dunlin__journal journal;
    bool is_known = false;
    *out_slot = 0;
    DUNLIN_TRY(
        dunlin__store_load(client->runtime->store, client->name, &journal, &is_known, error));
    if (is_known && journal.kept_epoch == model->head.run_epoch &&
        strcmp(journal.kept_task, model->head.task) == 0) {
        *out_slot = journal.kept;
    }
    dunlin__wipe(&journal, sizeof journal);
    return DUNLIN_OK;
}

/* As a round takes them: what cannot be read counts as nothing kept. */
static dunlin_status find_own(const dunlin_client *client, dunlin_app_model *model,
                              dunlin_error *error)
{
    const size_t n_tensors = (size_t)model->table.n_tensors;
    int32_t slot = 0;
    int32_t tried = 0;
    model->own_offsets = dunlin__alloc_array(&model->alloc, n_tensors, sizeof(uint64_t));
    if (model->own_offsets == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "app model", 0, "no memory for %zu tensors",
                            n_tensors);
    }
    memset(model->own_offsets, 0xff, n_tensors * sizeof(uint64_t));
    for (int i = 0; i < TRIES && has_local_tensors(model); i++) {
        DUNLIN_TRY(find_slot(client, model, &slot, error));
        if (slot == 0 || slot == tried) {
            break; /* not replaced meanwhile: it is what cannot be read */
        }
        tried = slot;
        const dunlin_status status = open_own(client, model, slot, error);
        if (status == DUNLIN_OK || status == DUNLIN_LOCKED || status == DUNLIN_MEMORY) {
            return status;
        }
        close_fd(&model->own_fd);
        model->n_own = 0;
        memset(model->own_offsets, 0xff, n_tensors * sizeof(uint64_t));
    }
    if (tried != 0) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "the device's own tensors cannot be read; the app's model is without them");
    }
    dunlin__error_clear(error);
    return DUNLIN_OK;
}

/* ---- the calls ---- */

dunlin_status dunlin_app_model_open(dunlin_client *client, dunlin_app_model **out_model,
                                    dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (out_model != NULL) {
        *out_model = NULL;
    }
    if (client == NULL || out_model == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "app model", 0, "%s is NULL",
                            client == NULL ? "client" : "out_model");
    }
    const dunlin_alloc alloc = client->runtime->alloc;
    dunlin_app_model *model = dunlin__alloc_zeroed(&alloc, 1, sizeof *model);
    if (model == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "app model", 0, "no memory for a handle");
    }
    model->alloc = alloc;
    model->values_fd = -1;
    model->own_fd = -1;
    dunlin_status status = find_values(client, model, out_error);
    if (status == DUNLIN_OK) {
        status = find_own(client, model, out_error);
    }
    if (status != DUNLIN_OK) {
        dunlin_app_model_close(model);
        return status;
    }
    *out_model = model;
    return DUNLIN_OK;
}

void dunlin_app_model_close(dunlin_app_model *model)
{
    if (model == NULL) {
        return;
    }
    const dunlin_alloc alloc = model->alloc;
    dunlin__free_array(&alloc, model->own_offsets, (size_t)model->table.n_tensors,
                       sizeof(uint64_t));
    drop_values(model);
    close_fd(&model->own_fd);
    dunlin__free_array(&alloc, model, 1, sizeof *model);
}

dunlin_status dunlin_app_model_get_info(const dunlin_app_model *model,
                                        dunlin_app_model_info *out_info)
{
    if (model == NULL) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(dunlin__struct_check(out_info, "dunlin_app_model_info", NULL));
    dunlin_app_model_info info = DUNLIN_APP_MODEL_INFO_INIT;
    info.task = model->head.task;
    info.run_epoch = model->head.run_epoch;
    info.round = model->head.round;
    info.is_final = model->head.is_final;
    memcpy(info.sha256, model->head.manifest_sha256, sizeof info.sha256);
    info.n_tensors = model->table.n_tensors;
    info.n_own = model->n_own;
    info.n_bytes = model->head.n_bytes;
    dunlin__struct_give(&info, sizeof info, out_info);
    return DUNLIN_OK;
}

static dunlin_status read_tensor(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    const dunlin_app_model *model = ctx;
    const dunlin__tensor_table *table = &model->table;
    if (index < 0 || index >= table->n_tensors || first < 0 || n < 0 || out == NULL ||
        n > table->tensors[index].n_elements || first > table->tensors[index].n_elements - n) {
        return DUNLIN_ARGUMENT;
    }
    const bool is_own = model->own_offsets[index] != NOT_OWN;
    const uint64_t offset = is_own ? model->own_offsets[index] : table->offsets[index];
    return dunlin__file_read(is_own ? model->own_fd : model->values_fd, out,
                             (size_t)n * sizeof(float), offset + (uint64_t)first * sizeof(float),
                             NULL);
}

dunlin_status dunlin_app_model_get_reader(const dunlin_app_model *model,
                                          dunlin_weights_reader *out_reader)
{
    if (model == NULL || out_reader == NULL) {
        return DUNLIN_ARGUMENT;
    }
    *out_reader = (dunlin_weights_reader){.ctx = (void *)(uintptr_t)model,
                                          .tensors = model->table.tensors,
                                          .n_tensors = model->table.n_tensors,
                                          .read_fn = read_tensor};
    return DUNLIN_OK;
}

dunlin_status dunlin_app_model_get_tensor(const dunlin_app_model *model, const char *name,
                                          float *out_values, int64_t n, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (model == NULL || name == NULL || out_values == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "app model", 0, "%s is NULL",
                            model == NULL  ? "model"
                            : name == NULL ? "name"
                                           : "out_values");
    }
    const dunlin__tensor_table *table = &model->table;
    int32_t index = 0;
    while (index < table->n_tensors && strcmp(table->tensors[index].name, name) != 0) {
        index++;
    }
    if (index == table->n_tensors) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "app model", 0,
                            "the model has no tensor %.100s", name);
    }
    if (table->tensors[index].n_elements != n) {
        return dunlin__fail(out_error, DUNLIN_MISMATCH, "app model", 0,
                            "tensor %.100s has %lld elements, %lld are asked for", name,
                            (long long)table->tensors[index].n_elements, (long long)n);
    }
    const dunlin_status status = read_tensor((void *)(uintptr_t)model, index, 0, n, out_values);
    return status == DUNLIN_OK ? DUNLIN_OK
                               : dunlin__fail(out_error, status, "app model", 0,
                                              "tensor %.100s cannot be read", name);
}

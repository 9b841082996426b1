/*
 * packed.c - the packed form of a base, if the task wants models to go down so.
 *
 * Invariant: a packed base that can be fetched is of the model beside it. It is removed before the
 * model is replaced, and what is missing at a start is created again, to the same bytes.
 */
#include "packed.h"

#include "model/down.h"
#include "task/compress.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* The paths and the packing of a place, which points to them. */
typedef struct packed_place {
    dunlin__server_path models;
    dunlin__server_path folder;
    dunlin__packing packing;
    dunlin__down_place place;
} packed_place;

static dunlin_status find_place(const dunlin__server *server, uint64_t round, packed_place *out,
                                dunlin_error *error)
{
    DUNLIN_TRY(dunlin__server_path_make(&out->models, error, "%s/models", server->folder.text));
    DUNLIN_TRY(dunlin__server_path_make(&out->folder, error, "%s/down", server->folder.text));
    out->packing = dunlin__compress_of_base(&server->task);
    out->place = (dunlin__down_place){.models = out->models.text,
                                      .folder = out->folder.text,
                                      .round = round,
                                      .layout = &server->layout,
                                      .packing = &out->packing,
                                      .alloc = &server->alloc};
    return DUNLIN_OK;
}

dunlin_status dunlin__packed_make(dunlin__server *server, dunlin__published *model,
                                  dunlin_error *error)
{
    packed_place at;
    if (!server->task.is_down) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(find_place(server, model->round, &at, error));
    const dunlin_status status = dunlin__down_make(&at.place, model, &model->down, error);
    if (status != DUNLIN_NUMERIC && status != DUNLIN_LIMIT) {
        return status;
    }
    dunlin__log(&server->log, DUNLIN_LOG_WARNING, "rounds",
                "the model of round %" PRIu64 " goes down as it is: %.160s", model->round,
                error->text);
    dunlin__error_clear(error);
    return DUNLIN_OK;
}

dunlin_status dunlin__packed_load(dunlin__server *server, dunlin__published *model, bool is_newest,
                                  dunlin_error *error)
{
    packed_place at;
    dunlin_error why = {0};
    if (!server->task.is_down) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(find_place(server, model->round, &at, error));
    const dunlin_status status = dunlin__down_load(&at.place, &model->down, &why);
    return status == DUNLIN_OK || !is_newest ? DUNLIN_OK
                                             : dunlin__packed_make(server, model, error);
}

void dunlin__packed_remove(const dunlin__server *server, uint64_t round)
{
    packed_place at;
    dunlin_error ignored = {0};
    if (find_place(server, round, &at, &ignored) == DUNLIN_OK) {
        dunlin__down_remove(at.folder.text, round);
    }
}

void dunlin__packed_fill(const dunlin__published *model, dunlin__assignment *assignment)
{
    const dunlin__down *down = model->down;
    if (down == NULL) {
        return;
    }
    dunlin_v1_packed_base_t *base = &assignment->packed_base;
    assignment->has_packed_base = true;
    memcpy(base->manifest_sha256, down->packed.manifest_sha256, DUNLIN_SHA256_BYTES);
    base->manifest_bytes = down->packed.n_manifest_bytes;
    if (down->delta.n_manifest_bytes > 0) {
        base->from_sha256.size = DUNLIN_SHA256_BYTES;
        memcpy(base->from_sha256.bytes, down->from_sha256, DUNLIN_SHA256_BYTES);
        base->delta_manifest_sha256.size = DUNLIN_SHA256_BYTES;
        memcpy(base->delta_manifest_sha256.bytes, down->delta.manifest_sha256, DUNLIN_SHA256_BYTES);
        base->delta_manifest_bytes = down->delta.n_manifest_bytes;
    }
}

uint64_t dunlin__packed_bytes(const dunlin__published *model, bool takes_packed)
{
    const uint64_t n_others = model->n_control_bytes + model->n_manifest_bytes;
    return takes_packed && model->down != NULL
               ? model->down->packed.n_bytes + model->down->packed.n_manifest_bytes + n_others
               : model->n_bytes + n_others;
}

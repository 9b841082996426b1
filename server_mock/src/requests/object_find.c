/*
 * object_find.c - where the bytes of a hash lie: a base and its manifest, its packed form, a delta.
 */
#include "object_find.h"

#include "model/down.h"

#include <string.h>

/* What is looked for, and where. */
typedef struct search {
    const uint8_t *sha256;
    const char *folder;
    uint64_t round;
    dunlin__found_object *found;
} search;

static bool find_manifest(const search *look, const uint8_t *sha256, uint32_t n_bytes,
                          const char *ending)
{
    dunlin_error ignored;
    if (memcmp(sha256, look->sha256, DUNLIN_SHA256_BYTES) != 0) {
        return false;
    }
    look->found->offset = 0;
    look->found->n_bytes = n_bytes;
    return dunlin__model_path(look->folder, look->round, ending, &look->found->path, &ignored) ==
           DUNLIN_OK;
}

/* Among the chunks of one file of `total` bytes. */
static bool find_in_file(const search *look, const uint8_t (*chunks)[DUNLIN_SHA256_BYTES],
                         uint32_t n_chunks, uint32_t chunk_bytes, uint64_t total,
                         const char *ending)
{
    dunlin_error ignored;
    for (uint32_t c = 0; c < n_chunks; c++) {
        if (memcmp(chunks[c], look->sha256, DUNLIN_SHA256_BYTES) == 0) {
            look->found->offset = (uint64_t)c * chunk_bytes;
            const uint64_t left = total - look->found->offset;
            look->found->n_bytes = left < chunk_bytes ? left : chunk_bytes;
            return dunlin__model_path(look->folder, look->round, ending, &look->found->path,
                                      &ignored) == DUNLIN_OK;
        }
    }
    return false;
}

static bool find_in_model(const search *look, const dunlin__published *model)
{
    const uint8_t(*chunks)[DUNLIN_SHA256_BYTES] =
        (const uint8_t(*)[DUNLIN_SHA256_BYTES])model->chunk_sha256;
    const uint32_t n_weights = model->n_weight_chunks;
    return find_manifest(look, model->manifest_sha256, model->n_manifest_bytes, "manifest") ||
           find_in_file(look, chunks, n_weights, model->chunk_bytes, model->n_bytes, "weights") ||
           (model->n_chunks > n_weights &&
            find_in_file(look, chunks + n_weights, model->n_chunks - n_weights, model->chunk_bytes,
                         model->n_control_bytes, "control"));
}

static bool find_in_object(const search *look, const dunlin__object_file *file, const char *ending,
                           const char *manifest_ending)
{
    return file->n_manifest_bytes > 0 &&
           (find_manifest(look, file->manifest_sha256, file->n_manifest_bytes, manifest_ending) ||
            find_in_file(look, (const uint8_t(*)[DUNLIN_SHA256_BYTES])file->chunk_sha256,
                         file->n_chunks, file->chunk_bytes, file->n_bytes, ending));
}

static bool find_in_down(const search *look, const dunlin__down *down)
{
    return find_in_object(look, &down->packed, DUNLIN_DOWN_PACKED,
                          DUNLIN_DOWN_PACKED ".manifest") ||
           find_in_object(look, &down->delta, DUNLIN_DOWN_DELTA, DUNLIN_DOWN_DELTA ".manifest") ||
           find_in_model(look, &down->base);
}

bool dunlin__object_find(const dunlin__server *server, const uint8_t sha256[DUNLIN_SHA256_BYTES],
                         dunlin__found_object *out_object)
{
    dunlin__server_path models;
    dunlin__server_path down;
    dunlin_error ignored;
    if (dunlin__server_path_make(&models, &ignored, "%s/models", server->folder.text) !=
            DUNLIN_OK ||
        dunlin__server_path_make(&down, &ignored, "%s/down", server->folder.text) != DUNLIN_OK) {
        return false;
    }
    for (size_t m = 0; m < DUNLIN_SERVER_MOST_MODELS; m++) {
        const dunlin__published *model = &server->models[m];
        search look = {
            .sha256 = sha256, .folder = models.text, .round = model->round, .found = out_object};
        if (model->round == 0) {
            continue;
        }
        if (find_in_model(&look, model)) {
            return true;
        }
        look.folder = down.text;
        if (model->down != NULL && find_in_down(&look, model->down)) {
            return true;
        }
    }
    return false;
}

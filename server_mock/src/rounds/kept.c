/*
 * kept.c - the files of models: what is swept, what the best model has of its own.
 *
 * Invariant: best.json is written last and has the digests of the files beside it; a model whose
 * files could not be written yet is not swept, so what a kill leaves half done is done again at the
 * next start.
 */
#include "kept.h"

#include "base/files.h"
#include "best.h"
#include "lineage.h"
#include "model/evaluate.h"
#include "model/models.h"
#include "state/context.h"
#include "state/db.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES (64u * 1024)
#define JSON_BYTES 4096u

/* ---- sweeping ---- */

static bool can_be_fetched(const dunlin__server *server, uint64_t number)
{
    bool is_there = false;
    for (size_t i = 0; i < DUNLIN_SERVER_MOST_MODELS; i++) {
        is_there = is_there || server->models[i].round == number;
    }
    return is_there;
}

static bool is_kept(const dunlin__server *server, uint64_t number, uint64_t good_file,
                    uint64_t best_file)
{
    uint32_t every = server->task.keep_every;
    bool is_wanted = number == good_file || number == best_file || can_be_fetched(server, number);
    /* The model of round r is the file of r + 1. */
    return is_wanted || (every > 0 && number > 1 && (number - 1) % every == 0 &&
                         !dunlin__lineage_is_bad(server, number - 1));
}

/* Removes the files of a folder whose numbers are not kept. */
static void sweep_folder(const dunlin__server *server, const char *name, uint64_t good_file,
                         uint64_t best_file)
{
    const bool is_models = strcmp(name, "models") == 0;
    dunlin__server_path folder;
    dunlin__server_path path;
    dunlin_error ignored;
    DIR *entries = NULL;
    if (dunlin__server_path_make(&folder, &ignored, "%s/%s", server->folder.text, name) ==
        DUNLIN_OK) {
        entries = opendir(folder.text);
    }
    if (entries == NULL) {
        return;
    }
    struct dirent *entry = readdir(entries);          /* NOLINT(concurrency-mt-unsafe) */
    for (; entry != NULL; entry = readdir(entries)) { /* NOLINT(concurrency-mt-unsafe) */
        char *end = NULL;
        unsigned long long number = strtoull(entry->d_name, &end, 10);
        const bool is_wanted = is_models ? is_kept(server, number, good_file, best_file)
                                         : can_be_fetched(server, number);
        if (end == entry->d_name || *end != '.' || is_wanted ||
            dunlin__server_path_make(&path, &ignored, "%s/%s", folder.text, entry->d_name) !=
                DUNLIN_OK) {
            continue;
        }
        (void)unlink(path.text);
    }
    (void)closedir(entries);
}

void dunlin__kept_sweep(const dunlin__server *server)
{
    bool can_take_back = dunlin__evaluator_has_test_set(server->evaluator);
    uint64_t good_file = can_take_back ? dunlin__lineage_newest_good(server).file : 0;
    uint64_t best_file = 0;
    if (dunlin__best_is_kept(server)) {
        dunlin__best_model best = dunlin__best_find(server, true);
        best_file = best.round != server->best.round ? best.round + 1 : 0; /* not copied yet */
    }
    sweep_folder(server, "models", good_file, best_file);
    sweep_folder(server, "down", 0, 0);
}

/* ---- files of the best model ---- */

static dunlin_status best_path(const dunlin__server *server, const char *ending,
                               dunlin__server_path *out_path, dunlin_error *error)
{
    return dunlin__server_path_make(out_path, error, "%s/models/best.%s", server->folder.text,
                                    ending);
}

/* Hashes an open file from its start, and copies it where `out` is not NULL. */
static dunlin_status pass_file(int fd, const char *path, uint64_t n_bytes, dunlin_outfile *out,
                               char out_hex[DUNLIN_SHA256_HEX_BYTES], const dunlin_alloc *alloc,
                               dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin__sha256 hash = {0};
    uint8_t *block = dunlin__alloc_array(alloc, BLOCK_BYTES, 1);
    dunlin_status status = block != NULL ? dunlin__sha256_begin(&hash, error)
                                         : dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0,
                                                        "%u bytes to copy by", BLOCK_BYTES);
    for (uint64_t at = 0; status == DUNLIN_OK && at < n_bytes; at += BLOCK_BYTES) {
        size_t n = n_bytes - at < BLOCK_BYTES ? (size_t)(n_bytes - at) : BLOCK_BYTES;
        status = dunlin__server_read_at(fd, path, at, block, n, error);
        if (status == DUNLIN_OK && out != NULL) {
            status = dunlin__outfile_write(out, block, n, error);
        }
        if (status == DUNLIN_OK) {
            status = dunlin__sha256_update(&hash, block, n, error);
        }
    }
    if (status == DUNLIN_OK) {
        status = dunlin__sha256_end(&hash, sha256, error);
    }
    dunlin__sha256_abort(&hash);
    dunlin__free_array(alloc, block, BLOCK_BYTES, 1);
    if (status == DUNLIN_OK) {
        dunlin__hex_encode(sha256, sizeof sha256, out_hex);
    }
    return status;
}

/* The digest of the file `from`, which is copied to `to` unless that is NULL. */
static dunlin_status take_file(const char *from, const char *to,
                               char out_hex[DUNLIN_SHA256_HEX_BYTES], const dunlin_alloc *alloc,
                               dunlin_error *error)
{
    dunlin_outfile out;
    int64_t n_bytes = dunlin__server_file_size(from);
    int fd = n_bytes >= 0 ? open(from, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        return dunlin__fail(error, DUNLIN_IO, "rounds", 0, "%.200s cannot be read", from);
    }
    dunlin_status status = DUNLIN_OK;
    if (to != NULL) {
        status = dunlin__outfile_open(&out, to, DUNLIN_SERVER_FILE_MODE, error);
    }
    if (status == DUNLIN_OK) {
        status =
            pass_file(fd, from, (uint64_t)n_bytes, to != NULL ? &out : NULL, out_hex, alloc, error);
        if (to != NULL) {
            status = dunlin__outfile_close(&out, status, error);
        }
    }
    (void)close(fd);
    return status;
}

/* ---- exporting ---- */

/* An ONNX file of a file of weights. *out_is_made is false where the model cannot be one. Not
 * locked. */
static dunlin_status export_file(dunlin__server *server, const char *weights, const char *onnx,
                                 bool *out_is_made, dunlin_error *error)
{
    dunlin_status status = dunlin__evaluator_export(server->evaluator, weights, onnx, error);
    bool may_help = status == DUNLIN_SPACE || status == DUNLIN_IO || status == DUNLIN_MEMORY ||
                    status == DUNLIN_STOPPED;
    *out_is_made = status == DUNLIN_OK;
    if (status != DUNLIN_OK && !may_help) {
        dunlin__log(&server->log, DUNLIN_LOG_ERROR, "rounds", "there is no %.200s: %s", onnx,
                    error->text);
        dunlin__error_clear(error);
        (void)unlink(onnx); /* of another model */
        return DUNLIN_OK;
    }
    return status;
}

/* The same into the state folder, with the lock given back meanwhile. */
static dunlin_status export_unlocked(dunlin__server *server, const dunlin__server_path *weights,
                                     const char *name, dunlin_error *error)
{
    dunlin__server_path onnx;
    bool is_made = false;
    DUNLIN_TRY(dunlin__server_path_make(&onnx, error, "%s/%s", server->folder.text, name));
    (void)pthread_mutex_unlock(&server->lock);
    dunlin_status status = export_file(server, weights->text, onnx.text, &is_made, error);
    (void)pthread_mutex_lock(&server->lock);
    return status;
}

dunlin_status dunlin__kept_export(dunlin__server *server, dunlin_error *error)
{
    dunlin__server_path weights;
    if (server->evaluator != NULL) {
        DUNLIN_TRY(dunlin__server_weights_path(server, server->round.round, &weights, error));
        DUNLIN_TRY(export_unlocked(server, &weights, "model.onnx", error));
    }
    if (server->evaluator != NULL && server->best.round > 0) {
        DUNLIN_TRY(best_path(server, "weights", &weights, error));
        DUNLIN_TRY(export_unlocked(server, &weights, "model_best.onnx", error));
    }
    server->is_exported = true;
    return DUNLIN_OK;
}

/* ---- best.json ---- */

static dunlin_status write_json(const dunlin__server *server, const dunlin__best_model *best,
                                const char *weights_sha256, const char *onnx_sha256,
                                dunlin_error *error)
{
    dunlin__server_path path;
    DUNLIN_TRY(best_path(server, "json", &path, error));
    bool has_test_set = dunlin__evaluator_has_test_set(server->evaluator);
    json_t *object = json_pack("{s:I, s:I, s:f, s:f, s:s, s:I, s:s, s:s?}", "run_epoch",
                               (json_int_t)server->run_epoch, "round", (json_int_t)best->round,
                               "accuracy", best->accuracy, "loss", best->loss, "judged_by",
                               has_test_set ? "test_set" : "devices", "values",
                               (json_int_t)server->layout.n_values, "weights_sha256",
                               weights_sha256, "onnx_sha256", onnx_sha256);
    char *text =
        object != NULL ? json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(object);
    if (text == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "no memory for %.160s", path.text);
    }
    dunlin_status status =
        dunlin__outfile_put(path.text, DUNLIN_SERVER_FILE_MODE, text, strlen(text), error);
    free(text);
    return status;
}

/* Not locked: only the thread that closes rounds changes models' files. */
static dunlin_status write_best(dunlin__server *server, const dunlin__best_model *best,
                                dunlin_error *error)
{
    char weights_sha256[DUNLIN_SHA256_HEX_BYTES];
    char onnx_sha256[DUNLIN_SHA256_HEX_BYTES];
    bool has_onnx = false;
    dunlin__server_path from;
    dunlin__server_path weights;
    dunlin__server_path onnx;
    DUNLIN_TRY(dunlin__server_weights_path(server, best->round + 1, &from, error));
    DUNLIN_TRY(best_path(server, "weights", &weights, error));
    DUNLIN_TRY(best_path(server, "onnx", &onnx, error));
    DUNLIN_TRY(take_file(from.text, weights.text, weights_sha256, &server->alloc, error));
    if (server->evaluator != NULL) {
        DUNLIN_TRY(export_file(server, weights.text, onnx.text, &has_onnx, error));
    }
    if (has_onnx) {
        DUNLIN_TRY(take_file(onnx.text, NULL, onnx_sha256, &server->alloc, error));
    }
    return write_json(server, best, weights_sha256, has_onnx ? onnx_sha256 : NULL, error);
}

/* Every model that could be the best was taken back. */
static void remove_best(dunlin__server *server)
{
    static const char *const endings[] = {"json", "onnx", "weights"};
    dunlin__server_path path;
    dunlin_error ignored;
    server->best = (dunlin__best_model){0};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        if (best_path(server, endings[i], &path, &ignored) == DUNLIN_OK) {
            (void)unlink(path.text);
        }
    }
}

dunlin_status dunlin__kept_save_best(dunlin__server *server, dunlin_error *error)
{
    if (!dunlin__best_is_kept(server) || server->is_stale) {
        return DUNLIN_OK;
    }
    dunlin__best_model best = dunlin__best_find(server, true);
    if (best.round == 0 && dunlin__lineage_is_bad(server, server->best.round)) {
        remove_best(server);
    }
    if (best.round == 0 || best.round == server->best.round) {
        return DUNLIN_OK;
    }
    (void)pthread_mutex_unlock(&server->lock);
    dunlin_status status = write_best(server, &best, error);
    (void)pthread_mutex_lock(&server->lock);
    if (status != DUNLIN_OK) {
        return status;
    }
    server->best = best;
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                "the best model is that of round %" PRIu64 ": accuracy %.4f, loss %.4f", best.round,
                best.accuracy, best.loss);
    return DUNLIN_OK;
}

/* ---- after a start ---- */

/* True if the file is there and has the digest that the object gives by this key. */
static bool has_digest(const dunlin__server *server, const json_t *object, const char *key,
                       const char *ending)
{
    char found[DUNLIN_SHA256_HEX_BYTES] = "";
    dunlin__server_path path;
    dunlin_error ignored;
    const char *wanted = json_string_value(json_object_get(object, key));
    return wanted != NULL && best_path(server, ending, &path, &ignored) == DUNLIN_OK &&
           take_file(path.text, NULL, found, &server->alloc, &ignored) == DUNLIN_OK &&
           strcmp(found, wanted) == 0;
}

/* What the object says, if it is of this run, its round has these figures, and its files are
 * whole. */
static bool is_whole(const dunlin__server *server, const json_t *object, uint64_t *out_round)
{
    json_int_t epoch = json_integer_value(json_object_get(object, "run_epoch"));
    json_int_t round = json_integer_value(json_object_get(object, "round"));
    const json_t *onnx = json_object_get(object, "onnx_sha256");
    *out_round = round > 0 ? (uint64_t)round : 0;
    return epoch == (json_int_t)server->run_epoch &&
           dunlin__lineage_find(server, *out_round) != NULL &&
           !dunlin__lineage_is_bad(server, *out_round) &&
           has_digest(server, object, "weights_sha256", "weights") &&
           (json_is_null(onnx) || has_digest(server, object, "onnx_sha256", "onnx"));
}

void dunlin__kept_load_best(dunlin__server *server)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    dunlin__server_path path;
    dunlin_error ignored = {0};
    server->best = (dunlin__best_model){0};
    if (!dunlin__best_is_kept(server) || best_path(server, "json", &path, &ignored) != DUNLIN_OK ||
        dunlin__server_file_size(path.text) < 0) {
        return;
    }
    json_t *object = NULL;
    if (dunlin__server_file_read(&server->alloc, path.text, JSON_BYTES, &bytes, &n_bytes,
                                 &ignored) == DUNLIN_OK) {
        object = json_loadb((const char *)bytes, n_bytes, JSON_REJECT_DUPLICATES, NULL);
        dunlin__free_array(&server->alloc, bytes, n_bytes + 1, 1);
    }
    dunlin__best_model best = {0};
    if (is_whole(server, object, &best.round)) {
        best.accuracy = json_number_value(json_object_get(object, "accuracy"));
        best.loss = json_number_value(json_object_get(object, "loss"));
        server->best = best;
    } else {
        dunlin__log(&server->log, DUNLIN_LOG_WARNING, "rounds",
                    "%.200s is not whole, or of another run: the best model is kept anew",
                    path.text);
    }
    json_decref(object);
}

/*
 * memory_file.c - a run in memory as one file, to go on from after its process has ended.
 *
 * The file is of the program that wrote it: head, rows of closed rounds as they lie in memory,
 * norms that count for the next bounds, moments, the base; then a sum over all of it. It is written
 * beside its place and renamed, and not brought to the storage: after a loss of power it may be the
 * older one, or damaged, which the sum shows.
 */
#include "memory_rounds.h"
#include "rounds/best.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "dunrun01"
#define BUILD_BYTES 64

typedef struct head {
    char magic[8];
    char build[BUILD_BYTES];
    uint8_t task[DUNLIN_SHA256_BYTES];
    uint64_t row_bytes;
    uint64_t n_values;
    uint64_t n_moments;
    uint64_t n_closed;
    uint64_t round_base; /* of the open round */
    uint64_t n_recent;
    uint64_t n_norms[DUNLIN_GUARD_ROUNDS];
} head;

/* A file, and the sum over what has passed. */
typedef struct passing {
    FILE *file;
    uint64_t sum;
    bool is_writing;
    bool is_wrong;
} passing;

/* Words are mixed one after the other as in splitmix64 (Steele, Lea, Flood 2014). */
static void add_to_sum(passing *over, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, n - i < sizeof word ? n - i : sizeof word);
        over->sum = (over->sum ^ word) * 0xbf58476d1ce4e5b9u;
        over->sum ^= over->sum >> 29;
    }
}

/* Writes or reads; the bytes count for the sum. */
static void pass(passing *over, void *bytes, size_t n)
{
    if (n == 0 || over->is_wrong) {
        return;
    }
    const size_t n_passed =
        over->is_writing ? fwrite(bytes, 1, n, over->file) : fread(bytes, 1, n, over->file);
    over->is_wrong = n_passed != n;
    if (!over->is_wrong) {
        add_to_sum(over, bytes, n);
    }
}

/* What tells runs apart: the task, but for when it ends, with the seed that goes before the file's.
 */
static dunlin_status hash_task(const dunlin__memory *memory,
                               uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    static const char *const ends[] = {"rounds", "target_accuracy", "patience", "min_delta"};
    const dunlin__server *server = &memory->server;
    json_t *task = json_load_file(server->options.task_file, 0, NULL);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)json_object_del(task, ends[i]);
    }
    (void)json_object_set_new(task, "seed", json_integer((json_int_t)server->task.seed));
    char *text = task != NULL ? json_dumps(task, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(task);
    if (text == NULL) {
        return dunlin__fail(error, DUNLIN_IO, "rounds", 0, "%.160s cannot be read again",
                            server->options.task_file);
    }
    const dunlin_status status = dunlin__sha256_of(text, strlen(text), out_sha256, error);
    free(text);
    return status;
}

static dunlin_status fill_head(const dunlin__memory *memory, const char *build, head *out,
                               dunlin_error *error)
{
    const dunlin__server *server = &memory->server;
    memset(out, 0, sizeof *out);
    memcpy(out->magic, MAGIC, sizeof out->magic);
    (void)snprintf(out->build, sizeof out->build, "%s", build);
    out->row_bytes = sizeof(dunlin__round_row);
    out->n_values = server->layout.n_values;
    out->n_moments = memory->moments != NULL ? server->layout.n_averaged_values : 0;
    out->n_closed = server->n_closed;
    out->round_base = server->round.base;
    out->n_recent = memory->n_recent;
    for (size_t i = 0; i < DUNLIN_GUARD_ROUNDS; i++) {
        out->n_norms[i] = memory->recent[i].n;
    }
    return hash_task(memory, out->task, error);
}

static void pass_rest(const dunlin__memory *memory, const head *about, passing *over)
{
    pass(over, memory->server.closed, (size_t)about->n_closed * sizeof(dunlin__round_row));
    for (size_t i = 0; i < DUNLIN_GUARD_ROUNDS; i++) {
        pass(over, memory->recent[i].values, (size_t)about->n_norms[i] * sizeof(double));
    }
    pass(over, memory->moments, (size_t)about->n_moments * sizeof *memory->moments);
    pass(over, memory->base, (size_t)about->n_values * sizeof *memory->base);
}

dunlin_status dunlin__memory_save(const dunlin__memory *memory, const char *path, const char *build,
                                  dunlin_error *error)
{
    dunlin__server_path beside;
    head about;
    DUNLIN_TRY(dunlin__server_path_make(&beside, error, "%s.new", path));
    DUNLIN_TRY(fill_head(memory, build, &about, error));
    passing over = {.file = fopen(beside.text, "wbe"), .is_writing = true};
    if (over.file == NULL) {
        return dunlin__file_fail(error, "making", beside.text, errno);
    }
    pass(&over, &about, sizeof about);
    pass_rest(memory, &about, &over);
    uint64_t sum = over.sum;
    pass(&over, &sum, sizeof sum);
    int code = over.is_wrong ? errno : 0;
    code = fclose(over.file) != 0 && code == 0 ? errno : code;
    if (code == 0 && rename(beside.text, path) != 0) {
        code = errno;
    }
    if (code != 0 || over.is_wrong) {
        (void)unlink(beside.text);
        return dunlin__file_fail(error, "writing", path, code);
    }
    return DUNLIN_OK;
}

/* Whether a head is one of this run; the text says what is another's. */
static dunlin_status check_head(const head *found, const head *wanted, const char *path,
                                dunlin_error *error)
{
    if (memcmp(found->magic, wanted->magic, sizeof found->magic) != 0 ||
        memchr(found->build, 0, sizeof found->build) == NULL) {
        return dunlin__fail(error, DUNLIN_DATA, "rounds", 0, "%.160s is no run in memory", path);
    }
    if (strcmp(found->build, wanted->build) != 0 || found->row_bytes != wanted->row_bytes) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "rounds", 0,
                            "%.160s is of build %.60s, this one is %.60s", path, found->build,
                            wanted->build);
    }
    if (memcmp(found->task, wanted->task, sizeof found->task) != 0) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "rounds", 0,
                            "%.160s is of a run with another task or seed", path);
    }
    if (found->n_values != wanted->n_values || found->n_moments != wanted->n_moments) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "rounds", 0,
                            "%.160s has a model of %" PRIu64 " values, the task's has %" PRIu64,
                            path, found->n_values, wanted->n_values);
    }
    uint64_t n_norms = 0;
    for (size_t i = 0; i < DUNLIN_GUARD_ROUNDS; i++) {
        n_norms += found->n_norms[i] <= DUNLIN_SERVER_CLIENTS ? 0 : 1;
    }
    return found->n_closed <= DUNLIN_SERVER_ROUNDS && n_norms == 0
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_DATA, "rounds", 0,
                              "%.160s says that %" PRIu64 " rounds have closed", path,
                              found->n_closed);
}

/* Room for what the head speaks of. */
static dunlin_status make_places(dunlin__memory *memory, const head *about, dunlin_error *error)
{
    dunlin__server *server = &memory->server;
    void *list = server->closed;
    bool is_there = dunlin__grow_array(&server->alloc, &list, &server->closed_capacity,
                                       (size_t)about->n_closed + 1, sizeof *server->closed);
    server->closed = list;
    for (size_t i = 0; i < DUNLIN_GUARD_ROUNDS; i++) {
        const size_t n = (size_t)about->n_norms[i];
        dunlin__norms_free(&memory->recent[i], &server->alloc);
        if (n > 0) {
            memory->recent[i].values =
                dunlin__alloc_array(&server->alloc, n, sizeof *memory->recent[i].values);
            memory->recent[i].capacity = n;
            memory->recent[i].n = n;
            is_there = is_there && memory->recent[i].values != NULL;
        }
    }
    return is_there ? DUNLIN_OK
                    : dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0,
                                   "no memory for %" PRIu64 " closed rounds", about->n_closed);
}

static dunlin_status read_run(dunlin__memory *memory, passing *over, const char *path,
                              const head *wanted, dunlin_error *error)
{
    dunlin__server *server = &memory->server;
    head about;
    uint64_t sum = 0;
    pass(over, &about, sizeof about);
    if (over->is_wrong) {
        return dunlin__fail(error, DUNLIN_DATA, "rounds", 0, "%.160s ends in its head", path);
    }
    DUNLIN_TRY(check_head(&about, wanted, path, error));
    DUNLIN_TRY(make_places(memory, &about, error));
    pass_rest(memory, &about, over);
    const uint64_t counted = over->sum;
    pass(over, &sum, sizeof sum);
    if (over->is_wrong || sum != counted || fgetc(over->file) != EOF) {
        return dunlin__fail(error, DUNLIN_DATA, "rounds", 0,
                            "%.160s is damaged: its sum is not that of its bytes", path);
    }
    server->n_closed = (size_t)about.n_closed;
    memory->n_recent = (size_t)about.n_recent;
    server->round.round = about.n_closed + 1;
    server->round.base = about.round_base;
    server->round.is_evaluation =
        dunlin__server_task_is_evaluation(&server->task, server->round.round);
    dunlin__best_settle(server);
    server->is_exported = server->is_done;
    return DUNLIN_OK;
}

dunlin_status dunlin__memory_load(dunlin__memory *memory, const char *path, const char *build,
                                  bool *out_is_there, dunlin_error *error)
{
    head wanted;
    *out_is_there = false;
    DUNLIN_TRY(fill_head(memory, build, &wanted, error));
    passing over = {.file = fopen(path, "rbe")};
    if (over.file == NULL && errno == ENOENT) {
        return DUNLIN_OK;
    }
    if (over.file == NULL) {
        return dunlin__file_fail(error, "opening", path, errno);
    }
    *out_is_there = true;
    const dunlin_status status = read_run(memory, &over, path, &wanted, error);
    (void)fclose(over.file);
    return status;
}

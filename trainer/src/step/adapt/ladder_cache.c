/*
 * ladder_cache.c - the fallback plans of a trainer in a file of the cache's folder.
 *
 * <folder>/<key>.ladder: "DUNLINTR", version, key, least arena, number of fallback plans; for each
 * the bytes of its three plans (training, inference, alike; 0: there is none); CRC-32 of that; then
 * the plans as dunlin__plan_write() makes them. All numbers little-endian.
 * Invariant: nothing here fails a trainer; fallback plans are taken only if all of them are right.
 */
#include "ladder_cache.h"

#include "step/context/rungs.h"
#include "step/plan/budget.h"
#include "step/plan/cache_file.h"

#include <mem/hash.h>
#include <mem/store.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define FORMAT_VERSION 1
#define N_PLANS 3
#define HEAD_BYTES 32
#define FALLBACK_BYTES (8 * N_PLANS)
#define MAX_HEAD_BYTES (HEAD_BYTES + DUNLIN_LADDER_MAX_FALLBACKS * FALLBACK_BYTES + 4)

static const unsigned char magic[8] = {'D', 'U', 'N', 'L', 'I', 'N', 'T', 'R'};

/* What plans are stored under; the budgets of fallback plans are not part of it, but of the key. */
typedef struct kinds {
    const dunlin_mem_graph *graphs[N_PLANS];
    dunlin_plan_options options[N_PLANS];
} kinds;

static kinds kinds_of(const dunlin_trainer *trainer)
{
    const int64_t batch = trainer->options.batch;
    const dunlin_plan_options train = dunlin__trainer_plan_options(trainer, batch, 0);
    const dunlin_plan_options infer = {
        .batch = (uint64_t)batch, .policy = DUNLIN_PLAN_AUTO, .alloc = trainer->counter.hooks};
    const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
    return (kinds){{graph, &trainer->infer.lowered.graph, graph}, {train, infer, train}};
}

static dunlin_plan **plan_of(dunlin_fallback *fallback, uint32_t kind)
{
    return kind == 0 ? &fallback->train : kind == 1 ? &fallback->infer : &fallback->alike;
}

uint64_t dunlin__ladder_cache_key(const dunlin_trainer *trainer)
{
    const kinds of = kinds_of(trainer);
    const dunlin_trainer_options *options = &trainer->options;
    uint64_t key = dunlin__plan_key(of.graphs[0], &of.options[0]);
    key = dunlin__hash_add(key, dunlin__plan_key(of.graphs[1], &of.options[1]));
    key = dunlin__hash_add(key, options->budget_bytes);
    key = dunlin__hash_add(key, options->least_budget_bytes);
    key = dunlin__hash_add(key, options->slab == NULL ? 0 : options->slab_bytes);
    key = dunlin__hash_add(key, trainer->counter.now_bytes);
    return options->storage == DUNLIN_STORAGE_EXACT
               ? key
               : dunlin__hash_add(key, (uint64_t)options->storage);
}

/* --- writing --- */

typedef struct ladder_writer {
    dunlin_outfile file;
    dunlin_error *error;
} ladder_writer;

static dunlin_status write_bytes(void *ctx, const void *bytes, size_t n)
{
    ladder_writer *writer = ctx;
    return dunlin__outfile_write(&writer->file, bytes, n, writer->error);
}

static dunlin_status write_all(ladder_writer *writer, const dunlin_trainer *trainer, uint64_t key)
{
    const dunlin_ladder *ladder = trainer->ladder;
    const kinds of = kinds_of(trainer);
    unsigned char head[MAX_HEAD_BYTES];
    memcpy(head, magic, sizeof magic);
    dunlin__cache_put(head + 8, FORMAT_VERSION, 4);
    dunlin__cache_put(head + 12, key, 8);
    dunlin__cache_put(head + 20, ladder->least_arena_bytes, 8);
    dunlin__cache_put(head + 28, ladder->n_fallbacks, 4);
    size_t n = HEAD_BYTES;
    for (uint32_t i = 0; i < ladder->n_fallbacks; i++) {
        dunlin_fallback fallback = ladder->fallbacks[i];
        for (uint32_t k = 0; k < N_PLANS; k++, n += 8) {
            const dunlin_plan *plan = *plan_of(&fallback, k);
            dunlin__cache_put(head + n, plan != NULL ? dunlin__plan_stored_bytes(plan) : 0, 8);
        }
    }
    dunlin__cache_put(head + n, dunlin__crc32(0, head, n), 4);
    DUNLIN_TRY(write_bytes(writer, head, n + 4));
    for (uint32_t i = 0; i < ladder->n_fallbacks; i++) {
        dunlin_fallback fallback = ladder->fallbacks[i];
        for (uint32_t k = 0; k < N_PLANS; k++) {
            const dunlin_plan *plan = *plan_of(&fallback, k);
            if (plan != NULL) {
                DUNLIN_TRY(
                    dunlin__plan_write(of.graphs[k], &of.options[k], plan, write_bytes, writer));
            }
        }
    }
    return DUNLIN_OK;
}

void dunlin__ladder_cache_save(const dunlin_trainer *trainer, uint64_t key)
{
    char path[DUNLIN_OUTFILE_MAX_PATH];
    dunlin_error error = {.status = DUNLIN_OK};
    ladder_writer writer = {.error = &error};
    dunlin_status status = DUNLIN_LIMIT;
    if (dunlin__cache_path(trainer, key, "ladder", path)) {
        status = dunlin__outfile_open(&writer.file, path, 0666, &error);
        if (status == DUNLIN_OK) {
            status = write_all(&writer, trainer, key);
            status = dunlin__outfile_close(&writer.file, status, &error);
        }
    }
    if (status != DUNLIN_OK) {
        dunlin__log(&trainer->options.log, DUNLIN_LOG_WARNING, "trainer",
                    "the plans of smaller budgets were not kept: %s",
                    error.text[0] != '\0' ? error.text : dunlin_status_text(status));
    }
}

/* --- reading --- */

static dunlin_status fail_damaged(dunlin_error *error, const char *what)
{
    return dunlin__fail(error, DUNLIN_DIGEST, "trainer", 0, "%s", what);
}

static void drop(dunlin_fallback *fallbacks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < N_PLANS; k++) {
            dunlin__plan_destroy(*plan_of(&fallbacks[i], k));
            *plan_of(&fallbacks[i], k) = NULL;
        }
    }
}

/* The plans of one fallback; `*at` moves past them. */
static dunlin_status take_fallback(const kinds *of, const unsigned char *lengths,
                                   const unsigned char *bytes, size_t n_bytes, size_t *at,
                                   dunlin_fallback *fallback, dunlin_error *error)
{
    for (uint32_t k = 0; k < N_PLANS; k++) {
        const uint64_t n = dunlin__cache_get(lengths + 8 * (size_t)k, 8);
        if (n > n_bytes - *at || (n == 0 && k < 2)) {
            return fail_damaged(error, "it is not whole");
        }
        if (n > 0) {
            DUNLIN_TRY(dunlin__plan_read(of->graphs[k], &of->options[k], bytes + *at, (size_t)n,
                                         plan_of(fallback, k), error));
        }
        *at += (size_t)n;
    }
    if (fallback->train == NULL || fallback->infer == NULL) {
        return fail_damaged(error, "a plan is missing");
    }
    const uint64_t train = fallback->train->arena_bytes;
    const uint64_t infer = fallback->infer->arena_bytes;
    fallback->arena_bytes = train > infer ? train : infer;
    return DUNLIN_OK;
}

static dunlin_status take_all(const dunlin_trainer *trainer, uint64_t key,
                              const unsigned char *bytes, size_t n_bytes,
                              dunlin_fallback *fallbacks, uint32_t *n_fallbacks,
                              dunlin_error *error)
{
    const uint64_t n = dunlin__cache_get(bytes + 28, 4);
    const size_t head_bytes = HEAD_BYTES + (size_t)(n % 256) * FALLBACK_BYTES;
    if (memcmp(bytes, magic, sizeof magic) != 0 ||
        dunlin__cache_get(bytes + 8, 4) != FORMAT_VERSION || n < 1 ||
        n > DUNLIN_LADDER_MAX_FALLBACKS || n_bytes < head_bytes + 4 ||
        dunlin__cache_get(bytes + head_bytes, 4) != dunlin__crc32(0, bytes, head_bytes)) {
        return fail_damaged(error, "its head is damaged");
    }
    if (dunlin__cache_get(bytes + 12, 8) != key) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                            "it is of step %016" PRIx64 ", not of %016" PRIx64,
                            dunlin__cache_get(bytes + 12, 8), key);
    }
    const kinds of = kinds_of(trainer);
    size_t at = head_bytes + 4;
    for (uint32_t i = 0; i < n; i++) {
        *n_fallbacks = i + 1;
        DUNLIN_TRY(take_fallback(&of, bytes + HEAD_BYTES + (size_t)i * FALLBACK_BYTES, bytes,
                                 n_bytes, &at, &fallbacks[i], error));
    }
    return at == n_bytes ? DUNLIN_OK : fail_damaged(error, "there is more than its plans");
}

bool dunlin__ladder_cache_load(dunlin_trainer *trainer, uint64_t key)
{
    char path[DUNLIN_OUTFILE_MAX_PATH];
    const dunlin_alloc *alloc = &trainer->counter.hooks;
    dunlin_ladder *ladder = trainer->ladder;
    dunlin_fallback fallbacks[DUNLIN_LADDER_MAX_FALLBACKS];
    uint32_t n_fallbacks = 0;
    dunlin_error error = {.status = DUNLIN_OK};
    unsigned char *bytes = NULL;
    size_t n_bytes = 0;
    memset(fallbacks, 0, sizeof fallbacks);
    if (!dunlin__cache_path(trainer, key, "ladder", path)) {
        return false;
    }
    dunlin_status status =
        dunlin__cache_read(path, HEAD_BYTES + 4, alloc, &bytes, &n_bytes, &error);
    if (bytes != NULL) {
        status = take_all(trainer, key, bytes, n_bytes, fallbacks, &n_fallbacks, &error);
        ladder->least_arena_bytes = dunlin__cache_get(bytes + 20, 8);
        dunlin__free_array(alloc, bytes, n_bytes, 1);
    }
    if (error.text[0] != '\0') {
        dunlin__log(&trainer->options.log, DUNLIN_LOG_WARNING, "trainer",
                    "the kept plans %.120s are not used: %.120s", path, error.text);
    }
    if (status != DUNLIN_OK) {
        drop(fallbacks, n_fallbacks);
        return false;
    }
    drop(ladder->fallbacks, ladder->n_fallbacks);
    memcpy(ladder->fallbacks, fallbacks, n_fallbacks * sizeof *fallbacks);
    ladder->n_fallbacks = n_fallbacks;
    trainer->train.plan = fallbacks[0].train;
    trainer->infer.plan = fallbacks[0].infer;
    trainer->arena_bytes = fallbacks[0].arena_bytes;
    return true;
}

/*
 * cache.c - both plans of a trainer in a file of a folder, so that the next trainer of the same
 * network, options and budget need not look for them again.
 *
 * <folder>/<key>.plan: "DUNLINTP", version, key, form, least budget, bytes of the training plan and
 * of the inference plan, CRC-32 of that; then both as dunlin__plan_write() makes them. All numbers
 * little-endian. The key is that of the form that is made first, whichever form the plan has: the
 * other form follows from the same network and options, and a plan of it is checked against it.
 * Invariant: nothing here fails a trainer. A file that is damaged, of something else or not a valid
 * plan is logged, not used, and replaced; one that cannot be written is logged.
 */
#include "cache.h"

#include "cache_file.h"
#include "prepare.h"

#include <mem/hash.h>
#include <mem/store.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT_VERSION 2
#define HEAD_BYTES 52

static const unsigned char magic[8] = {'D', 'U', 'N', 'L', 'I', 'N', 'T', 'P'};

typedef struct cache_head {
    uint64_t key;
    uint64_t form;
    uint64_t least_budget_bytes;
    uint64_t train_bytes;
    uint64_t infer_bytes;
} cache_head;

uint64_t dunlin__cache_key(const dunlin_trainer *trainer, const dunlin_cache_options *options)
{
    uint64_t key = dunlin__plan_key(&trainer->train.lowered.graph, &options->train);
    key = dunlin__hash_add(key, dunlin__plan_key(&trainer->infer.lowered.graph, &options->infer));
    key = dunlin__hash_add(key, trainer->options.slab == NULL ? 0 : trainer->options.slab_bytes);
    key = dunlin__hash_add(key, trainer->is_form_fixed ? 1 : 0);
    key = dunlin__hash_add(key, trainer->counter.now_bytes);
    if (trainer->options.storage != DUNLIN_STORAGE_EXACT) {
        key = dunlin__hash_add(key, (uint64_t)trainer->options.storage);
    }
    return key != 0 ? key : 1;
}

static void pack_head(const cache_head *head, unsigned char bytes[HEAD_BYTES])
{
    memcpy(bytes, magic, sizeof magic);
    dunlin__cache_put(bytes + 8, FORMAT_VERSION, 4);
    dunlin__cache_put(bytes + 12, head->key, 8);
    dunlin__cache_put(bytes + 20, head->form, 4);
    dunlin__cache_put(bytes + 24, head->least_budget_bytes, 8);
    dunlin__cache_put(bytes + 32, head->train_bytes, 8);
    dunlin__cache_put(bytes + 40, head->infer_bytes, 8);
    dunlin__cache_put(bytes + 48, dunlin__crc32(0, bytes, HEAD_BYTES - 4), 4);
}

/* --- writing --- */

typedef struct cache_writer {
    dunlin_outfile file;
    dunlin_error *error;
} cache_writer;

static dunlin_status write_bytes(void *ctx, const void *bytes, size_t n)
{
    cache_writer *writer = ctx;
    return dunlin__outfile_write(&writer->file, bytes, n, writer->error);
}

static dunlin_status write_all(cache_writer *writer, const dunlin_trainer *trainer,
                               const dunlin_cache_options *options)
{
    const cache_head head = {
        .key = options->key,
        .form = (uint64_t)trainer->form,
        .least_budget_bytes = trainer->least_budget_bytes,
        .train_bytes = dunlin__plan_stored_bytes(trainer->train.plan),
        .infer_bytes = dunlin__plan_stored_bytes(trainer->infer.plan),
    };
    unsigned char bytes[HEAD_BYTES];
    pack_head(&head, bytes);
    DUNLIN_TRY(write_bytes(writer, bytes, sizeof bytes));
    DUNLIN_TRY(dunlin__plan_write(&trainer->train.lowered.graph, &options->train,
                                  trainer->train.plan, write_bytes, writer));
    return dunlin__plan_write(&trainer->infer.lowered.graph, &options->infer, trainer->infer.plan,
                              write_bytes, writer);
}

void dunlin__cache_save(const dunlin_trainer *trainer, const dunlin_cache_options *options)
{
    char path[DUNLIN_OUTFILE_MAX_PATH];
    dunlin_error error = {.status = DUNLIN_OK};
    cache_writer writer = {.error = &error};
    dunlin_status status = DUNLIN_LIMIT;
    if (dunlin__cache_path(trainer, options->key, "plan", path)) {
        (void)mkdir(trainer->options.cache_dir, 0777);
        status = dunlin__outfile_open(&writer.file, path, 0666, &error);
        if (status == DUNLIN_OK) {
            status = write_all(&writer, trainer, options);
            status = dunlin__outfile_close(&writer.file, status, &error);
        }
    }
    if (status != DUNLIN_OK) {
        dunlin__log(&trainer->options.log, DUNLIN_LOG_WARNING, "trainer",
                    "the plan was not kept: %s",
                    error.text[0] != '\0' ? error.text : dunlin_status_text(status));
    }
}

/* --- reading --- */

static dunlin_status unpack_head(const unsigned char *bytes, size_t n_bytes, uint64_t key,
                                 cache_head *out_head, dunlin_error *error)
{
    if (memcmp(bytes, magic, sizeof magic) != 0 ||
        dunlin__cache_get(bytes + 8, 4) != FORMAT_VERSION ||
        dunlin__cache_get(bytes + 48, 4) != dunlin__crc32(0, bytes, HEAD_BYTES - 4)) {
        return dunlin__fail(error, DUNLIN_DIGEST, "trainer", 0, "its head of %d bytes is damaged",
                            HEAD_BYTES);
    }
    *out_head = (cache_head){.key = dunlin__cache_get(bytes + 12, 8),
                             .form = dunlin__cache_get(bytes + 20, 4),
                             .least_budget_bytes = dunlin__cache_get(bytes + 24, 8),
                             .train_bytes = dunlin__cache_get(bytes + 32, 8),
                             .infer_bytes = dunlin__cache_get(bytes + 40, 8)};
    const uint64_t left = n_bytes - HEAD_BYTES;
    if (out_head->key != key || out_head->form > DUNLIN_FORM_SUMS || out_head->train_bytes > left ||
        out_head->infer_bytes != left - out_head->train_bytes) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                            "it is of step %016" PRIx64
                            " and %zu bytes are there; this is step %016" PRIx64,
                            out_head->key, n_bytes, key);
    }
    return DUNLIN_OK;
}

/* The training graph that the plan is of. */
static dunlin_status take_form(dunlin_trainer *trainer, dunlin_step_form form, dunlin_error *error)
{
    if (form == trainer->form) {
        return DUNLIN_OK;
    }
    if (trainer->is_form_fixed || !trainer->train.step->reads_terms) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                            "it is of form %d, and this step has form %d only", (int)form,
                            (int)trainer->form);
    }
    trainer->form = form;
    return dunlin__trainer_prepare_train(trainer, error);
}

/* Both plans, as large as they may be together with the tables. */
static dunlin_status take_plans(dunlin_trainer *trainer, const dunlin_cache_options *options,
                                const unsigned char *bytes, const cache_head *head,
                                dunlin_error *error)
{
    const unsigned char *train = bytes + HEAD_BYTES;
    DUNLIN_TRY(take_form(trainer, (dunlin_step_form)head->form, error));
    DUNLIN_TRY(dunlin__plan_read(&trainer->train.lowered.graph, &options->train, train,
                                 (size_t)head->train_bytes, &trainer->train.plan, error));
    DUNLIN_TRY(dunlin__plan_read(&trainer->infer.lowered.graph, &options->infer,
                                 train + head->train_bytes, (size_t)head->infer_bytes,
                                 &trainer->infer.plan, error));
    const uint64_t train_bytes = trainer->train.plan->arena_bytes;
    const uint64_t infer_bytes = trainer->infer.plan->arena_bytes;
    trainer->arena_bytes = infer_bytes > train_bytes ? infer_bytes : train_bytes;
    trainer->least_budget_bytes = head->least_budget_bytes;
    return DUNLIN_OK;
}

dunlin_status dunlin__cache_load(dunlin_trainer *trainer, const dunlin_cache_options *options)
{
    char path[DUNLIN_OUTFILE_MAX_PATH];
    const dunlin_alloc *alloc = &trainer->counter.hooks;
    dunlin_error error = {.status = DUNLIN_OK};
    unsigned char *bytes = NULL;
    size_t n_bytes = 0;
    cache_head head = {.key = 0};
    if (!dunlin__cache_path(trainer, options->key, "plan", path)) {
        return DUNLIN_IO;
    }
    dunlin_status status = dunlin__cache_read(path, HEAD_BYTES, alloc, &bytes, &n_bytes, &error);
    if (bytes != NULL) {
        status = unpack_head(bytes, n_bytes, options->key, &head, &error);
        if (status == DUNLIN_OK) {
            status = take_plans(trainer, options, bytes, &head, &error);
        }
        dunlin__free_array(alloc, bytes, n_bytes, 1);
    }
    if (error.text[0] != '\0') {
        dunlin__log(&trainer->options.log, DUNLIN_LOG_WARNING, "trainer",
                    "the kept plan %.120s is not used: %.120s", path, error.text);
    }
    return status;
}

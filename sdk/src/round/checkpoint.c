/*
 * checkpoint.c - checkpoints of training within a round: when and where they are written, and how
 * they are restored.
 *
 * Invariant: the journal names one of two files only after that file is on the storage, and nothing
 * is written to a file that the journal names. So whatever a kill or a power loss interrupts, the
 * named file is whole and of the current round. A checkpoint that cannot be made never ends a
 * round.
 */
#include "checkpoint.h"

#include "context/client_context.h"
#include "session/session.h"
#include "store/files.h"
#include "store/store.h"

#include <assert.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#define N_SLOTS 2
/* Storage wears: however cheap checkpoints are, they are so far apart. */
#define LEAST_APART_MS 10000
/* Checkpoints take at most this part of the time spent on training... */
#define SHARE 50
/* ...unless more than about a minute of training could be lost by that (this, a slice, and the
 * writing itself); then at most this part. */
#define MOST_APART_MS 50000
#define LARGEST_SHARE 10
/* What the first one is taken to cost: three times the weights (momentum, a spare) at the rate of a
 * piece that is written for it, or where that cannot be, of slow flash, with a few syncs. */
#define FIRST_COPIES 3
#define PROBE_BLOCK_BYTES (64u << 10)
#define N_PROBE_BLOCKS 32u
#define PROBE_BYTES (N_PROBE_BLOCKS * PROBE_BLOCK_BYTES)
#define SLOW_BYTES_PER_MS 20000
#define SLOW_SYNC_MS 50

static const char *const SLOT_NAMES[N_SLOTS] = {"learner.checkpoint.1", "learner.checkpoint.2"};

bool dunlin__checkpoint_is_due(const dunlin__checkpoint_pace *pace, int64_t fixed_ms)
{
    int64_t since_ms = pace->learnt_ms - pace->learnt_at_last_ms;
    if (fixed_ms != 0) {
        return fixed_ms > 0 && since_ms >= fixed_ms;
    }
    int64_t spent_ms = pace->spent_ms + pace->expected_ms;
    if (since_ms < LEAST_APART_MS) {
        return false;
    }
    return spent_ms <= pace->learnt_ms / SHARE ||
           (since_ms >= MOST_APART_MS && spent_ms <= pace->learnt_ms / LARGEST_SHARE);
}

void dunlin__checkpoint_count(dunlin__checkpoint_pace *pace, int64_t cost_ms)
{
    pace->spent_ms += cost_ms;
    pace->n_made++;
    pace->expected_ms = cost_ms;
    pace->learnt_at_last_ms = pace->learnt_ms;
}

int64_t dunlin__checkpoint_guess(uint64_t weight_bytes, int64_t probe_ms)
{
    uint64_t n_bytes = weight_bytes * FIRST_COPIES;
    if (probe_ms < 0) {
        return (int64_t)(n_bytes / SLOW_BYTES_PER_MS) + SLOW_SYNC_MS;
    }
    return (int64_t)((n_bytes / PROBE_BYTES + 1) * (uint64_t)(probe_ms > 0 ? probe_ms : 1));
}

/* The table of operations may be that of an older application, and shorter. */
static bool can_checkpoint(const dunlin_learner_ops *ops)
{
    return ops->struct_size >=
               offsetof(dunlin_learner_ops, restore) + sizeof(dunlin_learner_ops){0}.restore &&
           ops->checkpoint != NULL && ops->restore != NULL;
}

static dunlin_status slot_path(dunlin_client *client, int32_t slot,
                               char out_path[DUNLIN_FILE_PATH_BYTES])
{
    return dunlin__file_path(client->round->folder, SLOT_NAMES[slot - 1], out_path, &client->error);
}

static void log_failure(const dunlin_client *client, const char *what, dunlin_status status)
{
    dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                "%s: %s; the round goes on without it", what, dunlin_status_text(status));
}

/* The learner writes as it likes; here it is made sure of. */
static dunlin_status sync_slot(dunlin_client *client, const char *path)
{
    int fd = -1;
    DUNLIN_TRY(dunlin__file_open(path, &fd, &client->error));
    dunlin_status status = dunlin__file_sync(fd, client->round->folder, &client->error);
    (void)close(fd);
    return status;
}

static dunlin_status write_slot(dunlin_client *client, int32_t slot)
{
    dunlin__journal *journal = &client->journal;
    char path[DUNLIN_FILE_PATH_BYTES];
    assert(slot != journal->checkpoint && slot >= 1 && slot <= N_SLOTS);
    DUNLIN_TRY(slot_path(client, slot, path));
    dunlin_status status = client->learner.ops->checkpoint(client->learner.self, path);
    if (status == DUNLIN_OK) {
        status = sync_slot(client, path);
    }
    if (status == DUNLIN_OK) {
        int32_t named = journal->checkpoint;
        journal->checkpoint = slot;
        status = dunlin__store_save(client->runtime->store, client->name, journal, &client->error);
        if (status != DUNLIN_OK) {
            journal->checkpoint = named;
            return status; /* the journal may name either: both stay */
        }
        if (named != 0 && slot_path(client, named, path) == DUNLIN_OK) {
            (void)unlink(path);
        }
        return DUNLIN_OK;
    }
    (void)unlink(path);
    return status;
}

/* Bytes that no storage makes smaller, to the storage. */
static dunlin_status write_probe(dunlin_client *client, int fd, uint64_t *block)
{
    size_t n_words = PROBE_BLOCK_BYTES / sizeof *block;
    uint64_t state = 0x9E3779B97F4A7C15U;
    for (uint64_t i = 0; i < N_PROBE_BLOCKS; i++) {
        for (size_t k = 0; k < n_words; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17; /* Marsaglia, Xorshift RNGs, 2003 */
            block[k] = state;
        }
        DUNLIN_TRY(dunlin__file_write(fd, block, PROBE_BLOCK_BYTES, i * PROBE_BLOCK_BYTES,
                                      &client->error));
    }
    return dunlin__file_sync(fd, client->round->folder, &client->error);
}

/* Milliseconds that PROBE_BYTES take, in the file that the journal does not name; -1: unknown. */
static int64_t probe_storage(dunlin_client *client)
{
    const dunlin_alloc *alloc = &client->runtime->alloc;
    const dunlin_clock *clock = &client->runtime->clock;
    char path[DUNLIN_FILE_PATH_BYTES];
    int fd = -1;
    uint64_t *block = dunlin__alloc_zeroed(alloc, PROBE_BLOCK_BYTES, 1);
    if (block == NULL ||
        slot_path(client, client->journal.checkpoint == 1 ? 2 : 1, path) != DUNLIN_OK ||
        dunlin__file_open(path, &fd, &client->error) != DUNLIN_OK) {
        dunlin__free_array(alloc, block, PROBE_BLOCK_BYTES, 1);
        return -1;
    }
    int64_t begun_ms = clock->boot_ms_fn(clock->ctx);
    dunlin_status status = write_probe(client, fd, block);
    int64_t took_ms = dunlin__ms_passed(begun_ms, clock->boot_ms_fn(clock->ctx));
    (void)close(fd);
    (void)unlink(path);
    dunlin__free_array(alloc, block, PROBE_BLOCK_BYTES, 1);
    return status == DUNLIN_OK ? took_ms : -1;
}

void dunlin__checkpoint_begin(dunlin_client *client, uint64_t weight_bytes)
{
    int64_t guess_ms = dunlin__checkpoint_guess(weight_bytes, -1);
    client->round->pace = (dunlin__checkpoint_pace){.expected_ms = guess_ms};
    /* A guess that puts the first one off is looked into. */
    if (guess_ms * SHARE > LEAST_APART_MS && client->options.checkpoint_ms == 0 &&
        !client->session.is_evaluation && can_checkpoint(client->learner.ops)) {
        dunlin_error kept = client->error;
        int64_t probe_ms = probe_storage(client);
        client->error = kept;
        client->round->pace.expected_ms = dunlin__checkpoint_guess(weight_bytes, probe_ms);
        client->round->pace.spent_ms = probe_ms > 0 ? probe_ms : 0;
    }
}

void dunlin__checkpoint_save(dunlin_client *client)
{
    if (!client->round->is_loaded || client->session.is_evaluation ||
        !can_checkpoint(client->learner.ops)) {
        return;
    }
    int64_t begun_ms = client->runtime->clock.boot_ms_fn(client->runtime->clock.ctx);
    dunlin_error kept = client->error;
    dunlin_status status = write_slot(client, client->journal.checkpoint == 1 ? 2 : 1);
    if (status != DUNLIN_OK) {
        log_failure(client, "a checkpoint of the training could not be kept", status);
    }
    client->error = kept; /* the round has not failed */
    int64_t cost_ms =
        dunlin__ms_passed(begun_ms, client->runtime->clock.boot_ms_fn(client->runtime->clock.ctx));
    dunlin__checkpoint_count(&client->round->pace, cost_ms);
}

void dunlin__checkpoint_tick(dunlin_client *client)
{
    if (dunlin__checkpoint_is_due(&client->round->pace, client->options.checkpoint_ms)) {
        dunlin__checkpoint_save(client);
    }
}

bool dunlin__checkpoint_restore(dunlin_client *client)
{
    dunlin__journal *journal = &client->journal;
    char path[DUNLIN_FILE_PATH_BYTES];
    if (journal->checkpoint < 1 || journal->checkpoint > N_SLOTS || client->session.is_evaluation ||
        !can_checkpoint(client->learner.ops)) {
        journal->checkpoint = 0;
        return true;
    }
    dunlin_error kept = client->error;
    dunlin_status status = slot_path(client, journal->checkpoint, path);
    if (status == DUNLIN_OK) {
        status = client->learner.ops->restore(client->learner.self, path);
    }
    client->error = kept;
    if (status == DUNLIN_OK) {
        return true;
    }
    log_failure(client, "the checkpoint of the training could not be taken up", status);
    journal->checkpoint = 0;
    return false;
}

void dunlin__checkpoint_remove(dunlin_client *client)
{
    dunlin_error kept = client->error;
    for (int32_t slot = 1; slot <= N_SLOTS; slot++) {
        char path[DUNLIN_FILE_PATH_BYTES];
        if (slot_path(client, slot, path) == DUNLIN_OK) {
            (void)unlink(path);
        }
    }
    client->error = kept;
}

void dunlin__round_keep_training(dunlin_client *client)
{
    if (client->round != NULL &&
        client->round->pace.learnt_ms > client->round->pace.learnt_at_last_ms &&
        client->journal.phase == DUNLIN_PHASE_LEARN && client->options.checkpoint_ms >= 0) {
        dunlin__checkpoint_save(client);
    }
}

void dunlin__round_keep_paused(dunlin_client *client)
{
    if (dunlin__client_is_to_pause(client)) {
        dunlin__round_keep_training(client);
    }
}

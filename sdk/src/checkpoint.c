/*
 * checkpoint.c - training kept on the storage within a round: when, where, and back again.
 *
 * Invariant: the journal names one of two files only after that file is on the storage, and nothing
 * is written to a file that the journal names. So whatever a kill or a power loss interrupts, the
 * named one is whole and of the round at hand. A checkpoint that cannot be made never ends a round.
 */
#include "checkpoint.h"

#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#define N_SLOTS 2
/* Checkpoints take at most this part of the time spent on training. */
#define SHARE 50
/* Storage wears: however cheap checkpoints are, they are so far apart. */
#define LEAST_APART_MS 10000
/* What the first one is taken to cost: nothing measured yet, three times the weights (momentum, a
 * spare) at the rate of slow flash, and a few syncs. */
#define FIRST_BYTES_PER_MS 20000
#define FIRST_COPIES 3
#define FIRST_SYNC_MS 50

static const char *const SLOT_NAMES[N_SLOTS] = {"learner.checkpoint.1", "learner.checkpoint.2"};

bool dunlin__checkpoint_is_due(const dunlin__checkpoint_pace *pace, int64_t fixed_ms)
{
    int64_t since_ms = pace->learnt_ms - pace->learnt_at_last_ms;
    if (fixed_ms != 0) {
        return fixed_ms > 0 && since_ms >= fixed_ms;
    }
    return since_ms >= LEAST_APART_MS &&
           (pace->spent_ms + pace->expected_ms) <= pace->learnt_ms / SHARE;
}

void dunlin__checkpoint_count(dunlin__checkpoint_pace *pace, int64_t cost_ms)
{
    pace->spent_ms += cost_ms;
    pace->n_made++;
    pace->expected_ms = cost_ms;
    pace->learnt_at_last_ms = pace->learnt_ms;
}

dunlin__checkpoint_pace dunlin__checkpoint_begin(uint64_t weight_bytes)
{
    return (dunlin__checkpoint_pace){
        .expected_ms = (int64_t)(weight_bytes / FIRST_BYTES_PER_MS) * FIRST_COPIES + FIRST_SYNC_MS};
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
    int64_t cost_ms = client->runtime->clock.boot_ms_fn(client->runtime->clock.ctx) - begun_ms;
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

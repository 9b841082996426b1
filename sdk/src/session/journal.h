/*
 * journal.h - what a client knows across kills: its identity, when to check in again, and how far
 * its round has come.
 */
#ifndef DUNLIN_SDK_JOURNAL_H
#define DUNLIN_SDK_JOURNAL_H

#include <dunlin/client.h>
#include <wire/digest.h>
#include <wire/protocol.h>

#define DUNLIN_BOOT_ID_BYTES 40

/* A moment: by the wall, and by the clock that counts from the boot it names. */
typedef struct dunlin__moment {
    int64_t wall_ms;
    int64_t boot_ms;
    char boot_id[DUNLIN_BOOT_ID_BYTES];
} dunlin__moment;

/* The evaluations around a training. */
typedef enum dunlin__evaluated {
    DUNLIN_EVALUATED_BEFORE = 1,
    DUNLIN_EVALUATED_AFTER = 2,
    DUNLIN_EVALUATED_BOTH = 3
} dunlin__evaluated;

typedef struct dunlin__journal {
    /* Where it was written, as a hash; zeros: not known. */
    uint8_t installation[DUNLIN_SHA256_BYTES];
    /* Identity, made at enrolment. */
    char device_id[DUNLIN_WIRE_ID_BYTES]; /* "" before */
    uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
    char challenge[DUNLIN_WIRE_ID_BYTES];
    uint64_t counter; /* last one used with the challenge */

    /* When to check in again: delay_ms after `from`; drawn once. */
    dunlin__moment wait_from;
    int64_t wait_ms;
    /* Failures in a row, as retry.h counts them: to reach the server, since when; and what was
     * refused or failed for good, with the furthest phase that was. A success ends them. */
    int32_t n_failures;
    dunlin__moment failing_since;
    int32_t n_refusals;
    dunlin_phase refused_phase;

    /* The highest (epoch, round) ever assigned; nothing below is taken. */
    uint64_t seen_epoch;
    uint64_t seen_round;
    /* The last contribution that was accepted. */
    int64_t contributed_wall_ms;
    uint64_t contributed_round;

    /* The current round. */
    dunlin_phase phase;
    dunlin__moment begun; /* receipt of the assignment */
    char session[DUNLIN_WIRE_ID_BYTES];
    char offer_id[DUNLIN_WIRE_ID_BYTES];
    char key[DUNLIN_WIRE_IDEMPOTENCY_BYTES]; /* of the POST of this phase: a retry keeps it */
    int64_t accepted_wait_ms;                /* drawn at check-in, for the round's end */
    int64_t rejected_wait_ms;
    int64_t n_examples; /* what the learner reported */
    int64_t n_steps;
    int64_t learn_ms;
    double loss;
    double accuracy;
    uint64_t peak_bytes;
    int32_t evaluated;  /* the bits of dunlin__evaluated: what the plan asked for and is done */
    double loss_before; /* of the evaluation before the training, and of that after it */
    double accuracy_before;
    double loss_after;
    double accuracy_after;
    int32_t checkpoint; /* of the training: file 1 or 2 of the round's folder; 0: none */
    uint64_t sent_bytes;
    uint64_t received_bytes;
    int32_t
        kept_pending; /* what the current round has written to be kept: file 1 or 2; 0: nothing */

    /* What is kept from round to round (kept.h): in file 1 or 2, 0: nothing; of which task and
     * run. */
    int32_t kept;
    uint64_t kept_epoch;
    char kept_task[DUNLIN_WIRE_ID_BYTES];
    uint64_t kept_round; /* and the round that left it */

    int32_t within_clip; /* of the current round's update: a dunlin_v1_within_clip_t */
} dunlin__journal;

#endif

/*
 * journals.c - journals with a value in every field, and their comparison.
 */
#include "journals.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

void test_journal_fill(dunlin__journal *journal, uint8_t with)
{
    memset(journal, 0, sizeof *journal);
    (void)strcpy(journal->device_id, "device-77");
    memset(journal->private_key, with, sizeof journal->private_key);
    memset(journal->installation, with / 2, sizeof journal->installation);
    (void)strcpy(journal->challenge, "challenge-5");
    journal->counter = UINT64_MAX - 3;
    journal->wait_from = (dunlin__moment){.wall_ms = 11, .boot_ms = 12, .boot_id = "boot-x"};
    journal->wait_ms = 13;
    journal->seen_epoch = 14;
    journal->seen_round = 15;
    journal->contributed_wall_ms = 16;
    journal->contributed_round = 17;
    journal->phase = DUNLIN_PHASE_UPLOAD;
    journal->begun = (dunlin__moment){.wall_ms = 18, .boot_ms = 19, .boot_id = "boot-y"};
    (void)strcpy(journal->session, "session-1");
    (void)strcpy(journal->offer_id, "offer-1");
    (void)strcpy(journal->key, "0123456789abcdef0123456789abcdef");
    journal->accepted_wait_ms = 20;
    journal->rejected_wait_ms = 21;
    journal->n_examples = 22;
    journal->n_steps = 23;
    journal->learn_ms = 24;
    journal->loss = 0.1;
    journal->accuracy = 0.2;
    journal->peak_bytes = 25;
    journal->checkpoint = 2;
    journal->sent_bytes = 26;
    journal->received_bytes = 27;
    journal->kept_pending = 2;
    journal->kept = 1;
    journal->kept_epoch = 28;
    (void)strcpy(journal->kept_task, "task-1");
    journal->kept_round = 31;
    journal->within_clip = 2;
    journal->n_failures = 4;
    journal->failing_since = (dunlin__moment){.wall_ms = 29, .boot_ms = 30, .boot_id = "boot-z"};
    journal->n_refusals = 5;
    journal->refused_phase = DUNLIN_PHASE_LEARN;
    journal->evaluated = DUNLIN_EVALUATED_BEFORE;
    journal->loss_before = 0.3;
    journal->accuracy_before = 0.4;
    journal->loss_after = 0.5;
    journal->accuracy_after = 0.6;
}

void test_journal_expect_same(const dunlin__journal *a, const dunlin__journal *b)
{
    cr_expect_str_eq(a->device_id, b->device_id);
    cr_expect_arr_eq(a->private_key, b->private_key, sizeof a->private_key);
    cr_expect_arr_eq(a->installation, b->installation, sizeof a->installation);
    cr_expect_str_eq(a->challenge, b->challenge);
    cr_expect_eq(a->counter, b->counter);
    cr_expect_eq(a->wait_from.wall_ms, b->wait_from.wall_ms);
    cr_expect_eq(a->wait_from.boot_ms, b->wait_from.boot_ms);
    cr_expect_str_eq(a->wait_from.boot_id, b->wait_from.boot_id);
    cr_expect_eq(a->wait_ms, b->wait_ms);
    cr_expect_eq(a->seen_epoch, b->seen_epoch);
    cr_expect_eq(a->seen_round, b->seen_round);
    cr_expect_eq(a->contributed_wall_ms, b->contributed_wall_ms);
    cr_expect_eq(a->contributed_round, b->contributed_round);
    cr_expect_eq(a->phase, b->phase);
    cr_expect_eq(a->begun.wall_ms, b->begun.wall_ms);
    cr_expect_eq(a->begun.boot_ms, b->begun.boot_ms);
    cr_expect_str_eq(a->begun.boot_id, b->begun.boot_id);
    cr_expect_str_eq(a->session, b->session);
    cr_expect_str_eq(a->offer_id, b->offer_id);
    cr_expect_str_eq(a->key, b->key);
    cr_expect_eq(a->accepted_wait_ms, b->accepted_wait_ms);
    cr_expect_eq(a->rejected_wait_ms, b->rejected_wait_ms);
    cr_expect_eq(a->n_examples, b->n_examples);
    cr_expect_eq(a->n_steps, b->n_steps);
    cr_expect_eq(a->learn_ms, b->learn_ms);
    cr_expect_float_eq(a->loss, b->loss, 0);
    cr_expect_float_eq(a->accuracy, b->accuracy, 0);
    cr_expect_eq(a->peak_bytes, b->peak_bytes);
    cr_expect_eq(a->checkpoint, b->checkpoint);
    cr_expect_eq(a->sent_bytes, b->sent_bytes);
    cr_expect_eq(a->received_bytes, b->received_bytes);
    cr_expect_eq(a->kept_pending, b->kept_pending);
    cr_expect_eq(a->kept, b->kept);
    cr_expect_eq(a->kept_epoch, b->kept_epoch);
    cr_expect_str_eq(a->kept_task, b->kept_task);
    cr_expect_eq(a->kept_round, b->kept_round);
    cr_expect_eq(a->within_clip, b->within_clip);
    cr_expect_eq(a->n_failures, b->n_failures);
    cr_expect_eq(a->failing_since.wall_ms, b->failing_since.wall_ms);
    cr_expect_eq(a->failing_since.boot_ms, b->failing_since.boot_ms);
    cr_expect_str_eq(a->failing_since.boot_id, b->failing_since.boot_id);
    cr_expect_eq(a->n_refusals, b->n_refusals);
    cr_expect_eq(a->refused_phase, b->refused_phase);
    cr_expect_eq(a->evaluated, b->evaluated);
    cr_expect_float_eq(a->loss_before, b->loss_before, 0);
    cr_expect_float_eq(a->accuracy_before, b->accuracy_before, 0);
    cr_expect_float_eq(a->loss_after, b->loss_after, 0);
    cr_expect_float_eq(a->accuracy_after, b->accuracy_after, 0);
}

/*
 * round.c - the driver: performs the session's actions and returns their results to it.
 *
 * Invariant: the journal is on the storage before an action is begun that the server or the learner
 * can see.
 */
#include "round.h"

#include "calls/calls_fleet.h"
#include "calls/calls_update.h"
#include "calls/device_key.h"
#include "checkpoint.h"
#include "client_load.h"
#include "context/client_context.h"
#include "context/conditions.h"
#include "context/round_examples.h"
#include "context/runtime.h"
#include "learn.h"
#include "secure.h"
#include "session/session.h"
#include "store/files.h"
#include "store/store.h"
#include "suspension.h"
#include "telemetry/telemetry.h"
#include "transfer/fetch.h"
#include "transfer/submit.h"
#include "weights/app_model_keep.h"
#include "weights/base_weights.h"
#include "weights/kept.h"

#include <mem/sized.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static int64_t now_ms(const dunlin_client *client)
{
    return client->runtime->clock.boot_ms_fn(client->runtime->clock.ctx);
}

void dunlin__round_free(dunlin_client *client, bool remove_files)
{
    dunlin__round *round = client->round;
    if (round == NULL) {
        return;
    }
    const dunlin_alloc *alloc = &client->runtime->alloc;
    dunlin__learner_drop(client);
    dunlin__base_close(client);
    dunlin__secure_drop(client);
    dunlin__free_array(alloc, round->manifest, round->manifest_bytes, 1);
    dunlin__free_array(alloc, round->metrics, DUNLIN_WIRE_METRICS, sizeof *round->metrics);
    if (remove_files && round->folder[0] != '\0') {
        dunlin__folder_remove(round->folder);
    }
    dunlin__free_array(alloc, round, 1, sizeof *round);
    client->round = NULL;
}

/* Allocates the round, with the journal's assignment if there is one. */
static dunlin_status round_begin(dunlin_client *client)
{
    client->round = dunlin__alloc_zeroed(&client->runtime->alloc, 1, sizeof *client->round);
    if (client->round == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "client", 0, "no memory for a round");
    }
    dunlin__round *round = client->round;
    round->base_fd = -1;
    round->kept_fd = -1;
    round->began_ms = now_ms(client);
    round->report = (dunlin_round_report)DUNLIN_ROUND_REPORT_INIT;
    DUNLIN_TRY(dunlin__client_folder(client, round->folder));
    if (client->journal.phase < DUNLIN_PHASE_FETCH || client->journal.phase > DUNLIN_PHASE_COMMIT) {
        dunlin__round_release_examples(client); /* of a round whose end a kill cut short */
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__store_load_assignment(client->runtime->store, client->name, round->sealed,
                                             sizeof round->sealed, &round->sealed_bytes,
                                             &client->error));
    DUNLIN_TRY(dunlin__assignment_read(client));
    client->session.deadline_ms = dunlin__round_deadline_ms(client);
    client->session.is_evaluation = round->assignment.kind == DUNLIN_V1_KIND_EVALUATE;
    client->session.round = round->assignment.round;
    return DUNLIN_OK;
}

static bool is_post(dunlin__action_kind kind)
{
    return kind != DUNLIN_ACTION_FETCH && kind != DUNLIN_ACTION_LEARN &&
           kind != DUNLIN_ACTION_UPLOAD && kind != DUNLIN_ACTION_PAUSE && kind != DUNLIN_ACTION_END;
}

/* Brings the journal to the storage, with what the next action needs: a key for a POST, a device
 * key for enrolment. */
static dunlin_status write_journal(dunlin_client *client, const dunlin__event *event)
{
    dunlin__journal *journal = &client->journal;
    const dunlin__action *action = &client->action;
    dunlin_error *error = &client->error;
    if (is_post(action->kind) && journal->key[0] == '\0') {
        DUNLIN_TRY(dunlin__idempotency_key(journal->key, error));
    }
    if (action->kind == DUNLIN_ACTION_ENROL) {
        DUNLIN_TRY(dunlin__device_key_make(client));
    }
    /* A wait that begins at this start has been moved: see session.c. */
    bool is_moved = event->kind == DUNLIN_EVENT_START && journal->wait_ms > 0 &&
                    journal->wait_from.wall_ms == event->now.wall_ms &&
                    journal->wait_from.boot_ms == event->now.boot_ms;
    bool is_idle_end =
        action->kind == DUNLIN_ACTION_END && !is_moved &&
        (action->outcome == DUNLIN_OUTCOME_TOO_EARLY || event->kind == DUNLIN_EVENT_START);
    bool is_plain_checkin =
        action->kind == DUNLIN_ACTION_CHECKIN && event->kind != DUNLIN_EVENT_ENROLLED;
    if (is_plain_checkin || action->kind == DUNLIN_ACTION_PAUSE || is_idle_end) {
        return DUNLIN_OK; /* nothing that a kill could lose */
    }
    if (event->kind == DUNLIN_EVENT_ASSIGNED) {
        return dunlin__store_save_assignment(client->runtime->store, client->name, journal,
                                             client->round->sealed, client->round->sealed_bytes,
                                             error);
    }
    return dunlin__store_save(client->runtime->store, client->name, journal, error);
}

/* Copies the round's numbers out of the journal, which the end of the round clears. */
static void note_report(dunlin_client *client)
{
    const dunlin__journal *journal = &client->journal;
    dunlin_round_report *report = &client->round->report;
    report->phase =
        client->session.phase != DUNLIN_PHASE_IDLE ? client->session.phase : report->phase;
    report->round = client->session.round;
    report->body_bytes_sent = journal->sent_bytes + client->round->commit_sent_bytes;
    report->body_bytes_received = journal->received_bytes + client->round->commit_received_bytes;
    report->n_examples = journal->n_examples;
    report->n_steps = journal->n_steps;
    report->loss = journal->loss;
    report->accuracy = journal->accuracy;
    report->peak_bytes = journal->peak_bytes;
    report->is_evaluated_around = journal->evaluated == DUNLIN_EVALUATED_BOTH;
    report->loss_before = journal->loss_before;
    report->accuracy_before = journal->accuracy_before;
    report->loss_after = journal->loss_after;
    report->accuracy_after = journal->accuracy_after;
    report->learn_ms = journal->learn_ms;
    report->n_checkpoints = client->round->pace.n_made;
    report->checkpoint_ms = client->round->pace.spent_ms;
    report->suspended_ms = dunlin__round_suspended_ms(client, now_ms(client));
    report->has_energy = client->round->has_energy && !client->round->has_lost_energy;
    report->energy_j = report->has_energy ? client->round->energy_j : 0.0;
    report->fetch_ms = client->round->fetch_ms;
    report->send_ms = client->round->send_ms;
}

/* Hands an event to the session and writes the journal. A journal that cannot be written ends the
 * round here. */
static dunlin_status take_event(dunlin_client *client, dunlin__event *event)
{
    event->now = dunlin__runtime_now(client->runtime);
    event->random = dunlin__client_random(client);
    note_report(client);
    if (event->kind == DUNLIN_EVENT_FAILED && client->session.phase != DUNLIN_PHASE_ABORT) {
        client->round->failure = client->error;
    }
    client->action = dunlin__session_step(&client->session, &client->journal, event);
    client->has_action = true;
    if (client->action.kind == DUNLIN_ACTION_END && client->action.status == DUNLIN_ROLLBACK) {
        (void)dunlin__fail(&client->round->failure, DUNLIN_ROLLBACK, "client", 0,
                           "the assignment is for round %" PRIu64 "; round %" PRIu64
                           " was seen before",
                           event->round, client->journal.seen_round);
    }
    if (client->action.kind == DUNLIN_ACTION_PAUSE) {
        client->paused_ms = event->now.boot_ms;
    }
    dunlin_status status = write_journal(client, event);
    if (status != DUNLIN_OK) {
        client->session.is_active = false;
        client->has_action = false;
        client->is_ahead = true;
    }
    return status;
}

static dunlin__event failed_event(dunlin_status status, const dunlin__fault *fault)
{
    return (dunlin__event){.kind = DUNLIN_EVENT_FAILED,
                           .status = status,
                           .is_permanent = fault->is_permanent,
                           .is_closed = fault->is_closed,
                           .is_unknown_device = fault->is_unknown_device,
                           .retry_after_ms = fault->retry_after_ms};
}

/* The commit; in a secure aggregation more is to be told after it. */
static dunlin_status commit_action(dunlin_client *client, dunlin__event *out_event,
                                   dunlin__fault *out_fault)
{
    if (dunlin__secure_is_telling(client)) {
        const dunlin_status status = dunlin__secure_tell(client, out_event, out_fault);
        return status != DUNLIN_OK && out_fault->is_closed
                   ? dunlin__secure_give_up(client, out_event)
                   : status;
    }
    DUNLIN_TRY(dunlin__call_commit(client, out_event, out_fault));
    if (dunlin__secure_hold(client, out_event)) {
        *out_event = (dunlin__event){.kind = DUNLIN_EVENT_AWAIT};
    }
    return DUNLIN_OK;
}

static dunlin_status submit_action(dunlin_client *client, dunlin__action_kind kind,
                                   dunlin__event *out_event, dunlin__fault *out_fault)
{
    int64_t begun_ms = now_ms(client);
    dunlin_status status = DUNLIN_OK;
    if (kind == DUNLIN_ACTION_PUT && dunlin__round_is_secure(client)) {
        bool is_done = false;
        status = dunlin__secure_agree(client, out_event, &is_done, out_fault);
        if (status != DUNLIN_OK || !is_done) {
            return status;
        }
    }
    if (!client->session.is_evaluation) {
        status = dunlin__update_read_manifest(client);
        *out_fault = dunlin__fault_of(status);
    }
    if (kind == DUNLIN_ACTION_PUT) {
        dunlin__checkpoint_remove(client);
    }
    if (status == DUNLIN_OK && kind == DUNLIN_ACTION_PUT) {
        status = dunlin__call_put(client, out_event, out_fault);
    } else if (status == DUNLIN_OK && kind == DUNLIN_ACTION_UPLOAD) {
        status = dunlin__update_send(client, out_fault);
        out_event->kind = DUNLIN_EVENT_UPLOADED;
    } else if (status == DUNLIN_OK) {
        status = commit_action(client, out_event, out_fault);
    }
    client->round->send_ms += dunlin__ms_passed(begun_ms, now_ms(client));
    return status;
}

static dunlin_status perform(dunlin_client *client, int64_t max_ms, dunlin__event *out_event,
                             bool *out_has_event, dunlin__fault *out_fault)
{
    const dunlin__action action = client->action;
    dunlin_status status = DUNLIN_OK;
    *out_has_event = true;
    switch (action.kind) {
    case DUNLIN_ACTION_ENROL:
        return dunlin__call_enrol(client, out_event, out_fault);
    case DUNLIN_ACTION_CHECKIN:
        status = dunlin__call_checkin(client, out_event, out_fault);
        return status == DUNLIN_OK && out_event->is_run_over && client->fetches_last
                   ? dunlin__fetch_last(client, out_event, out_fault)
                   : status;
    case DUNLIN_ACTION_ACCEPT:
        return dunlin__call_accept(client, out_event, out_fault);
    case DUNLIN_ACTION_DECLINE:
        return dunlin__call_decline(client, action.reason, out_event, out_fault);
    case DUNLIN_ACTION_FETCH: {
        int64_t begun_ms = now_ms(client);
        status = dunlin__fetch_base(client, out_fault);
        client->round->fetch_ms += dunlin__ms_passed(begun_ms, now_ms(client));
        out_event->kind = DUNLIN_EVENT_FETCHED;
        return status;
    }
    case DUNLIN_ACTION_LEARN:
        *out_has_event = false;
        return dunlin__learner_work(client, max_ms, out_event, out_has_event, out_fault);
    case DUNLIN_ACTION_PUT:
    case DUNLIN_ACTION_UPLOAD:
    case DUNLIN_ACTION_COMMIT:
        return submit_action(client, action.kind, out_event, out_fault);
    case DUNLIN_ACTION_ABORT:
        /* Best effort: a stop must not keep it from being said. */
        dunlin__learner_drop(client);
        atomic_store(&client->is_stopped, false);
        status = dunlin__call_abort(client, action.reason, out_fault);
        out_event->kind = DUNLIN_EVENT_ABORTED;
        return status;
    case DUNLIN_ACTION_PAUSE:
    case DUNLIN_ACTION_END:
    default:
        out_event->kind = DUNLIN_EVENT_RESUME;
        return DUNLIN_OK;
    }
}

/* A new round, or the one of the journal. */
static dunlin_status start(dunlin_client *client)
{
    client->session =
        (dunlin__session){.retry = {.first_ms = client->options.retry_first_ms,
                                    .most_ms = client->options.retry_most_ms,
                                    .refused_first_ms = client->options.retry_refused_first_ms,
                                    .refused_most_ms = client->options.retry_refused_most_ms}};
    if (client->is_ahead) {
        DUNLIN_TRY(dunlin__client_load(client, &client->error));
        client->is_ahead = false;
    }
    dunlin_status status = round_begin(client);
    if (status != DUNLIN_OK) {
        bool is_broken = client->round != NULL && client->journal.phase >= DUNLIN_PHASE_FETCH;
        dunlin__round_free(client, is_broken);
        if (is_broken && status != DUNLIN_MEMORY && status != DUNLIN_LOCKED &&
            status != DUNLIN_IO) {
            /* The assignment cannot be read any more: nothing of this round can go on. */
            client->journal.phase = DUNLIN_PHASE_IDLE;
            dunlin_error kept = client->error;
            if (dunlin__store_save(client->runtime->store, client->name, &client->journal,
                                   &client->error) == DUNLIN_OK) {
                client->error = kept;
            }
        }
        return status;
    }
    dunlin_conditions conditions = dunlin__client_conditions(client);
    dunlin__event event = {.kind = DUNLIN_EVENT_START,
                           .is_eligible = dunlin__client_is_eligible(client, &conditions)};
    return take_event(client, &event);
}

/* Files go with the round, unless its assignment stays in the journal to be gone on with. */
static dunlin_status finish(dunlin_client *client, dunlin_round_report *out_report)
{
    dunlin__action action = client->action;
    dunlin_round_report report = client->round->report;
    dunlin__moment now = dunlin__runtime_now(client->runtime);
    report.outcome = action.outcome;
    report.retry_after_ms =
        dunlin__wait_left_ms(&client->journal.wait_from, client->journal.wait_ms, &now);
    report.total_ms = dunlin__ms_passed(client->round->began_ms, now_ms(client));
    if (action.status != DUNLIN_OK && client->round->failure.status != DUNLIN_OK) {
        client->error = client->round->failure;
    }
    bool is_over = client->journal.phase == DUNLIN_PHASE_IDLE;
    dunlin__telemetry_note(client, &report, action.status);
    dunlin__round_free(client, is_over);
    if (is_over) {
        dunlin__round_release_examples(client);
        dunlin__local_settle(client);
        dunlin__app_model_settle(client);
    }
    if (action.status == DUNLIN_OK && action.outcome != DUNLIN_OUTCOME_TOO_EARLY) {
        dunlin__telemetry_send(client);
    }
    client->has_action = false;
    atomic_store(&client->is_stopped, false);
    atomic_store(&client->is_paused, false);
    if (out_report != NULL) {
        dunlin__struct_give(&report, sizeof report, out_report);
    }
    return action.status;
}

/* The next event: a stop, conditions that do not hold any more, or what performing the action came
 * to. */
static bool next_event(dunlin_client *client, int64_t max_ms, dunlin__event *out_event)
{
    bool is_aborting = client->session.phase == DUNLIN_PHASE_ABORT;
    if (!is_aborting && atomic_load(&client->is_stopped)) {
        out_event->kind = DUNLIN_EVENT_STOP;
        return true;
    }
    if (dunlin__round_is_suspended(client, now_ms(client), out_event)) {
        return true;
    }
    dunlin__fault fault = {.retry_after_ms = -1};
    bool has_event = false;
    bool is_withdrawn = false;
    dunlin_status status = dunlin__round_look_at_examples(client, &is_withdrawn);
    out_event->now = dunlin__runtime_now(client->runtime);
    if (status != DUNLIN_OK) {
        fault = dunlin__fault_of(status);
    } else if (!is_withdrawn) {
        dunlin_phase phase = client->session.phase;
        int64_t begun_ms = now_ms(client);
        status = perform(client, max_ms, out_event, &has_event, &fault);
        client->round->phase_tries[phase]++;
        client->round->phase_ms[phase] += dunlin__ms_passed(begun_ms, now_ms(client));
        if (status != DUNLIN_OK) {
            dunlin_error kept = client->error;
            (void)dunlin__round_look_at_examples(client, &is_withdrawn); /* was that the reason? */
            client->error = kept;
        }
    }
    if (is_withdrawn) {
        out_event->kind = DUNLIN_EVENT_WITHDRAWN;
        return true;
    }
    if (status == DUNLIN_STOPPED && !is_aborting && !atomic_load(&client->is_stopped)) {
        /* A transfer that the deadline or the conditions cut short; the session sees which. */
        if (!dunlin__round_is_suspended(client, now_ms(client), out_event)) {
            out_event->kind = DUNLIN_EVENT_RESUME;
        }
        return true;
    }
    if (status != DUNLIN_OK) {
        *out_event = failed_event(status, &fault);
        return true;
    }
    return has_event;
}

/* Of the current pause; a clock that went back makes it begin again, once. */
static int64_t pause_left_ms(dunlin_client *client)
{
    int64_t at_ms = now_ms(client);
    if (at_ms < client->paused_ms) {
        client->paused_ms = at_ms;
    }
    return client->action.wait_ms - dunlin__ms_passed(client->paused_ms, at_ms);
}

dunlin_status dunlin__round_advance(dunlin_client *client, int64_t max_ms, int64_t *out_wait_ms,
                                    bool *out_is_ended, dunlin_round_report *out_report)
{
    int64_t begun_ms = now_ms(client);
    *out_wait_ms = 0;
    *out_is_ended = false;
    if (!client->has_action) {
        dunlin__round_free(client, false);
        DUNLIN_TRY(start(client));
    }
    do {
        if (dunlin__client_is_to_pause(client)) {
            dunlin__round_keep_training(client);
            note_report(client);
            client->action =
                (dunlin__action){.kind = DUNLIN_ACTION_END, .outcome = DUNLIN_OUTCOME_PAUSED};
        }
        if (client->action.kind == DUNLIN_ACTION_END) {
            *out_is_ended = true;
            return finish(client, out_report);
        }
        int64_t left_ms = pause_left_ms(client);
        if (client->action.kind == DUNLIN_ACTION_PAUSE && left_ms > 0 &&
            !atomic_load(&client->is_stopped)) {
            *out_wait_ms = left_ms;
            return DUNLIN_OK;
        }
        dunlin__event event = {.retry_after_ms = -1};
        if (next_event(client, max_ms, &event)) {
            (void)dunlin__client_tell(client, client->session.phase, 0, 0, 0.0);
            dunlin_status status = take_event(client, &event);
            if (status != DUNLIN_OK) {
                dunlin__round_free(client, false);
                *out_is_ended = true;
                return status;
            }
        }
    } while (dunlin__ms_passed(begun_ms, now_ms(client)) < max_ms ||
             client->action.kind == DUNLIN_ACTION_END);
    return DUNLIN_OK;
}

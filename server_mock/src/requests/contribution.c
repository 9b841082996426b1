/*
 * contribution.c - put, commit, abort: how a finished update gets into a round.
 *
 * Invariant: an update that is answered "accepted" lies whole on the disk under its assignment's
 * name before the transaction that counts it, so the close of the round always finds it.
 */
#include "contribution.h"

#include "base/files.h"
#include "call.h"
#include "model/spool.h"
#include "model/spool_ring.h"
#include "rounds/ahead.h"
#include "rounds/buffered.h"
#include "rounds/clip.h"
#include "rounds/cohort.h"
#include "rounds/profile.h"
#include "rounds/secure.h"
#include "rounds/tally.h"
#include "rounds/tiers.h"
#include "secagg_step.h"
#include "state/context.h"
#include "state/db.h"
#include "state/db_metrics.h"
#include "state/devices.h"
#include "state/reply.h"
#include "task/compress.h"
#include "task/task.h"
#include "update_judge.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool dunlin__server_find_assignment(dunlin__server *server, const char *id,
                                    const dunlin__server_device *device,
                                    dunlin__assignment_row *out_assignment,
                                    dunlin__server_reply *reply)
{
    bool is_found = false;
    dunlin_error error = {0};
    if (dunlin__server_db_find_assignment(server->db, id, out_assignment, &is_found, &error) !=
        DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    if (!is_found || (device != NULL && out_assignment->device != device->row.row)) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                              "there is no assignment %.64s of this device", id);
        return false;
    }
    return true;
}

/* What the device was told about packing, in the assignment of a round. */
static void agree_on_packing(dunlin__call_state *call, const dunlin__assignment_row *assignment)
{
    const dunlin__server_task *task = &call->server->task;
    const uint64_t place = (uint64_t)call->device->row.client_index;
    const uint64_t round = assignment->round;
    call->has_packing = task->is_packed && assignment->packs;
    if (call->has_packing) {
        call->packing =
            dunlin__compress_of(task, round, dunlin__server_work_seed(task->seed, round, place));
    }
}

/* ---- put ---- */

static bool is_present(const dunlin__call_state *call, const dunlin__assignment_row *assignment)
{
    const dunlin__server *server = call->server;
    if (assignment->state == DUNLIN_WORK_OPEN &&
        dunlin__buffered_takes(server, assignment->round) &&
        call->now_ms < assignment->deadline_ms) {
        return true;
    }
    dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_EXPIRED,
                          "the assignment of round %" PRIu64 " is over", assignment->round);
    return false;
}

/* Sets a bit for each chunk that is not there. */
static dunlin_status find_missing(dunlin__call_state *call, const char *folder,
                                  dunlin__put_response *answer, dunlin_error *error)
{
    const dunlin__server_request *request = call->request;
    dunlin__manifest_source source = dunlin__manifest_source_memory(request->body, request->n_body);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, error));
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_CHUNK) {
            dunlin__server_path path;
            char name[DUNLIN_SHA256_HEX_BYTES];
            dunlin__hex_encode(record.sha256, DUNLIN_SHA256_BYTES, name);
            DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/%s", folder, name));
            if (dunlin__server_file_size(path.text) != (int64_t)record.n_bytes) {
                answer->missing.bytes[record.chunk_index / 8] |=
                    (pb_byte_t)(1u << (record.chunk_index % 8));
            }
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    answer->missing.size = (pb_size_t)((answer->n_chunks + 7) / 8);
    return DUNLIN_OK;
}

static dunlin_status keep_manifest(dunlin__call_state *call,
                                   const dunlin__assignment_row *assignment,
                                   dunlin__put_response *answer, dunlin_error *error)
{
    dunlin__server *server = call->server;
    dunlin__server_path folder;
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__server_upload_folder(server, assignment->id, &folder, error));
    DUNLIN_TRY(dunlin__server_folder_make(folder.text, error));
    DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/manifest", folder.text));
    /* The row must not outlive the file: its name and its folder's are synced first. */
    if (!assignment->has_manifest || dunlin__server_file_size(path.text) < 0) {
        DUNLIN_TRY(dunlin__outfile_put(path.text, DUNLIN_SERVER_FILE_MODE, call->request->body,
                                       call->request->n_body, error));
        const int code = dunlin__file_sync_folder(folder.text);
        if (code != 0) {
            return dunlin__file_fail(error, "synchronising the folder of", folder.text, code);
        }
        DUNLIN_TRY(dunlin__server_db_set_manifest(server->db, assignment->id,
                                                  answer->manifest_sha256, error));
    }
    return find_missing(call, folder.text, answer, error);
}

/* Whether the manifest is of what the plan asks for. */
static dunlin_status check_manifest(const dunlin__call_state *call, uint32_t *out_n_chunks,
                                    dunlin_error *error)
{
    const dunlin__server *server = call->server;
    const dunlin__server_request *request = call->request;
    if (server->task.secagg.is_on) {
        const dunlin__secagg_plan plan =
            dunlin__server_task_secagg(&server->task, server->layout.n_shared_values);
        return dunlin__ring_check_manifest(request->body, request->n_body, &plan, out_n_chunks,
                                           error);
    }
    return dunlin__update_check_manifest(request->body, request->n_body, &server->layout,
                                         call->has_packing ? &call->packing : NULL, out_n_chunks,
                                         error);
}

void dunlin__serve_put(dunlin__call_state *call)
{
    dunlin__server *server = call->server;
    dunlin__assignment_row assignment;
    dunlin__put_response answer = {0};
    dunlin_error error = {0};
    if (!dunlin__server_find_assignment(server, call->request->route.id, call->device, &assignment,
                                        call->reply) ||
        !is_present(call, &assignment)) {
        return;
    }
    if (server->round.is_evaluation) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "the assignment is to EVALUATE: no update is wanted");
        return;
    }
    agree_on_packing(call, &assignment);
    dunlin_status status = check_manifest(call, &answer.n_chunks, &error);
    if (status == DUNLIN_OK) {
        status = dunlin__sha256_of(call->request->body, call->request->n_body,
                                   answer.manifest_sha256, &error);
    }
    if (status == DUNLIN_OK && assignment.has_manifest &&
        memcmp(assignment.manifest_sha256, answer.manifest_sha256, DUNLIN_SHA256_BYTES) != 0) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "another manifest was put for assignment %.64s before",
                              call->request->route.id);
        return;
    }
    if (status == DUNLIN_OK) {
        status = keep_manifest(call, &assignment, &answer, &error);
    }
    call->device->is_uploading = dunlin__device_part(server, call->device) == DUNLIN_PART_ASSIGNED;
    if (status == DUNLIN_OK) {
        status = dunlin__put_response_encode(&answer, call->reply->body, sizeof call->reply->body,
                                             &call->reply->n_body, &error);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
    }
}

/* ---- commit ---- */

/* A round that overlaps with the next is closed at once: what comes meanwhile comes again. */
static bool refuse_full(dunlin__call_state *call)
{
    const bool is_full = dunlin__buffered_is_full(call->server, dunlin__server_now(call->server));
    if (is_full) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_UNAVAILABLE,
                              "round %" PRIu64 " is being closed; commit again",
                              call->server->round.round);
    }
    return is_full;
}

/* True if the assignment is still worth the copying. */
static bool wants_spool(dunlin__call_state *call, dunlin__assignment_row *out_assignment,
                        bool *out_is_wanted)
{
    dunlin__server *server = call->server;
    (void)pthread_mutex_lock(&server->lock);
    bool is_found = dunlin__server_find_assignment(server, call->request->route.id, call->device,
                                                   out_assignment, call->reply);
    *out_is_wanted = is_found && out_assignment->state == DUNLIN_WORK_OPEN &&
                     dunlin__buffered_takes(server, out_assignment->round);
    call->round = out_assignment->round;
    agree_on_packing(call, out_assignment);
    call->clip_norm = *out_is_wanted ? dunlin__clip_norm(server) : 0;
    /* Here rather than in the transaction, whose failure would make the state be read again. */
    is_found = is_found && !(*out_is_wanted && refuse_full(call));
    (void)pthread_mutex_unlock(&server->lock);
    return is_found;
}

bool dunlin__serve_commit_prepare(dunlin__call_state *call)
{
    const dunlin__server *server = call->server;
    dunlin_error error = {0};
    if (dunlin__commit_request_decode(call->request->body, call->request->n_body, &call->commit,
                                      &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return false;
    }
    dunlin__assignment_row assignment;
    bool is_wanted = false;
    if (!wants_spool(call, &assignment, &is_wanted)) {
        return false;
    }
    bool is_evaluation = dunlin__server_task_is_evaluation(&server->task, assignment.round);
    const dunlin_v1_encoding_t encoding =
        dunlin__server_task_encoding(&server->task, call->has_packing);
    bool is_right = is_evaluation ? call->commit.kind == DUNLIN_V1_KIND_EVALUATE
                                  : call->commit.kind == DUNLIN_V1_KIND_TRAIN &&
                                        call->commit.encoding == encoding;
    if (!is_right) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "CommitRequest: the assignment is to %s%s%s",
                              is_evaluation ? "EVALUATE" : "TRAIN, with ",
                              is_evaluation ? "" : dunlin__encoding_name(encoding),
                              is_evaluation ? "" : " updates");
        return false;
    }
    if (!is_wanted || is_evaluation) {
        return true;
    }
    if (!assignment.has_manifest || memcmp(assignment.manifest_sha256, call->commit.manifest_sha256,
                                           DUNLIN_SHA256_BYTES) != 0) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "CommitRequest.manifest_sha256 is not of the manifest that was put");
        return false;
    }
    return server->task.secagg.is_on ? dunlin__secagg_vector_is_whole(call, assignment.id)
                                     : dunlin__update_judge(call, assignment.id);
}

/* What the round says to the assignment. NULL text: accepted. */
static dunlin_v1_commit_outcome_t decide(const dunlin__call_state *call,
                                         const dunlin__assignment_row *assignment,
                                         const char **out_text)
{
    const dunlin__server *server = call->server;
    *out_text = "";
    if (assignment->state == DUNLIN_WORK_DONE) {
        return DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED;
    }
    if (assignment->state == DUNLIN_WORK_GONE) {
        *out_text = "the assignment was given up or replaced by a newer one";
        return DUNLIN_V1_COMMIT_OUTCOME_REFUSED;
    }
    if (!dunlin__buffered_takes(server, assignment->round)) {
        if (server->task.buffered.is_on) {
            *out_text =
                server->is_done ? "the run is over" : "the base is older than max_staleness";
            return DUNLIN_V1_COMMIT_OUTCOME_LATE;
        }
        dunlin__close_reason reason = server->round.reason;
        for (size_t i = 0; i < server->n_closed; i++) {
            if (server->closed[i].round == assignment->round) {
                reason = server->closed[i].reason;
            }
        }
        *out_text = reason == DUNLIN_CLOSE_TAKEN_BACK
                        ? "the model the round began from was taken back"
                        : "the round has closed";
        return reason == DUNLIN_CLOSE_GOAL ? DUNLIN_V1_COMMIT_OUTCOME_GOAL_REACHED
                                           : DUNLIN_V1_COMMIT_OUTCOME_LATE;
    }
    if (call->now_ms >= assignment->deadline_ms) {
        *out_text = "the deadline has passed";
        return DUNLIN_V1_COMMIT_OUTCOME_LATE;
    }
    if (server->task.secagg.is_on) {
        return dunlin__secagg_takes_vector(call, out_text) ? DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED
                                                           : DUNLIN_V1_COMMIT_OUTCOME_LATE;
    }
    if (dunlin__server_count_parts(server, call->now_ms).n_accepted >=
        dunlin__server_goal(server)) {
        *out_text = "the round has enough without it";
        return DUNLIN_V1_COMMIT_OUTCOME_GOAL_REACHED;
    }
    if (call->is_refused) {
        *out_text = call->refusal;
        return DUNLIN_V1_COMMIT_OUTCOME_REFUSED;
    }
    if (dunlin__device_part(server, call->device) == DUNLIN_PART_ACCEPTED) {
        *out_text = "the device has contributed to this round already";
        return DUNLIN_V1_COMMIT_OUTCOME_REFUSED;
    }
    return DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED;
}

/* The update gets the name that the close of the round looks for. */
static dunlin_status keep_update(dunlin__call_state *call, const char *assignment_id,
                                 dunlin_error *error)
{
    const dunlin__server *server = call->server;
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__server_spool_path(server, assignment_id, &path, error));
    DUNLIN_TRY(dunlin__server_file_settle(-1, call->spooled.text, path.text, error));
    call->spooled.text[0] = 0;
    return DUNLIN_OK;
}

static dunlin_status count_contribution(dunlin__call_state *call,
                                        const dunlin__assignment_row *assignment,
                                        dunlin_error *error)
{
    dunlin__server *server = call->server;
    const dunlin__commit_request *commit = &call->commit;
    /* Numbers of single devices stay with them. */
    const bool is_private = server->task.dp.is_on || server->task.secagg.is_on;
    /* buffered: a later round than the assignment's */
    dunlin__contribution_row row = dunlin__server_tally_contribution(
        server, server->round.round, call->device->row.client_index, commit);
    row.device = call->device->row.row;
    memcpy(row.assignment, assignment->id, sizeof row.assignment);
    DUNLIN_TRY(dunlin__server_db_add_contribution(server->db, &row, error));
    DUNLIN_TRY(dunlin__buffered_note(server, &row, assignment->round, error));
    DUNLIN_TRY(dunlin__tiers_note(server, &row, error));
    for (size_t i = 0; i < commit->app_metrics_count && !is_private; i++) {
        DUNLIN_TRY(dunlin__server_db_add_app_metric(server->db, row.round, row.client_index,
                                                    commit->app_metrics[i].name,
                                                    commit->app_metrics[i].value, error));
    }
    if (server->task.secagg.is_on) {
        DUNLIN_TRY(dunlin__secagg_take_vector(call, assignment->id, error));
    } else if (commit->kind == DUNLIN_V1_KIND_TRAIN) {
        DUNLIN_TRY(keep_update(call, assignment->id, error));
    }
    DUNLIN_TRY(
        dunlin__server_db_end_assignment(server->db, assignment->id, DUNLIN_WORK_DONE, error));
    dunlin__device_set_part(server, call->device, DUNLIN_PART_ACCEPTED);
    dunlin__profile_report(server, call->device, &row, call->now_ms);
    return DUNLIN_OK;
}

/* An assignment that ends without a contribution. `has_failed`: something went wrong. */
static dunlin_status end_assignment(dunlin__call_state *call,
                                    const dunlin__assignment_row *assignment, bool has_failed,
                                    dunlin_error *error)
{
    dunlin__server *server = call->server;
    if (assignment->state != DUNLIN_WORK_OPEN) {
        return DUNLIN_OK;
    }
    if (dunlin__buffered_takes(server, assignment->round) &&
        dunlin__device_part(server, call->device) == DUNLIN_PART_ASSIGNED) {
        dunlin__device_set_part(server, call->device, DUNLIN_PART_DROPPED);
        call->device->has_failed = has_failed;
    }
    return dunlin__server_db_end_assignment(server->db, assignment->id, DUNLIN_WORK_GONE, error);
}

void dunlin__serve_commit(dunlin__call_state *call)
{
    dunlin__assignment_row assignment;
    dunlin_error error = {0};
    if (!dunlin__server_find_assignment(call->server, call->request->route.id, call->device,
                                        &assignment, call->reply)) {
        return;
    }
    if (refuse_full(call)) {
        return;
    }
    const char *text = "";
    dunlin__commit_response answer = {.has_window = true};
    answer.outcome = decide(call, &assignment, &text);
    bool is_new =
        answer.outcome == DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED && assignment.state == DUNLIN_WORK_OPEN;
    if (is_new && call->commit.kind == DUNLIN_V1_KIND_TRAIN && call->spooled.text[0] == 0 &&
        !call->is_whole) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_UNAVAILABLE,
                              "round %" PRId64 " has just been opened; commit again",
                              (int64_t)assignment.round);
        return;
    }
    bool is_bad = answer.outcome == DUNLIN_V1_COMMIT_OUTCOME_REFUSED;
    dunlin_status status = is_new ? count_contribution(call, &assignment, &error)
                                  : end_assignment(call, &assignment, is_bad, &error);
    if (status == DUNLIN_STATE) {
        /* Its place in the order has been taken: by the device it was before it lost its key. */
        answer.outcome = DUNLIN_V1_COMMIT_OUTCOME_REFUSED;
        text = "this client has contributed to the round already";
        status = end_assignment(call, &assignment, true, &error);
    }
    if (answer.outcome == DUNLIN_V1_COMMIT_OUTCOME_LATE) {
        dunlin__profile_late(call->device, call->now_ms);
    }
    if (assignment.state == DUNLIN_WORK_OPEN) { /* else it has been told before */
        dunlin__call_note(call, DUNLIN_SERVER_EVENT_COMMIT, (uint32_t)answer.outcome,
                          call->device->row.client_index, "%s", text);
    }
    uint64_t wait_ms = answer.outcome == DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED
                           ? call->server->options.accept_ms
                           : dunlin__server_wait_ms(call->server, call->device);
    answer.window = dunlin__server_window(wait_ms);
    (void)snprintf(answer.text, sizeof answer.text, "%s", text);
    if (status == DUNLIN_OK) {
        status = dunlin__commit_response_encode(
            &answer, call->reply->body, sizeof call->reply->body, &call->reply->n_body, &error);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    memcpy(call->finished_assignment, assignment.id, sizeof assignment.id);
}

/* ---- abort ---- */

/* What a device gave up because it could not go on, not because it was to stop. */
static bool is_failure(dunlin_v1_abort_reason_t reason)
{
    return reason == DUNLIN_V1_ABORT_REASON_DOWNLOAD || reason == DUNLIN_V1_ABORT_REASON_TRAINING ||
           reason == DUNLIN_V1_ABORT_REASON_UPLOAD || reason == DUNLIN_V1_ABORT_REASON_REFUSED;
}

void dunlin__serve_abort(dunlin__call_state *call)
{
    dunlin__abort_request request;
    dunlin__assignment_row assignment;
    dunlin_error error = {0};
    if (dunlin__abort_request_decode(call->request->body, call->request->n_body, &request,
                                     &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    if (!dunlin__server_find_assignment(call->server, call->request->route.id, call->device,
                                        &assignment, call->reply)) {
        return;
    }
    dunlin__abort_response answer = {.has_window = true};
    if (assignment.round == call->server->round.round) { /* also behind its commit */
        dunlin__secure_leave(call->server, call->device);
    }
    dunlin_status status = end_assignment(call, &assignment, is_failure(request.reason), &error);
    answer.window = dunlin__server_window(dunlin__server_wait_ms(call->server, call->device));
    if (status == DUNLIN_OK) {
        status = dunlin__abort_response_encode(&answer, call->reply->body, sizeof call->reply->body,
                                               &call->reply->n_body, &error);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    if (assignment.state == DUNLIN_WORK_OPEN) {
        memcpy(call->finished_assignment, assignment.id, sizeof assignment.id);
    }
    if (assignment.state == DUNLIN_WORK_OPEN) {
        dunlin__call_note(call, DUNLIN_SERVER_EVENT_ABORT, (uint32_t)request.reason,
                          call->device->row.client_index, "round %" PRIu64 ", %s", assignment.round,
                          dunlin_status_name((dunlin_status)request.status));
    }
}
